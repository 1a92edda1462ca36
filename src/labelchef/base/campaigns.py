"""Campaigns that last: what people, pages and commands are told about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from labelchef.base.learning import Harm, InUse
from labelchef.base.records import AskedCount
from labelchef.base.settings import Settings
from labelchef.base.validation import AuditReport, CalibrationError, Figure, Gain

SUGGESTION = "suggestion"
"""The name under which the selector's own suggestion votes."""


GRACE_DAYS = 30.0
"""Days in which a deleted campaign can be restored, unless the server says otherwise."""


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


class AssignmentState(StrEnum):
    """What became of an item that was given to a person."""

    LEASED = "leased"
    VOTED = "voted"
    SKIPPED = "skipped"


class DecisionKind(StrEnum):
    """How a decision came about: by the votes, by a lead, or by a lead who takes a decision back."""

    VOTES = "votes"
    LEAD = "lead"
    REOPEN = "reopen"


class CommentKind(StrEnum):
    """What a row of a thread is: something said, or something that a lead did with the thread."""

    COMMENT = "comment"
    RESOLVED = "resolved"
    REOPENED = "reopened"
    HIDDEN = "hidden"
    SHOWN = "shown"


class SplitName(StrEnum):
    """The part of the data an item belongs to."""

    TRAIN = "train"
    VALIDATION = "val"
    TEST = "test"


class Role(StrEnum):
    """What an account may do."""

    LEAD = "lead"
    ANNOTATOR = "annotator"


class Shelf(StrEnum):
    """Which campaigns a list shows."""

    OPEN = "open"
    ARCHIVED = "archived"
    DELETED = "deleted"


class WaitReason(StrEnum):
    """Why there is nothing to label just now."""

    PREPARING = "preparing"
    OTHERS = "waiting_for_others"
    UPDATING = "updating"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    ARCHIVED = "archived"


@dataclass(frozen=True)
class CampaignFiles:
    """The files a campaign is made of; tables may be .csv, .jsonl or .parquet, features .npy and others.

    Weak labels, votes of sources, or the names of the classes are needed. Without validation there are no trusted samples.
    Features may be at a URL, which is a text: a `Path` would change it.
    """

    features: Path | str
    val_features: Path | str | None = None
    val_labels: Path | None = None
    source_votes: Path | None = None
    """What sources (rules, crowd workers, LLMs) say of the training samples; people's answers are other votes."""
    weak: Path | None = None
    val_source_votes: Path | None = None
    """What the same sources say of the validation samples."""
    test_features: Path | str | None = None
    test_labels: Path | None = None
    clean_labels: Path | None = None
    items: Path | None = None
    """What people see: columns id, text, image; every other column is a field. A row a training sample."""
    val_items: Path | None = None
    media: Path | None = None
    """The folder the images of the items lie in."""
    by_position: bool = False
    """Row k of one file belongs to row k of the others, though only some of them have a column `id`."""
    classes: tuple[str, ...] | None = None
    """Their names in their order; None for those that the files name."""


FILE_NAMES = tuple(one.name for one in fields(CampaignFiles) if one.name not in ("by_position", "classes"))
"""The fields of `CampaignFiles` that are paths."""


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to store."""

    split: SplitName
    position: int
    key: str
    text: str | None
    image: str | None
    fields: Mapping[str, object] | None
    label: int | None
    images: tuple[str, ...] | None = None
    """Fields that are further images, in their order."""


@dataclass(frozen=True)
class Notice:
    """Something that a lead should do, or the campaign waits."""

    code: str
    """'people': fewer people can vote than votes are asked; 'folder': the files of the campaign are missing."""
    message: str


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
    """Samples asked, as `base.records.AskedCount` defines it."""
    budget: int | None
    round: int
    """The open round, or the last one."""
    notices: tuple[Notice, ...] = ()
    """What a lead should do; empty for annotators."""
    archived_at: datetime | None = None
    """Since when it is archived: read-only, hidden from lists; a lead may reopen it."""
    deleted_at: datetime | None = None
    """Since when it is deleted; a lead may restore it until `purge_at`."""
    purge_at: datetime | None = None
    """When a deleted campaign is removed for good."""


@dataclass(frozen=True)
class ItemContent:
    """What people see of an item."""

    text: str | None = None
    image: str | None = None
    """Path below the campaign's media folder; in answers of the API, its address on the server."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    """All images in their order, `image` first; empty where there is none."""


@dataclass(frozen=True)
class BatchStanding:
    """How far a batch is. It counts answers, whatever they say: who votes and takes back learns nothing of others' votes."""

    mine: int
    """Answers of this person in this round."""
    answered: int
    """Answers of all, at most as many an item as are asked; an item that a lead decided has all of them."""
    wanted: int
    """Items of the batch times people an item."""


@dataclass(frozen=True)
class Neighbour:
    """A validation item near the one to label."""

    key: str
    content: ItemContent
    label: str
    similarity: float


@dataclass(frozen=True)
class Highlight:
    """A place in the text of an item on which the vote of a rule rests."""

    start: int
    """In UTF-16 units, as JavaScript counts."""
    end: int
    source: str
    """The name of the rule."""
    label: str
    """The class it votes for."""


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
    """N times the predicted change of the validation loss, negative is better; None if blind or not predicted."""
    weak: tuple[float, ...] | None
    """The weak label, a probability a class; None if blind."""
    rank: int
    round: int
    origin: Origin
    votes_needed: int
    neighbours: tuple[Neighbour, ...]
    leased_until: datetime | None
    own_vote: "OwnVote | None" = None
    batch: BatchStanding | None = None
    comments: int = 0
    """Comments in the thread of the item; hidden ones count."""
    highlights: tuple[Highlight, ...] = ()
    """Words of the text that rules matched, by their beginning; empty if blind."""
    margin: float | None = None
    """How far apart the model's two most probable classes are; None if blind, or not known yet."""
    sources: tuple[tuple[str, str], ...] = ()
    """What sources that are heard say: name and class; those that differ from the suggestion first. Empty if blind."""


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
    batch: BatchStanding | None = None
    """None where no batch is open."""
    undo: bool = False
    """Whether this person has a vote that can be taken back."""


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
    """By metric: this model against the first one, on validation samples held out, else on test; None where there are neither."""
    test: Mapping[str, float] | None
    baselines: Mapping[str, Mapping[str, Mapping[str, float]]]
    """By split ('validation', 'test'), name and metric, what one would have without weak labels. 'trusted_only': a model of the
    trusted samples alone, with nobody asked; 'no_weak': a model of trusted and answered samples. Empty where trusted samples
    only steer."""
    figures: Mapping[str, Mapping[str, Figure]]
    """By split and metric, on samples that judge: the value with its 95 % interval."""
    in_use: InUse | None
    """Source model, strengths, decision rule and temperature; None where trusted samples only steer."""
    calibration: CalibrationError | None
    """Of the probabilities, on the validation samples that judge; None where none does."""
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
class Holder:
    """A person for whom items of the open batch are reserved, and who has not answered them yet."""

    person: str
    items: int
    until: datetime
    """When the last of them is given to others; a vote, or another look at the label page, may reserve further ones."""


@dataclass(frozen=True)
class OpenRound:
    """The round people vote on."""

    number: int
    state: RoundState
    items: tuple[ItemProgress, ...]
    holders: tuple[Holder, ...] = ()
    """Who holds items now, by name."""

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
    settings: Settings
    classes: tuple[str, ...]
    rounds: tuple[RoundSummary, ...]
    open_round: OpenRound | None
    people: tuple[PersonStats, ...]
    members: tuple[str, ...]
    leads: tuple[str, ...]
    """Those of the members who lead this campaign."""
    conflicts: int
    pending: int
    """Decisions that wait for the next model."""
    audit: AuditReport
    """Items drawn by chance and predicted before they were answered."""
    harms: tuple[Harm, ...] = field(default=(), kw_only=True)
    """Sources that harm beyond doubt and are not muted, the worst first."""
    asked: AskedCount
    """Samples asked, and decisions without asking."""


class LineOutcome(StrEnum):
    """What became of a line of an imported file."""

    DECIDED = "decided"
    """The item was not asked: its label is decided now, by the votes on it."""
    CORRECTED = "corrected"
    """The votes on a decided item now give another label, or none."""
    AGREES = "agrees"
    """The item is decided, and stays as it is."""
    COMPLETE = "complete"
    """The item is in the open round and has the votes it needs."""
    WAITS = "waits for more votes"
    """The item is in the open round and needs more votes."""
    TIED = "no majority"
    """The votes on an item that was not asked tie or say 'ambiguous': they wait until it is asked."""
    LEAD = "a lead decided"
    """The vote is stored; the decision of the lead stands."""
    KNOWN = "known label"
    """The label came with the data as right: it stays, and the vote is not needed."""
    UNCHANGED = "unchanged"
    """The same vote was there already."""
    REPLACED = "replaced"
    """A later line has a vote of the same person on the same item."""


@dataclass(frozen=True)
class ImportedLine:
    """A line of an imported file."""

    line: int
    """Counted from 1; of a file of tasks, the number of the task."""
    item: str
    annotator: str
    outcome: LineOutcome


@dataclass(frozen=True)
class ImportReport:
    """What was done with a file of votes, or would be done."""

    format: str
    """'table', or the tool that wrote the file."""
    counts: Mapping[str, int]
    """Lines read, and how many of them came to what."""
    lines: tuple[ImportedLine, ...]
    notes: tuple[str, ...]
    """What was left out of the file, and assumed about it."""
    dry_run: bool


@dataclass(frozen=True)
class PersonVote:
    """What someone said of an item."""

    person: str
    label: int | None
    """Class position; None for ambiguous."""
    note: str | None


class Awaited(StrEnum):
    """What an item in conflict waits for, if no lead decides it."""

    COUNT = "count"
    """Its votes in the open batch tie, and are counted when the batch is complete."""
    FURTHER = "further"
    """Its votes in the open batch tie, and one more person is asked."""
    ASKED = "asked"
    """The open batch asks it again."""
    AGAIN = "again"
    """A later batch asks it again, after all items that were asked less often."""
    BATCH = "batch"
    """Imported votes on it tie: they wait until a batch asks it."""
    LEAD = "lead"
    """It was asked as often as items are asked: a lead."""


@dataclass(frozen=True)
class ConflictItem:
    """An item whose votes came to nothing."""

    item: str
    content: ItemContent
    round: int
    suggestion: int | None
    votes: tuple[PersonVote, ...]
    awaits: Awaited


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


@dataclass(frozen=True)
class Member(Account):
    """An account that takes part in a campaign."""

    here: Role
    """What they may do in this campaign: a lead of it has all of its lead pages, and no other campaign's."""
