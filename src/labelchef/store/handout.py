"""Who has which item: leases, votes, and the next items for a person.

The statements are made once, when the module is imported: to build one costs more than to run it.
"""

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
import sqlalchemy.orm
from sqlalchemy import bindparam

from labelchef.domain.campaigns import Origin
from labelchef.store.campaigns import Row, new_public_id
from labelchef.store.tables import Assignment, Item, Selection, Vote

LEASED, VOTED, SKIPPED = "leased", "voted", "skipped"

_ROUND: sa.BindParameter[int] = bindparam("round_id")
_PERSON: sa.BindParameter[str] = bindparam("person")
_NOW: sa.BindParameter[float] = bindparam("now")
_SELECTION: sa.BindParameter[int] = bindparam("selection_id")
_ITEM: sa.BindParameter[int] = bindparam("item_id")
_ATTEMPT: sa.BindParameter[int] = bindparam("attempt")
_CAMPAIGN: sa.BindParameter[int] = bindparam("campaign_id")
_LIVE_LEASE = (Assignment.state == LEASED) & (Assignment.until > _NOW)

_LEASES = (
    sa.select(Selection.__table__, Assignment.until)
    .join(Assignment, Assignment.selection_id == Selection.id)
    .where(Assignment.round_id == _ROUND, Assignment.person == _PERSON, _LIVE_LEASE, sa.not_(Selection.decided))
    .order_by(Assignment.until, Assignment.id)
)


def leases_of(connection: sa.Connection, round_id: int, person: str, now: float) -> Sequence[Row]:
    """The selections this person holds now, first given first."""
    return connection.execute(_LEASES, {"round_id": round_id, "person": person, "now": now}).all()


_later = sa.orm.aliased(Vote)
_SUPERSEDED = (
    sa.select(_later.id)
    .where(
        _later.item_id == Vote.item_id,
        _later.attempt == Vote.attempt,
        _later.person == Vote.person,
        _later.seq > Vote.seq,
    )
    .correlate(Vote)
    .exists()
)


def _open_to_person() -> "list[sa.ColumnElement[bool]]":
    """Selections of a round that need a vote, have a place left, and have none by this person."""
    people: sa.BindParameter[int] = bindparam("people")
    others = (
        sa.select(sa.func.count())
        .select_from(Assignment)
        .where(Assignment.selection_id == Selection.id, _LIVE_LEASE, Assignment.person != _PERSON)
        .correlate(Selection)
        .scalar_subquery()
    )
    voted = (
        sa.select(Vote.id)
        .where(
            Vote.item_id == Selection.item_id,
            Vote.attempt == Selection.attempt,
            Vote.person == _PERSON,
            sa.not_(Vote.retracted),
            ~_SUPERSEDED,
        )
        .correlate(Selection)
        .exists()
    )
    return [
        Selection.round_id == _ROUND,
        sa.not_(Selection.decided),
        Selection.votes < people,
        Selection.votes + others < people,
        ~voted,
    ]


def _fresh() -> "sa.Select[Any]":
    """Items of the batch that this person never had: by far most of what is asked, and found along the index of ranks."""
    own = sa.orm.aliased(Assignment)
    had = sa.select(own.id).where(own.selection_id == Selection.id, own.person == _PERSON).correlate(Selection).exists()
    batch = Selection.origin != Origin.AHEAD.value
    return (
        sa.select(Selection.__table__)
        .where(*_open_to_person(), batch, ~had)
        .order_by(Selection.rank)
        .limit(bindparam("most"))
    )


def _free() -> "sa.Select[Any]":
    own = sa.orm.aliased(Assignment)
    order = sa.case(
        (own.id.is_(None) & (Selection.origin != Origin.AHEAD.value), 0),
        (own.id.is_(None), 1),
        (own.state != SKIPPED, 2),
        else_=3,
    )
    return (
        sa.select(Selection.__table__)
        .outerjoin(own, (own.selection_id == Selection.id) & (own.person == _PERSON))
        .where(*_open_to_person(), sa.or_(own.id.is_(None), own.state != LEASED, own.until <= _NOW))
        .order_by(order, sa.case((own.state == SKIPPED, own.until), else_=0.0), Selection.rank)
        .limit(bindparam("most"))
    )


_FRESH, _FREE = _fresh(), _free()


def free_selections(
    connection: sa.Connection, round_id: int, person: str, people: int, now: float, limit: int
) -> Sequence[Row]:
    """Selections that still need this person's vote, in the order in which they should be asked.

    New items of the batch by rank, then work ahead, then what this person let run out or skipped, earliest first.
    """
    given = {"round_id": round_id, "person": person, "people": people, "now": now, "most": limit}
    fresh = connection.execute(_FRESH, given).all()
    return fresh if len(fresh) == limit else connection.execute(_FREE, given).all()


_EXPIRY = sa.select(sa.func.min(Assignment.until)).where(Assignment.round_id == _ROUND, _LIVE_LEASE)


def next_expiry(connection: sa.Connection, round_id: int, now: float) -> float | None:
    """When the next lease of a round runs out."""
    return connection.execute(_EXPIRY, {"round_id": round_id, "now": now}).scalar()


_LIVE_LEASES = (
    sa.select(Assignment.selection_id, sa.func.count())
    .where(Assignment.round_id == _ROUND, _LIVE_LEASE)
    .group_by(Assignment.selection_id)
)


def live_leases(connection: sa.Connection, round_id: int, now: float) -> dict[int, int]:
    """Leases now, counted by selection."""
    rows = connection.execute(_LIVE_LEASES, {"round_id": round_id, "now": now})
    return {int(row[0]): int(row[1]) for row in rows}


_REASSIGN = (
    sa.update(Assignment.__table__)  # type: ignore[arg-type]
    .where(Assignment.selection_id == bindparam("of_selection"), Assignment.person == bindparam("of_person"))
    .values(state=bindparam("new_state"), until=bindparam("new_until"))
)
_ASSIGN = sa.insert(Assignment.__table__)  # type: ignore[arg-type]


def assign(connection: sa.Connection, selection: Row, person: str, state: str, until: float) -> None:
    """Give a selection to a person, or note what became of it."""
    changed = connection.execute(
        _REASSIGN,
        {"of_selection": selection.id, "of_person": person, "new_state": state, "new_until": until},
    )
    if changed.rowcount == 0:
        values = {"round_id": selection.round_id, "selection_id": selection.id}
        connection.execute(_ASSIGN, {**values, "person": person, "state": state, "until": until})


_ASSIGNMENT = sa.select(Assignment.__table__).where(Assignment.selection_id == _SELECTION, Assignment.person == _PERSON)


def assignment_of(connection: sa.Connection, selection_id: int, person: str) -> Row | None:
    """What this person has to do with a selection."""
    return connection.execute(_ASSIGNMENT, {"selection_id": selection_id, "person": person}).first()


def _ahead_of_person() -> "sa.Select[Any]":
    given = sa.select(Assignment.id).where(Assignment.selection_id == Selection.id, Assignment.person == _PERSON)
    voted = sa.select(Vote.id).where(
        Vote.item_id == Selection.item_id, Vote.attempt == Selection.attempt, Vote.person == _PERSON
    )
    return (
        sa.select(Selection.__table__)
        .where(
            Selection.item_id == _ITEM,
            Selection.attempt >= _ATTEMPT,
            Selection.origin == Origin.AHEAD.value,
            sa.or_(given.correlate(Selection).exists(), voted.correlate(Selection).exists()),
        )
        .order_by(Selection.id.desc())
        .limit(1)
    )


_AHEAD = _ahead_of_person()


def ahead_of_person(connection: sa.Connection, item_id: int, attempt: int, person: str) -> Row | None:
    """The newest selection by which this person had an item as work ahead, at this attempt or the one to come."""
    return connection.execute(_AHEAD, {"item_id": item_id, "attempt": attempt, "person": person}).first()


_TAKEN = sa.select(sa.func.count()).where(
    Assignment.selection_id == _SELECTION, _LIVE_LEASE, Assignment.person != _PERSON
)


def slots_taken(connection: sa.Connection, selection_id: int, person: str, now: float) -> int:
    """Leases that others hold on a selection."""
    given = {"selection_id": selection_id, "person": person, "now": now}
    return int(connection.execute(_TAKEN, given).scalar_one())


_LAST_VOTE = (
    sa.select(Vote.__table__)
    .where(Vote.item_id == _ITEM, Vote.attempt == _ATTEMPT, Vote.person == _PERSON)
    .order_by(Vote.seq.desc())
    .limit(1)
)


def last_vote(connection: sa.Connection, item_id: int, attempt: int, person: str) -> Row | None:
    """This person's last word on an attempt at an item, a retraction included."""
    return connection.execute(_LAST_VOTE, {"item_id": item_id, "attempt": attempt, "person": person}).first()


_BY_REQUEST = (
    sa.select(Vote.__table__, Item.key)
    .join(Item, Item.id == Vote.item_id)
    .where(Vote.campaign_id == _CAMPAIGN, Vote.person == _PERSON, Vote.request_id == bindparam("request_id"))
)


def vote_by_request(connection: sa.Connection, campaign_id: int, person: str, request_id: str) -> Row | None:
    """The vote that a request stored earlier, with the key of its item."""
    given = {"campaign_id": campaign_id, "person": person, "request_id": request_id}
    return connection.execute(_BY_REQUEST, given).first()


_NEWEST = (
    sa.select(Vote.__table__, Item.key)
    .join(Item, Item.id == Vote.item_id)
    .where(Vote.campaign_id == _CAMPAIGN, Vote.person == _PERSON, sa.not_(Vote.retracted), ~_SUPERSEDED)
    .order_by(Vote.id.desc())
    .limit(1)
)


def newest_live_vote(connection: sa.Connection, campaign_id: int, person: str) -> Row | None:
    """This person's latest vote that still counts."""
    return connection.execute(_NEWEST, {"campaign_id": campaign_id, "person": person}).first()


_VOTE = sa.insert(Vote.__table__)  # type: ignore[arg-type]


def insert_vote(connection: sa.Connection, prior: Row | None, **values: Any) -> str:
    """Append a vote that follows `prior`, this person's last word on the item."""
    public_id = new_public_id()
    after = {"seq": 0 if prior is None else prior.seq + 1, "supersedes": None if prior is None else prior.id}
    connection.execute(_VOTE, {"public_id": public_id, "created_at": time.time(), **after, **values})
    return public_id


_COUNT = (
    sa.update(Selection.__table__)  # type: ignore[arg-type]
    .where(Selection.id == bindparam("of_selection"))
    .values(votes=Selection.votes + bindparam("more"))
)


def count_vote(connection: sa.Connection, selection_id: int, by: int) -> None:
    """Keep the count of live votes on a selection."""
    connection.execute(_COUNT, {"of_selection": selection_id, "more": by})
