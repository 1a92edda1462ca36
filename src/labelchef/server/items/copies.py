"""The copies of a campaign, which were found when it was made: who stands for whom, by key and by row."""

from collections.abc import Mapping

import numpy as np
from sqlalchemy import Connection

from labelchef.base.arrays import Ints
from labelchef.base.campaigns import SplitName
from labelchef.data.copies import Copies
from labelchef.server.store import campaign_table
from labelchef.server.store.arrays import read_array
from labelchef.server.store.rows import CampaignRow, ItemRow
from labelchef.server.workspace import Workspace, folder_of


def copies_of(ws: Workspace, connection: Connection, campaign: CampaignRow) -> Copies | None:
    """The copies among the training items; None where there are none, or an earlier version made the campaign."""
    facts = campaign_table.arrays_of(connection, campaign.id).get("copies")
    return None if facts is None else Copies(read_array(folder_of(ws, campaign), facts))


def asked_items(
    ws: Workspace, connection: Connection, campaign: CampaignRow, items: Mapping[str, ItemRow]
) -> dict[str, ItemRow]:
    """The training items that are asked in place of these, by the keys of these; a copy of a trusted item stays itself."""
    copies = copies_of(ws, connection, campaign)
    if copies is None or not items:
        return dict(items)
    asked = dict(zip(items, copies.asked(np.array([one.position for one in items.values()])).tolist(), strict=True))
    others = [place for key, place in asked.items() if place not in (-1, items[key].position)]
    found = campaign_table.items_at(connection, campaign.id, SplitName.TRAIN, others)
    return {key: found.get(asked[key], one) for key, one in items.items()}


def originals(connection: Connection, campaign: CampaignRow, copies: Copies | None, rows: Ints) -> dict[int, str]:
    """Position of each copy among these rows → key of the item that it repeats."""
    if copies is None:
        return {}
    rows = rows[copies.silent[rows]]
    of, first, keys = copies.of[rows], 0, dict[int, str]()
    for split in SplitName:
        n = campaign_table.size_of_split(connection, campaign.id, split)
        here = np.unique(of[(of >= first) & (of < first + n)] - first).tolist()
        found = campaign_table.items_at(connection, campaign.id, split, here)
        keys |= {first + place: one.key for place, one in found.items()}
        first += n
    return {int(row): keys[int(one)] for row, one in zip(rows, of, strict=True)}
