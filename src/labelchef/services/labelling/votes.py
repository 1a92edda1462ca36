"""Take the votes of people, and take them back."""

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labelchef.domain.campaigns import (
    AssignmentState,
    Origin,
    RoundState,
    Task,
    VoteReceipt,
    Waiting,
)
from labelchef.domain.errors import ConflictError, InvalidInputError
from labelchef.services.labelling.classes import class_of
from labelchef.services.labelling.decisions import reconsider
from labelchef.services.labelling.tasks import check_n, hand_out, place_of, tasks_of, waits_ahead
from labelchef.services.people.access import locked_for
from labelchef.services.workspace import Workspace
from labelchef.store import (
    assignment_table,
    campaign_table,
    decision_table,
    item_table,
    selection_table,
    vote_table,
)
from labelchef.store.rows import (
    CampaignRow,
    ItemRow,
    NewVote,
    RoundRow,
    SelectionRow,
    VoteRow,
    VoteWithKey,
)
from labelchef.store.values import storable

if TYPE_CHECKING:
    import sqlalchemy as sa

_LONGEST_NOTE = 4000


def cast_vote(
    ws: Workspace,
    campaign: str,
    person: str,
    item: str,
    label: int | str | None,
    *,
    note: str | None = None,
    seconds: float | None = None,
    request_id: str | None = None,
    hidden: bool = False,
) -> VoteReceipt:
    """Store a person's vote on an item; a vote on the same item again replaces the first.

    `label` is a class position, a class name, or None for ambiguous. The same `request_id` is stored once. `hidden`:
    the suggestion was not shown to this person.
    """
    _check_extras(note, seconds, request_id)
    ballot = _Ballot(person, item, label, note, seconds, request_id, hidden)
    with ws.writing() as connection:
        row, account_id = locked_for(ws, connection, campaign, person)
        receipt = _cast(connection, row, account_id, ballot)
    if receipt.batch_complete:
        ws.signal.notify()
    return receipt


def vote_and_next(
    ws: Workspace,
    campaign: str,
    person: str,
    item: str,
    label: int | str | None,
    *,
    n: int = 2,
    note: str | None = None,
    seconds: float | None = None,
    request_id: str | None = None,
    hidden: bool = False,
) -> tuple[VoteReceipt, list[Task] | Waiting]:
    """`cast_vote` and `next_tasks` in one transaction."""
    _check_extras(note, seconds, request_id)
    check_n(n)
    ballot = _Ballot(person, item, label, note, seconds, request_id, hidden)
    with ws.writing() as connection:
        row, account_id = locked_for(ws, connection, campaign, person)
        receipt = _cast(connection, row, account_id, ballot)
        after = hand_out(connection, row, person, n)
    if receipt.batch_complete:
        ws.signal.notify()
    return receipt, after


@dataclass(frozen=True)
class _Ballot:
    """A vote as it came."""

    person: str
    item: str
    label: int | str | None
    note: str | None
    seconds: float | None
    request_id: str | None
    hidden: bool


def _cast(connection: "sa.Connection", row: CampaignRow, account_id: int | None, ballot: _Ballot) -> VoteReceipt:
    person, item = ballot.person, ballot.item
    if ballot.request_id is not None:
        stored = vote_table.vote_by_request(connection, row.id, person, ballot.request_id)
        if stored is not None:
            return _repeated(stored, item)
    class_id = class_of(campaign_table.classes_of(connection, row.id), ballot.label)
    sample = item_table.item_by_key(connection, row.id, item)
    turn, selection = place_of(connection, row, sample, person)
    if selection is None or turn is None:
        raise ConflictError(f"item {item!r} is not being asked; ask for the next one", code="not_asked")
    prior = vote_table.last_vote(connection, sample.id, selection.attempt, person)
    open_ = turn.state == RoundState.SELECTED
    if waits_ahead(turn, selection):
        if prior is None or prior.retracted:
            _may_vote_ahead(connection, row, selection, person, item)
    elif prior is None or (prior.retracted and open_):
        _may_vote(connection, row, selection, person, item, open_)
    public_id = vote_table.insert_vote(
        connection,
        prior,
        NewVote(
            campaign_id=row.id,
            item_id=sample.id,
            attempt=selection.attempt,
            round_id=None if selection.origin == Origin.AHEAD else turn.id,
            person=person,
            account_id=account_id,
            label=class_id,
            note=ballot.note or None,
            blind=selection.blind or ballot.hidden,
            suggested=selection.suggested,
            seconds=ballot.seconds,
            source="person",
            request_id=ballot.request_id,
        ),
    )
    complete = _counted(connection, row, turn, selection, sample, person, prior, +1)
    changed = prior is not None and not prior.retracted
    return VoteReceipt(public_id, item, class_id, repeated=False, changed=changed, batch_complete=complete)


def undo_vote(ws: Workspace, campaign: str, person: str, *, request_id: str | None = None) -> Task:
    """Take back this person's latest vote that counts, and hand the item out to them again."""
    _check_extras(None, None, request_id)
    with ws.writing() as connection:
        row, account_id = locked_for(ws, connection, campaign, person)
        if request_id is not None:
            stored = vote_table.vote_by_request(connection, row.id, person, request_id)
            if stored is not None:
                sample = item_table.item_by_key(connection, row.id, stored.key)
                turn, selection = place_of(connection, row, sample, person)
                if selection is None:
                    raise ConflictError(f"item {stored.key!r} is not being asked any more", code="not_asked")
                assert turn is not None
                return tasks_of(connection, row, turn, person, [selection])[0]
        vote = vote_table.newest_live_vote(connection, row.id, person)
        if vote is None:
            raise ConflictError("there is no vote of yours to take back", code="nothing_to_undo")
        sample = item_table.item_by_key(connection, row.id, vote.key)
        turn, selection = place_of(connection, row, sample, person)
        if selection is None or turn is None or selection.attempt != vote.attempt:
            raise ConflictError(
                f"your last vote, on item {vote.key!r}, belongs to an earlier time it was asked; it stays",
                code="nothing_to_undo",
            )
        vote_table.insert_vote(
            connection,
            vote,
            NewVote(
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
            ),
        )
        _counted(connection, row, turn, selection, sample, person, vote, -1)
        if turn.state == RoundState.SELECTED or waits_ahead(turn, selection):
            minutes = row.settings.lease_minutes
            assignment_table.assign(connection, selection, person, AssignmentState.LEASED, time.time() + 60.0 * minutes)
        return tasks_of(connection, row, turn, person, [selection])[0]


def _may_vote_ahead(
    connection: "sa.Connection", campaign: CampaignRow, selection: SelectionRow, person: str, item: str
) -> None:
    """A first vote on work ahead whose round is over: the item must be undecided and not have all its votes."""
    last = decision_table.last_decision(connection, selection.item_id)
    if last is not None and last.attempt >= selection.attempt:
        raise ConflictError(f"item {item!r} is decided already; ask for the next one", code="decided")
    votes = vote_table.live_votes(connection, selection.item_id, selection.attempt)
    taken = assignment_table.slots_taken(connection, selection.id, person, time.time())
    if len(votes) + taken >= campaign.settings.people:
        raise ConflictError(
            f"item {item!r} has been given to others, as many as are asked; ask for the next one", code="taken"
        )


def _may_vote(
    connection: "sa.Connection", campaign: CampaignRow, selection: SelectionRow, person: str, item: str, open_: bool
) -> None:
    """A first vote needs a lease that has not run out, or a place that no one else has taken."""
    if not open_ or selection.decided:
        raise ConflictError(f"item {item!r} is decided already; ask for the next one", code="decided")
    now = time.time()
    own = assignment_table.assignment_of(connection, selection.id, person)
    if own is not None and own.state == AssignmentState.LEASED and own.until > now:
        return
    people = campaign.settings.people
    if selection.votes + assignment_table.slots_taken(connection, selection.id, person, now) >= people:
        raise ConflictError(
            f"item {item!r} has been given to others, as many as are asked; ask for the next one", code="taken"
        )


def _counted(
    connection: "sa.Connection",
    campaign: CampaignRow,
    turn: RoundRow,
    selection: SelectionRow,
    sample: ItemRow,
    person: str,
    prior: VoteRow | None,
    by: int,
) -> bool:
    """Update counts and leases after a vote; returns whether it completed the batch."""
    new = by < 0 or prior is None or prior.retracted
    waits = waits_ahead(turn, selection)
    if turn.state != RoundState.SELECTED and not waits:
        reconsider(connection, campaign, selection, sample)
        return False
    if new:
        selection_table.count_vote(connection, selection.id, by)
    if by > 0:
        assignment_table.assign(connection, selection, person, AssignmentState.VOTED, time.time())
    if waits:
        return False
    people = campaign.settings.people
    return not selection_table.batch_incomplete(connection, turn.id, people)


def _repeated(stored: VoteWithKey, item: str) -> VoteReceipt:
    if stored.key != item:
        raise ConflictError(
            f"this request_id was used for item {stored.key!r}, not {item!r}; expected a new one a vote",
            code="request_id",
        )
    return VoteReceipt(stored.public_id, stored.key, stored.label, True, stored.supersedes is not None, False)


def _check_extras(note: str | None, seconds: float | None, request_id: str | None) -> None:
    if note is not None and (len(note) > _LONGEST_NOTE or not storable(note)):
        raise InvalidInputError(
            f"the note has {len(note)} characters; expected at most {_LONGEST_NOTE}, and text only", code="note"
        )
    if seconds is not None and not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidInputError(f"seconds is {seconds!r}; expected a number of at least 0", code="seconds")
    if request_id is not None and not (0 < len(request_id) <= 80 and storable(request_id)):
        raise InvalidInputError("request_id is empty or too long; expected 1 to 80 characters", code="request_id")
