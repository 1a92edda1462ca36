"""The interface between the mathematics and the features.

An engine holds X and nothing else. It multiplies, sums over rows and reads single rows; `core` uses the sums. Sums are
returned as sums, never as means: means of block means are wrong where blocks have different sizes.

Arrays with a row for each row of X (logits, products, labels, scores) are of the engine's kind: a NumPy array, or a tensor
on a device. `core` does arithmetic on such arrays with operators and with the functions of `engine.xp`, which have NumPy's
names. `engine.host` returns the few numbers that are needed as NumPy arrays.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from labelchef.domain.arrays import Bools, Float64s, Ints

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


class Engine(Protocol):
    """Sweeps over X."""

    n_rows: int
    n_columns: int
    """D: the features, and one more for the bias if there is one."""
    row_bytes: int
    """Bytes of a row of X as it is stored."""
    sweeps: float
    """Passes over X so far; reading single rows counts as its share of a pass."""

    @property
    def xp(self) -> Any:
        """The module whose functions work on this engine's arrays, by NumPy's names."""
        ...

    def place(self, array: Float64s) -> RowArray:
        """A small NumPy array as an array of the engine."""
        ...

    def host(self, array: RowArray) -> Float64s:
        """One of the engine's arrays, or some rows of it, as a NumPy array."""
        ...

    def placed(self, labels: RowLabels) -> RowLabels:
        """The labels as they are now, in the engine's arrays."""
        ...

    def sweep(
        self,
        labels: RowLabels,
        *,
        W: Float64s | None = None,
        logits: RowArray | None = None,
        V: Float64s | None = None,
        gradient: bool = False,
        hessian_product: bool = False,
    ) -> SweepSums:
        """One pass. W and V are (k, D). Give either `W` or `logits`; a Hessian product needs V."""
        ...

    def gradient_at(self, labels: RowLabels, W: RowArray) -> RowArray:
        """The gradient of `sweep`, with W and the result (k, D) as arrays of the engine; use or copy it before the next sweep."""
        ...

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """Σ w (P − Y) ⊗ x over a few rows, (k, D), for W (k, D); each row is read once, without a copy."""
        ...

    def rows(self, indices: Ints) -> Float64s:
        """The rows themselves, (n, D) in float64, bias included."""
        ...

    def gram(self, row_weight: RowArray, step: int = 1) -> RowArray:
        """Σ_i row_weight[i] x_i x_iᵀ over every `step`-th row, (D, D), as an array of the engine."""
        ...

    def eigh(self, G: RowArray) -> tuple[Float64s, RowArray]:
        """Eigenvalues, on the host and in ascending order, and eigenvectors of a symmetric matrix; G may be overwritten."""
        ...

    def small_products(self) -> AbstractContextManager[object]:
        """A context for products of small matrices between sweeps, which keeps them from slowing the sweeps down."""
        ...

    def secant_solve(self, solve: Callable[[RowArray], RowArray], pairs: tuple[Pair, ...], R: RowArray) -> RowArray:
        """L-BFGS: `solve`, corrected by the pairs, exact on the last of them; on arrays of the engine."""
        ...

    def row_squares(self) -> RowArray:
        """‖x_i‖² of every row, bias included; one pass over X."""
        ...

    def within_reach(self, products: RowArray, labels: RowLabels, eligible: Bools, reach: float) -> Ints | None:
        """Eligible rows whose score can be −reach or less; None if too many to list; no pass over X."""
        ...

    def scores_of(
        self, indices: Ints, logits: RowArray, products: RowArray, labels: RowLabels
    ) -> tuple[Float64s, Ints]:
        """`scores` of a few rows, on the host; no pass over X."""
        ...

    def scores(
        self, logits: RowArray, products: RowArray, labels: RowLabels, eligible: Bools
    ) -> tuple[RowArray, RowArray]:
        """Smallest influence over classes of every row, and the class that attains it; no pass over X."""
        ...

    def expected_scores(
        self, logits: RowArray, products: RowArray, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[RowArray, RowArray, RowArray]:
        """Worth, expected influence and most probable answer of every row; no pass over X.

        Answers are Q = softmax(logits − eta·products). The worth of a row is its expected influence minus `optimism` times
        its spread.
        """
        ...

    def lowest(self, scores: RowArray, count: int) -> Ints:
        """Rows whose score is finite and no larger than the `count`-th smallest, in order of their index."""
        ...
