"""What the API takes and gives: JSON shapes over the records of the domain."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from labelchef.domain import campaigns as domain
from labelchef.domain.campaigns import CampaignState, Origin, Role, RoundKind, RoundState, WaitReason

Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Entry = TypeVar("Entry")


class View(BaseModel):
    """Base of what goes out."""

    model_config = ConfigDict(from_attributes=True)


class Form(BaseModel):
    """Base of what comes in: names that are none are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PageOf(View, Generic[Entry]):
    """A part of a list; give `next` as `after` to go on, null means the end."""

    entries: list[Entry]
    next: str | None


class CampaignView(View):
    """A campaign in one line."""

    id: str
    slug: str
    name: str
    state: CampaignState
    message: str
    created_at: datetime
    version: int = Field(description="Grows with every change; `changes` waits for it.")
    n_items: int
    spent: int
    budget: int | None
    round: int


class ItemView(View):
    """What people see of an item."""

    key: str
    text: str | None
    image: str | None = Field(description="Address of the image on this server.")
    fields: dict[str, Any]


class NeighbourView(ItemView):
    """A validation item near the one to label, with its trusted label."""

    label: str
    similarity: float


class OwnVoteView(View):
    """What this person said of the item before."""

    label: int | None
    note: str | None


class TaskView(ItemView):
    """An item to label. Shown blind, nothing of the model is in it."""

    item: str
    classes: list[str]
    suggestion: int | None = Field(description="Position of the class labelchef suggests; null if blind.")
    blind: bool
    influence: float | None = Field(description="N times the predicted change of the validation loss; negative helps.")
    weak: list[float] | None = Field(description="The weak label, a probability a class; null if blind.")
    rank: int
    round: int
    origin: Origin
    votes_needed: int
    neighbours: list[NeighbourView]
    leased_until: datetime | None
    own_vote: OwnVoteView | None


class WaitingView(View):
    """Nothing to label now, and why."""

    reason: WaitReason
    message: str
    wake: int = Field(description="Version to give `changes` as `since`.")
    retry_after: float


class NextView(View):
    """What this person labels next: the items handed to them, or why there is none."""

    tasks: list[TaskView]
    waiting: WaitingView | None


class ReceiptView(View):
    """A vote that is stored."""

    id: str
    item: str
    label: int | None
    repeated: bool = Field(description="Whether this request had been stored before.")
    changed: bool
    batch_complete: bool


class VotedView(View):
    """A stored vote, and what comes next."""

    vote: ReceiptView
    next: NextView


class VersionView(View):
    """The campaign's version now."""

    version: int


class NextForm(Form):
    """How many items to hold at once: one to see, the others so that they are there already."""

    n: int = Field(2, ge=1, le=10)


class VoteForm(Form):
    """A vote on an item."""

    item: Key
    label: int | str | None = Field(
        description="Class by position (from 0) or by name; null: ambiguous.", examples=[0, "cat"]
    )
    note: Annotated[str, StringConstraints(max_length=2000)] | None = None
    seconds: float | None = Field(None, ge=0, le=86400, allow_inf_nan=False, description="How long it took.")
    request_id: Annotated[str, StringConstraints(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")] | None = (
        Field(None, description="The same for each attempt to send this vote: it is stored once.")
    )
    blind: bool = Field(False, description="Whether the person had switched the suggestion off.")
    n: int = Field(2, ge=1, le=10, description="Items to hold next.")


class ItemForm(Form):
    """An item by its key."""

    item: Key


class SkipForm(ItemForm):
    """An item to leave to others."""

    n: int = Field(2, ge=1, le=10)


class ResolveForm(ItemForm):
    """The lead's decision on an item."""

    label: int | str = Field(description="Class by position (from 0) or by name.", examples=[0, "cat"])


class SignInForm(Form):
    """Name and password."""

    name: Name
    password: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class AccountView(View):
    """Someone who may sign in."""

    name: str
    role: Role
    active: bool
    created_at: datetime


class SessionView(View):
    """Who is signed in."""

    account: AccountView
    csrf: str | None = Field(description="To send as X-CSRF-Token with every change; null for API tokens.")


class AccountForm(Form):
    """A new account."""

    name: Name
    role: Role = Field(Role.ANNOTATOR, strict=False)
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)]


class AccountChange(Form):
    """What to change of an account."""

    active: bool | None = None
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)] | None = None


class PasswordForm(Form):
    """A new password for oneself."""

    current: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    password: Annotated[str, StringConstraints(min_length=10, max_length=1000)]


class TokenForm(Form):
    """A new API token."""

    label: Name


class TokenView(View):
    """An API token, without its secret."""

    id: str
    label: str
    created_at: datetime
    last_used_at: datetime | None = None


class NewTokenView(TokenView):
    """A new API token; the secret is shown this once."""

    secret: str


class SettingsForm(Form):
    """Settings to change while a campaign runs; what is left out stays."""

    batch_size: int | None = Field(None, ge=1, le=100000)
    budget: int | None = Field(None, ge=1, le=2**31 - 1)
    target: float | None = Field(None, allow_inf_nan=False)
    target_metric: Name | None = None
    ahead: int | None = Field(None, ge=0, le=100000)
    blind_share: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    blind: bool | None = None
    lease_minutes: float | None = Field(None, gt=0, le=10000, allow_inf_nan=False)

    def changes(self) -> dict[str, Any]:
        """What was sent; null clears a budget or a target and is nothing for the others."""
        sent = self.model_dump(exclude_unset=True)
        return {k: v for k, v in sent.items() if v is not None or k in ("budget", "target")}


class CampaignSettingsForm(Form):
    """Settings of a new campaign; what is left out has its default."""

    selector: Name | None = None
    look_ahead: bool | None = None
    constructor: Name | None = None
    gamma: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    l2: float | None = Field(None, gt=0, le=1e9, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, le=2**31 - 1)
    people: int | None = Field(None, ge=0, le=1000)
    suggestion_votes: bool | None = None
    batch_size: int | None = Field(None, ge=1, le=100000)
    budget: int | None = Field(None, ge=1, le=2**31 - 1)
    target: float | None = Field(None, allow_inf_nan=False)
    target_metric: Name | None = None
    ahead: int | None = Field(None, ge=0, le=100000)
    blind_share: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    blind: bool | None = None
    lease_minutes: float | None = Field(None, gt=0, le=10000, allow_inf_nan=False)

    def settings(self) -> domain.CampaignSettings:
        """As the services take them."""
        sent = self.model_dump(exclude_unset=True)
        kept = {k: v for k, v in sent.items() if v is not None or k in ("budget", "target")}
        return domain.CampaignSettings.of(kept)


class FolderForm(Form):
    """A campaign from a folder on the server."""

    name: Name
    folder: Key
    settings: CampaignSettingsForm = Field(default_factory=CampaignSettingsForm)


class SettingsView(View):
    """All settings of a campaign."""

    selector: str
    look_ahead: bool
    constructor: str
    gamma: float
    l2: float
    seed: int
    people: int
    suggestion_votes: bool
    batch_size: int
    budget: int | None
    target: float | None
    target_metric: str
    ahead: int
    blind_share: float
    blind: bool
    lease_minutes: float


class RoundView(View):
    """A round as it stands."""

    number: int
    kind: RoundKind
    state: RoundState
    size: int
    ahead: int
    spent: int
    validation: dict[str, float] | None
    test: dict[str, float] | None
    seconds: dict[str, float]
    opened_at: datetime
    closed_at: datetime | None


class ItemProgressView(View):
    """How far an item of the open batch is."""

    item: str
    rank: int
    votes: int
    needed: int
    leased: int
    decided: bool


class OpenRoundView(View):
    """The round people vote on."""

    number: int
    state: RoundState
    complete: int
    items: list[ItemProgressView]


class PersonStatsView(View):
    """What a person did in a campaign."""

    person: str
    votes: int
    ambiguous: int
    seconds: float | None
    last_vote_at: datetime | None


class StatusView(View):
    """A campaign in full."""

    summary: CampaignView
    settings: SettingsView
    classes: list[str]
    rounds: list[RoundView]
    open_round: OpenRoundView | None
    people: list[PersonStatsView]
    members: list[str]
    conflicts: int
    pending: int = Field(description="Decisions that wait for the next model.")


class ConflictVoteView(View):
    """A vote on an item in conflict."""

    person: str
    label: int | None
    note: str | None


class ConflictView(ItemView):
    """An item whose votes came to nothing."""

    round: int
    suggestion: int | None
    votes: list[ConflictVoteView]
    asked_again: bool


class LedgerView(View):
    """A line of the ledger."""

    id: str
    kind: str
    at: datetime
    who: str
    item: str | None
    round: int | None
    label: int | None
    what: dict[str, Any]


class ImportView(View):
    """What a file of votes came to."""

    counts: dict[str, int]
    dry_run: bool


class ReplayRoundView(View):
    """A round of the replay beside what the ledger has."""

    number: int
    agrees: bool


class ReplayView(View):
    """Whether the history, run again, comes to the same."""

    agrees: bool
    message: str
    rounds: list[ReplayRoundView]


class HealthView(View):
    """That the server answers, and its version."""

    status: str
    version: str


def image_address(campaign: str, key: str, content: domain.ItemContent) -> str | None:
    """Where the image of an item is served."""
    if content.image is None:
        return None
    return f"/api/campaigns/{quote(campaign, safe='')}/items/{quote(key, safe='')}/image"


def item_fields(campaign: str, key: str, content: domain.ItemContent) -> dict[str, Any]:
    """The part every view of an item shares."""
    return {
        "key": key,
        "text": content.text,
        "image": image_address(campaign, key, content),
        "fields": dict(content.fields),
    }


def task_view(campaign: str, task: domain.Task) -> TaskView:
    """A task; of a blind one only what is to be labelled."""
    near = () if task.blind else task.neighbours
    return TaskView(
        **item_fields(campaign, task.item, task.content),
        item=task.item,
        classes=list(task.classes),
        suggestion=None if task.blind else task.suggestion,
        blind=task.blind,
        influence=task.influence,
        weak=None if task.blind or task.weak is None else list(task.weak),
        rank=task.rank,
        round=task.round,
        origin=task.origin,
        votes_needed=task.votes_needed,
        neighbours=[
            NeighbourView(**item_fields(campaign, n.key, n.content), label=n.label, similarity=n.similarity)
            for n in near
        ],
        leased_until=task.leased_until,
        own_vote=None if task.own_vote is None else OwnVoteView.model_validate(task.own_vote),
    )


def next_view(campaign: str, answer: "Iterable[domain.Task] | domain.Waiting") -> NextView:
    """Tasks, or why there is none."""
    if isinstance(answer, domain.Waiting):
        return NextView(tasks=[], waiting=WaitingView.model_validate(answer))
    return NextView(tasks=[task_view(campaign, task) for task in answer], waiting=None)


def conflict_view(campaign: str, conflict: domain.ConflictItem) -> ConflictView:
    """An item in conflict with all its votes: for leads."""
    return ConflictView(
        **item_fields(campaign, conflict.item, conflict.content),
        round=conflict.round,
        suggestion=conflict.suggestion,
        votes=[ConflictVoteView(person=p, label=label, note=note) for p, label, note in conflict.votes],
        asked_again=conflict.asked_again,
    )


def page_view(page: "domain.Page[Any]", view: Callable[[Any], Entry]) -> "PageOf[Entry]":
    """A page of records as a page of views."""
    return PageOf(entries=[view(entry) for entry in page.entries], next=page.next)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping as a dictionary, for views."""
    return dict(values)
