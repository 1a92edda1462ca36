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
from labelchef.store.tables import ArrayFile, Campaign, ClassName, Item, SettingChange


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


_CAMPAIGN_BY_NAME = sa.select(Campaign).where(
    (Campaign.c.slug == bindparam("name")) | (Campaign.c.public_id == bindparam("name"))
)


def find_campaign(connection: sa.Connection, campaign: str) -> CampaignRow:
    """A campaign by its slug or id."""
    row = first_row(connection, _CAMPAIGN_BY_NAME, CampaignRow, name=campaign) if storable(campaign) else None
    if row is None:
        raise NotFoundError(f"there is no campaign {campaign!r}; `labelchef status` lists them", code="campaign")
    return row


def all_campaigns(connection: sa.Connection) -> list[CampaignRow]:
    """Every campaign, oldest first."""
    return all_rows(connection, sa.select(Campaign).order_by(Campaign.c.id), CampaignRow)


def slug_taken(connection: sa.Connection, slug: str) -> bool:
    """Whether a campaign has this slug or id."""
    return connection.execute(_CAMPAIGN_BY_NAME, {"name": slug}).first() is not None


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
