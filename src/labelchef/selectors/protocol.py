"""What every selector is given and returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.curvature import CurvatureKeeper
from labelchef.core.objective import Linear, Objective, Point
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.records import Batch, RoundRecord
from labelchef.engines import RowArray


@dataclass(frozen=True)
class Examples:
    """Samples whose labels are trusted: X (n, D) with the bias column, class ids y (n,)."""

    X: Float64s
    y: Ints


@dataclass(frozen=True)
class SelectionContext:
    """The round a selector looks at: training objective and its optimum, validation, who may be asked."""

    objective: Objective
    point: Point
    validate: Callable[[Float64s], Point]
    """Mean validation cross-entropy at any W; the last answer is remembered."""
    validation_gradient: Callable[[RowArray], RowArray]
    """Its gradient alone, W and it in the training engine's kind of array."""
    eligible: Bools
    keeper: CurvatureKeeper
    rng: np.random.Generator
    cleaned: Bools
    """Which samples have a clean label; given up ones are neither clean nor eligible."""
    trusted: Examples
    """The validation samples that selection may see."""
    rounds: Sequence[RoundRecord] = field(default=(), repr=False)
    """What was asked, voted and decided so far."""
    weak: Float64s | None = field(default=None, repr=False)
    """The weak labels as they came, (N, C); None before anything is cleaned: then they are the objective's own."""

    @property
    def probabilities(self) -> Float64s:
        """The model's class probabilities of every training sample, (N, C)."""
        return np.asarray(probabilities(with_reference(self.objective.engine.host(self.point.logits))))

    @property
    def validation(self) -> Point:
        """Validation at the model as it stands: its gradient is g_val."""
        return self.validate(self.point.W)


class Selector(Protocol):
    """Chooses the samples to ask next."""

    @property
    def name(self) -> str:
        """How it is called in settings and records."""
        ...

    @property
    def suggests(self) -> bool:
        """Whether its batches carry suggested labels; those of a selector that has none are `UNRESOLVED`."""
        ...

    @property
    def looks_ahead(self) -> bool:
        """Whether look-ahead can be laid over it: it chooses by INFL, along the V it carries."""
        ...

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best `batch_size` eligible samples, fewer if fewer are left."""
        ...

    @property
    def carried(self) -> Linear | None:
        """The solution of H V = g_val of the last round, for the constructor to take along to the next."""
        ...
