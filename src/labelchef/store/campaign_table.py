"""Campaigns, their items and classes, the files of their arrays, and the changes that leads made."""

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Unpack

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.domain.campaigns import CampaignState, NewItem, SplitName
from labelchef.domain.errors import NotFoundError
from labelchef.domain.settings import Settings
from labelchef.store.arrays import ArrayFacts
from labelchef.store.rows import (
    AMONG,
    CampaignRow,
    CampaignValues,
    ItemRow,
    TrainItem,
    all_rows,
    columns,
    first_row,
    insert_row,
    rows_among,
    storable,
    values_of,
)
from labelchef.store.tables import ArrayFile, Campaign, ClassName, Item, OldSlug, SettingChange

RULES = "rules"
"""The array that holds the rules of a campaign as text; `rules-1`, … are those after each edit."""


def insert_campaign(
    connection: sa.Connection,
    *,
    public_id: str,
    slug: str,
    name: str,
    settings: Settings,
    by: str,
    classes: Sequence[str],
    items: Iterable[NewItem],
    n_items: int,
    arrays: Sequence[ArrayFacts],
) -> int:
    """A new campaign with everything that belongs to it."""
    campaign_id = insert_row(
        connection,
        Campaign,
        public_id=public_id,
        slug=slug,
        name=name,
        state=CampaignState.PREPARING,
        message="the first model is being trained",
        settings=settings,
        version=1,
        n_items=n_items,
        spent=0,
        created_at=time.time(),
        created_by=by,
        purging=False,
    )
    connection.execute(
        sa.insert(ClassName), [{"campaign_id": campaign_id, "position": k, "name": c} for k, c in enumerate(classes)]
    )
    rows = ({**values_of(item), "campaign_id": campaign_id, "attempt": 0} for item in items)
    while some := list(itertools.islice(rows, 5000)):
        connection.execute(sa.insert(Item), some)
    for facts in arrays:
        put_array(connection, campaign_id, facts)
    note_change(connection, campaign_id, by, {"created": name, "settings": settings.as_dict()})
    return campaign_id


def put_array(connection: sa.Connection, campaign_id: int, facts: ArrayFacts) -> None:
    """Store the facts of an array's file, in place of an earlier one of the same name."""
    values = asdict(facts)
    here = (ArrayFile.c.campaign_id == campaign_id) & (ArrayFile.c.name == facts.name)
    if connection.execute(sa.update(ArrayFile).where(here).values(**values)).rowcount == 0:
        connection.execute(sa.insert(ArrayFile).values(campaign_id=campaign_id, **values))


def arrays_of(connection: sa.Connection, campaign_id: int) -> dict[str, ArrayFacts]:
    """The files of a campaign's arrays by name."""
    rows = connection.execute(sa.select(ArrayFile).where(ArrayFile.c.campaign_id == campaign_id))
    return {r.name: ArrayFacts(r.name, r.path, r.dtype, tuple(r.shape), r.sha256) for r in rows}


_VERSIONS = sa.select(ArrayFile.c.name).where(
    ArrayFile.c.campaign_id == bindparam("campaign_id"), ArrayFile.c.name.like(f"{RULES}-%")
)


def votes_version(connection: sa.Connection, campaign_id: int) -> int:
    """Of the votes of sources: 0 as they came with the data; each edit of the rules stores the next one."""
    names = connection.execute(_VERSIONS, {"campaign_id": campaign_id}).scalars()
    return max((int(name.removeprefix(f"{RULES}-")) for name in names), default=0)


_CAMPAIGN_BY_NAME = sa.select(Campaign).where(
    (Campaign.c.slug == bindparam("name")) | (Campaign.c.public_id == bindparam("name"))
)
_BY_OLD_NAME = sa.select(Campaign).join(OldSlug).where(OldSlug.c.slug == bindparam("name"))


def find_campaign(connection: sa.Connection, campaign: str, *, deleted: bool = False) -> CampaignRow:
    """A campaign by its slug, an earlier slug or its id; with `deleted`, one that is deleted, and no other."""
    row = None
    if storable(campaign):
        row = first_row(connection, _CAMPAIGN_BY_NAME, CampaignRow, name=campaign)
        if row is None:
            row = first_row(connection, _BY_OLD_NAME, CampaignRow, name=campaign)
    if row is not None and (row.deleted_at is not None) == deleted:
        return row
    if deleted:
        why = f"there is no deleted campaign {campaign!r}; `labelchef list --deleted` lists them"
        raise NotFoundError(why, code="campaign")
    raise NotFoundError(f"there is no campaign {campaign!r}; `labelchef status` lists them", code="campaign")


def all_campaigns(connection: sa.Connection, *, deleted: bool = False) -> list[CampaignRow]:
    """Every campaign that is not deleted, archived ones too, oldest first; with `deleted`, those that are."""
    found = sa.select(Campaign).order_by(Campaign.c.id)
    gone = Campaign.c.deleted_at.is_not(None) if deleted else Campaign.c.deleted_at.is_(None)
    return all_rows(connection, found.where(gone), CampaignRow)


def slug_taken(connection: sa.Connection, slug: str) -> bool:
    """Whether a campaign has or had this slug or id; deleted ones count as long as they can be restored."""
    given = {"name": slug}
    return any(connection.execute(one, given).first() is not None for one in (_CAMPAIGN_BY_NAME, _BY_OLD_NAME))


def owner_of_slug(connection: sa.Connection, slug: str) -> int:
    """The id of the campaign that has or had this slug."""
    row = first_row(connection, _CAMPAIGN_BY_NAME, CampaignRow, name=slug)
    row = row or first_row(connection, _BY_OLD_NAME, CampaignRow, name=slug)
    assert row is not None, "it is taken"
    return row.id


def keep_old_slug(connection: sa.Connection, campaign_id: int, slug: str) -> None:
    """Let a slug that a campaign gives up lead to it still."""
    connection.execute(sa.insert(OldSlug).values(campaign_id=campaign_id, slug=slug))


def drop_old_slug(connection: sa.Connection, campaign_id: int, slug: str) -> None:
    """A campaign takes a slug again that it had before."""
    connection.execute(sa.delete(OldSlug).where(OldSlug.c.campaign_id == campaign_id, OldSlug.c.slug == slug))


def named(connection: sa.Connection, name: str, *, but: int | None = None) -> CampaignRow | None:
    """A campaign of this name that is not deleted, compared without regard to case; not the one of id `but`."""
    for row in all_campaigns(connection):
        if row.id != but and row.name.casefold() == name.strip().casefold():
            return row
    return None


def update_campaign(connection: sa.Connection, campaign_id: int, **values: Unpack[CampaignValues]) -> None:
    """Change a campaign; its version grows, which wakes those who wait for a change."""
    connection.execute(
        sa.update(Campaign).where(Campaign.c.id == campaign_id).values(version=Campaign.c.version + 1, **values)
    )


def note_change(connection: sa.Connection, campaign_id: int, who: str, what: Mapping[str, object]) -> None:
    """Append what a lead changed."""
    connection.execute(
        sa.insert(SettingChange).values(campaign_id=campaign_id, who=who, created_at=time.time(), what=dict(what))
    )


_CLASSES = (
    sa.select(ClassName.c.name)
    .where(ClassName.c.campaign_id == bindparam("campaign_id"))
    .order_by(ClassName.c.position)
)


def classes_of(connection: sa.Connection, campaign_id: int) -> tuple[str, ...]:
    """Class names in the order of the weak labels' columns."""
    return tuple(connection.execute(_CLASSES, {"campaign_id": campaign_id}).scalars())


_SPLIT = sa.select(Item).where(Item.c.campaign_id == bindparam("campaign_id"), Item.c.split == bindparam("split"))
_BY_KEY, _AT = _SPLIT.where(Item.c.key.in_(AMONG)), _SPLIT.where(Item.c.position.in_(AMONG))
_BY_ID = sa.select(Item).where(Item.c.id.in_(AMONG))


def item_by_key(connection: sa.Connection, campaign_id: int, key: str) -> ItemRow:
    """A training item by the key its file gave it."""
    row = items_by_key(connection, campaign_id, [key]).get(key)
    if row is None:
        raise NotFoundError(f"there is no item {key!r} in this campaign; check the id", code="item")
    return row


def items_by_key(
    connection: sa.Connection, campaign_id: int, keys: Sequence[str], split: SplitName = SplitName.TRAIN
) -> dict[str, ItemRow]:
    """Items of a split by key; keys that name none are left out."""
    known = filter(storable, keys)
    rows = rows_among(connection, _BY_KEY, ItemRow, known, campaign_id=campaign_id, split=split)
    return {row.key: row for row in rows}


def shown_items(connection: sa.Connection, campaign_id: int, key: str) -> list[ItemRow]:
    """Items with this key whose images people may see: of the training split, then of the validation split."""
    splits = (SplitName.TRAIN, SplitName.VALIDATION)
    found = (items_by_key(connection, campaign_id, [key], split).get(key) for split in splits)
    return [one for one in found if one is not None]


def items_by_id(connection: sa.Connection, ids: Sequence[int]) -> dict[int, ItemRow]:
    """Items by their inner id."""
    return {row.id: row for row in rows_among(connection, _BY_ID, ItemRow, map(int, ids))}


def items_at(
    connection: sa.Connection, campaign_id: int, split: SplitName, positions: Sequence[int]
) -> dict[int, ItemRow]:
    """Items of a split by position."""
    rows = rows_among(connection, _AT, ItemRow, map(int, positions), campaign_id=campaign_id, split=split)
    return {row.position: row for row in rows}


def labels_of_split(connection: sa.Connection, campaign_id: int, split: SplitName) -> list[int | None]:
    """The labels given with the data, by position."""
    found = _SPLIT.with_only_columns(Item.c.label).order_by(Item.c.position)
    return list(connection.execute(found, {"campaign_id": campaign_id, "split": split}).scalars())


def train_items(connection: sa.Connection, campaign_id: int) -> list[TrainItem]:
    """Every training item by position, without what people see of it."""
    found = _SPLIT.with_only_columns(*columns(TrainItem, Item)).order_by(Item.c.position)
    return all_rows(connection, found, TrainItem, campaign_id=campaign_id, split=SplitName.TRAIN)


def items_of_split(connection: sa.Connection, campaign_id: int, split: SplitName) -> list[ItemRow]:
    """Every item of a split by position, with what people see of it."""
    found = _SPLIT.order_by(Item.c.position)
    return all_rows(connection, found, ItemRow, campaign_id=campaign_id, split=split)


def next_attempt(connection: sa.Connection, item_id: int, attempt: int) -> None:
    """An item is to be asked again."""
    connection.execute(sa.update(Item).where(Item.c.id == item_id).values(attempt=attempt))
