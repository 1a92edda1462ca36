"""What every model constructor is given and returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from labelchef.constructors.trajectory import Trajectory
from labelchef.core.curvature import CurvatureKeeper
from labelchef.core.objective import Objective, Point
from labelchef.core.solvers import Companion
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import ConstructionDiagnostics, LabelChange

OnStep = Callable[[int, float, float], None]
"""Told (iteration or epoch, gradient norm, tolerance; NaN where there is none) as the first model is made."""

ValidationLosses = Callable[[Float64s], Float64s]
"""Stacked parameters (n, D, C) → their losses on validation, (n,)."""


@dataclass(frozen=True)
class Construction:
    """A model (the point it sits at) and how it was reached."""

    point: Point
    keeper: CurvatureKeeper
    diagnostics: ConstructionDiagnostics = field(default_factory=ConstructionDiagnostics)
    trajectory: Trajectory | None = None
    """The steps of a descent, from which the next round starts; None for constructors that do not descend."""


class Constructor(Protocol):
    """Builds the model, and follows it when labels change."""

    name: str

    def initialise(
        self, objective: Objective, validation: ValidationLosses, on_step: OnStep | None = None
    ) -> Construction:
        """The first model, from scratch."""
        ...

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,
        validation: ValidationLosses,
        companion: Companion | None = None,
    ) -> Construction:
        """The model after `change`, which the objective's labels already show. Any change is allowed.

        Labels and weights may go either way: to take a label back is a change like any other. A constructor that sweeps
        may take the companion along; its products then lie in `point.linear`.
        """
        ...
