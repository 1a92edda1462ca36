"""Common parts of the influence-based selectors: V = H⁻¹ g_val, solved once for each selection, and the worth of a sample.

From the influences of a sample's possible answers to the one number it is ranked by:

    best case   min_c I(i, c), assumed answer argmin_c I(i, c)            INFL (paper section 4.1.1)
    expected    Σ_c Q[i, c] I(i, c) − β sd_Q I(i, ·), assumed answers Q[i]  expected influence

Shapes: A, S, Y (n, C), γ (n,); worth, influence (n,); answers (n, C), rows on the simplex; by_answer (n, C).
"""

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.influence import influence_matrix
from labelchef.core.objective import Linear
from labelchef.core.posterior import expected_answers
from labelchef.core.softmax import probabilities
from labelchef.core.solvers import NEEDED, LinearSolution, solve_spd
from labelchef.domain.arrays import Float64s
from labelchef.domain.errors import ConvergenceWarning
from labelchef.domain.records import Batch
from labelchef.selectors.protocol import SelectionContext, measured


@dataclass(frozen=True)
class Worth:
    """`worth` is what samples are ranked by, smallest first; `influence` and `by_answer` are those of `Batch`."""

    worth: Float64s
    influence: Float64s
    answers: Float64s
    """Assumed for each sample: one-hot, or a distribution over the classes."""
    by_answer: Float64s


@dataclass(frozen=True)
class BestCase:
    """Assumes the answer that helps most."""

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """min_c I(i, c) and the class with this influence."""
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        best = scores.min(axis=1)
        return Worth(best, best, np.eye(S.shape[1])[scores.argmin(axis=1)], scores)


@dataclass(frozen=True)
class Expected:
    """Expects answers Q, for a step η towards the trusted samples; `optimism` is β, the weight of the spread."""

    eta: float
    optimism: float

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """Σ_c Q[i, c] I(i, c) minus β times the spread, and Q."""
        Q = expected_answers(A, S, self.eta)
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        mean = np.einsum("ic,ic->i", Q, scores)
        spread = np.sqrt(np.maximum(np.einsum("ic,ic->i", Q, scores**2) - mean**2, 0.0))
        return Worth(np.asarray(mean - self.optimism * spread), np.asarray(mean), Q, scores)


Appraisal: TypeAlias = BestCase | Expected


@dataclass
class InfluenceSelector(ABC):
    """A selector that solves H V = g_val, up to the relative residual `tol`, and ranks samples by S = X V."""

    name: ClassVar[str]
    suggests: ClassVar[bool] = True
    looks_ahead: ClassVar[bool] = True

    tol: float = 1e-6
    max_iterations: int = 500

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best `batch_size` eligible samples."""
        return measured(context, lambda: self._choose(context, batch_size))

    def _choose(self, context: SelectionContext, batch_size: int) -> Batch:
        began, labels, host = time.perf_counter(), context.objective.labels, context.objective.engine.host
        solution = solve_direction(context, tol=self.tol, max_iterations=self.max_iterations)
        seconds, linear = time.perf_counter() - began, solution.linear
        context.carry(linear)
        batch = self.select_along(context, linear, batch_size)
        rows = batch.indices
        A, S = with_reference(host(context.point.logits[rows])), with_reference(host(linear.S[rows]))
        diagnostics = replace(
            batch.diagnostics,
            iterations=solution.iterations,
            residual=solution.residual,
            converged=solution.converged,
            solve_seconds=seconds,
        )
        by_answer = influence_matrix(S, probabilities(A), labels.Y[rows], labels.weight[rows])
        return replace(batch, by_answer=by_answer, diagnostics=diagnostics)

    def appraisal(self, context: SelectionContext, V: Float64s) -> Appraisal:  # noqa: ARG002 (others use both)
        """How the influences of a sample become a worth: INFL takes the best case."""
        return BestCase()

    @abstractmethod
    def select_along(self, context: SelectionContext, linear: Linear, batch_size: int) -> Batch:
        """The batch for a V that is already known; its diagnostics say nothing of the solve for V."""


def solve_direction(context: SelectionContext, *, tol: float, max_iterations: int) -> LinearSolution:
    """Solve H V = g_val, starting from the V that was updated with the model; warn if it does not converge."""
    b, keeper = context.validation.gradient, context.keeper
    solution = solve_spd(context.objective, context.point, b, keeper, tol=tol, max_iterations=max_iterations)
    keeper.waste += max(0, solution.iterations - NEEDED)
    if not solution.converged:
        warnings.warn(
            f"H V = g_val stopped at a relative residual of {solution.residual:.1e} (asked: {tol:.1e}) "
            f"after {solution.iterations} iterations; the ranking is approximate. Raise l2 or max_iterations.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return solution
