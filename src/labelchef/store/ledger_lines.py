"""The ledger as one list: votes, decisions and changes by leads, newest first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
import sqlalchemy.orm

from labelchef.store.rows import ChangeRow, DecisionLine, VoteLine, all_rows, columns
from labelchef.store.tables import Application, Decision, Item, Round, SettingChange, Vote

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
    what: Mapping[str, object]


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
    found = (
        sa.select(*columns(VoteLine, Vote, Item, Round, old_id=old.public_id))
        .select_from(Vote)
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
        for r in all_rows(connection, found, VoteLine)
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
    found = (
        sa.select(
            *columns(DecisionLine, Decision, Item, number=made.number, applied_in=used.number, old_id=old.public_id)
        )
        .select_from(Decision)
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
        for r in all_rows(connection, found, DecisionLine)
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
    found = (
        sa.select(*columns(ChangeRow, SettingChange))
        .where(*where)
        .order_by(SettingChange.created_at.desc(), SettingChange.id.desc())
        .limit(limit)
    )
    return [
        LedgerRow(r.id, None, "change", r.created_at, r.who, None, None, None, r.what)
        for r in all_rows(connection, found, ChangeRow)
    ]


_LISTS = {"vote": _votes, "decision": _decisions, "change": _changes}
