"""What every selector is given and returns."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Protocol, TypeVar

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.campaigns import SUGGESTION
from labelchef.base.records import Batch, RoundRecord
from labelchef.model.contrasts import with_reference
from labelchef.model.curvature import CurvatureKeeper
from labelchef.model.engines import RowArray
from labelchef.model.objective import Linear, Objective, Point
from labelchef.model.order import BY_INDEX, Ties
from labelchef.model.softmax import log_probabilities, probabilities

S = TypeVar("S")

NOT_PEOPLE = (SUGGESTION, "undo")
"""Workers in a record which are not people."""


@dataclass(frozen=True)
class Examples:
    """Samples whose labels are trusted: X (n, D) with the bias column, class ids y (n,)."""

    X: Float64s
    y: Ints


@dataclass(frozen=True)
class SelectionContext:
    """What a selector sees of a round: training objective and model, steering samples, which samples may be asked."""

    objective: Objective
    point: Point
    """The model as it stands, with the logits of the training samples."""
    validation: Point
    """The mean cross-entropy of the steering samples at this model: its gradient is g_val."""
    validate: Callable[[Float64s], Point]
    """The mean cross-entropy of the steering samples at any W."""
    validation_gradient: Callable[[RowArray], RowArray]
    """Its gradient alone; W and the gradient are arrays of the training engine's kind."""
    eligible: Bools
    keeper: CurvatureKeeper
    rng: np.random.Generator
    cleaned: Bools
    """Which samples have a clean label. A sample that was given up is neither clean nor eligible."""
    trusted: Examples
    """The steering samples: the validation samples that selection may see."""
    rounds: Sequence[RoundRecord] = field(default=(), repr=False)
    """What was asked, voted and decided so far."""
    weak: Float64s | None = field(default=None, repr=False)
    """The weak labels as given, (N, C); None means that the labels of the objective are still the weak ones."""
    carry: Callable[[Linear], None] = field(default=lambda _: None, repr=False)
    """Takes the solution of H V = g_val: the session gives it to the constructor, which updates it with the model."""
    believed: Callable[[Ints, Float64s], Float64s] | None = field(default=None, repr=False)
    """From rows and the model's log-probabilities of them to what model, sources and people say together, (m, C) each; None
    without sources."""

    ties: Ties = BY_INDEX
    """In which order samples come whose scores differ by rounding only."""

    def posterior_of(self, rows: Ints) -> Float64s:
        """(m, C): what is believed of some samples; the model's probabilities where nothing else is known."""
        A = with_reference(self.objective.engine.host(self.point.logits[rows]))
        return np.asarray(probabilities(A)) if self.believed is None else self.believed(rows, log_probabilities(A))

    @property
    def probabilities(self) -> Float64s:
        """The model's class probabilities of every training sample, (N, C)."""
        return np.asarray(probabilities(with_reference(self.objective.engine.host(self.point.logits))))


class Selector(Protocol):
    """Chooses the samples to ask next."""

    @property
    def name(self) -> str:
        """Its name in settings and records."""
        ...

    @property
    def suggests(self) -> bool:
        """Whether its batches carry suggested labels; those of a selector that has none are `UNRESOLVED`."""
        ...

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The best `batch_size` eligible samples, fewer if fewer are left."""
        ...


def measured(select: Callable[[S, SelectionContext, int], Batch]) -> Callable[[S, SelectionContext, int], Batch]:
    """A `select` whose batch says in its diagnostics how many sweeps, bytes and seconds the choice took."""

    @wraps(select)
    def counted(selector: S, context: SelectionContext, batch_size: int) -> Batch:
        began, engine = time.perf_counter(), context.objective.engine
        before, batch = engine.spent(), select(selector, context, batch_size)
        spent = engine.spent().since(before)
        facts = replace(
            batch.diagnostics,
            sweeps=spent.sweeps,
            bytes_read=spent.bytes_read,
            read_seconds=spent.read_seconds,
            seconds=time.perf_counter() - began,
        )
        pace = engine.pace()
        facts = facts if pace is None else replace(facts, lag=pace.lag, slowest_worker=pace.slowest)
        return replace(batch, diagnostics=facts)

    return counted
