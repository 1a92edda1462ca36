"""Expected influence: the influence of asking, in expectation over the answers (docs/method.md).

    E(i) = Σ_c Q[i, c] I(i, c)            Q of `core.posterior`, I of `core.influence`
    ranked by E(i) − β sd_Q I(i, ·)       most negative first; β = `optimism`
    suggestion  argmax_c Q[i, c]

INFL ranks by the answer that would help most, but the person may answer otherwise. Here every answer counts by its
probability, and the suggestion is the most probable answer. The spread of the influences over the answers measures what can
be learnt by asking: β = 0 is the plain expectation, a large β comes near to INFL's best case.

Everything is computed from A = X W and S = X V, which are known once V is: one pass over those small arrays, none over X.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from labelchef.core.posterior import step_towards_trusted
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import Batch
from labelchef.selectors.appraisal import Expected
from labelchef.selectors.direction import Direction, InfluenceSelector
from labelchef.selectors.infl import at_rows, lowest_first
from labelchef.selectors.protocol import SelectionContext


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

    def select_along(self, context: SelectionContext, direction: Direction, batch_size: int, began: float) -> Batch:
        """The batch for a V that is already known."""
        objective, linear = context.objective, direction.solution.linear
        eta = self.appraisal(context, linear.V).eta
        worth, influence, label = objective.engine.expected_scores(
            context.point.logits, linear.S, objective.labels, context.eligible, eta, self.optimism
        )
        rows = lowest_first(objective.engine, worth, batch_size)
        diagnostics = direction.diagnostics(int(np.count_nonzero(context.eligible)), began)
        return Batch(rows, *at_rows(objective.engine, rows, label, influence), diagnostics)
