"""Records of the browser of items: what is asked for, what is shown, what an action did."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from labelchef.base.campaigns import ItemContent, SplitName


class ItemState(StrEnum):
    """Where an item stands."""

    NEW = "new"
    """Never put to people, without a clean label."""
    OPEN = "open"
    """In the batch that people vote on now, and not decided."""
    ANSWERED = "answered"
    UNRESOLVED = "unresolved"
    """Votes tied, or were mostly 'ambiguous'."""
    WAITING = "waiting"
    """To be asked first in the next batch: a lead took its decision back, or sent it to people."""
    GIVEN = "given"
    """Its label came with the data."""


class Asked(StrEnum):
    """Groups of states to filter by, besides the states themselves."""

    UNANSWERED = "unanswered"
    """Without a clean label."""
    LABELLED = "labelled"
    """With one: answered, or given with the data."""
    ASKED = "asked"
    """In a batch at least once."""


class Disagreement(StrEnum):
    """Who disagrees on an item."""

    MODEL_SOURCES = "model-sources"
    """The model predicts another class than the weak label."""
    MODEL_PEOPLE = "model-people"
    """The model predicts another class than people decided, or than the label given with the data."""
    PEOPLE = "people"
    """Votes of people differ, in the same attempt."""
    SOURCES = "sources"
    """Sources vote for different classes."""


class SortBy(StrEnum):
    """Orders of the items."""

    ORDER = "order"
    """As in the data."""
    DOUBT = "doubt"
    """The model's doubt, largest first."""
    INFLUENCE = "influence"
    """Predicted change of the loss by an answer, most useful first."""
    LABEL = "label"
    """Probability that the model gives to the label, smallest first."""
    NEWEST = "newest"
    """Decided last first."""


class Action(StrEnum):
    """What a lead can do with items."""

    DECIDE = "decide"
    REOPEN = "reopen"
    ASK = "ask"


@dataclass(frozen=True)
class ItemQuery:
    """Which items: all conditions must hold; None or empty is no condition. Classes are positions."""

    q: str = ""
    """Words, beginnings of words (`word*`) and "phrases" in text, key and fields; or a whole key."""
    split: SplitName = SplitName.TRAIN
    predicted: int | None = None
    label: int | None = None
    believed: int | None = None
    weak: int | None = None
    disagree: Disagreement | None = None
    suspect: bool = False
    source: str = ""
    vote: int | None = None
    """Class for which `source` votes, or any source where none is named."""
    person: str = ""
    round: int | None = None
    state: ItemState | Asked | None = None
    sort: SortBy = SortBy.ORDER


@dataclass(frozen=True)
class Snippet:
    """A piece of a text, and whether it is what was searched for."""

    text: str
    match: bool = False


@dataclass(frozen=True)
class ItemLine:
    """An item in the list. Numbers of the model are None before there are any."""

    item: str
    split: SplitName
    position: int
    excerpt: tuple[Snippet, ...]
    """A part of its text, or of its fields where it has no text."""
    image: str | None
    """Path below the campaign's media folder; in answers of the API, its address on the server."""
    state: ItemState | None
    """None for trusted and test items, which are never asked."""
    label: int | None
    """Clean label: of people, a lead, or given with the data."""
    weak: int | None = None
    predicted: int | None = None
    """The class by the model's decision rule; another one may be more probable."""
    probability: float | None = None
    """The model's probability of `predicted`."""
    doubt: float | None = None
    believed: int | None = None
    belief: float | None = None
    label_probability: float | None = None
    """The model's probability of the label as it is now: `label`, else `weak`; None until a model knows of a new label."""
    suspect: bool = False
    influence: float | None = None
    influence_round: int | None = None
    round: int | None = None
    """The last round that asked it."""
    votes: tuple[int | None, ...] = ()
    """Votes of people in the last attempt; None for ambiguous."""


@dataclass(frozen=True)
class ItemsPage:
    """A part of the items that match."""

    entries: tuple[ItemLine, ...]
    next: str | None
    """Cursor of what follows."""
    matches: int
    total: int
    """Items of the split."""
    round: int | None
    """The round whose model the numbers are of; None before there are any."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceSaid:
    """A source's vote on an item."""

    source: str
    votes: Mapping[int, float]
    """Class → weight; a single 1 for a plain vote."""


@dataclass(frozen=True)
class PersonSaid:
    """A person's vote on an item, the last one of an attempt."""

    person: str
    label: int | None
    note: str | None
    attempt: int
    round: int | None
    blind: bool
    at: datetime
    imported_by: str | None
    """Who brought it in, in this person's name; None where the person gave it here."""


@dataclass(frozen=True)
class Decided:
    """A decision on an item."""

    kind: str
    by: str
    label: int | None
    support: float
    round: int | None
    at: datetime


@dataclass(frozen=True)
class ItemDetail:
    """Everything that is known of an item."""

    line: ItemLine
    content: ItemContent
    sources: tuple[SourceSaid, ...]
    people: tuple[PersonSaid, ...]
    decisions: tuple[Decided, ...]
    rounds: tuple[int, ...]
    """Those that asked it."""
    before: str | None
    """The item before it in the data."""
    after: str | None
    model_round: int | None = None
    """The round whose model the numbers are of; None before there are any."""
    ruled: bool = False
    """Whether that model has a decision rule, by which it may choose a class that is not the most probable one."""
    copies: int = 0
    """Other training items with the same content, which have the label of this one."""
    copy_of: str | None = None
    """The item of which this one is a copy: that one is asked, or its label is known."""


@dataclass(frozen=True)
class SimilarItem:
    """An item that is like another one."""

    line: ItemLine
    similarity: float
    """Cosine of the features."""


@dataclass(frozen=True)
class SimilarItems:
    """The nearest training items, most similar first."""

    items: tuple[SimilarItem, ...]
    looked_at: int
    """Items compared: all, or every k-th one where there are too many."""


@dataclass(frozen=True)
class MapPoint:
    """An item on the map."""

    x: float
    y: float
    what: str
    """'weak', 'cleaned', 'selected' (in the open batch) or 'validation'."""
    split: SplitName
    item: str


@dataclass(frozen=True)
class ItemMap:
    """A sample of the items in two dimensions."""

    points: tuple[MapPoint, ...]


@dataclass(frozen=True)
class Fate:
    """What became of an item in an action."""

    item: str
    done: bool
    why: str = ""
    """Why it was not possible, as a code: item, asked_now, not_decided, decided, given, waiting."""
    message: str = ""


@dataclass(frozen=True)
class ActionDone:
    """What an action on items did."""

    done: int
    refused: int
    fates: tuple[Fate, ...]
    message: str
    """What follows for the campaign: budget, next batch."""
    repeated: bool = False
    """Whether the request had come before; nothing was done again."""
