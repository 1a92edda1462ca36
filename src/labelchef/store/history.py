"""The ledger as one list, and votes by person, for pages, exports and progress."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import sqlalchemy as sa
import sqlalchemy.orm

from labelchef.domain.campaigns import Origin, SplitName
from labelchef.store.campaigns import Row, storable
from labelchef.store.tables import AccountRow, Application, Decision, Item, Round, Selection, SettingChange, Vote

KINDS = ("vote", "decision", "change")


@dataclass(frozen=True)
class LedgerRow:
    """A line of the ledger."""

    id: int
    public_id: str | None
    kind: str
    created_at: float
    who: str
    item: str | None
    round: int | None
    label: int | None
    what: dict[str, Any]


def page(
    connection: sa.Connection,
    campaign_id: int,
    *,
    after: tuple[float, str, int] | None,
    limit: int,
    kind: str | None,
    item_id: int | None,
    person: str | None,
) -> tuple[list[LedgerRow], str | None]:
    """Lines before the cursor, newest first, and the cursor of what follows."""
    wanted = [k for k in KINDS if kind in (None, k) and not (k == "change" and item_id is not None)]
    rows: list[LedgerRow] = []
    for name in wanted:
        rows += _LISTS[name](connection, campaign_id, after, limit + 1, item_id, person)
    rows.sort(key=_order, reverse=True)
    shown = rows[:limit]
    more = len(rows) > limit
    last = shown[-1] if shown and more else None
    return shown, None if last is None else f"{last.created_at!r}~{last.kind}~{last.id}"


def _order(row: LedgerRow) -> tuple[float, str, int]:
    return row.created_at, row.kind, row.id


def _before(table: Any, kind: str, after: tuple[float, str, int] | None) -> list[sa.ColumnElement[bool]]:
    if after is None:
        return []
    at, last_kind, last_id = after
    if kind < last_kind:
        return [table.created_at <= at]
    if kind > last_kind:
        return [table.created_at < at]
    return [(table.created_at < at) | ((table.created_at == at) & (table.id < last_id))]


def _votes(
    connection: sa.Connection,
    campaign_id: int,
    after: tuple[float, str, int] | None,
    limit: int,
    item_id: int | None,
    person: str | None,
) -> list[LedgerRow]:
    where = [Vote.campaign_id == campaign_id, *_before(Vote, "vote", after)]
    where += [] if item_id is None else [Vote.item_id == item_id]
    where += [] if person is None else [Vote.person == person]
    old = sa.orm.aliased(Vote)
    rows = connection.execute(
        sa.select(Vote.__table__, Item.key, Round.number, old.public_id.label("old_id"))
        .join(Item, Item.id == Vote.item_id)
        .outerjoin(Round, Round.id == Vote.round_id)
        .outerjoin(old, old.id == Vote.supersedes)
        .where(*where)
        .order_by(Vote.created_at.desc(), Vote.id.desc())
        .limit(limit)
    )
    return [
        LedgerRow(
            r.id,
            r.public_id,
            "vote",
            r.created_at,
            r.person,
            r.key,
            r.number,
            r.label,
            {
                "retracted": r.retracted,
                "supersedes": r.old_id,
                "note": r.note,
                "blind": r.blind,
                "suggested": r.suggested,
                "seconds": r.seconds,
                "source": r.source,
            },
        )
        for r in rows
    ]


def _decisions(
    connection: sa.Connection,
    campaign_id: int,
    after: tuple[float, str, int] | None,
    limit: int,
    item_id: int | None,
    person: str | None,
) -> list[LedgerRow]:
    where = [Decision.campaign_id == campaign_id, *_before(Decision, "decision", after)]
    where += [] if item_id is None else [Decision.item_id == item_id]
    where += [] if person is None else [Decision.by == person]
    old, made, used = sa.orm.aliased(Decision), sa.orm.aliased(Round), sa.orm.aliased(Round)
    rows = connection.execute(
        sa.select(
            Decision.__table__,
            Item.key,
            made.number,
            used.number.label("applied_in"),
            old.public_id.label("old_id"),
        )
        .join(Item, Item.id == Decision.item_id)
        .outerjoin(made, made.id == Decision.round_id)
        .outerjoin(Application, Application.decision_id == Decision.id)
        .outerjoin(used, used.id == Application.round_id)
        .outerjoin(old, old.id == Decision.supersedes)
        .where(*where)
        .order_by(Decision.created_at.desc(), Decision.id.desc())
        .limit(limit)
    )
    return [
        LedgerRow(
            r.id,
            r.public_id,
            "decision",
            r.created_at,
            r.by,
            r.key,
            r.number,
            r.label,
            {"kind": r.kind, "support": r.support, "supersedes": r.old_id, "applied_in": r.applied_in},
        )
        for r in rows
    ]


def _changes(
    connection: sa.Connection,
    campaign_id: int,
    after: tuple[float, str, int] | None,
    limit: int,
    _item_id: int | None,
    person: str | None,
) -> list[LedgerRow]:
    where = [SettingChange.campaign_id == campaign_id, *_before(SettingChange, "change", after)]
    where += [] if person is None else [SettingChange.who == person]
    rows = connection.execute(
        sa.select(SettingChange.__table__)
        .where(*where)
        .order_by(SettingChange.created_at.desc(), SettingChange.id.desc())
        .limit(limit)
    )
    return [LedgerRow(r.id, None, "change", r.created_at, r.who, None, None, None, r.what) for r in rows]


_LISTS = {"vote": _votes, "decision": _decisions, "change": _changes}


def live_votes(connection: sa.Connection, campaign_id: int) -> list[Row]:
    """Every vote of a campaign that counts, with its item's key, in the order they came."""
    later = sa.orm.aliased(Vote)
    newer = sa.select(later.id).where(
        later.item_id == Vote.item_id,
        later.attempt == Vote.attempt,
        later.person == Vote.person,
        later.seq > Vote.seq,
    )
    return list(
        connection.execute(
            sa.select(Vote.__table__, Item.key, Item.position)
            .join(Item, Item.id == Vote.item_id)
            .where(Vote.campaign_id == campaign_id, sa.not_(Vote.retracted), ~newer.exists())
            .order_by(Vote.id)
        ).all()
    )


def live_votes_by_person(connection: sa.Connection, campaign_id: int) -> dict[str, list[Row]]:
    """The same by person."""
    people: dict[str, list[Row]] = {}
    for vote in live_votes(connection, campaign_id):
        people.setdefault(vote.person, []).append(vote)
    return people


def last_decisions(connection: sa.Connection, campaign_id: int) -> dict[int, Row]:
    """The decision that counts for every decided item, by the item's inner id."""
    return {row.item_id: row for row in decisions(connection, campaign_id)}


def decisions(connection: sa.Connection, campaign_id: int) -> Sequence[Row]:
    """Every decision with its item's position, in the order they were made."""
    found = (
        sa.select(Decision.__table__, Item.position)
        .join(Item, Item.id == Decision.item_id)
        .where(Decision.campaign_id == campaign_id)
        .order_by(Decision.id)
    )
    return connection.execute(found).all()


def all_votes(connection: sa.Connection, campaign_id: int) -> list[Row]:
    """Every row of the vote ledger with its item's key and its round's number, in the order they came."""
    return list(
        connection.execute(
            sa.select(Vote.__table__, Item.key, Round.number)
            .join(Item, Item.id == Vote.item_id)
            .outerjoin(Round, Round.id == Vote.round_id)
            .where(Vote.campaign_id == campaign_id)
            .order_by(Vote.id)
        ).all()
    )


def train_items(connection: sa.Connection, campaign_id: int) -> list[Row]:
    """Id, key, position and given label of every training item, by position."""
    found = (
        sa.select(Item.id, Item.key, Item.position, Item.label)
        .where(Item.campaign_id == campaign_id, Item.split == SplitName.TRAIN.value)
        .order_by(Item.position)
    )
    return cast("list[Row]", connection.execute(found).all())


def train_keys(connection: sa.Connection, campaign_id: int) -> list[str]:
    """Keys of the training items by position."""
    return [row.key for row in train_items(connection, campaign_id)]


def items_by_key(connection: sa.Connection, campaign_id: int, keys: Sequence[str]) -> dict[str, Row]:
    """Training items by key; keys that name none are left out."""
    found: dict[str, Row] = {}
    for part in _parts([key for key in dict.fromkeys(keys) if storable(key)]):
        rows = connection.execute(
            sa.select(Item.__table__).where(
                Item.campaign_id == campaign_id, Item.split == SplitName.TRAIN.value, Item.key.in_(part)
            )
        )
        found.update({row.key: row for row in rows})
    return found


def batch_selections(connection: sa.Connection, item_ids: Sequence[int]) -> dict[tuple[int, int], Row]:
    """By (item, attempt): the selection that put it to people in a batch."""
    found: dict[tuple[int, int], Row] = {}
    for part in _parts(sorted(set(item_ids))):
        rows = connection.execute(
            sa.select(Selection.__table__).where(Selection.item_id.in_(part), Selection.origin != Origin.AHEAD.value)
        )
        found.update({(row.item_id, row.attempt): row for row in rows})
    return found


def last_votes(connection: sa.Connection, item_ids: Sequence[int]) -> dict[tuple[int, int, str], Row]:
    """By (item, attempt, person): the last word, a retraction included."""
    found: dict[tuple[int, int, str], Row] = {}
    for part in _parts(sorted(set(item_ids))):
        rows = connection.execute(
            sa.select(Vote.__table__).where(Vote.item_id.in_(part)).order_by(Vote.item_id, Vote.seq)
        )
        found.update({(row.item_id, row.attempt, row.person): row for row in rows})
    return found


def account_ids(connection: sa.Connection) -> dict[str, int]:
    """Inner ids of accounts by name."""
    return {row.name: row.id for row in connection.execute(sa.select(AccountRow.name, AccountRow.id))}


def insert_votes(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Append many votes."""
    for start in range(0, len(rows), 5000):
        connection.execute(sa.insert(Vote), list(rows[start : start + 5000]))


_Key = TypeVar("_Key", int, str)


def _parts(values: Sequence[_Key]) -> Iterator[list[_Key]]:
    """A few hundred at a time: databases take no endless lists."""
    for start in range(0, len(values), 500):
        yield list(values[start : start + 500])


def selections(connection: sa.Connection, campaign_id: int) -> list[Row]:
    """What every round of a campaign selected, without weak labels and neighbours."""
    found = (
        sa.select(
            Selection.round_id,
            Selection.item_id,
            Selection.attempt,
            Selection.origin,
            Selection.suggested,
            Selection.influence,
        )
        .join(Round, Round.id == Selection.round_id)
        .where(Round.campaign_id == campaign_id)
        .order_by(Selection.id)
    )
    return cast("list[Row]", connection.execute(found).all())
