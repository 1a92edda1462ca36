"""What every selector is given and returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from labelchef.core.curvature import CurvatureKeeper
from labelchef.core.objective import Linear, Objective, Point
from labelchef.domain.arrays import Bools, Float64s
from labelchef.domain.records import Batch


@dataclass(frozen=True)
class SelectionContext:
    """The round a selector looks at: training objective and its optimum, validation, who may be asked."""

    objective: Objective
    point: Point
    validate: Callable[[Float64s], Point]
    """Mean validation cross-entropy at any W; the last answer is remembered."""
    eligible: Bools
    keeper: CurvatureKeeper
    rng: np.random.Generator

    @property
    def validation(self) -> Point:
        """Validation at the model as it stands: its gradient is g_val."""
        return self.validate(self.point.W)


class Selector(Protocol):
    """Chooses the samples to ask next."""

    name: str

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best `batch_size` eligible samples, fewer if fewer are left."""
        ...

    @property
    def carried(self) -> Linear | None:
        """The solution of H V = g_val of the last round, for the constructor to take along to the next."""
        ...
