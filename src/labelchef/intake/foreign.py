"""Files of other tools at the start of a campaign: an export of Label Studio, Prodigy or Argilla becomes plain tables.

labels by people    right labels: the final one, else the majority; rows on which people are at odds have none
votes, predictions  sources, under the names of the rule or model
content             as it is
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labelchef.campaign.dataset import LabelOrigin
from labelchef.domain.files import whole_file
from labelchef.exchange.formats import FORMATS, sniff
from labelchef.exchange.records import Record

_RIGHT = (LabelOrigin.PEOPLE, LabelOrigin.TRUSTED)


@dataclass(frozen=True)
class Unfolded:
    """The tables of a file of another tool."""

    items: Path
    """JSON lines: id and the content."""
    trusted: Path | None
    """JSON lines: id, label; None where people gave no label."""
    votes: Path | None
    """JSON lines: item, source, label; None where no source says anything."""


def unfold(path: Path, into: Path) -> Unfolded | None:
    """The tables of a file that holds answers of people in the format of another tool; None for any other file."""
    name = sniff(path)
    if name is None or not FORMATS[name].people:
        return None
    found = FORMATS[name].read(path)
    into.mkdir(parents=True, exist_ok=True)
    given = [{"id": one.id, "label": label} for one in found.records if (label := right_label(one)) is not None]
    said = [
        {"item": one.id, "source": source, "label": label}
        for one in found.records
        for source, label in (*one.votes.items(), *((p.model, p.label) for p in one.predictions))
    ]
    stem = into / path.stem
    return Unfolded(
        items=_written(stem, "items", [{"id": one.id, **_content(one)} for one in found.records]),
        trusted=_written(stem, "labels", given) if given else None,
        votes=_written(stem, "votes", said) if said else None,
    )


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


def _written(stem: Path, what: str, rows: Sequence[Mapping[str, str | None]]) -> Path:
    path = stem.with_name(f"{stem.name}-{what}.jsonl")
    with whole_file(path) as stream:
        for row in rows:
            stream.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
    return path
