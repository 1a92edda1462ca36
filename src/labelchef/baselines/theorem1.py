"""Increm-INFL as in the paper (Theorem 1, Algorithm 1), to reproduce its results and to compare with.

Provenance, stored in the first round: ‖H(w0, z)‖ of every sample, in closed form for softmax, and the gradients at w0, which are
x ⊗ (p0 − y), so that p0 is enough. In a round, I_0 needs the products X·v of the present v with every sample, as the paper's
cached gradients do: a pass over all samples, which is part of the solve here. Then Algorithm 1: take the b smallest I_0, let L
be the largest upper bound among them; candidates are all samples whose lower bound is below L, and are evaluated exactly.

The theorem's Hessians are integrals along the path from w0; like the paper, this takes them at w0, so unlike `infl`
it gives no guarantee. The first round evaluates all samples, as the authors' code does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.influence import influence_matrix, smallest
from labelchef.core.softmax import probabilities
from labelchef.core.theorem1 import Theorem1, softmax_hessian_norms
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import Batch
from labelchef.selectors.direction import Direction, InfluenceSelector
from labelchef.selectors.infl import score_everything
from labelchef.selectors.protocol import SelectionContext


@dataclass(frozen=True)
class Provenance:
    """w0, P at w0 (N, C), and the theorem with the norms ‖H(w0, z)‖."""

    W: Float64s
    P: Float64s
    theorem: Theorem1


@dataclass
class Theorem1Selector(InfluenceSelector):
    """INFL with the paper's pruning. `delta_terms=False` keeps its μ-term only, as the authors' code does."""

    delta_terms: bool = True
    hessian_norms: Callable[[SelectionContext], Float64s] | None = None
    """‖H(w0, z)‖ of every sample, for models whose norms have no closed form: see `core.theorem1.power_norm`."""
    name: ClassVar[str] = "increm_infl_theorem1"
    _provenance: Provenance | None = field(default=None, init=False, repr=False)

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """The batch for a V that is already known."""
        if self._provenance is None:
            self._provenance = self._initialise(context)
            batch = score_everything(context, direction, batch_size, began)
            return Batch(batch.indices, batch.suggested, batch.influence, replace(batch.diagnostics, fell_back=True))
        return self._prune(context, direction, self._provenance, batch_size, began)

    def _initialise(self, context: SelectionContext) -> Provenance:
        engine = context.objective.engine
        P = probabilities(with_reference(engine.host(context.point.logits)))
        if self.hessian_norms is not None:
            norms = self.hessian_norms(context)
        else:
            squares = engine.row_squares()
            norms = softmax_hessian_norms(P, engine.host(squares))
        return Provenance(context.point.W, P, Theorem1(norms, self.delta_terms))

    def _prune(
        self, context: SelectionContext, direction: Direction, provenance: Provenance, batch_size: int, began: float
    ) -> Batch:
        objective, linear = context.objective, direction.solution.linear
        labels, S = objective.labels, direction.products(context)
        moved = context.point.W - provenance.W
        e1 = float(-np.vdot(linear.V, moved))
        e2 = float(np.linalg.norm(linear.V) * np.linalg.norm(moved))
        estimate = influence_matrix(S, provenance.P, labels.Y, labels.weight)
        lower, upper = provenance.theorem.bounds(estimate, labels.Y, labels.weight, e1, e2)
        rank = np.where(context.eligible, estimate.min(axis=1), np.inf)
        first = smallest(rank, batch_size)
        L = float(upper[first, estimate[first].argmin(axis=1)].max(initial=-np.inf))
        inside = context.eligible & (lower.min(axis=1) < L)
        inside[first] = True
        rows = np.flatnonzero(inside)
        best, label = objective.engine.scores_of(rows, context.point.logits, linear.S, labels)
        top = smallest(best, batch_size)
        left = np.where(context.eligible & ~inside, lower.min(axis=1), np.inf)
        slack = float(left.min(initial=np.inf)) - float(best[top[-1]]) if len(top) else float("inf")
        diagnostics = direction.diagnostics(len(rows), began, slack)
        return Batch(rows[top], label[top], best[top], diagnostics)
