"""V = H⁻¹ g_val, which every influence-based selector starts from."""

import time
import warnings
from dataclasses import dataclass

from labelchef.core.solvers import NEEDED, LinearSolution, solve_spd
from labelchef.domain.errors import ConvergenceWarning
from labelchef.selectors.protocol import SelectionContext


@dataclass(frozen=True)
class Direction:
    """The solution with what it cost: sweeps and seconds."""

    solution: LinearSolution
    sweeps: float
    seconds: float


def solve_direction(context: SelectionContext, *, tol: float, max_iterations: int) -> Direction:
    """Solve H V = g_val from what rode along with the model; warn if it does not converge."""
    began, sweeps = time.perf_counter(), context.objective.engine.sweeps
    solution = solve_spd(
        context.objective,
        context.point,
        context.validation.gradient,
        context.keeper,
        tol=tol,
        max_iterations=max_iterations,
    )
    context.keeper.wasted(max(0, solution.iterations - NEEDED))
    if not solution.converged:
        warnings.warn(
            f"H V = g_val stopped at a relative residual of {solution.residual:.1e} (asked: {tol:.1e}) "
            f"after {solution.iterations} iterations; the ranking is approximate. Raise l2 or max_iterations.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Direction(solution, context.objective.engine.sweeps - sweeps, time.perf_counter() - began)
