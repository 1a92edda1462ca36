"""The contract of encoders.

An encoder reads some columns of a frame and gives one block B (n, width) in float32. It is fitted on the rows of a campaign
(all splits but test; labels are never seen), and then fixed: new rows get the same columns. A fitted block is arrays and plain
JSON values, so that a model file can hold it without pickle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import Progress, no_progress

Block: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class Content:
    """What encoders read of n rows."""

    frame: pd.DataFrame
    """Content columns by their own names; other columns are not read."""
    features: NDArray[np.floating[Any]] | None = None
    """(n, d) numbers that came as they are: embeddings."""
    media: Path | None = None
    """The folder that images are relative to."""

    def __len__(self) -> int:
        return len(self.frame)

    def part(self, rows: "slice | NDArray[np.int64]") -> "Content":
        """Some of the rows."""
        features = None if self.features is None else self.features[rows]
        return Content(self.frame.iloc[rows], features, self.media)

    def column(self, name: str) -> "pd.Series[Any]":
        """A column of the frame, or an error that names those that are missing."""
        if name not in self.frame.columns:
            raise InvalidInputError(
                f"there is no column {name!r}; the rows have {[str(one) for one in self.frame.columns][:20]}. "
                "The encoder was fitted on it: give rows with the same columns",
                code="columns",
            )
        return self.frame[name]

    def texts(self, columns: Sequence[str]) -> list[str]:
        """(n,) the text of every row: its columns, one below the other; a missing value is an empty text."""
        parts = [_texts(self.column(name)) for name in columns]
        return parts[0] if len(parts) == 1 else ["\n".join(filter(None, row)) for row in zip(*parts, strict=True)]

    @classmethod
    def stacked(cls, parts: "Sequence[Content]") -> "Content":
        """Rows of several parts, one below the other; all of them have features, or none."""
        features = [part.features for part in parts if part.features is not None]
        if features and len(features) < len(parts):
            raise InvalidInputError(
                "features came for some splits only; expected them for training and trusted rows alike", code="features"
            )
        frame = pd.concat([part.frame for part in parts], ignore_index=True)
        return cls(frame, np.concatenate(features) if features else None, parts[0].media)


def _texts(column: "pd.Series[Any]") -> list[str]:
    missing = column.isna().tolist()
    return ["" if lacking else str(value) for value, lacking in zip(column.tolist(), missing, strict=True)]


@dataclass(frozen=True)
class State:
    """A fitted block as a file can hold it."""

    kind: str
    """Name of the class in `labelchef.data.encoders.fitted.KINDS` that reads it."""
    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
    """JSON: columns, options, names …"""


class FittedBlock(Protocol):
    """An encoder after its fit."""

    @property
    def name(self) -> str:
        """What people read: 'words of text', 'columns age, city' …"""
        ...

    @property
    def group(self) -> str:
        """Blocks of one group say the same thing in different ways: they are scaled and weighed as one."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a frame that it reads."""
        ...

    @property
    def width(self) -> int:
        """Columns of the block."""
        ...

    def transform(self, content: Content, progress: Progress = no_progress) -> Block:
        """(n, width) for the rows."""
        ...

    def state(self) -> State:
        """What a file keeps."""
        ...


class Encoder(Protocol):
    """Makes a block of some columns."""

    def fit(self, content: Content, progress: Progress = no_progress) -> FittedBlock:
        """Learn what there is to learn from the rows: a vocabulary, directions, categories."""
        ...
