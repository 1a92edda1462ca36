"""INFL, full (paper section 4.1.1): every sample and every class, scored from one product X V.

V = H⁻¹ g_val          preconditioned conjugate gradients, started from the last round's V
S = X V                grows along with V, no sweep of its own
score_i = min_c I(i, c), suggestion argmin_c S[i, c], most negative first; equal scores by index
"""

import time
import warnings
from dataclasses import dataclass, field

from labelchef.core.influence import smallest
from labelchef.core.objective import Linear
from labelchef.core.solvers import NEEDED, solve_spd
from labelchef.domain.errors import ConvergenceWarning
from labelchef.domain.records import Batch, SelectionDiagnostics
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
        began, objective = time.perf_counter(), context.objective
        sweeps = objective.engine.sweeps
        solution = solve_spd(
            objective,
            context.point,
            context.validation.gradient,
            context.keeper,
            tol=self.tol,
            max_iterations=self.max_iterations,
        )
        context.keeper.wasted(max(0, solution.iterations - NEEDED))
        if not solution.converged:
            warnings.warn(
                f"H V = g_val stopped at a relative residual of {solution.residual:.1e} (asked: {self.tol:.1e}) "
                f"after {solution.iterations} iterations; the ranking is approximate. Raise l2 or max_iterations.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._carried = solution.linear
        best, label = objective.engine.scores(
            context.point.logits, solution.linear.S, objective.labels, context.eligible
        )
        indices = smallest(best, batch_size)
        diagnostics = SelectionDiagnostics(
            iterations=solution.iterations,
            residual=solution.residual,
            converged=solution.converged,
            sweeps=objective.engine.sweeps - sweeps,
            seconds=time.perf_counter() - began,
        )
        return Batch(indices, label[indices], best[indices], diagnostics)
