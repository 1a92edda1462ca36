"""Rounds, what they select, what was decided, and which round carried a decision into the model."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa
import sqlalchemy.orm
from sqlalchemy import bindparam

from labelchef.domain.campaigns import DecisionKind, Origin, RoundState
from labelchef.store.campaigns import Row, new_public_id
from labelchef.store.tables import Application, Decision, Item, Round, Selection, Vote


def rounds_of(connection: sa.Connection, campaign_id: int) -> Sequence[Row]:
    """All rounds in order."""
    return connection.execute(
        sa.select(Round.__table__).where(Round.campaign_id == campaign_id).order_by(Round.number)
    ).all()


_LAST_ROUND = (
    sa.select(Round.__table__)
    .where(Round.campaign_id == bindparam("campaign_id"))
    .order_by(Round.number.desc())
    .limit(1)
)


def last_round(connection: sa.Connection, campaign_id: int) -> Row | None:
    """The round with the highest number: the open one, if any is."""
    return connection.execute(_LAST_ROUND, {"campaign_id": campaign_id}).first()


_ROUND_BY_ID = sa.select(Round.__table__).where(Round.id == bindparam("round_id"))


def round_by_id(connection: sa.Connection, round_id: int) -> Row:
    """A round."""
    return connection.execute(_ROUND_BY_ID, {"round_id": round_id}).one()


def insert_round(connection: sa.Connection, **values: Any) -> int:
    """A new round."""
    key = connection.execute(sa.insert(Round).values(opened_at=time.time(), **values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def update_round(connection: sa.Connection, round_id: int, **values: Any) -> None:
    """Move a round on."""
    connection.execute(sa.update(Round).where(Round.id == round_id).values(**values))


def insert_selections(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """The items of a round, and the attempt each of them is at."""
    if not rows:
        return
    connection.execute(sa.insert(Selection), [dict(row) for row in rows])
    for row in rows:
        if row["origin"] != Origin.AHEAD.value:
            connection.execute(
                sa.update(Item)
                .where(Item.id == row["item_id"], Item.attempt != row["attempt"])
                .values(attempt=row["attempt"])
            )


def selections_of(connection: sa.Connection, round_id: int) -> Sequence[Row]:
    """Selections of a round by rank, with position, key and attempt of their items."""
    return connection.execute(
        sa.select(Selection.__table__, Item.position, Item.key, Item.attempt.label("item_attempt"))
        .join(Item, Item.id == Selection.item_id)
        .where(Selection.round_id == round_id)
        .order_by(Selection.rank)
    ).all()


_SELECTION_OF_ITEM = sa.select(Selection.__table__).where(
    Selection.round_id == bindparam("round_id"), Selection.item_id == bindparam("item_id")
)


def selection_of_item(connection: sa.Connection, round_id: int, item_id: int) -> Row | None:
    """What a round says of an item."""
    return connection.execute(_SELECTION_OF_ITEM, {"round_id": round_id, "item_id": item_id}).first()


def batch_selection_of_attempt(connection: sa.Connection, item_id: int, attempt: int) -> Row | None:
    """The selection by which an attempt at an item was put to people, with number and state of its round."""
    return connection.execute(
        sa.select(Selection.__table__, Round.number, Round.state.label("round_state"))
        .join(Round, Round.id == Selection.round_id)
        .where(Selection.item_id == item_id, Selection.attempt == attempt, Selection.origin != Origin.AHEAD.value)
    ).first()


def attempts_asked(connection: sa.Connection, item_ids: Sequence[int]) -> set[tuple[int, int]]:
    """Which (item, attempt) pairs were put to people in a batch."""
    asked: set[tuple[int, int]] = set()
    for start in range(0, len(item_ids), 500):
        rows = connection.execute(
            sa.select(Selection.item_id, Selection.attempt).where(
                Selection.item_id.in_(list(item_ids[start : start + 500])), Selection.origin != Origin.AHEAD.value
            )
        )
        asked.update((row.item_id, row.attempt) for row in rows)
    return asked


_INCOMPLETE = (
    sa.select(Selection.id)
    .where(
        Selection.round_id == bindparam("round_id"),
        Selection.origin != Origin.AHEAD.value,
        Selection.votes < bindparam("people"),
        sa.not_(Selection.decided),
    )
    .limit(1)
)


def batch_incomplete(connection: sa.Connection, round_id: int, people: int) -> bool:
    """Whether an item of the batch still needs votes."""
    return connection.execute(_INCOMPLETE, {"round_id": round_id, "people": people}).first() is not None


def mark_decided(connection: sa.Connection, selection_id: int) -> None:
    """The lead spoke: this selection needs no more votes."""
    connection.execute(sa.update(Selection).where(Selection.id == selection_id).values(decided=True))


def next_attempt(connection: sa.Connection, item_id: int, attempt: int) -> None:
    """An item is to be asked anew."""
    connection.execute(sa.update(Item).where(Item.id == item_id).values(attempt=attempt))


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
    """Append a decision; it supersedes the item's last one."""
    last = last_decision(connection, item_id)
    public_id = new_public_id()
    connection.execute(
        sa.insert(Decision).values(
            public_id=public_id,
            campaign_id=campaign_id,
            item_id=item_id,
            attempt=attempt,
            round_id=round_id,
            kind=kind.value,
            by=by,
            label=label,
            support=support,
            supersedes=None if last is None else last.id,
            created_at=time.time(),
        )
    )
    return public_id


def last_decision(connection: sa.Connection, item_id: int) -> Row | None:
    """The decision that counts for an item."""
    return connection.execute(
        sa.select(Decision.__table__).where(Decision.item_id == item_id).order_by(Decision.id.desc()).limit(1)
    ).first()


def decided_items(connection: sa.Connection, round_id: int) -> set[int]:
    """Items of a round whose current attempt has a decision already."""
    rows = connection.execute(
        sa.select(Selection.item_id)
        .join(Decision, (Decision.item_id == Selection.item_id) & (Decision.attempt == Selection.attempt))
        .where(Selection.round_id == round_id, Selection.origin != Origin.AHEAD.value)
    )
    return set(rows.scalars())


def pending_decisions(connection: sa.Connection, campaign_id: int) -> Sequence[Row]:
    """Decisions that no model knows yet, oldest first, with the position of their items."""
    return connection.execute(
        sa.select(Decision.__table__, Item.position)
        .join(Item, Item.id == Decision.item_id)
        .outerjoin(Application, Application.decision_id == Decision.id)
        .where(Decision.campaign_id == campaign_id, Application.decision_id.is_(None))
        .order_by(Decision.id)
    ).all()


def has_pending(connection: sa.Connection, campaign_id: int) -> bool:
    """Whether a decision waits for the model."""
    newest = (
        sa.select(Decision.id)
        .outerjoin(Application, Application.decision_id == Decision.id)
        .where(Decision.campaign_id == campaign_id, Application.decision_id.is_(None))
        .limit(1)
    )
    return connection.execute(newest).first() is not None


def decisions_applied(connection: sa.Connection, round_id: int) -> Sequence[Row]:
    """The decisions a round carried into the model, oldest first."""
    return connection.execute(
        sa.select(Decision.__table__, Item.position)
        .join(Application, Application.decision_id == Decision.id)
        .join(Item, Item.id == Decision.item_id)
        .where(Application.round_id == round_id)
        .order_by(Decision.id)
    ).all()


def apply_decisions(connection: sa.Connection, round_id: int, decision_ids: Sequence[int]) -> None:
    """Note that a round carries these decisions."""
    if decision_ids:
        connection.execute(sa.insert(Application), [{"decision_id": d, "round_id": round_id} for d in decision_ids])


def reopened_items(connection: sa.Connection, campaign_id: int) -> Sequence[Row]:
    """Items taken back by a lead that were not put to people since, and whose label is weak again in the model."""
    newer = sa.select(Decision.id).where(Decision.item_id == Item.id).order_by(Decision.id.desc()).limit(1)
    asked = sa.select(Selection.id).where(
        Selection.item_id == Item.id, Selection.attempt == Item.attempt, Selection.origin != Origin.AHEAD.value
    )
    rows = connection.execute(
        sa.select(Item.id, Item.position, Item.attempt, Item.key)
        .join(Decision, Decision.item_id == Item.id)
        .where(
            Decision.campaign_id == campaign_id,
            Decision.kind == DecisionKind.REOPEN.value,
            Decision.id == newer.correlate(Item).scalar_subquery(),
            ~asked.correlate(Item).exists(),
        )
        .order_by(Decision.id)
    ).all()
    return cast("Sequence[Row]", rows)


def unresolved_items(connection: sa.Connection, campaign_id: int) -> Sequence[Row]:
    """Items whose last decision, by votes or a lead, left them unresolved."""
    other = sa.orm.aliased(Decision)
    newer = sa.select(other.id).where(other.item_id == Decision.item_id, other.id > Decision.id)
    return connection.execute(
        sa.select(Decision.__table__, Item.key, Item.text, Item.image, Item.fields, Item.attempt.label("item_attempt"))
        .join(Item, Item.id == Decision.item_id)
        .where(
            Decision.campaign_id == campaign_id,
            Decision.label.is_(None),
            Decision.kind != DecisionKind.REOPEN.value,
            ~newer.exists(),
        )
        .order_by(Decision.id)
    ).all()


def live_votes(connection: sa.Connection, item_id: int, attempt: int) -> list[Row]:
    """The votes that count on an attempt at an item, in the order they came."""
    rows = connection.execute(
        sa.select(Vote.__table__).where(Vote.item_id == item_id, Vote.attempt == attempt).order_by(Vote.id)
    )
    return _live(rows.all())


def live_votes_of_round(connection: sa.Connection, round_id: int) -> dict[int, list[Row]]:
    """The votes that count on every item of a round's batch."""
    rows = connection.execute(
        sa.select(Vote.__table__)
        .join(Selection, (Selection.item_id == Vote.item_id) & (Selection.attempt == Vote.attempt))
        .where(Selection.round_id == round_id)
        .order_by(Vote.id)
    ).all()
    by_item: dict[int, list[Row]] = {}
    for row in rows:
        by_item.setdefault(row.item_id, []).append(row)
    return {item: _live(votes) for item, votes in by_item.items()}


def last_vote_id(connection: sa.Connection, campaign_id: int) -> int:
    """The newest vote of a campaign; writers of a campaign wait for each other, so all older ones are there too."""
    newest = sa.select(sa.func.max(Vote.id)).where(Vote.campaign_id == campaign_id)
    return connection.execute(newest).scalar() or 0


def votes_behind(connection: sa.Connection, decisions: Sequence[Row], upto: int) -> dict[int, list[Row]]:
    """Item → the votes that counted on the attempt a decision is about, when `upto` was the newest vote."""
    attempts = {row.item_id: row.attempt for row in decisions}
    items, by_item = sorted(attempts), dict[int, list[Row]]()
    for start in range(0, len(items), 500):
        chunk = items[start : start + 500]
        rows = connection.execute(
            sa.select(Vote.__table__).where(Vote.item_id.in_(chunk), Vote.id <= upto).order_by(Vote.id)
        )
        for row in rows:
            if row.attempt == attempts[row.item_id]:
                by_item.setdefault(row.item_id, []).append(row)
    return {item: _live(votes) for item, votes in by_item.items()}


def _live(rows: Sequence[Row]) -> list[Row]:
    last: dict[str, Row] = {}
    for row in rows:
        if row.person not in last or row.seq > last[row.person].seq:
            last[row.person] = row
    return sorted((row for row in last.values() if not row.retracted), key=lambda row: int(row.id))


def is_open(state: str) -> bool:
    """Whether a round still waits for votes or for its model."""
    return state != RoundState.CLOSED.value
