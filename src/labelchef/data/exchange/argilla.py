"""Argilla 2: a folder as `rg.Dataset.to_disk` writes it and `rg.Dataset.from_disk` reads it; or records of its SDK, for a server.

    .argilla/dataset.json     the name of the data set
    .argilla/settings.json    fields (a column of content each, titled by its name), one label question
    records.json              id, fields, metadata, suggestions (one a question), responses (of users, by their UUID)

The folder needs no library. `to_sdk` and `of_sdk` need the extra 'argilla': `dataset.records.log(to_sdk(records))` sends
records to a server, `of_sdk(list(dataset.records))` takes them back.

The server refuses responses of users that it does not know, so answers of people whose UUID is not given travel in
`metadata.labelchef` as JSON, with everything else that has no place: see `records.payload_of`. A response without a value, as
discarded ones have, is an answer without a label.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labelchef.base.errors import MissingExtraError
from labelchef.base.files import whole_file
from labelchef.data.exchange.records import (
    ALL,
    PAYLOAD,
    Format,
    Prediction,
    Record,
    RecordSet,
    as_list,
    as_object,
    as_text,
    beginning,
    number,
    parse_json,
    payload_of,
    read_text,
    record_of,
    refuse,
)

QUESTION = "label"
"""The name of the question that we write."""
_WHAT = "Argilla"
_CONFIG, _RECORDS = ".argilla", "records.json"
_NAME = re.compile(r"(?=.*[a-z0-9])[a-z0-9_-]+")  # of fields, on the server
_LABELS = ("label_selection", "multi_label_selection")


def read(path: Path, *, question: str | None = None, people: Mapping[str, str] | None = None) -> RecordSet:
    """The records of a folder of `to_disk`, or of its records.json alone.

    `question` names the label question if there are several; `people` names users by their UUID, else 'user UUID'.
    """
    records_path = path / _RECORDS if path.is_dir() else path
    beside = records_path.parent / _CONFIG / "settings.json"
    settings = _Settings()
    if beside.is_file():
        settings = _settings(parse_json(read_text(beside, _WHAT), str(beside)), str(beside), question)
    found = as_list(parse_json(read_text(records_path, _WHAT), str(records_path)), str(records_path))
    return _records(found, str(records_path), settings, question, people or {})


def write(given: RecordSet, path: Path, *, people: Mapping[str, str] | None = None) -> Path:
    """A folder for `rg.Dataset.from_disk`; answers of `people` (name → UUID) are responses of these users."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        refuse(f"{path} exists already; expected a new or empty folder. Name another one")
    (path / _CONFIG).mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", given.title).strip("-_") or PAYLOAD
    written = {
        f"{_CONFIG}/dataset.json": {"name": name, "allow_extra_metadata": True},
        f"{_CONFIG}/settings.json": settings_of(given),
        _RECORDS: dicts_of(given, people or {}),
    }
    for part, content in written.items():
        with whole_file(path / part) as stream:
            stream.write(json.dumps(content, ensure_ascii=True, allow_nan=False).encode())
    return path


def recognises(path: Path) -> bool:
    """Whether it is such a folder, or begins as its records do."""
    if path.is_dir():
        return (path / _CONFIG / "settings.json").is_file() and (path / _RECORDS).is_file()
    start = beginning(path)
    names = ("fields", "metadata", "suggestions", "responses")
    return path.suffix.lower() == ".json" and all(re.search(rf'"{name}"\s*:\s*\{{', start) for name in names)


def to_sdk(given: RecordSet, *, people: Mapping[str, str] | None = None) -> list[Any]:
    """Records (`rg.Record`) in the order of rank, to be sent to a server."""
    record = require_argilla().Record
    return [record.from_dict(one) for one in dicts_of(given, people or {})]


def of_sdk(
    records: Sequence[Any], *, people: Mapping[str, str] | None = None, question: str | None = None
) -> RecordSet:
    """From records (`rg.Record`) of the SDK; columns have the names of fields, since titles are in the settings."""
    found = parse_json(json.dumps([one.to_dict() for one in records], default=str), _WHAT)
    return _records(found, "the records", _Settings(), question, people or {})


def require_argilla() -> Any:
    """The library, or what to install."""
    try:
        import argilla
    except ImportError:
        raise MissingExtraError(
            "Argilla's records need its SDK; pip install 'labelchef[argilla]'", code="argilla"
        ) from None
    return argilla


def settings_of(given: RecordSet) -> dict[str, Any]:
    """What is shown and asked: content of `settings.json`."""
    keys = _keys(given.columns)
    if not keys:
        refuse("the records have no content; expected a column of text or images that people can label")
    if len(given.classes) < 2:
        refuse(f"the classes are {list(given.classes)}; Argilla expects at least two")
    first = _first(given)
    fields = [
        {
            "name": keys[column],
            "title": column,
            "required": column == first,
            "settings": {"type": "image"} if column in given.images else {"type": "text", "use_markdown": False},
        }
        for column in (
            *given.texts,
            *given.images,
            *(c for c in given.columns if c not in (*given.texts, *given.images)),
        )
    ]
    options = [{"value": name, "text": name, "description": given.meanings.get(name)} for name in given.classes]
    question = {
        "name": QUESTION,
        "title": "Label",
        "required": True,
        "settings": {"type": "label_selection", "options": options, "visible_options": None},
    }
    return {
        "guidelines": None,
        "allow_extra_metadata": True,
        "distribution": {"strategy": "overlap", "min_submitted": 1},
        "fields": fields,
        "questions": [question],
        "metadata": [],
        "vectors": [],
        "mapping": None,
    }


def dicts_of(given: RecordSet, people: Mapping[str, str]) -> list[dict[str, Any]]:
    """The records in the order of rank, as `rg.Record.from_dict` reads them."""
    keys, first = _keys(given.columns), _first(given)
    return [_dict(record, keys, first, people) for record in given.ranked()]


def _dict(record: Record, keys: Mapping[str, str], first: str, people: Mapping[str, str]) -> dict[str, Any]:
    payload = payload_of(record, without=["answers"]) | {"columns": {key: column for column, key in keys.items()}}
    kept = {who: label for who, label in record.answers.items() if who not in people or label is None}
    payload |= {"answers": kept} if kept else {}
    fields = {keys[column]: value for column, value in record.content.items() if value is not None}
    if keys[first] not in fields:
        fields[keys[first]], payload["missing"] = "", [first]
    said = [{"value": label, "user_id": people[who]} for who, label in record.answers.items() if who not in kept]
    best = record.predictions[0] if record.predictions else None
    return {
        "id": record.id,
        "fields": fields,
        "metadata": {PAYLOAD: json.dumps(payload, ensure_ascii=False)},
        "suggestions": {}
        if best is None
        else {QUESTION: {"value": best.label, "score": best.score, "agent": best.model}},
        "responses": {QUESTION: said} if said else {},
        "vectors": {},
        "status": "pending",
        "_server_id": None,
    }


def _first(given: RecordSet) -> str:
    return next(iter((*given.texts, *given.images, *given.columns)), "")


def _keys(columns: Sequence[str]) -> dict[str, str]:
    """Column → name of the field: its own name where the server takes it."""
    taken, keys, k = {name for name in columns if _NAME.fullmatch(name)}, dict[str, str](), 0
    for name in columns:
        if name in taken:
            keys[name] = name
            continue
        k += 1
        while f"column_{k}" in taken:
            k += 1
        keys[name] = f"column_{k}"
    return keys


@dataclass(frozen=True)
class _Settings:
    """What settings.json says."""

    question: str | None = None
    classes: tuple[str, ...] | None = None
    texts: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    """Name of a field → column."""


def _settings(found: object, where: str, wanted: str | None) -> _Settings:
    given = as_object(found, where)
    questions: dict[str, dict[str, Any]] = {}
    for one in as_list(given.get("questions") or [], f"{where}, questions"):
        question = as_object(one, f"{where}, question")
        kind = as_object(question.get("settings") or {}, f"{where}, settings")
        if kind.get("type") in _LABELS:
            questions[str(question.get("name"))] = kind
    name = wanted or (next(iter(questions)) if len(questions) == 1 else None)
    if name is None or name not in questions:
        refuse(
            f"{where} has the label questions {', '.join(questions) or 'none'}; expected one"
            f"{'' if wanted is None else f' named {wanted!r}'}. Name it as question"
        )
    options = [
        as_object(one, f"{where}, option") for one in as_list(questions[name].get("options"), f"{where}, options")
    ]
    columns, images = dict[str, str](), list[str]()
    for one in as_list(given.get("fields") or [], f"{where}, fields"):
        shown = as_object(one, f"{where}, field")
        key = str(shown.get("name"))
        columns[key] = as_text(shown.get("title")) or key
        if as_object(shown.get("settings") or {}, f"{where}, settings").get("type") == "image":
            images.append(columns[key])
    if len(set(columns.values())) < len(columns):
        columns = {key: key for key in columns}
    texts = tuple(column for column in columns.values() if column not in images)
    return _Settings(name, tuple(str(one.get("value")) for one in options), texts, tuple(images), columns)


def _records(
    found: Sequence[object], where: str, settings: _Settings, question: str | None, people: Mapping[str, str]
) -> RecordSet:
    objects = [as_object(one, f"{where}, record {k}") for k, one in enumerate(found, 1)]
    if not objects:
        refuse(f"{where} holds no record; expected at least one")
    asked = question or settings.question or _only_question(objects, where)
    left_out: Counter[str] = Counter()
    records = [
        _record(one, f"{where}, record {k}", asked, settings, people, left_out) for k, one in enumerate(objects, 1)
    ]
    columns = {name for one in records for name in one.content}
    named = {label for one in records for label in one.classes()}
    classes = settings.classes if settings.classes is not None and named <= set(settings.classes) else None
    return RecordSet.of(
        records,
        classes,
        texts=[name for name in settings.texts if name in columns],
        images=[name for name in settings.images if name in columns],
        notes=[f"{what}: {count}" for what, count in left_out.items()],
    )


def _only_question(objects: Sequence[Mapping[str, Any]], where: str) -> str:
    names = {
        name
        for one in objects
        for part in ("responses", "suggestions")
        for name in as_object(one.get(part) or {}, where)
    }
    if len(names) > 1:
        refuse(
            f"{where} has answers to the questions {', '.join(sorted(names))}; name the one that is the label as question"
        )
    return names.pop() if names else QUESTION


def _record(
    one: Mapping[str, Any],
    where: str,
    question: str,
    settings: _Settings,
    people: Mapping[str, str],
    left_out: Counter[str],
) -> Record:
    id = as_text(one.get("id"))
    if not id:
        refuse(f"{where} has no id; expected a text that names the item")
    aside = as_object(one.get("metadata") or {}, f"{where}, metadata").get(PAYLOAD)
    payload = as_object(parse_json(aside, f"{where}, metadata"), where) if isinstance(aside, str) else {}
    titles = {**settings.columns, **as_object(payload.get("columns") or {}, f"{where}, columns")}
    missing = as_list(payload.get("missing") or [], f"{where}, missing")
    content: dict[str, str | None] = {str(column): None for column in titles.values()}
    for key, value in as_object(one.get("fields"), f"{where}, fields").items():
        column = str(titles.get(key, key))
        content[column] = None if column in missing else as_text(value)
    record = record_of(payload, where, id=id, content=content)
    answers = dict(record.answers)
    said = as_object(one.get("responses") or {}, f"{where}, responses").get(question)
    for response in as_list(said or [], f"{where}, responses"):
        given = as_object(response, f"{where}, response")
        user = as_text(given.get("user_id")) or "unknown"
        label, value = None, given.get("value")
        if value is not None:
            label = as_text(
                value[0] if isinstance(value, list) and len(value) == 1 else None if isinstance(value, list) else value
            )
            if label is None:
                left_out["responses with several classes or none, left out"] += 1
                continue
        answers[people.get(user, f"user {user}")] = label
    suggestion = as_object(one.get("suggestions") or {}, f"{where}, suggestions").get(question)
    predictions = record.predictions
    if suggestion is not None and not predictions:
        predictions = _prediction(as_object(suggestion, f"{where}, suggestion"), where)
    return replace(record, answers=answers, predictions=predictions)


def _prediction(suggestion: Mapping[str, Any], where: str) -> tuple[Prediction, ...]:
    value, score = suggestion.get("value"), suggestion.get("score")
    label = as_text(value[0] if isinstance(value, list) and len(value) == 1 else value) if value != [] else None
    if label is None or (isinstance(value, list) and len(value) > 1):
        return ()
    try:
        return (
            Prediction(
                as_text(suggestion.get("agent")) or "argilla", label, None if isinstance(score, list) else number(score)
            ),
        )
    except ValueError as error:
        refuse(f"{where}: the score of the suggestion is wrong: {error}; expected a number from 0 to 1")


ARGILLA = Format(
    name="argilla",
    title="Argilla",
    endings=("/", ".json"),
    read=read,
    write=write,
    recognises=recognises,
    carries=ALL,
    people=True,
)
