"""Items: the samples of a campaign and what people see of them."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.domain.campaigns import SplitName
from labelchef.domain.errors import NotFoundError
from labelchef.store.rows import ItemRow, TrainItem, all_rows, columns, first_row
from labelchef.store.tables import Item
from labelchef.store.values import storable

_Key = TypeVar("_Key", int, str)


def parts(values: Sequence[_Key]) -> Iterator[list[_Key]]:
    """The values, 500 at a time: a database takes no longer lists."""
    for start in range(0, len(values), 500):
        yield list(values[start : start + 500])


_ITEM_BY_KEY = sa.select(Item).where(
    Item.c.campaign_id == bindparam("campaign_id"), Item.c.split == SplitName.TRAIN, Item.c.key == bindparam("key")
)


def item_by_key(connection: sa.Connection, campaign_id: int, key: str) -> ItemRow:
    """A training item by the key its file gave it."""
    row = first_row(connection, _ITEM_BY_KEY, ItemRow, campaign_id=campaign_id, key=key) if storable(key) else None
    if row is None:
        raise NotFoundError(f"there is no item {key!r} in this campaign; check the id", code="item")
    return row


def items_by_key(connection: sa.Connection, campaign_id: int, keys: Sequence[str]) -> dict[str, ItemRow]:
    """Training items by key; keys that name none are left out."""
    found: dict[str, ItemRow] = {}
    for part in parts([key for key in dict.fromkeys(keys) if storable(key)]):
        wanted = sa.select(Item).where(
            Item.c.campaign_id == campaign_id, Item.c.split == SplitName.TRAIN, Item.c.key.in_(part)
        )
        found.update({row.key: row for row in all_rows(connection, wanted, ItemRow)})
    return found


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


_ITEMS_BY_ID = sa.select(Item).where(Item.c.id.in_(bindparam("ids", expanding=True)))


def items_by_id(connection: sa.Connection, ids: Sequence[int]) -> dict[int, ItemRow]:
    """Items by their inner id."""
    return {row.id: row for row in all_rows(connection, _ITEMS_BY_ID, ItemRow, ids=[int(i) for i in ids])}


_ITEMS_AT = sa.select(Item).where(
    Item.c.campaign_id == bindparam("campaign_id"),
    Item.c.split == bindparam("split"),
    Item.c.position.in_(bindparam("positions", expanding=True)),
)


def items_at(
    connection: sa.Connection, campaign_id: int, split: SplitName, positions: Sequence[int]
) -> dict[int, ItemRow]:
    """Items of a split by position."""
    found: dict[int, ItemRow] = {}
    for part in parts([int(p) for p in positions]):
        rows = all_rows(connection, _ITEMS_AT, ItemRow, campaign_id=campaign_id, split=split, positions=part)
        found.update({row.position: row for row in rows})
    return found


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
