"""Votes of sources on training items, for filters and for the page of an item: the stored table, mapped into memory."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelchef.base.arrays import Bools, Ints
from labelchef.base.browsing import SourceSaid
from labelchef.server.memory import Latest, Memory
from labelchef.server.store.arrays import ArrayFacts

_PARTS = ("sources", "weights", "indices", "indptr")
_PLAIN = 0.5
"""A soft vote counts as one for a class from this weight on."""


class VotesSeen:
    """The table of `believe.votes`: n rows, column j·C + c is the vote of source j for class c."""

    def __init__(self, names: tuple[str, ...], n_classes: int, parts: "Mapping[str, NDArray[Any]]") -> None:
        self.names = names
        self._C = n_classes
        self._weights, self._indices, self._indptr = (parts[name] for name in ("weights", "indices", "indptr"))
        self._dissent: Bools | None = None

    @property
    def n_rows(self) -> int:
        """n."""
        return len(self._indptr) - 1

    def mask(self, source: str, class_id: int | None) -> Bools:
        """(n,) items that a source votes on, for a class if one is named; an empty name is any source."""
        rows, plain, starts = self._by_column
        found = np.zeros(self.n_rows, dtype=bool)
        for j in [self.names.index(source)] if source else range(len(self.names)):
            first, last = (0, self._C) if class_id is None else (class_id, class_id + 1)
            here = slice(int(starts[j * self._C + first]), int(starts[j * self._C + last]))
            found[rows[here] if class_id is None else rows[here][plain[here]]] = True
        return found

    @cached_property
    def _by_column(self) -> "tuple[NDArray[np.integer[Any]], Bools, Ints]":
        """Rows of the votes and whether each counts as one for its class, column by column; where each column starts."""
        plain = np.asarray(self._weights >= _PLAIN).astype(np.int8)
        held = (plain, np.asarray(self._indices), np.asarray(self._indptr))
        found = csr_array(held, shape=(self.n_rows, len(self.names) * self._C)).tocsc()
        return found.indices, found.data.astype(bool), found.indptr

    def dissent(self) -> Bools:
        """(n,) items on which sources vote for different classes; computed once."""
        if self._dissent is None:
            plain = np.asarray(self._weights >= _PLAIN)
            rows, classes = self._rows(plain), np.asarray(self._indices[plain]) % self._C
            self._dissent = np.zeros(self.n_rows, dtype=bool)
            differ = (rows[1:] == rows[:-1]) & (classes[1:] != classes[:-1])  # if any two differ, two neighbours do
            self._dissent[rows[1:][differ]] = True
        return self._dissent

    def said(self, position: int) -> tuple[SourceSaid, ...]:
        """Who votes what on an item."""
        here = slice(int(self._indptr[position]), int(self._indptr[position + 1]))
        votes: dict[int, dict[int, float]] = {}
        for column, weight in zip(self._indices[here].tolist(), self._weights[here].tolist(), strict=True):
            votes.setdefault(column // self._C, {})[column % self._C] = round(weight, 6)
        return tuple(SourceSaid(self.names[source], given) for source, given in votes.items())

    def _rows(self, hit: Bools) -> Ints:
        """The row of every entry that is hit, rising."""
        return np.asarray(np.searchsorted(self._indptr, np.flatnonzero(hit), side="right") - 1, dtype=np.int64)


class _Tables(Latest[tuple[object, ...], VotesSeen]):
    """The last 8 tables, which stay mapped."""


def votes_seen(memory: Memory, folder: Path, arrays: Mapping[str, ArrayFacts], n_classes: int) -> VotesSeen | None:
    """The votes of the sources of a campaign, None if it has none."""
    if "votes_sources" not in arrays:
        return None
    facts = [arrays[f"votes_{part}"] for part in _PARTS]
    key = (str(folder), n_classes, *(one.sha256 for one in facts))
    tables = memory.of(_Tables)
    if (known := tables.get(key)) is not None:
        return known
    try:
        parts = {
            part: np.load(folder / one.path, mmap_mode="r", allow_pickle=False)
            for part, one in zip(_PARTS, facts, strict=True)
        }
    except (OSError, ValueError):
        return None  # what needs the file says what is wrong with it
    tables[key] = found = VotesSeen(tuple(parts["sources"].tolist()), n_classes, parts)
    return found
