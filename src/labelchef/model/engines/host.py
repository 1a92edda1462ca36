"""What engines share whose row arrays are NumPy arrays in this process, wherever X is: in memory or in files.

X comes as blocks of rows, in order. A sweep hands the blocks that are there to the threads in pieces, each with sums of its own,
which are added in the order of the rows: results do not depend on the number of threads.
"""

import itertools
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from labelchef.base.arrays import Bools, Float64s, Floats, Ints
from labelchef.base.stopping_work import go_on
from labelchef.model.engines import kernels
from labelchef.model.engines.protocol import Engine, Pair, RowLabels
from labelchef.model.engines.threads import one_blas_thread, priority, thread_count

Found = TypeVar("Found")

PARTIAL_BYTES = 32 << 20
"""Room for the partial sums of all pieces together."""
_SMALL_BLOCK, _LARGE_BLOCK = 1 << 20, 32 << 20  # bytes of rows copied at a time: a sixteenth of X between these
_MOST_PIECES, _ROWS_A_PIECE = 8, 128  # of a mini-batch, each with a sum of its own
_WORTH_A_THREAD = 1 << 18  # bytes of rows below which a second thread costs more than it saves


class Rows(NamedTuple):
    """Rows of X as the kernels take them: floats, or uint16, the bits of float16."""

    first: int
    """Number of the first row."""
    X: NDArray[Any]
    half: bool | None
    """True for float16, else None: the kernels are compiled for each."""

    @classmethod
    def of(cls, first: int, X: NDArray[Any]) -> "Rows":
        """Rows as they are stored."""
        return cls(first, X.view(np.uint16), True) if X.dtype == np.float16 else cls(first, X, None)

    def wide(self, start: int, stop: int) -> Floats:
        """Rows start ≤ i < stop of these in float32 or float64; not copied if they are so."""
        if self.half is None:
            return self.X[start:stop]
        found = np.empty((min(stop, len(self.X)) - start, self.X.shape[1]), dtype=np.float32)
        kernels.widen_rows(self.X, start, start + len(found), found)
        return found

    def picked(self, indices: Ints) -> Floats:
        """Some of these rows in float32 or float64."""
        return Rows(0, self.X[indices], self.half).wide(0, len(indices))


class HostEngine(Engine):
    """An engine with NumPy arrays; what is left to say is where the rows come from."""

    xp = np
    most_pieces = 64
    """Of a sweep, each with sums of its own."""

    def __init__(self, shape: tuple[int, int], itemsize: int, *, bias: bool) -> None:
        super().__init__(shape, itemsize, bias=bias)
        self.short_arithmetic = itemsize <= np.dtype(np.float32).itemsize
        self._pool: ThreadPoolExecutor | None = None
        self._pool_owner = (0, 0)

    @abstractmethod
    def _groups(self) -> Iterator[list[Rows]]:
        """All rows, in order; the threads share those of one group before the next one is asked for."""

    def _sweep(
        self, labels: RowLabels, K: Float64s, wanted: tuple[bool, ...], logits: Float64s | None
    ) -> tuple[Float64s, Float64s, Float64s, float]:
        _, has_V, gradient, product = wanted
        k = labels.Y.shape[1] - 1
        A = np.empty((self.n_rows, k)) if logits is None else logits
        Z = np.empty((self.n_rows if has_V else 0, k))
        m = k * (int(gradient) + int(product))
        short = True if K.dtype == np.float32 else None
        total, losses = np.zeros((m, self.n_columns)), []
        for group in self._groups():
            pieces = []
            for first, X, half in group:
                rows = slice(first, first + len(X))
                given = (X, half, K, A[rows], Z[rows], labels.Y[rows], labels.weight[rows], product, short)
                pieces += [(*given, lo, hi) for lo, hi in self._cuts(m, len(X))]
            sums = np.empty((len(pieces), m, self.n_columns))
            found = self._map(kernels.sweep_rows, [(*piece, part) for piece, part in zip(pieces, sums, strict=True)])
            for part in sums:
                total += part
            self._seen(group, found)
            losses += found
        return A, Z, total, float(np.sum(losses))

    def _seen(self, group: list[Rows], losses: list[float]) -> None:
        """Look at what a group of rows gave."""

    def _gradient_of(self, rows: Rows, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """Σ w (P − Y) ⊗ x over some of these rows; `labels` are those of these rows."""
        n = len(indices)
        pieces = max(1, min(_MOST_PIECES, n // _ROWS_A_PIECE))
        shares = min(thread_count(), pieces) if n * self.row_bytes >= _WORTH_A_THREAD else 1
        sums = np.empty((pieces, *W.shape))
        work = partial(kernels.gradient_of_rows, rows.X, rows.half, W, labels.Y, labels.weight, indices, sums, shares)
        self._map(work, [(one,) for one in range(shares)])
        return np.asarray(sums.sum(axis=0))

    def row_squares(self) -> Float64s:
        """See `Engine.row_squares`."""
        found = np.empty(self.n_rows)
        for rows in itertools.chain.from_iterable(self._groups()):
            size = self._block(rows.X, 8 * self.n_columns)
            for start in range(0, len(rows.X), size):
                part = rows.wide(start, start + size).astype(np.float64)
                squares = np.einsum("ij,ij->i", part, part) + float(self._bias)
                found[rows.first + start : rows.first + start + len(part)] = squares
        self.sweeps += 1.0
        return found

    def _add_gram(self, total: Float64s, X: Floats, row_weight: Float64s) -> None:
        """total += Σ_i row_weight[i] x_i x_iᵀ, of rows (n, d) that may be copied."""
        go_on()
        block = np.ones((len(X), self.n_columns), dtype=X.dtype)
        block[:, : X.shape[1]] = X
        block *= np.sqrt(row_weight).astype(X.dtype)[:, None]
        total += block.T @ block

    @staticmethod
    def _block(X: NDArray[Any], bytes_a_row: int) -> int:
        """Rows to copy at a time."""
        return max(1, min(_LARGE_BLOCK, max(_SMALL_BLOCK, X.nbytes // 16)) // bytes_a_row)

    def within_reach(self, products: Float64s, labels: RowLabels, eligible: Bools, reach: float) -> Ints | None:
        """See `Engine.within_reach`."""

        def work(lo: int, hi: int) -> Ints | None:
            found = np.empty(max(64, (hi - lo) // 4), dtype=np.int64)  # a longer list would save no time
            count = kernels.collect_reach(products, labels.Y, labels.weight, eligible, reach, found, lo, hi)
            return found[:count] if count >= 0 else None

        parts = self._map(work, self._chunks())
        listed = [part for part in parts if part is not None]
        return np.concatenate(listed) if len(listed) == len(parts) else None

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
        self._map(partial(kernels.score_rows, *given, best, label), self._chunks())
        return best, label

    def expected_scores(
        self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[Float64s, Float64s, Ints]:
        """See `Engine.expected_scores`."""
        found = np.empty(self.n_rows), np.empty(self.n_rows), np.empty(self.n_rows, dtype=np.int64)
        given = (logits, products, labels.Y, labels.weight, eligible)
        self._map(partial(kernels.expect_rows, *given, eta, optimism, *found), self._chunks())
        return found

    def _smallest(self, scores: Float64s, count: int) -> Float64s:
        return np.asarray(np.partition(scores, count - 1)[count - 1])

    def _chunks(self) -> list[tuple[int, int]]:
        """First and last row of each chunk of all rows."""
        return self._even_cuts(0, self.n_rows)

    def _cuts(self, m: int, rows: int) -> list[tuple[int, int]]:
        """The pieces of a block of rows, each with m sums (D,) of its own."""
        return self._even_cuts(m, rows)

    def _even_cuts(self, m: int, rows: int) -> list[tuple[int, int]]:
        """They depend on the shapes only, so that sums are the same on any machine."""
        most = max(1, PARTIAL_BYTES // max(1, m * self.n_columns * 8))
        chunks = max(1, min(self.most_pieces, most, -(-rows // (4 * kernels.BLOCK))))
        return list(itertools.pairwise(round(rows * c / chunks) for c in range(chunks + 1)))

    def _map(self, work: Callable[..., Found], arguments: Sequence[tuple[Any, ...]]) -> list[Found]:
        """`work` of each of the arguments, on all threads and the calling one: each takes the next that are left."""
        go_on()
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
        owner = (
            os.getpid(),
            priority(),
        )  # threads do not survive a fork, and have the priority of the one that starts them
        if self._pool is None or self._pool_owner != owner:
            self._pool = ThreadPoolExecutor(thread_count(), thread_name_prefix="labelchef-sweep")
            self._pool_owner = owner
        return self._pool

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_pool": None}
