"""Labels and votes out, as tables; and the report, from the ledger: nothing is computed again."""

from pathlib import Path

import numpy as np
import pandas as pd

from labelchef.campaign.report import Decided, Items, Outcome, label_frame, report_data
from labelchef.domain.campaigns import DecisionKind
from labelchef.domain.records import UNRESOLVED
from labelchef.io import tables
from labelchef.services.people.access import looking
from labelchef.services.progress import gains_of
from labelchef.services.shared import moment, writing_to
from labelchef.services.trained import ledger_of, require_model
from labelchef.services.workspace import Workspace, folder_of, require_folder
from labelchef.store import campaign_table, decision_table, round_table, vote_table
from labelchef.store.arrays import read_array
from labelchef.store.rows import DecisionRow


def export_labels(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every training item with its label as it stands: decided, given with the data, or weak.

    Decisions that wait for the next model are in it.
    """
    with looking(ws, campaign) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        items = campaign_table.train_items(connection, row.id)
        decided = decision_table.last_decisions(connection, row.id)
        facts = campaign_table.arrays_of(connection, row.id)["weak"]
    given = np.array([UNRESOLVED if item.label is None else item.label for item in items], dtype=np.int64)
    named = Items([item.key for item in items], classes, read_array(folder_of(ws, row), facts))
    return _write(label_frame(named, given, {made.position: _decided(made) for made in decided.values()}), path, format)


def _decided(row: DecisionRow) -> Decided:
    taken_back = row.label is None or row.kind is DecisionKind.REOPEN
    return Decided(UNRESOLVED if taken_back else int(row.label or 0), row.by, row.support)


def export_votes(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every vote of the ledger, changed and retracted ones too; `counts` says which of them count."""
    with looking(ws, campaign) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        live = {vote.id for vote in vote_table.live_votes_of_campaign(connection, row.id)}
        votes = vote_table.all_votes(connection, row.id)
    frame = pd.DataFrame(
        {
            "item": [v.key for v in votes],
            "annotator": [v.person for v in votes],
            "label": [None if v.label is None else classes[v.label] for v in votes],
            "ambiguous": [v.label is None and not v.retracted for v in votes],
            "counts": [v.id in live for v in votes],
            "retracted": [v.retracted for v in votes],
            "round": [v.number for v in votes],
            "attempt": [v.attempt for v in votes],
            "suggested": [None if v.suggested is None else classes[v.suggested] for v in votes],
            **{name: [getattr(v, name) for v in votes] for name in ("blind", "seconds", "note", "source")},
            "at": [moment(v.created_at).isoformat() for v in votes],
            "id": [v.public_id for v in votes],
        }
    )
    return _write(frame.astype({"round": "Int64"}), path, format)


def report(ws: Workspace, campaign: str) -> str:
    """The HTML report of a campaign as it stands."""
    from labelchef.report import render_report, require_report

    require_report()
    with looking(ws, campaign) as (connection, row):
        require_model(connection, row)
        classes = campaign_table.classes_of(connection, row.id)
        keys = [item.key for item in campaign_table.train_items(connection, row.id)]
        arrays = campaign_table.arrays_of(connection, row.id)
        closed = [one for one in round_table.rounds_of(connection, row.id) if not one.is_open]
    folder = require_folder(ws, row)
    outcome = Outcome(
        title=f"labelchef: {row.name}",
        message=f"{row.state.capitalize()}: {row.message}.",
        rounds=ledger_of(ws, row).rounds(),
        settings=row.settings,
        scores=read_array(folder, arrays["scores"]),
        gains={split: found[row.settings.target_metric] for split, found in gains_of(closed[-1].outcome).items()},
    )
    return render_report(report_data(outcome, Items(keys, classes, read_array(folder, arrays["weak"]))))


def _write(frame: pd.DataFrame, path: Path, format: str | None) -> Path:
    with writing_to(path, "make room or name another file"):
        return tables.write_table(frame, path, format)
