"""Labels and votes out, votes of other tools in, and the report."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from labelchef.domain.arrays import Float64s
from labelchef.domain.campaigns import AssignmentState, DecisionKind, Origin, RoundState
from labelchef.domain.errors import InvalidInputError, LabelchefError, MissingExtraError, StoreError
from labelchef.domain.files import whole_file
from labelchef.domain.records import UNRESOLVED, RoundRecord
from labelchef.domain.validation import note_on
from labelchef.io import tables
from labelchef.services import fold
from labelchef.services.access import check_person, moment
from labelchef.services.labelling import class_of, reconsider
from labelchef.services.workspace import Workspace
from labelchef.store import (
    account_table,
    assignment_table,
    campaign_table,
    decision_table,
    item_table,
    round_table,
    selection_table,
    vote_table,
)
from labelchef.store.arrays import read_array
from labelchef.store.rows import CampaignRow, DecisionRow, ItemRow, NewVote, SelectionRow, TrainItem, VoteRow

if TYPE_CHECKING:
    import sqlalchemy as sa

FORMATS = ("csv", "jsonl", "parquet")
_VOTE_COLUMNS = (
    *("item", "annotator", "label", "ambiguous", "counts", "retracted", "round", "attempt", "suggested"),
    *("blind", "seconds", "note", "source", "at", "id"),
)


def export_labels(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every training item with its label as it stands: decided, given with the data, or weak.

    Decisions that wait for the next model are in it.
    """
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        classes = campaign_table.classes_of(connection, row.id)
        items = item_table.train_items(connection, row.id)
        decided = decision_table.last_decisions(connection, row.id)
        facts = campaign_table.arrays_of(connection, row.id)["weak"]
    weak = read_array(ws.folder_of(row), facts)
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


def import_votes(ws: Workspace, campaign: str, path: Path, *, dry_run: bool = False) -> dict[str, int]:
    """Take votes of another tool: all of them, or, if a line cannot be used, none.

    A table of item, annotator, label (and note, if there is such a column); an empty label or −1 means ambiguous.
    Votes on items that were not asked yet wait for them; votes on decided items may correct the decision. Taken
    again, the same file changes nothing.
    """
    lines = tables.read_vote_lines(path)
    with ws.writing() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        ws.database.lock_campaign(connection, row.id)
        classes = campaign_table.classes_of(connection, row.id)
        items = item_table.items_by_key(connection, row.id, [line.item for line in lines])
        wanted: dict[tuple[str, str], _Incoming] = {}
        for line in lines:
            vote = _checked(line, items, classes)
            wanted.pop((line.annotator, line.item), None)
            wanted[line.annotator, line.item] = vote
        counts = _take(connection, row, list(wanted.values()), dry_run=dry_run)
    if not dry_run:
        ws.notify()
    return {"read": len(lines), **counts}


@dataclass(frozen=True)
class _Incoming:
    sample: ItemRow
    person: str
    label: int | None
    note: str | None


def _checked(line: tables.VoteLine, items: dict[str, ItemRow], classes: tuple[str, ...]) -> _Incoming:
    try:
        check_person(line.annotator)
        if line.item not in items:
            raise InvalidInputError(f"there is no item {line.item!r} in this campaign", code="votes")
        return _Incoming(items[line.item], line.annotator, class_of(classes, line.label), line.note)
    except LabelchefError as error:
        raise InvalidInputError(f"line {line.number}: {error}. Nothing was stored", code="votes") from None


def _take(
    connection: "sa.Connection", campaign: CampaignRow, votes: list[_Incoming], *, dry_run: bool
) -> dict[str, int]:
    turn = round_table.last_round(connection, campaign.id)
    open_ = turn is not None and turn.state == RoundState.SELECTED
    asked = (
        {s.item_id: s for s in selection_table.selections_of(connection, turn.id)} if turn is not None and open_ else {}
    )
    past = selection_table.batch_selections(connection, [v.sample.id for v in votes])
    last = vote_table.last_votes(connection, [v.sample.id for v in votes])
    accounts = account_table.account_ids(connection)
    counts = {"stored": 0, "changed": 0, "unchanged": 0}
    rows: list[tuple[VoteRow | None, NewVote]] = []
    again: list[tuple[SelectionRow, ItemRow]] = []
    for vote in votes:
        sample = vote.sample
        selection = asked.get(sample.id) or past.get((sample.id, sample.attempt))
        attempt = sample.attempt if selection is None else selection.attempt
        prior = last.get((sample.id, attempt, vote.person))
        live = prior is not None and not prior.retracted
        if prior is not None and live and prior.label == vote.label and prior.note == vote.note:
            counts["unchanged"] += 1
            continue
        counts["changed" if live else "stored"] += 1
        ahead = selection is None or selection.origin == Origin.AHEAD
        new = NewVote(
            campaign_id=campaign.id,
            item_id=sample.id,
            attempt=attempt,
            round_id=None if ahead or selection is None else selection.round_id,
            person=vote.person,
            account_id=accounts.get(vote.person),
            label=vote.label,
            note=vote.note,
            blind=True,
            suggested=None if selection is None else selection.suggested,
            source="import",
        )
        rows.append((prior, new))
        if selection is not None and sample.id not in asked:
            again.append((selection, sample))
        elif selection is not None and not dry_run:
            if not live:
                selection_table.count_vote(connection, selection.id, +1)
            assignment_table.assign(connection, selection, vote.person, AssignmentState.VOTED, time.time())
    if not dry_run and rows:
        vote_table.insert_votes(connection, rows)
        for selection, sample in again:
            reconsider(connection, campaign, selection, sample)
    return counts


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
                guarded = frame.map(lambda value: tables.harmless(value) if isinstance(value, str) else value)
                stream.write(guarded.to_csv(index=False).encode())
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
