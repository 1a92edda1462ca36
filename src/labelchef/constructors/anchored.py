"""Newton without sweeps where they can be proven to be needless (`core/anchors.py`): for two classes and very many samples.

A round changes b of N labels, and moves the model by about b/N. The last sweep bounds where the optimum is then. If the bound is
within the tolerance, the model is the one that the factor and the changed rows give, and X is not read, but for these rows.
Otherwise there is a sweep, as of constructor 'newton', from a better start. The factor must be exact: that takes one pass over X
for its Gram matrix and one for the leverages of the rows, both once.
"""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from labelchef.constructors.newton import NewtonConstructor
from labelchef.constructors.protocol import Construction, OnStep, ValidationLosses
from labelchef.core.anchors import MOST_ROWS, AnchoredRows, Anchoring, Metric, anchored, parameters
from labelchef.core.objective import Objective, Point
from labelchef.core.solvers import Companion
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import ConstructionDiagnostics, LabelChange


@dataclass
class AnchoredConstructor:
    """The optimum to a proven tolerance, like `NewtonConstructor`, without a sweep where that is proven too."""

    tol: float = 1e-5
    proven: bool = True
    """Of the updates that sweep: whether their tolerance is proven, or estimated."""
    share: float = 0.01
    """The largest regret of a batch that is chosen without a sweep, relative to the score of its last sample."""
    name: str = field(default="anchored", init=False)

    @property
    def _newton(self) -> NewtonConstructor:
        return NewtonConstructor(tol=self.tol, proven=self.proven)

    def initialise(
        self,
        objective: Objective,
        validation: ValidationLosses,
        on_step: OnStep | None = None,
        start: Float64s | None = None,
    ) -> Construction:
        """The first model, as of `NewtonConstructor`, and the leverages of its rows."""
        made = self._newton.initialise(objective, validation, on_step, start)
        if start is not None:  # the curvature was frozen at the start, not at the optimum
            made.keeper.refresh(objective, made.point.logits)
        return self._anchored(objective, made)

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,
        validation: ValidationLosses,
        companion: Companion | None = None,
    ) -> Construction:
        """The model after the change: without a sweep if it is proven to be near enough to the optimum."""
        began, before, state = time.perf_counter(), objective.engine.spent(), last.anchoring
        if state is None or change.everywhere:
            return self._newton.construct(objective, last, change, validation, companion)
        last.keeper.note(objective, last.point.logits, change)
        anchor = state.anchor.with_change(objective, change.indices, change.Y_old[:, 1], change.weight_old)
        found = anchor.model(objective)
        W, distance = parameters(found.u), found.distance(anchor.metric) / np.sqrt(2.0)
        if len(anchor.changed.indices) <= MOST_ROWS and distance <= self.tol * (1.0 + float(np.linalg.norm(W))):
            logits = AnchoredRows(objective.engine, found.u)
            point = Point(W, logits, float("nan"), np.full_like(W, np.nan))
            bound = found.gradient(anchor.metric) * np.sqrt(2.0)
            diagnostics = ConstructionDiagnostics(
                sweeps=objective.engine.spent().since(before).sweeps,
                gradient_norm=bound,
                distance=distance,
                tolerance=bound,
                seconds=time.perf_counter() - began,
            )
            return Construction(point, last.keeper, diagnostics, anchoring=replace(state, anchor=anchor, found=found))
        start = objective.at(W, V=None if companion is None else companion.corrected(W, last.keeper))
        made = self._newton.follow(objective, start, last.keeper, companion, began, before)
        if last.keeper.factor is state.factor and len(anchor.changed.indices) <= MOST_ROWS:
            there = replace(state, anchor=anchor.at(objective, made.point), found=None)
            return replace(made, anchoring=there)
        last.keeper.refresh(objective, made.point.logits)
        return self._anchored(objective, made)

    def _anchored(self, objective: Objective, made: Construction) -> Construction:
        """The construction as an anchor, its factor frozen at its logits; as it is where the factor cannot be exact."""
        factor = made.keeper.factor
        if not factor.exact or not isinstance(made.point.logits, np.ndarray):
            return made
        metric = Metric.of(objective, factor, np.asarray(made.point.logits))
        return replace(made, anchoring=Anchoring(anchored(metric, made.point), None, factor, self.share))
