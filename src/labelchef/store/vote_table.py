"""Votes. Of a person's rows on an attempt at an item the one with the last `seq` counts, unless it is a retraction.

The statements of a vote are made once, when the module is imported: to build one costs more than to run it.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.store.rows import (
    AMONG,
    DecisionRow,
    NewVote,
    VoteRow,
    VoteWithKey,
    VoteWithRound,
    all_rows,
    columns,
    first_row,
    rows_among,
    values_of,
)
from labelchef.store.tables import Item, Round, Selection, Vote
from labelchef.store.values import new_public_id

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
_OF_PERSON = Vote.c.person == bindparam("person")
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
        .join(Selection, (Selection.c.item_id == Vote.c.item_id) & (Selection.c.attempt == Vote.c.attempt))
        .where(Selection.c.round_id == round_id)
        .order_by(Vote.c.id)
    )
    return _live_by_item(all_rows(connection, found, VoteRow))


def live_votes_of_campaign(connection: sa.Connection, campaign_id: int) -> list[VoteWithKey]:
    """Every vote of a campaign that counts, in the order they came."""
    found = _VOTE_WITH_KEY.where(Vote.c.campaign_id == campaign_id, *LIVE).order_by(Vote.c.id)
    return all_rows(connection, found, VoteWithKey)


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
