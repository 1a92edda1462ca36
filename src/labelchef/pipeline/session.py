"""The steps of a round on data in memory: select → (annotate → aggregate) → construct → evaluate.

A session holds the state of a campaign and moves it in two steps, `select` and `decide`. Either a step is done or it
has left no trace: an interrupt in the middle of `decide` gives the labels back as they were.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from labelchef.constructors import Construction, Constructor
from labelchef.core.labels import LabelTable
from labelchef.core.objective import Objective, Point
from labelchef.core.solvers import Companion
from labelchef.domain.arrays import Float64s, Floats, Ints
from labelchef.domain.records import (
    Batch,
    Decisions,
    LabelChange,
    Metrics,
    RoundRecord,
    Votes,
)
from labelchef.engines import MemoryEngine, RowLabels
from labelchef.pipeline.metrics import evaluate
from labelchef.selectors import SelectionContext, Selector

MOST_ATTEMPTS = 2
"""How often a sample is asked before it is given up as unresolved."""


class Split:
    """A labelled split: its mean cross-entropy, gradient and metrics at any W, the last one remembered."""

    def __init__(self, X: Floats, y: Ints, n_classes: int, *, bias: bool) -> None:
        labels = RowLabels(np.eye(n_classes)[y], np.ones(len(y)))
        self._objective = Objective(MemoryEngine(X, bias=bias), labels, l2=0.0)
        self._y, self._n_classes = y, n_classes
        self._last: Point | None = None

    def at(self, W: Float64s) -> Point:
        """Value and gradient of the mean cross-entropy."""
        if self._last is None or self._last.W is not W:
            self._last = self._objective.at(W)
        return self._last

    def metrics(self, W: Float64s) -> Metrics:
        """Quality at W."""
        return evaluate(self.at(W), self._y, self._n_classes)


@dataclass
class Session:
    """A campaign in memory. `start` makes the first model; then `select` and `decide` in turn."""

    objective: Objective
    labels: LabelTable
    validation: Split
    test: Split | None
    selector: Selector
    constructor: Constructor
    rng: np.random.Generator
    rounds: list[RoundRecord] = field(default_factory=list)
    _construction: Construction | None = field(default=None, repr=False)

    @property
    def construction(self) -> Construction:
        """The model as it stands."""
        assert self._construction is not None, "start() comes first"
        return self._construction

    def start(self, on_step: Callable[[int, float, float], None] | None = None) -> RoundRecord:
        """Round 0: the model on the labels as given."""
        began = time.perf_counter()
        construction = self.constructor.initialise(self.objective, on_step)
        nothing = np.empty(0, dtype=np.int64)
        batch = Batch(nothing, nothing, np.empty(0))
        decisions = Decisions(nothing, nothing, np.empty(0))
        timing = {"construct": time.perf_counter() - began}
        record = self._record(construction, batch, Votes.of([]), decisions, nothing, timing)
        self._construction = construction
        self.rounds.append(record)
        return record

    def select(self, batch_size: int) -> Batch:
        """The samples to ask next."""
        context = SelectionContext(
            self.objective,
            self.construction.point,
            self.validation.at(self.construction.point.W),
            self.labels.eligible(MOST_ATTEMPTS),
            self.construction.keeper,
            self.rng,
        )
        return self.selector.select(context, batch_size)

    def decide(
        self, batch: Batch, votes: Votes, decisions: Decisions, seconds: dict[str, float] | None = None
    ) -> RoundRecord:
        """Apply decisions to the labels, bring the model up to date, evaluate, and write the round down."""
        began = time.perf_counter()
        before = self.labels.Y[decisions.items].argmax(axis=1)
        with self.labels.assigned(decisions.items, decisions.labels) as change:
            construction = self._follow(change)
            after = self.labels.Y[decisions.items].argmax(axis=1)
            timing = {**(seconds or {}), "construct": time.perf_counter() - began}
            changed = decisions.items[before != after]
            record = self._record(construction, batch, votes, decisions, changed, timing)
        self._construction = construction
        self.rounds.append(record)
        return record

    @property
    def spent(self) -> int:
        """Samples asked so far."""
        return self.rounds[-1].spent if self.rounds else 0

    def _follow(self, change: LabelChange) -> Construction:
        carried = self.selector.carried
        companion = None
        if carried is not None:
            companion = Companion(carried.V, carried.HV, lambda W: self.validation.at(W).gradient)
        return self.constructor.construct(self.objective, self.construction, change, companion)

    def _record(
        self,
        construction: Construction,
        batch: Batch,
        votes: Votes,
        decisions: Decisions,
        changed: Ints,
        seconds: dict[str, float],
    ) -> RoundRecord:
        began, W = time.perf_counter(), construction.point.W
        validation = self.validation.metrics(W)
        test = None if self.test is None else self.test.metrics(W)
        return RoundRecord(
            number=len(self.rounds),
            batch=batch,
            votes=votes,
            decisions=decisions,
            changed=changed,
            spent=self.spent + len(decisions.items),
            cleaned=int(self.labels.cleaned.sum()),
            validation=validation,
            test=test,
            construction=construction.diagnostics,
            seconds={**seconds, "evaluate": time.perf_counter() - began},
        )
