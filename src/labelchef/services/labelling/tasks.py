"""Hand items to people. An item goes to each person once, and no one sees the vote of another."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from labelchef.domain.campaigns import (
    AssignmentState,
    BatchStanding,
    CampaignState,
    ItemContent,
    Neighbour,
    Origin,
    OwnVote,
    RoundState,
    SplitName,
    Task,
    Waiting,
    WaitReason,
)
from labelchef.domain.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.services.labelling.highlights import highlighted
from labelchef.services.people.access import Part, looking, taking_part
from labelchef.services.shared import moment
from labelchef.services.workspace import Workspace, folder_of
from labelchef.store import campaign_table, guidance_table, round_table, vote_table
from labelchef.store.rows import CampaignRow, ItemRow, LeasedSelection, RoundRow, SelectionRow, UnresolvedItem

SENTENCES = {
    WaitReason.PREPARING: "the first model is being trained; items come when it is ready",
    WaitReason.OTHERS: "your part of this batch is done; the next one comes when the others are",
    WaitReason.UPDATING: "the batch is complete; the model learns from it and picks the next items",
    WaitReason.PAUSED: "the lead has paused the campaign",
    WaitReason.STOPPED: "the lead has stopped the campaign",
    WaitReason.ARCHIVED: "the campaign is in the archive",
}


def next_tasks(ws: Workspace, campaign: str, person: str, n: int = 2) -> list[Task] | Waiting:
    """Up to `n` items for this person: those they hold already, then new ones by rank, each leased to them."""
    check_n(n)
    with looking(ws, campaign, person) as (connection, row):
        found = hand_out(Part(connection, row, person), n, lease=False)
    if not found:
        with taking_part(ws, campaign, person, lasting=False) as part:
            found = hand_out(part, n)
    return found if isinstance(found, Waiting) else highlighted(ws, campaign, found)


def hand_out(part: Part, n: int, *, lease: bool = True) -> list[Task] | Waiting:
    """Lease up to `n` items to a person; without `lease`, no items if some would have to be leased."""
    connection, row, person, _ = part
    settings, at = row.settings, vote_table.Moment.of(row.settings.lease_minutes)
    turn = round_table.last_round(connection, row.id)
    if row.archived_at is not None:
        return _wait(row, WaitReason.ARCHIVED, 60.0)
    if row.state not in (CampaignState.PREPARING, CampaignState.RUNNING):
        return _wait(row, WaitReason(row.state), 60.0)
    if turn is None or turn.state != RoundState.SELECTED:
        return _wait(row, WaitReason.PREPARING if turn is None else WaitReason.UPDATING, 5.0)
    held = vote_table.leases_of(connection, turn.id, person, at)
    if len(held) < n:
        free = vote_table.free_selections(connection, turn.id, person, settings.people, at, n - len(held))
        if free and not lease:
            return []
        until = at.now + 60.0 * settings.lease_minutes
        for k, selection in enumerate(free):  # a millisecond apart: leases are shown in the order they were given
            vote_table.assign(connection, selection, person, AssignmentState.LEASED, until + 1e-3 * k)
        if free:
            held = vote_table.leases_of(connection, turn.id, person, at)
    if held:
        return tasks_of(part, turn, held[:n], voted=False)
    standing = _standing(part, turn)
    if not round_table.batch_incomplete(connection, turn.id, settings.people):
        return _wait(row, WaitReason.UPDATING, 5.0, standing)
    expiry = vote_table.next_expiry(connection, turn.id, at)
    return _wait(row, WaitReason.OTHERS, 30.0 if expiry is None else min(30.0, max(1.0, expiry - at.now)), standing)


def _wait(campaign: CampaignRow, reason: WaitReason, seconds: float, batch: BatchStanding | None = None) -> Waiting:
    return Waiting(reason, SENTENCES.get(reason, campaign.message), campaign.version, seconds, batch)


def _standing(part: Part, turn: RoundRow) -> BatchStanding:
    people = part.campaign.settings.people
    answered, mine = round_table.batch_standing(part.connection, turn.id, part.person, people)
    return BatchStanding(mine, answered, turn.size * people)


def task(ws: Workspace, campaign: str, person: str, item: str) -> Task:
    """An item that this person was given, or has voted on."""
    with looking(ws, campaign, person) as (connection, row):
        part = Part(connection, row, person)
        place = place_of(part, item)
        if place is None or (
            vote_table.assignment_of(connection, place.selection.id, person) is None
            and vote_table.last_vote(connection, place.sample.id, place.selection.attempt, person) is None
        ):
            raise NotFoundError(f"item {item!r} was not given to {person!r}; ask for the next one", code="item")
        found = tasks_of(part, place.turn, [place.selection])
    return highlighted(ws, campaign, found)[0]


def skip(ws: Workspace, campaign: str, person: str, item: str) -> None:
    """Give an item back: others may take it, and this person gets it again after all others."""
    with taking_part(ws, campaign, person) as (connection, row, *_):
        sample = campaign_table.item_by_key(connection, row.id, item)
        turn = round_table.last_round(connection, row.id)
        selection = None if turn is None else round_table.selection_of_item(connection, turn.id, sample.id)
        given = None if selection is None else vote_table.assignment_of(connection, selection.id, person)
        if selection is None or given is None or given.state == AssignmentState.VOTED:
            raise ConflictError(f"item {item!r} is not with {person!r}; there is nothing to skip", code="not_leased")
        vote_table.assign(connection, selection, person, AssignmentState.SKIPPED, time.time())
        campaign_table.update_campaign(connection, row.id)
    ws.signal.notify()


def media(ws: Workspace, campaign: str, item: str, number: int = 0) -> Path:
    """An image of a training or validation item, counted from 0: a file inside the campaign's media folder."""
    with looking(ws, campaign) as (connection, row):
        rows = campaign_table.shown_items(connection, row.id, item)
    images = next(filter(None, (content_of(one).images for one in rows)), ())
    name = images[number] if number < len(images) else None
    folder = (folder_of(ws, row) / "media").resolve()
    path = None if name is None else (folder / name).resolve()
    if path is None or not path.is_relative_to(folder) or not path.is_file():
        raise NotFoundError(f"there is no image of item {item!r}", code="image")
    return path


def content_of(row: ItemRow | UnresolvedItem) -> ItemContent:
    """What people see of an item's row."""
    fields = dict(row.fields or {})
    images = [row.image, *(fields.pop(name, None) for name in row.images or ())]
    return ItemContent(row.text, row.image, fields, tuple(str(one) for one in images if one))


class Place(NamedTuple):
    """Where an item is asked."""

    sample: ItemRow
    turn: RoundRow
    selection: SelectionRow

    @property
    def is_open(self) -> bool:
        """Whether people still vote on the batch."""
        return self.turn.state == RoundState.SELECTED

    @property
    def waits(self) -> bool:
        """Whether this is work ahead of a round that is over: its votes wait until a batch takes the item up."""
        return self.selection.origin == Origin.AHEAD and not self.is_open


def place_of(part: Part, item: str) -> Place | None:
    """Where an item is asked: in the open round, else as this person's work ahead that no batch took up yet, else in the
    batch that asked it last; None if it was never asked.
    """
    connection, campaign, person, _ = part
    sample = campaign_table.item_by_key(connection, campaign.id, item)
    turn = round_table.last_round(connection, campaign.id)
    if turn is not None and turn.state == RoundState.SELECTED:
        selection = round_table.selection_of_item(connection, turn.id, sample.id)
        if selection is not None:
            return Place(sample, turn, selection)
    past = round_table.batch_selection_of_attempt(connection, sample.id, sample.attempt)
    ahead = vote_table.ahead_of_person(connection, sample.id, sample.attempt, person)
    if ahead is not None and (past is None or ahead.attempt > past.attempt):
        past = ahead
    return None if past is None else Place(sample, round_table.round_by_id(connection, past.round_id), past)


def tasks_of(part: Part, turn: RoundRow, selections: Sequence[SelectionRow], *, voted: bool = True) -> list[Task]:
    """Selections as tasks; `voted`: this person may have voted on them, so look for their votes."""
    connection, campaign, person, _ = part
    classes = campaign_table.classes_of(connection, campaign.id)
    items = campaign_table.items_by_id(connection, [s.item_id for s in selections])
    near = sorted({int(position) for s in selections for position, _ in s.nearest})
    validation = campaign_table.items_at(connection, campaign.id, SplitName.VALIDATION, near)
    standing = _standing(part, turn)
    said = guidance_table.comment_counts(connection, [s.item_id for s in selections])
    tasks = []
    for s in selections:
        vote = vote_table.last_vote(connection, s.item_id, s.attempt, person) if voted else None
        near_ones = [] if s.blind else [(validation[int(p)], similarity) for p, similarity in s.nearest]
        neighbours = [
            Neighbour(one.key, content_of(one), classes[one.label], similarity)
            for one, similarity in near_ones
            if one.label is not None
        ]
        tasks.append(
            Task(
                item=items[s.item_id].key,
                content=content_of(items[s.item_id]),
                classes=classes,
                suggestion=None if s.blind else s.suggested,
                blind=s.blind,
                influence=None if s.blind else s.influence,
                weak=None if s.blind else tuple(s.weak),
                rank=s.rank,
                round=turn.number,
                origin=s.origin,
                votes_needed=campaign.settings.people,
                neighbours=tuple(neighbours),
                leased_until=moment(s.until) if isinstance(s, LeasedSelection) else None,
                own_vote=None if vote is None or vote.retracted else OwnVote(vote.label, vote.note),
                batch=standing,
                comments=said.get(s.item_id, 0),
            )
        )
    return tasks


def check_n(n: int) -> None:
    """Refuse a count of items that is too small or too large."""
    if not 1 <= n <= 100:
        raise InvalidInputError(f"n is {n!r}; expected a whole number from 1 to 100", code="n")
