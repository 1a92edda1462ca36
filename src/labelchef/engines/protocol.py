"""The interface between the mathematics and the features.

An engine holds X and nothing else. It multiplies, sums over rows and reads single rows; `core` uses the sums. Sums are
returned as sums, never as means: means of block means are wrong where blocks have different sizes.

Arrays with a row for each row of X (logits, products, labels, scores) are of the engine's kind: a NumPy array, or a tensor
on a device. `core` does arithmetic on such arrays with operators and with the functions of `engine.xp`, which have NumPy's
names. `engine.host` returns the few numbers that are needed as NumPy arrays.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.stopping_work import go_on

RowArray = Any
"""An array of the engine's kind: one row for each row of X, or a small matrix made by `Engine.place`."""

Pair = tuple[Float64s, Float64s, float]
"""(step, bend, 1 / step·bend), with bend = H·step."""


@dataclass(frozen=True)
class RowLabels:
    """Labels (N, C) and weights (N,) of the rows an engine holds."""

    Y: RowArray
    weight: RowArray
    changes: list[Ints] = field(default_factory=list, compare=False, repr=False)
    """Rows changed in place so far, in order: an engine with a copy of the labels copies only these rows again."""


@dataclass(frozen=True)
class SweepSums:
    """The results of one sweep. Row outputs are (N, k), sums are (k, D), with k = C − 1 contrast columns."""

    logits: RowArray
    products: RowArray | None
    loss: float
    gradient: Float64s | None
    hessian_product: Float64s | None


class Engine(ABC):
    """Sweeps over X."""

    n_rows: int
    n_columns: int
    """D: the features, and one more for the bias if there is one."""
    row_bytes: int
    """Bytes of a row of X as it is stored."""
    sweeps: float = 0.0
    """Passes over X so far; reading single rows counts as its share of a pass."""
    short_arithmetic: bool = False
    """Whether a rough sweep computes in float32."""
    xp: Any
    """The module whose functions work on this engine's arrays, by NumPy's names."""

    def __init__(self, shape: tuple[int, int], itemsize: int, *, bias: bool) -> None:
        self._bias = bias
        self.n_rows, self.n_columns, self.row_bytes = shape[0], shape[1] + int(bias), shape[1] * itemsize

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
        """Σ_i row_weight[i] x_i x_iᵀ over every `step`-th row, (D, D), as an array of the engine."""

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
