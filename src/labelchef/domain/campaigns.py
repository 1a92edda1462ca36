"""Campaigns that last: what people, pages and commands are told about them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from labelchef.domain.errors import InvalidInputError
from labelchef.domain.strengths import as_gamma, as_l2
from labelchef.domain.validation import Gain, as_holdout

SUGGESTION = "suggestion"
"""The name under which the selector's own suggestion votes."""


class CampaignState(StrEnum):
    """Where a campaign stands."""

    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class RoundState(StrEnum):
    """Where a round stands: people vote, their votes were counted, the model has followed."""

    SELECTED = "selected"
    AGGREGATED = "aggregated"
    CLOSED = "closed"


class RoundKind(StrEnum):
    """What a round is for: the first model, a batch of items, or corrections outside a batch."""

    INITIAL = "initial"
    BATCH = "batch"
    CORRECTION = "correction"


class Origin(StrEnum):
    """Why an item is handed out."""

    BATCH = "batch"
    REOPENED = "reopened"
    AHEAD = "ahead"


class DecisionKind(StrEnum):
    """Who decided: the votes, the lead, or the lead by taking a decision back."""

    VOTES = "votes"
    LEAD = "lead"
    REOPEN = "reopen"


class SplitName(StrEnum):
    """The part of the data an item belongs to."""

    TRAIN = "train"
    VALIDATION = "val"
    TEST = "test"


class Role(StrEnum):
    """What an account may do."""

    LEAD = "lead"
    ANNOTATOR = "annotator"


class WaitReason(StrEnum):
    """Why there is nothing to label just now."""

    PREPARING = "preparing"
    OTHERS = "waiting_for_others"
    UPDATING = "updating"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


STRATEGY_VOTERS: Mapping[str, tuple[int, bool]] = {"one": (3, False), "two": (0, True), "three": (2, True)}
"""The paper's strategies as (people, whether the suggestion votes)."""


@dataclass(frozen=True)
class CampaignSettings:
    """Everything of a campaign that is not data.

    >>> CampaignSettings.with_strategy("three", budget=50).people
    2
    """

    selector: str = "expected_infl"
    look_ahead: bool = True
    constructor: str = "newton"
    gamma: float | str = "auto"
    """Weight of a weak sample, 0 to 1; 'auto' becomes a number when the campaign is made."""
    l2: float | str = "auto"
    """L2 strength, likewise."""
    holdout: float | str = "auto"
    """Share of validation that judges and that selection never sees, or 'auto'."""
    seed: int = 0
    people: int = 1
    """People who vote on each item."""
    suggestion_votes: bool = False
    """Whether the suggestion is one more voter."""
    batch_size: int = 10
    budget: int | None = 100
    target: float | None = None
    target_metric: str = "f1_macro"
    ahead: int = 0
    """Items from the next ranks that people may label while others finish the batch."""
    blind_share: float = 0.0
    """Share of items shown without the suggestion."""
    blind: bool = False
    """Whether no item is shown with its suggestion."""
    lease_minutes: float = 15.0
    """How long an item stays with the person it was given to."""

    CHANGEABLE = ("batch_size", "budget", "target", "target_metric", "ahead", "blind_share", "blind", "lease_minutes")

    def __post_init__(self) -> None:
        _whole(self.people, "people", 0)
        _whole(self.batch_size, "batch_size", 1)
        _whole(self.ahead, "ahead", 0)
        _whole(self.seed, "seed", 0)
        if self.budget is not None:
            _whole(self.budget, "budget", 1)
        object.__setattr__(self, "gamma", as_gamma(self.gamma))
        object.__setattr__(self, "l2", as_l2(self.l2))
        _real(self.blind_share, "blind_share", 0.0, 1.0)
        _real(self.lease_minutes, "lease_minutes", 1e-9, 1e6)
        object.__setattr__(self, "holdout", as_holdout(self.holdout))
        if self.target is not None:
            _real(self.target, "target", -1e300, 1e300)
        for name in ("look_ahead", "suggestion_votes", "blind"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInputError(f"{name} is {getattr(self, name)!r}; expected true or false", code=name)
        for name in ("selector", "constructor", "target_metric"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInputError(f"{name} is {getattr(self, name)!r}; expected a name", code=name)
        if self.people == 0 and not self.suggestion_votes:
            raise InvalidInputError(
                "people is 0 and the suggestion does not vote; expected at least one voter an item", code="people"
            )

    @classmethod
    def with_strategy(cls, strategy: str, **others: Any) -> "CampaignSettings":
        """Settings with the voters of one of the paper's strategies."""
        if strategy not in STRATEGY_VOTERS:
            raise InvalidInputError(
                f"unknown strategy {strategy!r}; expected one of: {', '.join(STRATEGY_VOTERS)}", code="strategy"
            )
        people, suggestion = STRATEGY_VOTERS[strategy]
        return cls(people=people, suggestion_votes=suggestion, **others)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "CampaignSettings":
        """Settings from names and values; a name that is none is refused."""
        known = {f.name for f in fields(cls)}
        strangers = sorted(set(values) - known)
        if strangers:
            raise InvalidInputError(
                f"unknown setting {strangers[0]!r}; expected one of: {', '.join(sorted(known))}", code="settings"
            )
        return cls(**values)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> "CampaignSettings":
        """Settings as a campaign has them; one made before a setting existed goes on as it was.

        >>> CampaignSettings.stored({"budget": 7}).holdout, CampaignSettings.of({"budget": 7}).holdout
        (0.0, 'auto')
        """
        return cls.of({"holdout": 0.0, **values})

    def changed(self, **changes: Any) -> "CampaignSettings":
        """The same with changes, of what may change while a campaign runs."""
        fixed = sorted(set(changes) - set(self.CHANGEABLE))
        if fixed:
            raise InvalidInputError(
                f"{fixed[0]!r} cannot change once a campaign exists; expected one of: {', '.join(self.CHANGEABLE)}",
                code="settings",
            )
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Name → value."""
        return asdict(self)


@dataclass(frozen=True)
class CampaignFiles:
    """The files a campaign is made of; tables may be .csv, .jsonl or .parquet, features .npy and others."""

    features: Path
    weak: Path
    val_features: Path
    val_labels: Path
    test_features: Path | None = None
    test_labels: Path | None = None
    clean_labels: Path | None = None
    items: Path | None = None
    """What people see: columns id, text, image; every other column is a field. A row a training sample."""
    val_items: Path | None = None
    media: Path | None = None
    """The folder the images of the items lie in."""


@dataclass(frozen=True)
class CampaignSummary:
    """A campaign in one line."""

    id: str
    slug: str
    name: str
    state: CampaignState
    message: str
    created_at: datetime
    created_by: str
    version: int
    """Grows with every change that people who wait should hear of."""
    n_items: int
    spent: int
    budget: int | None
    round: int
    """The open round, or the last one."""


@dataclass(frozen=True)
class ItemContent:
    """What people see of an item."""

    text: str | None = None
    image: str | None = None
    """Path below the campaign's media folder."""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Neighbour:
    """A validation item near the one to label."""

    key: str
    content: ItemContent
    label: str
    similarity: float


@dataclass(frozen=True)
class Task:
    """An item handed to a person, with what helps to label it. No one else's vote is in it.

    Shown blind, nothing of the model or the weak labels is in it either.
    """

    item: str
    content: ItemContent
    classes: tuple[str, ...]
    suggestion: int | None
    """Class position; None if the item is shown blind, or if the selector has none."""
    blind: bool
    influence: float | None
    weak: tuple[float, ...] | None
    """The weak label, a probability a class; None if blind."""
    rank: int
    round: int
    origin: Origin
    votes_needed: int
    neighbours: tuple[Neighbour, ...]
    leased_until: datetime | None
    own_vote: "OwnVote | None" = None


@dataclass(frozen=True)
class OwnVote:
    """What this person said of the item before."""

    label: int | None
    note: str | None


@dataclass(frozen=True)
class Waiting:
    """Nothing to label now."""

    reason: WaitReason
    message: str
    wake: int
    """Version to wait beyond with `wait_for_change`."""
    retry_after: float
    """Seconds after which asking again makes sense even without a change: a lease may have run out."""


@dataclass(frozen=True)
class VoteReceipt:
    """A vote that is stored."""

    id: str
    item: str
    label: int | None
    repeated: bool
    """Whether this request had been stored before."""
    changed: bool
    """Whether it replaces an earlier vote of the same person."""
    batch_complete: bool


@dataclass(frozen=True)
class RoundSummary:
    """A round as it stands."""

    number: int
    kind: RoundKind
    state: RoundState
    size: int
    ahead: int
    spent: int
    validation: Mapping[str, float] | None
    """On the validation samples that judge; on those that steer where none judges."""
    steering: Mapping[str, float] | None
    gain: Mapping[str, Gain] | None
    """By metric: this model against the first one, on the samples that judge; None where none does."""
    test: Mapping[str, float] | None
    seconds: Mapping[str, float]
    opened_at: datetime
    closed_at: datetime | None


@dataclass(frozen=True)
class ItemProgress:
    """How far an item of the open batch is."""

    item: str
    rank: int
    votes: int
    needed: int
    leased: int
    decided: bool


@dataclass(frozen=True)
class OpenRound:
    """The round people vote on."""

    number: int
    state: RoundState
    items: tuple[ItemProgress, ...]

    @property
    def complete(self) -> int:
        """Items that need no more votes."""
        return sum(item.decided or item.votes >= item.needed for item in self.items)


@dataclass(frozen=True)
class PersonStats:
    """What a person did in a campaign."""

    person: str
    votes: int
    ambiguous: int
    seconds: float | None
    """Median seconds an item."""
    last_vote_at: datetime | None


@dataclass(frozen=True)
class CampaignStatus:
    """A campaign in full."""

    summary: CampaignSummary
    settings: CampaignSettings
    classes: tuple[str, ...]
    rounds: tuple[RoundSummary, ...]
    open_round: OpenRound | None
    people: tuple[PersonStats, ...]
    members: tuple[str, ...]
    conflicts: int
    pending: int
    """Decisions that wait for the next model."""


@dataclass(frozen=True)
class ConflictItem:
    """An item whose votes came to nothing."""

    item: str
    content: ItemContent
    round: int
    suggestion: int | None
    votes: tuple[tuple[str, int | None, str | None], ...]
    """(person, class position or None for ambiguous, note)"""
    asked_again: bool
    """Whether it is in the open batch again."""


@dataclass(frozen=True)
class LedgerEntry:
    """A line of the ledger: a vote, a decision, or a change by a lead."""

    id: str
    kind: str
    """'vote', 'decision' or 'change'."""
    at: datetime
    who: str
    item: str | None
    round: int | None
    label: int | None
    what: Mapping[str, Any]


Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Page(Generic[Entry]):
    """A part of a long list, and the cursor of what follows."""

    entries: tuple[Entry, ...]
    next: str | None


@dataclass(frozen=True)
class Account:
    """Someone who may sign in."""

    name: str
    role: Role
    active: bool
    created_at: datetime


def _whole(value: Any, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**53:
        raise InvalidInputError(f"{name} is {value!r}; expected a whole number of at least {least}", code=name)


def _real(value: Any, name: str, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise InvalidInputError(f"{name} is {value!r}; expected a number from {low:g} to {high:g}", code=name)
