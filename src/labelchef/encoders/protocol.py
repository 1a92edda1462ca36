"""The contract of encoders.

An encoder reads some columns of a frame and gives one block B (n, width) in float32. It is fitted on the rows of a campaign
(all splits but test; labels are never seen), and then fixed: new rows get the same columns. A fitted block is arrays and plain
JSON values, so that a model file can hold it without pickle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.domain.intake import Progress, no_progress

Block = NDArray[np.float32]


@dataclass(frozen=True)
class State:
    """A fitted block as a file can hold it."""

    kind: str
    """Name of the class in `labelchef.encoders.KINDS` that reads it."""
    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]
    """JSON: columns, options, vocabulary …"""


class FittedBlock(Protocol):
    """An encoder after its fit."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a frame that it reads."""
        ...

    @property
    def width(self) -> int:
        """Columns of the block."""
        ...

    def transform(self, frame: pd.DataFrame, media: Path | None = None, progress: Progress = no_progress) -> Block:
        """(n, width) for the rows of a frame; `media` is the folder that images are relative to."""
        ...

    def state(self) -> State:
        """What a file keeps."""
        ...


class Encoder(Protocol):
    """Makes a block of some columns."""

    @property
    def key(self) -> str:
        """What distinguishes its results from those of other encoders and options: part of the cache's key."""
        ...

    def fit(self, frame: pd.DataFrame, media: Path | None = None, progress: Progress = no_progress) -> FittedBlock:
        """Learn what there is to learn from the rows: a vocabulary, directions, categories."""
        ...
