"""INFL and expected influence.

INFL (paper section 4.1.1): the samples with the smallest influence, found without scoring all of them.

V = H⁻¹ g_val          preconditioned conjugate gradients, started from the V that was updated along with the model
S = X V                computed during the solve, no sweep of its own
score_i = min_c I(i, c), suggestion argmin_c S[i, c], most negative first; equal scores by index

A score is −Σ_c q_c (S_c − min S), so it is never below minus the spread of S[i], for any label and any model. Rows that
cannot reach the b-th smallest score are skipped by that bound, most others by a second bound that uses the label, and
the rest are scored exactly (`Engine.within_reach`). The result is the batch of a full evaluation, bit by bit. Where the
bounds cannot prune, for example in the first round, every eligible sample is scored, and the diagnostics say so.

Expected influence: the influence of asking, in expectation over the answers (docs/method.md).

    E(i) = Σ_c Q[i, c] I(i, c)            Q of `core.posterior`, I of `core.influence`
    ranked by E(i) − β sd_Q I(i, ·)       most negative first; β = `optimism`
    suggestion  argmax_c Q[i, c]

INFL ranks by the answer that would help most, but the person may answer otherwise. Here every answer counts by its
probability, and the suggestion is the most probable answer. The spread of the influences over the answers measures what can
be learnt by asking: β = 0 is the plain expectation, a large β comes near to INFL's best case.

Everything is computed from A = X W and S = X V, which are known once V is: one pass over those small arrays, none over X.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from labelchef.core.influence import smallest
from labelchef.core.objective import Linear
from labelchef.core.posterior import step_towards_trusted
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import Batch, SelectionDiagnostics
from labelchef.engines import RowArray
from labelchef.selectors.direction import Expected, InfluenceSelector
from labelchef.selectors.protocol import SelectionContext

_TRIES = 16  # of the threshold, before everything is scored
_NEAR = 0.95  # of the last round's worst selected score: the first threshold of this round


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
            top = smallest(best, batch_size)
            worst = float(best[top[-1]]) if len(top) == batch_size else -0.5 * reach
            if len(top) == batch_size and worst <= -reach:
                diagnostics = SelectionDiagnostics(candidates=len(rows), slack=-reach - worst)
                return Batch(rows[top], label[top], best[top], diagnostics)
            reach = -worst  # the b-th best score found: a row that cannot reach it is not among the first b
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
    _last: tuple[Float64s, Expected] | None = field(default=None, init=False, repr=False)

    def appraisal(self, context: SelectionContext, V: Float64s) -> Expected:
        """With the step η that belongs to V; kept, because look-ahead asks again for the same V."""
        if self._last is None or self._last[0] is not V:
            N = context.objective.engine.n_rows
            eta = step_towards_trusted(context.trusted.X, context.validation, V, N)
            self._last = (V, Expected(eta, self.optimism))
        return self._last[1]

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
    engine = context.objective.engine
    rows = engine.lowest(worth, count)
    rows = np.asarray(rows[smallest(engine.host(worth[rows]), count)])
    suggested = engine.host(label[rows]).astype(np.int64, copy=False)
    diagnostics = SelectionDiagnostics(candidates=int(np.count_nonzero(context.eligible)))
    return Batch(rows, suggested, engine.host(influence[rows]), diagnostics)
