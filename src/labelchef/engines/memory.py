"""Sweeps over an array in memory, or over a file that is mapped into memory."""

import itertools
import os
import threading
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


class _OneThread:
    """The number of BLAS threads belongs to the process: the first block sets it to one, the last to end sets it back.

    Each is done by a thread that then ends, since threadpoolctl lets no thread change what another living one has set.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._blocks = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._turn:
            self._blocks += 1
            if self._blocks == 1:
                self._do(self._set)

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._blocks -= 1
            if self._blocks == 0:
                self._do(self._limit.restore_original_limits)

    def _set(self) -> None:
        self._limit = _blas().limit(limits=1, user_api="blas")

    @staticmethod
    def _do(work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name="labelchef-blas")
        thread.start()
        thread.join()


_one_thread = _OneThread()


def one_blas_thread() -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread: its threads spin after each small product, on cores that others need."""
    return _one_thread


def _block(X: Floats, bytes_a_row: int) -> int:
    """Rows to copy at a time."""
    return max(1, min(_LARGE_BLOCK, max(_SMALL_BLOCK, X.nbytes // 16)) // bytes_a_row)


class MemoryEngine(Engine):
    """The engine for NumPy arrays and memory maps, float32 or float64, rows contiguous.

    X is neither copied nor written. The rows of `more`, if there are any, come after those of X, as if they were one array.
    Results depend on the shapes only, not on the number of threads.

    >>> import numpy as np
    >>> engine = MemoryEngine(np.eye(3, 2, dtype=np.float32), bias=True)
    >>> engine.n_rows, engine.n_columns, engine.rows(np.array([1])).tolist()
    (3, 3, [[0.0, 1.0, 1.0]])
    """

    xp = np

    def __init__(self, X: Floats, *, bias: bool, more: Floats | None = None) -> None:
        rows = X.shape[0] + (0 if more is None else more.shape[0])
        super().__init__((rows, X.shape[1]), X.itemsize, bias=bias)
        X = np.asarray(X)
        self.short_arithmetic = X.dtype == np.float32
        self._blocks: list[tuple[int, Floats]] = [(0, X)]
        """(number of its first row, rows) of every array."""
        if more is not None and len(more):
            self._blocks.append((len(X), np.ascontiguousarray(more, dtype=X.dtype)))
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
        pieces, short = [], True if K.dtype == np.float32 else None
        for first, X in self._blocks:
            rows = slice(first, first + len(X))
            given = (X, K, A[rows], Z[rows], labels.Y[rows], labels.weight[rows], product, short)
            pieces += [(*given, lo, hi) for lo, hi in self._cuts(m, len(X))]
        sums = np.empty((len(pieces), m, self.n_columns))
        losses = self._map(kernels.sweep_rows, [(*piece, part) for piece, part in zip(pieces, sums, strict=True)])
        return A, Z, sums.sum(axis=0), float(np.sum(losses))

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`."""
        self.sweeps += len(indices) / max(1, self.n_rows)
        parts = [self._gradient_of_rows(*block, indices, labels, W) for block in self._blocks]
        return parts[0] if len(parts) == 1 else np.asarray(np.sum(parts, axis=0))

    def _gradient_of_rows(self, first: int, X: Floats, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """The part of one array."""
        if len(self._blocks) > 1:
            indices = indices[(indices >= first) & (indices < first + len(X))] - first
        n, here = len(indices), slice(first, first + len(X))
        pieces = max(1, min(_MOST_PIECES, n // _ROWS_A_PIECE))
        shares = min(thread_count(), pieces) if n * self.row_bytes >= _WORTH_A_THREAD else 1
        sums = np.empty((pieces, *W.shape))
        work = partial(kernels.gradient_of_rows, X, W, labels.Y[here], labels.weight[here], indices, sums, shares)
        self._map(work, [(one,) for one in range(shares)])
        return np.asarray(sums.sum(axis=0))

    def _features(self, indices: Ints) -> Float64s:
        if len(self._blocks) == 1:
            return self._blocks[0][1][indices].astype(np.float64)
        found = np.empty((len(indices), self._blocks[0][1].shape[1]))
        for first, X in self._blocks:
            inside = (indices >= first) & (indices < first + len(X))
            found[inside] = X[indices[inside] - first]
        return found

    def row_squares(self) -> Float64s:
        """See `Engine.row_squares`."""
        found = np.empty(self.n_rows)
        for first, X in self._blocks:
            size = _block(X, 8 * self.n_columns)
            for start in range(0, len(X), size):
                part = X[start : start + size].astype(np.float64)
                squares = np.einsum("ij,ij->i", part, part) + float(self._bias)
                found[first + start : first + start + len(part)] = squares
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

    def gram(self, row_weight: Float64s, step: int = 1) -> Float64s:
        """See `Engine.gram`."""
        total = np.zeros((self.n_columns, self.n_columns))
        for first, whole in self._blocks:
            size, d = _block(whole, whole.itemsize * self.n_columns), whole.shape[1]
            begin = -first % step
            X, root = whole[begin::step], np.sqrt(row_weight[first + begin : first + len(whole) : step])
            root = root.astype(whole.dtype)
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
        """See `Engine.small_products`."""
        return one_blas_thread()

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

    def _cuts(self, m: int = 0, rows: int | None = None) -> list[tuple[int, int]]:
        """First and last row of each chunk: they depend on the shapes only, so that sums are the same on any machine."""
        rows = self.n_rows if rows is None else rows
        most = max(1, _PARTIAL_BYTES // max(1, m * self.n_columns * 8))
        chunks = max(1, min(64, most, -(-rows // (4 * kernels.BLOCK))))
        return list(itertools.pairwise(round(rows * c / chunks) for c in range(chunks + 1)))

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
