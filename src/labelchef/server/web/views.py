"""What the API returns: records of the domain as they are, and the few records that differ from them.

The domain knows nothing of pydantic, so two things are added to its records here: the docstrings of their attributes
describe them in the OpenAPI document, and some of their properties are part of the JSON.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field, with_config

from labelchef.base import browsing, guidance
from labelchef.base import campaigns as domain
from labelchef.base.campaigns import Account, CampaignState, VoteReceipt, Waiting, WaitReason
from labelchef.base.duties import Duty
from labelchef.base.intake import FilePlan, Finding, Intake, Preview, PreviewRow, WaitingFiles, Working
from labelchef.base.jobs import Job
from labelchef.base.learning import InUse, SourceFacts
from labelchef.base.records import AskedCount, Metrics
from labelchef.base.validation import AuditPoint, AuditReport, CalibrationError, Figure, Gain
from labelchef.believe.rules import RuleExample, RuleFacts, RuleSetFacts, rule_values
from labelchef.judge.accuracy import Interval, PullEstimate
from labelchef.loop.rebuild import ReplayedRound
from labelchef.loop.source_effect import SourceEffect
from labelchef.server.campaigns.trained import ReplayOutcome
from labelchef.server.intake.rules import Suggestion
from labelchef.server.labelling.gold import image_mark
from labelchef.server.people.accounts import ApiTokenInfo
from labelchef.server.people.quality import (
    DoubtedLabel,
    OwnDifference,
    OwnRound,
    OwnWork,
    PersonReport,
    QualityReport,
    Times,
    WrongGold,
)
from labelchef.server.sources.source_effects import CampaignRules, Progress, ShownBelief
from labelchef.server.sources.sources import ListedSource, SourceConflict, SourceDetail, SourceExample, SourcePage
from labelchef.server.web.markdown import rendered, summary
from labelchef.server.web.policies import Who

Shown = TypeVar("Shown", SourceExample, ShownBelief)
_OF_DOMAIN = (*vars(domain).values(), *vars(guidance).values(), *vars(browsing).values())
_RECORDS = {one: None for one in _OF_DOMAIN if is_dataclass(one) and isinstance(one, type)}
_FOUND = (
    AskedCount,
    AuditPoint,
    AuditReport,
    CalibrationError,
    Figure,
    Gain,
    InUse,
)
_FILES = (Finding, PreviewRow, RuleExample, WaitingFiles, Working)
_SOURCES = (CampaignRules, ListedSource, Progress, ShownBelief, SourceConflict, SourceDetail, SourceExample, SourcePage)
_PEOPLE = (
    Interval,
    PullEstimate,
    Duty,
    DoubtedLabel,
    OwnDifference,
    OwnRound,
    OwnWork,
    PersonReport,
    QualityReport,
    Times,
)
for _record in (
    *_RECORDS,
    *_FOUND,
    *_FILES,
    *_SOURCES,
    *_PEOPLE,
    WrongGold,
    ApiTokenInfo,
    Job,
    ReplayOutcome,
    ReplayedRound,
):
    with_config(ConfigDict(use_attribute_docstrings=True))(_record)
_IN_JSON = (
    (Gain, "change"),
    (Gain, "doubt"),
    (domain.OpenRound, "complete"),
    (ReplayedRound, "agrees"),
    (PullEstimate, "told"),
    (SourceFacts, "about"),
    (Preview, "usable"),
    (Intake, "files"),
    (Intake, "by_position"),
    (Intake, "fold_case"),
    (RuleFacts, "low"),
    (RuleFacts, "high"),
)
"""Properties of records that are part of the JSON."""
for _record, _name in _IN_JSON:
    setattr(_record, _name, computed_field(vars(_record)[_name]))


def _html(self: guidance.ClassGuideline | guidance.Guidelines) -> str:
    """The text as HTML."""
    return rendered(self.text)


def _summary(self: guidance.ClassGuideline) -> str:
    """The first paragraph as plain text, cut to some words."""
    return summary(self.text)


_RENDERED = (
    (guidance.ClassGuideline, "html", _html),
    (guidance.ClassGuideline, "summary", _summary),
    (guidance.Guidelines, "html", _html),
)
for _record, _name, _found in _RENDERED:
    setattr(_record, _name, computed_field(property(_found)))

_HIDDEN = Annotated[Any, Field(exclude=True)]
_NUMBER = Annotated[float, PlainSerializer(lambda value: value if math.isfinite(value) else None, float | None)]
"""Null where it is not known."""
_TEXT = Annotated[Any, PlainSerializer(lambda value: str(value or ""), str)]
_METRICS = Annotated[Any, PlainSerializer(Metrics.as_dict, dict[str, float])]
_RULE = Annotated[Any, PlainSerializer(rule_values, dict[str, Any])]
_AS: Mapping[type[Any], Mapping[str, Any]] = {
    SourceFacts: dict.fromkeys(("accuracy", "believed", "conflicts", "weight", "muting"), _NUMBER),
    SourceEffect: {
        **dict.fromkeys(("before", "after", "shown", "parameters"), _HIDDEN),
        **dict.fromkeys(("in_use_before", "in_use_after"), _TEXT),
        "baselines": Mapping[str, Mapping[str, _METRICS]],
        "closed_form": _NUMBER,
    },
    FilePlan: {"said": _HIDDEN},
    Preview: {"plan": _HIDDEN},
    Intake: {"plan": _HIDDEN},
    RuleFacts: dict.fromkeys(("labels", "n_overlaps", "unreadable"), _HIDDEN),
    RuleSetFacts: dict.fromkeys(("n_trusted", "n_right"), _HIDDEN),
    Suggestion: {"rule": _RULE, "rows": _HIDDEN},
}
"""Fields of records that the JSON has otherwise, or not at all."""
for _record, _changed in _AS.items():
    with_config(ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True))(_record)
    for _field in fields(_record):
        _field.type = _changed.get(_field.name, _field.type)


class NextView(BaseModel):
    """What this person labels next: the items reserved for them, or why there is none."""

    tasks: list[domain.Task]
    waiting: Waiting | None


class VotedView(BaseModel):
    """A stored vote, and what comes next."""

    vote: VoteReceipt
    next: NextView


class RenderedView(BaseModel):
    """A Markdown text as HTML."""

    html: str


class AppliedView(BaseModel):
    """Sources that are used from the next model on."""

    muted: list[str]
    version: int = Field(description="Of the rules.")


class VersionView(BaseModel):
    """The campaign's version now."""

    version: int


class SessionView(BaseModel):
    """Who is signed in."""

    account: Account
    csrf: str | None = Field(description="To send as X-CSRF-Token with every change; null for API tokens.")


@dataclass(frozen=True)
class NewTokenView(ApiTokenInfo):
    """A new API token; the secret is shown only once."""

    secret: str


class HealthView(BaseModel):
    """That the server answers, and its version."""

    status: str
    version: str


FAILED = "the campaign stopped with an error; ask a lead, who can see the error"
"""The message of a failed campaign for annotators: the error itself may name files of the server."""


def shown_to(who: Who, summary: domain.CampaignSummary) -> domain.CampaignSummary:
    """A campaign as this person may see it."""
    if who.may_lead:
        return summary
    message = FAILED if summary.state is CampaignState.FAILED else summary.message
    if any(one.code == "folder" for one in summary.notices):
        message = "the folder of the campaign is missing on the server; votes are kept. Tell a lead"
    return replace(summary, message=message, notices=())


def with_address(campaign: str, key: str, content: domain.ItemContent) -> domain.ItemContent:
    """What people see of an item, with the addresses of its images on this server."""
    if not content.images:
        return content
    first = image_address(campaign, key)
    mark = f"v={image_mark(content.images[0])}"
    images = tuple(f"{first}?number={k}&{mark}" if k else f"{first}?{mark}" for k in range(len(content.images)))
    return replace(content, image=images[0], images=images)


def with_addresses(campaign: str, items: Iterable[Shown]) -> tuple[Shown, ...]:
    """The same items, with the addresses of their images on this server."""
    return tuple(replace(one, content=with_address(campaign, one.item, one.content)) for one in items)


def image_address(campaign: str, key: str) -> str:
    """Where this server gives the first image of an item."""
    return f"/api/campaigns/{quote(campaign, safe='')}/items/{quote(key, safe='')}/image"


def task_view(campaign: str, task: domain.Task) -> domain.Task:
    """A task with the addresses of its images."""
    near = tuple(replace(one, content=with_address(campaign, one.key, one.content)) for one in task.neighbours)
    return replace(task, content=with_address(campaign, task.item, task.content), neighbours=near)


def next_view(who: Who, campaign: str, answer: Iterable[domain.Task] | Waiting) -> NextView:
    """Tasks, or why there is none."""
    if isinstance(answer, Waiting):
        if answer.reason is WaitReason.FAILED and not who.may_lead:
            answer = replace(answer, message=FAILED)
        return NextView(tasks=[], waiting=answer)
    return NextView(tasks=[task_view(campaign, task) for task in answer], waiting=None)
