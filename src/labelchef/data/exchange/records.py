"""The record that all converters read and write: an item with its content and everything that is known of its label.

A `RecordSet` is what one file holds: records in the order of the file, the classes, and which content columns are shown as
text or image. Ids, class names and content are text and are never retyped; None is a missing value.

    answers        what people said: person → class, None where the person could not tell or skipped the item
    votes          what sources (rules, functions, LLMs) say: source → class
    predictions    what models say: (model, class, score)
    probabilities  class → probability, of the model that made the label
    label          the final label, with its probability and where it came from (`LabelOrigin`)

Formats that have no place for a part of it keep that part in an object named 'labelchef' (`payload_of`), where the tool lets
such an object through. `Format.carries` says which parts survive a round trip through a format.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from labelchef.base.errors import InvalidInputError
from labelchef.data.dataset import LabelOrigin

PAYLOAD = "labelchef"
"""The key of the object with the parts that a format has no place for."""


@dataclass(frozen=True)
class Prediction:
    """What a model says of an item."""

    model: str
    label: str
    score: float | None = None
    """From 0 to 1; None if the model gives none."""


@dataclass(frozen=True)
class Record:
    """An item: its content and what is known of its label."""

    id: str
    content: Mapping[str, str | None] = field(default_factory=dict)
    label: str | None = None
    probability: float | None = None
    origin: LabelOrigin | None = None
    answers: Mapping[str, str | None] = field(default_factory=dict)
    votes: Mapping[str, str] = field(default_factory=dict)
    predictions: tuple[Prediction, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """What is doubtful about the label, in the exporter's words."""
    rank: int | None = None
    """Place in the order in which items are worth looking at, smallest first; None if not ranked."""

    def classes(self) -> set[str]:
        """Every class that the record names."""
        named = {self.label, *self.answers.values(), *self.votes.values(), *self.probabilities}
        return {one for one in (*named, *(p.label for p in self.predictions)) if one is not None}


@dataclass(frozen=True)
class RecordSet:
    """The records of one file. Make it with `RecordSet.of`, which checks and completes them."""

    records: tuple[Record, ...]
    classes: tuple[str, ...]
    texts: tuple[str, ...] = ()
    """Content columns that people read."""
    images: tuple[str, ...] = ()
    """Content columns with paths or addresses of images."""
    title: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Class → what it means, where that is known."""
    notes: tuple[str, ...] = ()
    """What a reader left out or assumed, for the message to the user."""

    @classmethod
    def of(
        cls,
        records: Iterable[Record],
        classes: Sequence[str] | None = None,
        *,
        texts: Sequence[str] = (),
        images: Sequence[str] = (),
        title: str = "",
        meanings: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> "RecordSet":
        """A set with distinct ids, the same content columns in each record, and every class that is named.

        Without `classes`, those that occur, in alphabetical order.

        >>> RecordSet.of([Record("007", {"text": "hi"}, label="ham"), Record("8", {"sender": "a"})]).records[1].content
        {'text': None, 'sender': 'a'}
        """
        found, seen, named = list(records), set[str](), set[str]()
        columns: dict[str, None] = dict.fromkeys([*texts, *images])
        for one in found:
            if not one.id:
                refuse("a record has an empty id; expected a text that names the item")
            if one.id in seen:
                refuse(f"the id {one.id!r} occurs twice; expected one record an item")
            seen.add(one.id)
            named |= one.classes()
            columns.update(dict.fromkeys(one.content))
        known = tuple(sorted(named)) if classes is None else tuple(classes)
        if len(set(known)) < len(known) or "" in known:
            refuse(f"the classes are {list(known)[:20]}; expected distinct names that are not empty")
        if strange := sorted(named - set(known)):
            refuse(
                f"{strange[0]!r} is not among the classes {list(known)[:20]}; add it to the classes, or correct the label"
            )
        filled = tuple(replace(one, content={name: one.content.get(name) for name in columns}) for one in found)
        return cls(filled, known, tuple(texts), tuple(images), title, dict(meanings or {}), tuple(notes))

    @property
    def columns(self) -> tuple[str, ...]:
        """The content columns."""
        return tuple(self.records[0].content) if self.records else (*self.texts, *self.images)

    def ranked(self) -> tuple[Record, ...]:
        """The records by rank, those without one last."""
        return tuple(sorted(self.records, key=lambda one: math.inf if one.rank is None else one.rank))

    def items(self) -> pd.DataFrame:
        """A row a record: id, the content columns and label, all text, None where missing."""
        table: dict[str, list[str | None]] = {"id": [one.id for one in self.records]}
        table |= {
            name: [one.content[name] for one in self.records] for name in self.columns if name not in ("id", "label")
        }
        return pd.DataFrame(table | {"label": [one.label for one in self.records]}, dtype=object)

    def votes(self) -> pd.DataFrame:
        """Long: item, source, label, probability; people, sources and models are all sources here."""
        rows: list[tuple[str, str, str, float | None]] = []
        for one in self.records:
            said = [
                (who, label, None) for who, label in (*one.answers.items(), *one.votes.items()) if label is not None
            ]
            rows += [(one.id, *vote) for vote in (*said, *((p.model, p.label, p.score) for p in one.predictions))]
        return pd.DataFrame(rows, columns=["item", "source", "label", "probability"], dtype=object)

    def answers(self) -> pd.DataFrame:
        """Long: item, annotator, label; what people said, None where they could not tell."""
        rows = [(one.id, who, label) for one in self.records for who, label in one.answers.items()]
        return pd.DataFrame(rows, columns=["item", "annotator", "label"], dtype=object)


def suggesting(given: RecordSet, model: str = PAYLOAD) -> RecordSet:
    """The same records, with the label that no person gave as a prediction of `model` where there is none: a pre-annotation."""

    def one(record: Record) -> Record:
        made = record.origin in (LabelOrigin.MODEL, LabelOrigin.SOURCES) and record.label is not None
        if not made or record.predictions or record.label is None:
            return record
        return replace(record, predictions=(Prediction(model, record.label, record.probability),))

    return replace(given, records=tuple(map(one, given.records)))


Read = Callable[..., RecordSet]
Write = Callable[[RecordSet, Path], Path]


@dataclass(frozen=True)
class Format:
    """Files of one tool: how they are recognised, read and written."""

    name: str
    title: str
    endings: tuple[str, ...]
    """File endings; '/' for a folder."""
    read: Read
    write: Write
    recognises: Callable[[Path], bool]
    """Whether a file is of this format, judged by its beginning; never raises for a file that exists."""
    carries: frozenset[str]
    """The parts of a record that survive a round trip: names of fields of `Record`."""
    extra: str | None = None
    """The extra that reading or writing needs."""
    people: bool = False
    """Whether it holds answers of people, which a campaign can import."""


ALL = frozenset(Record.__dataclass_fields__)


def payload_of(record: Record, *, without: Sequence[str] = ()) -> dict[str, Any]:
    """The parts of a record that are there, as plain values; `without` those that the format has a place for."""
    whole: dict[str, Any] = {
        "id": record.id,
        "label": record.label,
        "probability": record.probability,
        "origin": None if record.origin is None else record.origin.value,
        "answers": dict(record.answers),
        "votes": dict(record.votes),
        "predictions": [[one.model, one.label, one.score] for one in record.predictions],
        "probabilities": dict(record.probabilities),
        "flags": list(record.flags),
        "rank": record.rank,
    }
    return {name: value for name, value in whole.items() if name not in without and value not in (None, {}, [])}


def record_of(payload: Mapping[str, Any], where: str, *, id: str, content: Mapping[str, str | None]) -> Record:
    """The record that `payload_of` wrote, with its content; what is not there is empty."""
    try:
        rank = payload.get("rank")
        return Record(
            id=id,
            content=content,
            label=as_text(payload.get("label")),
            probability=number(payload.get("probability")),
            origin=None if payload.get("origin") is None else LabelOrigin(payload["origin"]),
            answers={str(who): as_text(label) for who, label in payload.get("answers", {}).items()},
            votes={str(who): str(label) for who, label in payload.get("votes", {}).items()},
            predictions=tuple(
                Prediction(str(model), str(label), number(score))
                for model, label, score in payload.get("predictions", [])
            ),
            probabilities={str(name): float(p) for name, p in payload.get("probabilities", {}).items()},
            flags=tuple(str(flag) for flag in payload.get("flags", [])),
            rank=None if rank is None else int(rank),
        )
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        refuse(
            f"{where}: the object {PAYLOAD!r} cannot be read ({error}); expected what labelchef wrote. Export it again"
        )


def as_text(value: object) -> str | None:
    """A value of a file as text: texts stay as they are, objects and lists become JSON; None and NaN are missing.

    >>> as_text("007"), as_text(7), as_text(True), as_text(None), as_text({"a": 1})
    ('007', '7', 'true', None, '{"a": 1}')
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def number(value: object) -> float | None:
    """A finite number of a file, None for none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not math.isfinite(found := float(value)):
        raise ValueError(f"{value!r} is no number")
    return found


def read_text(path: Path, what: str, newline: str | None = None) -> str:
    """The text of a file in UTF-8, with or without a byte order mark; `newline` as in `open`."""
    if not path.is_file():
        refuse(f"{what}: there is no file {path}; check the path")
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{what}: {path} cannot be read as text: {error}. Expected UTF-8; export it again")


def parse_json(text: str, what: str) -> Any:
    """JSON with its numbers as they are written, as text: '1.50' stays '1.50'. NaN and Infinity are missing values."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        refuse(f"{what} is no JSON: {error}. The file may be cut off; export it again")


def as_object(value: object, where: str) -> dict[str, Any]:
    """A JSON object, or a refusal."""
    if not isinstance(value, dict):
        refuse(f"{where} is {_short(value)}; expected an object {{…}}")
    return value


def as_list(value: object, where: str) -> list[Any]:
    """A JSON list, or a refusal."""
    if not isinstance(value, list):
        refuse(f"{where} is {_short(value)}; expected a list […]")
    return value


def beginning(path: Path, size: int = 65536) -> str:
    """The first characters of a file; empty for a folder or a file that is no text."""
    try:
        with path.open("rb") as stream:
            return stream.read(size).decode("utf-8-sig", errors="ignore")
    except OSError:
        return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def refuse(why: str) -> NoReturn:
    """An error that the file cannot be used."""
    raise InvalidInputError(why, code="exchange")
