"""Two other measures along V: INFL-D, the influence of deleting a sample, and INFL-Y, that of perturbing its label.

INFL-D (Koh & Liang 2017; paper eq. 2). Deleting sample i takes its weight r_i from the objective, ΔF = −(r_i/N) ℓ_i, so that to
first order

    D_i = r_i V·∇ℓ_i = r_i (P[i] − Y[i]) · S[i] ≈ N · (validation loss without i − with it),      V = H⁻¹ g_val,  S = X V

The paper writes −V·∇ℓ_i, Koh & Liang's effect of *adding* weight, and calls samples harmful if it is negative; the sign above
is the one that agrees with leave-one-out refits. Most harmful first: the sample whose deletion would lower the loss most.
Samples are ranked by D_i / r_i, the paper's formula: all weak samples have weight γ, and there is an order even for γ = 0.

INFL-Y (Zhang, Zhu & Wright 2018; paper eq. 7):

    T(i, c) = −V · ∂(∇_w ℓ_i)/∂y_c = S[i, c] − P[i] · S[i]

T(i, c) is the derivative of N times the validation loss with respect to the label mass y_c of sample i, per unit of weight:
a slope, which ignores how far the label would move (e_c − y) and the weight it would gain (1 − γ). It is INFL's
formula (A) at γ = 0. As in INFL, the score of a sample is min_c T(i, c), the suggested label argmin_c S[i, c].

Shapes: S, P, Y, T (n, C); D (n,).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.influence import smallest
from labelchef.core.objective import Linear
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import Batch, SelectionDiagnostics
from labelchef.selectors.direction import InfluenceSelector
from labelchef.selectors.protocol import SelectionContext
from labelchef.selectors.ranking import Ranking


def deletion_influence(S: Float64s, P: Float64s, Y: Float64s) -> Float64s:
    """D_i of every sample as if its weight were one.

    >>> S, P, Y = np.array([[0.0, 2.0]]), np.array([[0.25, 0.75]]), np.array([[0.0, 1.0]])
    >>> deletion_influence(S, P, Y).tolist()
    [-0.5]
    """
    return np.asarray(np.einsum("ic,ic->i", P - Y, S))


def label_slopes(S: Float64s, P: Float64s) -> Float64s:
    """T of every sample and class.

    >>> label_slopes(np.array([[0.0, 2.0]]), np.array([[0.25, 0.75]])).tolist()
    [[-1.5, 0.5]]
    """
    return np.asarray(S - np.einsum("ic,ic->i", P, S)[:, None])


@dataclass
class RankedAlongV(InfluenceSelector):
    """A selector that computes a score of every sample from S; equal scores by index."""

    suggests: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False

    def select_along(self, context: SelectionContext, linear: Linear, batch_size: int) -> Batch:
        """The eligible samples with the smallest scores."""
        ranking = self.rank(context, with_reference(context.objective.engine.host(linear.S)))
        rows = smallest(np.where(context.eligible, ranking.scores, np.inf), batch_size)
        return ranking.batch(rows, SelectionDiagnostics(candidates=int(context.eligible.sum())))

    @abstractmethod
    def rank(self, context: SelectionContext, S: Float64s) -> Ranking:
        """Scores of all N samples."""


@dataclass
class InflDSelector(RankedAlongV):
    """The samples whose deletion would lower the validation loss most. Suggests no label."""

    name: ClassVar[str] = "infl_d"

    def rank(self, context: SelectionContext, S: Float64s) -> Ranking:
        """D_i / r_i; `influence` is D_i, that of deleting the sample with its present weight."""
        labels = context.objective.labels
        scores = deletion_influence(S, context.probabilities, labels.Y)
        return Ranking(scores, influence=labels.weight * scores)


@dataclass
class InflYSelector(RankedAlongV):
    """The samples with a label entry along which the validation loss falls most steeply."""

    name: ClassVar[str] = "infl_y"
    suggests: ClassVar[bool] = True

    def rank(self, context: SelectionContext, S: Float64s) -> Ranking:
        """min_c T(i, c). A slope is not a predicted change, so `influence` is NaN."""
        slopes = label_slopes(S, context.probabilities)
        return Ranking(slopes.min(axis=1), slopes.argmin(axis=1))
