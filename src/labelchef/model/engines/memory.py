"""Sweeps over an array in memory, or over a file that is mapped into memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.model.engines.host import HostEngine, Rows
from labelchef.model.engines.protocol import RowLabels
from labelchef.model.features.contract import ArrayFeatures


class MemoryEngine(HostEngine):
    """The engine for NumPy arrays and memory maps, float64, float32 or float16, rows contiguous.

    X is neither copied nor written; shorter types are widened to float32 while they are in the cache. The rows of `more`, if
    there are any, come after those of X, as if they were one array. Results depend on the shapes only, not on the number of
    threads.

    >>> import numpy as np
    >>> engine = MemoryEngine(np.eye(3, 2, dtype=np.float32), bias=True)
    >>> engine.n_rows, engine.n_columns, engine.rows(np.array([1])).tolist()
    (3, 3, [[0.0, 1.0, 1.0]])
    """

    def __init__(self, X: "NDArray[Any] | ArrayFeatures", *, bias: bool, more: Floats | None = None) -> None:
        rows = X.shape[0] + (0 if more is None else more.shape[0])
        super().__init__((rows, X.shape[1]), X.dtype.itemsize, bias=bias)
        stored = X.array if isinstance(X, ArrayFeatures) else np.asarray(X)
        self._blocks = [Rows.of(0, stored)]
        if more is not None and len(more):
            kind = np.float64 if stored.dtype == np.float64 else np.float32
            self._blocks.append(Rows(len(stored), np.ascontiguousarray(more, dtype=kind), None))

    def _groups(self) -> Iterator[list[Rows]]:
        yield self._blocks

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`."""
        self.sweeps += len(indices) / max(1, self.n_rows)
        parts = []
        for block in self._blocks:
            here, inside = slice(block.first, block.first + len(block.X)), indices
            if len(self._blocks) > 1:
                inside = indices[(indices >= here.start) & (indices < here.stop)] - here.start
            parts.append(self._gradient_of(block, inside, RowLabels(labels.Y[here], labels.weight[here]), W))
        return parts[0] if len(parts) == 1 else np.asarray(np.sum(parts, axis=0))

    def _features(self, indices: Ints) -> Float64s:
        if len(self._blocks) == 1:
            return self._blocks[0].picked(indices).astype(np.float64)
        found = np.empty((len(indices), self._blocks[0].X.shape[1]))
        for block in self._blocks:
            inside = (indices >= block.first) & (indices < block.first + len(block.X))
            found[inside] = block.picked(indices[inside] - block.first)
        return found

    def gram(self, row_weight: Float64s, step: int = 1) -> Float64s:
        """See `Engine.gram`."""
        total = np.zeros((self.n_columns, self.n_columns))
        for block in self._blocks:
            begin = -block.first % step
            weight = row_weight[block.first + begin : block.first + len(block.X) : step]
            every = block if step == 1 else Rows(0, self._every(block, begin, step), block.half)
            size = self._block(block.X, max(4, block.X.itemsize) * self.n_columns)
            for start in range(0, len(every.X), size):
                self._add_gram(total, every.wide(start, start + size), weight[start : start + size])
        self.sweeps += 1.0 / step
        return total

    @staticmethod
    def _every(block: Rows, begin: int, step: int) -> NDArray[Any]:
        """Every `step`-th row; contiguous where it is widened."""
        rows = block.X[begin::step]
        return rows if block.half is None else np.ascontiguousarray(rows)
