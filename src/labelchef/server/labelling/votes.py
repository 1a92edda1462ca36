"""Take the votes of people, and take them back."""

import math
import time
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from labelchef.base.campaigns import SUGGESTION, AssignmentState, Origin, RoundState, Task, VoteReceipt, Waiting
from labelchef.base.errors import ConflictError, InvalidInputError
from labelchef.base.events import count
from labelchef.server.campaigns.access import Part, taking_part
from labelchef.server.items.decisions import class_of, reconsider
from labelchef.server.labelling.gold import gold_behind, gold_task
from labelchef.server.labelling.highlights import highlighted
from labelchef.server.labelling.kept import classes_of
from labelchef.server.labelling.tasks import Handed, Place, check_n, place_of, reserve, shown, tasks_of
from labelchef.server.ledger.sql import needed_by, tied
from labelchef.server.shared import common
from labelchef.server.store import campaign_table, decision_table, gold_table, round_table, vote_table
from labelchef.server.store.rows import (
    AssignmentRow,
    GoldRow,
    ItemRow,
    NewGoldAnswer,
    NewVote,
    ShownGoldAnswer,
    TurnRow,
    VoteWithKey,
    storable,
)
from labelchef.server.workspace import Workspace

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
    known = _Known(item, extras.get("request_id"))
    with taking_part(ws, campaign, person, before=known.look) as part:
        receipt, turn = _cast(part, known, label, extras)
        receipt = _completed(part, receipt, turn)
    _told(ws, receipt)
    return receipt


@dataclass
class _Known:
    """What is read of a vote before others wait for it."""

    item: str
    request_id: str | None
    classes: tuple[str, ...] = ()
    sample: ItemRow | None = None
    """None if there is no such item."""
    behind: GoldRow | None = None

    def look(self, part: Part) -> None:
        """Read it."""
        self.classes = classes_of(part)
        self.sample = campaign_table.items_by_key(part.connection, part.campaign.id, [self.item]).get(self.item)
        self.behind = None if self.sample is None else gold_behind(part, self.sample)

    def stored(self, part: Part) -> VoteWithKey | ShownGoldAnswer | None:
        """The vote that this request has stored already."""
        connection, row, person, *_ = part
        if not self.request_id:
            return None
        vote = vote_table.vote_by_request(connection, row.id, person, self.request_id)
        return vote or gold_table.answer_by_request(connection, row.id, person, self.request_id)


def vote_and_next(
    ws: Workspace, campaign: str, person: str, item: str, label: int | str | None, n: int, **extras: Unpack[Extras]
) -> tuple[VoteReceipt, list[Task] | Waiting]:
    """`cast_vote` and `next_tasks` in one transaction."""
    _check(extras)
    check_n(n)
    known = _Known(item, extras.get("request_id"))
    with taking_part(ws, campaign, person, before=known.look) as part:
        receipt, turn = _cast(part, known, label, extras)
        after = reserve(part, n, turn=turn)
        receipt = _completed(part, receipt, turn, after)
    _told(ws, receipt)
    assert after is not None, "it may lease"
    return receipt, after if isinstance(after, Waiting) else shown(ws, part, after)


def _told(ws: Workspace, receipt: VoteReceipt) -> None:
    """A vote is stored: count it, and wake the worker if the batch is complete."""
    if not receipt.repeated:
        count("votes_stored")
    if receipt.batch_complete:
        ws.signal.notify()


def undo_vote(ws: Workspace, campaign: str, person: str, *, request_id: str | None = None) -> Task:
    """Take back this person's latest vote that counts, and hand the item out to them again."""
    _check({"request_id": request_id})
    return highlighted(ws, campaign, [_undone(ws, campaign, person, request_id)])[0]


def _undone(ws: Workspace, campaign: str, person: str, request_id: str | None) -> Task:
    with taking_part(ws, campaign, person) as part:
        connection, row, _, (account_id, *_), _ = part
        undone = vote_table.vote_by_request(connection, row.id, person, request_id) if request_id else None
        vote = undone or vote_table.newest_live_vote(connection, row.id, person)
        on_gold = None if undone is not None else _undo_gold(part, vote, request_id)
        if on_gold is not None:
            return on_gold
        if vote is None:
            raise ConflictError("there is no vote of yours to take back", code="nothing_to_undo")
        place = place_of(part, vote.key)
        if undone is not None:
            if not undone.retracted:
                why = f"this request_id was used for a vote on item {vote.key!r}; nothing was taken back. Use a new one"
                raise ConflictError(why, code="request_id")
            if place is None:
                raise ConflictError(f"item {vote.key!r} is not being asked any more", code="not_asked")
            return tasks_of(part, place.turn, [place.selection])[0]
        if place is None or place.selection.attempt != vote.attempt:
            why = f"your last vote, on item {vote.key!r}, belongs to an earlier time it was asked; it stays"
            raise ConflictError(why, code="nothing_to_undo")
        taken_back = {"label": None, "note": None, "seconds": None, "source": "undo", "retracted": True}
        again = {"account_id": account_id, "request_id": request_id}
        new = NewVote(**(common(NewVote, vote) | taken_back | again))
        vote_table.insert_vote(connection, vote, new)
        if place.counts:
            round_table.count_vote(connection, place.selection.id, -1)
        _follow(part, place)
        if place.counts:
            until = time.time() + 60.0 * row.settings.lease_minutes
            vote_table.assign(connection, place.selection, person, AssignmentState.LEASED, until)
        return tasks_of(part, place.turn, [place.selection])[0]


def _undo_gold(part: Part, vote: VoteWithKey | None, request_id: str | None) -> Task | None:
    """Take back an answer on gold, if that is the latest of this person, or if this request did so earlier."""
    connection, row, person, (account_id, *_), _ = part
    done = gold_table.answer_by_request(connection, row.id, person, request_id) if request_id else None
    answer = done or gold_table.newest_live_answer(connection, row.id, person)
    if answer is None or (done is None and vote is not None and vote.created_at > answer.created_at):
        return None
    place = gold_table.gold_by_id(connection, answer.gold_id)
    if done is not None:
        if not done.retracted:
            why = f"this request_id was used for a vote on item {done.key!r}; nothing was taken back. Use a new one"
            raise ConflictError(why, code="request_id")
        return gold_task(part, place)
    taken = NewGoldAnswer(row.id, place.id, person, account_id, None, retracted=True, request_id=request_id)
    gold_table.insert_answer(connection, answer, taken)
    if round_table.turn_by_id(connection, place.round_id).state == RoundState.SELECTED:
        until = time.time() + 60.0 * row.settings.lease_minutes
        gold_table.set_state(connection, place.id, AssignmentState.LEASED, until)
    else:
        campaign_table.update_campaign(connection, row.id)  # as after a vote on an item that is decided
    return gold_task(part, gold_table.gold_by_id(connection, place.id))


def _answer_gold(part: Part, place: GoldRow, item: str, label: int | None, extras: Extras) -> VoteReceipt:
    """Store an answer on gold; to its person it is a vote."""
    connection, row, person, (account_id, *_), _ = part
    prior = gold_table.last_answer(connection, place.id)
    first = prior is None or prior.retracted
    new = NewGoldAnswer(
        campaign_id=row.id,
        gold_id=place.id,
        person=person,
        account_id=account_id,
        label=label,
        note=extras.get("note") or None,
        seconds=extras.get("seconds"),
        request_id=extras.get("request_id"),
    )
    public_id = gold_table.insert_answer(connection, prior, new)
    gold_table.set_state(connection, place.id, AssignmentState.VOTED, time.time())
    if round_table.turn_by_id(connection, place.round_id).state != RoundState.SELECTED:
        campaign_table.update_campaign(connection, row.id)
    return VoteReceipt(public_id, item, label, repeated=False, changed=not first, batch_complete=False)


def _cast(part: Part, known: _Known, label: int | str | None, extras: Extras) -> tuple[VoteReceipt, TurnRow | None]:
    """Store a vote; the open round, if the item is in its batch."""
    connection, row, person, (account_id, *_), _ = part
    item, class_id, sample = known.item, class_of(known.classes, label), known.sample
    here = None if sample is None else vote_table.open_place(connection, row.id, sample.id, person, known.request_id)
    stored = known.stored(part) if here is None or here.request_known else None
    if stored is not None:
        if stored.retracted or (stored.key, stored.label, stored.note) != (item, class_id, extras.get("note") or None):
            used = "taking a vote back" if stored.retracted else "another item"
            if stored.key == item and not stored.retracted:
                used = "another label" if stored.label != class_id else "another note"
            why = (
                f"this request_id was used for {used}, on item {stored.key!r}; nothing was stored. Use a new one a vote"
            )
            raise ConflictError(why, code="request_id")
        return VoteReceipt(stored.public_id, item, stored.label, True, stored.supersedes is not None, False), None
    if known.behind is not None:
        return _answer_gold(part, known.behind, item, class_id, extras), None
    if (
        sample is not None
        and here is not None
        and here.selection is not None
        and here.turn.state == RoundState.SELECTED
    ):
        place, prior, own = Place(sample, here.turn, here.selection), here.last, here.own
    else:
        found = place_of(part, item)
        if found is None:
            raise ConflictError(f"item {item!r} is not being asked; ask for the next one", code="not_asked")
        place = found
        prior = vote_table.last_vote(connection, place.sample.id, place.selection.attempt, person)
        own = vote_table.assignment_of(connection, place.selection.id, person)
    selection = place.selection
    first = prior is None or prior.retracted
    if prior is None or (first and place.counts):
        _check_free(part, place, own)
    new = NewVote(
        campaign_id=row.id,
        item_id=place.sample.id,
        attempt=selection.attempt,
        round_id=None if selection.origin == Origin.AHEAD else place.turn.id,
        person=person,
        account_id=account_id,
        label=class_id,
        note=extras.get("note") or None,
        blind=selection.blind or extras.get("hidden", False),
        suggested=selection.suggested,
        seconds=extras.get("seconds"),
        source="person",
        request_id=known.request_id,
    )
    if place.counts:
        public_id = vote_table.store_vote(connection, prior, new, selection, more=+1 if first else 0)
    else:
        public_id = vote_table.insert_vote(connection, prior, new)
    _follow(part, place)
    receipt = VoteReceipt(public_id, item, class_id, repeated=False, changed=not first, batch_complete=False)
    return receipt, place.turn if place.is_open else None


def _completed(
    part: Part, receipt: VoteReceipt, turn: TurnRow | None, after: Handed | Waiting | None = None
) -> VoteReceipt:
    """The receipt of a vote in the batch of `turn`, with whether the batch is complete; `after`: what the person got next."""
    people = part.campaign.settings.people
    for one in (
        after.held if isinstance(after, Handed) else ()
    ):  # mostly one of these still waits, and nothing need be read
        if isinstance(one, GoldRow) or one.origin == Origin.AHEAD or one.decided:
            continue
        if one.votes < (people if one.needed is None else one.needed):
            return receipt
    if turn is None:
        return receipt
    return replace(receipt, batch_complete=not round_table.batch_incomplete(part.connection, turn.id, people))


def _check_free(part: Part, place: Place, own: AssignmentRow | None) -> None:
    """A first vote needs an item without a decision, and a lease that has not run out or a place no one else has taken."""
    connection, campaign, person, *_ = part
    at, selection, item = vote_table.Moment.of(campaign.settings.lease_minutes), place.selection, place.sample.key
    leased = own is not None and own.state == AssignmentState.LEASED and at.holds(own.until) and not place.waits
    decided, votes = not place.is_open or selection.decided, selection.votes
    if place.waits:
        last = decision_table.last_decision(connection, selection.item_id)
        decided = last is not None and last.attempt >= selection.attempt
        votes = len(vote_table.live_votes(connection, selection.item_id, selection.attempt))
    if decided:
        raise ConflictError(f"item {item!r} is decided already; ask for the next one", code="decided")
    if leased:
        return
    taken = votes + vote_table.slots_taken(connection, selection.id, person, at)
    wanted = campaign.settings.people if selection.needed is None else selection.needed
    if taken >= wanted:
        why = f"item {item!r} has been given to others, as many as are asked; ask for the next one"
        raise ConflictError(why, code="taken")


def _follow(part: Part, place: Place) -> None:
    """After a vote was stored or taken back: decide what is decided again, and how many votes the item needs."""
    connection, campaign, *_ = part
    if place.counts and (campaign.settings.stop_at_majority or place.selection.needed is not None):
        _need(part, place)
    if not place.counts or place.selection.origin == Origin.AHEAD:  # imported votes may have decided it meanwhile
        reconsider(connection, campaign, place.selection, place.sample)


def _need(part: Part, place: Place) -> None:
    """Say how many votes the item needs, now that one was cast or taken back."""
    chosen = place.selection
    votes = vote_table.live_votes(part.connection, chosen.item_id, chosen.attempt)
    people = [vote for vote in votes if vote.person != SUGGESTION]
    further = chosen.needed is not None and chosen.needed > part.campaign.settings.people and tied(votes)
    if further and len(people) < (chosen.needed or 0):
        return  # a tie for which one more vote was asked, and still is one
    needed = needed_by(people, part.campaign.settings, chosen.suggested)
    round_table.need_votes(part.connection, chosen.id, needed)


def _check(extras: Extras) -> None:
    note, seconds, request_id = extras.get("note"), extras.get("seconds"), extras.get("request_id")
    if note is not None and (len(note) > _LONGEST_NOTE or not storable(note)):
        why = f"the note has {len(note)} characters; expected at most {_LONGEST_NOTE}, and text only"
        raise InvalidInputError(why, code="note")
    if seconds is not None and not (seconds >= 0 and math.isfinite(seconds)):
        raise InvalidInputError(f"seconds is {seconds!r}; expected a number of at least 0", code="seconds")
    if request_id is not None and not (0 < len(request_id) <= 80 and storable(request_id)):
        raise InvalidInputError("request_id is empty or too long; expected 1 to 80 characters", code="request_id")
