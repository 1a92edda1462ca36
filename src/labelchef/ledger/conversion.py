"""Rounds in JSON's types, and back: what the ledgers on disk share.

JSON has neither NaN nor infinity. null stands for NaN in numbers, and for infinity in diagnostics.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from labelchef.domain.records import (
    Batch,
    ConstructionDiagnostics,
    Decisions,
    Metrics,
    RoundRecord,
    SelectionDiagnostics,
    Votes,
)


def record_as_json(record: RoundRecord) -> dict[str, Any]:
    """A round in JSON's types."""
    batch, decided = record.batch, record.decisions
    return {
        "round": record.number,
        "items": batch.indices.tolist(),
        "suggested": batch.suggested.tolist(),
        "influence": plain_numbers(batch.influence.tolist()),
        "by_answer": [plain_numbers(row) for row in batch.by_answer.tolist()],
        "votes": [list(vote) for vote in record.votes],
        "decided_items": decided.items.tolist(),
        "decided": decided.labels.tolist(),
        "support": decided.support.tolist(),
        "changed": record.changed.tolist(),
        "asked": record.asked,
        "spent": record.spent,
        "cleaned": record.cleaned,
        "validation": record.validation.as_dict(),
        "steering": record.steering.as_dict(),
        "test": None if record.test is None else record.test.as_dict(),
        "predicted_change": plain_number(record.predicted_change),
        "realised_change": plain_number(record.realised_change),
        "selection": diagnostics_as_json(batch.diagnostics),
        "construction": diagnostics_as_json(record.construction),
        "seconds": dict(record.seconds),
    }


def record_from_json(entry: Mapping[str, Any]) -> RoundRecord:
    """The round that `record_as_json` wrote."""
    items, suggested, decided_items, decided, changed = (
        np.array(entry[key], dtype=np.int64) for key in ("items", "suggested", "decided_items", "decided", "changed")
    )
    influence, support = (np.array(entry[key], dtype=np.float64) for key in ("influence", "support"))
    if not len(items) == len(suggested) == len(influence) == len(entry["by_answer"]):
        raise ValueError("a batch with parts of different length")
    if not len(decided_items) == len(decided) == len(support):
        raise ValueError("decisions with parts of different length")
    by_answer = np.array(entry["by_answer"], dtype=np.float64).reshape(len(items), -1)
    votes = Votes.of([(str(worker), [item], [label]) for item, worker, label in entry["votes"]])
    return RoundRecord(
        number=int(entry["round"]),
        batch=Batch(
            items, suggested, influence, by_answer=by_answer, diagnostics=selection_diagnostics(entry["selection"])
        ),
        votes=votes,
        decisions=Decisions(decided_items, decided, support),
        changed=changed,
        asked=int(entry["asked"]),
        spent=int(entry["spent"]),
        cleaned=int(entry["cleaned"]),
        validation=Metrics(**entry["validation"]),
        steering=Metrics(**entry["steering"]),
        test=None if entry["test"] is None else Metrics(**entry["test"]),
        construction=construction_diagnostics(entry["construction"]),
        seconds={str(k): float(v) for k, v in entry["seconds"].items()},
        predicted_change=number_of(entry["predicted_change"]),
        realised_change=number_of(entry["realised_change"]),
    )


def plain_number(value: float) -> float | None:
    """A number as JSON has it: None for NaN and infinity."""
    return value if np.isfinite(value) else None


def plain_numbers(values: list[float]) -> list[float | None]:
    """Numbers as JSON has them."""
    return [plain_number(value) for value in values]


def number_of(value: float | None) -> float:
    """What `plain_number` made; NaN for None."""
    return float("nan") if value is None else float(value)


def diagnostics_as_json(made: SelectionDiagnostics | ConstructionDiagnostics) -> dict[str, Any]:
    """Diagnostics in JSON's types; None for infinity."""
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in asdict(made).items()}


def selection_diagnostics(values: Mapping[str, Any]) -> SelectionDiagnostics:
    """What `diagnostics_as_json` made of a selection's."""
    return SelectionDiagnostics(**_known(values, SelectionDiagnostics))


def construction_diagnostics(values: Mapping[str, Any]) -> ConstructionDiagnostics:
    """What `diagnostics_as_json` made of a construction's."""
    return ConstructionDiagnostics(**_known(values, ConstructionDiagnostics))


def _known(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}
    return {k: float("inf") if v is None else v for k, v in values.items() if k in names}
