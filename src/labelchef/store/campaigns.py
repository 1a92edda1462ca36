"""Campaigns, their classes, items, files and people."""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.domain.campaigns import CampaignState, SplitName
from labelchef.domain.errors import NotFoundError
from labelchef.domain.settings import Settings
from labelchef.store.arrays import ArrayFacts
from labelchef.store.tables import (
    AccountRow,
    ArrayFile,
    Campaign,
    ClassName,
    Item,
    Membership,
    SettingChange,
)

Row: TypeAlias = sa.Row[Any]
_BULK = 5000


def new_public_id() -> str:
    """A random id that may stand in an address."""
    return secrets.token_urlsafe(12).replace("-", "a").replace("_", "b")


def storable(text: str) -> bool:
    """Whether every database can hold this text: no null character, no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def insert_campaign(
    connection: sa.Connection,
    *,
    public_id: str,
    slug: str,
    name: str,
    settings: Settings,
    by: str,
    classes: Sequence[str],
    items: Iterable[Mapping[str, Any]],
    n_items: int,
    arrays: Sequence[ArrayFacts],
) -> int:
    """A new campaign with everything that belongs to it."""
    now = time.time()
    inserted = connection.execute(
        sa.insert(Campaign).values(
            public_id=public_id,
            slug=slug,
            name=name,
            state=CampaignState.PREPARING.value,
            message="the first model is being trained",
            settings=settings.as_dict(),
            version=1,
            n_items=n_items,
            spent=0,
            created_at=now,
            created_by=by,
        )
    ).inserted_primary_key
    assert inserted is not None
    campaign_id = int(inserted[0])
    connection.execute(
        sa.insert(ClassName), [{"campaign_id": campaign_id, "position": k, "name": c} for k, c in enumerate(classes)]
    )
    rows: list[dict[str, Any]] = []
    for item in items:
        rows.append({**item, "campaign_id": campaign_id, "attempt": 0})
        if len(rows) == _BULK:
            connection.execute(sa.insert(Item), rows)
            rows = []
    if rows:
        connection.execute(sa.insert(Item), rows)
    for facts in arrays:
        put_array(connection, campaign_id, facts)
    note_change(connection, campaign_id, by, {"created": name, "settings": settings.as_dict()})
    return campaign_id


def put_array(connection: sa.Connection, campaign_id: int, facts: ArrayFacts) -> None:
    """Note an array's file, in place of an earlier one of the same name."""
    values = {"path": facts.path, "dtype": facts.dtype, "shape": list(facts.shape), "sha256": facts.sha256}
    here = (ArrayFile.campaign_id == campaign_id) & (ArrayFile.name == facts.name)
    if connection.execute(sa.update(ArrayFile).where(here).values(**values)).rowcount == 0:
        connection.execute(sa.insert(ArrayFile).values(campaign_id=campaign_id, name=facts.name, **values))


def arrays_of(connection: sa.Connection, campaign_id: int) -> dict[str, ArrayFacts]:
    """The files of a campaign's arrays by name."""
    rows = connection.execute(sa.select(ArrayFile.__table__).where(ArrayFile.campaign_id == campaign_id))
    return {r.name: ArrayFacts(r.name, r.path, r.dtype, tuple(r.shape), r.sha256) for r in rows}


_CAMPAIGN_BY_NAME = sa.select(Campaign.__table__).where(
    (Campaign.slug == bindparam("name")) | (Campaign.public_id == bindparam("name"))
)


def find_campaign(connection: sa.Connection, campaign: str) -> Row:
    """A campaign by its slug or id."""
    row = connection.execute(_CAMPAIGN_BY_NAME, {"name": campaign}).first() if storable(campaign) else None
    if row is None:
        raise NotFoundError(f"there is no campaign {campaign!r}; `labelchef status` lists them", code="campaign")
    return row


def all_campaigns(connection: sa.Connection) -> Sequence[Row]:
    """Every campaign, oldest first."""
    return connection.execute(sa.select(Campaign.__table__).order_by(Campaign.id)).all()


def slug_taken(connection: sa.Connection, slug: str) -> bool:
    """Whether a campaign has this slug or id."""
    found = sa.select(Campaign.id).where((Campaign.slug == slug) | (Campaign.public_id == slug))
    return connection.execute(found).first() is not None


def update_campaign(connection: sa.Connection, campaign_id: int, **values: Any) -> None:
    """Change what changes; people who wait are told by the version."""
    connection.execute(
        sa.update(Campaign).where(Campaign.id == campaign_id).values(version=Campaign.version + 1, **values)
    )


def note_change(connection: sa.Connection, campaign_id: int, who: str, what: Mapping[str, Any]) -> None:
    """Append what a lead did."""
    connection.execute(
        sa.insert(SettingChange).values(campaign_id=campaign_id, who=who, created_at=time.time(), what=dict(what))
    )


_CLASSES = (
    sa.select(ClassName.name).where(ClassName.campaign_id == bindparam("campaign_id")).order_by(ClassName.position)
)


def classes_of(connection: sa.Connection, campaign_id: int) -> tuple[str, ...]:
    """Class names in the order of the weak labels' columns."""
    return tuple(connection.execute(_CLASSES, {"campaign_id": campaign_id}).scalars())


_ITEM_BY_KEY = sa.select(Item.__table__).where(
    Item.campaign_id == bindparam("campaign_id"), Item.split == SplitName.TRAIN.value, Item.key == bindparam("key")
)


def item_by_key(connection: sa.Connection, campaign_id: int, key: str) -> Row:
    """A training item by the key its file gave it."""
    given = {"campaign_id": campaign_id, "key": key}
    row = connection.execute(_ITEM_BY_KEY, given).first() if storable(key) else None
    if row is None:
        raise NotFoundError(f"there is no item {key!r} in this campaign; check the id", code="item")
    return row


def image_of(connection: sa.Connection, campaign_id: int, key: str) -> str | None:
    """The image of a training item with this key, else of a validation item."""
    if not storable(key):
        return None
    rows = connection.execute(
        sa.select(Item.split, Item.image).where(
            Item.campaign_id == campaign_id,
            Item.key == key,
            Item.split.in_([SplitName.TRAIN.value, SplitName.VALIDATION.value]),
            Item.image.is_not(None),
        )
    ).all()
    return min(((r.split != SplitName.TRAIN.value, r.image) for r in rows), default=(False, None))[1]


_ITEMS_BY_ID = sa.select(Item.__table__).where(Item.id.in_(bindparam("ids", expanding=True)))


def items_by_id(connection: sa.Connection, ids: Sequence[int]) -> dict[int, Row]:
    """Items by their inner id."""
    return {row.id: row for row in connection.execute(_ITEMS_BY_ID, {"ids": [int(i) for i in ids]})}


_ITEMS_AT = sa.select(Item.__table__).where(
    Item.campaign_id == bindparam("campaign_id"),
    Item.split == bindparam("split"),
    Item.position.in_(bindparam("positions", expanding=True)),
)


def items_at(connection: sa.Connection, campaign_id: int, split: str, positions: Sequence[int]) -> dict[int, Row]:
    """Items of a split by position."""
    found: dict[int, Row] = {}
    for start in range(0, len(positions), 500):
        part = [int(p) for p in positions[start : start + 500]]
        rows = connection.execute(_ITEMS_AT, {"campaign_id": campaign_id, "split": split, "positions": part})
        found.update({row.position: row for row in rows})
    return found


def labels_of_split(connection: sa.Connection, campaign_id: int, split: str) -> list[int | None]:
    """The labels given with the data, by position."""
    found = sa.select(Item.label).where(Item.campaign_id == campaign_id, Item.split == split).order_by(Item.position)
    return list(connection.execute(found).scalars())


_ACCOUNT = sa.select(AccountRow.__table__).where(AccountRow.name == bindparam("name"))


def account_by_name(connection: sa.Connection, name: str) -> Row | None:
    """An account, or None."""
    return connection.execute(_ACCOUNT, {"name": name}).first() if storable(name) else None


_MEMBER = sa.select(Membership.id).where(
    Membership.campaign_id == bindparam("campaign_id"), Membership.account_id == bindparam("account_id")
)


def is_member(connection: sa.Connection, campaign_id: int, account_id: int) -> bool:
    """Whether an account takes part in a campaign."""
    return connection.execute(_MEMBER, {"campaign_id": campaign_id, "account_id": account_id}).first() is not None


def member_names(connection: sa.Connection, campaign_id: int) -> list[str]:
    """Names of the accounts that take part."""
    return list(
        connection.execute(
            sa.select(AccountRow.name)
            .join(Membership, Membership.account_id == AccountRow.id)
            .where(Membership.campaign_id == campaign_id)
            .order_by(AccountRow.name)
        ).scalars()
    )


def set_member(connection: sa.Connection, campaign_id: int, account_id: int, *, member: bool) -> None:
    """Put an account on a campaign, or take it off."""
    if member:
        connection.execute(sa.insert(Membership).values(campaign_id=campaign_id, account_id=account_id))
    else:
        connection.execute(
            sa.delete(Membership).where(Membership.campaign_id == campaign_id, Membership.account_id == account_id)
        )
