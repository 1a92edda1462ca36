"""Decisions on items, and the round by which each went into the model."""

import time
from collections.abc import Mapping, Sequence
from typing import Unpack

import sqlalchemy as sa

from labelchef.base.campaigns import DecisionKind, Origin
from labelchef.server.store.rows import (
    AMONG,
    DecisionRow,
    DecisionValues,
    DecisionWithPosition,
    ItemRow,
    SelectionRow,
    all_rows,
    columns,
    first_row,
    new_public_id,
    rows_among,
)
from labelchef.server.store.tables import Application, Decision, Item, Selection, Wish

_WITH_POSITION = (
    sa.select(*columns(DecisionWithPosition, Decision, Item))
    .select_from(Decision)
    .join(Item)
    .outerjoin(Application, Application.c.decision_id == Decision.c.id)
    .where(Decision.c.campaign_id == sa.bindparam("campaign_id"))
    .order_by(Decision.c.id)
)
_PENDING = _WITH_POSITION.where(Application.c.decision_id.is_(None))
_later = Decision.alias()
_IS_LAST = ~sa.exists().where(_later.c.item_id == Decision.c.item_id, _later.c.id > Decision.c.id)


def decision_about(
    sample: ItemRow,
    place: SelectionRow | DecisionRow | None,
    kind: DecisionKind,
    by: str,
    label: int | None,
    support: float,
) -> DecisionValues:
    """A decision about the attempt and round of `place`, None for an item that no batch has asked."""
    return {
        "campaign_id": sample.campaign_id,
        "item_id": sample.id,
        "attempt": sample.attempt if place is None else place.attempt,
        "round_id": None if place is None else place.round_id,
        "kind": kind,
        "by": by,
        "label": label,
        "support": support,
    }


def insert_decision(connection: sa.Connection, **values: Unpack[DecisionValues]) -> None:
    """Append a decision, which supersedes the last one of the item."""
    last = last_decision(connection, values["item_id"])
    supersedes = None if last is None else last.id
    more = {"public_id": new_public_id(), "supersedes": supersedes, "created_at": time.time()}
    connection.execute(sa.insert(Decision), {**values, **more})


def insert_decisions(
    connection: sa.Connection, decisions: Sequence[DecisionValues], last: Mapping[int, DecisionRow]
) -> None:
    """Append decisions on different items; `last` are those that counted until now, by item."""
    now = time.time()
    rows = [
        {
            **values,
            "public_id": new_public_id(),
            "supersedes": last[values["item_id"]].id if values["item_id"] in last else None,
            "created_at": now,
        }
        for values in decisions
    ]
    if rows:
        connection.execute(sa.insert(Decision), rows)
        drop_wishes(connection, [values["item_id"] for values in decisions if values["label"] is not None])


def last_decision(connection: sa.Connection, item_id: int) -> DecisionRow | None:
    """The decision that counts for an item."""
    found = sa.select(Decision).where(Decision.c.item_id == item_id).order_by(Decision.c.id.desc()).limit(1)
    return first_row(connection, found, DecisionRow)


def decided_items(connection: sa.Connection, round_id: int) -> set[int]:
    """Items of a round whose current attempt has a decision already."""
    found = (
        sa.select(Selection.c.item_id)
        .join(Decision, (Decision.c.item_id == Selection.c.item_id) & (Decision.c.attempt == Selection.c.attempt))
        .where(Selection.c.round_id == round_id, Selection.c.origin != Origin.AHEAD)
    )
    return set(connection.execute(found).scalars())


_OF_ITEMS = sa.select(Decision).where(Decision.c.item_id.in_(AMONG)).order_by(Decision.c.id)


def decisions_on(connection: sa.Connection, item_ids: Sequence[int]) -> list[DecisionRow]:
    """Every decision on these items, the oldest of each first."""
    return rows_among(connection, _OF_ITEMS, DecisionRow, item_ids)


def decisions(connection: sa.Connection, campaign_id: int) -> list[DecisionWithPosition]:
    """Every decision, in the order they were made."""
    return all_rows(connection, _WITH_POSITION, DecisionWithPosition, campaign_id=campaign_id)


def newest_of_campaign(connection: sa.Connection, campaign_id: int) -> int:
    """The inner id of the last decision; 0 before the first."""
    found = sa.select(sa.func.max(Decision.c.id)).where(Decision.c.campaign_id == campaign_id)
    return int(connection.execute(found).scalar() or 0)


def last_decisions(connection: sa.Connection, campaign_id: int) -> dict[int, DecisionWithPosition]:
    """The decision that counts for every decided item, by the item's inner id."""
    return {row.item_id: row for row in decisions(connection, campaign_id)}


def pending_decisions(connection: sa.Connection, campaign_id: int) -> list[DecisionWithPosition]:
    """Decisions that are in no model yet, oldest first."""
    return all_rows(connection, _PENDING, DecisionWithPosition, campaign_id=campaign_id)


def has_pending(connection: sa.Connection, campaign_id: int) -> bool:
    """Whether a decision waits for the model."""
    return connection.execute(_PENDING.limit(1), {"campaign_id": campaign_id}).first() is not None


def apply_decisions(connection: sa.Connection, round_id: int, decision_ids: Sequence[int]) -> None:
    """Store that a round carried these decisions into the model."""
    if decision_ids:
        connection.execute(sa.insert(Application), [{"decision_id": d, "round_id": round_id} for d in decision_ids])


def reopened_positions(connection: sa.Connection, campaign_id: int) -> list[int]:
    """Positions of items taken back by a lead that were not put to people since."""
    asked = sa.exists().where(
        Selection.c.item_id == Item.c.id, Selection.c.attempt == Item.c.attempt, Selection.c.origin != Origin.AHEAD
    )
    found = (
        sa.select(Item.c.position)
        .join(Decision)
        .where(Decision.c.campaign_id == campaign_id, Decision.c.kind == DecisionKind.REOPEN, _IS_LAST, ~asked)
        .order_by(Decision.c.id)
    )
    return list(connection.execute(found).scalars())


def positions_to_ask(connection: sa.Connection, campaign_id: int) -> list[int]:
    """Positions of items to be asked before others: those taken back by a lead, then those that a lead wants asked."""
    wanted = sa.select(Item.c.position).join(Wish).where(Wish.c.campaign_id == campaign_id).order_by(Wish.c.id)
    found = [*reopened_positions(connection, campaign_id), *connection.execute(wanted).scalars()]
    return list(dict.fromkeys(found))


def wishes(connection: sa.Connection, campaign_id: int) -> list[int]:
    """Inner ids of the items that a lead wants asked and that no batch has asked since."""
    found = sa.select(Wish.c.item_id).where(Wish.c.campaign_id == campaign_id).order_by(Wish.c.id)
    return list(connection.execute(found).scalars())


def insert_wishes(connection: sa.Connection, campaign_id: int, item_ids: Sequence[int], by: str) -> None:
    """Have these items asked in the next batches, in their order."""
    now = time.time()
    rows = [{"campaign_id": campaign_id, "item_id": item, "by": by, "created_at": now} for item in item_ids]
    if rows:
        connection.execute(sa.insert(Wish), rows)


def drop_wishes(connection: sa.Connection, item_ids: Sequence[int]) -> None:
    """These items are asked now, or need not be asked any more."""
    for start in range(0, len(item_ids), 500):
        connection.execute(sa.delete(Wish).where(Wish.c.item_id.in_(item_ids[start : start + 500])))


def unresolved(connection: sa.Connection, campaign_id: int) -> list[DecisionRow]:
    """The last decisions on items, by votes or a lead, that left them unresolved."""
    found = (
        sa.select(Decision)
        .where(Decision.c.campaign_id == campaign_id, Decision.c.kind != DecisionKind.REOPEN, _IS_LAST)
        .where(Decision.c.label.is_(None))
        .order_by(Decision.c.id)
    )
    return all_rows(connection, found, DecisionRow)
