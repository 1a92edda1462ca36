"""The contract between the mathematics and the place where the features lie.

An engine knows X and nothing else. It multiplies, it sums over rows, it reads single rows; what the sums mean is
the business of `core`. Sums come back as sums, never as means: means of block means are wrong on ragged blocks.
"""

from dataclasses import dataclass
from typing import Protocol

from labelchef.domain.arrays import Bools, Float64s, Ints


@dataclass(frozen=True)
class RowLabels:
    """Labels (N, C) and weights (N,) of the rows an engine holds."""

    Y: Float64s
    weight: Float64s


@dataclass(frozen=True)
class SweepSums:
    """What one sweep gave. Row outputs are (N, k), sums are (k, D), with k = C − 1 contrast columns."""

    logits: Float64s
    products: Float64s | None
    loss: float
    gradient: Float64s | None
    hessian_product: Float64s | None


@dataclass(frozen=True)
class Screen:
    """What `core.bounds` needs to bound the influence of every row: Ŝ = Z·coef, and how far it may be off.

    Z (N, q) cached products, coef (q, k), P (N, k) probabilities then, nu (N,) row norms, e (k,) norms of the part of V
    outside the basis, move the half-spread of the change of W, slack the room for rounding. Labels are those of now.
    """

    Z: Float64s
    coef: Float64s
    P: Float64s
    nu: Float64s
    e: Float64s
    move: float
    slack: float


@dataclass(frozen=True)
class Shortlist:
    """Rows that may matter, with their bounds; no other eligible row has a lower bound under `rest`."""

    indices: Ints
    lower: Float64s
    upper: Float64s
    rest: float


class Engine(Protocol):
    """Sweeps over X, wherever it lies."""

    n_rows: int
    n_columns: int
    """D: the features, and one more for the bias if there is one."""
    row_bytes: int
    """What a row of X takes where it lies."""
    sweeps: float
    """Passes over X so far; reading single rows counts as its share of a pass."""

    def sweep(
        self,
        labels: RowLabels,
        *,
        W: Float64s | None = None,
        logits: Float64s | None = None,
        V: Float64s | None = None,
        products: Float64s | None = None,
        gradient: bool = False,
        hessian_product: bool = False,
    ) -> SweepSums:
        """One pass. W and V are (k, D); exactly one of `W` and `logits` is given, and at most one of V, products."""
        ...

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """Σ w (P − Y) ⊗ x over a few rows, (k, D), for W (k, D); each row is read once, where it lies."""
        ...

    def rows(self, indices: Ints) -> Float64s:
        """The rows themselves, (n, D) in float64, bias included."""
        ...

    def gram(self, row_weight: Float64s, step: int = 1) -> Float64s:
        """Σ_i row_weight[i] x_i x_iᵀ over every `step`-th row, (D, D)."""
        ...

    def subset(self, indices: Ints) -> "Engine":
        """An engine over those rows alone; taking them counts as their share of a pass."""
        ...

    def row_quadratic(self, E: Float64s, inside: Float64s, outside: float) -> Float64s:
        """xᵀQx for each row, Q = E diag(inside) Eᵀ + outside (I − E Eᵀ), rounded up; one pass over X."""
        ...

    def within_reach(self, products: Float64s, labels: RowLabels, eligible: Bools, reach: float) -> Ints | None:
        """Eligible rows whose score can be −reach or less; None if too many to list; no pass over X."""
        ...

    def possibly_below(self, screen: Screen, labels: RowLabels, eligible: Bools, limit: float) -> Shortlist | None:
        """Eligible rows whose lower bound is at most `limit`; None if too many to list; no pass over X."""
        ...

    def scores_of(
        self, indices: Ints, logits: Float64s, products: Float64s, labels: RowLabels
    ) -> tuple[Float64s, Ints]:
        """`scores` of a few rows, to the bit; no pass over X."""
        ...

    def scores(self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools) -> tuple[Float64s, Ints]:
        """Smallest influence over classes of every row, and the class that attains it; no pass over X."""
        ...

    def expected_scores(
        self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[Float64s, Float64s, Ints]:
        """Worth, expected influence and most probable answer of every row; no pass over X.

        Answers are Q = softmax(logits − eta·products); a row is worth its expected influence less `optimism` times its spread.
        """
        ...
