"""Sweeps over features that stay in files: blocks are read ahead of the threads that compute (`labelchef.model.features`).

Memory holds about ten blocks of 16 MB and the row arrays, never X. A sweep takes as long as reading X once, as long as
the threads are faster than the disk. The pieces whose sums are added have 512 rows, whatever is read at a time.

**The factor from a sketch.** A pass that forms Σ h x xᵀ computes D numbers for every number that it reads: for hundreds of
columns the threads need many times as long as the disk. So the factor of `model/curvature.py` is computed of every s-th run of
rows, s such that it costs half of a sweep (`factor_share`). What is claimed of a solution is proven by true gradients and
residuals, from sweeps over all rows, as ever; a factor of fewer rows may cost a sweep more to get there. Runs, not single rows,
since neighbouring rows are read at once.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.stopping_work import go_on
from labelchef.model.engines.host import HostEngine, Rows
from labelchef.model.engines.kernels import BLOCK
from labelchef.model.engines.protocol import RowLabels
from labelchef.model.features.contract import BLOCK_BYTES, Features, refuse_not_finite
from labelchef.model.features.reading import Buffers

PIECE = 8 * BLOCK
"""Rows of a piece, with sums of its own."""
_RUN_BYTES, _LEAST_RUNS = 256 << 10, 256  # of a sketch
_MOST_PASSES = 1000  # that are remembered


@dataclass(frozen=True)
class Pass:
    """One reading of X from the first row to the last."""

    bytes: int
    seconds: float
    waited: float
    """Seconds of these in which nothing was computed, because the next rows were not there yet."""


class StreamingEngine(HostEngine):
    """The engine for features in files. The rows of `more`, which are in memory, come after those of X.

    >>> from labelchef.model.features import ArrayFeatures
    >>> engine = StreamingEngine(ArrayFeatures(np.eye(3, 2, dtype=np.float16)), bias=True)
    >>> engine.n_rows, engine.n_columns, engine.rows(np.array([1])).tolist()
    (3, 3, [[0.0, 1.0, 1.0]])
    """

    factor_share = 0.5

    def __init__(self, X: Features, *, bias: bool, more: Floats | None = None, block_rows: int | None = None) -> None:
        rows = len(X) + (0 if more is None else len(more))
        super().__init__((rows, X.shape[1]), X.dtype.itemsize, bias=bias)
        self._X = X
        self._more = Rows(
            len(X), np.ascontiguousarray(np.empty((0, X.shape[1])) if more is None else more, X.wide_dtype), None
        )
        self._piece = PIECE if 4 * PIECE * X.row_bytes <= BLOCK_BYTES else BLOCK
        whole = max(1, (BLOCK_BYTES // X.row_bytes if block_rows is None else block_rows) // self._piece)
        self._block_rows = whole * self._piece
        self.passes: list[Pass] = []
        """The latest passes over X."""

    @property
    def gram_cost(self) -> float:
        """See `Engine.gram_cost`: a disk is some four times slower than memory, so a pass over X costs more by that."""
        return self.n_columns / 80.0

    def _groups(self) -> Iterator[list[Rows]]:
        began, waited = time.perf_counter(), 0.0
        asked = began
        for first, block in self._X.blocks(rows=self._block_rows, buffers=Buffers()):
            go_on()
            waited += time.perf_counter() - asked
            yield [Rows.of(first, block)]
            del block
            asked = time.perf_counter()
        self._note(Pass(self._X.nbytes, time.perf_counter() - began, waited))
        if len(self._more.X):
            yield [self._more]

    def _note(self, made: Pass) -> None:
        self.passes = [*self.passes, made][-_MOST_PASSES:]
        self.bytes_read += made.bytes
        self.read_seconds += made.seconds

    def _seen(self, group: list[Rows], losses: list[float]) -> None:
        """Rows that are not finite make the loss so: refuse them with their place."""
        if not np.isfinite(losses).all():
            for rows in group:
                stored = rows.X.view(np.float16) if rows.X.dtype == np.uint16 else rows.X
                refuse_not_finite(stored, rows.first, self._X.what)

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`."""
        self.sweeps += len(indices) / max(1, self.n_rows)
        rows = Rows(0, np.ascontiguousarray(self._taken(indices)), None)
        few = RowLabels(labels.Y[indices], labels.weight[indices])
        return self._gradient_of(rows, np.arange(len(indices)), few, W)

    def _features(self, indices: Ints) -> Float64s:
        return self._taken(indices).astype(np.float64)

    def _taken(self, indices: Ints) -> Floats:
        """Rows of X and of `more`, in float32 or float64."""
        there = indices < len(self._X)
        if there.all():
            return self._X.take(indices)
        found = np.empty((len(indices), self._X.shape[1]), dtype=self._X.wide_dtype)
        found[there] = self._X.take(indices[there])
        found[~there] = self._more.X[indices[~there] - len(self._X)]
        return found

    def gram(self, row_weight: Float64s, step: int = 1) -> Float64s:
        """See `Engine.gram`: of every `step`-th run of rows."""
        total = np.zeros((self.n_columns, self.n_columns))
        self.sweeps += 1.0 / step
        if step == 1:
            for group in self._groups():
                for rows in group:
                    weight = row_weight[rows.first : rows.first + len(rows.X)]
                    self._add_gram(total, rows.wide(0, len(rows.X)), weight)
            return total
        some = self._sampled(step)
        for start in range(0, len(some), self._block_rows):
            few = some[start : start + self._block_rows]
            here = few[few < len(self._X)]
            if len(here):
                rows = Rows.of(0, self._X.stored(here))
                self._add_gram(total, rows.wide(0, len(here)), row_weight[here])
            rest = few[len(here) :]
            self._add_gram(total, self._more.X[rest - len(self._X)], row_weight[rest])
        return total

    def total(self, values: Float64s, step: int = 1) -> float:
        """See `Engine.total`: of the rows that `gram` takes."""
        return float(values.sum() if step == 1 else values[self._sampled(step)].sum())

    def _sampled(self, step: int) -> Ints:
        """The rows of every `step`-th run; a run is one row where there are few rows."""
        length = max(1, min(_RUN_BYTES // self.row_bytes, self.n_rows // (step * _LEAST_RUNS)))
        starts = np.arange(0, self.n_rows, length * step)
        rows = (starts[:, None] + np.arange(length)).ravel()
        return np.asarray(rows[rows < self.n_rows])

    def _cuts(self, m: int, rows: int) -> list[tuple[int, int]]:  # noqa: ARG002
        return [(start, min(start + self._piece, rows)) for start in range(0, rows, self._piece)]
