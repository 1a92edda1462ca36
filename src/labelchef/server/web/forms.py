"""What requests bring: records that are checked before any service is called.

The models of the settings are derived from `base.settings.OPTIONS`, so that a new setting needs no change here. Types,
bounds, choices and defaults are in the models, and so in the OpenAPI document. What depends on several settings, or on
what is installed, is checked by `Settings` and the services.
"""

import math
from dataclasses import MISSING, dataclass, fields
from dataclasses import Field as DataclassField
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Path, Query, UploadFile
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    StringConstraints,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from labelchef.base.browsing import Action, Asked, Disagreement, ItemState, SortBy
from labelchef.base.campaigns import FILE_NAMES, CampaignFiles, Role, SplitName
from labelchef.base.guidance import LONGEST_COMMENT, LONGEST_TEXT
from labelchef.base.intake import ColumnRole, FileRole
from labelchef.base.jobs import JobKind
from labelchef.base.settings import AUTO, OPTIONS, Option, Settings
from labelchef.server.intake.steps import Correction

MEDIA = "media"
"""The part that may hold several files: the images."""
WEAK = "weak"
CampaignPath = Annotated[str, Path(description="Slug or id of the campaign.", max_length=200)]
ItemPath = Annotated[str, Path(description="Key of the item; it may hold slashes.", max_length=500)]
AccountPath = Annotated[str, Path(description="Name of the account.", max_length=200)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
CampaignName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500)]
RequestId = Annotated[str, StringConstraints(min_length=8, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
Password = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
NewPassword = Annotated[str, StringConstraints(min_length=10, max_length=1000)]


MOST_NAMES = 10_000
"""Names in a setting that holds several."""
_MOST_UNKNOWN = 20
"""Unknown names of one record that are told one by one; with more, the record is refused as a whole."""


class Form(BaseModel):
    """Base of the records that requests bring: unknown names are refused, numbers must be numbers, texts hold no null character.

    Errors are bounded: a record of thousands of unknown names gives one error, not thousands.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _bounded(cls, sent: object) -> object:
        if isinstance(sent, dict) and len(sent) > len(cls.model_fields) + _MOST_UNKNOWN:
            told = "{count} names; expected at most {most}"
            raise PydanticCustomError("too_many_names", told, {"count": len(sent), "most": len(cls.model_fields)})
        if holds_null(sent):
            raise PydanticCustomError("null_character", "a text holds a null character, which cannot be stored")
        return sent


def holds_null(sent: object) -> bool:
    """Whether a text in a JSON value holds a null character; names count too.

    >>> holds_null({"a": ["b", {"c\\x00": 1}]}), holds_null({"a": [None, 1.5, "b"]})
    (True, False)
    """
    left = [sent]
    while left:
        one = left.pop()
        if isinstance(one, str):
            if "\x00" in one:
                return True
        elif isinstance(one, dict):
            left.extend(one)
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return False


class SettingsForm(Form):
    """Settings by name; those left out are unset."""

    def given(self) -> dict[str, Any]:
        """Name → value of the settings that were sent."""
        return self.model_dump(exclude_unset=True)


def _type(option: Option) -> Any:
    found: Any = option.kind
    if option.choices:
        found = Literal[option.choices]
    elif option.kind is tuple:
        name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
        found = Annotated[list[name], Field(max_length=MOST_NAMES)]
    elif option.kind is str:
        found = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    elif option.kind is not bool:
        bounds = {"ge": option.least, "le": option.most, "gt": option.above, "lt": option.below}
        kept: dict[str, Any] = {name: option.kind(bound) for name, bound in bounds.items() if math.isfinite(bound)}
        if option.kind is float:
            kept["allow_inf_nan"] = False
        found = Annotated[option.kind, Field(**kept)]
    if option.auto:
        found = found | Literal[AUTO]
    return found | None if option.none else found


def _settings(name: str, about: str, defaults: dict[str, Any]) -> type[SettingsForm]:
    """A model of the settings in `defaults`, none of them required."""
    described: dict[str, Any] = {}
    for key, default in defaults.items():
        option = OPTIONS[key]
        told = f"{option.help} Null: {option.none}." if option.none else option.help
        described[key] = _type(option), Field(default=default, title=option.title, description=told)
    return create_model(name, __base__=SettingsForm, __doc__=about, **described)


if TYPE_CHECKING:
    NewSettings = SettingsForm
    ChangedSettings = SettingsForm
else:
    NewSettings = _settings(
        "NewSettings",
        "Settings of a new campaign; those left out have their default.",
        {one.name: one.default for one in fields(Settings)},
    )
    ChangedSettings = _settings(
        "ChangedSettings",
        "Settings to change while a campaign runs; those left out stay as they are.",
        {name: None for name, option in OPTIONS.items() if option.changeable},
    )


class SettingsChange(ChangedSettings):
    """Settings to change, with what the lead saw before."""

    seen: ChangedSettings | None = Field(
        None, description="Settings as the lead saw them: a change of one that differs by now is refused."
    )

    def given(self) -> dict[str, Any]:
        """Name → value of the settings that were sent."""
        return self.model_dump(exclude_unset=True, exclude={"seen"})


class NextForm(Form):
    """How many items to reserve: one to show, the others to have them loaded."""

    n: int = Field(2, ge=1, le=10, description="Items to reserve next.")


class ItemForm(Form):
    """An item by its key."""

    item: Key


class VoteForm(ItemForm, NextForm):
    """A vote on an item."""

    label: int | str | None = Field(
        description="Class by position (from 0) or by name; null: ambiguous.", examples=[0, "cat"]
    )
    note: Annotated[str, StringConstraints(max_length=2000)] | None = None
    seconds: float | None = Field(None, ge=0, le=86400, allow_inf_nan=False, description="How long it took.")
    request_id: RequestId | None = Field(
        None, description="Use the same one for each attempt: the vote is stored once."
    )
    blind: bool = Field(False, description="Whether the person had switched the suggestion off.")


class UndoForm(Form):
    """A request to take the last vote back."""

    request_id: RequestId | None = Field(
        None, description="Use the same one for each attempt: only one vote is taken back."
    )


class SkipForm(ItemForm, NextForm):
    """An item to leave to others."""


class PersonForm(Form):
    """A person by name."""

    person: Name


class ResolveForm(ItemForm):
    """The lead's decision on an item."""

    label: int | str = Field(description="Class by position (from 0) or by name.", examples=[0, "cat"])
    seen: int | str | None = Field(
        None, description="Its label as the lead saw it, null for none; left out: a decision made since is overruled."
    )


_Class = Annotated[str, Query(max_length=500, description="Class by name, or by position from 0.")]


def _words(*kinds: object) -> str:
    return ", ".join(str(one) for one in kinds)


@dataclass(frozen=True)
class QueryForm:
    """Filters of the list of items, as its address has them; those left out or empty are no condition."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    q: Annotated[
        str, Query(max_length=1000, description='Words, `word*` and "phrases" in text, key and fields; or a key.')
    ] = ""
    split: Annotated[str, Query(max_length=20, description=_words(*SplitName))] = ""
    predicted: _Class = ""
    label: _Class = ""
    believed: _Class = ""
    weak: _Class = ""
    disagree: Annotated[str, Query(max_length=40, description=_words(*Disagreement))] = ""
    suspect: Annotated[bool, Query(description="Labels that the model finds improbable.")] = False
    source: Annotated[str, Query(max_length=1000, description="A source that votes on the item.")] = ""
    vote: _Class = ""
    person: Annotated[str, Query(max_length=200, description="A person who voted on the item.")] = ""
    round: Annotated[str, Query(pattern=r"^[0-9]{0,9}$", description="The number of a round that asked it.")] = ""
    state: Annotated[str, Query(max_length=20, description=_words(*ItemState, *Asked))] = ""
    sort: Annotated[str, Query(max_length=20, description=_words(*SortBy))] = ""


class ActionForm(Form):
    """An action of a lead on items: on those named, or on all that match."""

    action: Action = Field(strict=False)
    label: int | str | None = Field(None, description="For 'decide': class by position (from 0) or by name.")
    items: Annotated[list[Key], Field(max_length=1000)] = Field(default_factory=list)
    query: QueryForm | None = Field(None, description="All items that match, in place of `items`; at most 1000.")
    seen: Annotated[dict[Key, int | str | None], Field(max_length=1000)] = Field(
        default_factory=dict,
        description="For 'decide': item → its label as the lead saw it, null for none; with another label now, nothing is done.",
    )
    count: int | None = Field(None, ge=0, description="How many match, as the lead was told; else nothing is done.")
    request_id: RequestId | None = Field(
        None, description="Use the same one for each attempt: the action is done once."
    )


WholeGuidelines = Annotated[
    Annotated[str, StringConstraints(max_length=40_000)] | None,
    Field(
        description="Markdown for people who label; sections under the name of a class as heading are about the class."
    ),
]
GuidelineText = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]


class MarkdownForm(Form):
    """A Markdown text."""

    text: GuidelineText


class GuidelineForm(MarkdownForm):
    """A text of the guidelines."""

    about: Key | None = Field(None, description="The class that it is about; left out: the text of the campaign.")


class SeenForm(Form):
    """What a person has looked at; what is left out stays as it was."""

    guidelines: int | None = Field(None, ge=0, le=2**31, description="The version of the guidelines.")
    item: Key | None = Field(None, description="The item whose thread was read.")
    comment: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        None, description="The id of the last comment that was read; left out: all that there are now."
    )


class CommentForm(Form):
    """Something to say of an item."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_COMMENT)]


class ThreadForm(Form):
    """What becomes of a thread."""

    resolved: bool = Field(description="True closes it, false opens it again.")


class HideForm(Form):
    """Whether annotators see a comment."""

    hidden: bool


class RenameForm(Form):
    """Another name."""

    name: CampaignName
    slug: Annotated[str, StringConstraints(min_length=1, max_length=60)] | None = Field(
        None, description="Another short name for the address; left out: it stays."
    )


class DeleteForm(Form):
    """A campaign to delete."""

    confirm: CampaignName = Field(description="The campaign's name, typed by the person who deletes it.")
    now: bool = Field(False, description="Remove it at once and for good, without a grace period.")


class RestoreForm(Form):
    """A campaign to restore."""

    name: CampaignName | None = Field(None, description="Another name, where its own was taken meanwhile.")


class CopyForm(Form):
    """A copy of a campaign."""

    name: CampaignName | None = Field(None, description="Left out: its name with the next free number.")
    settings: NewSettings = Field(
        default_factory=NewSettings, description="Those that differ; the others are as in the campaign that is copied."
    )
    answers: bool = Field(False, description="What was decided goes along, as labels known from the start.")


class JobForm(Form):
    """Long work to start."""

    kind: JobKind = Field(strict=False)
    format: Annotated[str, StringConstraints(min_length=1, max_length=50)] | None = Field(
        None, description="Of a file; left out: csv, of a model npz."
    )


class SignInForm(Form):
    """Name and password."""

    name: Name
    password: Password


class AccountForm(Form):
    """A new account."""

    name: Name
    role: Role = Field(Role.ANNOTATOR, strict=False)
    password: NewPassword


class AccountChange(Form):
    """Changes of an account; what is left out stays."""

    active: bool | None = None
    password: NewPassword | None = None


class PasswordForm(Form):
    """A new password of the person who is signed in."""

    current: Password
    password: NewPassword


class TokenForm(Form):
    """A new API token."""

    label: Name


ClassNames = Annotated[list[Name], Field(max_length=10_000)]
WITHOUT_LABELS = "The names of the classes in their order, where neither labels nor votes tell them."


class FolderForm(Form):
    """A campaign from a folder on the server."""

    name: Name
    folder: Key
    by_position: bool = False
    classes: ClassNames | None = Field(None, description=WITHOUT_LABELS)
    settings: NewSettings = Field(default_factory=NewSettings)
    guidelines: WholeGuidelines = None


class IntakeFolderForm(Form):
    """A folder on the server with the files of a campaign."""

    folder: Key


ColumnName = Annotated[str, StringConstraints(max_length=1000)]
ColumnRoles = Annotated[dict[ColumnName, Annotated[ColumnRole, Field(strict=False)]], Field(max_length=20_000)]


class FileForm(Form):
    """Another use of a file, or of some of its columns."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=4000)] = Field(
        description="As the answer to the upload names it."
    )
    role: FileRole | None = Field(None, strict=False, description="Left out: as it is.")
    columns: ColumnRoles = Field(default_factory=dict, description="Column → role, of those to change.")


class CorrectionForm(Form):
    """Another use of files; what is left out stays as it is."""

    files: Annotated[list[FileForm], Field(max_length=1000)] = Field(default_factory=list)
    by_position: bool | None = Field(None, description="Join files by row number, not by id.")
    rows_are_ids: bool | None = Field(
        None, description="Call the items by their row numbers, whatever columns there are."
    )
    fold_case: bool | None = Field(None, description="Take classes that differ in upper and lower case only for one.")
    classes: ClassNames | None = Field(
        None, description="The classes in their order; an empty list for those that occur."
    )

    def correction(self) -> Correction:
        """As the service takes it."""
        return Correction(
            roles={one.path: one.role for one in self.files if one.role is not None},
            columns={one.path: one.columns for one in self.files if one.columns},
            by_position=self.by_position,
            rows_are_ids=self.rows_are_ids,
            fold_case=self.fold_case,
            classes=None if self.classes is None else tuple(self.classes),
        )


EncoderName = Literal["auto", "tfidf", "sentence", "pixels", "efficientnet", "table"]
Words = Annotated[list[Key], Field(max_length=20_000)]


class RuleForm(Form):
    """A rule without code; which options a kind has is said in the documentation of sources."""

    name: Name
    kind: Literal["keyword", "regex", "dictionary", "threshold", "model"]
    column: Key
    label: Key | None = Field(None, description="The class it votes for; not for the kind 'model'.")
    words: Words | None = None
    unless: Words | None = None
    whole_word: bool | None = None
    match_case: bool | None = None
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    at_least: float | None = Field(None, allow_inf_nan=False)
    at_most: float | None = Field(None, allow_inf_nan=False)
    above: float | None = Field(None, allow_inf_nan=False)
    below: float | None = Field(None, allow_inf_nan=False)
    map: dict[Key, Key] | None = Field(None, max_length=10_000)
    probability: Key | None = None


class RulesForm(Form):
    """All rules of the page, in their order."""

    rules: Annotated[list[RuleForm], Field(max_length=1000)]

    def values(self) -> list[dict[str, Any]]:
        """Each as a rules file has it."""
        found = [one.model_dump(exclude_none=True) for one in self.rules]
        for one in found:
            if one["kind"] == "dictionary" and "at_least" in one and one["at_least"].is_integer():
                one["at_least"] = int(one["at_least"])
        return found


class ProposalForm(Form):
    """Which sources should be heard."""

    muted: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=1000)]], Field(max_length=MOST_NAMES)
    ]
    rules: Annotated[list[RuleForm], Field(max_length=1000)] | None = Field(
        None, description="All rules of the campaign as they should be; null to leave them as they are."
    )

    def values(self) -> list[dict[str, Any]]:
        """Each rule as a rules file has it."""
        return RulesForm(rules=self.rules or []).values()


class UsefulForm(Form):
    """Whether a proposed rule is useful."""

    column: Key
    word: Key
    label: Key
    useful: bool | None = Field(description="Null: don't know.")


class CreateForm(Form):
    """A campaign from files that were uploaded and looked at."""

    name: Name
    encoders: Annotated[list[EncoderName], Field(min_length=1, max_length=10)] = Field(
        ["auto"], description="What makes numbers of texts, images and columns; 'auto' for what is usual."
    )
    settings: NewSettings = Field(default_factory=NewSettings)
    guidelines: WholeGuidelines = None


class CampaignForm(Form):
    """A campaign from uploaded files; the parts of the files are the fields of `CampaignFiles`."""

    name: Name
    by_position: Json[bool] = False
    classes: ClassNames | None = Field(None, description=WITHOUT_LABELS)
    settings: Json[NewSettings] = Field(default_factory=NewSettings)
    guidelines: WholeGuidelines = None

    def files(self) -> dict[str, list[UploadFile]]:
        """Name of the part → its files, of the parts that were sent."""
        sent = {name: getattr(self, name) for name in FILE_NAMES}
        return {name: part if isinstance(part, list) else [part] for name, part in sent.items() if part}


def _part(file: "DataclassField[Any]") -> tuple[Any, Any]:
    if file.name == MEDIA:
        return list[UploadFile] | None, None
    if file.name == WEAK:
        return UploadFile | None, Field(None, validate_default=True)
    return (UploadFile, ...) if file.default is MISSING else (UploadFile | None, None)


def _needed(weak: UploadFile | None, info: ValidationInfo) -> UploadFile | None:
    """Weak labels may be left out only where there are votes of sources or names of classes, parts that are read before."""
    if weak is None and all(info.data.get(name) is None for name in ("source_votes", "val_labels", "classes")):
        raise PydanticCustomError(
            "missing", "Weak labels, votes of sources, trusted labels or names of the classes are needed"
        )
    return weak


if TYPE_CHECKING:
    UploadedCampaign = CampaignForm
else:
    UploadedCampaign = create_model(
        "UploadedCampaign",
        __base__=CampaignForm,
        __doc__="A campaign from uploaded files; `settings` is JSON.",
        __validators__={"needed": field_validator(WEAK)(_needed)},
        **{one.name: _part(one) for one in fields(CampaignFiles) if one.name in FILE_NAMES},
    )
