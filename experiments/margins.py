"""Peers of `margin` for the experiments: small margins of what is believed, and small margins that are not near-copies.

*Posterior margin*: the largest minus the second largest of what model, sources and people together believe of a sample.

*Diverse margin*: small margins that are not near-copies of each other.

The pool holds the `pool`·b samples of the smallest margin. What a label of sample i teaches the model is, to first order, how far
it moves the logits of others: with the frozen Hessian M and the curvature of the sample h_i = 1 − ‖p_i‖²,

    K_ij = √(h_i h_j) x_iᵀ (G + λ)⁻¹ x_j / N,      G = (1/N) Σ h x xᵀ

is the covariance of their logits under the model's uncertainty. The batch is picked greedily: the sample of the largest variance
given those already picked, which is a Cholesky decomposition of K with pivots. No pass over X.

Shapes: K (m, m) for a pool of m samples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.records import Batch, SelectionDiagnostics
from labelchef.chef.selectors import MarginSelector, Selector
from labelchef.chef.selectors.protocol import SelectionContext, measured
from labelchef.chef.selectors.ranking import Ranking, RankingSelector, believed
from labelchef.model.curvature import FrozenCurvature
from labelchef.model.order import BY_INDEX, Ties, smallest


@dataclass
class DiverseMarginSelector:
    """The samples whose two most probable classes are closest, of a pool of them those that are least alike."""

    pool: int = 5
    name: ClassVar[str] = "diverse_margin"
    suggests: ClassVar[bool] = True

    @measured
    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best eligible samples."""
        ranking, eligible = MarginSelector().rank(context), context.eligible
        diagnostics = SelectionDiagnostics(candidates=int(eligible.sum()))
        rows = smallest(np.where(eligible, ranking.scores, np.inf), self.pool * batch_size, context.ties)
        if len(rows) <= batch_size:
            return believed(context, ranking.batch(rows, diagnostics))
        P = context.probabilities[rows]
        engine = context.objective.engine
        Z = half_inverse(engine.rows(rows), context.keeper.factor) * np.sqrt(1.0 - (P**2).sum(axis=1))[:, None]
        return believed(context, ranking.batch(rows[pivots(Z, rows, batch_size, context.ties)], diagnostics))


def half_inverse(X: Float64s, factor: FrozenCurvature) -> Float64s:
    """Z (m, r) with Z Zᵀ = X (G + λ)⁻¹ Xᵀ, up to what a sketched G leaves out."""
    E = np.asarray(factor.engine.host(factor.E), dtype=np.float64)
    return np.asarray((X @ E) / np.sqrt(factor.g + factor.l2))


def pivots(Z: Float64s, rows: Ints, count: int, ties: Ties = BY_INDEX) -> Ints:
    """Places that a Cholesky decomposition of Z Zᵀ with pivots takes first; once they span all rows, the first of the others.

    `rows` are the samples of the places: tied ones come in their order.

    >>> pivots(np.array([[2.0, 0.0], [1.9, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.arange(4), 3).tolist()
    [0, 2, 1]
    """
    left, basis = (Z**2).sum(axis=1), np.empty((count, Z.shape[1]))
    least = 1e-9 * float(left.max())
    found = np.empty(count, dtype=np.int64)
    for n in range(count):
        there = np.isfinite(left)
        i = found[n] = ties.best(-left, rows, there) if left.max() > least else int(np.flatnonzero(there)[0])
        v = Z[i] - basis[:n].T @ (basis[:n] @ Z[i])
        size = float(np.linalg.norm(v))
        basis[n] = v / size if size**2 > least else 0.0
        left = left - (Z @ basis[n]) ** 2
        left[found[: n + 1]] = -np.inf
    return found


@dataclass
class PosteriorMarginSelector(RankingSelector):
    """The samples of which model, sources and people together are least sure."""

    name: ClassVar[str] = "posterior_margin"
    suggests: ClassVar[bool] = True

    def rank(self, context: SelectionContext) -> Ranking:
        """Largest minus second largest of what is believed of a sample."""
        Q = np.sort(context.posterior_of(np.arange(context.objective.engine.n_rows)), axis=1)
        return Ranking(np.asarray(Q[:, -1] - Q[:, -2]))


MARGINS: dict[str, Callable[[], Selector]] = {
    "diverse_margin": DiverseMarginSelector,
    "posterior_margin": PosteriorMarginSelector,
}
"""Name → factory, for the comparison of selectors."""
