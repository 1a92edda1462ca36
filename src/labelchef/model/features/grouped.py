"""Features that are packed in groups of rows, which are unpacked as a whole, as row groups of Parquet are."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.model.features.contract import Features, Stored
from labelchef.model.features.reading import Buffers, read_ahead


class GroupedFeatures(Features):
    """Groups of rows that are read as a whole; blocks are pieces of groups."""

    readers = 2

    def __init__(self, sizes: Sequence[int], columns: int, dtype: "np.dtype[Any]", what: str) -> None:
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        super().__init__((int(self._starts[-1]), columns), dtype, what)

    @abstractmethod
    def _group(self, number: int) -> Stored:
        """All rows of a group; called by several threads at once."""

    def _sampled(self) -> int:
        return min(super()._sampled(), 4)  # each may be of another group

    def _cuts(self, first: int, last: int, rows: int) -> Iterator[tuple[int, int]]:  # noqa: ARG002
        for k in range(self._number(first), self._number(last - 1) + 1):
            yield max(first, int(self._starts[k])), min(last, int(self._starts[k + 1]))

    def _number(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _read(self, first: int, last: int, buffers: Buffers) -> Stored:
        k = self._number(first)
        begin, end = int(self._starts[k]), int(self._starts[k + 1])
        rows = self._group(k)[first - begin : last - begin]
        if not rows.flags.writeable or not rows.flags.c_contiguous:  # kernels are compiled for arrays that are both
            memory = buffers.take(rows.nbytes)[: rows.nbytes].view(rows.dtype).reshape(rows.shape)
            memory[:] = rows
            rows = memory
        return rows if last <= end else np.concatenate([rows, self._read(end, last, buffers)])

    def _pick(self, indices: Ints) -> Stored:
        found = np.empty((len(indices), self.shape[1]), self.dtype)
        ends = np.searchsorted(indices, self._starts)

        def copy(a: int, b: int, _: Buffers) -> Stored:
            k = self._number(int(indices[a]))
            found[a:b] = self._group(k)[indices[a:b] - self._starts[k]]
            return found[:0]

        cuts = ((int(a), int(b)) for a, b in itertools.pairwise(ends) if a < b)
        for _ in read_ahead(copy, cuts, max(2, self.readers), Buffers()):
            pass
        return found
