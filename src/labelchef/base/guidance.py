"""Guidelines for people who label, and what they say to each other about items."""

from dataclasses import dataclass
from datetime import datetime

from labelchef.base.campaigns import ItemContent

LONGEST_TEXT = 15_000
"""Characters of one text of the guidelines."""
LONGEST_COMMENT = 2000


@dataclass(frozen=True)
class ClassGuideline:
    """What is said of a class."""

    name: str
    text: str
    """Markdown; empty where nothing is said."""


@dataclass(frozen=True)
class Guidelines:
    """The guidelines of a campaign as they hold now."""

    version: int
    """Counts the changes; 0: nothing was written yet."""
    seen: int
    """The version that the person who asks looked at last."""
    text: str
    """Markdown, for the whole campaign."""
    classes: tuple[ClassGuideline, ...]
    changed_at: datetime | None
    changed_by: str | None


@dataclass(frozen=True)
class GuidelineVersion:
    """A text as it was saved."""

    version: int
    about: str | None
    """The class; None for the text of the campaign."""
    text: str
    who: str
    at: datetime


@dataclass(frozen=True)
class Comment:
    """Something that was said of an item."""

    id: str | None
    """None for a note that came with a vote."""
    person: str
    text: str
    at: datetime
    mine: bool
    note: bool
    """Whether it is a note that came with a vote."""
    hidden: bool
    """Whether a lead has hidden it; only leads still get its text."""


@dataclass(frozen=True)
class Thread:
    """What was said of an item, in the order it came."""

    item: str
    content: ItemContent
    comments: tuple[Comment, ...]
    resolved: bool
    """Whether a lead has closed it, and nothing was said since."""
    last_at: datetime | None


@dataclass(frozen=True)
class NewAnswers:
    """What others said of an item since this person looked."""

    item: str
    count: int


@dataclass(frozen=True)
class News:
    """What is new to a person: a change of the guidelines, and answers in threads in which they wrote."""

    guidelines: int
    """The version of the guidelines."""
    seen: int
    """The version that this person looked at last."""
    answers: tuple[NewAnswers, ...]
