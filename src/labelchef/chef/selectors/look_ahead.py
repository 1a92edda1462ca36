"""Batches in which each pick accounts for those before it (docs/method.md).

INFL scores samples one by one, and the best of them are often near-copies of each other. Look-ahead takes the best one,
moves the model by the step that cleaning it would cause, and scores again before it takes the next:

    ΔG = (1/N) x_i ⊗ [(p_i − a_i) − γ (p_i − y_i)]        the gradient of the cleaned sample, known at once
    W ← W − M⁻¹ ΔG                                         one solve with the frozen Hessian M
    V ← V + M⁻¹ (g_val(W) − g_val(W_before))               another; H itself is left as it is
    A ← A + X ΔW,  S ← S + X ΔV                            for the rows of a pool only

The pool holds the best samples by the plain selection: `pool`·b or, for b > 25, b²/5. The steps make no pass over X. M and H
are not updated by them, which is accurate enough for about twenty labels; so after every `renew` picks the model is brought to
its true optimum under the labels assumed so far, V is solved there (a few sweeps), and the steps go on. `batch.influence[j]`
and `batch.by_answer[j]` are what sample j is predicted to add after those before it. The answer a_i that is assumed for a pick
comes from the appraisal: the class that would help most for INFL, the distribution Q[i] for the expected influence.
"""

from dataclasses import dataclass, replace

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.records import Batch, LabelChange
from labelchef.chef.selectors.infl import InfluenceSelector
from labelchef.chef.selectors.protocol import SelectionContext, measured
from labelchef.model.contrasts import contrast, with_reference
from labelchef.model.engines import RowArray, RowLabels
from labelchef.model.objective import Linear, Objective, Point
from labelchef.model.softmax import probabilities
from labelchef.model.solvers import Companion, gradient_tolerance, minimise, solve_spd

LARGEST_BATCH = 100
"""Batches larger than this, or than half of the eligible samples, are plain rankings without look-ahead."""

LARGEST_POOL = 2000

_RENEW_TOL = 1e-4
_RENEW_RESIDUAL = 1e-3
_RENEW_SWEEPS = 100
_AT_OPTIMUM = 1e-3  # a model this near to its optimum, relative to 1 + ‖W‖, counts as optimal


@dataclass
class _Ahead:
    """The model after the picks so far: W and g_val as arrays of the engine, V, and A, S of the pool's rows."""

    W: RowArray
    g: RowArray
    V: Float64s
    HV: Float64s
    A: Float64s
    S: Float64s


@dataclass
class LookAheadSelector:
    """An influence-based selector, with look-ahead within its batches."""

    base: InfluenceSelector
    pool: int = 5
    renew: int = 20

    def __post_init__(self) -> None:
        self.name, self.suggests = f"{self.base.name}+look_ahead", self.base.suggests

    @measured
    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best, then the best after it, and so on."""
        if batch_size == 1 or batch_size > LARGEST_BATCH or 2 * batch_size > np.count_nonzero(context.eligible):
            return self.base.select(context, batch_size)
        solved: list[Linear] = []
        size = min(batch_size * max(self.pool, batch_size // 5), LARGEST_POOL)  # picks of a large batch overlap more
        pool = self.base.select(replace(context, carry=solved.append), size)
        context.carry(solved[-1])
        context = replace(context, keeper=replace(context.keeper))  # a copy: it learns from assumed labels
        batch = self._pick(context, solved[-1], pool.indices, min(batch_size, len(pool)))
        candidates = max(pool.diagnostics.candidates, len(pool))
        return replace(batch, diagnostics=replace(pool.diagnostics, candidates=candidates))

    def _pick(self, context: SelectionContext, linear: Linear, rows: Ints, count: int) -> Batch:
        labels, N = context.objective.labels, context.objective.engine.n_rows
        X, Y, gamma = context.objective.engine.rows(rows), labels.Y[rows], labels.weight[rows]
        appraisal = self.base.appraisal(context, linear.V)
        ahead = _start(context.objective, context.point, linear, context.validation.gradient, rows)
        picks, influence = np.empty(count, dtype=np.int64), np.empty(count)
        answers, by_answer = np.empty((count, Y.shape[1])), np.empty((count, Y.shape[1]))
        left = np.ones(len(rows), dtype=bool)
        for n in range(count):
            of = appraisal.of(ahead.A, ahead.S, Y, gamma)
            i = context.ties.best(of.worth, rows, left)
            picks[n], answers[n], influence[n], by_answer[n] = i, of.answers[i], of.influence[i], of.by_answer[i]
            left[i] = False
            if n + 1 == count:
                break
            if (n + 1) % self.renew == 0:
                ahead = _renewed(context, ahead, rows, picks[: n + 1], answers[: n + 1])
                continue
            p = probabilities(ahead.A[i : i + 1])[0]
            bend = (p - of.answers[i]) - gamma[i] * (p - Y[i])
            _advance(context, ahead, X, np.outer(X[i], bend) / N)
        return Batch(rows[picks], answers.argmax(axis=1), influence, by_answer=by_answer)


def _start(objective: Objective, point: Point, linear: Linear, g: Float64s, rows: Ints) -> _Ahead:
    engine = objective.engine
    A, S = with_reference(engine.host(point.logits[rows])), with_reference(engine.host(linear.S[rows]))
    return _Ahead(engine.place(point.W), engine.place(g), linear.V, linear.HV, A, S)


def _advance(context: SelectionContext, ahead: _Ahead, X: Float64s, change: Float64s) -> None:
    """Move W by the step that a change of the gradient causes, and update V, A and S."""
    engine, keeper, before = context.objective.engine, context.keeper, ahead.g
    step = -keeper.solve_there(engine.place(change))
    ahead.W = ahead.W + step
    ahead.g = context.validation_gradient(ahead.W)
    turn = keeper.solve_there(ahead.g - before)
    step, turn = engine.host(engine.xp.stack([step, turn]))
    ahead.V = ahead.V + turn
    ahead.A[:, 1:] += X @ contrast(step).T
    ahead.S[:, 1:] += X @ contrast(turn).T


def _renewed(context: SelectionContext, ahead: _Ahead, rows: Ints, picks: Ints, answers: Float64s) -> _Ahead:
    """The true optimum, and V there, under the labels assumed for the picks so far.

    A model that is not at its own optimum (a descent that was stopped early) would not reach this one either: then W stays
    where the steps have moved it, and only V is solved again.
    """
    old, items = context.objective.labels, rows[picks]
    assumed = RowLabels(old.Y.copy(), old.weight.copy())
    assumed.Y[items], assumed.weight[items] = answers, 1.0
    change = LabelChange(items, old.Y[items], old.weight[items], assumed.Y[items], assumed.weight[items])
    objective = replace(context.objective, labels=assumed)
    if context.point.gradient_norm > gradient_tolerance(context.objective, context.point.W, _AT_OPTIMUM):
        point = objective.at(objective.engine.host(ahead.W), V=ahead.V)
    else:
        companion = Companion(ahead.V, ahead.HV, lambda W: context.validate(W).gradient)
        start, keeper = objective.relabelled(context.point, change), context.keeper
        found = minimise(objective, start, keeper, tol=_RENEW_TOL, max_sweeps=_RENEW_SWEEPS, companion=companion)
        point = found.point
    g = context.validate(point.W).gradient
    solved = solve_spd(objective, point, g, context.keeper, tol=_RENEW_RESIDUAL, max_iterations=_RENEW_SWEEPS)
    return _start(objective, point, solved.linear, g, rows)
