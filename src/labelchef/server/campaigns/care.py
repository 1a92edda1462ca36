"""Care of campaigns: rename, archive, delete with a grace period, restore, copy with other settings; and their removal.

A deleted campaign is found by nothing but `restore` until its grace period is over. Then the worker removes it (`purge`): the
ledger in one transaction, then the items piece by piece (`server.store.removal`), and after that its folder. A process that
dies before the first transaction ends has removed nothing; one that dies later leaves items and a folder that the next purge
removes, because the removal is on record.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from labelchef.base.campaigns import GRACE_DAYS, CampaignSummary, DecisionKind, NewItem, SplitName
from labelchef.base.errors import InvalidInputError
from labelchef.base.files import PRIVATE_FOLDER
from labelchef.base.settings import Settings
from labelchef.loop.start import check, with_strengths
from labelchef.server.campaigns.access import changing, find
from labelchef.server.campaigns.campaigns import summary_of
from labelchef.server.campaigns.making import NewCampaign, clear_unfinished, make_campaign, remove_unfinished
from labelchef.server.campaigns.naming import check_name, check_slug, free_name
from labelchef.server.campaigns.trained import data_of, forget, lease_name
from labelchef.server.shared import common
from labelchef.server.store import campaign_table, decision_table
from labelchef.server.store.arrays import ArrayFacts
from labelchef.server.store.removal import remove_rows, removed_campaigns
from labelchef.server.store.rows import CampaignRow, CampaignValues, ItemRow
from labelchef.server.workspace import CAMPAIGNS, Workspace, require_folder

_DAY = 86400.0
_AT_ONCE = 5_000
_MADE_ANEW = ("scores", "model", "map")
"""Arrays that the first model of a copy makes."""
_log = logging.getLogger("labelchef")


def rename(ws: Workspace, campaign: str, by: str, name: str, *, slug: str | None = None) -> CampaignSummary:
    """Give a campaign another name; with `slug`, another address too. The old address still leads to it."""
    with changing(ws, campaign, archived=True) as (connection, row):
        named: CampaignValues = {"name": check_name(connection, name, but=row.id)}
        if slug is not None and slug != row.slug:
            check_slug(connection, slug, row.id)
            campaign_table.drop_old_slug(connection, row.id, slug)
            campaign_table.keep_old_slug(connection, row.id, row.slug)
            named["slug"] = slug
        before = {"name": row.name, "slug": row.slug}
        changed = {key: value for key, value in named.items() if before[key] != value}
        if changed:
            noted = {"renamed": changed, "before": {key: before[key] for key in changed}}
            campaign_table.note_change(connection, row.id, by, noted)
            campaign_table.update_campaign(connection, row.id, **named)
        return summary_of(ws, connection, campaign_table.find_campaign(connection, row.public_id))


def archive(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """Put a campaign away: lists do not show it, nothing in it can change, the worker leaves it alone."""
    return _archived(ws, campaign, by, archived=True)


def reopen(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """Take a campaign out of the archive: it goes on where it stood."""
    return _archived(ws, campaign, by, archived=False)


def _archived(ws: Workspace, campaign: str, by: str, *, archived: bool) -> CampaignSummary:
    with changing(ws, campaign, archived=True) as (connection, row):
        if (row.archived_at is not None) != archived:
            campaign_table.note_change(connection, row.id, by, {"archived": archived})
            campaign_table.update_campaign(connection, row.id, archived_at=time.time() if archived else None)
        found = campaign_table.find_campaign(connection, row.public_id)
        return summary_of(ws, connection, found)


def delete(
    ws: Workspace, campaign: str, by: str, *, confirm: str, grace_days: float = GRACE_DAYS, now: bool = False
) -> CampaignSummary:
    """Delete a campaign. It can be restored for `grace_days`; then, or at once with `now`, the worker removes it for good.

    `confirm` is its name, typed by the person who deletes it.
    """
    with changing(ws, campaign, archived=True) as (connection, row):
        if confirm.strip() != row.name:
            why = f"the name that was typed is {confirm!r}; expected {row.name!r}, the name of the campaign to delete"
            raise InvalidInputError(why, code="confirm")
        at = time.time()
        until = at if now else at + _DAY * grace_days
        campaign_table.note_change(connection, row.id, by, {"deleted": row.name, "until": until})
        campaign_table.update_campaign(connection, row.id, deleted_at=at, deleted_by=by, purge_at=until)
        found = campaign_table.find_campaign(connection, row.public_id, deleted=True)
        told = summary_of(ws, connection, found)
    forget(ws, row.id)
    if now:
        ws.purge_soon.set()
        ws.signal.notify()
    return told


def restore(ws: Workspace, campaign: str, by: str, *, name: str | None = None) -> CampaignSummary:
    """Take the deletion of a campaign back, under another name if its own was given to another one meanwhile."""
    with ws.writing() as connection:
        row = campaign_table.find_campaign(connection, campaign, deleted=True)
        ws.database.lock_campaign(connection, row.id)
        row = campaign_table.find_campaign(connection, campaign, deleted=True)
        kept = check_name(connection, row.name if name is None else name, but=row.id)
        campaign_table.note_change(connection, row.id, by, {"restored": kept})
        campaign_table.update_campaign(connection, row.id, deleted_at=None, deleted_by=None, purge_at=None, name=kept)
        told = summary_of(ws, connection, campaign_table.find_campaign(connection, row.public_id))
    ws.signal.notify()
    return told


def purge(ws: Workspace) -> list[str]:
    """Remove the deleted campaigns whose grace period is over; their names. Then remove folders that removals have left."""
    with ws.reading() as connection:
        due = [row for row in campaign_table.all_campaigns(connection, deleted=True) if _over(row)]
    removed = []
    for row in due:
        lease = ws.leases.take(lease_name(row))
        if lease is None:
            continue  # a step of it is being broken off; the next look removes it
        try:
            removed += [row.name] if _remove(ws, row.public_id) else []
        finally:
            ws.leases.give_back(lease, forget=True)
    clear_unfinished(ws)
    remove_folders(ws)
    return removed


def _over(row: CampaignRow) -> bool:
    return row.purge_at is not None and row.purge_at <= time.time()


def _remove(ws: Workspace, public_id: str) -> bool:
    """Remove the rows of a campaign in one transaction, unless it was restored meanwhile."""
    with ws.writing() as connection:
        found = [one for one in campaign_table.all_campaigns(connection, deleted=True) if one.public_id == public_id]
        if not found or not _over(found[0]):
            return False
        ws.database.lock_campaign(connection, found[0].id)
        counts = remove_rows(connection, found[0])
        left = campaign_table.size_of_split(connection, found[0].id, SplitName.TRAIN)
    remove_unfinished(ws, found[0].id)
    forget(ws, found[0].id)
    _log.warning(
        "campaign %r, deleted by %s, was removed for good: %d items, %d votes",
        found[0].name, found[0].deleted_by, counts["item"] + left, counts["vote"],
    )  # fmt: skip
    return True


def remove_folders(ws: Workspace) -> int:
    """Delete the folders of campaigns that were removed; how many there were."""
    with ws.reading() as connection:
        gone = [ws.home / CAMPAIGNS / one.public_id for one in removed_campaigns(connection)]
    there = [folder for folder in gone if folder.is_dir()]
    for folder in there:
        shutil.rmtree(folder, ignore_errors=True)
    return len(there)


def copy(
    ws: Workspace, campaign: str, by: str, *, name: str | None = None, changes: Mapping[str, Any] | None = None,
    answers: bool = False,
) -> CampaignSummary:  # fmt: skip
    """A new campaign with the same data and other settings.

    With `answers`, what was decided goes along: as labels that are known from the start, which are not asked again. Votes,
    rounds and people stay with the old campaign. Files are shared on the disk where it allows (hard links): they never change,
    and each campaign can be removed by itself.
    """
    row = find(ws, campaign)
    settings = Settings.of({**row.settings.as_dict(), **(changes or {})})
    with ws.reading() as connection:
        version = campaign_table.votes_version(connection, row.id)
    folder, data = require_folder(ws, row), data_of(ws, row).at_version(version)
    check(data, settings)
    settings, _ = with_strengths(data, settings)
    with ws.reading() as connection:
        arrays = [f for f in campaign_table.arrays_of(connection, row.id).values() if f.name not in _MADE_ANEW]
        classes = campaign_table.classes_of(connection, row.id)
        known = decision_table.last_decisions(connection, row.id) if answers else {}
        sizes = {split: campaign_table.size_of_split(connection, row.id, split) for split in SplitName}
    labels = {i: made.label for i, made in known.items() if made.kind is not DecisionKind.REOPEN}

    def items() -> Iterator[NewItem]:
        for split in SplitName:
            for start in range(0, sizes[split], _AT_ONCE):
                with ws.reading() as connection:
                    some = campaign_table.items_between(connection, row.id, split, start, start + _AT_ONCE)
                yield from (_item(one, labels.get(one.id)) for one in some)

    def fill(unfinished: Path) -> list[ArrayFacts]:
        for facts in arrays:
            _shared(folder / facts.path, unfinished / facts.path)
        _shared_tree(folder / "media", unfinished / "media")
        return arrays

    def finish(connection: Connection, made: CampaignRow) -> CampaignSummary:
        noted = {"copied_from": row.name, "id": row.public_id, "answers": len(labels)}
        campaign_table.note_change(connection, made.id, by, noted)
        return summary_of(ws, connection, made)

    def called(connection: Connection) -> str:
        return check_name(connection, free_name(connection, row.name) if name is None else name)

    new = NewCampaign(called, settings, by, classes, items(), row.n_items, sum(sizes.values()))
    return make_campaign(ws, new, fill, finish)


def _item(row: ItemRow, answer: int | None) -> NewItem:
    """An item of the copy; a label that came with the data stays."""
    return NewItem(**{**common(NewItem, row), "label": answer if row.label is None else row.label})


def _shared(old: Path, new: Path) -> None:
    """The same file under another name; a copy where the disk has no hard links."""
    try:
        os.link(old, new)
    except OSError:
        shutil.copy2(old, new)


def _shared_tree(old: Path, new: Path) -> None:
    new.mkdir(mode=PRIVATE_FOLDER)
    if not old.is_dir():
        return
    for path in sorted(old.rglob("*")):
        target = new / path.relative_to(old)
        if path.is_dir():
            target.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        elif path.is_file():
            target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            _shared(path, target)
