"""Common parts of the influence-based selectors: V = H⁻¹ g_val, solved once for each selection."""

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.influence import influence_matrix
from labelchef.core.objective import Linear
from labelchef.core.softmax import probabilities
from labelchef.core.solvers import NEEDED, LinearSolution, solve_spd
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.errors import ConvergenceWarning
from labelchef.domain.records import Batch, SelectionDiagnostics
from labelchef.selectors.appraisal import Appraisal, BestCase
from labelchef.selectors.protocol import SelectionContext


@dataclass(frozen=True)
class Direction:
    """The solution of H V = g_val, with its cost in sweeps and seconds."""

    solution: LinearSolution
    sweeps: float
    seconds: float

    def diagnostics(self, candidates: int, began: float, slack: float = float("inf")) -> SelectionDiagnostics:
        """Diagnostics of a selection along this V that began at `began` and ends now."""
        return SelectionDiagnostics(
            iterations=self.solution.iterations,
            residual=self.solution.residual,
            converged=self.solution.converged,
            candidates=candidates,
            sweeps=self.sweeps,
            slack=slack,
            seconds=time.perf_counter() - began,
            solve_seconds=self.seconds,
        )

    def products(self, context: SelectionContext) -> Float64s:
        """S = X V of every class, (N, C), on the host."""
        return np.asarray(with_reference(context.objective.engine.host(self.solution.linear.S)))


@dataclass
class InfluenceSelector(ABC):
    """A selector that solves H V = g_val, up to the relative residual `tol`, and ranks samples by S = X V."""

    name: ClassVar[str]
    suggests: ClassVar[bool] = True
    looks_ahead: ClassVar[bool] = True
    needs: ClassVar[str] = "a validation set"
    """What it needs of the data, for the documentation."""

    tol: float = 1e-6
    max_iterations: int = 500

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best `batch_size` eligible samples."""
        began = time.perf_counter()
        direction = solve_direction(context, tol=self.tol, max_iterations=self.max_iterations)
        context.carry(direction.solution.linear)
        batch = self.select_along(context, direction, batch_size, began)
        return replace(batch, by_answer=by_answer(context, direction.solution.linear, batch.indices))

    def appraisal(self, context: SelectionContext, V: Float64s) -> Appraisal:  # noqa: ARG002 (others use both)
        """How the influences of a sample become a worth: INFL takes the best case."""
        return BestCase()

    @abstractmethod
    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """The batch for a V that is already known."""


def by_answer(context: SelectionContext, linear: Linear, rows: Ints) -> Float64s:
    """I(i, c) of some rows and every class: formula (A) of `core.influence`."""
    host, labels = context.objective.engine.host, context.objective.labels
    A, S = with_reference(host(context.point.logits[rows])), with_reference(host(linear.S[rows]))
    return influence_matrix(S, probabilities(A), labels.Y[rows], labels.weight[rows])


def solve_direction(context: SelectionContext, *, tol: float, max_iterations: int) -> Direction:
    """Solve H V = g_val, starting from the V that was updated with the model; warn if it does not converge."""
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
