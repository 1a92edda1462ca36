"""Labels and votes out as tables, from the ledger: nothing is computed again. The report, for which what is known of sources is
computed; the final model, which is trained for it. Votes of other tools come in by `server.intake.importing`."""

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from labelchef.base.campaigns import DecisionKind, SplitName
from labelchef.base.errors import InvalidInputError
from labelchef.base.files import writing_to
from labelchef.base.records import UNRESOLVED
from labelchef.base.settings import TRAIN
from labelchef.data.dataset import Decided
from labelchef.data.encoded import EncodedClassifier
from labelchef.data.encoders.fitted import FittedEncoder
from labelchef.data.encoders.images import read_image
from labelchef.data.files import tables
from labelchef.data.files.artefacts import write_text
from labelchef.judge.report import Thumbnail, render_report, require_report
from labelchef.loop.report import Items, Outcome, label_frame, report_data
from labelchef.model.classifier import has_onnx, require_onnx
from labelchef.server.campaigns.access import looking
from labelchef.server.campaigns.progress import facts_of, gains_of, state_of
from labelchef.server.campaigns.trained import encoder_of, final_model, ledger_of, require_model
from labelchef.server.items.copies import copies_of
from labelchef.server.shared import moment
from labelchef.server.sharing import Shared
from labelchef.server.sources.sources import sources
from labelchef.server.store import campaign_table, decision_table, round_table, vote_table
from labelchef.server.store.arrays import read_array
from labelchef.server.store.rows import DecisionRow, ItemRow
from labelchef.server.workspace import Workspace, folder_of, require_folder

MODEL_FORMATS = ("npz", "onnx")
_AT_ONCE = 10_000
"""Rows that are read and written at a time."""
Found = TypeVar("Found")
MOST_THUMBNAILS = 200
"""Images in a report: it stays one file that a browser opens at once."""
_THUMBNAIL = 96  # pixels


def model_formats() -> tuple[str, ...]:
    """Those that can be written here: ONNX needs its extra."""
    return MODEL_FORMATS if has_onnx() else MODEL_FORMATS[:1]


def export_labels(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write every training item with its label as it stands: decided (with or without a model yet), given, or weak."""
    with looking(ws, campaign) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        last = decision_table.last_decisions(connection, row.id)
        facts = campaign_table.arrays_of(connection, row.id)["weak"]
        given = campaign_table.given_labels(connection, row.id, SplitName.TRAIN, row.n_items).astype(np.int64)
        copies = copies_of(ws, connection, row)
    weak, decided = read_array(folder_of(ws, row), facts), {one.position: decided_of(one) for one in last.values()}
    if copies is not None:
        given, decided = copies.shared(given), copies.extended(decided)

    def frames() -> Iterator[pd.DataFrame]:
        for start in range(0, row.n_items, _AT_ONCE):
            here = slice(start, min(row.n_items, start + _AT_ONCE))
            with ws.reading() as connection:
                keys = campaign_table.keys_between(connection, row.id, here.start, here.stop)
            yield label_frame(Items(keys, classes, np.asarray(weak[here])), given[here], within(decided, here))

    with writing_to(path, "make room or name another file"):
        return tables.write_frames(frames, path, format)


def within(found: Mapping[int, Found], here: slice) -> dict[int, Found]:
    """What is known of rows of a piece, counted from its beginning."""
    return {row - here.start: one for row, one in found.items() if here.start <= row < here.stop}


def decided_of(row: DecisionRow) -> Decided:
    """A decision as the table of labels shows it."""
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
            **{
                name: [getattr(v, name) for v in votes]
                for name in ("blind", "seconds", "note", "source", "imported_by")
            },
            "at": [moment(v.created_at).isoformat() for v in votes],
            "id": [v.public_id for v in votes],
        }
    )
    return _write(frame.astype({"round": "Int64"}), path, format)


def export_model(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write the final model, trained from scratch on the labels after the last closed round: 'npz' or 'onnx', else by suffix.

    An .npz carries the encoder that made the features, so that it reads texts, images or tables; an .onnx file is the
    classifier alone. The session is one of its own: a worker may go on meanwhile.
    """
    chosen = path.suffix.removeprefix(".").lower() if format is None else format
    if chosen not in MODEL_FORMATS:
        raise InvalidInputError(f"{path} ends in {path.suffix!r}; expected .npz or .onnx for a model", code="out")
    if chosen == "onnx":
        require_onnx()
    with looking(ws, campaign) as (connection, row):
        require_model(connection, row)
    model, encoder = final_model(ws, row), encoder_of(ws, row)
    with writing_to(path, "make room or name another file"):
        if chosen == "onnx":
            return model.to_onnx(path)
        if encoder is None:
            return model.save(path, settings=row.settings.as_dict())
        whole = EncodedClassifier(FittedEncoder.of_bytes(encoder), model)
        return whole.save(path, settings=row.settings.as_dict())


_reports = Shared[str](kept=1)


def report(ws: Workspace, campaign: str) -> str:
    """The HTML report of a campaign as it stands; made once for all who ask until something changes."""
    require_report()
    return _reports.get(state_of(ws, campaign), lambda: _report(ws, campaign))


def _report(ws: Workspace, campaign: str) -> str:
    with looking(ws, campaign) as (connection, row):
        require_model(connection, row)
        classes = campaign_table.classes_of(connection, row.id)
        arrays = campaign_table.arrays_of(connection, row.id)
        closed = [one for one in round_table.rounds_of(connection, row.id) if not one.is_open]
        asked = sorted(decision_table.last_decisions(connection, row.id))
        seen = campaign_table.items_by_id(connection, asked)
    folder, metric, facts = require_folder(ws, row), row.settings.target_metric, facts_of(closed[-1].outcome)
    outcome = Outcome(
        title=f"labelchef: {row.name}",
        message=f"{row.state.capitalize()}: {row.message}.",
        rounds=ledger_of(ws, row).rounds(),
        settings=row.settings,
        scores=read_array(folder, arrays["scores"]),
        gains={split: found[metric] for split, found in gains_of(closed[-1].outcome).items()},
        figures={split: found[metric] for split, found in facts.figures.items()},
        calibration=facts.calibration,
        sources=None if row.settings.trusted != TRAIN else sources(ws, campaign),
    )
    items = Items(
        {one.position: one.key for one in seen.values()},
        classes,
        read_array(folder, arrays["weak"]),
        texts={one.position: one.text for one in seen.values() if one.text},
        thumbnails=_thumbnails(folder, seen.values()),
    )
    return render_report(report_data(outcome, items))


def _thumbnails(folder: Path, items: Iterable[ItemRow]) -> dict[int, Thumbnail]:
    """Small images of items by position; one that cannot be read is left out."""
    found: dict[int, Thumbnail] = {}
    for item in [one for one in items if one.image][:MOST_THUMBNAILS]:
        with contextlib.suppress(InvalidInputError):
            image, small = read_image(str(item.image), folder / "media"), io.BytesIO()
            image.thumbnail((_THUMBNAIL, _THUMBNAIL))
            image.save(small, "PNG", optimize=True)
            found[item.position] = Thumbnail(small.getvalue())
    return found


def export_report(ws: Workspace, campaign: str, path: Path, *, shared: bool = True) -> Path:
    """Write the HTML report of a campaign as it stands; not `shared`, it can be stopped without others who wait for it."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidInputError(f"{path} ends in {path.suffix!r}; expected .html for a report", code="out")
    require_report()
    page = report(ws, campaign) if shared else _report(ws, campaign)
    with writing_to(path, "make room or name another file"):
        write_text(path, page)
    return path


def _write(frame: pd.DataFrame, path: Path, format: str | None) -> Path:
    with writing_to(path, "make room or name another file"):
        return tables.write_table(frame, path, format)
