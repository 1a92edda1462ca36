"""What the store returns: a dataclass for each kind of row, and two ways to read them.

`server.store.tables` makes the tables from these rows. A statement selects a whole table, or `columns(Kind, Table, ...)`: the
columns that the fields of `Kind` name, in their order. A row is then built from its values by position.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, TypeVar

import sqlalchemy as sa

from labelchef.base.campaigns import (
    AssignmentState,
    CampaignState,
    CommentKind,
    DecisionKind,
    NewItem,
    Origin,
    Role,
    RoundKind,
    RoundState,
    SplitName,
)
from labelchef.base.jobs import JobKind, JobState
from labelchef.base.settings import Settings

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """A campaign; `settings` are the current ones, the changes to them are in `ChangeRow`."""

    id: int
    public_id: str
    slug: str
    name: str
    state: CampaignState
    message: str
    settings: Settings
    version: int
    n_items: int
    spent: int
    created_at: float
    created_by: str
    archived_at: float | None
    """Since when it is archived: read-only, hidden from lists, no work for the worker."""
    deleted_at: float | None
    """Since when it is deleted: nothing finds it but `restore` and the list of deleted campaigns."""
    deleted_by: str | None
    purge_at: float | None
    """When the worker removes a deleted campaign for good."""
    purging: bool
    """True while it is made or removed: nothing finds it, and the triggers of the ledger let its rows go
    (`server.store.removal`)."""
    first_item: int | None
    """The inner id of its first item; the others follow in the order of splits and positions. None if version 0.3 or an earlier
    one made it."""
    last_item: int | None


@dataclass(frozen=True, slots=True)
class RemovedCampaign:
    """A campaign that was removed for good: what is left of it. Its folder, if it is still there, is a leftover."""

    id: int
    public_id: str
    slug: str
    name: str
    created_at: float
    deleted_at: float
    deleted_by: str
    removed_at: float


@dataclass(frozen=True, slots=True)
class JobRow:
    """Work in the background that a lead has started (`server.jobs.jobs`)."""

    id: int
    public_id: str
    campaign_id: int
    kind: JobKind
    options: dict[str, Any]
    person: str
    state: JobState
    created_at: float
    started_at: float | None
    ended_at: float | None
    file: str | None
    """Name of the file it gave, in the folder of the job."""
    bytes: int
    """Size of what it left on the disk."""
    result: dict[str, Any] | None
    """What it found, where that is no file."""
    problem: str | None


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """What one process may work on alone (`server.leases`). A row stays when its lease is given back: its fence counts on."""

    id: int
    name: str
    """What it is of: `campaign:ID`, `job:ID`, `worker:HOLDER`, …"""
    holder: str
    life: int
    """Names the lock that the holder's process has for as long as it lives."""
    fence: int
    """One more at every taking: a write with an older number is refused."""
    until: float
    """By the clock of the database; 0 when it was given back."""
    asked: bool
    """Whether somebody has asked the holder to stop."""
    told: dict[str, Any] | None
    """What the holder tells of its work."""


class JobValues(TypedDict, total=False):
    """Columns of a job that change."""

    state: JobState
    started_at: float | None
    ended_at: float | None
    file: str | None
    bytes: int
    result: dict[str, Any] | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class ItemRow:
    """A sample and what people see of it. `label` is given with the data: validation, test, known from the start.

    `attempt` counts how often the item was put to people again; it can be rebuilt from selections and reopenings.
    """

    id: int
    campaign_id: int
    split: SplitName
    position: int
    key: str
    text: str | None
    image: str | None
    fields: Mapping[str, object] | None
    images: Sequence[str] | None
    """Fields that are further images, in their order."""
    label: int | None
    attempt: int


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A round in short; number 0 is the first model."""

    id: int
    campaign_id: int
    number: int
    kind: RoundKind
    state: RoundState
    size: int
    ahead: int
    spent: int

    @property
    def is_open(self) -> bool:
        """Whether it still waits for votes or for its model."""
        return self.state != RoundState.CLOSED


@dataclass(frozen=True, slots=True)
class RoundRow(TurnRow):
    """A round; what came of a large batch is megabytes."""

    selection_hash: str | None
    labels_hash: str | None
    model_hash: str | None
    outcome: dict[str, Any] | None
    """What `loop.ledger.conversion` makes of a closed round, and the gains by split."""
    diagnostics: dict[str, Any]
    """How the selection was computed."""
    rebuilt: str
    """Before which steps the session was rebuilt from the ledger."""
    seconds: dict[str, float]
    opened_at: float
    closed_at: float | None
    settings: Settings | None
    """Those with which the round was opened; None for a round of an earlier version."""
    link: dict[str, Any] | None
    """What makes a change of stored rows visible (`server.ledger.links`); None for a round that is open, or that an earlier
    version closed."""


class RoundValues(TypedDict, total=False):
    """Columns of a round that are filled as it moves on."""

    state: RoundState
    size: int
    ahead: int
    spent: int
    selection_hash: str | None
    labels_hash: str | None
    model_hash: str | None
    outcome: dict[str, Any] | None
    diagnostics: dict[str, Any]
    rebuilt: str
    seconds: dict[str, float]
    closed_at: float | None
    settings: Settings | None
    link: dict[str, Any] | None


class CampaignValues(TypedDict, total=False):
    """Columns of a campaign that may change."""

    state: CampaignState
    message: str
    settings: Settings
    spent: int
    name: str
    slug: str
    archived_at: float | None
    deleted_at: float | None
    deleted_by: str | None
    purge_at: float | None
    purging: bool


@dataclass(frozen=True, slots=True)
class NewSelection:
    """An item that a round hands out."""

    round_id: int
    item_id: int
    rank: int
    origin: Origin
    attempt: int
    suggested: int | None
    influence: float | None
    by_answer: Sequence[float | None]
    """The influence of each answer, by class."""
    blind: bool
    weak: Sequence[float]
    nearest: Sequence[Sequence[float]]
    """(position, similarity) of validation items."""
    votes: int
    """Live votes of people."""
    decided: bool
    """Whether a lead decided the item, so that it needs no more votes."""
    needed: int | None
    """Votes of people after which the majority may be settled; None for as many as there are people an item."""


@dataclass(frozen=True, slots=True)
class SelectionRow(NewSelection):
    """A selection that is stored."""

    id: int


@dataclass(frozen=True, slots=True)
class SelectionPlace:
    """How an item was shown in a round."""

    round_id: int
    item_id: int
    attempt: int
    origin: Origin
    blind: bool
    suggested: int | None
    position: int


@dataclass(frozen=True, slots=True)
class SelectionBrief(SelectionPlace):
    """A selection without what people see of it, and the position of its item."""

    influence: float | None
    by_answer: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class OpenSelection:
    """A selection that a person may be asked, in short."""

    id: int
    item_id: int
    suggested: int | None
    weak: Sequence[float]
    needed: int | None

    @property
    def believed(self) -> int:
        """The class it is believed to have: the suggestion, else the most probable weak label."""
        return max(range(len(self.weak)), key=self.weak.__getitem__) if self.suggested is None else self.suggested


@dataclass(frozen=True, slots=True)
class LeasedSelection(SelectionRow):
    """A selection that a person holds."""

    until: float


@dataclass(frozen=True, slots=True)
class SelectedItem(SelectionRow):
    """A selection and where its item stands."""

    position: int
    key: str
    item_attempt: int


@dataclass(frozen=True, slots=True)
class AssignmentRow:
    """An item given to a person: leased until a time, voted on, or skipped."""

    id: int
    round_id: int
    selection_id: int
    person: str
    state: AssignmentState
    until: float
    """End of the lease; for a skipped item, when it was skipped."""


@dataclass(frozen=True, slots=True)
class VoteRow:
    """A vote, a change of one, or its retraction. Of a person's rows on an attempt the one with the last `seq` counts."""

    id: int
    public_id: str
    campaign_id: int
    item_id: int
    attempt: int
    round_id: int | None
    person: str
    account_id: int | None
    seq: int
    label: int | None
    retracted: bool
    supersedes: int | None
    note: str | None
    blind: bool
    suggested: int | None
    seconds: float | None
    source: str
    request_id: str | None
    created_at: float
    imported_by: str | None
    """Who brought it in, in the name of `person`; None for a vote that `person` gave here."""


@dataclass(frozen=True, slots=True)
class VoteWithKey(VoteRow):
    """A vote and the key of its item."""

    key: str


@dataclass(frozen=True, slots=True)
class VoteWithRound(VoteWithKey):
    """A vote, the key of its item and the number of its round."""

    number: int | None


@dataclass(frozen=True, slots=True)
class NewVote:
    """A vote to store."""

    campaign_id: int
    item_id: int
    attempt: int
    round_id: int | None
    person: str
    account_id: int | None
    label: int | None
    blind: bool
    suggested: int | None
    source: str
    retracted: bool = False
    note: str | None = None
    seconds: float | None = None
    request_id: str | None = None
    imported_by: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """The label an item was given by votes or a lead; None leaves it unresolved."""

    id: int
    public_id: str
    campaign_id: int
    item_id: int
    attempt: int
    round_id: int | None
    kind: DecisionKind
    by: str
    label: int | None
    support: float
    supersedes: int | None
    created_at: float


@dataclass(frozen=True, slots=True)
class DecisionWithPosition(DecisionRow):
    """A decision and the position of its item."""

    position: int


class DecisionValues(TypedDict):
    """What is said of a new decision."""

    campaign_id: int
    item_id: int
    attempt: int
    round_id: int | None
    kind: DecisionKind
    by: str
    label: int | None
    support: float


@dataclass(frozen=True, slots=True)
class WishRow:
    """An item that a lead wants to be asked in the next batch; deleted once it is. The ledger has it as a change by the lead."""

    id: int
    campaign_id: int
    item_id: int
    by: str
    created_at: float


@dataclass(frozen=True, slots=True)
class LeadActionRow:
    """An action on many items, and how it was answered: a request that comes again is answered alike, and does nothing."""

    id: int
    campaign_id: int
    person: str
    request_id: str
    asked: Mapping[str, object]
    answer: Mapping[str, object]
    created_at: float


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """What a lead changed: settings, state, people."""

    id: int
    campaign_id: int
    who: str
    created_at: float
    what: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class GuidelineRow:
    """A text of the guidelines as it was saved: of the campaign, or of a class. The one with the last id counts."""

    id: int
    campaign_id: int
    version: int
    """Counts the changes of a campaign's guidelines, from 1."""
    class_position: int | None
    """None: the text for the whole campaign."""
    text: str
    who: str
    created_at: float


@dataclass(frozen=True, slots=True)
class CommentRow:
    """What was said of an item, or done with its thread: resolved, opened again, a comment hidden or shown again."""

    id: int
    public_id: str
    campaign_id: int
    item_id: int
    kind: CommentKind
    comment_id: int | None
    """The comment that is hidden or shown."""
    person: str
    text: str
    created_at: float


@dataclass(frozen=True, slots=True)
class CommentWithKey(CommentRow):
    """The same, and the key of the item."""

    key: str


@dataclass(frozen=True, slots=True)
class GoldRow:
    """A trusted sample that was put among the items of a person. What became of it can be rebuilt from the answers."""

    id: int
    campaign_id: int
    round_id: int
    item_id: int
    """The trusted sample."""
    cover: int
    """Inner id of the training item whose key it is shown under."""
    person: str
    rank: int
    """Of the selection that it was put in front of."""
    state: AssignmentState
    until: float
    """End of the lease; for a skipped one, when it was skipped."""
    created_at: float


@dataclass(frozen=True, slots=True)
class NewGoldAnswer:
    """An answer on a trusted sample to store."""

    campaign_id: int
    gold_id: int
    person: str
    account_id: int | None
    label: int | None
    retracted: bool = False
    note: str | None = None
    seconds: float | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class GoldAnswerRow:
    """An answer on a trusted sample, a change of one, or its retraction; the one with the last `seq` counts. It is no vote."""

    id: int
    public_id: str
    campaign_id: int
    gold_id: int
    person: str
    account_id: int | None
    seq: int
    label: int | None
    retracted: bool
    supersedes: int | None
    note: str | None
    seconds: float | None
    request_id: str | None
    created_at: float


@dataclass(frozen=True, slots=True)
class ShownGoldAnswer(GoldAnswerRow):
    """An answer, and the key under which its person saw the item."""

    key: str


@dataclass(frozen=True, slots=True)
class GoldAnswerOn(GoldAnswerRow):
    """An answer, the trusted sample it is on, and what that is shown as."""

    item_id: int
    key: str
    truth: int | None
    cover_key: str
    round_id: int


@dataclass(frozen=True, slots=True)
class DutyRow:
    """Which items a member gets; the changes to it are in `ChangeRow`."""

    id: int
    campaign_id: int
    person: str
    rule: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AccountRow:
    """A person who may sign in."""

    id: int
    name: str
    role: Role
    password_hash: str | None
    active: bool
    created_at: float


class AccountValues(TypedDict, total=False):
    """Columns of an account that may change."""

    password_hash: str | None
    active: bool


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token for programs, or a link that signs in once; only a digest is kept."""

    id: int
    account_id: int
    token_hash: str
    label: str
    once: bool
    created_at: float
    expires_at: float | None
    revoked_at: float | None


def columns(kind: type, *tables: sa.Table, **named: sa.ColumnElement[Any]) -> list[sa.ColumnElement[Any]]:
    """The columns that the fields of a row name, in their order.

    A column comes from the first of `tables` that has it; `named` gives those that are in none, or elsewhere.
    """
    found: list[sa.ColumnElement[Any]] = []
    for field in fields(kind):
        if field.name in named:
            found.append(named[field.name].label(field.name))
        elif having := [table for table in tables if field.name in table.c]:
            found.append(having[0].c[field.name])
        else:
            raise LookupError(f"no table has a column for {kind.__name__}.{field.name}; name it")
    return found


def all_rows(
    connection: sa.Connection, statement: sa.Select[Any], kind: Callable[..., Kind], **given: object
) -> list[Kind]:
    """Every row of a statement."""
    return [kind(*row) for row in connection.execute(statement, given)]


def first_row(
    connection: sa.Connection, statement: sa.Select[Any], kind: Callable[..., Kind], **given: object
) -> Kind | None:
    """The first row of a statement, None if there is none."""
    row = connection.execute(statement, given).first()
    return None if row is None else kind(*row)


AMONG: sa.BindParameter[Any] = sa.bindparam("among", expanding=True)
"""In a statement for `rows_among`: the values."""


def rows_among(
    connection: sa.Connection,
    statement: sa.Select[Any],
    kind: Callable[..., Kind],
    values: Iterable[int] | Iterable[str],
    **given: object,
) -> list[Kind]:
    """Every row of a statement for all values, 500 at a time: a database takes no longer lists."""
    known = list(dict.fromkeys(values))
    parts = (known[start : start + 500] for start in range(0, len(known), 500))
    return [row for part in parts for row in all_rows(connection, statement, kind, among=part, **given)]


def insert_row(connection: sa.Connection, table: sa.Table, **values: object) -> int:
    """A new row; returns its inner id."""
    key = connection.execute(sa.insert(table).values(**values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def values_of(record: NewVote | NewSelection | NewItem | NewGoldAnswer) -> dict[str, Any]:
    """Name → value of a record to store."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def new_public_id() -> str:
    """A random id that may stand in an address."""
    return secrets.token_urlsafe(12).replace("-", "a").replace("_", "b")


def storable(text: str) -> bool:
    """Whether every database can hold this text: no null character, no half of a surrogate pair.

    >>> storable("ann"), storable("a\\x00b"), storable("\\ud800")
    (True, False, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text
