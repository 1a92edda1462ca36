"""INFL-D: the influence of deleting a sample (Koh & Liang 2017; paper eq. 2).

Deleting sample i takes its weight r_i from the objective, ΔF = −(r_i/N) ℓ_i, so that to first order

    D_i = r_i V·∇ℓ_i = r_i (P[i] − Y[i]) · S[i] ≈ N · (validation loss without i − with it),      V = H⁻¹ g_val,  S = X V

The paper writes −V·∇ℓ_i, Koh & Liang's effect of *adding* weight, and calls samples harmful if it is negative; the sign above
is the one that agrees with leave-one-out refits. Most harmful first: the sample whose deletion would lower the loss most.
Samples are ranked by D_i / r_i, the paper's formula: all weak samples have weight γ, and there is an order even for γ = 0.

Shapes: S, P, Y (n, C); D (n,).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.core.influence import smallest
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import UNRESOLVED, Batch
from labelchef.selectors.direction import Direction, InfluenceSelector
from labelchef.selectors.protocol import SelectionContext


def deletion_influence(S: Float64s, P: Float64s, Y: Float64s) -> Float64s:
    """D_i of every sample as if its weight were one.

    >>> S, P, Y = np.array([[0.0, 2.0]]), np.array([[0.25, 0.75]]), np.array([[0.0, 1.0]])
    >>> deletion_influence(S, P, Y).tolist()
    [-0.5]
    """
    return np.asarray(np.einsum("ic,ic->i", P - Y, S))


@dataclass
class InflDSelector(InfluenceSelector):
    """The samples whose deletion would lower the validation loss most. Suggests no label."""

    name: ClassVar[str] = "infl_d"
    suggests: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False
    needs: ClassVar[str] = "a validation set"

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """Score all samples; `influence` is that of deleting the sample with its present weight."""
        labels = context.objective.labels
        scores = deletion_influence(direction.products(context), context.probabilities, labels.Y)
        indices = smallest(np.where(context.eligible, scores, np.inf), batch_size)
        diagnostics = direction.diagnostics(int(np.count_nonzero(context.eligible)), began)
        influence = labels.weight[indices] * scores[indices]
        return Batch(indices, np.full(len(indices), UNRESOLVED), influence, diagnostics)
