"""What the API returns: records of the domain as they are, and the few records that differ from them.

The domain knows nothing of pydantic, so two things are added to its records here: the docstrings of their attributes
describe them in the OpenAPI document, and some of their properties are part of the JSON.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, computed_field, with_config

from labelchef.campaign.rebuild import ReplayedRound
from labelchef.domain import campaigns as domain
from labelchef.domain.campaigns import Account, CampaignState, Origin, OwnVote, VoteReceipt, Waiting, WaitReason
from labelchef.domain.comparisons import Comparison, Standing
from labelchef.domain.validation import Gain
from labelchef.services.people.accounts import ApiTokenInfo
from labelchef.services.replaying import ReplayOutcome
from labelchef.web.identity import Who

_RECORDS: dict[type, tuple[str, ...]] = {
    Account: (),
    ApiTokenInfo: (),
    domain.CampaignStatus: (),
    domain.CampaignSummary: (),
    Comparison: (),
    Gain: ("change", "doubt"),
    domain.ItemProgress: (),
    domain.LedgerEntry: (),
    domain.OpenRound: ("complete",),
    OwnVote: (),
    domain.Page: (),
    domain.PersonStats: (),
    ReplayOutcome: (),
    ReplayedRound: ("agrees",),
    domain.RoundSummary: (),
    Standing: ("verdict",),
    VoteReceipt: (),
    Waiting: (),
}
"""Record → its properties that are part of the JSON."""
for _record, _properties in _RECORDS.items():
    with_config(ConfigDict(use_attribute_docstrings=True))(_record)
    for _name in _properties:
        setattr(_record, _name, computed_field(vars(_record)[_name]))


class ItemView(BaseModel):
    """What people see of an item."""

    key: str
    text: str | None
    image: str | None = Field(description="Address of the image on this server.")
    fields: dict[str, Any]


class NeighbourView(ItemView):
    """A validation item near the one to label, with its trusted label."""

    label: str
    similarity: float


class TaskView(ItemView):
    """An item to label. If it is shown blind, it holds nothing of the model."""

    item: str
    classes: list[str]
    suggestion: int | None = Field(
        description="Position of the suggested class; null if blind, or if the selector suggests nothing."
    )
    blind: bool
    influence: float | None = Field(
        description="N times the predicted change of the validation loss; negative is better. Null if blind or not predicted."
    )
    weak: list[float] | None = Field(description="The weak label, a probability for each class; null if blind.")
    rank: int
    round: int
    origin: Origin
    votes_needed: int
    neighbours: list[NeighbourView]
    leased_until: datetime | None
    own_vote: OwnVote | None


class NextView(BaseModel):
    """What this person labels next: the items reserved for them, or why there is none."""

    tasks: list[TaskView]
    waiting: Waiting | None


class VotedView(BaseModel):
    """A stored vote, and what comes next."""

    vote: VoteReceipt
    next: NextView


class VersionView(BaseModel):
    """The campaign's version now."""

    version: int


class SessionView(BaseModel):
    """Who is signed in."""

    account: Account
    csrf: str | None = Field(description="To send as X-CSRF-Token with every change; null for API tokens.")


class NewTokenView(BaseModel):
    """A new API token; the secret is shown only once."""

    id: str
    label: str
    created_at: datetime
    secret: str


class ConflictVoteView(BaseModel):
    """A vote on an item in conflict."""

    person: str
    label: int | None
    note: str | None


class ConflictView(ItemView):
    """An item whose votes led to no decision."""

    round: int
    suggestion: int | None
    votes: list[ConflictVoteView]
    asked_again: bool


class ImportView(BaseModel):
    """What was done with a file of votes."""

    counts: dict[str, int]
    dry_run: bool


class HealthView(BaseModel):
    """That the server answers, and its version."""

    status: str
    version: str


_FAILED = "the campaign stopped with an error; ask a lead, who can see the error"
"""The message of a failed campaign for annotators: the error itself may name files of the server."""


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
    """The fields that every view of an item has."""
    return {
        "key": key,
        "text": content.text,
        "image": image_address(campaign, key, content),
        "fields": dict(content.fields),
    }


def task_view(campaign: str, task: domain.Task) -> TaskView:
    """A task; if it is blind, without anything of the model."""
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
        own_vote=task.own_vote,
    )


def next_view(who: Who, campaign: str, answer: Iterable[domain.Task] | Waiting) -> NextView:
    """Tasks, or why there is none."""
    if isinstance(answer, Waiting):
        if answer.reason is WaitReason.FAILED and not who.is_lead:
            answer = replace(answer, message=_FAILED)
        return NextView(tasks=[], waiting=answer)
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
