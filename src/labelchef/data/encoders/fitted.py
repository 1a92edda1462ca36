"""All blocks of a campaign side by side, as one fitted encoder that new rows go through too.

    X = c [ w_1 s_1 B_1 | … | w_K s_K B_K ]    (n, D) float32,      s_k = 1 / sqrt(g_k · mean squared length of the rows of B_k)
                                                                    c = 1 / sqrt(Σ_groups w²)

g_k is the number of blocks in the group of block k: words and characters of one text are one group, every other block is one by
itself. After s_k, every group has rows of mean squared length 1, so none counts more because its numbers are larger or because
it comes in two parts. The weights w_k say which group counts more because it is of more use; `data.intake.weighing` chooses them.
With c, the rows of X have mean squared length 1 whatever the weights: weights change what counts against what, not how strong
the penalty on the bias is against that on the rest. A block of weight 0 is left out.

A fitted encoder is written as one .npz without pickle: `meta`, a text in JSON

    {"format": 1, "blocks": [{"kind": …, "scale": s_k, "weight": w_k, "arrays": […], "facts": {…}}, …]}

and the arrays of block k as `k.NAME`. The same encoder gives the same bytes. Pretrained networks are kept by reference: their
name and a digest of their weights.
"""

import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError, MissingExtraError, TooLargeError
from labelchef.base.intake import ColumnRole, Progress, no_progress
from labelchef.base.npy import read_npz
from labelchef.data.encoders.images import FittedNetwork, FittedPixels
from labelchef.data.encoders.numbers import FittedNumbers
from labelchef.data.encoders.protocol import Block, Content, FittedBlock, State
from labelchef.data.encoders.sentences import FittedSentences
from labelchef.data.encoders.specs import AUTO, EncoderSpecs, encoders_of
from labelchef.data.encoders.tables import FittedTable
from labelchef.data.encoders.text import FittedTfidf

FORMAT = 1

KINDS: dict[str, Callable[[State], FittedBlock]] = {
    "tfidf": FittedTfidf.of_state,
    "sentences": FittedSentences.of_state,
    "pixels": FittedPixels.of_state,
    "network": FittedNetwork.of_state,
    "table": FittedTable.of_state,
    "numbers": FittedNumbers.of_state,
}
"""Kind of a block → what reads its state."""


@dataclass(frozen=True, eq=False)
class FittedEncoder:
    """Fitted blocks with their scales and weights."""

    blocks: tuple[FittedBlock, ...]
    scales: tuple[float, ...]
    """(K,) s_k."""
    weights: tuple[float, ...]
    """(K,) w_k, above 0."""
    id_column: str | None = None
    """The column that named the rows it was fitted on; it is not encoded."""

    @property
    def width(self) -> int:
        """D."""
        return sum(block.width for block in self.blocks)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a frame must have, each once."""
        return tuple(dict.fromkeys(name for block in self.blocks for name in block.columns))

    @property
    def names(self) -> tuple[str, ...]:
        """(K,) what people read of the blocks."""
        return tuple(block.name for block in self.blocks)

    @property
    def groups(self) -> tuple[str, ...]:
        """(K,) the group of each block."""
        return tuple(block.group for block in self.blocks)

    def transform(
        self,
        frame: pd.DataFrame,
        features: NDArray[np.floating[Any]] | None = None,
        media: Path | None = None,
        progress: Progress = no_progress,
    ) -> Block:
        """X (n, D) for the rows of a frame; other columns of it are not read."""
        content = Content(frame, features, media)
        self.check(content)
        X, at = np.empty((len(content), self.width), dtype=np.float32), 0
        for block, factor in zip(self.blocks, self._factors, strict=True):
            np.multiply(block.transform(content, progress), np.float32(factor), out=X[:, at : at + block.width])
            at += block.width
        return X

    def joined(self, blocks: Sequence[Block]) -> Block:
        """X (n, D) of blocks that were encoded already."""
        return np.hstack([B * np.float32(f) for B, f in zip(blocks, self._factors, strict=True)])

    def check(self, content: Content) -> None:
        """Refuse rows that lack what the blocks read."""
        missing = [name for name in self.columns if name not in content.frame.columns]
        if missing:
            raise InvalidInputError(
                f"the columns {missing} are missing; the rows have {[str(c) for c in content.frame.columns][:20]}. The model "
                f"reads {list(self.columns)}: rename the columns, or add them",
                code="columns",
            )
        if content.features is not None and len(content.features) != len(content):
            raise InvalidInputError(
                f"features of {len(content.features)} rows came with a table of {len(content)} rows; expected as many",
                code="features",
            )

    def weighted(self, weights: Sequence[float]) -> "FittedEncoder":
        """The same blocks with other weights (K,); those of weight 0 are left out."""
        kept = [k for k, weight in enumerate(weights) if weight > 0]
        if len(weights) != len(self.blocks) or not kept:
            raise InvalidInputError(
                f"the weights are {list(weights)}; expected {len(self.blocks)} of them, one above 0", code="weights"
            )
        return FittedEncoder(
            tuple(self.blocks[k] for k in kept),
            tuple(self.scales[k] for k in kept),
            tuple(float(weights[k]) for k in kept),
            self.id_column,
        )

    def cached(self, cache: Path | None) -> "FittedEncoder":
        """The same, with what networks make of rows kept in a folder."""
        kept = tuple(
            one.with_cache(cache) if isinstance(one, FittedSentences | FittedNetwork) else one for one in self.blocks
        )
        return replace(self, blocks=kept)

    def to_bytes(self) -> bytes:
        """One .npz without pickle."""
        arrays: dict[str, NDArray[Any]] = {}
        described = []
        for k, (block, scale, weight) in enumerate(zip(self.blocks, self.scales, self.weights, strict=True)):
            state = block.state()
            arrays |= {f"{k}.{name}": array for name, array in state.arrays.items()}
            described.append(
                {
                    "kind": state.kind,
                    "scale": scale,
                    "weight": weight,
                    "arrays": list(state.arrays),
                    "facts": dict(state.facts),
                }
            )
        meta = np.array(json.dumps({"format": FORMAT, "blocks": described, "id": self.id_column}, ensure_ascii=True))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:  # np.savez would write the time of day into it
            for name, array in {"meta": meta, **arrays}.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
        return out.getvalue()

    @classmethod
    def of_bytes(cls, raw: bytes) -> "FittedEncoder":
        """From what `to_bytes` gave. Nothing in it is executed; anything else is refused."""
        try:
            arrays = read_npz(raw, "the encoder")
            meta = json.loads(str(arrays["meta"]))
            version = int(meta["format"])
        except TooLargeError:
            raise
        except Exception as error:  # every way in which bytes can fail to be an encoder
            raise InvalidInputError(
                f"this is no encoder that labelchef wrote: {_said(error)}", code="encoder"
            ) from None
        if version != FORMAT:
            raise InvalidInputError(
                f"the encoder has format {version}; this version of labelchef reads {FORMAT}. Read it with a later version",
                code="encoder",
            )
        try:
            made = cls(
                tuple(_block(k, one, arrays) for k, one in enumerate(meta["blocks"])),
                tuple(_positive(one["scale"]) for one in meta["blocks"]),
                tuple(_positive(one["weight"]) for one in meta["blocks"]),
                None if meta.get("id") is None else str(meta["id"]),
            )
        except MissingExtraError:
            raise
        except Exception as error:
            raise InvalidInputError(
                f"the encoder is damaged: {_said(error)}. Restore it from a copy", code="encoder"
            ) from None
        if not made.blocks:
            raise InvalidInputError("the encoder has no block; expected one or more", code="encoder")
        return made

    @property
    def _factors(self) -> tuple[float, ...]:
        groups = Counter(self.groups)
        length = sum(w * w / groups[name] for w, name in zip(self.weights, self.groups, strict=True))
        return tuple(s * w / float(np.sqrt(length)) for s, w in zip(self.scales, self.weights, strict=True))


def _block(k: int, one: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> FittedBlock:
    kind = str(one["kind"])
    if kind not in KINDS:
        raise InvalidInputError(f"block {k} is of kind {kind!r}; expected one of: {', '.join(KINDS)}", code="encoder")
    return KINDS[kind](State(kind, {str(name): arrays[f"{k}.{name}"] for name in one["arrays"]}, one["facts"]))


def _positive(value: Any) -> float:
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise InvalidInputError(f"a factor is {value!r}; expected a number above 0", code="encoder")
    return number


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class Encoded:
    """A fitted encoder and its blocks on the rows that it was fitted on."""

    encoder: FittedEncoder
    blocks: tuple[Block, ...]
    """K of (n, width_k), neither scaled nor weighted."""

    @property
    def X(self) -> Block:  # noqa: N802
        """(n, D) what the model learns from."""
        return self.encoder.joined(self.blocks)

    def weighted(self, weights: Sequence[float]) -> "Encoded":
        """With other weights of the blocks; those of weight 0 are left out."""
        kept = tuple(B for B, weight in zip(self.blocks, weights, strict=True) if weight > 0)
        return replace(self, encoder=self.encoder.weighted(weights), blocks=kept)


def fit_encoder(
    rows: Content,
    content: Mapping[str, ColumnRole],
    specs: EncoderSpecs = (AUTO,),
    *,
    cache: Path | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Encoded:
    """Fit every encoder on the rows of training and trusted samples, with weights 1.

    `content` says what the columns are; those shown only, and others, are not encoded. Results of networks are kept in the
    folder `cache`, if given, so that a run that was interrupted goes on where it was.

    >>> rows = Content(pd.DataFrame({"review": ["good food", "bad food", "good"]}))
    >>> encoded = fit_encoder(rows, {"review": ColumnRole.TEXT}, ["tfidf"])
    >>> encoded.encoder.names, bool(np.allclose(encoded.encoder.transform(rows.frame), encoded.X))
    (('words of review', 'chars of review'), True)
    """
    blocks, values = [], []
    for encoder in encoders_of(
        content, specs, given=rows.features is not None, n_rows=len(rows), cache=cache, seed=seed
    ):
        block = encoder.fit(rows, progress)
        if block.width:
            blocks.append(block)
            values.append(block.transform(rows, progress))
    if not blocks:
        raise InvalidInputError(
            f"there is nothing to learn from in the columns {list(content)}; expected texts, images, numbers or categories "
            "that are not empty. Name the columns: --text, --image or --columns",
            code="columns",
        )
    groups = Counter(block.group for block in blocks)
    scales = tuple(scale_of(B) / float(np.sqrt(groups[block.group])) for block, B in zip(blocks, values, strict=True))
    return Encoded(FittedEncoder(tuple(blocks), scales, (1.0,) * len(blocks)), tuple(values))


def scale_of(B: Block) -> float:
    """The factor that makes the mean squared length of the rows 1; 1 if all are zero."""
    length = float(np.einsum("ij,ij->", B, B, dtype=np.float64)) / max(1, len(B))
    return 1.0 / np.sqrt(length) if length > 0 else 1.0
