"""Hand items to people and take their votes. Nobody is asked twice, nobody sees another's vote."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labelchef.domain.campaigns import (
    AssignmentState,
    CampaignState,
    DecisionKind,
    ItemContent,
    Neighbour,
    Origin,
    OwnVote,
    RoundState,
    SplitName,
    Task,
    VoteReceipt,
    Waiting,
    WaitReason,
)
from labelchef.domain.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.services.access import moment, visible_campaign
from labelchef.services.turns import majority
from labelchef.services.workspace import Workspace
from labelchef.store import (
    assignment_table,
    campaign_table,
    decision_table,
    item_table,
    round_table,
    selection_table,
    vote_table,
)
from labelchef.store.rows import (
    CampaignRow,
    ItemRow,
    LeasedSelection,
    NewVote,
    RoundRow,
    SelectionRow,
    UnresolvedItem,
    VoteRow,
    VoteWithKey,
)
from labelchef.store.values import storable

if TYPE_CHECKING:
    import sqlalchemy as sa

_LONGEST_NOTE = 4000
_SENTENCES = {
    WaitReason.PREPARING: "the first model is being trained; items come when it is ready",
    WaitReason.OTHERS: "your part of this batch is done; the next one comes when the others are",
    WaitReason.UPDATING: "the batch is complete; the model learns from it and picks the next items",
    WaitReason.PAUSED: "the lead has paused the campaign",
    WaitReason.STOPPED: "the lead has stopped the campaign",
}


def next_tasks(ws: Workspace, campaign: str, person: str, n: int = 2) -> list[Task] | Waiting:
    """Up to `n` items for this person: those they hold already, then new ones by rank, each leased to them."""
    _check_n(n)
    now = time.time()
    with ws.reading() as connection:
        row, _ = visible_campaign(connection, campaign, person)
        turn = round_table.last_round(connection, row.id)
        waiting = _waiting(row, turn)
        if waiting is not None:
            return waiting
        assert turn is not None
        held = assignment_table.leases_of(connection, turn.id, person, now)
        people = row.settings.people
        more = len(held) < n and bool(assignment_table.free_selections(connection, turn.id, person, people, now, 1))
        if not more:
            return _tasks(connection, row, turn, person, held[:n], voted=False) or _idle(connection, row, turn, now)
    return _lease(ws, campaign, person, n)


def _lease(ws: Workspace, campaign: str, person: str, n: int) -> list[Task] | Waiting:
    with ws.writing(lasting=False) as connection:
        row = _locked(ws, connection, campaign, person)[0]
        return _hand_out(connection, row, person, n)


def _locked(ws: Workspace, connection: "sa.Connection", campaign: str, person: str) -> tuple[CampaignRow, int | None]:
    """The campaign as it is once no one else writes to it, and the person's account."""
    row, account_id = visible_campaign(connection, campaign, person)
    if ws.database.is_sqlite:
        return row, account_id
    ws.database.lock_campaign(connection, row.id)
    return visible_campaign(connection, campaign, person)


def _hand_out(connection: "sa.Connection", row: CampaignRow, person: str, n: int) -> list[Task] | Waiting:
    now = time.time()
    turn = round_table.last_round(connection, row.id)
    waiting = _waiting(row, turn)
    if waiting is not None:
        return waiting
    assert turn is not None
    settings = row.settings
    held = assignment_table.leases_of(connection, turn.id, person, now)
    if len(held) < n:
        until = now + 60.0 * settings.lease_minutes
        free = assignment_table.free_selections(connection, turn.id, person, settings.people, now, n - len(held))
        for k, selection in enumerate(free):  # a millisecond apart: leases are shown in the order they were given
            assignment_table.assign(connection, selection, person, AssignmentState.LEASED, until + 1e-3 * k)
        if free:
            held = assignment_table.leases_of(connection, turn.id, person, now)
    return _tasks(connection, row, turn, person, held[:n], voted=False) or _idle(connection, row, turn, now)


def task(ws: Workspace, campaign: str, person: str, item: str) -> Task:
    """An item that this person was given, or has voted on."""
    with ws.reading() as connection:
        row, _ = visible_campaign(connection, campaign, person)
        sample = item_table.item_by_key(connection, row.id, item)
        turn, selection = _place(connection, row, sample, person)
        known = selection is not None and (
            assignment_table.assignment_of(connection, selection.id, person) is not None
            or vote_table.last_vote(connection, sample.id, selection.attempt, person) is not None
        )
        if selection is None or turn is None or not known:
            raise NotFoundError(f"item {item!r} was not given to {person!r}; ask for the next one", code="item")
        return _tasks(connection, row, turn, person, [selection])[0]


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

    `label` is a class position, a class name, or None for ambiguous. The same `request_id` is stored once. `hidden`
    says that this person had the suggestion hidden.
    """
    _check_extras(note, seconds, request_id)
    ballot = _Ballot(person, item, label, note, seconds, request_id, hidden)
    with ws.writing() as connection:
        row, account_id = _locked(ws, connection, campaign, person)
        receipt = _cast(connection, row, account_id, ballot)
    if receipt.batch_complete:
        ws.notify()
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
    """`cast_vote` and `next_tasks` in one transaction: what a person does all day."""
    _check_extras(note, seconds, request_id)
    _check_n(n)
    ballot = _Ballot(person, item, label, note, seconds, request_id, hidden)
    with ws.writing() as connection:
        row, account_id = _locked(ws, connection, campaign, person)
        receipt = _cast(connection, row, account_id, ballot)
        after = _hand_out(connection, row, person, n)
    if receipt.batch_complete:
        ws.notify()
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
    turn, selection = _place(connection, row, sample, person)
    if selection is None or turn is None:
        raise ConflictError(f"item {item!r} is not being asked; ask for the next one", code="not_asked")
    prior = vote_table.last_vote(connection, sample.id, selection.attempt, person)
    open_ = turn.state == RoundState.SELECTED
    if _waits_ahead(turn, selection):
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
        row, account_id = visible_campaign(connection, campaign, person)
        ws.database.lock_campaign(connection, row.id)
        if request_id is not None:
            stored = vote_table.vote_by_request(connection, row.id, person, request_id)
            if stored is not None:
                sample = item_table.item_by_key(connection, row.id, stored.key)
                turn, selection = _place(connection, row, sample, person)
                if selection is None:
                    raise ConflictError(f"item {stored.key!r} is not being asked any more", code="not_asked")
                assert turn is not None
                return _tasks(connection, row, turn, person, [selection])[0]
        vote = vote_table.newest_live_vote(connection, row.id, person)
        if vote is None:
            raise ConflictError("there is no vote of yours to take back", code="nothing_to_undo")
        sample = item_table.item_by_key(connection, row.id, vote.key)
        turn, selection = _place(connection, row, sample, person)
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
        if turn.state == RoundState.SELECTED or _waits_ahead(turn, selection):
            minutes = row.settings.lease_minutes
            assignment_table.assign(connection, selection, person, AssignmentState.LEASED, time.time() + 60.0 * minutes)
        return _tasks(connection, row, turn, person, [selection])[0]


def skip(ws: Workspace, campaign: str, person: str, item: str) -> None:
    """Give an item back: others may take it, this person gets it again last of all."""
    with ws.writing() as connection:
        row, _ = visible_campaign(connection, campaign, person)
        ws.database.lock_campaign(connection, row.id)
        sample = item_table.item_by_key(connection, row.id, item)
        turn = round_table.last_round(connection, row.id)
        selection = None if turn is None else selection_table.selection_of_item(connection, turn.id, sample.id)
        given = None if selection is None else assignment_table.assignment_of(connection, selection.id, person)
        if selection is None or given is None or given.state == AssignmentState.VOTED:
            raise ConflictError(f"item {item!r} is not with {person!r}; there is nothing to skip", code="not_leased")
        assignment_table.assign(connection, selection, person, AssignmentState.SKIPPED, time.time())
        campaign_table.update_campaign(connection, row.id)
    ws.notify()


def media(ws: Workspace, campaign: str, item: str) -> Path:
    """The image of a training or validation item, a file inside the campaign's media folder."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        name = item_table.image_of(connection, row.id, item)
    folder = (ws.folder_of(row) / "media").resolve()
    path = None if name is None else (folder / name).resolve()
    if path is None or not path.is_relative_to(folder) or not path.is_file():
        raise NotFoundError(f"there is no image of item {item!r}", code="image")
    return path


def class_of(classes: Sequence[str], label: int | str | None) -> int | None:
    """A class position from a position or a name."""
    if label is None:
        return None
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(classes):
        return label
    if isinstance(label, str) and label in classes:
        return classes.index(label)
    shown = ", ".join(repr(name) for name in classes[:20])
    raise InvalidInputError(
        f"label is {label!r}; expected one of {shown}, a position from 0 to {len(classes) - 1}, or none for ambiguous",
        code="label",
    )


def reconsider(connection: "sa.Connection", campaign: CampaignRow, selection: SelectionRow, sample: ItemRow) -> None:
    """Votes changed after an item was decided by votes: decide again if they come to something else."""
    last = decision_table.last_decision(connection, sample.id)
    if last is None or last.kind != DecisionKind.VOTES or last.attempt != selection.attempt:
        return
    label, support = majority(vote_table.live_votes(connection, sample.id, selection.attempt))
    if label != last.label:
        decision_table.insert_decision(
            connection,
            campaign_id=campaign.id,
            item_id=sample.id,
            attempt=selection.attempt,
            round_id=selection.round_id,
            kind=DecisionKind.VOTES,
            by="votes",
            label=label,
            support=support,
        )
        campaign_table.update_campaign(connection, campaign.id)


def content_of(row: ItemRow | UnresolvedItem) -> ItemContent:
    """What people see of an item's row."""
    return ItemContent(row.text, row.image, row.fields or {})


def _place(
    connection: "sa.Connection", campaign: CampaignRow, sample: ItemRow, person: str
) -> tuple[RoundRow | None, SelectionRow | None]:
    """Where an item is being asked: the open round, else this person's work ahead that no batch took up yet, else the
    batch that asked it last; (round, selection).
    """
    turn = round_table.last_round(connection, campaign.id)
    if turn is not None and turn.state == RoundState.SELECTED:
        selection = selection_table.selection_of_item(connection, turn.id, sample.id)
        if selection is not None:
            return turn, selection
    past = selection_table.batch_selection_of_attempt(connection, sample.id, sample.attempt)
    ahead = assignment_table.ahead_of_person(connection, sample.id, sample.attempt, person)
    if ahead is not None and (past is None or ahead.attempt > past.attempt):
        return round_table.round_by_id(connection, ahead.round_id), ahead
    if past is None:
        return turn, None
    return round_table.round_by_id(connection, past.round_id), past


def _waits_ahead(turn: RoundRow, selection: SelectionRow) -> bool:
    """Whether this is work ahead of a round that is over: its votes wait until a batch takes the item up."""
    return selection.origin == Origin.AHEAD and turn.state != RoundState.SELECTED


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
    """A first vote needs a lease that lives, or a place that nobody has taken."""
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
    """Keep counts and leases after a vote; tell whether it completed the batch."""
    new = by < 0 or prior is None or prior.retracted
    waits = _waits_ahead(turn, selection)
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


def _waiting(campaign: CampaignRow, turn: RoundRow | None) -> Waiting | None:
    """Why nothing is handed out, whoever asks."""
    state = campaign.state
    if state in (CampaignState.FINISHED, CampaignState.FAILED):
        return Waiting(WaitReason(state), campaign.message, campaign.version, 60.0)
    if state in (CampaignState.PAUSED, CampaignState.STOPPED):
        reason = WaitReason(state)
        return Waiting(reason, _SENTENCES[reason], campaign.version, 60.0)
    if turn is None:
        return Waiting(WaitReason.PREPARING, _SENTENCES[WaitReason.PREPARING], campaign.version, 5.0)
    if turn.state != RoundState.SELECTED:
        return Waiting(WaitReason.UPDATING, _SENTENCES[WaitReason.UPDATING], campaign.version, 5.0)
    return None


def _idle(connection: "sa.Connection", campaign: CampaignRow, turn: RoundRow, now: float) -> Waiting:
    """This person is done with what is out."""
    if not selection_table.batch_incomplete(connection, turn.id, campaign.settings.people):
        return Waiting(WaitReason.UPDATING, _SENTENCES[WaitReason.UPDATING], campaign.version, 5.0)
    expiry = assignment_table.next_expiry(connection, turn.id, now)
    retry = 30.0 if expiry is None else min(30.0, max(1.0, expiry - now))
    return Waiting(WaitReason.OTHERS, _SENTENCES[WaitReason.OTHERS], campaign.version, retry)


def _tasks(
    connection: "sa.Connection",
    campaign: CampaignRow,
    turn: RoundRow,
    person: str,
    selections: Sequence[SelectionRow],
    *,
    voted: bool = True,
) -> list[Task]:
    """Selections as tasks; `voted` says that this person may have voted on them, which is not so of those they hold."""
    if not selections:
        return []
    classes = campaign_table.classes_of(connection, campaign.id)
    settings = campaign.settings
    items = item_table.items_by_id(connection, [s.item_id for s in selections])
    near = sorted({int(position) for s in selections for position, _ in s.nearest})
    validation = item_table.items_at(connection, campaign.id, SplitName.VALIDATION, near)
    tasks = []
    for s in selections:
        vote = vote_table.last_vote(connection, s.item_id, s.attempt, person) if voted else None
        own = None if vote is None or vote.retracted else OwnVote(vote.label, vote.note)
        near_ones = [] if s.blind else [(validation[int(p)], similarity) for p, similarity in s.nearest]
        neighbours = [
            Neighbour(one.key, content_of(one), classes[one.label], similarity)
            for one, similarity in near_ones
            if one.label is not None
        ]
        item = items[s.item_id]
        tasks.append(
            Task(
                item=item.key,
                content=content_of(item),
                classes=classes,
                suggestion=None if s.blind else s.suggested,
                blind=s.blind,
                influence=None if s.blind else s.influence,
                weak=None if s.blind else tuple(s.weak),
                rank=s.rank,
                round=turn.number,
                origin=s.origin,
                votes_needed=settings.people,
                neighbours=tuple(neighbours),
                leased_until=moment(s.until) if isinstance(s, LeasedSelection) else None,
                own_vote=own,
            )
        )
    return tasks


def _repeated(stored: VoteWithKey, item: str) -> VoteReceipt:
    if stored.key != item:
        raise ConflictError(
            f"this request_id was used for item {stored.key!r}, not {item!r}; expected a new one a vote",
            code="request_id",
        )
    return VoteReceipt(stored.public_id, stored.key, stored.label, True, stored.supersedes is not None, False)


def _check_n(n: int) -> None:
    if not 1 <= n <= 100:
        raise InvalidInputError(f"n is {n!r}; expected a whole number from 1 to 100", code="n")


def _check_extras(note: str | None, seconds: float | None, request_id: str | None) -> None:
    if note is not None and (len(note) > _LONGEST_NOTE or not storable(note)):
        raise InvalidInputError(
            f"the note has {len(note)} characters; expected at most {_LONGEST_NOTE}, and text only", code="note"
        )
    if seconds is not None and not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidInputError(f"seconds is {seconds!r}; expected a number of at least 0", code="seconds")
    if request_id is not None and not (0 < len(request_id) <= 80 and storable(request_id)):
        raise InvalidInputError("request_id is empty or too long; expected 1 to 80 characters", code="request_id")
