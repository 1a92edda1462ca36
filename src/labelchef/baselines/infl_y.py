"""INFL-Y: the influence of perturbing a label (Zhang, Zhu & Wright 2018; paper eq. 7).

    T(i, c) = −V · ∂(∇_w ℓ_i)/∂y_c = S[i, c] − P[i] · S[i],      V = H⁻¹ g_val,  S = X V

T(i, c) is the derivative of N times the validation loss with respect to the label mass y_c of sample i, per unit of weight:
a slope, which ignores how far the label would move (e_c − y) and the weight it would gain (1 − γ). It is INFL's
formula (A) at γ = 0. As in INFL, the score of a sample is min_c T(i, c), the suggested label argmin_c S[i, c].

Shapes: S, P, T (n, C).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.core.influence import smallest
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import Batch
from labelchef.selectors.direction import Direction, InfluenceSelector
from labelchef.selectors.protocol import SelectionContext


def label_slopes(S: Float64s, P: Float64s) -> Float64s:
    """T of every sample and class.

    >>> label_slopes(np.array([[0.0, 2.0]]), np.array([[0.25, 0.75]])).tolist()
    [[-1.5, 0.5]]
    """
    return np.asarray(S - np.einsum("ic,ic->i", P, S)[:, None])


@dataclass
class InflYSelector(InfluenceSelector):
    """The samples with a label entry along which the validation loss falls most steeply."""

    name: ClassVar[str] = "infl_y"
    looks_ahead: ClassVar[bool] = False
    needs: ClassVar[str] = "a validation set"

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """Score all samples. A slope is not a predicted change, so `influence` is NaN."""
        slopes = label_slopes(direction.products(context), context.probabilities)
        indices = smallest(np.where(context.eligible, slopes.min(axis=1), np.inf), batch_size)
        diagnostics = direction.diagnostics(int(np.count_nonzero(context.eligible)), began)
        return Batch(indices, slopes[indices].argmin(axis=1), np.full(len(indices), np.nan), diagnostics)
