"""Take the votes of people, and take them back."""

import math
import time
from typing import TypedDict, Unpack

from sqlalchemy import Connection

from labelchef.domain.campaigns import AssignmentState, Origin, RoundState, Task, VoteReceipt, Waiting
from labelchef.domain.errors import ConflictError, InvalidInputError
from labelchef.services.labelling.decisions import class_of, reconsider
from labelchef.services.labelling.tasks import check_n, hand_out, place_of, tasks_of, waits_ahead
from labelchef.services.people.access import taking_part
from labelchef.services.workspace import Workspace
from labelchef.store import assignment_table, campaign_table, decision_table, item_table, selection_table, vote_table
from labelchef.store.rows import CampaignRow, ItemRow, NewVote, RoundRow, SelectionRow
from labelchef.store.values import storable

_LONGEST_NOTE = 4000


class Extras(TypedDict, total=False):
    """What may come with a vote. The same `request_id` is stored once."""

    note: str | None
    seconds: float | None
    request_id: str | None
    hidden: bool
    """The suggestion was not shown to this person."""


def cast_vote(
    ws: Workspace, campaign: str, person: str, item: str, label: int | str | None, **extras: Unpack[Extras]
) -> VoteReceipt:
    """Store a person's vote on an item; a vote on the same item again replaces the first.

    `label` is a class position, a class name, or None for ambiguous.
    """
    _check(extras)
    with taking_part(ws, campaign, person) as (connection, row, account_id):
        receipt = _cast(connection, row, account_id, person, item, label, extras)
    if receipt.batch_complete:
        ws.signal.notify()
    return receipt


def vote_and_next(
    ws: Workspace, campaign: str, person: str, item: str, label: int | str | None, n: int, **extras: Unpack[Extras]
) -> tuple[VoteReceipt, list[Task] | Waiting]:
    """`cast_vote` and `next_tasks` in one transaction."""
    _check(extras)
    check_n(n)
    with taking_part(ws, campaign, person) as (connection, row, account_id):
        receipt = _cast(connection, row, account_id, person, item, label, extras)
        after = hand_out(connection, row, person, n)
    if receipt.batch_complete:
        ws.signal.notify()
    return receipt, after


def undo_vote(ws: Workspace, campaign: str, person: str, *, request_id: str | None = None) -> Task:
    """Take back this person's latest vote that counts, and hand the item out to them again."""
    _check({"request_id": request_id})
    with taking_part(ws, campaign, person) as (connection, row, account_id):
        undone = vote_table.vote_by_request(connection, row.id, person, request_id) if request_id else None
        vote = undone or vote_table.newest_live_vote(connection, row.id, person)
        if vote is None:
            raise ConflictError("there is no vote of yours to take back", code="nothing_to_undo")
        sample = item_table.item_by_key(connection, row.id, vote.key)
        place = place_of(connection, row, sample, person)
        if undone is not None:
            if place is None:
                raise ConflictError(f"item {vote.key!r} is not being asked any more", code="not_asked")
            return tasks_of(connection, row, place[0], person, [place[1]])[0]
        if place is None or place[1].attempt != vote.attempt:
            why = f"your last vote, on item {vote.key!r}, belongs to an earlier time it was asked; it stays"
            raise ConflictError(why, code="nothing_to_undo")
        turn, selection = place
        new = NewVote(
            campaign_id=vote.campaign_id,
            item_id=vote.item_id,
            attempt=vote.attempt,
            round_id=vote.round_id,
            person=vote.person,
            account_id=account_id,
            label=None,
            blind=vote.blind,
            suggested=vote.suggested,
            source="undo",
            retracted=True,
            request_id=request_id,
        )
        vote_table.insert_vote(connection, vote, new)
        _count(connection, row, turn, selection, sample, person, -1)
        if turn.state == RoundState.SELECTED or waits_ahead(turn, selection):
            until = time.time() + 60.0 * row.settings.lease_minutes
            assignment_table.assign(connection, selection, person, AssignmentState.LEASED, until)
        return tasks_of(connection, row, turn, person, [selection])[0]


def _cast(
    connection: Connection,
    row: CampaignRow,
    account_id: int | None,
    person: str,
    item: str,
    label: int | str | None,
    extras: Extras,
) -> VoteReceipt:
    request_id = extras.get("request_id")
    stored = vote_table.vote_by_request(connection, row.id, person, request_id) if request_id else None
    if stored is not None:
        if stored.key != item:
            why = f"this request_id was used for item {stored.key!r}, not {item!r}; expected a new one a vote"
            raise ConflictError(why, code="request_id")
        return VoteReceipt(stored.public_id, item, stored.label, True, stored.supersedes is not None, False)
    class_id = class_of(campaign_table.classes_of(connection, row.id), label)
    sample = item_table.item_by_key(connection, row.id, item)
    place = place_of(connection, row, sample, person)
    if place is None:
        raise ConflictError(f"item {item!r} is not being asked; ask for the next one", code="not_asked")
    turn, selection = place
    prior = vote_table.last_vote(connection, sample.id, selection.attempt, person)
    first = prior is None or prior.retracted
    if prior is None or (first and (turn.state == RoundState.SELECTED or waits_ahead(turn, selection))):
        _check_free(connection, row, turn, selection, person, item)
    new = NewVote(
        campaign_id=row.id,
        item_id=sample.id,
        attempt=selection.attempt,
        round_id=None if selection.origin == Origin.AHEAD else turn.id,
        person=person,
        account_id=account_id,
        label=class_id,
        note=extras.get("note") or None,
        blind=selection.blind or extras.get("hidden", False),
        suggested=selection.suggested,
        seconds=extras.get("seconds"),
        source="person",
        request_id=request_id,
    )
    public_id = vote_table.insert_vote(connection, prior, new)
    complete = _count(connection, row, turn, selection, sample, person, +1 if first else 0)
    return VoteReceipt(public_id, item, class_id, repeated=False, changed=not first, batch_complete=complete)


def _check_free(
    connection: Connection, campaign: CampaignRow, turn: RoundRow, selection: SelectionRow, person: str, item: str
) -> None:
    """A first vote needs an item without a decision, and a lease that has not run out or a place no one else has taken."""
    now, ahead = time.time(), waits_ahead(turn, selection)
    if ahead:
        last = decision_table.last_decision(connection, selection.item_id)
        decided = last is not None and last.attempt >= selection.attempt
        votes = len(vote_table.live_votes(connection, selection.item_id, selection.attempt))
    else:
        decided, votes = turn.state != RoundState.SELECTED or selection.decided, selection.votes
    if decided:
        raise ConflictError(f"item {item!r} is decided already; ask for the next one", code="decided")
    own = None if ahead else assignment_table.assignment_of(connection, selection.id, person)
    if own is not None and own.state == AssignmentState.LEASED and own.until > now:
        return
    if votes + assignment_table.slots_taken(connection, selection.id, person, now) >= campaign.settings.people:
        raise ConflictError(
            f"item {item!r} has been given to others, as many as are asked; ask for the next one", code="taken"
        )


def _count(
    connection: Connection,
    campaign: CampaignRow,
    turn: RoundRow,
    selection: SelectionRow,
    sample: ItemRow,
    person: str,
    by: int,
) -> bool:
    """Update counts and leases after a vote (`by` −1: after it was taken back); returns whether it completed the batch."""
    waits = waits_ahead(turn, selection)
    if turn.state != RoundState.SELECTED and not waits:
        reconsider(connection, campaign, selection, sample)
        return False
    if by:
        selection_table.count_vote(connection, selection.id, by)
    if by >= 0:
        assignment_table.assign(connection, selection, person, AssignmentState.VOTED, time.time())
    return not waits and not selection_table.batch_incomplete(connection, turn.id, campaign.settings.people)


def _check(extras: Extras) -> None:
    note, seconds, request_id = extras.get("note"), extras.get("seconds"), extras.get("request_id")
    if note is not None and (len(note) > _LONGEST_NOTE or not storable(note)):
        raise InvalidInputError(
            f"the note has {len(note)} characters; expected at most {_LONGEST_NOTE}, and text only", code="note"
        )
    if seconds is not None and not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidInputError(f"seconds is {seconds!r}; expected a number of at least 0", code="seconds")
    if request_id is not None and not (0 < len(request_id) <= 80 and storable(request_id)):
        raise InvalidInputError("request_id is empty or too long; expected 1 to 80 characters", code="request_id")
