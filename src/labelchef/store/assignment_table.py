"""Assignments: which person holds which item until when, and the next items for a person.

The statements are made once, when the module is imported: to build one costs more than to run it.
"""

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.domain.campaigns import AssignmentState, Origin
from labelchef.store.rows import AssignmentRow, LeasedSelection, SelectionRow, all_rows, columns, first_row
from labelchef.store.tables import Assignment, Selection, Vote
from labelchef.store.vote_table import LIVE

_PERSON: sa.BindParameter[str] = bindparam("person")
_NOW: sa.BindParameter[float] = bindparam("now")
_PEOPLE: sa.BindParameter[int] = bindparam("people")
_LIVE_LEASE = (Assignment.c.state == AssignmentState.LEASED) & (Assignment.c.until > _NOW)
_LEASED_IN_ROUND = (Assignment.c.round_id == bindparam("round_id")) & _LIVE_LEASE
_LEASED_BY_OTHERS = sa.select(sa.func.count()).where(_LIVE_LEASE, Assignment.c.person != _PERSON)
_VOTE_OF_PERSON = sa.select(Vote.c.id).where(
    Vote.c.item_id == Selection.c.item_id, Vote.c.attempt == Selection.c.attempt, Vote.c.person == _PERSON
)
_own = Assignment.alias()
_OWN = (_own.c.selection_id == Selection.c.id) & (_own.c.person == _PERSON)
_HAD = sa.select(_own.c.id).where(_OWN).correlate(Selection).exists()

_LEASES = (
    sa.select(*columns(LeasedSelection, Selection, Assignment))
    .select_from(Selection)
    .join(Assignment)
    .where(_LEASED_IN_ROUND, Assignment.c.person == _PERSON, sa.not_(Selection.c.decided))
    .order_by(Assignment.c.until, Assignment.c.id)
)


def leases_of(connection: sa.Connection, round_id: int, person: str, now: float) -> list[LeasedSelection]:
    """The selections this person holds now, first given first."""
    return all_rows(connection, _LEASES, LeasedSelection, round_id=round_id, person=person, now=now)


_others = _LEASED_BY_OTHERS.where(Assignment.c.selection_id == Selection.c.id).correlate(Selection).scalar_subquery()
_OPEN_TO_PERSON = sa.select(Selection).where(  # it needs a vote, has a place left, and none by this person
    Selection.c.round_id == bindparam("round_id"),
    sa.not_(Selection.c.decided),
    Selection.c.votes < _PEOPLE,
    Selection.c.votes + _others < _PEOPLE,
    ~_VOTE_OF_PERSON.where(*LIVE).correlate(Selection).exists(),
)
# Items of the batch that this person never had: by far most of what is asked, and found along the index of ranks.
_FRESH = (
    _OPEN_TO_PERSON.where(Selection.c.origin != Origin.AHEAD, ~_HAD).order_by(Selection.c.rank).limit(bindparam("most"))
)
_FREE = (
    _OPEN_TO_PERSON.outerjoin(_own, _OWN)
    .where(_own.c.id.is_(None) | (_own.c.state != AssignmentState.LEASED) | (_own.c.until <= _NOW))
    .order_by(
        sa.case(
            (_own.c.id.is_(None) & (Selection.c.origin != Origin.AHEAD), 0),
            (_own.c.id.is_(None), 1),
            (_own.c.state != AssignmentState.SKIPPED, 2),
            else_=3,
        ),
        sa.case((_own.c.state == AssignmentState.SKIPPED, _own.c.until), else_=0.0),
        Selection.c.rank,
    )
    .limit(bindparam("most"))
)


def free_selections(
    connection: sa.Connection, round_id: int, person: str, people: int, now: float, limit: int
) -> list[SelectionRow]:
    """Selections that still need this person's vote, in the order in which they should be asked.

    New items of the batch by rank, then work ahead, then what this person let run out or skipped, earliest first.
    """
    given = {"round_id": round_id, "person": person, "people": people, "now": now, "most": limit}
    fresh = all_rows(connection, _FRESH, SelectionRow, **given)
    return fresh if len(fresh) == limit else all_rows(connection, _FREE, SelectionRow, **given)


_EXPIRY = sa.select(sa.func.min(Assignment.c.until)).where(_LEASED_IN_ROUND)


def next_expiry(connection: sa.Connection, round_id: int, now: float) -> float | None:
    """When the next lease of a round runs out."""
    found: float | None = connection.execute(_EXPIRY, {"round_id": round_id, "now": now}).scalar()
    return found


_LIVE_LEASES = (
    sa.select(Assignment.c.selection_id, sa.func.count()).where(_LEASED_IN_ROUND).group_by(Assignment.c.selection_id)
)


def live_leases(connection: sa.Connection, round_id: int, now: float) -> dict[int, int]:
    """Leases now, counted by selection."""
    rows = connection.execute(_LIVE_LEASES, {"round_id": round_id, "now": now})
    return {int(row[0]): int(row[1]) for row in rows}


_REASSIGN = (
    sa.update(Assignment)
    .where(Assignment.c.selection_id == bindparam("of_selection"), Assignment.c.person == bindparam("of_person"))
    .values(state=bindparam("new_state"), until=bindparam("new_until"))
)
_ASSIGN = sa.insert(Assignment)


def assign(
    connection: sa.Connection, selection: SelectionRow, person: str, state: AssignmentState, until: float
) -> None:
    """Give a selection to a person, or store what became of it."""
    changes = {"of_selection": selection.id, "of_person": person, "new_state": state, "new_until": until}
    if connection.execute(_REASSIGN, changes).rowcount == 0:
        values = {"round_id": selection.round_id, "selection_id": selection.id}
        connection.execute(_ASSIGN, {**values, "person": person, "state": state, "until": until})


_ASSIGNMENT = sa.select(Assignment).where(
    Assignment.c.selection_id == bindparam("selection_id"), Assignment.c.person == _PERSON
)


def assignment_of(connection: sa.Connection, selection_id: int, person: str) -> AssignmentRow | None:
    """The assignment of a selection to this person."""
    return first_row(connection, _ASSIGNMENT, AssignmentRow, selection_id=selection_id, person=person)


_AHEAD = (
    sa.select(Selection)
    .where(
        Selection.c.item_id == bindparam("item_id"),
        Selection.c.attempt >= bindparam("attempt"),
        Selection.c.origin == Origin.AHEAD,
        _HAD | _VOTE_OF_PERSON.correlate(Selection).exists(),
    )
    .order_by(Selection.c.id.desc())
    .limit(1)
)


def ahead_of_person(connection: sa.Connection, item_id: int, attempt: int, person: str) -> SelectionRow | None:
    """The newest selection by which this person had an item as work ahead, at this attempt or the one to come."""
    return first_row(connection, _AHEAD, SelectionRow, item_id=item_id, attempt=attempt, person=person)


_TAKEN = _LEASED_BY_OTHERS.where(Assignment.c.selection_id == bindparam("selection_id"))


def slots_taken(connection: sa.Connection, selection_id: int, person: str, now: float) -> int:
    """Leases that others hold on a selection."""
    given = {"selection_id": selection_id, "person": person, "now": now}
    return int(connection.execute(_TAKEN, given).scalar_one())
