"""Decisions on items, and the round by which each went into the model."""

import time
from collections.abc import Sequence

import sqlalchemy as sa

from labelchef.domain.campaigns import DecisionKind, Origin
from labelchef.store.rows import (
    AppliedDecision,
    DecisionRow,
    DecisionWithPosition,
    ReopenedItem,
    UnresolvedItem,
    all_rows,
    columns,
    first_row,
)
from labelchef.store.tables import Application, Decision, Item, Selection
from labelchef.store.values import new_public_id

_WITH_POSITION = (
    sa.select(*columns(DecisionWithPosition, Decision, Item)).select_from(Decision).join(Item).order_by(Decision.c.id)
)


def insert_decision(
    connection: sa.Connection,
    *,
    campaign_id: int,
    item_id: int,
    attempt: int,
    round_id: int | None,
    kind: DecisionKind,
    by: str,
    label: int | None,
    support: float,
) -> str:
    """Append a decision, which supersedes the last one of the item; returns its public id."""
    last = last_decision(connection, item_id)
    public_id = new_public_id()
    connection.execute(
        sa.insert(Decision).values(
            public_id=public_id,
            campaign_id=campaign_id,
            item_id=item_id,
            attempt=attempt,
            round_id=round_id,
            kind=kind,
            by=by,
            label=label,
            support=support,
            supersedes=None if last is None else last.id,
            created_at=time.time(),
        )
    )
    return public_id


def last_decision(connection: sa.Connection, item_id: int) -> DecisionRow | None:
    """The decision that counts for an item."""
    found = sa.select(*columns(DecisionRow, Decision)).where(Decision.c.item_id == item_id)
    return first_row(connection, found.order_by(Decision.c.id.desc()).limit(1), DecisionRow)


def decided_items(connection: sa.Connection, round_id: int) -> set[int]:
    """Items of a round whose current attempt has a decision already."""
    rows = connection.execute(
        sa.select(Selection.c.item_id)
        .join(Decision, (Decision.c.item_id == Selection.c.item_id) & (Decision.c.attempt == Selection.c.attempt))
        .where(Selection.c.round_id == round_id, Selection.c.origin != Origin.AHEAD)
    )
    return set(rows.scalars())


def decisions(connection: sa.Connection, campaign_id: int) -> list[DecisionWithPosition]:
    """Every decision, in the order they were made."""
    return all_rows(connection, _WITH_POSITION.where(Decision.c.campaign_id == campaign_id), DecisionWithPosition)


def last_decisions(connection: sa.Connection, campaign_id: int) -> dict[int, DecisionWithPosition]:
    """The decision that counts for every decided item, by the item's inner id."""
    return {row.item_id: row for row in decisions(connection, campaign_id)}


def pending_decisions(connection: sa.Connection, campaign_id: int) -> list[DecisionWithPosition]:
    """Decisions that are in no model yet, oldest first."""
    found = _WITH_POSITION.outerjoin(Application).where(
        Decision.c.campaign_id == campaign_id, Application.c.decision_id.is_(None)
    )
    return all_rows(connection, found, DecisionWithPosition)


def has_pending(connection: sa.Connection, campaign_id: int) -> bool:
    """Whether a decision waits for the model."""
    newest = (
        sa.select(Decision.c.id)
        .outerjoin(Application)
        .where(Decision.c.campaign_id == campaign_id, Application.c.decision_id.is_(None))
        .limit(1)
    )
    return connection.execute(newest).first() is not None


def applied_decisions(connection: sa.Connection, campaign_id: int) -> list[AppliedDecision]:
    """Every decision that is in a model, oldest first, with the round that carried it there."""
    found = (
        sa.select(*columns(AppliedDecision, Decision, Item, applied_in=Application.c.round_id))
        .select_from(Decision)
        .join(Item)
        .join(Application)
        .where(Decision.c.campaign_id == campaign_id)
        .order_by(Decision.c.id)
    )
    return all_rows(connection, found, AppliedDecision)


def apply_decisions(connection: sa.Connection, round_id: int, decision_ids: Sequence[int]) -> None:
    """Store that a round carried these decisions into the model."""
    if decision_ids:
        connection.execute(sa.insert(Application), [{"decision_id": d, "round_id": round_id} for d in decision_ids])


def reopened_items(connection: sa.Connection, campaign_id: int) -> list[ReopenedItem]:
    """Items taken back by a lead that were not put to people since, and whose label is weak again in the model."""
    newest = sa.select(Decision.c.id).where(Decision.c.item_id == Item.c.id).order_by(Decision.c.id.desc()).limit(1)
    asked = sa.select(Selection.c.id).where(
        Selection.c.item_id == Item.c.id, Selection.c.attempt == Item.c.attempt, Selection.c.origin != Origin.AHEAD
    )
    found = (
        sa.select(*columns(ReopenedItem, Item))
        .select_from(Item)
        .join(Decision)
        .where(
            Decision.c.campaign_id == campaign_id,
            Decision.c.kind == DecisionKind.REOPEN,
            Decision.c.id == newest.correlate(Item).scalar_subquery(),
            ~asked.correlate(Item).exists(),
        )
        .order_by(Decision.c.id)
    )
    return all_rows(connection, found, ReopenedItem)


def unresolved_items(connection: sa.Connection, campaign_id: int) -> list[UnresolvedItem]:
    """Items whose last decision, by votes or a lead, left them unresolved."""
    other = Decision.alias()
    newer = sa.select(other.c.id).where(other.c.item_id == Decision.c.item_id, other.c.id > Decision.c.id)
    found = (
        sa.select(*columns(UnresolvedItem, Decision, Item, item_attempt=Item.c.attempt))
        .select_from(Decision)
        .join(Item)
        .where(
            Decision.c.campaign_id == campaign_id,
            Decision.c.label.is_(None),
            Decision.c.kind != DecisionKind.REOPEN,
            ~newer.exists(),
        )
        .order_by(Decision.c.id)
    )
    return all_rows(connection, found, UnresolvedItem)
