"""Rounds in JSON's types, and back: what the ledgers on disk share.

JSON has neither NaN nor infinity. null stands for NaN in numbers, and for infinity in diagnostics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.learning import Choice, Ruling
from labelchef.base.records import (
    Batch,
    ConstructionDiagnostics,
    Decisions,
    Heard,
    Metrics,
    RoundRecord,
    SelectionDiagnostics,
    Votes,
)

_Diagnostics = TypeVar("_Diagnostics", SelectionDiagnostics, ConstructionDiagnostics)


def record_as_json(record: RoundRecord) -> dict[str, Any]:
    """A round in JSON's types."""
    batch, decided = record.batch, record.decisions
    return {
        "round": record.number,
        "items": batch.indices.tolist(),
        "suggested": batch.suggested.tolist(),
        "influence": plain_numbers(batch.influence.tolist()),
        "by_answer": [plain_numbers(row) for row in batch.by_answer.tolist()],
        "selection": diagnostics_as_json(batch.diagnostics),
        "decided_items": decided.items.tolist(),
        "decided": decided.labels.tolist(),
        "support": decided.support.tolist(),
        "votes": [list(vote) for vote in record.votes],
        "changed": record.changed.tolist(),
        "asked": record.asked,
        "spent": record.spent,
        "cleaned": record.cleaned,
        "validation": record.validation.as_dict(),
        "steering": record.steering.as_dict(),
        "test": None if record.test is None else record.test.as_dict(),
        "predicted_change": plain_number(record.predicted_change),
        "realised_change": plain_number(record.realised_change),
        "construction": diagnostics_as_json(record.construction),
        "seconds": {k: float(v) for k, v in record.seconds.items()},
        "choice": None if record.choice is None else record.choice.as_json(),
        "ruling": None if record.ruling is None else asdict(record.ruling),
        "baselines": {
            split: {name: metrics.as_dict() for name, metrics in found.items()}
            for split, found in record.baselines.items()
        },
        "heard": record.heard.as_json(),
    }


def record_from_json(entry: Mapping[str, Any]) -> RoundRecord:
    """The round that `record_as_json` wrote."""
    items, suggested, decided_items, decided = (
        _whole(entry[key]) for key in ("items", "suggested", "decided_items", "decided")
    )
    influence, support = (np.array(entry[key], dtype=np.float64) for key in ("influence", "support"))
    if not len(items) == len(suggested) == len(influence) == len(entry["by_answer"]):
        raise ValueError("a batch with parts of different length")
    if not len(decided_items) == len(decided) == len(support):
        raise ValueError("decisions with parts of different length")
    by_answer = np.array(entry["by_answer"], dtype=np.float64).reshape(len(items), len((entry["by_answer"] or [[]])[0]))
    diagnostics = diagnostics_from_json(SelectionDiagnostics, entry["selection"])
    predicted, realised = (np.array(entry[key], dtype=np.float64) for key in ("predicted_change", "realised_change"))
    votes = list(zip(*entry["votes"], strict=True)) or [(), (), ()]
    return RoundRecord(
        number=int(entry["round"]),
        batch=Batch(items, suggested, influence, by_answer=by_answer, diagnostics=diagnostics),
        votes=Votes(_whole(votes[0]), tuple(map(str, votes[1])), _whole(votes[2])),
        decisions=Decisions(decided_items, decided, support),
        changed=_whole(entry["changed"]),
        asked=int(entry["asked"]),
        spent=int(entry["spent"]),
        cleaned=int(entry["cleaned"]),
        validation=Metrics(**entry["validation"]),
        steering=Metrics(**entry["steering"]),
        test=None if entry["test"] is None else Metrics(**entry["test"]),
        construction=diagnostics_from_json(ConstructionDiagnostics, entry["construction"]),
        seconds={str(k): float(v) for k, v in entry["seconds"].items()},
        predicted_change=float(predicted),
        realised_change=float(realised),
        choice=None if entry.get("choice") is None else Choice.from_json(entry["choice"]),
        ruling=None if entry.get("ruling") is None else Ruling.from_json(entry["ruling"]),
        baselines={
            split: {name: Metrics(**metrics) for name, metrics in found.items()}
            for split, found in entry.get("baselines", {}).items()
        },
        heard=Heard.from_json(entry.get("heard")),
    )


def _whole(values: Sequence[Any]) -> Ints:
    """(n,) whole numbers, none of them rounded or made of something else."""
    if not all(type(value) is int for value in values):
        raise ValueError("expected whole numbers")
    return np.array(values, dtype=np.int64).reshape(len(values))


def plain_number(value: float) -> float | None:
    """A number as JSON has it: None for NaN and infinity."""
    return value if np.isfinite(value) else None


def plain_numbers(values: list[float]) -> list[float | None]:
    """Numbers as JSON has them."""
    return [plain_number(value) for value in values]


def diagnostics_as_json(made: SelectionDiagnostics | ConstructionDiagnostics) -> dict[str, Any]:
    """Diagnostics in JSON's types; None for infinity."""
    return {k: plain_number(v) if isinstance(v, float) else v for k, v in asdict(made).items()}


def diagnostics_from_json(kind: type[_Diagnostics], values: Mapping[str, Any]) -> _Diagnostics:
    """What `diagnostics_as_json` wrote."""
    known: dict[str, Any] = {k: float("inf") if v is None else v for k, v in values.items()}
    return kind(**known)
