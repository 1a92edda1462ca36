"""Sweeps over an array in memory, or over a file that is mapped into memory."""

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import ThreadpoolController

from labelchef.domain.arrays import Bools, Float64s, Floats, Ints
from labelchef.engines import kernels
from labelchef.engines.protocol import Engine, Pair, RowLabels

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


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class MemoryEngine(Engine):
    """The engine for NumPy arrays and memory maps, float32 or float64, rows contiguous.

    X is neither copied nor written. Results depend on the shapes only, not on the number of threads.

    >>> import numpy as np
    >>> engine = MemoryEngine(np.eye(3, 2, dtype=np.float32), bias=True)
    >>> engine.n_rows, engine.n_columns, engine.rows(np.array([1])).tolist()
    (3, 3, [[0.0, 1.0, 1.0]])
    """

    xp = np

    def __init__(self, X: Floats, *, bias: bool) -> None:
        super().__init__((X.shape[0], X.shape[1]), X.itemsize, bias=bias)
        self._X = np.asarray(X)
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = 0

    def _sweep(
        self, labels: RowLabels, K: Float64s, wanted: tuple[bool, ...], logits: Float64s | None
    ) -> tuple[Float64s, Float64s, Float64s, float]:
        _, has_V, gradient, product = wanted
        k = labels.Y.shape[1] - 1
        A = np.empty((self.n_rows, k)) if logits is None else logits
        Z = np.empty((self.n_rows if has_V else 0, k))
        m = k * (int(gradient) + int(product))
        cuts = self._cuts(m)
        sums = np.empty((len(cuts), m, self.n_columns))
        work = partial(kernels.sweep_rows, self._X, K, A, Z, labels.Y, labels.weight, product)
        losses = self._map(work, [(lo, hi, part) for (lo, hi), part in zip(cuts, sums, strict=True)])
        return A, Z, sums.sum(axis=0), float(np.sum(losses))

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`."""
        n = len(indices)
        pieces = max(1, min(_MOST_PIECES, n // _ROWS_A_PIECE))
        shares = min(thread_count(), pieces) if n * self.row_bytes >= _WORTH_A_THREAD else 1
        sums = np.empty((pieces, *W.shape))
        work = partial(kernels.gradient_of_rows, self._X, W, labels.Y, labels.weight, indices, sums, shares)
        self._map(work, [(first,) for first in range(shares)])
        self.sweeps += n / max(1, self.n_rows)
        return np.asarray(sums.sum(axis=0))

    def _features(self, indices: Ints) -> Float64s:
        return self._X[indices].astype(np.float64)

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

        def work(lo: int, hi: int) -> Ints | None:
            found = np.empty(max(64, (hi - lo) // 4), dtype=np.int64)  # a longer list would save no time
            count = kernels.collect_reach(products, labels.Y, labels.weight, eligible, reach, found, lo, hi)
            return found[:count] if count >= 0 else None

        parts = self._map(work, self._cuts())
        listed = [part for part in parts if part is not None]
        return np.concatenate(listed) if len(listed) == len(parts) else None

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
        A, S, Y, weight = logits[indices], products[indices], labels.Y[indices], labels.weight[indices]
        kernels.score_rows(A, S, Y, weight, np.ones(n, dtype=np.bool_), best, label, 0, n)
        return best, label

    def scores(self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools) -> tuple[Float64s, Ints]:
        """See `Engine.scores`."""
        best, label = np.empty(self.n_rows), np.empty(self.n_rows, dtype=np.int64)
        given = (logits, products, labels.Y, labels.weight, eligible)
        self._map(partial(kernels.score_rows, *given, best, label), self._cuts())
        return best, label

    def expected_scores(
        self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[Float64s, Float64s, Ints]:
        """See `Engine.expected_scores`."""
        found = np.empty(self.n_rows), np.empty(self.n_rows), np.empty(self.n_rows, dtype=np.int64)
        given = (logits, products, labels.Y, labels.weight, eligible)
        self._map(partial(kernels.expect_rows, *given, eta, optimism, *found), self._cuts())
        return found

    def _smallest(self, scores: Float64s, count: int) -> Float64s:
        return np.asarray(np.partition(scores, count - 1)[count - 1])

    def _cuts(self, m: int = 0) -> list[tuple[int, int]]:
        """First and last row of each chunk: they depend on the shapes only, so that sums are the same on any machine."""
        most = max(1, _PARTIAL_BYTES // max(1, m * self.n_columns * 8))
        chunks = max(1, min(64, most, -(-self.n_rows // (4 * kernels.BLOCK))))
        return list(itertools.pairwise(round(self.n_rows * c / chunks) for c in range(chunks + 1)))

    def _map(self, work: Callable[..., Found], arguments: Sequence[tuple[Any, ...]]) -> list[Found]:
        """`work` of each of the arguments, on all threads and the calling one: each takes the next that are left."""
        results: dict[int, Found] = {}
        left = iter(range(len(arguments)))

        def take() -> None:
            for n in left:
                results[n] = work(*arguments[n])

        others = [self._threads().submit(take) for _ in range(min(thread_count(), len(arguments)) - 1)]
        try:
            take()
        finally:
            for other in others:
                other.result()
        return [results[n] for n in range(len(arguments))]

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pool_owner != os.getpid():  # threads do not survive a fork
            self._pool = ThreadPoolExecutor(thread_count(), thread_name_prefix="labelchef-sweep")
            self._pool_owner = os.getpid()
        return self._pool

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_pool": None}
