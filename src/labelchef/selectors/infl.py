"""INFL (paper section 4.1.1): the samples with the smallest influence, found without scoring all of them.

V = H⁻¹ g_val          preconditioned conjugate gradients, started from the V that was updated along with the model
S = X V                computed during the solve, no sweep of its own
score_i = min_c I(i, c), suggestion argmin_c S[i, c], most negative first; equal scores by index

A score is −Σ_c q_c (S_c − min S), so it is never below minus the spread of S[i], for any label and any model. Rows that
cannot reach the b-th smallest score are skipped by that bound, most others by a second bound that uses the label, and
the rest are scored exactly (`Engine.within_reach`). The result is the batch of a full evaluation, bit by bit. Where the
bounds cannot prune, for example in the first round, every eligible sample is scored, and the diagnostics say so.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from labelchef.core.influence import smallest
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import Batch
from labelchef.engines import Engine, RowArray
from labelchef.selectors.direction import Direction, InfluenceSelector
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

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """The batch for a V that is already known."""
        batch = self._pruned(context, direction, batch_size, began) if self.prune else None
        if batch is None:
            full = score_everything(context, direction, batch_size, began)
            batch = replace(full, diagnostics=replace(full.diagnostics, fell_back=self.prune))
        self._last = float(batch.influence[-1]) if len(batch) == batch_size else None
        return batch

    def _pruned(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch | None:
        """The batch from the rows that the bounds leave, or None where the bounds cannot prune."""
        engine, labels, S = context.objective.engine, context.objective.labels, direction.solution.linear.S
        reach = 0.0 if self._last is None else -_NEAR * self._last
        for _ in range(_TRIES if reach > 0.0 else 0):
            rows = engine.within_reach(S, labels, context.eligible, reach)
            if rows is None:
                return None
            best, label = engine.scores_of(rows, context.point.logits, S, labels)
            top = smallest(best, batch_size)
            worst = float(best[top[-1]]) if len(top) == batch_size else -0.5 * reach
            if len(top) == batch_size and worst <= -reach:
                diagnostics = direction.diagnostics(len(rows), began, slack=-reach - worst)
                return Batch(rows[top], label[top], best[top], diagnostics)
            reach = -worst  # the b-th best score found: a row that cannot reach it is not among the first b
        return None


@dataclass
class IncremInflSelector(InflSelector):
    """`infl` by the name that the paper gives to INFL with pruning. Both names choose the same batches."""

    name: ClassVar[str] = "increm_infl"


def score_everything(context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
    """The batch from the exact scores of all eligible samples."""
    objective, S = context.objective, direction.solution.linear.S
    best, label = objective.engine.scores(context.point.logits, S, objective.labels, context.eligible)
    diagnostics = direction.diagnostics(int(np.count_nonzero(context.eligible)), began)
    rows = lowest_first(objective.engine, best, batch_size)
    return Batch(rows, *at_rows(objective.engine, rows, label, best), diagnostics)


def lowest_first(engine: Engine, scores: RowArray, count: int) -> Ints:
    """The rows of the `count` smallest finite scores, in order."""
    rows = engine.lowest(scores, count)
    return np.asarray(rows[smallest(engine.host(scores[rows]), count)])


def at_rows(engine: Engine, rows: Ints, label: RowArray, influence: RowArray) -> tuple[Ints, Float64s]:
    """Suggested classes and influences of a few rows, on the host."""
    return engine.host(label[rows]).astype(np.int64, copy=False), engine.host(influence[rows])
