"""What every model constructor is given and returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from labelchef.core.curvature import CurvatureKeeper
from labelchef.core.objective import Objective, Point
from labelchef.core.solvers import Companion
from labelchef.domain.records import ConstructionDiagnostics, LabelChange


@dataclass(frozen=True)
class Construction:
    """A model (the point it sits at) and how it was reached."""

    point: Point
    keeper: CurvatureKeeper
    diagnostics: ConstructionDiagnostics = field(default_factory=ConstructionDiagnostics)


class Constructor(Protocol):
    """Builds the model, and follows it when labels change."""

    name: str

    def initialise(
        self, objective: Objective, on_step: Callable[[int, float, float], None] | None = None
    ) -> Construction:
        """The first model, from scratch."""
        ...

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,
        companion: Companion | None = None,
    ) -> Construction:
        """The model after `change`, which the objective's labels already show. Any change is allowed.

        A constructor that sweeps may take the companion along; its products then lie in `point.linear`.
        """
        ...
