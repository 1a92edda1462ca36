"""What the API returns: records of the domain as they are, and the few records that differ from them.

The domain knows nothing of pydantic, so two things are added to its records here: the docstrings of their attributes
describe them in the OpenAPI document, and some of their properties are part of the JSON.
"""

from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, computed_field, with_config

from labelchef.base import browsing, guidance
from labelchef.base import campaigns as domain
from labelchef.base.campaigns import Account, CampaignState, VoteReceipt, Waiting, WaitReason
from labelchef.base.duties import Duty
from labelchef.base.intake import ColumnRole, FileRole, Finding, Intake, IntakeState, PreviewRow, WaitingFiles, Working
from labelchef.base.jobs import Job
from labelchef.base.learning import InUse, SourceFacts
from labelchef.base.records import AskedCount
from labelchef.base.validation import AuditPoint, AuditReport, CalibrationError, Figure, Gain
from labelchef.believe.rules import RuleExample, RuleSetFacts
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
from labelchef.server.sources.source_effects import CampaignRules, EffectState, Progress, ShownBelief
from labelchef.server.sources.sources import SourceConflict, SourceDetail, SourceExample, SourcePage
from labelchef.server.web.markdown import rendered, summary
from labelchef.server.web.policies import Who

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
_SOURCES = (CampaignRules, ShownBelief, SourceConflict, SourceExample)
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
)
"""Properties of records that are part of the JSON."""
for _record, _name in _IN_JSON:
    setattr(_record, _name, computed_field(vars(_record)[_name]))


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


class ClassGuidelineView(RenderedView):
    """What is said of a class."""

    name: str
    text: str = Field(description="Markdown; empty where nothing is said.")
    summary: str = Field(description="The first paragraph as plain text, cut to some words.")


class GuidelinesView(RenderedView):
    """The guidelines of a campaign as they hold now."""

    version: int = Field(description="Counts the changes; 0: nothing was written yet.")
    seen: int = Field(description="The version that this person looked at last.")
    text: str = Field(description="Markdown, for the whole campaign.")
    classes: list[ClassGuidelineView]
    changed_at: datetime | None
    changed_by: str | None

    @classmethod
    def of(cls, found: guidance.Guidelines) -> "GuidelinesView":
        """Of the service's answer."""
        same = {name: getattr(found, name) for name in ("version", "seen", "text", "changed_at", "changed_by")}
        classes = [
            ClassGuidelineView(name=one.name, text=one.text, summary=summary(one.text), html=rendered(one.text))
            for one in found.classes
        ]
        return cls(html=rendered(found.text), classes=classes, **same)


class SourceView(BaseModel):
    """What is known of a source of weak labels; null where a number is not known."""

    name: str
    votes: int = Field(description="Samples it votes on, of those that can be asked about.")
    coverage: float = Field(description="Their share.")
    measured_on: int = Field(
        description="Samples of known class that nobody chose (trusted or drawn by chance) on which it votes."
    )
    accuracy: float | None = Field(description="Share of its votes on these that are right; null with too few.")
    accuracy_low: float = Field(description="95 % interval of it.")
    accuracy_high: float
    believed: float | None = Field(description="Share of all its votes that are right, as the model believes.")
    conflicts: float | None = Field(description="Share of its votes that differ from those of another source.")
    weight: float | None = Field(description="Mean log-odds that a vote adds for the class it names.")
    use: str = Field(
        description="'as it votes', 'turned', 'muted', 'counted', 'not used', 'muted by you', or what holds from the next model."
    )
    about: str = Field(description="The same as a sentence.")
    muting: float | None = Field(
        description="Predicted change of the cross-fitted loss if it were muted; above 0 it helps."
    )
    confusion: list[list[float | None]] = Field(
        description="[class][vote]: share of its votes on samples of a class, measured; null with too few."
    )
    confusion_low: list[list[float]]
    confusion_high: list[list[float]]
    believed_confusion: list[list[float]] = Field(description="The same of all its votes, as the model believes.")
    rule: bool = Field(description="Whether it is a rule that the campaign keeps, which can be edited.")

    @classmethod
    def of(cls, facts: SourceFacts, *, rule: bool) -> "SourceView":
        """Of the service's answer."""
        return cls.model_validate({**facts.as_json(), "about": facts.about, "rule": rule})


class SourcesView(BaseModel):
    """Some of the sources."""

    model: str = Field(
        description="The source model in use; 'none' if weak labels are not used; empty if nothing is learned."
    )
    total: int = Field(description="Sources in all.")
    found: int = Field(description="Sources that fit the search.")
    classes: list[str]
    notes: list[str] = Field(description="What a reader should know.")
    harmful: list[str] = Field(description="Sources that harm beyond doubt, the worst first.")
    sources: list[SourceView]

    @classmethod
    def of(cls, page: SourcePage) -> "SourcesView":
        """Of the service's answer."""
        report = page.report
        shown = [SourceView.of(one, rule=one.name in page.editable) for one in page.sources]
        return cls(
            model=report.model,
            total=report.total,
            found=page.found,
            classes=list(report.classes),
            notes=list(report.notes),
            harmful=[one.name for one in report.harmful],
            sources=shown,
        )


class SourceDetailView(BaseModel):
    """Everything that is known of one source."""

    source: SourceView
    classes: list[str]
    model: str
    muted: list[str] = Field(description="All sources that are muted by the settings as they are now.")
    conflicts: list[SourceConflict] = Field(description="Those it differs from most often, at most 20.")
    right: list[SourceExample] = Field(description="Clean items it is right on, some of them.")
    wrong: list[SourceExample]
    conflicting: list[SourceExample] = Field(description="Items on which another source says something else.")
    n_right: int
    n_wrong: int
    rule: dict[str, Any] | None = Field(description="The rule as a rules file has it; null where it is none.")

    @classmethod
    def of(cls, campaign: str, found: SourceDetail) -> "SourceDetailView":
        """Of the service's answer."""

        def shown(examples: Iterable[SourceExample]) -> list[SourceExample]:
            return [replace(one, content=with_address(campaign, one.item, one.content)) for one in examples]

        return cls(
            source=SourceView.of(found.facts, rule=found.rule is not None),
            classes=list(found.classes),
            model=found.model,
            muted=list(found.muted),
            conflicts=list(found.conflicts),
            right=shown(found.right),
            wrong=shown(found.wrong),
            conflicting=shown(found.conflicting),
            n_right=found.n_right,
            n_wrong=found.n_wrong,
            rule=None if found.rule is None else dict(found.rule),
        )


class SourceEffectView(BaseModel):
    """The model as it is beside the one that would be made."""

    gains: dict[str, dict[str, Gain]] = Field(description="By split and metric, with a paired 95 % interval.")
    kept: dict[str, dict[str, Gain]] = Field(
        description="The same with source model and strengths as they are now; empty where these do not change."
    )
    baselines: dict[str, dict[str, dict[str, float]]] = Field(
        description="By split: 'trusted_only', a model of the trusted samples alone, and 'no_weak', of all clean ones."
    )
    unanswered: int
    believed: int = Field(description="Unanswered items of which another class would be believed.")
    predicted: int = Field(description="Unanswered items of which another class would be predicted.")
    in_use_before: str
    in_use_after: str
    closed_form: float | None = Field(description="Change of the loss that the closed form predicts, for muting alone.")
    seconds: float

    @classmethod
    def of(cls, found: SourceEffect) -> "SourceEffectView":
        """Of what was computed."""
        return cls.model_validate({**found.as_json(), "gains": found.gains, "kept": found.kept})


class EffectView(BaseModel):
    """What other sources would change: how far it is computed, and what came of it."""

    muted: list[str]
    rules: list[dict[str, Any]] | None
    state: EffectState
    stage: str = Field(description="What is being computed.")
    seconds: float
    problem: str | None
    stale: bool = Field(description="Whether the campaign has moved on since.")
    effect: "SourceEffectView | None"
    shown: list[ShownBelief]

    @classmethod
    def of(cls, campaign: str, found: Progress) -> "EffectView":
        """Of the service's answer."""
        return cls(
            muted=list(found.proposal.muted),
            rules=None if found.proposal.rules is None else [dict(one) for one in found.proposal.rules],
            state=found.state,
            stage=found.stage,
            seconds=round(found.seconds, 2),
            problem=found.problem,
            stale=found.stale,
            effect=None if found.effect is None else SourceEffectView.of(found.effect),
            shown=[replace(one, content=with_address(campaign, one.item, one.content)) for one in found.shown],
        )


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


class FileView(BaseModel):
    """How a file is used."""

    path: str = Field(description="Relative to the folder of the files.")
    role: FileRole
    columns: dict[str, ColumnRole] = Field(description="Column → role, in their order.")
    why: str = Field(description="Why it got its role; 'given' where the user said so.")


class PreviewView(BaseModel):
    """What would be made of the files."""

    usable: bool = Field(description="Whether a campaign can be made.")
    classes: list[str]
    n_train: int
    n_trusted: int
    n_test: int
    sources: list[str]
    content: dict[str, ColumnRole] = Field(description="Column of the joined rows → text, image, feature or shown.")
    rows: list[PreviewRow]
    findings: list[Finding]


class IntakeView(BaseModel):
    """Files on their way to a campaign."""

    id: str
    by: str
    created_at: datetime
    state: IntakeState
    files: list[FileView] = Field(description="Empty until roles were detected.")
    by_position: bool
    rows_are_ids: bool
    fold_case: bool
    preview: PreviewView | None = Field(description="Null while files are read, or where they cannot be joined.")
    working: Working | None = Field(description="What is being done just now.")
    problem: str | None = Field(description="Why the last step failed, and what to do; the files are kept.")
    campaign: str | None = Field(description="The campaign's slug, once it is made.")
    rules: list[dict[str, Any]] = Field(description="Rules that were made on the page, each as a rules file has it.")

    @classmethod
    def of(cls, intake: Intake) -> "IntakeView":
        """Of the service's answer."""
        found = intake.preview
        plan = intake.plan if found is None else found.plan
        files = () if plan is None else plan.files
        return cls(
            **{
                name: getattr(intake, name)
                for name in ("id", "by", "created_at", "state", "working", "problem", "campaign", "rows_are_ids")
            },
            files=[FileView(path=one.path, role=one.role, columns=dict(one.columns), why=one.why) for one in files],
            by_position=plan is not None and plan.by_position,
            fold_case=plan is not None and plan.fold_case,
            rules=[dict(one) for one in intake.rules],
            preview=None
            if found is None
            else PreviewView(
                usable=found.usable,
                classes=list(found.classes),
                n_train=found.n_train,
                n_trusted=found.n_trusted,
                n_test=found.n_test,
                sources=list(found.sources),
                content=dict(found.content),
                rows=list(found.rows),
                findings=list(found.findings),
            ),
        )


class RuleFactsView(BaseModel):
    """What is known of a rule on training and trusted rows."""

    name: str
    n_rows: int
    n_votes: int = Field(description="Rows it votes on.")
    n_conflicts: int = Field(description="Of these, rows on which another rule votes for another class.")
    n_trusted: int = Field(description="Trusted rows it votes on.")
    n_right: int = Field(description="Of these, rows it is right on.")
    low: float = Field(description="95 % interval of the share that is right.")
    high: float
    chance: float | None = Field(description="What the same votes would score on rows drawn at random.")
    examples: list[RuleExample]
    mistakes: list[RuleExample] = Field(description="Trusted rows it is wrong on.")
    problem: str | None = Field(description="Why the rule cannot be used.")


class RulesView(BaseModel):
    """What is known of rules, alone and together."""

    rules: list[RuleFactsView]
    n_rows: int
    n_covered: int = Field(description="Rows on which a rule votes.")
    n_conflicts: int = Field(description="Rows on which two rules vote for different classes.")

    @classmethod
    def of(cls, facts: RuleSetFacts) -> "RulesView":
        """Of the service's answer."""
        same = ("name", "n_rows", "n_votes", "n_conflicts", "n_trusted", "n_right", "chance", "problem")
        rules = [
            RuleFactsView(
                **{name: getattr(one, name) for name in same},
                low=one.interval[0],
                high=one.interval[1],
                examples=list(one.examples),
                mistakes=list(one.mistakes),
            )
            for one in facts.rules
        ]
        return cls(rules=rules, n_rows=facts.n_rows, n_covered=facts.n_covered, n_conflicts=facts.n_conflicts)


class SuggestionView(BaseModel):
    """A rule to say yes or no to."""

    rule: dict[str, Any] = Field(description="As a rules file has it; if it is useful, add it to the rules.")
    probability: float = Field(description="How probable it is, after the answers so far, that it is useful.")
    matched: int = Field(description="Training rows that it votes on.")
    coverage: float = Field(description="Their share.")
    new: int = Field(description="Of these, rows that no useful rule votes on yet.")
    conflicts: int = Field(description="Of these, rows on which a useful rule votes for another class.")
    trusted_matched: int
    trusted_right: int
    texts: list[str] = Field(description="Some of the rows.")
    answered: int = Field(description="Answers so far.")

    @classmethod
    def of(cls, found: Suggestion) -> "SuggestionView":
        """Of the service's answer."""
        same = ("probability", "matched", "coverage", "new", "conflicts", "trusted_matched", "trusted_right")
        values = {name: getattr(found.proposal, name) for name in same}
        return cls(rule=dict(found.rule), texts=list(found.texts), answered=found.answered, **values)


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
