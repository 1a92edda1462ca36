"""Copies: training rows with the same content are one question. One of them is asked and trains, and its answer labels all.

    of (N,)     i          row i is asked and trains, as every row without copies
                r < N      row i is a copy of row r: it is not asked and does not train; it has the label of row r
                N + k      row i is a copy of the known row k (trusted rows, then judging rows, then test rows): likewise

Two rows have the same content if all that people see of them is the same, but for ids and for spaces around texts. Rows of which
people see nothing are compared by their features. Copies of known rows do not train because a model that has seen a copy of a
row cannot be judged on that row. Where known labels of one content differ, content does not tell the label: no copies then.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.records import UNRESOLVED

Found = TypeVar("Found")
Keys: TypeAlias = NDArray[np.uint64]
"""(n,) digests; rows with equal ones have the same content, but for those of `NOTHING`."""
NOTHING = 0
_AT_ONCE = 4096  # rows made float64 at a time
_FIRST = 16
_COMPARED = 2000  # distinct rows of which equal pairs are counted, column by column


@dataclass(frozen=True)
class Copies:
    """Which of N training rows are copies, and of which row."""

    of: Ints
    """(N,), see above."""

    @cached_property
    def silent(self) -> Bools:
        """(N,) the copies: rows that are not asked and do not train."""
        return np.asarray(self.of != np.arange(len(self.of)))

    def asked(self, rows: Ints) -> Ints:
        """The rows that are asked in place of these; −1 for copies of known rows."""
        found = self.of[rows]
        return np.where(found < len(self.of), found, -1)

    def shared(self, values: Any) -> Any:
        """(N, …) the same values, with that of the row that is asked for each of its copies."""
        return values[np.where(self.of < len(self.of), self.of, np.arange(len(self.of)))]

    def labelled(self, values: Float64s, labels: Float64s, cleaned: Bools) -> Float64s:
        """(N, C) these values, with the labels of rows that are known in place of the values of these rows' copies."""
        known = self.silent & self.shared(cleaned)
        return np.where(known[:, None], self.shared(labels), values)

    @cached_property
    def groups(self) -> Mapping[int, Ints]:
        """Row that is asked → its copies, where there are any."""
        found = defaultdict(list)
        for row in np.flatnonzero(self.silent & (self.of < len(self.of))).tolist():
            found[int(self.of[row])].append(row)
        return {row: np.array(copies) for row, copies in found.items()}

    def extended(self, known: Mapping[int, Found]) -> dict[int, Found]:
        """Row → what is known of it, and the same for its copies."""
        return {**known, **{int(k): known[row] for row, copies in self.groups.items() if row in known for k in copies}}

    @classmethod
    def found(
        cls, keys: Keys, clean: Ints, known_keys: Keys, known: Ints, askable: Bools | None
    ) -> tuple["Copies", Ints]:
        """Copies by keys of contents, and the labels (N,) that are known from the start, those of copies of known rows too.

        `clean` (N,) are class ids of training rows, −1 where none is known; `known` those of the known rows. A row whose label is
        known stands for its copies before one that can be asked, that before one that cannot.
        """
        N, of, clean = len(keys), np.arange(len(keys)), clean.copy()
        distinct, group, size = np.unique(np.concatenate([keys, known_keys]), return_inverse=True, return_counts=True)
        order = np.argsort(group, kind="stable")
        order = order[(size[group[order]] > 1) & (distinct[group[order]] != NOTHING)]
        labels = np.concatenate([clean, known])
        may_be_asked = np.ones(N, dtype=bool) if askable is None else askable
        for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            inside, outside = rows[rows < N], rows[rows >= N]
            if len({*labels[rows].tolist()} - {UNRESOLVED}) > 1:
                continue
            if len(outside):
                of[inside], clean[inside] = outside[0], labels[outside[0]]
            elif len(inside):
                of[inside] = min(inside.tolist(), key=lambda i: (clean[i] == UNRESOLVED, not may_be_asked[i], i))
        return cls(of), clean


def content_keys(parts: Iterable[pd.DataFrame], images: Sequence[str], media: Path | None) -> Keys:
    """A digest of what people see of each row, `NOTHING` where that is nothing. `images` are columns of files below `media`."""
    keys: list[int] = []
    for part in parts:
        columns = [name for name in part.columns if name != "id"]
        held = [cells for name, cells in part.items() if name != "id"]
        for row in zip(*held, strict=True) if columns else [()] * len(part):
            shown = ("" if value is None or value != value else str(value).strip() for value in row)
            told = [
                _of_file(media / value) if value and media is not None and name in images else value.encode()
                for name, value in zip(columns, shown, strict=True)
            ]
            keys.append(_digest(b"".join(len(one).to_bytes(8, "big") + one for one in told)) if any(told) else NOTHING)
    return np.array(keys, dtype=np.uint64)


def _of_file(path: Path) -> bytes:
    return hashlib.blake2b(path.read_bytes()).digest() if path.is_file() else str(path).encode()


def _digest(told: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")


def feature_keys(splits: Sequence[Any]) -> list[Keys]:
    """Digests of the features of all rows of some splits: of the first columns; of all where other rows begin alike."""
    first = [np.array([_digest(row[:_FIRST].tobytes()) for row in _rows(X)], dtype=np.uint64) for X in splits]
    found, times = np.unique(np.concatenate(first), return_counts=True)
    for X, keys in zip(splits, first, strict=True):
        again = np.flatnonzero(np.isin(keys, found[times > 1]))
        keys[again] = [_digest(next(_rows(X[i : i + 1])).tobytes()) for i in again.tolist()]
    return first


def _rows(X: Any) -> Iterator[Any]:
    for start in range(0, len(X), _AT_ONCE):
        yield from np.ascontiguousarray(X[start : start + _AT_ONCE], dtype=np.float64) + 0.0  # no −0


def equal_by_chance(X: Any, keys: Keys) -> bool:
    """Whether rows of different things are likely to have equal features, as in a table of few categories.

    That is so if at least one equal pair is expected among the rows when each column is drawn by itself.
    """
    distinct = np.sort(np.unique(keys, return_index=True)[1])
    rows = np.asarray(X[distinct[:: -(-len(distinct) // _COMPARED)]], dtype=np.float64)
    n, expected = len(rows), len(keys) * (len(keys) - 1) / 2.0
    for column in rows.T if n > 1 else ():
        _, times = np.unique(column, return_counts=True)
        expected *= float((times * (times - 1.0)).sum()) / (n * (n - 1.0))
        if expected < 1.0:
            return False
    return True
