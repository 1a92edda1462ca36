"""Exports at the start of a campaign: a file of Label Studio, Prodigy or Argilla, or a data set of labelchef, becomes tables.

labels by people    right labels: the final one, else the majority; rows on which people are at odds have none
votes, predictions  sources, under the names of the rule or model; not those of labelchef's own model, which has learned from
                    the labels by people and so would look right on them
content             as it is
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelchef.base.files import whole_file
from labelchef.data.dataset import FIELD, VOTE, LabelOrigin
from labelchef.data.exchange.formats import FORMATS, sniff
from labelchef.data.exchange.records import PAYLOAD, Record
from labelchef.data.files import formats

_EXPORTED = {"id", "split", "label", "probability", "origin", "model_label", "doubt", "rank"}
"""Columns of every data set that labelchef exports."""
_HEAD = 1 << 20
_RIGHT = (LabelOrigin.PEOPLE, LabelOrigin.TRUSTED)


@dataclass(frozen=True)
class Unfolded:
    """The tables of a file of another tool."""

    items: Path
    """JSON lines: id and the content."""
    trusted: Path | None
    """JSON lines: id, label; None where people gave no label."""
    votes: Path | None
    """JSON lines: item, source, label, and probability where votes are soft; None where no source says anything."""
    test: Path | None = None
    """JSON lines: id, label; None where there are no test rows."""


def unfold(path: Path, into: Path) -> Unfolded | None:
    """The tables of a data set that labelchef exported, or of a file with answers of people of another tool; else None."""
    if path.suffix.lower() not in (".json", ".jsonl"):
        return _exported(path, into)
    name = sniff(path)
    if name is None or not FORMATS[name].people:
        return _exported(path, into)
    found = FORMATS[name].read(path)
    into.mkdir(parents=True, exist_ok=True)
    given = [{"id": one.id, "label": label} for one in found.records if (label := right_label(one)) is not None]
    said = [
        {"item": one.id, "source": source, "label": label}
        for one in found.records
        for source, label in (*one.votes.items(), *((p.model, p.label) for p in one.predictions if p.model != PAYLOAD))
    ]
    stem = into / path.stem
    return Unfolded(
        items=_written(stem, "items", [{"id": one.id, **_content(one)} for one in found.records]),
        trusted=_written(stem, "labels", given) if given else None,
        votes=_written(stem, "votes", said) if said else None,
    )


def _exported(path: Path, into: Path) -> Unfolded | None:
    """The tables of `labelchef export --what dataset`: its final labels are right where people or the data gave them."""
    if path.is_file() and path.suffix.lower() in formats.CSV_SUFFIXES:
        with path.open(
            "rb"
        ) as stream:  # its first line tells, where a table of thousands of columns takes a while to read
            head = stream.read(_HEAD).replace(b"\0", b"")
        if not all(name.encode() in head for name in _EXPORTED):
            return None
    if not path.is_file() or not set(formats.read_table(path, rows=1).frame.columns) >= _EXPORTED:
        return None
    frame = formats.read_table(path).frame
    rows = [{str(name): _text(value) for name, value in row.items()} for row in frame.to_dict("records")]
    derived = (*_EXPORTED, "decided_by", "support", "model_probability", "model_most_probable", "flags", "votes")
    held = [name for name in frame.columns if name not in derived and not name.startswith((VOTE, "p: "))]
    content = {n: n if n.removeprefix(FIELD) in derived else n.removeprefix(FIELD) for n in held}
    right = [row for row in rows if row["origin"] in _RIGHT]
    labels = {
        part: [
            {"id": row["id"], "label": row["label"]} for row in right if (row["split"] == "test") == (part == "test")
        ]
        for part in ("labels", "test")
    }
    said = [vote for row in rows for vote in _votes(row)]
    into.mkdir(parents=True, exist_ok=True)
    stem = into / path.stem
    return Unfolded(
        items=_written(
            stem, "items", [{"id": row["id"], **{name: row[held] for held, name in content.items()}} for row in rows]
        ),
        trusted=_written(stem, "labels", labels["labels"]) if labels["labels"] else None,
        votes=_written(stem, "votes", said) if said else None,
        test=_written(stem, "test", labels["test"]) if labels["test"] else None,
    )


def _votes(row: Mapping[str, str | None]) -> list[dict[str, str | float | None]]:
    """The votes of sources on an exported row: a column each, or one column of JSON; a soft vote is JSON itself."""
    told = {name.removeprefix(VOTE): value for name, value in row.items() if name.startswith(VOTE) and value}
    told |= _object(row.get("votes") or "{}") or {}
    found: list[dict[str, str | float | None]] = []
    for source, label in told.items():
        soft = _object(str(label)) or {str(label): 1.0}
        found += [
            {"item": row["id"], "source": source, "label": name, "probability": weight} for name, weight in soft.items()
        ]
    return found


def _object(text: str) -> dict[str, Any] | None:
    """A JSON object; None for any other text."""
    try:
        found = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _text(value: object) -> str | None:
    return None if value is None or value != value else str(value)


def _content(record: Record) -> dict[str, str | None]:
    return {name: value for name, value in record.content.items() if name not in ("id", "label")}


def right_label(record: Record) -> str | None:
    """The label that people gave.

    >>> right_label(Record("1", answers={"ann": "spam", "ben": "spam", "cat": "ham"}))
    'spam'
    >>> right_label(Record("1", answers={"ann": "spam", "ben": "ham"})) is None
    True
    """
    if record.label is not None and record.origin in _RIGHT:
        return record.label
    counts = Counter(label for label in record.answers.values() if label is not None).most_common(2)
    tied = len(counts) == 2 and counts[0][1] == counts[1][1]
    return counts[0][0] if counts and not tied else None


def _written(stem: Path, what: str, rows: Sequence[Mapping[str, str | float | None]]) -> Path:
    path = stem.with_name(f"{stem.name}-{what}.jsonl")
    with whole_file(path) as stream:
        for row in rows:
            stream.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
    return path
