"""The report of a campaign."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labelchef.domain.arrays import Float64s
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED, RoundRecord
from labelchef.domain.validation import note_on
from labelchef.services import fold
from labelchef.services.workspace import Workspace
from labelchef.store import (
    campaign_table,
    item_table,
)

if TYPE_CHECKING:
    pass


def report(ws: Workspace, campaign: str) -> str:
    """The HTML report of a campaign, from its history run again."""
    from labelchef.report import ReportData, render_report, require_report

    require_report()
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        classes = campaign_table.classes_of(connection, row.id)
        keys = item_table.train_keys(connection, row.id)
    settings = row.settings
    influence, first, asked, spent, predicted = np.empty(0), np.empty(0), [], [], []
    folded = None
    for step in fold.unfold(ws, row):
        folded = step.folded
        if step.record is None:
            break
        if step.row.number == 0:
            influence = folded.cleaner.scores()
        elif first.size == 0:
            batch = step.record.batch
            first = np.where(np.isnan(batch.influence), influence[batch.indices], batch.influence)
        spent.append(step.row.spent)
        foreseen = step.record.batch.influence[np.isfinite(step.record.batch.influence)]
        predicted.append(float(foreseen.sum()) / len(keys) if foreseen.size else np.nan)
        asked += _asked_rows(step.record, folded.weak, keys, classes)
    if folded is None:
        raise InvalidInputError("the campaign has no model yet; wait until it is trained", code="preparing")
    frame = folded.cleaner.history_
    measured = {split: folded.cleaner.gain(split=split) for split in ("validation", "test")}
    gains = {split: gain for split, gain in measured.items() if gain is not None}
    frame["spent"], frame["predicted_change"] = spent, predicted
    data = ReportData(
        title=f"labelchef: {row.name}",
        message=f"{row.state.capitalize()}: {row.message}.",
        history=frame,
        settings=settings.as_dict(),
        influence=influence,
        first_selected=first[np.isfinite(first)],
        asked=pd.DataFrame(asked, dtype=object),
        target_metric=settings.target_metric,
        target=settings.target,
        notes=[note_on(gains.get("validation"))],
        gains=gains,
    )
    return render_report(data)


def _asked_rows(record: RoundRecord, weak: Float64s, keys: list[str], classes: tuple[str, ...]) -> list[dict[str, Any]]:
    def name(label: int) -> str | None:
        return None if label == UNRESOLVED else classes[label]

    decided, batch = record.decisions, record.batch
    return [
        {
            "round": record.number,
            "item": keys[item],
            "weak": classes[int(np.argmax(weak[item]))],
            "suggested": name(int(batch.suggested[k])),
            "decided": name(int(decided.labels[k])),
            "support": round(float(decided.support[k]), 3),
            "influence": round(float(batch.influence[k]), 4) if np.isfinite(batch.influence[k]) else None,
        }
        for k, item in enumerate(decided.items.tolist())
    ]
