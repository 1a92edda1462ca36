"""Who has which item: leases, votes, and the next items for a person."""

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
import sqlalchemy.orm

from labelchef.domain.campaigns import Origin
from labelchef.store.campaigns import Row, new_public_id
from labelchef.store.tables import Assignment, Item, Selection, Vote

LEASED, VOTED, SKIPPED = "leased", "voted", "skipped"


def leases_of(connection: sa.Connection, round_id: int, person: str, now: float) -> Sequence[Row]:
    """The selections this person holds now, first given first."""
    return connection.execute(
        sa.select(Selection.__table__, Assignment.until)
        .join(Assignment, Assignment.selection_id == Selection.id)
        .where(
            Assignment.round_id == round_id,
            Assignment.person == person,
            Assignment.state == LEASED,
            Assignment.until > now,
            sa.not_(Selection.decided),
        )
        .order_by(Assignment.id)
    ).all()


def free_selections(
    connection: sa.Connection, round_id: int, person: str, people: int, now: float, limit: int
) -> Sequence[Row]:
    """Selections that still need this person's vote, in the order in which they should be asked.

    New items of the batch by rank, then work ahead, then what this person let run out or skipped, earliest first.
    """
    others = (
        sa.select(sa.func.count())
        .select_from(Assignment)
        .where(
            Assignment.selection_id == Selection.id,
            Assignment.state == LEASED,
            Assignment.until > now,
            Assignment.person != person,
        )
        .correlate(Selection)
        .scalar_subquery()
    )
    voted = _has_live_vote(person)
    own = sa.orm.aliased(Assignment)
    order = sa.case(
        (own.id.is_(None) & (Selection.origin != Origin.AHEAD.value), 0),
        (own.id.is_(None), 1),
        (own.state != SKIPPED, 2),
        else_=3,
    )
    return connection.execute(
        sa.select(Selection.__table__)
        .outerjoin(own, (own.selection_id == Selection.id) & (own.person == person))
        .where(
            Selection.round_id == round_id,
            sa.not_(Selection.decided),
            Selection.votes + others < people,
            sa.or_(own.id.is_(None), own.state != LEASED, own.until <= now),
            ~voted,
        )
        .order_by(order, sa.case((own.state == SKIPPED, own.until), else_=0.0), Selection.rank)
        .limit(limit)
    ).all()


def next_expiry(connection: sa.Connection, round_id: int, now: float) -> float | None:
    """When the next lease of a round runs out."""
    found = sa.select(sa.func.min(Assignment.until)).where(
        Assignment.round_id == round_id, Assignment.state == LEASED, Assignment.until > now
    )
    return connection.execute(found).scalar()


def live_leases(connection: sa.Connection, round_id: int, now: float) -> dict[int, int]:
    """Leases now, counted by selection."""
    rows = connection.execute(
        sa.select(Assignment.selection_id, sa.func.count())
        .where(Assignment.round_id == round_id, Assignment.state == LEASED, Assignment.until > now)
        .group_by(Assignment.selection_id)
    )
    return {int(row[0]): int(row[1]) for row in rows}


def assign(connection: sa.Connection, selection: Row, person: str, state: str, until: float) -> None:
    """Give a selection to a person, or note what became of it."""
    changed = connection.execute(
        sa.update(Assignment)
        .where(Assignment.selection_id == selection.id, Assignment.person == person)
        .values(state=state, until=until)
    )
    if changed.rowcount == 0:
        connection.execute(
            sa.insert(Assignment).values(
                round_id=selection.round_id, selection_id=selection.id, person=person, state=state, until=until
            )
        )


def assignment_of(connection: sa.Connection, selection_id: int, person: str) -> Row | None:
    """What this person has to do with a selection."""
    return connection.execute(
        sa.select(Assignment.__table__).where(Assignment.selection_id == selection_id, Assignment.person == person)
    ).first()


def slots_taken(connection: sa.Connection, selection_id: int, person: str, now: float) -> int:
    """Leases that others hold on a selection."""
    found = sa.select(sa.func.count()).where(
        Assignment.selection_id == selection_id,
        Assignment.state == LEASED,
        Assignment.until > now,
        Assignment.person != person,
    )
    return int(connection.execute(found).scalar_one())


def last_vote(connection: sa.Connection, item_id: int, attempt: int, person: str) -> Row | None:
    """This person's last word on an attempt at an item, a retraction included."""
    return connection.execute(
        sa.select(Vote.__table__)
        .where(Vote.item_id == item_id, Vote.attempt == attempt, Vote.person == person)
        .order_by(Vote.seq.desc())
        .limit(1)
    ).first()


def vote_by_request(connection: sa.Connection, campaign_id: int, person: str, request_id: str) -> Row | None:
    """The vote that a request stored earlier, with the key of its item."""
    return connection.execute(
        sa.select(Vote.__table__, Item.key)
        .join(Item, Item.id == Vote.item_id)
        .where(Vote.campaign_id == campaign_id, Vote.person == person, Vote.request_id == request_id)
    ).first()


def newest_live_vote(connection: sa.Connection, campaign_id: int, person: str) -> Row | None:
    """This person's latest vote that still counts."""
    later = sa.orm.aliased(Vote)
    newer = sa.select(later.id).where(
        later.item_id == Vote.item_id,
        later.attempt == Vote.attempt,
        later.person == Vote.person,
        later.seq > Vote.seq,
    )
    return connection.execute(
        sa.select(Vote.__table__, Item.key)
        .join(Item, Item.id == Vote.item_id)
        .where(Vote.campaign_id == campaign_id, Vote.person == person, sa.not_(Vote.retracted), ~newer.exists())
        .order_by(Vote.id.desc())
        .limit(1)
    ).first()


def insert_vote(connection: sa.Connection, prior: Row | None, **values: Any) -> str:
    """Append a vote that follows `prior`, this person's last word on the item."""
    public_id = new_public_id()
    connection.execute(
        sa.insert(Vote).values(
            public_id=public_id,
            seq=0 if prior is None else prior.seq + 1,
            supersedes=None if prior is None else prior.id,
            created_at=time.time(),
            **values,
        )
    )
    return public_id


def count_vote(connection: sa.Connection, selection_id: int, by: int) -> None:
    """Keep the count of live votes on a selection."""
    connection.execute(sa.update(Selection).where(Selection.id == selection_id).values(votes=Selection.votes + by))


def _has_live_vote(person: str) -> sa.ColumnElement[bool]:
    later = sa.orm.aliased(Vote)
    newer = (
        sa.select(later.id)
        .where(
            later.item_id == Vote.item_id,
            later.attempt == Vote.attempt,
            later.person == Vote.person,
            later.seq > Vote.seq,
        )
        .correlate(Vote)
    )
    return (
        sa.select(Vote.id)
        .where(
            Vote.item_id == Selection.item_id,
            Vote.attempt == Selection.attempt,
            Vote.person == person,
            sa.not_(Vote.retracted),
            ~newer.exists(),
        )
        .correlate(Selection)
        .exists()
    )
