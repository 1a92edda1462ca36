"""Votes, and assignments: which person holds which item until when, and the next items for a person.

Of a person's rows on an attempt at an item the one with the last `seq` counts, unless it is a retraction. Statements of
a vote or a task are made once, when the module is imported: to build one costs more than to run it.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.base.campaigns import AssignmentState, Origin
from labelchef.server.store.round_table import COUNT_VOTE
from labelchef.server.store.rows import (
    AMONG,
    AssignmentRow,
    DecisionRow,
    LeasedSelection,
    NewVote,
    OpenSelection,
    SelectionRow,
    TurnRow,
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
from labelchef.server.store.tables import Assignment, Decision, GoldAnswer, Item, Round, Selection, Vote

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


_REQUEST_KNOWN = (
    sa.select(Vote.c.id)
    .where(_OF_CAMPAIGN, _OF_PERSON, Vote.c.request_id == bindparam("request_id"))
    .union_all(
        sa.select(GoldAnswer.c.id).where(
            GoldAnswer.c.campaign_id == bindparam("campaign_id"),
            GoldAnswer.c.person == _PERSON,
            GoldAnswer.c.request_id == bindparam("request_id"),
        )
    )
)


def request_known(connection: sa.Connection, campaign_id: int, person: str, request_id: str) -> bool:
    """Whether a request has stored a vote or an answer on gold."""
    given = {"campaign_id": campaign_id, "person": person, "request_id": request_id}
    return connection.execute(_REQUEST_KNOWN, given).first() is not None


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


def imported_undecided(connection: sa.Connection, campaign_id: int) -> list[tuple[int, int]]:
    """(item, attempt) of every item with imported votes and without a decision since."""
    decided = sa.exists().where(Decision.c.item_id == Vote.c.item_id, Decision.c.attempt >= Vote.c.attempt)
    found = (
        sa.select(Vote.c.item_id, Vote.c.attempt)
        .select_from(Vote)
        .join(Item)
        .where(Vote.c.campaign_id == campaign_id, Vote.c.source == "import", Vote.c.attempt == Item.c.attempt, ~decided)
        .distinct()
        .order_by(Vote.c.item_id)
    )
    return [(item, attempt) for item, attempt in connection.execute(found)]


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
_UNDECIDED = sa.select(Selection).where(  # it needs a vote
    Selection.c.round_id == bindparam("round_id"), sa.not_(Selection.c.decided), Selection.c.votes < _WANTED
)
_LOWEST = (  # it has a place left, for whomever
    _UNDECIDED.with_only_columns(Selection.c.rank)
    .where(
        Selection.c.votes
        + sa.select(sa.func.count())
        .where(_LIVE_LEASE, Assignment.c.selection_id == Selection.c.id)
        .correlate(Selection)
        .scalar_subquery()
        < _WANTED
    )
    .order_by(Selection.c.rank)
    .limit(1)
)


def lowest_free(connection: sa.Connection, round_id: int, people: int, at: Moment) -> int | None:
    """The least rank of a selection that has a place left; None where none has."""
    given = {"round_id": round_id, "people": people, **at._asdict()}
    found: int | None = connection.execute(_LOWEST, given).scalar()
    return found


_OPEN_TO_PERSON = _UNDECIDED.where(  # it has a place left, and no vote by this person
    Selection.c.votes + _others < _WANTED, ~_VOTE_OF_PERSON.where(*LIVE).correlate(Selection).exists()
)
# Items of the batch that this person never had: by far most of what is asked. They are looked at one by one along the index of
# ranks until there are enough: OFFSET 0 and counts, not EXISTS, keep PostgreSQL from joining and sorting the whole batch.
_ranked = (
    _UNDECIDED.where(Selection.c.origin != Origin.AHEAD)
    .where(Selection.c.rank >= bindparam("lowest"), Selection.c.rank < bindparam("end"))
    .order_by(Selection.c.rank)
    .offset(0)
    .subquery("ranked")
)


def _count(of: sa.Table, *where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).select_from(of).where(*where).correlate(_ranked).scalar_subquery()


_of_ranked = Assignment.c.selection_id == _ranked.c.id
_FRESH = (
    sa.select(_ranked)
    .where(
        _ranked.c.votes + _count(Assignment, _of_ranked, _LIVE_LEASE, Assignment.c.person != _PERSON)
        < sa.func.coalesce(_ranked.c.needed, _PEOPLE),
        _count(Assignment, _of_ranked, Assignment.c.person == _PERSON) == 0,
        _count(Vote, Vote.c.item_id == _ranked.c.item_id, Vote.c.attempt == _ranked.c.attempt, _OF_PERSON, *LIVE) == 0,
    )
    .order_by(_ranked.c.rank)
    .limit(bindparam("most"))
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
    connection: sa.Connection, round_id: int, person: str, people: int, at: Moment, limit: int, within: range
) -> list[SelectionRow]:
    """Selections that still need this person's vote, in the order in which they should be asked.

    New items of the batch by rank, then work ahead, then what this person let run out or skipped, earliest first. Other
    ranks than those `within` are looked at only if there are not enough.
    """
    given = {"round_id": round_id, "person": person, "people": people, "most": limit, **at._asdict()}
    fresh = all_rows(connection, _FRESH, SelectionRow, lowest=within.start, end=within.stop, **given)
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


_HOLDERS = (
    sa.select(Assignment.c.person, sa.func.count(), sa.func.max(Assignment.c.until))
    .join(Selection, Selection.c.id == Assignment.c.selection_id)
    .where(_LEASED_IN_ROUND, sa.not_(Selection.c.decided))
    .group_by(Assignment.c.person)
    .order_by(Assignment.c.person)
)


def holders(connection: sa.Connection, round_id: int, at: Moment) -> list[tuple[str, int, float]]:
    """(person, items, when the last lease ends) of those who hold items of a round now."""
    rows = connection.execute(_HOLDERS, {"round_id": round_id, **at._asdict()})
    return [(str(row[0]), int(row[1]), float(row[2])) for row in rows]


_ASSIGN = sa.text(
    """INSERT INTO assignment (round_id, selection_id, person, state, until)
    VALUES (:round_id, :selection_id, :person, :state, :until)
    ON CONFLICT (selection_id, person) DO UPDATE SET state = excluded.state, until = excluded.until"""
).bindparams(
    *(
        bindparam(name, type_=Assignment.c[name].type)
        for name in ("round_id", "selection_id", "person", "state", "until")
    )
)


def assign(
    connection: sa.Connection, selection: SelectionRow, person: str, state: AssignmentState, until: float
) -> None:
    """Give a selection to a person, or store what became of it."""
    values = {"round_id": selection.round_id, "selection_id": selection.id}
    connection.execute(_ASSIGN, {**values, "person": person, "state": state, "until": until})


_STORED = [name for name in Vote.c.keys() if name != "id"]  # noqa: SIM118 - a collection of columns iterates over these
_AT_ONCE = sa.text(
    f"""WITH cast_vote AS (INSERT INTO vote ({", ".join(_STORED)}) VALUES ({", ".join(f":{name}" for name in _STORED)})),
    counted AS (UPDATE selection SET votes = votes + :more WHERE id = :selection_id),
    ended AS (INSERT INTO assignment (round_id, selection_id, person, state, until)
    VALUES (:in_round, :selection_id, :person, :state, :until)
    ON CONFLICT (selection_id, person) DO UPDATE SET state = excluded.state, until = excluded.until)
    SELECT 1"""
).bindparams(
    bindparam("in_round", type_=Assignment.c.round_id.type),
    bindparam("more", type_=Selection.c.votes.type),
    *(bindparam(name, type_=Vote.c[name].type) for name in _STORED),
    *(bindparam(name, type_=Assignment.c[name].type) for name in ("selection_id", "state", "until")),
)
"""PostgreSQL: three statements in one."""


def store_vote(
    connection: sa.Connection, prior: VoteRow | None, vote: NewVote, selection: SelectionRow, *, more: int
) -> str:
    """`insert_vote`, count it on its selection (`more`: 0 if it replaces one), and end its lease."""
    if connection.dialect.name != "postgresql":
        public_id = insert_vote(connection, prior, vote)
        connection.execute(COUNT_VOTE, {"of_selection": selection.id, "more": more})
        assign(connection, selection, vote.person, AssignmentState.VOTED, time.time())
        return public_id
    values = _values(prior, vote)
    counted = {"selection_id": selection.id, "more": more, "in_round": selection.round_id}
    connection.execute(_AT_ONCE, {**values, **counted, "state": AssignmentState.VOTED, "until": time.time()})
    return str(values["public_id"])


class OpenPlace(NamedTuple):
    """The last round of a campaign, an item in it, and what a person has done about it."""

    turn: TurnRow
    selection: SelectionRow | None
    """None where the round does not ask the item; then the two behind it are None, too."""
    own: AssignmentRow | None
    last: VoteRow | None
    """This person's last row on the attempt; it may be a retraction."""
    request_known: bool


_KINDS = (TurnRow, SelectionRow, AssignmentRow, VoteRow)
_ENDS = tuple(itertools.accumulate((len(fields(kind)) for kind in _KINDS), initial=1))
_OPEN_PLACE = (
    sa.select(_REQUEST_KNOWN.exists(), *columns(TurnRow, Round), Selection, Assignment, Vote)
    .select_from(Round)
    .outerjoin(Selection, (Selection.c.round_id == Round.c.id) & (Selection.c.item_id == bindparam("item_id")))
    .outerjoin(Assignment, (Assignment.c.selection_id == Selection.c.id) & (Assignment.c.person == _PERSON))
    .outerjoin(Vote, _OF_SELECTION & _OF_PERSON & ~_SUPERSEDED)
    .where(Round.c.campaign_id == bindparam("campaign_id"))
    .order_by(Round.c.number.desc())
    .limit(1)
)


def open_place(
    connection: sa.Connection, campaign_id: int, item_id: int, person: str, request_id: str | None
) -> OpenPlace | None:
    """Where an item is in the last round, and whether a request has stored a vote; None before the first round."""
    given = {"campaign_id": campaign_id, "item_id": item_id, "person": person, "request_id": request_id or ""}
    row = connection.execute(_OPEN_PLACE, given).first()
    if row is None:
        return None
    turn, selection, own, last = (row[start:end] for start, end in itertools.pairwise(_ENDS))
    return OpenPlace(
        TurnRow(*turn),
        None if selection[0] is None else SelectionRow(*selection),
        None if own[0] is None else AssignmentRow(*own),
        None if last[0] is None else VoteRow(*last),
        bool(row[0]),
    )


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
        sa.select(_own.c.id).where(_OWN).correlate(Selection).exists() | _VOTE_OF_PERSON.correlate(Selection).exists(),
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
