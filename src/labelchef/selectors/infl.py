"""INFL, full (paper section 4.1.1): every sample and every class, scored from one product X V.

V = H⁻¹ g_val          preconditioned conjugate gradients, started from what rode along with the model
S = X V                grows along with V, no sweep of its own
score_i = min_c I(i, c), suggestion argmin_c S[i, c], most negative first; equal scores by index
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.core.influence import smallest
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import Batch
from labelchef.engines import Engine, RowArray
from labelchef.selectors.direction import Direction, InfluenceSelector
from labelchef.selectors.protocol import SelectionContext


@dataclass
class InflSelector(InfluenceSelector):
    """INFL, every sample scored."""

    name: ClassVar[str] = "infl"

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """Score everything, return the smallest."""
        return score_everything(context, direction, batch_size, began)


def score_everything(context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
    """The exact scores of all eligible samples from the products at hand."""
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
