"""The interface between the mathematics and the features.

An engine holds X and nothing else. It multiplies, sums over rows and reads single rows; `core` uses the sums. Sums are
returned as sums, never as means: means of block means are wrong where blocks have different sizes.

Arrays with a row for each row of X (logits, products, labels, scores) are of the engine's kind: a NumPy array, or a tensor on a
device. So `core` does only this with them: it hands them back to the engine, adds multiples of
one to another (a + t * b, a − b), takes a few rows or a slice (a[rows]), and asks `engine.host` for NumPy arrays. Whatever goes
over all rows is a method of the engine. Small matrices (`Engine.place`) are arrays of `engine.xp`, a module with NumPy's names.

Row formulas, with P = softmax([0, A]) of logits A (N, k), weights r (N,) and labels Y (N, C), Z = [0, products]:

    along           slope  Σ_i r_i (P_i − Y_i)·Z_i,    bend  Σ_i r_i (P_i·Z_i² − (P_i·Z_i)²),      P at A + t · products
    row curvature   h_i = r_i (1 − ‖P_i‖²),            Q = Σ_i r_i (diag P_i − P_i P_iᵀ)              (N,), (C, C)
    hessian         H[c, :, e] = Σ_i r_i P_ic (δ_ce − P_ie) x_i x_iᵀ,   c, e = 1 … k                  (k, D, k, D)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.stopping_work import go_on

RowArray = Any
"""An array of the engine's kind: one row for each row of X, or a small matrix made by `Engine.place`."""

Pair = tuple[Float64s, Float64s, float]
"""(step, bend, 1 / step·bend), with bend = H·step."""

Result = TypeVar("Result")

_ROUGH_ROWS = 4
"""Rows of X for each column of a rough Gram matrix, from which the first model starts."""
_FACTOR_ROWS = 64  # for each column of the matrix that a factor is made of, at least
_CHUNK = 1 << 16  # rows whose curvature is computed at a time


@dataclass(frozen=True)
class RowLabels:
    """Labels (N, C) and weights (N,) of the rows an engine holds."""

    Y: RowArray
    weight: RowArray
    changes: list[Ints] = field(default_factory=list, compare=False, repr=False)
    """Rows changed in place so far, in order: an engine with a copy of the labels copies only these rows again."""

    def changed_since(self, seen: int) -> Ints:
        """Rows in all changes but the first `seen`, each once, ascending."""
        found = np.zeros(len(self.weight), dtype=bool)  # np.unique takes a second for two million
        for rows in self.changes[seen:]:
            found[rows] = True
        return np.flatnonzero(found)


@dataclass(frozen=True)
class SweepSums:
    """The results of one sweep. Row outputs are (N, k), sums are (k, D), with k = C − 1 contrast columns."""

    logits: RowArray
    products: RowArray | None
    loss: float
    gradient: Float64s | None
    hessian_product: Float64s | None


@dataclass(frozen=True)
class Shortlist:
    """The rows of the smallest scores, in order of their index, with what is known of them; all on the host."""

    rows: Ints
    scores: Float64s
    others: tuple[Any, ...]
    """Values of the other row arrays that were asked for, in the same order."""
    scale: float
    """|smallest finite score| of all rows."""


@dataclass(frozen=True)
class Pace:
    """How workers kept up with each other in the last sweeps."""

    slowest: str
    """The worker that took longest."""
    seconds: float
    """That it took."""
    median: float
    """Seconds that the median worker took."""
    workers: int
    lost: int
    """Workers that died so far."""

    @property
    def lag(self) -> float:
        """How many times as long as the median worker the slowest one took."""
        return self.seconds / max(self.median, 1e-9)


@dataclass(frozen=True)
class Spent:
    """What was read of X up to some moment."""

    sweeps: float
    bytes_read: float
    read_seconds: float

    def since(self, before: "Spent") -> "Spent":
        """What was read after an earlier moment."""
        return Spent(
            self.sweeps - before.sweeps, self.bytes_read - before.bytes_read, self.read_seconds - before.read_seconds
        )


class Engine(ABC):
    """Sweeps over X."""

    n_rows: int
    n_columns: int
    """D: the features, and one more for the bias if there is one."""
    row_bytes: int
    """Bytes of a row of X as it is stored."""
    sweeps: float = 0.0
    """Passes over X so far; reading single rows counts as its share of a pass."""
    bytes_read: float = 0.0
    """Bytes of X that were read from files in whole passes so far; 0 for an engine that holds X."""
    read_seconds: float = 0.0
    """Seconds that these passes took."""
    factor_share: float = float("inf")
    """Sweeps that the factor of a frozen Hessian may cost; where a pass costs more, it is computed of a part of the rows."""
    short_arithmetic: bool = False
    """Whether a rough sweep computes in float32."""
    xp: Any
    """The module whose functions work on this engine's arrays, by NumPy's names."""

    def __init__(self, shape: tuple[int, int], itemsize: int, *, bias: bool) -> None:
        self._bias = bias
        self.n_rows, self.n_columns, self.row_bytes = shape[0], shape[1] + int(bias), shape[1] * itemsize

    def spent(self) -> Spent:
        """What was read so far."""
        return Spent(self.sweeps, self.bytes_read, self.read_seconds)

    @property
    def gram_cost(self) -> float:
        """Sweeps that `gram` of all rows takes as long as: N·D² multiplications against N·D numbers read."""
        return self.n_columns / 20.0

    def rough_step(self) -> int:
        """The `step` of `gram` for the factor from which a first model starts, far from its optimum."""
        rows = _ROUGH_ROWS if self.factor_step == 1 else _FACTOR_ROWS  # a sweep costs more there than a few more rows
        return max(1, self.n_rows // (rows * self.n_columns))

    @property
    def factor_step(self) -> int:
        """The `step` of `gram` for a factor: 1, unless that would cost more than `factor_share`; 64 rows a column at least.

        With r rows a column the factor is off by a share of about √(1/r), and conjugate gradients with it gain a digit or more
        with every sweep: the residual shrinks by √(1/r).
        """
        most = self.n_rows // (_FACTOR_ROWS * self.n_columns)
        return max(1, min(most, int(min(self.gram_cost / self.factor_share, self.n_rows))))

    def place(self, array: Float64s) -> RowArray:
        """A small NumPy array as an array of the engine; itself, unless the engine has a device."""
        return array

    def host(self, array: RowArray) -> Float64s:
        """One of the engine's arrays, or some rows of it, as a NumPy array."""
        return array  # type: ignore[no-any-return]

    def placed(self, labels: RowLabels) -> RowLabels:
        """The labels as they are now, in the engine's arrays."""
        return labels

    def sweep(
        self,
        labels: RowLabels,
        *,
        W: Float64s | None = None,
        logits: RowArray | None = None,
        V: Float64s | None = None,
        gradient: bool = False,
        hessian_product: bool = False,
        roughly: bool = False,
    ) -> SweepSums:
        """One pass. W and V are (k, D). Give either `W` or `logits`; a Hessian product needs V.

        Roughly, products have a relative error of about 1e-7, where the engine gains time by it (`short_arithmetic`).
        """
        go_on()
        here = self.placed(labels)
        k = here.Y.shape[1] - 1
        K = np.vstack([M for M in (W, V) if M is not None] or [np.empty((0, self.n_columns))])
        K = K.astype(np.float32) if roughly and self.short_arithmetic else K
        wanted = (W is not None, V is not None, gradient, hessian_product)
        A, Z, sums, loss = self._sweep(here, K, wanted, logits)
        self.sweeps += 1.0
        return SweepSums(
            logits=A,
            products=Z if V is not None else None,
            loss=loss,
            gradient=sums[:k] if gradient else None,
            hessian_product=sums[len(sums) - k :] if hessian_product else None,
        )

    @abstractmethod
    def _sweep(
        self, labels: RowLabels, K: Float64s, wanted: tuple[bool, ...], logits: RowArray | None
    ) -> tuple[RowArray, RowArray | None, Float64s, float]:
        """Logits, products, the sums that are wanted (k or 2k, D) and the loss.

        K has the rows of W, then of V; `wanted` says whether W, V, the gradient and the Hessian product are part of it.
        """

    def gradient_at(self, labels: RowLabels, W: RowArray) -> RowArray:
        """The gradient of `sweep`, with W and the result (k, D) as arrays of the engine; use or copy it before the next sweep."""
        return self.sweep(labels, W=np.ascontiguousarray(W), gradient=True).gradient

    @abstractmethod
    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """Σ w (P − Y) ⊗ x over a few rows, (k, D), for W (k, D); each row is read once, without a copy."""

    def rows(self, indices: Ints) -> Float64s:
        """The rows themselves, (n, D) in float64, bias included."""
        self.sweeps += len(indices) / max(1, self.n_rows)
        picked = self._features(indices)
        return np.hstack([picked, np.ones((len(indices), 1))]) if self._bias else picked

    @abstractmethod
    def _features(self, indices: Ints) -> Float64s:
        """The rows in float64 without the bias."""

    @abstractmethod
    def gram(self, row_weight: RowArray, step: int = 1) -> RowArray:
        """Σ_i row_weight[i] x_i x_iᵀ over every `step`-th row, (D, D), as an array of the engine.

        An engine may take other rows, as many and spread as evenly, if `total` takes the same.
        """

    def estimated_gram(self, row_weight: RowArray, step: int) -> RowArray:
        """`gram` of all rows, estimated from the part that `step` says; that of all rows for step 1."""
        found = self.gram(row_weight, step)
        return found if step == 1 else found * (self.total(row_weight) / (self.total(row_weight, step) or 1.0))

    @abstractmethod
    def eigh(self, G: RowArray) -> tuple[Float64s, RowArray]:
        """Eigenvalues, on the host and in ascending order, and eigenvectors of a symmetric matrix; G may be overwritten."""

    def small_products(self) -> AbstractContextManager[object]:
        """A context for products of small matrices between sweeps, which keeps them from slowing the sweeps down."""
        return nullcontext()

    @abstractmethod
    def secant_solve(self, solve: Callable[[RowArray], RowArray], pairs: tuple[Pair, ...], R: RowArray) -> RowArray:
        """L-BFGS: `solve`, corrected by the pairs, exact on the last of them; on arrays of the engine."""

    @abstractmethod
    def row_squares(self) -> RowArray:
        """‖x_i‖² of every row, bias included; one pass over X."""

    @abstractmethod
    def within_reach(self, products: RowArray, labels: RowLabels, eligible: Bools, reach: float) -> Ints | None:
        """Eligible rows whose score can be −reach or less; None if too many to list; no pass over X."""

    @abstractmethod
    def scores_of(
        self, indices: Ints, logits: RowArray, products: RowArray, labels: RowLabels
    ) -> tuple[Float64s, Ints]:
        """`scores` of a few rows, on the host; no pass over X."""

    @abstractmethod
    def scores(
        self, logits: RowArray, products: RowArray, labels: RowLabels, eligible: Bools
    ) -> tuple[RowArray, RowArray]:
        """Smallest influence over classes of every row, and the class that attains it; no pass over X."""

    @abstractmethod
    def expected_scores(
        self, logits: RowArray, products: RowArray, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[RowArray, RowArray, RowArray]:
        """Worth, expected influence and most probable answer of every row; no pass over X.

        Answers are Q = softmax(logits − eta·products). The worth of a row is its expected influence minus `optimism` times
        its spread.
        """

    def zeros(self, columns: int) -> RowArray:
        """A row array (N, columns) of zeros."""
        return self.place(np.zeros((self.n_rows, columns)))

    def total(self, values: RowArray, step: int = 1) -> float:
        """The sum of every `step`-th value of a row array (N,)."""
        return float(values[::step].sum())

    def along(self, labels: RowLabels, logits: RowArray, products: RowArray, t: float) -> tuple[float, float]:
        """Slope and bend of Σ_i r_i ℓ_i at logits + t · products, along the products; no pass over X."""
        xp, here = self.xp, self.placed(labels)
        P, Z, r = self._probabilities(logits + t * products), self._with_reference(products), here.weight
        mean = xp.einsum("ic,ic->i", P, Z)
        slope = r @ (mean - xp.einsum("ic,ic->i", here.Y, Z))
        bend = r @ (xp.einsum("ic,ic,ic->i", P, Z, Z) - mean**2)
        return float(slope), float(bend)

    def row_curvature(self, labels: RowLabels, logits: RowArray) -> tuple[RowArray, Float64s]:
        """h (N,), as a row array, and the sum Q (C, C), a chunk of rows at a time; no pass over X."""
        xp, here = self.xp, self.placed(labels)
        r, C, h = here.weight, here.Y.shape[1], []
        Q = self.place(np.zeros((C, C)))
        for start in range(0, len(r), _CHUNK):
            rows = slice(start, start + _CHUNK)
            P = self._probabilities(logits[rows])
            h.append(r[rows] * (1.0 - xp.einsum("ic,ic->i", P, P)))
            Q += xp.diag(r[rows] @ P) - P.T @ (r[rows, None] * P)
        return xp.clip(xp.concatenate(h), 0.0, None), self.host(Q)

    def hessian(self, labels: RowLabels, logits: RowArray) -> Float64s:
        """The sum H (k, D, k, D) in contrasts, on the host: a Gram matrix for each pair of classes."""
        here = self.placed(labels)
        P, r, D = self._probabilities(logits), here.weight, self.n_columns
        k = P.shape[1] - 1
        H = np.empty((k, D, k, D))
        for c in range(k):
            for e in range(c + 1):
                p, other = P[:, c + 1], P[:, e + 1]
                G = self.host(self.estimated_gram(r * p * (1.0 - p if c == e else other), self.factor_step))
                H[c, :, e] = H[e, :, c] = G if c == e else -G
        return H

    def _with_reference(self, A: RowArray) -> RowArray:
        """(n, k) → (n, C): with the zero of class 0."""
        return self.xp.hstack([self.xp.zeros_like(A[:, :1]), A])

    def _probabilities(self, A: RowArray) -> RowArray:
        """P (n, C) of logits (n, k)."""
        A = self._with_reference(A)
        E = self.xp.exp(A - self.xp.amax(A, axis=1, keepdims=True))
        return E / E.sum(axis=1, keepdims=True)

    def shortlist(self, scores: RowArray, count: int, tolerance: float, *others: RowArray) -> Shortlist:
        """Rows whose score exceeds the `count`-th smallest by `tolerance` · scale at most, with values of the `others`."""
        xp = self.xp
        scale = abs(float(xp.where(xp.isfinite(scores), scores, 0.0).min()))
        rows = self.lowest(scores, count, tolerance * scale)
        return Shortlist(rows, self.host(scores[rows]), tuple(self.host(other[rows]) for other in others), scale)

    def lowest(self, scores: RowArray, count: int, slack: float = 0.0) -> Ints:
        """Rows whose score is finite and exceeds the `count`-th smallest by `slack` at most, in order of their index."""
        count = min(count, int(self.xp.isfinite(scores).sum()))
        if count == 0:
            return np.empty(0, dtype=np.int64)
        rows = self.xp.where(scores <= self._smallest(scores, count) + slack)[0]
        return np.asarray(self.host(rows), dtype=np.int64)

    @abstractmethod
    def _smallest(self, scores: RowArray, count: int) -> RowArray:
        """The `count`-th smallest score."""

    def background(self, work: Callable[[], Result]) -> "Future[Result]":
        """Begin a computation that needs no row array, in a thread beside the sweeps that follow."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="labelchef-background")
        begun = thread.submit(copy_context().run, work)
        thread.shutdown(wait=False)
        return begun

    def pace(self) -> Pace | None:
        """How workers kept up with each other in the last sweeps; None where there are none."""
        return None
