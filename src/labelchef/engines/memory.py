"""Sweeps over an array in memory, or over a file that is mapped into memory."""

import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import ThreadpoolController

from labelchef.domain.arrays import Bools, Float64s, Floats, Ints
from labelchef.engines import kernels
from labelchef.engines.protocol import Pair, RowLabels, SweepSums

Found = TypeVar("Found")

_PARTIAL_BYTES = 32 << 20  # room for the partial sums of all chunks together
_SMALL_BLOCK, _LARGE_BLOCK = 1 << 20, 32 << 20  # bytes of rows copied at a time: a sixteenth of X between these
_MOST_PIECES, _ROWS_A_PIECE = 8, 128  # of a mini-batch, each with a sum of its own
_WORTH_A_THREAD = 1 << 18  # bytes of rows below which a second thread costs more than it saves


def thread_count() -> int:
    """Threads for a sweep: `LABELCHEF_THREADS`, else the cores this process may use."""
    wanted = os.environ.get("LABELCHEF_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class MemoryEngine:
    """The engine for NumPy arrays and memory maps, float32 or float64, rows contiguous.

    X is neither copied nor written. Results depend on the shapes only, not on the number of threads.

    >>> import numpy as np
    >>> engine = MemoryEngine(np.eye(3, 2, dtype=np.float32), bias=True)
    >>> engine.n_rows, engine.n_columns, engine.rows(np.array([1])).tolist()
    (3, 3, [[0.0, 1.0, 1.0]])
    """

    def __init__(self, X: Floats, *, bias: bool) -> None:
        self._X = np.asarray(X)
        self._bias = bias
        self.n_rows = int(X.shape[0])
        self.n_columns = int(X.shape[1]) + int(bias)
        self.row_bytes = int(X.shape[1]) * self._X.itemsize
        self.sweeps = 0.0
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = 0

    @property
    def xp(self) -> Any:
        """See `Engine.xp`."""
        return np

    def place(self, array: Float64s) -> Float64s:
        """See `Engine.place`."""
        return array

    def host(self, array: Float64s) -> Float64s:
        """See `Engine.host`."""
        return array

    def placed(self, labels: RowLabels) -> RowLabels:
        """See `Engine.placed`."""
        return labels

    def sweep(
        self,
        labels: RowLabels,
        *,
        W: Float64s | None = None,
        logits: Float64s | None = None,
        V: Float64s | None = None,
        gradient: bool = False,
        hessian_product: bool = False,
    ) -> SweepSums:
        """See `Engine.sweep`."""
        k = labels.Y.shape[1] - 1
        A = np.empty((self.n_rows, k)) if logits is None else logits
        Z = np.empty((self.n_rows if V is not None else 0, k))
        K = np.vstack([M for M in (W, V) if M is not None] or [np.empty((0, self.n_columns))])
        m = k * (int(gradient) + int(hessian_product))
        cuts = self._cuts(m)
        partial = np.empty((len(cuts) - 1, m, self.n_columns))
        features, here, values = self._features, _compiled(labels), kernels.RowValues(A, Z)
        wanted = kernels.Wanted(W is not None, V is not None, gradient, hessian_product)

        def work(chunk: int) -> float:
            return float(
                kernels.sweep_rows(features, here, wanted, K, values, cuts[chunk], cuts[chunk + 1], partial[chunk])
            )

        losses = self._map(work, len(cuts) - 1)
        sums = partial.sum(axis=0)
        self.sweeps += 1.0
        return SweepSums(
            logits=A,
            products=Z if V is not None else None,
            loss=float(np.sum(losses)),
            gradient=sums[:k] if gradient else None,
            hessian_product=sums[m - k :] if hessian_product else None,
        )

    def gradient_at(self, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_at`."""
        found = self.sweep(labels, W=np.ascontiguousarray(W), gradient=True).gradient
        assert found is not None
        return found

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`."""
        n = len(indices)
        pieces = max(1, min(_MOST_PIECES, n // _ROWS_A_PIECE))
        partial = np.empty((pieces, *W.shape))
        features, here = self._features, _compiled(labels)
        shares = min(thread_count(), pieces) if n * self.row_bytes >= _WORTH_A_THREAD else 1

        def work(first: int) -> None:
            kernels.gradient_of_rows(features, here, W, indices, first, shares, partial)

        self._map(work, shares)
        self.sweeps += n / max(1, self.n_rows)
        return np.asarray(partial.sum(axis=0))

    def rows(self, indices: Ints) -> Float64s:
        """See `Engine.rows`."""
        self.sweeps += len(indices) / max(1, self.n_rows)
        picked = self._X[indices].astype(np.float64)
        return np.hstack([picked, np.ones((len(indices), 1))]) if self._bias else picked

    def row_squares(self) -> Float64s:
        """See `Engine.row_squares`."""
        size = self._block(8 * self.n_columns)
        found = np.empty(self.n_rows)
        for start in range(0, self.n_rows, size):
            part = self._X[start : start + size].astype(np.float64)
            found[start : start + size] = np.einsum("ij,ij->i", part, part) + float(self._bias)
        self.sweeps += 1.0
        return found

    def within_reach(self, products: Float64s, labels: RowLabels, eligible: Bools, reach: float) -> Ints | None:
        """See `Engine.within_reach`."""
        cuts, here = self._cuts(0), _compiled(labels)

        def work(chunk: int) -> Ints | None:
            lo, hi = cuts[chunk], cuts[chunk + 1]
            found = np.empty(max(64, (hi - lo) // 4), dtype=np.int64)  # a longer list would save no time
            count = kernels.collect_reach(lo, hi, products, here, eligible, reach, found)
            return found[:count] if count >= 0 else None

        parts = self._map(work, len(cuts) - 1)
        listed = [part for part in parts if part is not None]
        return np.concatenate(listed) if len(listed) == len(parts) else None

    @property
    def _features(self) -> kernels.Features:
        """X as the compiled kernels take it."""
        return kernels.Features(self._X, self._bias)

    def _block(self, bytes_a_row: int) -> int:
        """Rows to copy at a time."""
        return max(1, min(_LARGE_BLOCK, max(_SMALL_BLOCK, self._X.nbytes // 16)) // bytes_a_row)

    def gram(self, row_weight: Float64s, step: int = 1) -> Float64s:
        """See `Engine.gram`."""
        total = np.zeros((self.n_columns, self.n_columns))
        size = self._block(self._X.itemsize * self.n_columns)
        X, root = self._X[::step], np.sqrt(row_weight[::step]).astype(self._X.dtype)
        d = X.shape[1]
        for start in range(0, len(X), size):
            part = X[start : start + size]
            block = np.ones((len(part), self.n_columns), dtype=X.dtype)
            block[:, :d] = part
            block *= root[start : start + size, None]
            total += block.T @ block
        self.sweeps += 1.0 / step
        return total

    def eigh(self, G: Float64s) -> tuple[Float64s, Float64s]:
        """See `Engine.eigh`."""
        g, E = eigh(G, overwrite_a=True, check_finite=False)
        return g, np.ascontiguousarray(E)

    def small_products(self) -> AbstractContextManager[object]:
        """See `Engine.small_products`: BLAS threads spin for a while after each product, on cores that a sweep needs."""
        return _blas().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]

    def secant_solve(self, solve: Callable[[Float64s], Float64s], pairs: tuple[Pair, ...], R: Float64s) -> Float64s:
        """See `Engine.secant_solve`: the two-loop recursion."""
        T, alphas = R.copy(), []
        for s, y, rho in reversed(pairs):
            alphas.append(rho * float(np.vdot(s, T)))
            T -= alphas[-1] * y
        T = solve(T)
        for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
            T += (alpha - rho * float(np.vdot(y, T))) * s
        return T

    def scores_of(
        self, indices: Ints, logits: Float64s, products: Float64s, labels: RowLabels
    ) -> tuple[Float64s, Ints]:
        """See `Engine.scores_of`."""
        n = len(indices)
        best, label = np.empty(n), np.empty(n, dtype=np.int64)
        values = kernels.RowValues(logits[indices], products[indices])
        few = kernels.Labels(labels.Y[indices], labels.weight[indices])
        kernels.score_rows(0, n, values, few, np.ones(n, dtype=np.bool_), best, label)
        return best, label

    def scores(self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools) -> tuple[Float64s, Ints]:
        """See `Engine.scores`."""
        best, label = np.empty(self.n_rows), np.empty(self.n_rows, dtype=np.int64)
        cuts, values, here = self._cuts(0), kernels.RowValues(logits, products), _compiled(labels)

        def work(chunk: int) -> None:
            kernels.score_rows(cuts[chunk], cuts[chunk + 1], values, here, eligible, best, label)

        self._map(work, len(cuts) - 1)
        return best, label

    def expected_scores(
        self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[Float64s, Float64s, Ints]:
        """See `Engine.expected_scores`."""
        found = kernels.Expected(np.empty(self.n_rows), np.empty(self.n_rows), np.empty(self.n_rows, dtype=np.int64))
        cuts, values, here = self._cuts(0), kernels.RowValues(logits, products), _compiled(labels)

        def work(chunk: int) -> None:
            kernels.expect_rows(cuts[chunk], cuts[chunk + 1], values, here, eligible, eta, optimism, found)

        self._map(work, len(cuts) - 1)
        return found

    def lowest(self, scores: Float64s, count: int) -> Ints:
        """See `Engine.lowest`."""
        count = min(count, int(np.isfinite(scores).sum()))
        if count == 0:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(scores <= np.partition(scores, count - 1)[count - 1])

    def _cuts(self, m: int) -> list[int]:
        """Chunk borders: they depend on the shapes only, so that sums are the same on any machine."""
        most = max(1, _PARTIAL_BYTES // max(1, m * self.n_columns * 8))
        chunks = max(1, min(64, most, -(-self.n_rows // (4 * kernels.BLOCK))))
        return [round(self.n_rows * c / chunks) for c in range(chunks + 1)]

    def _map(self, work: Callable[[int], Found], chunks: int) -> list[Found]:
        """work(0), …, work(chunks − 1) on all threads and the calling one: each takes the next chunk that is left."""
        results: dict[int, Found] = {}
        left = itertools.count()

        def take() -> None:
            while (chunk := next(left)) < chunks:
                results[chunk] = work(chunk)

        others = [self._threads().submit(take) for _ in range(min(thread_count(), chunks) - 1)]
        try:
            take()
        finally:
            for other in others:
                other.result()
        return [results[chunk] for chunk in range(chunks)]

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pool_owner != os.getpid():  # threads do not survive a fork
            self._pool = ThreadPoolExecutor(thread_count(), thread_name_prefix="labelchef-sweep")
            self._pool_owner = os.getpid()
        return self._pool

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_pool": None}


def _compiled(labels: RowLabels) -> kernels.Labels:
    """Labels as the compiled kernels take them."""
    return kernels.Labels(labels.Y, labels.weight)
