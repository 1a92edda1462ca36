"""What is known of a campaign's sources, computed when somebody asks.

It is not stored with the rounds: one solve and up to J confusions a round would make every round slower and the database
larger, and few rounds are looked at. The session is one of its own, as for the final model, so a worker may go on meanwhile. The
last results are kept: asked again before the next round closes, the answer is there at once.
"""

import threading
from collections import OrderedDict
from pathlib import Path

from labelchef.campaign import rebuild
from labelchef.campaign.session import Session
from labelchef.campaign.source_report import NOTHING_LEARNED, SourceReport, flat_frame, source_facts, source_report
from labelchef.domain.errors import ConflictError
from labelchef.domain.settings import TRAIN
from labelchef.io import tables
from labelchef.services.people.access import looking
from labelchef.services.shared import writing_to
from labelchef.services.trained import data_of, ledger_of, require_model
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, round_table
from labelchef.store.rows import CampaignRow, RoundRow

_KEPT = 16
_cache: "OrderedDict[tuple[str, ...], SourceReport]" = OrderedDict()
_one = threading.Lock()


def sources(ws: Workspace, campaign: str) -> SourceReport:
    """The sources of a campaign after its last closed round, at most those with the most votes."""
    row, classes, closed = standing(ws, campaign)
    if row.settings.trusted != TRAIN:
        return SourceReport((), 0, classes, "")
    key = (str(ws.home), row.public_id, str(closed[-1].number), str(closed[-1].labels_hash))
    with _one:  # a second request waits, and then finds the result
        if key not in _cache:
            _cache[key] = source_report(session_after(ws, row, len(closed)), classes)
            while len(_cache) > _KEPT:
                _cache.popitem(last=False)
        return _cache[key]


def write_sources(ws: Workspace, campaign: str, path: Path) -> Path:
    """Write what is known of every source to a table, .csv, .jsonl or .parquet."""
    row, _, closed = standing(ws, campaign)
    if row.settings.trusted != TRAIN:
        raise ConflictError(f"there is nothing to write: {NOTHING_LEARNED}", code="sources")
    with writing_to(path, "make room or name another file"):
        return tables.write_table(flat_frame(source_facts(session_after(ws, row, len(closed)))), path)


def standing(ws: Workspace, campaign: str) -> tuple[CampaignRow, tuple[str, ...], list[RoundRow]]:
    """The campaign, its classes and its closed rounds."""
    with looking(ws, campaign) as (connection, row):
        require_model(connection, row)
        classes = campaign_table.classes_of(connection, row.id)
        return row, classes, [one for one in round_table.rounds_of(connection, row.id) if not one.is_open]


def session_after(ws: Workspace, row: CampaignRow, closed: int) -> Session:
    """A session of its own, as it was after so many closed rounds, round 0 included."""
    past = ledger_of(ws, row).rounds()
    return rebuild.rebuild(data_of(ws, row), row.settings, past[1:closed], first=past[0])
