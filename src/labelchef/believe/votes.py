"""The votes of sources: labelling functions, rules, crowd workers, LLMs, an older model, weak labels as given.

J sources vote on n samples of C classes. A hard vote is a class, a soft vote a distribution over the classes, and a source
may say nothing on a sample. All of them are one sparse table,

    T (n, J·C),   T[i, j·C + v] = weight of class v in the vote of source j on sample i

so a hard vote is a single 1, a soft vote a few weights that sum to 1, and silence is an empty block. With a table of
log-likelihoods L (J·C, C), the log-likelihood of all votes on every sample is T L; with beliefs Q (n, C), the expected counts
of every source are Tᵀ Q.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack

from labelchef.base.arrays import Bools, Float64s, Ints

SMOOTHING = 0.1
"""What vote shares add to the votes of each class."""


@dataclass(frozen=True)
class SourceVotes:
    """Checked votes of J sources on n samples; see `labelchef.believe.vote_forms` for the forms that they are given in.

    >>> votes = SourceVotes.hard(np.array([[0, -1], [1, 1], [-1, -1]]), 2, ("rule", "llm"))
    >>> votes.n_rows, votes.n_sources, votes.counts.tolist(), votes.silent.tolist()
    (3, 2, [2, 1], [False, False, True])
    """

    names: tuple[str, ...]
    """What the J sources are called."""
    n_classes: int
    table: Any
    """`csr_array` (n, J·C) in float64, sorted, without duplicates or explicit zeros."""
    shown: Bools | None = None
    """(n,) samples that the sources could vote on, None for all: on the others their silence says nothing."""

    @classmethod
    def hard(cls, votes: Ints, n_classes: int, names: tuple[str, ...] | None = None) -> "SourceVotes":
        """From class ids (n, J), −1 for no vote."""
        n, J = votes.shape
        rows, sources = np.nonzero(votes >= 0)
        columns = sources * n_classes + votes[rows, sources]
        table = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, J * n_classes))
        return cls(names or tuple(f"source {j + 1}" for j in range(J)), n_classes, table)

    @classmethod
    def soft(cls, weak: Float64s, name: str) -> "SourceVotes":
        """One source that gives a distribution for every sample, (n, C)."""
        table = csr_array(weak)
        table.eliminate_zeros()
        return cls((name,), weak.shape[1], table)

    @property
    def n_rows(self) -> int:
        """n."""
        return int(self.table.shape[0])

    @property
    def n_sources(self) -> int:
        """J."""
        return len(self.names)

    @cached_property
    def presence(self) -> Any:
        """`csr_array` (n, J): the weight with which a source votes on a sample, 1 or no entry."""
        table, C = self.table, self.n_classes
        shape = (self.n_rows, self.n_sources)
        found = csr_array((table.data.copy(), table.indices // C, table.indptr.copy()), shape=shape)
        found.sum_duplicates()
        return found

    @property
    def counts(self) -> Ints:
        """(J,) samples each source votes on."""
        return np.bincount(self.presence.indices, minlength=self.n_sources)

    @property
    def silent(self) -> Bools:
        """(n,) samples that no source votes on."""
        return np.asarray(np.diff(self.table.indptr) == 0)

    def rows(self, which: "Ints | Bools | slice") -> "SourceVotes":
        """The same sources on some of the samples."""
        shown = None if self.shown is None else self.shown[which]
        return SourceVotes(self.names, self.n_classes, self.table[which], shown)

    def of_sources(self, which: Bools) -> "SourceVotes":
        """The same table with silence of the sources that are not among `which` (J,)."""
        table = self.table.copy()
        table.data = table.data * which[table.indices // self.n_classes]
        table.eliminate_zeros()
        return SourceVotes(self.names, self.n_classes, table, self.shown)

    def only(self, which: Bools) -> "SourceVotes":
        """The sources among `which` (J,) alone, in their order.

        >>> SourceVotes.hard(np.array([[0, 1], [1, -1]]), 2, ("a", "b")).only(np.array([False, True])).table.toarray().tolist()
        [[0.0, 1.0], [0.0, 0.0]]
        """
        columns = np.flatnonzero(np.repeat(which, self.n_classes))
        names = tuple(name for name, kept in zip(self.names, which.tolist(), strict=True) if kept)
        return SourceVotes(names, self.n_classes, csr_array(self.table[:, columns]), self.shown)

    def beside(self, other: "SourceVotes") -> "SourceVotes":
        """These sources and the other ones, on the same samples."""
        names = (*self.names, *other.names)
        table = csr_array(hstack([self.table, other.table], format="csr"))
        return SourceVotes(names, self.n_classes, table, self.shown)

    def above(self, other: "SourceVotes") -> "SourceVotes":
        """The same sources on these samples, then on the other ones."""
        table = csr_array(vstack([self.table, other.table], format="csr"))
        parts = [np.ones(one.n_rows, dtype=bool) if one.shown is None else one.shown for one in (self, other)]
        shown = np.concatenate(parts)
        return SourceVotes(self.names, self.n_classes, table, None if shown.all() else shown)

    def among(self, names: tuple[str, ...]) -> "SourceVotes":
        """The same votes in a table of these sources, in their order; those that are not here are silent."""
        place = {name: j for j, name in enumerate(names)}
        to = np.array([place[name] for name in self.names], dtype=np.int64)
        table, C = self.table, self.n_classes
        columns = to[table.indices // C] * C + table.indices % C
        moved = csr_array((table.data, columns, table.indptr), shape=(self.n_rows, len(names) * C), copy=True)
        moved.sort_indices()
        return SourceVotes(names, C, moved, self.shown)

    def arrays(self) -> "dict[str, NDArray[Any]]":
        """Plain arrays that hold these votes, to be stored or compared; `of_arrays` reads them."""
        table = self.table
        positions = {name: np.asarray(getattr(table, name), dtype=np.int64) for name in ("indices", "indptr")}
        return {"sources": np.array(self.names), "weights": np.asarray(table.data), **positions}

    @classmethod
    def of_arrays(cls, arrays: "Mapping[str, NDArray[Any]]", n_classes: int) -> "SourceVotes":
        """From what `arrays` gave.

        >>> votes = SourceVotes.hard(np.array([[0, -1], [1, 1]]), 2)
        >>> SourceVotes.of_arrays(votes.arrays(), 2).table.toarray().tolist() == votes.table.toarray().tolist()
        True
        """
        names = tuple(arrays["sources"].tolist())
        shape = (len(arrays["indptr"]) - 1, len(names) * n_classes)
        return cls(names, n_classes, csr_array((arrays["weights"], arrays["indices"], arrays["indptr"]), shape=shape))

    @classmethod
    def nothing(cls, names: tuple[str, ...], n_classes: int, n_rows: int) -> "SourceVotes":
        """No votes of these sources, because these samples were not shown to them."""
        return cls(names, n_classes, csr_array((n_rows, len(names) * n_classes)), np.zeros(n_rows, dtype=bool))

    def shares(self, smoothing: float = SMOOTHING) -> Float64s:
        """(n, C): each class gets its votes plus `smoothing`, scaled to sum to 1; all equal where no source votes."""
        n, C = self.n_rows, self.n_classes
        found = csr_array((self.table.data, self.table.indices % C, self.table.indptr), shape=(n, C))
        counts = found.toarray() + smoothing
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))
