"""Assignments: which person holds which item until when, and the next items for a person.

The statements are made once, when the module is imported: to build one costs more than to run it.
"""

from typing import Any

import sqlalchemy as sa
import sqlalchemy.orm
from sqlalchemy import bindparam

from labelchef.domain.campaigns import AssignmentState, Origin
from labelchef.store.rows import AssignmentRow, LeasedSelection, SelectionRow, all_rows, columns, first_row
from labelchef.store.tables import Assignment, Selection, Vote
from labelchef.store.vote_table import SUPERSEDED

_SELECTION_COLUMNS = columns(SelectionRow, Selection)
_ROUND: sa.BindParameter[int] = bindparam("round_id")
_PERSON: sa.BindParameter[str] = bindparam("person")
_NOW: sa.BindParameter[float] = bindparam("now")
_SELECTION: sa.BindParameter[int] = bindparam("selection_id")
_ITEM: sa.BindParameter[int] = bindparam("item_id")
_ATTEMPT: sa.BindParameter[int] = bindparam("attempt")
_LIVE_LEASE = (Assignment.state == AssignmentState.LEASED) & (Assignment.until > _NOW)

_LEASES = (
    sa.select(*columns(LeasedSelection, Selection, Assignment))
    .select_from(Selection)
    .join(Assignment, Assignment.selection_id == Selection.id)
    .where(Assignment.round_id == _ROUND, Assignment.person == _PERSON, _LIVE_LEASE, sa.not_(Selection.decided))
    .order_by(Assignment.until, Assignment.id)
)


def leases_of(connection: sa.Connection, round_id: int, person: str, now: float) -> list[LeasedSelection]:
    """The selections this person holds now, first given first."""
    return all_rows(connection, _LEASES, LeasedSelection, round_id=round_id, person=person, now=now)


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
            ~SUPERSEDED,
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
    batch = Selection.origin != Origin.AHEAD
    return (
        sa.select(*_SELECTION_COLUMNS)
        .where(*_open_to_person(), batch, ~had)
        .order_by(Selection.rank)
        .limit(bindparam("most"))
    )


def _free() -> "sa.Select[Any]":
    own = sa.orm.aliased(Assignment)
    order = sa.case(
        (own.id.is_(None) & (Selection.origin != Origin.AHEAD), 0),
        (own.id.is_(None), 1),
        (own.state != AssignmentState.SKIPPED, 2),
        else_=3,
    )
    return (
        sa.select(*_SELECTION_COLUMNS)
        .select_from(Selection)
        .outerjoin(own, (own.selection_id == Selection.id) & (own.person == _PERSON))
        .where(*_open_to_person(), sa.or_(own.id.is_(None), own.state != AssignmentState.LEASED, own.until <= _NOW))
        .order_by(order, sa.case((own.state == AssignmentState.SKIPPED, own.until), else_=0.0), Selection.rank)
        .limit(bindparam("most"))
    )


_FRESH, _FREE = _fresh(), _free()


def free_selections(
    connection: sa.Connection, round_id: int, person: str, people: int, now: float, limit: int
) -> list[SelectionRow]:
    """Selections that still need this person's vote, in the order in which they should be asked.

    New items of the batch by rank, then work ahead, then what this person let run out or skipped, earliest first.
    """
    given = {"round_id": round_id, "person": person, "people": people, "now": now, "most": limit}
    fresh = all_rows(connection, _FRESH, SelectionRow, **given)
    return fresh if len(fresh) == limit else all_rows(connection, _FREE, SelectionRow, **given)


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


def assign(
    connection: sa.Connection, selection: SelectionRow, person: str, state: AssignmentState, until: float
) -> None:
    """Give a selection to a person, or store what became of it."""
    changed = connection.execute(
        _REASSIGN,
        {"of_selection": selection.id, "of_person": person, "new_state": state, "new_until": until},
    )
    if changed.rowcount == 0:
        values = {"round_id": selection.round_id, "selection_id": selection.id}
        connection.execute(_ASSIGN, {**values, "person": person, "state": state, "until": until})


_ASSIGNMENT = sa.select(*columns(AssignmentRow, Assignment)).where(
    Assignment.selection_id == _SELECTION, Assignment.person == _PERSON
)


def assignment_of(connection: sa.Connection, selection_id: int, person: str) -> AssignmentRow | None:
    """The assignment of a selection to this person."""
    return first_row(connection, _ASSIGNMENT, AssignmentRow, selection_id=selection_id, person=person)


def _ahead_of_person() -> "sa.Select[Any]":
    given = sa.select(Assignment.id).where(Assignment.selection_id == Selection.id, Assignment.person == _PERSON)
    voted = sa.select(Vote.id).where(
        Vote.item_id == Selection.item_id, Vote.attempt == Selection.attempt, Vote.person == _PERSON
    )
    return (
        sa.select(*_SELECTION_COLUMNS)
        .where(
            Selection.item_id == _ITEM,
            Selection.attempt >= _ATTEMPT,
            Selection.origin == Origin.AHEAD,
            sa.or_(given.correlate(Selection).exists(), voted.correlate(Selection).exists()),
        )
        .order_by(Selection.id.desc())
        .limit(1)
    )


_AHEAD = _ahead_of_person()


def ahead_of_person(connection: sa.Connection, item_id: int, attempt: int, person: str) -> SelectionRow | None:
    """The newest selection by which this person had an item as work ahead, at this attempt or the one to come."""
    return first_row(connection, _AHEAD, SelectionRow, item_id=item_id, attempt=attempt, person=person)


_TAKEN = sa.select(sa.func.count()).where(
    Assignment.selection_id == _SELECTION, _LIVE_LEASE, Assignment.person != _PERSON
)


def slots_taken(connection: sa.Connection, selection_id: int, person: str, now: float) -> int:
    """Leases that others hold on a selection."""
    given = {"selection_id": selection_id, "person": person, "now": now}
    return int(connection.execute(_TAKEN, given).scalar_one())
