"""What the API gives: JSON shapes over the records of the domain."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from labelchef.domain import campaigns as domain
from labelchef.domain.campaigns import CampaignState, Origin, Role, RoundKind, RoundState, WaitReason
from labelchef.web.identity import Who

Entry = TypeVar("Entry")


class View(BaseModel):
    """Base of what goes out."""

    model_config = ConfigDict(from_attributes=True)


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
    suggestion: int | None = Field(
        description="Position of the class labelchef suggests; null if blind, or if the selector suggests nothing."
    )
    blind: bool
    influence: float | None = Field(
        description="N times the predicted change of the validation loss; negative helps. Null if blind or not predicted."
    )
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


class TokenView(View):
    """An API token, without its secret."""

    id: str
    label: str
    created_at: datetime
    last_used_at: datetime | None = None


class NewTokenView(TokenView):
    """A new API token; the secret is shown this once."""

    secret: str


class SettingsView(View):
    """All settings of a campaign."""

    selector: str
    look_ahead: bool
    constructor: str
    gamma: float
    l2: float
    holdout: float | str
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


class GainView(View):
    """A model against the first one, on samples that selection never saw, with a 95 % interval of the difference."""

    before: float
    after: float
    low: float
    high: float
    samples: int
    rarest: int = Field(description="Samples of the rarest class among them.")
    doubt: str | None = Field(description="Why they are too few to judge by; null where they are not.")


class RoundView(View):
    """A round as it stands."""

    number: int
    kind: RoundKind
    state: RoundState
    size: int
    ahead: int
    spent: int
    validation: dict[str, float] | None = Field(description="On the samples that judge, else on those that steer.")
    steering: dict[str, float] | None = Field(description="On the validation samples that selection sees.")
    gain: dict[str, GainView] | None = Field(description="By metric, on the samples that judge; null where none does.")
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


class DifferenceView(View):
    """Of an area, from that of the campaign's own order, with a 95 % interval."""

    change: float
    low: float
    high: float


class StandingView(View):
    """How a selector did; of one that draws chance, on average over its repeats."""

    selector: str
    repeats: int
    curve: list[float] = Field(description="The metric at each point of `asked`.")
    after: list[float] = Field(description="The metric after 25, 50, 75 and 100 % of the labels.")
    area: float = Field(description="Mean of the metric on the way.")
    area_half: float | None = Field(description="Half of its 95 % interval over the repeats.")
    difference: DifferenceView | None
    verdict: str | None
    labels_to_reach: float | None = Field(description="Labels until `level`; null if it is not reached.")
    suggestion_share: float | None = Field(description="Share of suggestions that equal the answer.")
    seconds: float = Field(description="Spent on choosing.")


class ComparisonView(View):
    """Selectors replayed on the labels of a campaign, the best area first."""

    metric: str
    split: str
    samples: int
    labels: int
    unanswered: int
    batch_size: int
    asked: list[int]
    level: float = Field(description="The metric at the end of the campaign's own order, 'as asked'.")
    standings: list[StandingView]
    notes: list[str]


class HealthView(View):
    """That the server answers, and its version."""

    status: str
    version: str


_FAILED = "the campaign met an error and cannot go on by itself; a lead can see which"
"""What all but leads are told of a failed campaign: the error may name files of the server."""


def shown_to(who: Who, summary: domain.CampaignSummary) -> domain.CampaignSummary:
    """A campaign as this person may see it."""
    if summary.state is CampaignState.FAILED and not who.is_lead:
        return replace(summary, message=_FAILED)
    return summary


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


def next_view(who: Who, campaign: str, answer: "Iterable[domain.Task] | domain.Waiting") -> NextView:
    """Tasks, or why there is none."""
    if isinstance(answer, domain.Waiting):
        if answer.reason is WaitReason.FAILED and not who.is_lead:
            answer = replace(answer, message=_FAILED)
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
