"""The contract between the mathematics and the place where the features lie.

An engine knows X and nothing else. It multiplies, it sums over rows, it reads single rows; what the sums mean is
the business of `core`. Sums come back as sums, never as means: means of block means are wrong on ragged blocks.

What has a row for each row of X (logits, products, labels, scores) stays where the engine has it: a NumPy array, or a
tensor on a device. `core` does arithmetic on such arrays with operators and with the functions of `engine.xp`, which go by
NumPy's names, and asks `engine.host` for the few numbers it wants to look at.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from labelchef.domain.arrays import Bools, Float64s, Ints

RowArray = Any
"""An array of the engine's own kind: one row for each row of X, or a small matrix that was placed beside it."""

Pair = tuple[Float64s, Float64s, float]
"""(step, bend, 1 / step·bend), with bend = H·step: what a step taught about H."""


@dataclass(frozen=True)
class RowLabels:
    """Labels (N, C) and weights (N,) of the rows an engine holds."""

    Y: RowArray
    weight: RowArray
    changes: list[Ints] = field(default_factory=list, compare=False, repr=False)
    """Rows changed in place so far, in order: an engine that keeps a copy brings it up to date by these alone."""


@dataclass(frozen=True)
class SweepSums:
    """What one sweep gave. Row outputs are (N, k), sums are (k, D), with k = C − 1 contrast columns."""

    logits: RowArray
    products: RowArray | None
    loss: float
    gradient: Float64s | None
    hessian_product: Float64s | None


class Engine(Protocol):
    """Sweeps over X, wherever it lies."""

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
        """A small NumPy array as one of the engine's own."""
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
        """The gradient of `sweep`, W and it (k, D) in the engine's kind of array; use it before the next sweep."""
        ...

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """Σ w (P − Y) ⊗ x over a few rows, (k, D), for W (k, D); each row is read once, where it lies."""
        ...

    def rows(self, indices: Ints) -> Float64s:
        """The rows themselves, (n, D) in float64, bias included."""
        ...

    def gram(self, row_weight: RowArray, step: int = 1) -> RowArray:
        """Σ_i row_weight[i] x_i x_iᵀ over every `step`-th row, (D, D), in the engine's kind of array."""
        ...

    def eigh(self, G: RowArray) -> tuple[Float64s, RowArray]:
        """Eigenvalues, on the host and in ascending order, and eigenvectors of a symmetric matrix; G may be overwritten."""
        ...

    def small_products(self) -> AbstractContextManager[object]:
        """Around products of small matrices between sweeps, so that they do not get in their way."""
        ...

    def secant_solve(self, solve: Callable[[RowArray], RowArray], pairs: tuple[Pair, ...], R: RowArray) -> RowArray:
        """L-BFGS: `solve`, corrected by the pairs, the last of which holds exactly; on the engine's arrays."""
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

        Answers are Q = softmax(logits − eta·products); a row is worth its expected influence less `optimism` times its spread.
        """
        ...

    def lowest(self, scores: RowArray, count: int) -> Ints:
        """Rows whose score is finite and no larger than the `count`-th smallest, in order of their index."""
        ...
