"""A new campaign is made: its files, then its items some thousand at a time, at the end all that lets it be found.

No transaction is long: votes in other campaigns go on meanwhile, and memory holds one piece of the items. Until the end the
campaign is marked as one that is removed (`server.store.removal`), and this process holds a lock on its folder. If it fails,
what was made is removed at once; if the process dies, by the next worker (`care.purge`).
"""

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from labelchef.base.campaigns import NewItem
from labelchef.base.errors import StoreError
from labelchef.base.files import PRIVATE_FOLDER, is_locked, locked_folder, sync_folder, writing_to
from labelchef.base.intake import Progress, no_progress
from labelchef.base.settings import Settings
from labelchef.server.campaigns.naming import free_slug
from labelchef.server.store import campaign_table
from labelchef.server.store.arrays import ArrayFacts
from labelchef.server.store.removal import is_marked, remove_items
from labelchef.server.store.rows import CampaignRow, new_public_id
from labelchef.server.workspace import CAMPAIGNS, UNFINISHED_CAMPAIGN, Workspace

_AT_ONCE = 5_000
"""Items that are stored in one transaction."""
_PATIENCE = 900.0
"""Seconds without a step forward after which a campaign that another home makes is taken for one that was left behind."""
Found = TypeVar("Found")


@dataclass(frozen=True)
class NewCampaign:
    """What a new campaign is made of, but for its files."""

    name: Callable[[Connection], str]
    """Its name, checked when it is stored."""
    settings: Settings
    by: str
    classes: Sequence[str]
    items: Iterable[NewItem]
    """Of all splits, in the order of their positions."""
    n_items: int
    """Of the training split."""
    total: int
    """Of all splits."""


def make_campaign(
    ws: Workspace,
    new: NewCampaign,
    fill: Callable[[Path], Sequence[ArrayFacts]],
    finish: Callable[[Connection, CampaignRow], Found],
    progress: Progress = no_progress,
) -> Found:
    """Make it; `fill` writes its files into a folder, `finish` is called in the last transaction."""
    public_id = new_public_id()
    folder, unfinished = _folders(ws, public_id)
    campaign_id: int | None = None
    with contextlib.ExitStack() as held:
        try:
            with writing_to(folder, "no campaign was made. Make room or check the rights", code="folder"):
                unfinished.mkdir(mode=PRIVATE_FOLDER)
                held.enter_context(locked_folder(unfinished))
                progress("storing arrays", 0, 0)
                arrays = fill(unfinished)
            with ws.writing(lasting=False) as connection:
                campaign_id, first = campaign_table.begin_campaign(
                    connection,
                    public_id=public_id,
                    settings=new.settings,
                    by=new.by,
                    n_items=new.n_items,
                    total=new.total,
                    until=_until(),
                )
            items, done = iter(new.items), 0
            while some := list(itertools.islice(items, _AT_ONCE)):
                with ws.writing(lasting=False) as connection:
                    campaign_table.insert_items(connection, campaign_id, first + done, some)
                    campaign_table.still_making(connection, campaign_id, _until())
                done += len(some)
                progress("storing items", done, new.total)
            with writing_to(folder, "no campaign was made. Make room or check the rights", code="folder"):
                unfinished.rename(folder)
                sync_folder(folder.parent)
            with ws.writing() as connection:
                name = new.name(connection)
                campaign_table.finish_campaign(
                    connection,
                    campaign_id,
                    slug=free_slug(connection, name),
                    name=name,
                    by=new.by,
                    classes=new.classes,
                    arrays=arrays,
                )
                made = finish(connection, campaign_table.find_campaign(connection, public_id))
        except BaseException:
            gone = campaign_id is None
            with contextlib.suppress(StoreError):  # the next worker tries again
                gone = campaign_id is None or remove_unfinished(ws, campaign_id)
            shutil.rmtree(unfinished, ignore_errors=True)
            if gone:  # else the last transaction may have ended before the error: the campaign needs its files
                shutil.rmtree(folder, ignore_errors=True)
            raise
    ws.signal.notify()
    return made


def remove_unfinished(ws: Workspace, campaign_id: int) -> bool:
    """Remove the items of a campaign that is marked as unfinished, and the campaign.

    False if it has no such mark any more: it was finished meanwhile, and nothing more of it is removed.
    """
    over = False
    while not over:
        with ws.writing(lasting=False) as connection:
            marked = is_marked(connection, campaign_id)
            if not marked:
                return marked is None
            _, over = remove_items(connection, campaign_id)
    return True


def clear_unfinished(ws: Workspace) -> None:
    """Remove what is left of campaigns that nobody makes or removes any more."""
    with ws.reading() as connection:
        found = campaign_table.unfinished(connection)
    for row in found:
        folders = _folders(ws, row.public_id)
        if any(folder.is_dir() and is_locked(folder) for folder in folders):
            continue
        here = any(folder.is_dir() for folder in folders)
        if here or row.purge_at is None or row.purge_at <= time.time():
            if not remove_unfinished(ws, row.id):
                continue
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)


def _folders(ws: Workspace, public_id: str) -> tuple[Path, Path]:
    """The folder of a campaign, and its name until all of it is written."""
    return ws.home / CAMPAIGNS / public_id, ws.home / CAMPAIGNS / f"{UNFINISHED_CAMPAIGN}{public_id}"


def _until() -> float:
    return time.time() + _PATIENCE
