"""The contract of a ledger.

A ledger holds facts: which samples were put to people, what they voted, what was decided, and what each round came to.
`loop.steps` reads `standing()`, finds the step that is due, computes, and writes the result back:

    begin     the first model is trained                    round 0
    open      a batch is selected                           people may vote
    count     the batch has its votes                       votes become decisions
    close     the model has followed the decisions          the round is over
    end       nothing more is to be asked                   with the reason

Computing takes time, and meanwhile a lead may change the settings or stop the campaign. So `open`, `end` and `close` are
given the standing (or the answers) they were computed from; if the ledger has moved on since then they write nothing
and return False, and the next call of `standing()` says what is due now.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.campaigns import RoundKind, RoundState
from labelchef.base.records import Batch, Decisions, Heard, RoundRecord, StopReason, Votes
from labelchef.base.settings import Settings
from labelchef.base.validation import CalibrationError, Figure, Gain
from labelchef.believe.aggregation import Aggregator

NO_ITEMS: Ints = np.empty(0, dtype=np.int64)
NO_BATCH = Batch.without_predictions(NO_ITEMS)


@dataclass(frozen=True)
class Selected:
    """The samples of a round: the batch in its order, then the work ahead.

    The first `reopened` samples of the batch are there because a lead took back the decision on them. `size` and
    `ahead_size` are what was asked for; fewer may have been left.
    """

    batch: Batch
    ahead: Batch
    reopened: int
    size: int
    ahead_size: int
    seconds: float = 0.0
    rebuilt: bool = False
    """Whether the session that selected was rebuilt from the ledger just before; a replay then rebuilds it there too."""

    @property
    def hash(self) -> str:
        """SHA-256 of samples and suggestions."""
        parts = (self.batch.indices, self.batch.suggested, self.ahead.indices, self.ahead.suggested)
        return _sha256(*(np.asarray(part, dtype="<i8") for part in parts))


@dataclass(frozen=True)
class Standing:
    """Where a campaign stands: everything that decides which step is due."""

    settings: Settings
    closed: int
    """Rounds whose model is there, round 0 included."""
    spent: int
    """Samples put to people so far, in rounds that are closed."""
    batch: RoundState | None
    """The state of the batch that is out; None if none is."""
    complete: bool
    """Whether that batch has the votes it needs."""
    pending: bool
    """Whether a decision outside of a batch, or another choice of sources, waits for the model."""
    running: bool
    """Whether a batch may be put to people: not paused, stopped, finished or failed."""
    reopened: Ints = field(default_factory=lambda: NO_ITEMS)
    """Samples whose decision a lead took back: first in the next batch."""
    failed: bool = False
    """Whether the campaign met an error: nothing is due until a lead resumes it."""
    mark: tuple[int, ...] = ()
    """Which state of the ledger this describes; an implementation compares it before it writes."""
    version: int = 0
    """Of the votes of sources, see `base.records.Heard`."""

    @property
    def heard(self) -> Heard:
        """Which votes of sources the next model is made of."""
        return Heard(self.settings.muted, self.version)


@dataclass(frozen=True)
class Answered:
    """What the model has to follow: decisions on the samples of a batch in its order, then corrections of others."""

    batch: Batch
    votes: Votes
    decisions: Decisions
    seconds: Mapping[str, float] = field(default_factory=dict)
    rebuilt: bool = False
    """As in `Selected`: of the session that followed."""
    mark: tuple[int, ...] = ()
    """As in `Standing`."""


@dataclass(frozen=True)
class PastRound:
    """A round with everything that is needed to compute it again and to compare."""

    number: int
    kind: RoundKind
    selected: Selected | None = None
    """What it put to people; None for round 0 and for corrections."""
    answered: Answered | None = None
    """What its model followed; None for round 0 and while the round is open."""
    record: RoundRecord | None = None
    """What came of it; None while it is open."""
    selection_hash: str | None = None
    labels_hash: str | None = None
    model_hash: str | None = None
    """None where this ledger keeps no such hash."""
    opened_with: Settings | None = None
    """The settings when it was opened; None where they are those of the campaign."""
    closed_with: Settings | None = None
    """The settings when it was closed."""


class Model(Protocol):
    """The trained state as a ledger sees it when a round closes: what it stores is up to the ledger."""

    @property
    def parameters(self) -> Float64s:
        """(D, C) parameters."""

    @property
    def label_state(self) -> tuple[Float64s, Bools]:
        """(N, C) labels as they stand, (N,) which of them are clean."""

    def scores(self) -> Float64s:
        """(N,) influence of every sample as the model stands, NaN where it cannot be asked."""

    def gains_by_split(self) -> Mapping[str, Mapping[str, Gain]]:
        """By split ('validation', 'test') and metric: this model against the first one."""

    def figures_by_split(self) -> Mapping[str, Mapping[str, Figure]]:
        """By split and metric: this model, with intervals."""

    def calibration(self) -> CalibrationError | None:
        """The calibration error on the samples that judge."""


class Ledger(Protocol):
    """What happened in one campaign."""

    def standing(self) -> Standing:
        """Where the campaign stands."""

    def begin(self, record: RoundRecord, model: Model) -> bool:
        """Write round 0."""

    def open(self, now: Standing, selected: Selected) -> bool:
        """Put a batch to people."""

    def end(self, now: Standing, reason: StopReason, message: str) -> bool:
        """Write down that nothing more is asked, and why."""

    def count(self, aggregator: Aggregator) -> bool:
        """Turn the votes of a complete batch into decisions."""

    def answered(self) -> Answered:
        """The decisions that the model does not know yet."""

    def close(self, answered: Answered, record: RoundRecord, model: Model) -> bool:
        """Write the round whose model has followed `answered`."""

    def rounds(self) -> Sequence[RoundRecord]:
        """The closed rounds in order, round 0 first."""

    def past(self) -> Iterator[PastRound]:
        """All rounds in order, round 0 first and the open one last, to be computed again."""


def labels_hash(labels: Float64s, cleaned: Bools) -> str:
    """SHA-256 of the label table and of what is clean."""
    return _sha256(np.asarray(labels, dtype="<f8"), cleaned)


def model_hash(W: Float64s) -> str:
    """SHA-256 of the parameters."""
    return _sha256(np.asarray(W, dtype="<f8"))


def _sha256(*arrays: Float64s | Ints | Bools) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()
