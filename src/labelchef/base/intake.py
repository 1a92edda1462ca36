"""What is known of files before a campaign is made of them: their roles, the roles of their columns, what was found on the way.

A *plan* says how every file and column is used. It is detected (`data.intake.detecting`), shown, corrected and kept with the
campaign.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told (what is done, how much of it is done, of how much; 0 if unknown) during long work."""


def no_progress(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""


class FileRole(StrEnum):
    """What a file is used for."""

    ITEMS = "items"
    """The samples: one row each, with what people see and what the model learns from."""
    TRUSTED = "trusted"
    """Labels that are known to be right: of items by id, or rows of their own with their content."""
    TEST = "test"
    """As `TRUSTED`, but for the last measurement only."""
    VOTES = "votes"
    """What sources say of items: wide (a column a source), or long (item, source, label)."""
    WEAK = "weak"
    """Probabilities: a column a class."""
    FEATURES = "features"
    """Numbers by row that the model learns from: embeddings."""
    RULES = "rules"
    """Rules without code, see `believe.rules`."""
    FUNCTIONS = "functions"
    """A Python file with labelling functions, see `believe.functions`. It is executed, so it is never detected, only named."""
    LLM = "llm"
    """Labels by an LLM, a JSON object a line, with or without probabilities; see `believe.llm`."""
    MEDIA = "media"
    """A folder or archive of images that a column names."""
    IGNORED = "ignored"


class ColumnRole(StrEnum):
    """What a column is used for."""

    ID = "id"
    """Names the item; files are joined by it."""
    TEXT = "text"
    """Text that people read and a text encoder reads."""
    IMAGE = "image"
    """Path of an image, relative to the media folder or to the file."""
    FEATURE = "feature"
    """A number, category or date that the model learns from."""
    SHOWN = "shown"
    """Shown to people; the model does not see it."""
    LABEL = "label"
    """A label that is known to be right; empty where none is known."""
    SOURCE = "source"
    """A label that may be wrong: the column is a source, empty cells are no vote."""
    CLASS = "class"
    """The probability of the class that the column is named by."""
    VOTER = "voter"
    """In a long table of votes: who votes."""
    VOTE = "vote"
    """In a long table of votes: the label."""
    PROBABILITY = "probability"
    """In a long table of votes: the probability of the label."""
    SPLIT = "split"
    """Says which rows are train, trusted (also valid, dev, gold) or test."""
    IGNORED = "ignored"


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """No campaign can be made before it is mended."""
    WARNING = "warning"
    """Probably not what was meant."""
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """Something that was found in the files and that people should know before they go on."""

    code: str
    severity: Severity
    message: str
    """What was found, and what to do: the option or click that helps."""
    count: int = 0
    """How many rows, ids or columns it concerns."""
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilePlan:
    """How one file is used."""

    path: str
    role: FileRole
    columns: Mapping[str, ColumnRole] = field(default_factory=dict)
    """Column → role, in their order."""
    why: str = ""
    """Why the file got its role, in a few words for the preview; 'given' where the user said so."""
    said: tuple[str, ...] = ()
    """The columns whose roles the user has said."""

    def named(self, role: ColumnRole) -> tuple[str, ...]:
        """The columns with this role, in their order."""
        return tuple(name for name, found in self.columns.items() if found is role)


@dataclass(frozen=True)
class Plan:
    """How all files are used."""

    files: tuple[FilePlan, ...]
    by_position: bool = False
    """Join files by row number: only where the user said so."""
    classes: tuple[str, ...] | None = None
    """The class names in their order; None for those that occur, in alphabetical order."""
    findings: tuple[Finding, ...] = ()
    """Where the files leave open what is meant: what was assumed, and the option that says otherwise."""
    fold_case: bool = False
    """Whether class names that differ in upper and lower case only are one."""

    def of(self, role: FileRole) -> tuple[FilePlan, ...]:
        """The files with this role."""
        return tuple(one for one in self.files if one.role is role)

    def with_file(self, changed: FilePlan) -> "Plan":
        """The same plan with another use of a file."""
        return replace(self, files=tuple(changed if one.path == changed.path else one for one in self.files))

    def as_json(self) -> dict[str, Any]:
        """Plain values, to be stored or sent."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Plan":
        """From what `as_json` gave.

        >>> plan = Plan((FilePlan("a.csv", FileRole.ITEMS, {"id": ColumnRole.ID}),), classes=("ham", "spam"))
        >>> Plan.of_json(plan.as_json()) == plan
        True
        """
        files = tuple(
            FilePlan(
                str(one["path"]),
                FileRole(one["role"]),
                {str(name): ColumnRole(role) for name, role in one.get("columns", {}).items()},
                str(one.get("why", "")),
                tuple(map(str, one.get("said", ()))),
            )
            for one in values["files"]
        )
        classes = values.get("classes")
        findings = tuple(
            Finding(
                str(one["code"]),
                Severity(one["severity"]),
                str(one["message"]),
                int(one.get("count", 0)),
                tuple(map(str, one.get("examples", ()))),
            )
            for one in values.get("findings", ())
        )
        named = None if classes is None else tuple(map(str, classes))
        folded = bool(values.get("fold_case", False))
        return cls(files, bool(values.get("by_position", False)), named, findings, folded)


@dataclass(frozen=True)
class PreviewRow:
    """One joined row, as it would be used."""

    id: str
    split: str
    """train, trusted or test"""
    content: Mapping[str, str | None]
    """Column → what is in it, long texts cut."""
    label: str | None
    votes: Mapping[str, str]
    """Source → what it says."""


@dataclass(frozen=True)
class Preview:
    """What would be made of the files."""

    plan: Plan
    classes: tuple[str, ...]
    n_train: int
    n_trusted: int
    n_test: int
    sources: tuple[str, ...]
    content: Mapping[str, ColumnRole]
    """Column of the joined rows → its role: text, image, feature or shown."""
    rows: tuple[PreviewRow, ...]
    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether a campaign can be made."""
        return not any(one.severity is Severity.ERROR for one in self.findings)


class IntakeState(StrEnum):
    """What is done with uploaded files."""

    READING = "reading"
    """Roles are detected, or rows are joined."""
    READY = "ready"
    """The preview is there, or the problem that hinders it."""
    CREATING = "creating"
    """The campaign is being made: encoding may take minutes."""
    MADE = "made"
    """The campaign is there; the uploaded files are deleted."""


@dataclass(frozen=True)
class Working:
    """How far long work is."""

    what: str
    done: int
    total: int
    """0 if unknown."""


@dataclass(frozen=True)
class Intake:
    """Files on their way to a campaign. Paths are relative to the folder that the files are in."""

    id: str
    by: str
    created_at: datetime
    state: IntakeState
    plan: Plan | None
    """None until roles were detected, or where they cannot be."""
    preview: Preview | None
    """None while files are read, or where they cannot be joined."""
    working: Working | None
    """What is being done just now."""
    problem: str | None
    """Why the last step failed, and what to do; the files are kept."""
    campaign: str | None
    """The slug of the campaign, once it is made."""
    rules: tuple[Mapping[str, object], ...] = ()
    """Rules that were made on the page, each as a rules file has it."""
    rows_are_ids: bool = False
    """Whether row numbers are the ids, as the user said."""

    @property
    def _used(self) -> Plan:
        found = self.plan if self.preview is None else self.preview.plan
        return found or Plan(())

    @property
    def files(self) -> tuple[FilePlan, ...]:
        """How they are used; empty until roles were detected."""
        return self._used.files

    @property
    def by_position(self) -> bool:
        """Whether they are joined by row number."""
        return self._used.by_position

    @property
    def fold_case(self) -> bool:
        """Whether class names that differ in upper and lower case only are one."""
        return self._used.fold_case


@dataclass(frozen=True)
class WaitingFiles:
    """Files that are no campaign yet, in one line."""

    id: str
    by: str
    created_at: datetime
    names: tuple[str, ...]
    """The first of them, or the folder of the server."""
