"""Expected influence: what asking is worth when a person answers (method note, section 8).

    E(i) = Σ_c Q[i, c] I(i, c)            Q of `core.posterior`, I of `core.influence`; most negative first
    suggestion  argmax_c Q[i, c]

INFL ranks by the answer that would help most, and the person may answer otherwise. Here every answer counts by how
probable it is, and the suggestion is the answer to be expected.

An expectation over c is no smaller than the minimum over c, which is no smaller than minus the spread of S[i]. So the rows
within reach by their S and label alone, which the engine lists without a pass over X, contain all that can be among the
first b; Q and E are computed for those only.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.influence import smallest
from labelchef.core.posterior import step_towards_trusted
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import Batch
from labelchef.selectors.appraisal import Expected
from labelchef.selectors.direction import Direction, InfluenceSelector
from labelchef.selectors.protocol import SelectionContext

_TRIES = 16
_CHUNK = 1 << 16


@dataclass
class ExpectedInflSelector(InfluenceSelector):
    """Influence in expectation over what people will say."""

    name: ClassVar[str] = "expected_infl"
    _last: float | None = field(default=None, init=False, repr=False)

    def appraisal(self, context: SelectionContext, V: Float64s) -> Expected:
        """With the step that V allows."""
        N = context.objective.engine.n_rows
        return Expected(step_towards_trusted(context.trusted.X, context.validation, V, N))

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """The batch for a V that is already known."""
        linear, engine = direction.solution.linear, context.objective.engine
        appraisal = self.appraisal(context, linear.V)
        reach, everyone = -0.95 * self._last if self._last is not None else 0.0, np.flatnonzero(context.eligible)
        rows, fell_back = everyone, self._last is not None
        for _ in range(_TRIES if reach > 0.0 else 0):
            listed = engine.within_reach(linear.S, context.objective.labels, context.eligible, reach)
            if listed is None:
                break
            worth, _ = _appraised(context, appraisal, linear.S, listed)
            top = smallest(worth, batch_size)
            worst = float(worth[top[-1]]) if len(top) == batch_size else -0.5 * reach
            if len(top) == batch_size and worst <= -reach:
                rows, fell_back = listed, False
                break
            reach = -worst  # the b-th best of those listed: nothing out of its reach can be among the first b
            if reach <= 0.0:
                break
        worth, suggested = _appraised(context, appraisal, linear.S, rows)
        top = smallest(worth, batch_size)
        self._last = float(worth[top[-1]]) if len(top) == batch_size else None
        slack = float("inf") if rows is everyone or not len(top) else -reach - float(worth[top[-1]])
        diagnostics = replace(direction.diagnostics(len(rows), began, slack), fell_back=fell_back)
        return Batch(rows[top], suggested[top], worth[top], diagnostics)


def _appraised(context: SelectionContext, appraisal: Expected, S: Float64s, rows: Ints) -> tuple[Float64s, Ints]:
    """Worth and most probable answer of some rows, a chunk at a time."""
    labels, logits = context.objective.labels, context.point.logits
    worth, suggested = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        at = rows[part]
        worth[part], answers = appraisal.of(
            with_reference(logits[at]), with_reference(S[at]), labels.Y[at], labels.weight[at]
        )
        suggested[part] = answers.argmax(axis=1)
    return worth, suggested
