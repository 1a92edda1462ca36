"""Items: the samples of a campaign and what people see of them."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.domain.campaigns import SplitName
from labelchef.domain.errors import NotFoundError
from labelchef.store.rows import AMONG, ItemRow, TrainItem, all_rows, columns, rows_among
from labelchef.store.tables import Item
from labelchef.store.values import storable

_SPLIT = sa.select(Item).where(Item.c.campaign_id == bindparam("campaign_id"), Item.c.split == bindparam("split"))
_BY_KEY, _AT = _SPLIT.where(Item.c.key.in_(AMONG)), _SPLIT.where(Item.c.position.in_(AMONG))
_BY_ID = sa.select(Item).where(Item.c.id.in_(AMONG))


def item_by_key(connection: sa.Connection, campaign_id: int, key: str) -> ItemRow:
    """A training item by the key its file gave it."""
    row = items_by_key(connection, campaign_id, [key]).get(key)
    if row is None:
        raise NotFoundError(f"there is no item {key!r} in this campaign; check the id", code="item")
    return row


def items_by_key(connection: sa.Connection, campaign_id: int, keys: Sequence[str]) -> dict[str, ItemRow]:
    """Training items by key; keys that name none are left out."""
    known = filter(storable, keys)
    rows = rows_among(connection, _BY_KEY, ItemRow, known, campaign_id=campaign_id, split=SplitName.TRAIN)
    return {row.key: row for row in rows}


def image_of(connection: sa.Connection, campaign_id: int, key: str) -> str | None:
    """The image of a training item with this key, else of a validation item."""
    if not storable(key):
        return None
    rows = connection.execute(
        sa.select(Item.c.split, Item.c.image).where(
            Item.c.campaign_id == campaign_id,
            Item.c.key == key,
            Item.c.split.in_([SplitName.TRAIN, SplitName.VALIDATION]),
            Item.c.image.is_not(None),
        )
    ).all()
    return min(((r.split != SplitName.TRAIN, r.image) for r in rows), default=(False, None))[1]


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
    found = (
        sa.select(Item.c.label)
        .where(Item.c.campaign_id == campaign_id, Item.c.split == split)
        .order_by(Item.c.position)
    )
    return list(connection.execute(found).scalars())


def train_items(connection: sa.Connection, campaign_id: int) -> list[TrainItem]:
    """Every training item by position, without what people see of it."""
    found = (
        sa.select(*columns(TrainItem, Item))
        .where(Item.c.campaign_id == campaign_id, Item.c.split == SplitName.TRAIN)
        .order_by(Item.c.position)
    )
    return all_rows(connection, found, TrainItem)


def train_keys(connection: sa.Connection, campaign_id: int) -> list[str]:
    """Keys of the training items by position."""
    return [row.key for row in train_items(connection, campaign_id)]


def next_attempt(connection: sa.Connection, item_id: int, attempt: int) -> None:
    """An item is to be asked again."""
    connection.execute(sa.update(Item).where(Item.c.id == item_id).values(attempt=attempt))
