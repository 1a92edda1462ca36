"""The influence-based selectors: INFL, expected influence, and what they share, V = H⁻¹ g_val and the worth of a sample.

INFL (paper section 4.1.1): the samples with the smallest influence, found without scoring all of them.

V = H⁻¹ g_val          preconditioned conjugate gradients, started from the V that was updated along with the model
S = X V                computed during the solve, no sweep of its own
score_i = min_c I(i, c), suggestion argmin_c S[i, c], most negative first; equal scores by index

A score is −Σ_c q_c (S_c − min S), so it is never below minus the spread of S[i], for any label and any model. Rows that
cannot reach the b-th smallest score are skipped by that bound, most others by a second bound that uses the label, and
the rest are scored exactly (`Engine.within_reach`). The result is the batch of a full evaluation, bit by bit. Where the
bounds cannot prune, for example in the first round, every eligible sample is scored, and the diagnostics say so.

Expected influence: the influence of asking, in expectation over the answers (docs/method.md).

    E(i) = Σ_c Q[i, c] I(i, c)            Q of `model.posterior`, I of `model.influence`
    ranked by E(i) − β sd_Q I(i, ·)       most negative first; β = `optimism`
    suggestion  argmax_c Q[i, c]

INFL ranks by the answer that would help most, but the person may answer otherwise. Here every answer counts by its
probability, and the suggestion is the most probable answer. The spread of the influences over the answers measures what can
be learnt by asking: β = 0 is the plain expectation, a large β comes near to INFL's best case.

Everything is computed from A = X W and S = X V, which are known once V is: one pass over those small arrays, none over X.
Shapes: A, S, Y (n, C), γ (n,); worth, influence (n,); answers (n, C), rows on the simplex; by_answer (n, C).
"""

import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.base.errors import ConvergenceWarning
from labelchef.base.records import Batch, SelectionDiagnostics
from labelchef.chef.selectors.protocol import SelectionContext, measured
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import RowArray
from labelchef.model.influence import influence_matrix
from labelchef.model.objective import Linear
from labelchef.model.order import smallest
from labelchef.model.posterior import expected_answers, step_towards_trusted
from labelchef.model.softmax import probabilities
from labelchef.model.solvers import NEEDED, LinearSolution, solve_spd

_TRIES = 16  # of the threshold, before everything is scored
_NEAR = 0.95  # of the last round's worst selected score: the first threshold of this round


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
    """Whether `LookAheadSelector` can use it."""

    tol: float = 1e-6
    max_iterations: int = 500

    @measured
    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best `batch_size` eligible samples."""
        began, labels, host = time.perf_counter(), context.objective.labels, context.objective.engine.host
        solution = solve_direction(context, tol=self.tol, max_iterations=self.max_iterations)
        seconds, linear = time.perf_counter() - began, solution.linear
        context.carry(linear)
        batch = self.select_along(context, linear, batch_size)
        rows = batch.indices
        diagnostics = replace(
            batch.diagnostics,
            iterations=solution.iterations,
            residual=solution.residual,
            converged=solution.converged,
            solve_seconds=seconds,
        )
        A, S = with_reference(host(context.point.logits[rows])), with_reference(host(linear.S[rows]))
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


@dataclass
class InflSelector(InfluenceSelector):
    """The largest decrease of the validation loss that cleaning a sample can bring. `prune=False` scores every sample."""

    prune: bool = True
    name: ClassVar[str] = "infl"
    _last: float | None = field(default=None, init=False, repr=False)
    """The worst selected score of the last round; None after a round that could not fill its batch."""

    def select_along(self, context: SelectionContext, linear: Linear, batch_size: int) -> Batch:
        """The batch for a V that is already known."""
        batch = self._pruned(context, linear, batch_size) if self.prune else None
        if batch is None:
            full = score_everything(context, linear, batch_size)
            batch = replace(full, diagnostics=replace(full.diagnostics, fell_back=self.prune))
        self._last = float(batch.influence[-1]) if len(batch) == batch_size else None
        return batch

    def _pruned(self, context: SelectionContext, linear: Linear, batch_size: int) -> Batch | None:
        """The batch from the rows that the bounds leave, or None where the bounds cannot prune."""
        engine, labels, S = context.objective.engine, context.objective.labels, linear.S
        reach = 0.0 if self._last is None else -_NEAR * self._last
        for _ in range(_TRIES if reach > 0.0 else 0):
            rows = engine.within_reach(S, labels, context.eligible, reach)
            if rows is None:
                return None
            best, label = engine.scores_of(rows, context.point.logits, S, labels)
            scale = abs(float(best.min(initial=0.0)))
            top = smallest(best, batch_size, context.ties, scale=scale, rows=rows)
            last = float(best[top[-1]]) if len(top) == batch_size else -0.5 * reach
            worst = last + context.ties.tolerance * scale  # what is tied with the last one may be chosen
            if len(top) == batch_size and worst <= -reach:
                diagnostics = SelectionDiagnostics(candidates=len(rows), slack=-reach - last)
                return Batch(rows[top], label[top], best[top], diagnostics)
            reach = (
                -worst
            )  # the b-th best score found, or tied with it: a row that cannot reach it is not among the first b
        return None


@dataclass
class IncremInflSelector(InflSelector):
    """`infl` by the name that the paper gives to INFL with pruning. Both names choose the same batches."""

    name: ClassVar[str] = "increm_infl"


@dataclass
class ExpectedInflSelector(InfluenceSelector):
    """Influence in expectation over the answers of people. `optimism` is β, the weight of its spread."""

    optimism: float = 1.0
    name: ClassVar[str] = "expected_infl"

    def appraisal(self, context: SelectionContext, V: Float64s) -> Expected:
        """With the step η that belongs to V."""
        N = context.objective.engine.n_rows
        return Expected(step_towards_trusted(context.trusted.X, context.validation, V, N), self.optimism)

    def select_along(self, context: SelectionContext, linear: Linear, batch_size: int) -> Batch:
        """The batch for a V that is already known."""
        objective, eta = context.objective, self.appraisal(context, linear.V).eta
        worth, influence, label = objective.engine.expected_scores(
            context.point.logits, linear.S, objective.labels, context.eligible, eta, self.optimism
        )
        return lowest_first(context, batch_size, worth, label, influence)


def score_everything(context: SelectionContext, linear: Linear, batch_size: int) -> Batch:
    """The batch from the exact scores of all eligible samples."""
    objective = context.objective
    best, label = objective.engine.scores(context.point.logits, linear.S, objective.labels, context.eligible)
    return lowest_first(context, batch_size, best, label, best)


def lowest_first(context: SelectionContext, count: int, worth: RowArray, label: RowArray, influence: RowArray) -> Batch:
    """The samples of the `count` smallest finite worths, with their suggested classes and influences."""
    ties = context.ties
    found = context.objective.engine.shortlist(worth, count, ties.tolerance, label, influence)
    order = smallest(found.scores, count, ties, scale=found.scale, rows=found.rows)
    labels, influences = found.others
    diagnostics = SelectionDiagnostics(candidates=int(np.count_nonzero(context.eligible)))
    suggested = labels[order].astype(np.int64, copy=False)
    return Batch(np.asarray(found.rows[order]), suggested, influences[order], diagnostics)
