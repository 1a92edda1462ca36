"""Other uses of V: INFL-D, the influence of deleting a sample; INFL-Y, that of perturbing its label; the paper's pruning.

INFL-D (Koh & Liang 2017; paper eq. 2). Deleting sample i takes its weight r_i from the objective; to first order,

    D_i = r_i V·∇ℓ_i = r_i (P[i] − Y[i]) · S[i] ≈ N · (validation loss without i − with it),      V = H⁻¹ g_val,  S = X V

The paper writes −V·∇ℓ_i, Koh & Liang's effect of *adding* weight, and calls samples harmful if it is negative; the sign above
is the one that agrees with leave-one-out refits. Most harmful first: the sample whose deletion would lower the loss most.
Samples are ranked by D_i / r_i, the paper's formula: all weak samples have weight γ, and there is an order even for γ = 0.

INFL-Y (Zhang, Zhu & Wright 2018; paper eq. 7):

    T(i, c) = −V · ∂(∇_w ℓ_i)/∂y_c = S[i, c] − P[i] · S[i]

T(i, c) is the derivative of N times the validation loss with respect to the label mass y_c of sample i, per unit of weight:
a slope, which ignores how far the label would move (e_c − y) and the weight it would gain (1 − γ). It is INFL's
formula (A) at γ = 0. As in INFL, the score of a sample is min_c T(i, c), the suggested label argmin_c S[i, c].

Increm-INFL as in the paper (Theorem 1, Algorithm 1), to reproduce its results and to compare with. Provenance, stored in the
first round: ‖H(w0, z)‖ of every sample, in closed form for softmax, and the gradients at w0, which are x ⊗ (p0 − y), so that
p0 is enough. In a round, I_0 needs the products X·v of the present v with every sample, as the paper's
cached gradients do: a pass over all samples, which is part of the solve here. Then Algorithm 1: take the b smallest I_0, let L
be the largest upper bound among them; candidates are all samples whose lower bound is below L, and are evaluated exactly.

The theorem's Hessians are integrals along the path from w0; like the paper, this takes them at w0, so unlike `infl`
it gives no guarantee. The first round evaluates all samples, as the authors' code does.

Shapes: S, P, Y, T (n, C); D (n,).
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.base.records import Batch, SelectionDiagnostics
from labelchef.chef.selectors.infl import InfluenceSelector, score_everything
from labelchef.chef.selectors.protocol import SelectionContext
from labelchef.chef.selectors.ranking import Ranking
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import RowLabels
from labelchef.model.influence import influence_matrix
from labelchef.model.objective import Linear
from labelchef.model.order import smallest


def by_deletion(S: Float64s, P: Float64s, labels: RowLabels) -> Ranking:
    """D_i / r_i; `influence` is D_i, that of deleting the sample with its present weight.

    >>> S, P, Y = np.array([[0.0, 2.0]]), np.array([[0.25, 0.75]]), np.array([[0.0, 1.0]])
    >>> by_deletion(S, P, RowLabels(Y, np.ones(1))).scores.tolist()
    [-0.5]
    """
    scores = np.einsum("ic,ic->i", P - labels.Y, S)
    return Ranking(scores, influence=labels.weight * scores)


def label_slopes(S: Float64s, P: Float64s) -> Float64s:
    """T of every sample and class.

    >>> label_slopes(np.array([[0.0, 2.0]]), np.array([[0.25, 0.75]])).tolist()
    [[-1.5, 0.5]]
    """
    return np.asarray(S - np.einsum("ic,ic->i", P, S)[:, None])


def by_slope(S: Float64s, P: Float64s) -> Ranking:
    """min_c T(i, c). A slope is not a predicted change, so `influence` is NaN."""
    slopes = label_slopes(S, P)
    return Ranking(slopes.min(axis=1), slopes.argmin(axis=1))


@dataclass
class RankedAlongV(InfluenceSelector):
    """A selector that computes a score of every sample from S; equal scores by index."""

    suggests: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False

    def select_along(self, context: SelectionContext, linear: Linear, batch_size: int) -> Batch:
        """The eligible samples with the smallest scores."""
        ranking = self.rank(context, with_reference(context.objective.engine.host(linear.S)))
        rows = smallest(np.where(context.eligible, ranking.scores, np.inf), batch_size, context.ties)
        return ranking.batch(rows, SelectionDiagnostics(candidates=int(context.eligible.sum())))

    @abstractmethod
    def rank(self, context: SelectionContext, S: Float64s) -> Ranking:
        """Scores of all N samples."""


@dataclass
class InflDSelector(RankedAlongV):
    """The samples whose deletion would lower the validation loss most. Suggests no label."""

    name: ClassVar[str] = "infl_d"

    def rank(self, context: SelectionContext, S: Float64s) -> Ranking:
        """By deletion."""
        return by_deletion(S, context.probabilities, context.objective.labels)


@dataclass
class InflYSelector(RankedAlongV):
    """The samples with a label entry along which the validation loss falls most steeply."""

    name: ClassVar[str] = "infl_y"
    suggests: ClassVar[bool] = True

    def rank(self, context: SelectionContext, S: Float64s) -> Ranking:
        """By slope."""
        return by_slope(S, context.probabilities)


def theorem1_bounds(
    estimate: Float64s, Y: Float64s, weight: Float64s, norms: Float64s, e1: float, e2: float, delta_terms: bool = True
) -> tuple[Float64s, Float64s]:
    """The paper's bound: centre ± radius (n, C) of I(i, c) at round k, from the estimates I_0 (n, C) at w0.

    With v = −V, e1 = v·(w_k − w0), e2 = ‖v‖ ‖w_k − w0‖, h = ‖H(w0, z)‖ in place of the integrated Hessians, and
    δ = e_c − y:  I = I_0 + ½(1 − γ) e1 h + Σ δ_j e1 h ± (Σ |δ_j| e2 h + ½(1 − γ) e2 h). The theorem as printed has −I
    on the left; with its own v, which carries the minus sign, that is a sign error. For softmax all H^(j) are one matrix and
    Σ δ_j = 0, so the true δ-terms are zero; `delta_terms=False` leaves them out, as the authors' code does.
    """
    h, free = norms[:, None], (1.0 - weight)[:, None]
    centre = estimate + 0.5 * free * e1 * h
    radius = 0.5 * free * e2 * h * np.ones_like(estimate)
    if delta_terms:
        radius = radius + 2.0 * (1.0 - Y) * e2 * h  # ‖e_c − y‖₁ = 2 (1 − y_c) on the simplex
    return centre - radius, centre + radius


def softmax_hessian_norms(P: Float64s, squares: Float64s) -> Float64s:
    """‖H(w, z_i)‖ = ‖x_i‖² λ_max(diag p_i − p_i p_iᵀ), in closed form for softmax; P (n, C), squares ‖x_i‖² (n,).

    >>> softmax_hessian_norms(np.array([[0.5, 0.5]]), np.array([4.0])).tolist()
    [2.0]
    """
    if P.shape[1] == 2:
        return np.asarray(squares * 2.0 * P[:, 0] * P[:, 1])
    J = np.einsum("ic,cd->icd", P, np.eye(P.shape[1])) - np.einsum("ic,id->icd", P, P)
    return np.asarray(squares * np.linalg.eigvalsh(J)[:, -1])


@dataclass
class Theorem1Selector(InfluenceSelector):
    """INFL with the paper's pruning. `delta_terms=False` keeps its μ-term only, as the authors' code does."""

    delta_terms: bool = True
    hessian_norms: Callable[[SelectionContext], Float64s] | None = None
    """‖H(w0, z)‖ of every sample, for models whose norms have no closed form: by the power method, for example."""
    name: ClassVar[str] = "increm_infl_theorem1"
    _provenance: tuple[Float64s, Float64s, Float64s] | None = field(default=None, init=False, repr=False)
    """w0, P at w0 (N, C), and the norms ‖H(w0, z)‖."""

    def select_along(self, context: SelectionContext, linear: Linear, batch_size: int) -> Batch:
        """The batch for a V that is already known."""
        engine, labels = context.objective.engine, context.objective.labels
        if self._provenance is None:
            P = context.probabilities
            if self.hessian_norms is None:
                norms = softmax_hessian_norms(P, engine.host(engine.row_squares()))
            else:
                norms = self.hessian_norms(context)
            self._provenance = (context.point.W, P, norms)
            batch = score_everything(context, linear, batch_size)
            return replace(batch, diagnostics=replace(batch.diagnostics, fell_back=True))
        W0, P0, norms = self._provenance
        moved = context.point.W - W0
        e1 = float(-np.vdot(linear.V, moved))
        e2 = float(np.linalg.norm(linear.V) * np.linalg.norm(moved))
        estimate = influence_matrix(with_reference(engine.host(linear.S)), P0, labels.Y, labels.weight)
        lower, upper = theorem1_bounds(estimate, labels.Y, labels.weight, norms, e1, e2, self.delta_terms)
        first = smallest(np.where(context.eligible, estimate.min(axis=1), np.inf), batch_size)
        L = float(upper[first, estimate[first].argmin(axis=1)].max(initial=-np.inf))
        L += context.ties.tolerance * abs(L)  # what is tied with the last one may be chosen
        inside = context.eligible & (lower.min(axis=1) < L)
        inside[first] = True
        rows = np.flatnonzero(inside)
        best, label = engine.scores_of(rows, context.point.logits, linear.S, labels)
        scale = abs(float(best.min(initial=0.0)))
        top = smallest(best, batch_size, context.ties, scale=scale, rows=rows)
        left = np.where(context.eligible & ~inside, lower.min(axis=1), np.inf)
        slack = float(left.min(initial=np.inf)) - float(best[top[-1]]) if len(top) else float("inf")
        return Batch(rows[top], label[top], best[top], SelectionDiagnostics(candidates=len(rows), slack=slack))
