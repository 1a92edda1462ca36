"""Prodigy: JSON lines of text classification, as `prodigy db-out` writes them and `prodigy mark` or `textcat.manual` read them.

A line is an answer of one person (`_annotator_id`, else `_session_id`) to one item, or an item without `answer`.

    choice     options [{id, text}], accept [id, …], answer accept | reject | ignore
    binary     label, answer: accept says the label is right, reject that it is not

`ignore` is an answer without a label. `reject` names no class, except where there are two: then it is the other one; so are
choices of several classes left out, and counted in the notes. Prodigy keeps fields that it does not know, so everything else of a
record travels in a field of its own, see `records.payload_of`; on an item's first line only.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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

_WHAT = "Prodigy"
_OURS = frozenset(
    {"id", "options", "accept", "answer", "label", "meta", "score", "priority", "flagged", "config", PAYLOAD}
)
_SHOWN = ("text", "image")


def read(path: Path, *, classes: Sequence[str] | None = None) -> RecordSet:
    """The records of a .jsonl; `classes` in their order, by default as the options or the labels have them."""
    lines = [
        (k, as_object(parse_json(line, f"{path}, line {k}"), f"{path}, line {k}"))
        for k, line in enumerate(read_text(path, _WHAT).split("\n"), 1)
        if line.strip()
    ]
    if not lines:
        refuse(f"{path} holds no line; expected an object a line, with text or image")
    known = classes if classes is not None else _classes(path, lines)
    made, left_out = dict[str, Record](), Counter[str]()
    texts, images = dict[str, None](), dict[str, None]()
    for k, line in lines:
        where = f"{path}, line {k}"
        payload = as_object(line.get(PAYLOAD) or {}, f"{where}, {PAYLOAD}")
        content = _content(line, payload, where)
        id = _id(line, payload, where)
        if id not in made:
            made[id] = _with_score(record_of(payload, where, id=id, content=content), line, where)
            for shown, found in zip(_SHOWN, (texts, images), strict=True):
                names = as_list(payload.get(f"{shown}s") or [shown] * (shown in line), where)
                found.update(dict.fromkeys(str(name) for name in names))
        if "answer" in line:
            who = as_text(line.get("_annotator_id")) or as_text(line.get("_session_id")) or "prodigy"
            known_answer, label = _answer(line, known, left_out, where)
            if known_answer:
                made[id] = replace(made[id], answers={**made[id].answers, who: label})
    notes = [f"{what}: {count}" for what, count in left_out.items()]
    return RecordSet.of(made.values(), known or None, texts=list(texts), images=list(images), notes=notes)


def write(given: RecordSet, path: Path) -> Path:
    """Lines in the order of rank: one for each answer of a person, or one with the prediction chosen beforehand."""
    options = [{"id": name, "text": name} for name in given.classes]
    with whole_file(path) as stream:
        for record in given.ranked():
            for line in _lines(record, given, options):
                stream.write((json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return path


def recognises(path: Path) -> bool:
    """Whether its first line is an object with the fields of Prodigy."""
    if path.suffix.lower() != ".jsonl":
        return False
    first = beginning(path).lstrip().split("\n", 1)[0]
    try:
        line = json.loads(first)
    except (ValueError, RecursionError):
        return False
    if not isinstance(line, dict) or not {"text", "image", "html"} & set(line):
        return False
    return bool({"_input_hash", "_task_hash", "_annotator_id"} & set(line)) or (
        isinstance(line.get("options"), list) or line.get("answer") in ("accept", "reject", "ignore")
    )


def _classes(path: Path, lines: Sequence[tuple[int, Mapping[str, Any]]]) -> list[str]:
    """The options in their order, then labels in the order in which they come."""
    found: dict[str, None] = {}
    for k, line in lines:
        for option in as_list(line.get("options") or [], f"{path}, line {k}, options"):
            name = as_text(as_object(option, f"{path}, line {k}, option").get("id"))
            found.update({} if not name else {name: None})
    for _, line in lines:
        chosen = line.get("accept") if isinstance(line.get("accept"), list) else []
        names = (as_text(one) for one in [line.get("label"), *(chosen or [])])
        found.update({name: None for name in names if name})
    return list(found)


def _content(line: Mapping[str, Any], payload: Mapping[str, Any], where: str) -> dict[str, str | None]:
    if PAYLOAD in line:
        content = as_object(payload.get("content") or {}, f"{where}, content")
        return {str(name): as_text(value) for name, value in content.items()}
    return {
        name: as_text(value)
        for name, value in line.items()
        if not name.startswith("_") and name not in _OURS and not isinstance(value, dict | list)
    }


def _id(line: Mapping[str, Any], payload: Mapping[str, Any], where: str) -> str:
    meta = line.get("meta") if isinstance(line.get("meta"), dict) else {}
    places = (payload.get("id"), line.get("id"), (meta or {}).get("id"), line.get("_input_hash"))
    found = next((text for text in map(as_text, places) if text), None)
    if found is None:
        refuse(f"{where} has no id; expected a field id, meta.id or _input_hash that names the item")
    return found


def _with_score(record: Record, line: Mapping[str, Any], where: str) -> Record:
    """A binary question is itself a prediction: the label with its score."""
    score, label = line.get("score"), as_text(line.get("label"))
    if record.predictions or score is None or not label or PAYLOAD in line:
        return record
    try:
        return replace(record, predictions=(Prediction("prodigy", label, number(score)),))
    except ValueError as error:
        refuse(f"{where}: the score is wrong: {error}; expected a number")


def _answer(
    line: Mapping[str, Any], classes: Sequence[str], left_out: Counter[str], where: str
) -> tuple[bool, str | None]:
    """Whether the line says something of the label, and what."""
    answer = line.get("answer")
    if answer == "ignore":
        return True, None
    if answer not in ("accept", "reject"):
        refuse(f"{where}: answer is {answer!r}; expected accept, reject or ignore")
    if "accept" in line or "label" not in line:
        chosen = [text for text in map(as_text, as_list(line.get("accept") or [], f"{where}, accept")) if text]
        if answer == "accept" and len(chosen) == 1:
            return True, chosen[0]
        what = "rejected tasks" if answer == "reject" else f"answers with {'several classes' if chosen else 'no class'}"
        left_out[f"{what}, left out"] += 1
        return False, None
    label = as_text(line.get("label"))
    if answer == "accept" and label:
        return True, label
    others = [name for name in classes if name != label]
    if len(classes) == 2 and len(others) == 1:
        return True, others[0]
    left_out["rejections, which say only which class it is not, left out"] += 1
    return False, None


def _lines(record: Record, given: RecordSet, options: list[dict[str, str]]) -> list[dict[str, Any]]:
    shown = {
        kind: "\n\n".join(text for name in names if (text := record.content[name]))
        for kind, names in zip(_SHOWN, (given.texts or given.columns, given.images), strict=True)
        if names
    }
    if not shown:
        refuse("the records have no content; expected a column of text or images that people can label")
    best = record.predictions[0] if record.predictions else None
    meta = {"id": record.id, **({} if best is None or best.score is None else {"score": round(best.score, 4)})}
    payload = payload_of(record, without=["answers"]) | {
        "content": dict(record.content),
        "texts": list(given.texts),
        "images": list(given.images),
    }
    first = {**shown, "options": options, "meta": meta, PAYLOAD: payload}
    if not record.answers:
        return [first if best is None else {**first, "accept": [best.label]}]
    said = [
        {
            "accept": [] if label is None else [label],
            "answer": "ignore" if label is None else "accept",
            "_annotator_id": who,
            "_session_id": who,
        }
        for who, label in record.answers.items()
    ]
    again = {**first, PAYLOAD: {"id": record.id, "content": {}}}
    return [{**(again if k else first), **one} for k, one in enumerate(said)]


PRODIGY = Format(
    name="prodigy",
    title="Prodigy JSONL",
    endings=(".jsonl",),
    read=read,
    write=write,
    recognises=recognises,
    carries=ALL,
    people=True,
)
