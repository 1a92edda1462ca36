"""Labels and votes out, as tables."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labelchef.domain.arrays import Float64s
from labelchef.domain.campaigns import DecisionKind
from labelchef.domain.errors import InvalidInputError, MissingExtraError, StoreError
from labelchef.domain.files import whole_file
from labelchef.io import tables
from labelchef.services.folders import folder_of
from labelchef.services.times import moment
from labelchef.services.workspace import Workspace
from labelchef.store import (
    campaign_table,
    decision_table,
    item_table,
    vote_table,
)
from labelchef.store.arrays import read_array
from labelchef.store.rows import DecisionRow, TrainItem

if TYPE_CHECKING:
    pass

FORMATS = ("csv", "jsonl", "parquet")


_VOTE_COLUMNS = (
    *("item", "annotator", "label", "ambiguous", "counts", "retracted", "round", "attempt", "suggested"),
    *("blind", "seconds", "note", "source", "at", "id"),
)


def export_labels(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every training item with its label as it is now: decided, given with the data, or weak.

    Decisions that wait for the next model are in it.
    """
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        classes = campaign_table.classes_of(connection, row.id)
        items = item_table.train_items(connection, row.id)
        decided = decision_table.last_decisions(connection, row.id)
        facts = campaign_table.arrays_of(connection, row.id)["weak"]
    weak = read_array(folder_of(ws, row), facts)
    frame = pd.DataFrame([_label_row(item, decided.get(item.id), weak[item.position], classes) for item in items])
    return _write(frame, path, format)


def export_votes(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every vote of the ledger, changed and retracted ones too; `counts` says which of them count."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        classes = campaign_table.classes_of(connection, row.id)
        live = {vote.id for vote in vote_table.live_votes_of_campaign(connection, row.id)}
        votes = vote_table.all_votes(connection, row.id)
    frame = pd.DataFrame(
        [
            {
                "item": v.key,
                "annotator": v.person,
                "label": None if v.label is None else classes[v.label],
                "ambiguous": v.label is None and not v.retracted,
                "counts": v.id in live,
                "retracted": v.retracted,
                "round": v.number,
                "attempt": v.attempt,
                "suggested": None if v.suggested is None else classes[v.suggested],
                "blind": v.blind,
                "seconds": v.seconds,
                "note": v.note,
                "source": v.source,
                "at": moment(v.created_at).isoformat(),
                "id": v.public_id,
            }
            for v in votes
        ],
        columns=list(_VOTE_COLUMNS),
    )
    return _write(frame.astype({"round": "Int64"}), path, format)


def _label_row(
    item: TrainItem, decision: DecisionRow | None, weak: Float64s, classes: tuple[str, ...]
) -> dict[str, Any]:
    label, source, by = int(np.argmax(weak)), "weak", None
    probability = [float(p) for p in weak]
    chosen = item.label
    if chosen is not None:
        source = "given"
    if decision is not None and decision.kind != DecisionKind.REOPEN:
        chosen, by = decision.label, decision.by
        source = "weak" if chosen is None else "cleaned"
    if decision is not None and decision.kind == DecisionKind.REOPEN:
        chosen, source, by = None, "weak", decision.by
    if chosen is not None:
        label = int(chosen)
        probability = [float(k == label) for k in range(len(classes))]
    return {
        "item": item.key,
        "label": classes[label],
        "source": source,
        "decided_by": by,
        "support": None if decision is None or by is None else float(decision.support),
        **{f"p_{name}": p for name, p in zip(classes, probability, strict=True)},
    }


def _write(frame: pd.DataFrame, path: Path, format: str | None) -> Path:
    kind = format or path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidInputError(f"format is {kind!r}; expected one of: {', '.join(FORMATS)}", code="format")
    try:
        with whole_file(path) as stream:
            if kind == "csv":
                stream.write(tables.csv_text(frame).encode())
            elif kind == "jsonl":
                for line in json.loads(frame.to_json(orient="records")):
                    stream.write((json.dumps(line, ensure_ascii=False) + "\n").encode())
            else:
                frame.to_parquet(stream, index=False)
    except ImportError:
        raise MissingExtraError("Parquet needs pyarrow; pip install 'labelchef[parquet]'", code="parquet") from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}; make room or name another file", code="out"
        ) from None
    return path
