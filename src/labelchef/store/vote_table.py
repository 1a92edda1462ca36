"""Votes, and assignments: which person holds which item until when, and the next items for a person.

Of a person's rows on an attempt at an item the one with the last `seq` counts, unless it is a retraction. Statements of
a vote or a task are made once, when the module is imported: to build one costs more than to run it.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.domain.campaigns import AssignmentState, Origin
from labelchef.store.rows import (
    AMONG,
    AssignmentRow,
    DecisionRow,
    LeasedSelection,
    NewVote,
    OpenSelection,
    SelectionRow,
    VoteRow,
    VoteWithKey,
    VoteWithRound,
    all_rows,
    columns,
    first_row,
    new_public_id,
    rows_among,
    values_of,
)
from labelchef.store.tables import Assignment, Item, Round, Selection, Vote

_VOTE_WITH_KEY = sa.select(*columns(VoteWithKey, Vote, Item)).select_from(Vote).join(Item)
_later = Vote.alias()
_SUPERSEDED = (
    sa.select(_later.c.id)
    .where(*(_later.c[name] == Vote.c[name] for name in ("item_id", "attempt", "person")), _later.c.seq > Vote.c.seq)
    .correlate(Vote)
    .exists()
)
LIVE = (sa.not_(Vote.c.retracted), ~_SUPERSEDED)
"""It is no retraction, and there is no later row of the same person on the same attempt."""
_PERSON: sa.BindParameter[str] = bindparam("person")
_OF_PERSON = Vote.c.person == _PERSON
_OF_SELECTION = (Vote.c.item_id == Selection.c.item_id) & (Vote.c.attempt == Selection.c.attempt)
_OF_CAMPAIGN = Vote.c.campaign_id == bindparam("campaign_id")
_LAST_VOTE = (
    sa.select(Vote)
    .where(Vote.c.item_id == bindparam("item_id"), Vote.c.attempt == bindparam("attempt"), _OF_PERSON)
    .order_by(Vote.c.seq.desc())
    .limit(1)
)


def last_vote(connection: sa.Connection, item_id: int, attempt: int, person: str) -> VoteRow | None:
    """This person's last row on an attempt at an item; it may be a retraction."""
    return first_row(connection, _LAST_VOTE, VoteRow, item_id=item_id, attempt=attempt, person=person)


_BY_REQUEST = _VOTE_WITH_KEY.where(_OF_CAMPAIGN, _OF_PERSON, Vote.c.request_id == bindparam("request_id"))


def vote_by_request(connection: sa.Connection, campaign_id: int, person: str, request_id: str) -> VoteWithKey | None:
    """The vote that a request stored earlier."""
    given = {"campaign_id": campaign_id, "person": person, "request_id": request_id}
    return first_row(connection, _BY_REQUEST, VoteWithKey, **given)


def names_without_account(connection: sa.Connection, campaign_id: int) -> set[str]:
    """Names under which people without an account, or the suggestion, have voted."""
    found = sa.select(Vote.c.person).where(Vote.c.campaign_id == campaign_id, Vote.c.account_id.is_(None)).distinct()
    return set(connection.execute(found).scalars())


_FIRST_VOTER = sa.select(sa.func.min(Vote.c.person)).where(_OF_CAMPAIGN, Vote.c.person > bindparam("behind"))


def voters(connection: sa.Connection, campaign_id: int) -> set[str]:
    """Who has voted: one look at the index (campaign, person) for each person, however many votes there are."""
    found: set[str] = set()
    name: str | None = ""
    while name is not None:
        name = connection.execute(_FIRST_VOTER, {"campaign_id": campaign_id, "behind": name}).scalar()
        found |= set() if name is None else {name}
    return found


_NEWEST = _VOTE_WITH_KEY.where(_OF_CAMPAIGN, _OF_PERSON, *LIVE).order_by(Vote.c.id.desc()).limit(1)


def newest_live_vote(connection: sa.Connection, campaign_id: int, person: str) -> VoteWithKey | None:
    """This person's latest vote that still counts."""
    return first_row(connection, _NEWEST, VoteWithKey, campaign_id=campaign_id, person=person)


_INSERT = sa.insert(Vote)


def insert_vote(connection: sa.Connection, prior: VoteRow | None, vote: NewVote) -> str:
    """Append a vote that follows `prior`, this person's last row on the attempt; returns its public id."""
    values = _values(prior, vote)
    connection.execute(_INSERT, values)
    return str(values["public_id"])


def insert_votes(connection: sa.Connection, votes: Sequence[tuple[VoteRow | None, NewVote]]) -> None:
    """Append many votes, each with this person's last row on the attempt."""
    for start in range(0, len(votes), 5000):
        connection.execute(_INSERT, [_values(prior, vote) for prior, vote in votes[start : start + 5000]])


def _values(prior: VoteRow | None, vote: NewVote) -> dict[str, object]:
    return {
        "public_id": new_public_id(),
        "created_at": time.time(),
        "seq": 0 if prior is None else prior.seq + 1,
        "supersedes": None if prior is None else prior.id,
        **values_of(vote),
    }


def live_votes(connection: sa.Connection, item_id: int, attempt: int) -> list[VoteRow]:
    """The votes that count on an attempt at an item, in the order they came."""
    found = sa.select(Vote).where(Vote.c.item_id == item_id, Vote.c.attempt == attempt).order_by(Vote.c.id)
    return _live(all_rows(connection, found, VoteRow))


def live_votes_of_round(connection: sa.Connection, round_id: int) -> dict[int, list[VoteRow]]:
    """Item → the votes that count, for every item that a round handed out."""
    found = (
        sa.select(Vote)
        .select_from(Vote)
        .join(Selection, _OF_SELECTION)
        .where(Selection.c.round_id == round_id)
        .order_by(Vote.c.id)
    )
    return _live_by_item(all_rows(connection, found, VoteRow))


def live_votes_of_campaign(connection: sa.Connection, campaign_id: int) -> list[VoteWithKey]:
    """Every vote of a campaign that counts, in the order they came."""
    found = _VOTE_WITH_KEY.where(Vote.c.campaign_id == campaign_id, *LIVE).order_by(Vote.c.id)
    return all_rows(connection, found, VoteWithKey)


_NEWEST_OF_CAMPAIGN = sa.select(sa.func.max(Vote.c.id)).where(_OF_CAMPAIGN)


def newest_of_campaign(connection: sa.Connection, campaign_id: int) -> int:
    """The inner id of the last row of the vote ledger; 0 before the first."""
    return int(connection.execute(_NEWEST_OF_CAMPAIGN, {"campaign_id": campaign_id}).scalar() or 0)


_LIVE_OF_PERSON = sa.select(Vote).where(_OF_CAMPAIGN, _OF_PERSON, *LIVE).order_by(Vote.c.id)


def live_votes_of_person(connection: sa.Connection, campaign_id: int, person: str) -> list[VoteRow]:
    """This person's votes that count, in the order they came."""
    return all_rows(connection, _LIVE_OF_PERSON, VoteRow, campaign_id=campaign_id, person=person)


def all_votes(connection: sa.Connection, campaign_id: int) -> list[VoteWithRound]:
    """Every row of the vote ledger, in the order they came."""
    found = (
        sa.select(*columns(VoteWithRound, Vote, Item, Round))
        .select_from(Vote)
        .join(Item)
        .outerjoin(Round)
        .where(Vote.c.campaign_id == campaign_id)
        .order_by(Vote.c.id)
    )
    return all_rows(connection, found, VoteWithRound)


_OF_ITEMS = sa.select(Vote).where(Vote.c.item_id.in_(AMONG)).order_by(Vote.c.id)


def last_votes(connection: sa.Connection, item_ids: Sequence[int]) -> dict[tuple[int, int, str], VoteRow]:
    """By (item, attempt, person): the last row, which may be a retraction."""
    rows = sorted(rows_among(connection, _OF_ITEMS, VoteRow, item_ids), key=lambda row: row.seq)
    return {(row.item_id, row.attempt, row.person): row for row in rows}


def votes_behind(connection: sa.Connection, decisions: Sequence[DecisionRow]) -> dict[int, list[VoteRow]]:
    """Item → the votes that count on the attempt a decision is about."""
    attempts = {row.item_id: row.attempt for row in decisions}
    rows = rows_among(connection, _OF_ITEMS, VoteRow, attempts)
    return _live_by_item(row for row in rows if row.attempt == attempts[row.item_id])


def _live_by_item(rows: Iterable[VoteRow]) -> dict[int, list[VoteRow]]:
    by_item: dict[int, list[VoteRow]] = defaultdict(list)
    for row in rows:
        by_item[row.item_id].append(row)
    return {item: _live(votes) for item, votes in by_item.items()}


def _live(rows: Iterable[VoteRow]) -> list[VoteRow]:
    """Of the rows on one attempt at an item, those that count, in the order they came."""
    last: dict[str, VoteRow] = {}
    for row in rows:
        if row.person not in last or row.seq > last[row.person].seq:
            last[row.person] = row
    return sorted((row for row in last.values() if not row.retracted), key=lambda row: row.id)


class Moment(NamedTuple):
    """The time now, and the latest end that a lease can have: one that ends later was given by a clock that was ahead."""

    now: float
    latest: float

    @classmethod
    def of(cls, lease_minutes: float) -> "Moment":
        """By the clock of this process."""
        now = time.time()
        return cls(now, now + 60.0 * lease_minutes + _SPREAD)

    def holds(self, until: float) -> bool:
        """Whether a lease that ends then holds now."""
        return self.now < until <= self.latest


_SPREAD = 1.0  # leases that are given together end milliseconds apart
_NOW: sa.BindParameter[float] = bindparam("now")
_PEOPLE: sa.BindParameter[int] = bindparam("people")
_LATEST: sa.BindParameter[float] = bindparam("latest")
_LIVE_LEASE = (
    (Assignment.c.state == AssignmentState.LEASED) & (Assignment.c.until > _NOW) & (Assignment.c.until <= _LATEST)
)
_LEASED_IN_ROUND = (Assignment.c.round_id == bindparam("round_id")) & _LIVE_LEASE
_LEASED_BY_OTHERS = sa.select(sa.func.count()).where(_LIVE_LEASE, Assignment.c.person != _PERSON)
_VOTE_OF_PERSON = sa.select(Vote.c.id).where(_OF_SELECTION, _OF_PERSON)
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


def leases_of(connection: sa.Connection, round_id: int, person: str, at: Moment) -> list[LeasedSelection]:
    """The selections this person holds now, first given first."""
    return all_rows(connection, _LEASES, LeasedSelection, round_id=round_id, person=person, **at._asdict())


_others = _LEASED_BY_OTHERS.where(Assignment.c.selection_id == Selection.c.id).correlate(Selection).scalar_subquery()
_WANTED = sa.func.coalesce(Selection.c.needed, _PEOPLE)
_OPEN_TO_PERSON = sa.select(Selection).where(  # it needs a vote, has a place left, and none by this person
    Selection.c.round_id == bindparam("round_id"),
    sa.not_(Selection.c.decided),
    Selection.c.votes < _WANTED,
    Selection.c.votes + _others < _WANTED,
    ~_VOTE_OF_PERSON.where(*LIVE).correlate(Selection).exists(),
)
# Items of the batch that this person never had: by far most of what is asked, and found along the index of ranks.
_FRESH = (
    _OPEN_TO_PERSON.where(Selection.c.origin != Origin.AHEAD, ~_HAD).order_by(Selection.c.rank).limit(bindparam("most"))
)
_FREE = (
    _OPEN_TO_PERSON.outerjoin(_own, _OWN)
    .where(
        _own.c.id.is_(None)
        | (_own.c.state != AssignmentState.LEASED)
        | (_own.c.until <= _NOW)
        | (_own.c.until > _LATEST)
    )
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
    connection: sa.Connection, round_id: int, person: str, people: int, at: Moment, limit: int
) -> list[SelectionRow]:
    """Selections that still need this person's vote, in the order in which they should be asked.

    New items of the batch by rank, then work ahead, then what this person let run out or skipped, earliest first.
    """
    given = {"round_id": round_id, "person": person, "people": people, "most": limit, **at._asdict()}
    fresh = all_rows(connection, _FRESH, SelectionRow, **given)
    return fresh if len(fresh) == limit else all_rows(connection, _FREE, SelectionRow, **given)


_OPEN = _FREE.with_only_columns(*columns(OpenSelection, Selection)).limit(None)


def open_selections(
    connection: sa.Connection, round_id: int, person: str, people: int, at: Moment
) -> list[OpenSelection]:
    """All that `free_selections` could return, in short."""
    given = {"round_id": round_id, "person": person, "people": people, **at._asdict()}
    return all_rows(connection, _OPEN, OpenSelection, **given)


_EXPIRY = sa.select(sa.func.min(Assignment.c.until)).where(_LEASED_IN_ROUND)


def next_expiry(connection: sa.Connection, round_id: int, at: Moment) -> float | None:
    """When the next lease of a round runs out."""
    found: float | None = connection.execute(_EXPIRY, {"round_id": round_id, **at._asdict()}).scalar()
    return found


_LIVE_LEASES = (
    sa.select(Assignment.c.selection_id, sa.func.count()).where(_LEASED_IN_ROUND).group_by(Assignment.c.selection_id)
)


def live_leases(connection: sa.Connection, round_id: int, at: Moment) -> dict[int, int]:
    """Leases now, counted by selection."""
    rows = connection.execute(_LIVE_LEASES, {"round_id": round_id, **at._asdict()})
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


def slots_taken(connection: sa.Connection, selection_id: int, person: str, at: Moment) -> int:
    """Leases that others hold on a selection."""
    given = {"selection_id": selection_id, "person": person, **at._asdict()}
    return int(connection.execute(_TAKEN, given).scalar_one())


def free_leases(connection: sa.Connection, person: str, campaign_id: int) -> bool:
    """Give back what a person holds in a campaign, so that others get it at once; whether there was anything."""
    own = (Assignment.c.person == person) & (Assignment.c.state == AssignmentState.LEASED)
    here = Assignment.c.round_id.in_(sa.select(Round.c.id).where(Round.c.campaign_id == campaign_id))
    return (
        connection.execute(sa.update(Assignment).where(own, here, Assignment.c.until > 0.0).values(until=0.0)).rowcount
        > 0
    )
