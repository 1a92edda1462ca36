"""The protocol of model constructors, and what they return."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from labelchef.base.arrays import Float64s
from labelchef.base.records import ConstructionDiagnostics, LabelChange
from labelchef.chef.constructors.schedule import Trajectory
from labelchef.model.curvature import CurvatureKeeper
from labelchef.model.objective import Objective, Point
from labelchef.model.solvers import Companion

OnStep = Callable[[int, float, float], None]
"""Called with (iteration or epoch, gradient norm, tolerance or NaN) while the first model is made."""

ValidationLosses = Callable[[Float64s], Float64s]
"""Stacked parameters (n, D, C) → their losses on validation, (n,)."""


@dataclass(frozen=True)
class Construction:
    """A model (a point of the objective) and how it was computed."""

    point: Point
    keeper: CurvatureKeeper
    diagnostics: ConstructionDiagnostics = field(default_factory=ConstructionDiagnostics)
    trajectory: Trajectory | None = None
    """The steps of a descent, from which the next round starts; None for constructors that do not descend."""


class Constructor(Protocol):
    """Builds the model, and updates it when labels change."""

    name: str

    def initialise(
        self,
        objective: Objective,
        validation: ValidationLosses,
        on_step: OnStep | None = None,
        start: Float64s | None = None,
    ) -> Construction:
        """The first model, from scratch; `start` are parameters (D, C) near the minimum, for those that can use them."""
        ...

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,
        validation: ValidationLosses,
        companion: Companion | None = None,
    ) -> Construction:
        """The model after `change`, which is already in the objective's labels.

        Any change of labels and weights is allowed, also one that takes a label back. A constructor that sweeps may solve
        the companion's system as well; its products are then in `point.linear`.
        """
        ...
