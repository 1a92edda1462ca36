"""Campaigns, their items and classes, the files of their arrays, and the changes that leads made."""

import contextlib
import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Unpack

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import bindparam

from labelchef.base.campaigns import CampaignState, NewItem, SplitName
from labelchef.base.errors import InvalidInputError, NotFoundError
from labelchef.base.settings import Settings
from labelchef.server.store import search
from labelchef.server.store.arrays import ArrayFacts
from labelchef.server.store.rows import (
    AMONG,
    CampaignRow,
    CampaignValues,
    ItemRow,
    all_rows,
    first_row,
    insert_row,
    rows_among,
    storable,
)
from labelchef.server.store.tables import ArrayFile, Campaign, ClassName, Item, OldSlug, SettingChange

RULES = "rules"
"""The array that holds the rules of a campaign as text; `rules-1`, … are those after each edit."""


_MAKING = 0x6C61626D616B6500  # of the lock in PostgreSQL under which ids are given


def begin_campaign(
    connection: sa.Connection, *, public_id: str, settings: Settings, by: str, n_items: int, total: int, until: float
) -> tuple[int, int]:
    """A campaign that is being made: nothing finds it, and it is removed if it does not move on before `until`.

    Its inner id, and that of the first of its `total` items: the ids are its own from now on, whoever else makes one.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
    taken = (sa.select(sa.func.max(one)) for one in (Item.c.id, Campaign.c.last_item))
    first = 1 + max(int(connection.execute(one).scalar() or 0) for one in taken)
    return insert_row(
        connection,
        Campaign,
        public_id=public_id,
        slug=public_id,
        name=public_id,
        state=CampaignState.PREPARING,
        message="the first model is being trained",
        settings=settings,
        version=1,
        n_items=n_items,
        spent=0,
        created_at=time.time(),
        created_by=by,
        deleted_at=time.time(),
        purge_at=until,
        purging=True,
        first_item=first,
        last_item=first + total - 1,
    ), first


_ITEM_COLUMNS = (
    "split",
    "position",
    "key",
    "text",
    "image",
    "fields",
    "images",
    "label",
    "campaign_id",
    "attempt",
    "id",
)
_INSERT = f"INSERT INTO item ({', '.join(_ITEM_COLUMNS)}) VALUES ({', '.join('?' * len(_ITEM_COLUMNS))})"
_COPY = f"COPY item ({', '.join(_ITEM_COLUMNS)}) FROM STDIN"
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def insert_items(connection: sa.Connection, campaign_id: int, first: int, items: Sequence[NewItem]) -> None:
    """Items of a campaign, with the inner ids from `first` on: by the driver itself, since there may be millions."""
    rows = [(*_item_values(campaign_id, item), first + k) for k, item in enumerate(items)]
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_INSERT, rows)
        return
    lines = "".join("\t".join(map(_copied, row)) + "\n" for row in rows)
    driver = connection.connection.dbapi_connection
    assert driver is not None, "a connection in use has one"
    with contextlib.closing(driver.cursor()) as cursor:
        cursor.execute(_COPY, stream=io.BytesIO(lines.encode()))  # type: ignore[call-arg]  # of pg8000


def _item_values(campaign_id: int, item: NewItem) -> tuple[Any, ...]:
    shown = (item.key, item.text, item.image)
    for text in shown:
        if text is not None and not storable(text):
            told = f"the text {text[:60]!r} holds a character that no database can keep (null, or half of a pair); remove it"
            raise InvalidInputError(told, code="input")
    fields = None if item.fields is None else json.dumps(item.fields)
    images = None if item.images is None else json.dumps(item.images)
    return (item.split.value, item.position, *shown, fields, images, item.label, campaign_id, 0)


def _copied(value: str | int | None) -> str:
    """A value in a line of COPY."""
    return "\\N" if value is None else value.translate(_ESCAPED) if isinstance(value, str) else str(value)


def still_making(connection: sa.Connection, campaign_id: int, until: float) -> None:
    """A campaign that is being made has moved on."""
    connection.execute(sa.update(Campaign).where(Campaign.c.id == campaign_id).values(purge_at=until))


def finish_campaign(
    connection: sa.Connection,
    campaign_id: int,
    *,
    slug: str,
    name: str,
    by: str,
    classes: Sequence[str],
    arrays: Sequence[ArrayFacts],
) -> None:
    """All items are there: give the campaign what else belongs to it, and let it be found."""
    connection.execute(
        sa.insert(ClassName), [{"campaign_id": campaign_id, "position": k, "name": c} for k, c in enumerate(classes)]
    )
    for facts in arrays:
        put_array(connection, campaign_id, facts)
    shown = {
        "slug": slug,
        "name": name,
        "deleted_at": None,
        "purge_at": None,
        "purging": False,
        "created_at": time.time(),
    }
    this = Campaign.c.id == campaign_id
    connection.execute(sa.update(Campaign).where(this).values(**shown))
    settings = connection.execute(sa.select(Campaign.c.settings).where(this)).scalar_one()
    note_change(connection, campaign_id, by, {"created": name, "settings": settings.as_dict()})
    gather_statistics(connection, Item.name, search.TABLE)


def gather_statistics(connection: sa.Connection, *tables: str) -> None:
    """PostgreSQL: look at tables that were filled just now. Until then it takes them for small, and reads all for a few rows."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"ANALYZE {', '.join(tables)}")


def unfinished(connection: sa.Connection) -> list[CampaignRow]:
    """Campaigns that are being made or removed."""
    return all_rows(connection, sa.select(Campaign).where(Campaign.c.purging).order_by(Campaign.c.id), CampaignRow)


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


_LOCKED_BY_NAME, _LOCKED_BY_OLD_NAME = (one.with_for_update(of=Campaign) for one in (_CAMPAIGN_BY_NAME, _BY_OLD_NAME))


def find_campaign(
    connection: sa.Connection, campaign: str, *, deleted: bool = False, locked: bool = False
) -> CampaignRow:
    """A campaign by its slug, an earlier slug or its id; with `deleted`, one that is deleted, and no other.

    With `locked`, other writers of it wait until this transaction ends (PostgreSQL; SQLite has one writer anyway).
    """
    row = None
    named, old = (_LOCKED_BY_NAME, _LOCKED_BY_OLD_NAME) if locked else (_CAMPAIGN_BY_NAME, _BY_OLD_NAME)
    if storable(campaign):
        row = first_row(connection, named, CampaignRow, name=campaign)
        if row is None:
            row = first_row(connection, old, CampaignRow, name=campaign)
    if row is not None and (row.deleted_at is not None) == deleted and not row.purging:
        return row
    if deleted:
        why = f"there is no deleted campaign {campaign!r}; `labelchef campaign list --deleted` lists them"
        raise NotFoundError(why, code="campaign")
    if row is not None:
        why = f"the campaign {row.name!r} was deleted by {row.deleted_by}; leads can restore it (list of deleted campaigns)"
        raise NotFoundError(why, code="campaign")
    raise NotFoundError(f"there is no campaign {campaign!r}; `labelchef status` lists them", code="campaign")


def all_campaigns(connection: sa.Connection, *, deleted: bool = False) -> list[CampaignRow]:
    """Every campaign that is not deleted, archived ones too, oldest first; with `deleted`, those that are."""
    found = sa.select(Campaign).order_by(Campaign.c.id)
    gone = Campaign.c.deleted_at.is_not(None) if deleted else Campaign.c.deleted_at.is_(None)
    return all_rows(connection, found.where(gone, sa.not_(Campaign.c.purging)), CampaignRow)


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


_CHANGES = (
    sa.select(SettingChange.c.who, SettingChange.c.what)
    .where(SettingChange.c.campaign_id == bindparam("campaign_id"))
    .order_by(SettingChange.c.id.desc())
)


def who_set(connection: sa.Connection, campaign_id: int, setting: str) -> str:
    """Who gave a setting its present value."""
    for who, what in connection.execute(_CHANGES, {"campaign_id": campaign_id}):
        if setting in what.get("settings", {}):
            return str(who)
    return "nobody"


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


_GIVEN = _SPLIT.with_only_columns(Item.c.position, Item.c.label).where(Item.c.label.is_not(None))


def given_labels(connection: sa.Connection, campaign_id: int, split: SplitName, n: int) -> NDArray[np.int32]:
    """(n,) labels that came with the data, −1 for none; an index has the items with a label alone."""
    found = np.full(n, -1, dtype=np.int32)
    given = connection.execute(_GIVEN, {"campaign_id": campaign_id, "split": split}).yield_per(10_000)
    rows = np.fromiter((tuple(one) for one in given), dtype=np.dtype((np.int64, 2)))
    found[rows[:, 0]] = rows[:, 1]
    return found


_LAST = _SPLIT.with_only_columns(Item.c.position).order_by(Item.c.position.desc()).limit(1)


def size_of_split(connection: sa.Connection, campaign_id: int, split: SplitName) -> int:
    """How many items a split has: positions count from 0."""
    last = connection.execute(_LAST, {"campaign_id": campaign_id, "split": split}).scalar()
    return 0 if last is None else int(last) + 1


def items_between(
    connection: sa.Connection, campaign_id: int, split: SplitName, start: int, stop: int
) -> list[ItemRow]:
    """Items of a split at the positions from `start` to before `stop`, in their order."""
    found = _SPLIT.where(Item.c.position >= bindparam("start"), Item.c.position < bindparam("stop"))
    ordered = found.order_by(Item.c.position)
    return all_rows(connection, ordered, ItemRow, campaign_id=campaign_id, split=split, start=start, stop=stop)


def given_items(connection: sa.Connection, campaign_id: int) -> set[int]:
    """Inner ids of the training items whose label came with the data."""
    found = _GIVEN.with_only_columns(Item.c.id)
    return set(connection.execute(found, {"campaign_id": campaign_id, "split": SplitName.TRAIN}).scalars())


def keys_between(connection: sa.Connection, campaign_id: int, start: int, stop: int) -> list[str]:
    """Keys of the training items at the positions from `start` to before `stop`."""
    found = _SPLIT.with_only_columns(Item.c.key).where(Item.c.position >= start, Item.c.position < stop)
    here = {"campaign_id": campaign_id, "split": SplitName.TRAIN}
    return list(connection.execute(found.order_by(Item.c.position), here).scalars())


def items_of_split(connection: sa.Connection, campaign_id: int, split: SplitName) -> list[ItemRow]:
    """Every item of a split by position, with what people see of it."""
    found = _SPLIT.order_by(Item.c.position)
    return all_rows(connection, found, ItemRow, campaign_id=campaign_id, split=split)


_OTHER_FIELDS = {
    "sqlite": "SELECT DISTINCT j.key FROM item, json_each(item.fields) j WHERE campaign_id = :campaign_id AND split = :split",
    "postgresql": "SELECT DISTINCT json_object_keys(fields) FROM item "
    "WHERE campaign_id = :campaign_id AND split = :split AND fields IS NOT NULL",
}


def content_names(connection: sa.Connection, campaign_id: int, split: SplitName) -> list[str]:
    """What people see of the items of a split, by name: text, image, then fields in the order of the first item."""
    here = {"campaign_id": campaign_id, "split": split}
    shown = (Item.c.text, Item.c.image)
    names = [
        one.name
        for one in shown
        if connection.execute(_SPLIT.with_only_columns(Item.c.id).where(one.is_not(None)).limit(1), here).first()
    ]
    first = items_at(connection, campaign_id, split, [0])
    others = connection.execute(
        sa.text(_OTHER_FIELDS[connection.dialect.name]), {**here, "split": split.value}
    ).scalars()
    return list(dict.fromkeys([*names, *((first[0].fields or {}) if first else ()), *sorted(others)]))


def next_attempt(connection: sa.Connection, item_id: int, attempt: int) -> None:
    """An item is to be asked again."""
    connection.execute(sa.update(Item).where(Item.c.id == item_id).values(attempt=attempt))
