"""Joined rows as people have them, before anything is encoded.

All ids, labels and class names are text, exactly as the files have them: "007" stays "007".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.intake import ColumnRole, Finding
from labelchef.believe.rules import Rule

ID = "id"
"""The column of every frame of rows that names the item."""


@dataclass(frozen=True)
class Rows:
    """Rows of one split: n items with their content."""

    frame: pd.DataFrame
    """Column `id` (text, distinct) and the content columns by their own names; the index counts from 0."""
    labels: tuple[str | None, ...]
    """(n,) labels known to be right: all of trusted and test rows; None for training rows, unless one is known."""
    features: NDArray[np.float32] | None = None
    """(n, d) numbers that came as they are: embeddings."""

    @property
    def ids(self) -> list[str]:
        """(n,)"""
        return [str(key) for key in self.frame[ID].tolist()]

    def __len__(self) -> int:
        return len(self.frame)


@dataclass(frozen=True)
class Raw:
    """Everything that the files say, joined by id."""

    train: Rows
    trusted: Rows
    test: Rows | None
    content: Mapping[str, ColumnRole]
    """Content column → text, image, feature or shown; the same in all splits."""
    classes: tuple[str, ...]
    votes: pd.DataFrame
    """Long: item (id), source, label, all text, and, where a vote is soft, probability; on rows of every split."""
    media: Path | None = None
    """The folder that image columns are relative to."""
    findings: tuple[Finding, ...] = field(default=())
    rules: tuple[Rule, ...] = ()
    """Rules whose votes are among `votes`."""
    id_column: str | None = None
    """The column of the items that names them; None for row numbers."""
    hidden: tuple[str, ...] = ()
    """Columns that are not used, as each alone tells the label of the trusted rows."""
    fold_case: bool = False
    """Whether labels that differ in upper and lower case only are one class."""

    def columns(self, role: ColumnRole) -> tuple[str, ...]:
        """The content columns of this role."""
        return tuple(name for name, found in self.content.items() if found is role)
