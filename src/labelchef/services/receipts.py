"""Receipts of a campaign, computed when somebody asks, like the sources: a session of its own, and the last results are kept.

They are for leads only: a receipt says what one answer did to the figures of all.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from labelchef.campaign.receipts import MOST_JOINT
from labelchef.campaign.receipts import receipts as computed
from labelchef.domain.campaigns import SplitName
from labelchef.domain.receipts import Receipts
from labelchef.io import tables
from labelchef.services.people.access import looking
from labelchef.services.shared import writing_to
from labelchef.services.sources import session_after, standing
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table

_KEPT = 8
_cache: "OrderedDict[tuple[str, ...], NamedReceipts]" = OrderedDict()
_one = threading.Lock()


@dataclass(frozen=True)
class NamedReceipts:
    """Receipts with the names of items and classes."""

    found: Receipts
    items: dict[int, str]
    classes: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """A row a receipt."""
        return pd.DataFrame(self.found.named(self.items, self.classes))


def receipts(ws: Workspace, campaign: str, *, most: int = MOST_JOINT) -> NamedReceipts:
    """The receipts of a campaign after its last closed round; joint changes of at most `most` persons, sources and classes."""
    row, classes, closed = standing(ws, campaign)
    key = (str(ws.home), row.public_id, str(closed[-1].number), str(closed[-1].labels_hash), str(most))
    with _one:  # a second request waits, and then finds the result
        if key not in _cache:
            found = computed(session_after(ws, row, len(closed)), classes, most=most)
            with looking(ws, campaign) as (connection, _):
                rows = campaign_table.items_at(connection, row.id, SplitName.TRAIN, [one.item for one in found.items])
            _cache[key] = NamedReceipts(found, {place: one.key for place, one in rows.items()}, classes)
            while len(_cache) > _KEPT:
                _cache.popitem(last=False)
        return _cache[key]


def export_receipts(ws: Workspace, campaign: str, path: Path, format: str | None = None) -> Path:
    """Write a row an answered item: what was predicted of it, and what came of it."""
    tables.check_format(path, format)
    frame = receipts(ws, campaign, most=0).frame()
    with writing_to(path, "make room or name another file"):
        return tables.write_table(frame, path, format)
