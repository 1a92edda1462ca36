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


class Engine(Protocol):
    """Sweeps over X, wherever it lies."""

    n_rows: int
    n_columns: int
    """D: the features, and one more for the bias if there is one."""
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

    def rows(self, indices: Ints) -> Float64s:
        """The rows themselves, (n, D) in float64, bias included."""
        ...

    def gram(self, row_weight: Float64s, step: int = 1) -> Float64s:
        """Σ_i row_weight[i] x_i x_iᵀ over every `step`-th row, (D, D)."""
        ...

    def scores(self, logits: Float64s, products: Float64s, labels: RowLabels, eligible: Bools) -> tuple[Float64s, Ints]:
        """Smallest influence over classes of every row, and the class that attains it; no pass over X."""
        ...
