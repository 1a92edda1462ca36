"""Hand items to people. An item goes to each person once, and no one sees the vote of another."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labelchef.domain.campaigns import (
    AssignmentState,
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
from labelchef.services.folders import folder_of
from labelchef.services.people.access import locked_for, visible_campaign
from labelchef.services.times import moment
from labelchef.services.workspace import Workspace
from labelchef.store import (
    assignment_table,
    campaign_table,
    item_table,
    round_table,
    selection_table,
    vote_table,
)
from labelchef.store.rows import (
    CampaignRow,
    ItemRow,
    LeasedSelection,
    RoundRow,
    SelectionRow,
    UnresolvedItem,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

_SENTENCES = {
    WaitReason.PREPARING: "the first model is being trained; items come when it is ready",
    WaitReason.OTHERS: "your part of this batch is done; the next one comes when the others are",
    WaitReason.UPDATING: "the batch is complete; the model learns from it and picks the next items",
    WaitReason.PAUSED: "the lead has paused the campaign",
    WaitReason.STOPPED: "the lead has stopped the campaign",
}


def next_tasks(ws: Workspace, campaign: str, person: str, n: int = 2) -> list[Task] | Waiting:
    """Up to `n` items for this person: those they hold already, then new ones by rank, each leased to them."""
    check_n(n)
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
            return tasks_of(connection, row, turn, person, held[:n], voted=False) or _idle(connection, row, turn, now)
    return _lease(ws, campaign, person, n)


def _lease(ws: Workspace, campaign: str, person: str, n: int) -> list[Task] | Waiting:
    with ws.writing(lasting=False) as connection:
        row = locked_for(ws, connection, campaign, person)[0]
        return hand_out(connection, row, person, n)


def hand_out(connection: "sa.Connection", row: CampaignRow, person: str, n: int) -> list[Task] | Waiting:
    """Lease up to `n` items to a person, as part of the transaction of `connection`."""
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
    return tasks_of(connection, row, turn, person, held[:n], voted=False) or _idle(connection, row, turn, now)


def task(ws: Workspace, campaign: str, person: str, item: str) -> Task:
    """An item that this person was given, or has voted on."""
    with ws.reading() as connection:
        row, _ = visible_campaign(connection, campaign, person)
        sample = item_table.item_by_key(connection, row.id, item)
        turn, selection = place_of(connection, row, sample, person)
        known = selection is not None and (
            assignment_table.assignment_of(connection, selection.id, person) is not None
            or vote_table.last_vote(connection, sample.id, selection.attempt, person) is not None
        )
        if selection is None or turn is None or not known:
            raise NotFoundError(f"item {item!r} was not given to {person!r}; ask for the next one", code="item")
        return tasks_of(connection, row, turn, person, [selection])[0]


def skip(ws: Workspace, campaign: str, person: str, item: str) -> None:
    """Give an item back: others may take it, and this person gets it again after all others."""
    with ws.writing() as connection:
        row, _ = locked_for(ws, connection, campaign, person)
        sample = item_table.item_by_key(connection, row.id, item)
        turn = round_table.last_round(connection, row.id)
        selection = None if turn is None else selection_table.selection_of_item(connection, turn.id, sample.id)
        given = None if selection is None else assignment_table.assignment_of(connection, selection.id, person)
        if selection is None or given is None or given.state == AssignmentState.VOTED:
            raise ConflictError(f"item {item!r} is not with {person!r}; there is nothing to skip", code="not_leased")
        assignment_table.assign(connection, selection, person, AssignmentState.SKIPPED, time.time())
        campaign_table.update_campaign(connection, row.id)
    ws.signal.notify()


def media(ws: Workspace, campaign: str, item: str) -> Path:
    """The image of a training or validation item, a file inside the campaign's media folder."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        name = item_table.image_of(connection, row.id, item)
    folder = (folder_of(ws, row) / "media").resolve()
    path = None if name is None else (folder / name).resolve()
    if path is None or not path.is_relative_to(folder) or not path.is_file():
        raise NotFoundError(f"there is no image of item {item!r}", code="image")
    return path


def content_of(row: ItemRow | UnresolvedItem) -> ItemContent:
    """What people see of an item's row."""
    return ItemContent(row.text, row.image, row.fields or {})


def place_of(
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


def waits_ahead(turn: RoundRow, selection: SelectionRow) -> bool:
    """Whether this is work ahead of a round that is over: its votes wait until a batch takes the item up."""
    return selection.origin == Origin.AHEAD and turn.state != RoundState.SELECTED


def _waiting(campaign: CampaignRow, turn: RoundRow | None) -> Waiting | None:
    """Why nothing is handed out to anyone; None if something is."""
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
    """Why there is nothing for a person who is done with the open batch."""
    if not selection_table.batch_incomplete(connection, turn.id, campaign.settings.people):
        return Waiting(WaitReason.UPDATING, _SENTENCES[WaitReason.UPDATING], campaign.version, 5.0)
    expiry = assignment_table.next_expiry(connection, turn.id, now)
    retry = 30.0 if expiry is None else min(30.0, max(1.0, expiry - now))
    return Waiting(WaitReason.OTHERS, _SENTENCES[WaitReason.OTHERS], campaign.version, retry)


def tasks_of(
    connection: "sa.Connection",
    campaign: CampaignRow,
    turn: RoundRow,
    person: str,
    selections: Sequence[SelectionRow],
    *,
    voted: bool = True,
) -> list[Task]:
    """Selections as tasks; `voted`: this person may have voted on them, so look for their votes."""
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


def check_n(n: int) -> None:
    """Refuse a count of items that is too small or too large."""
    if not 1 <= n <= 100:
        raise InvalidInputError(f"n is {n!r}; expected a whole number from 1 to 100", code="n")
