"""INFL, full (paper section 4.1.1): every sample and every class, scored from one product X V.

V = H⁻¹ g_val          preconditioned conjugate gradients, started from what rode along with the model
S = X V                grows along with V, no sweep of its own
score_i = min_c I(i, c), suggestion argmin_c S[i, c], most negative first; equal scores by index
"""

import time
from dataclasses import dataclass, field

from labelchef.core.influence import smallest
from labelchef.core.objective import Linear
from labelchef.domain.records import Batch, SelectionDiagnostics
from labelchef.selectors.direction import Direction, solve_direction
from labelchef.selectors.protocol import SelectionContext


@dataclass
class InflSelector:
    """Full INFL. `tol` is the relative residual of H V = g_val."""

    tol: float = 1e-6
    max_iterations: int = 500
    name: str = field(default="infl", init=False)
    _carried: Linear | None = field(default=None, init=False, repr=False)

    @property
    def carried(self) -> Linear | None:
        """The last V: next round's starting point."""
        return self._carried

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """Score everything, return the smallest."""
        began = time.perf_counter()
        direction = solve_direction(context, tol=self.tol, max_iterations=self.max_iterations)
        self._carried = direction.solution.linear
        return score_everything(context, direction, batch_size, began)


def score_everything(context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
    """The exact scores of all eligible samples from the products at hand."""
    objective = context.objective
    S = direction.solution.linear.S
    best, label = objective.engine.scores(context.point.logits, S, objective.labels, context.eligible)
    indices = smallest(best, batch_size)
    diagnostics = SelectionDiagnostics(
        iterations=direction.solution.iterations,
        residual=direction.solution.residual,
        converged=direction.solution.converged,
        candidates=int(context.eligible.sum()),
        sweeps=direction.sweeps,
        seconds=time.perf_counter() - began,
        solve_seconds=direction.seconds,
    )
    return Batch(indices, label[indices], best[indices], diagnostics)
