"""Hand items to people. An item goes to each person once, and no one sees the vote of another."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from labelchef.base.campaigns import (
    AssignmentState,
    BatchStanding,
    CampaignState,
    Neighbour,
    Origin,
    OwnVote,
    RoundState,
    Task,
    Waiting,
    WaitReason,
)
from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.base.events import count
from labelchef.server.campaigns import duties
from labelchef.server.campaigns.access import Part, changing, looking, taking_part, visiting
from labelchef.server.campaigns.contents import content_of
from labelchef.server.gold_draws import in_pool
from labelchef.server.labelling import gold
from labelchef.server.labelling.highlights import highlighted
from labelchef.server.labelling.kept import classes_of, given_from, glance, keep_places, trusted_at
from labelchef.server.shared import common, moment
from labelchef.server.store import campaign_table, gold_table, guidance_table, round_table, vote_table
from labelchef.server.store.rows import GoldRow, ItemRow, LeasedSelection, SelectionRow, TurnRow
from labelchef.server.workspace import Workspace, folder_of

SENTENCES = {
    WaitReason.PREPARING: "the first model is being trained; items come when it is ready",
    WaitReason.OTHERS: "your part of this batch is done; the next one comes when the others are",
    WaitReason.UPDATING: "the batch is complete; the model learns from it and picks the next items",
    WaitReason.PAUSED: "the lead has paused the campaign",
    WaitReason.STOPPED: "the lead has stopped the campaign",
    WaitReason.ARCHIVED: "the campaign is in the archive",
}

_SEARCHED = 256
"""Ranks of a large batch that are searched for one request."""
NONE_FREE = (
    "the items of this batch are answered or reserved for others; you get those that become free, or the next batch"
)
"""In the place of `WaitReason.OTHERS` for somebody who has no vote in the batch."""


def next_tasks(ws: Workspace, campaign: str, person: str, n: int = 2) -> list[Task] | Waiting:
    """Up to `n` items for this person: those they hold already, then new ones by rank, each leased to them."""
    check_n(n)
    with visiting(ws, campaign, person) as part:
        found = reserve(part, n, lease=False)
        if isinstance(found, Waiting):
            return found
        if found is not None:
            return _counted(highlighted(ws, campaign, _tasks(part, found), part))
    with taking_part(ws, campaign, person, lasting=False) as part:
        found = reserve(part, n)
    assert found is not None, "it may lease"
    return found if isinstance(found, Waiting) else shown(ws, part, found)


def shown(ws: Workspace, part: Part, handed: "Handed") -> list[Task]:
    """What a person was given, as tasks: read after the transaction that gave it, for which others wait."""
    with ws.reading() as connection:
        now = part._replace(connection=connection)
        return _counted(highlighted(ws, part.campaign.public_id, _tasks(now, handed), now))


def _counted(tasks: list[Task]) -> list[Task]:
    count("tasks_handed_out", len(tasks))
    return tasks


def reserve(part: Part, n: int, *, lease: bool = True, turn: TurnRow | None = None) -> "Handed | Waiting | None":
    """Lease up to `n` items to a person; without `lease`, None if some would have to be leased. `turn`: the last round."""
    connection, row, *_ = part
    settings, at = row.settings, vote_table.Moment.of(row.settings.lease_minutes)
    turn = turn or round_table.last_turn(connection, row.id)
    if row.archived_at is not None:
        return _wait(part, WaitReason.ARCHIVED, 60.0)
    if row.state not in (CampaignState.PREPARING, CampaignState.RUNNING):
        return _wait(part, WaitReason(row.state), 60.0)
    if turn is None or turn.state != RoundState.SELECTED:
        golds = [] if turn is None else gold.golds_of(part, turn)
        rest = gold.held(golds, at)[:n]
        if turn is not None and rest:
            return Handed(turn, golds, rest)
        return _wait(part, WaitReason.PREPARING if turn is None else WaitReason.UPDATING, 5.0)
    golds = gold.golds_of(part, turn)
    held = _held(part, turn, golds, at)
    if len(held) < n:
        free = _free(part, turn, golds, at, n - len(held))
        back = gold.returning(golds, at)[: n - len(held) - len(free)]
        if (free or back) and not lease:
            return None
        if free or back:
            given = _lease(part, turn, golds, [*free, *back], at.now + 60.0 * settings.lease_minutes)
            if golds or settings.gold_share:
                golds = gold.golds_of(part, turn)
                held = _held(part, turn, golds, at)
            else:
                held = sorted([*held, *given], key=lambda one: one.until)
    if held:
        return Handed(turn, golds, held[:n])
    standing = gold.standing(part, turn, golds)
    if not round_table.batch_incomplete(connection, turn.id, settings.people):
        return _wait(part, WaitReason.UPDATING, 5.0, standing)
    expiry = vote_table.next_expiry(connection, turn.id, at)
    return _wait(part, WaitReason.OTHERS, 30.0 if expiry is None else min(30.0, max(1.0, expiry - at.now)), standing)


Held = LeasedSelection | GoldRow
"""What a person holds."""


class Handed(NamedTuple):
    """What a person was given."""

    turn: TurnRow
    golds: Sequence[GoldRow]
    """All gold that the person got in the round."""
    held: Sequence[Held]


def _held(part: Part, turn: TurnRow, golds: Sequence[GoldRow], at: vote_table.Moment) -> list[Held]:
    """What a person holds now, first given first."""
    leases = vote_table.leases_of(part.connection, turn.id, part.person, at)
    mine = gold.held(golds, at)
    return sorted([*leases, *mine], key=lambda one: one.until) if mine else list(leases)


def _lease(
    part: Part, turn: TurnRow, golds: Sequence[GoldRow], given: Sequence[SelectionRow | GoldRow], until: float
) -> list[LeasedSelection]:
    """Lease items to a person, with gold in front of those where it is due, a millisecond apart: they are shown in the order in
    which they were given. The items that are leased now."""
    step, leased = 0, []
    for one in given:
        if isinstance(one, GoldRow):
            gold_table.set_state(part.connection, one.id, AssignmentState.LEASED, until + 1e-3 * step)
        else:
            if part.campaign.settings.gold_share and gold.put_before(part, turn, golds, one, until + 1e-3 * step):
                step += 1
            vote_table.assign(part.connection, one, part.person, AssignmentState.LEASED, until + 1e-3 * step)
            leased.append(LeasedSelection(**common(SelectionRow, one), until=until + 1e-3 * step))
        step += 1
    return leased


def _free(part: Part, turn: TurnRow, golds: Sequence[GoldRow], at: vote_table.Moment, limit: int) -> list[SelectionRow]:
    """Selections that this person should be asked next."""
    connection, row, person, standing, _ = part
    people, duty, seen = row.settings.people, standing.duty, glance(part, turn)
    if seen is not None and seen.lowest is None:
        return []
    if duty is None:
        within = (
            range(turn.size) if seen is None or seen.lowest is None else range(seen.lowest, seen.lowest + _SEARCHED)
        )
        found = vote_table.free_selections(connection, turn.id, person, people, at, limit, within)
        if seen is not None and found and found[0].rank >= within.start:
            given_from(part, turn, found[0].rank)
    else:
        found = duties.free_selections(part, turn, duty, at, limit)
    covers = {one.cover for one in golds if one.state == AssignmentState.LEASED}
    return [one for one in found if one.item_id not in covers] if covers else found


def _tasks(part: Part, handed: Handed) -> list[Task]:
    turn, golds, held = handed
    chosen = [one for one in held if not isinstance(one, GoldRow)]
    made = iter(tasks_of(part, turn, chosen, golds=golds, voted=False))
    return [gold.gold_task(part, one, leased=True) if isinstance(one, GoldRow) else next(made) for one in held]


def _wait(part: Part, reason: WaitReason, seconds: float, batch: BatchStanding | None = None) -> Waiting:
    connection, row, person, *_ = part
    idle = reason is WaitReason.OTHERS and batch is not None and batch.mine == 0
    message = NONE_FREE if idle else SENTENCES.get(reason, row.message)
    undo = reason is not WaitReason.ARCHIVED and (
        vote_table.newest_live_vote(connection, row.id, person) is not None
        or gold_table.newest_live_answer(connection, row.id, person) is not None
    )
    return Waiting(reason, message, row.version, seconds, batch, undo)


def task(ws: Workspace, campaign: str, person: str, item: str) -> Task:
    """An item that this person was given, or has voted on."""
    with visiting(ws, campaign, person) as part:
        connection, row, *_ = part
        behind = gold.gold_behind(part, campaign_table.item_by_key(connection, row.id, item))
        if behind is not None:
            return gold.gold_task(part, behind)
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
    _skip(ws, campaign, person, item)
    ws.signal.notify()


def _skip(ws: Workspace, campaign: str, person: str, item: str) -> None:
    with taking_part(ws, campaign, person) as part:
        connection, row, *_ = part
        sample = campaign_table.item_by_key(connection, row.id, item)
        behind = gold.gold_behind(part, sample)
        if behind is not None and behind.state != AssignmentState.VOTED:
            gold_table.set_state(connection, behind.id, AssignmentState.SKIPPED, time.time())
            campaign_table.update_campaign(connection, row.id)
            return
        turn = round_table.last_turn(connection, row.id)
        selection = None if turn is None else round_table.selection_of_item(connection, turn.id, sample.id)
        given = None if selection is None else vote_table.assignment_of(connection, selection.id, person)
        if selection is None or given is None or given.state == AssignmentState.VOTED:
            raise ConflictError(f"item {item!r} is not with {person!r}; there is nothing to skip", code="not_leased")
        vote_table.assign(connection, selection, person, AssignmentState.SKIPPED, time.time())
        campaign_table.update_campaign(connection, row.id)


def free(ws: Workspace, campaign: str, person: str, by: str) -> None:
    """Give what a person holds to others, as a lead; the person may still vote on an item that nobody else has taken."""
    with changing(ws, campaign) as (connection, row):
        turn = round_table.last_turn(connection, row.id)
        at = vote_table.Moment.of(row.settings.lease_minutes)
        held = [] if turn is None else vote_table.holders(connection, turn.id, at)
        items = next((n for name, n, _ in held if name == person), 0)
        if items:
            vote_table.free_leases(connection, person, row.id)
            campaign_table.note_change(connection, row.id, by, {"freed": person, "items": items})
            campaign_table.update_campaign(connection, row.id)
    ws.signal.notify()


def media(ws: Workspace, campaign: str, item: str, number: int = 0, person: str | None = None, mark: str = "") -> Path:
    """An image of a training or validation item, counted from 0: a file inside the campaign's media folder.

    `mark` is what its address has behind it: where it is that of gold which this person got under the key of the item, that one.
    """
    with looking(ws, campaign) as (connection, row):
        rows = campaign_table.shown_items(connection, row.id, item)
        images = next(filter(None, (content_of(one).images for one in rows)), ())
        if mark and person is not None and gold.image_mark("".join(images[:1])) != mark:
            images = gold.images_behind(connection, row, person, item, mark) or images
    name = images[number] if number < len(images) else None
    folder = (folder_of(ws, row) / "media").resolve()
    path = None if name is None else (folder / name).resolve()
    if path is None or not path.is_relative_to(folder) or not path.is_file():
        raise NotFoundError(f"there is no image of item {item!r}", code="image")
    return path


class Place(NamedTuple):
    """Where an item is asked."""

    sample: ItemRow
    turn: TurnRow
    selection: SelectionRow

    @property
    def is_open(self) -> bool:
        """Whether people still vote on the batch."""
        return self.turn.state == RoundState.SELECTED

    @property
    def waits(self) -> bool:
        """Whether this is work ahead of a round that is over: its votes wait until a batch takes the item up."""
        return self.selection.origin == Origin.AHEAD and not self.is_open

    @property
    def counts(self) -> bool:
        """Whether votes on it are counted for a batch, this one or one to come."""
        return self.is_open or self.waits


def place_of(part: Part, item: str) -> Place | None:
    """Where an item is asked: in the open round, else as this person's work ahead that no batch took up yet, else in the
    batch that asked it last; None if it was never asked.
    """
    connection, campaign, person, *_ = part
    sample = campaign_table.item_by_key(connection, campaign.id, item)
    turn = round_table.last_turn(connection, campaign.id)
    if turn is not None and turn.state == RoundState.SELECTED:
        selection = round_table.selection_of_item(connection, turn.id, sample.id)
        if selection is not None:
            return Place(sample, turn, selection)
    past = round_table.batch_selection_of_attempt(connection, sample.id, sample.attempt)
    ahead = vote_table.ahead_of_person(connection, sample.id, sample.attempt, person)
    if ahead is not None and (past is None or ahead.attempt > past.attempt):
        past = ahead
    return None if past is None else Place(sample, round_table.turn_by_id(connection, past.round_id), past)


def tasks_of(
    part: Part,
    turn: TurnRow,
    selections: Sequence[SelectionRow],
    *,
    golds: Sequence[GoldRow] | None = None,
    voted: bool = True,
) -> list[Task]:
    """Selections as tasks; `golds`: what this person got in the round, if it is known; `voted`: this person may have voted on
    them, so look for their votes."""
    connection, campaign, person, *_ = part
    if golds is None:
        golds = gold.golds_of(part, turn)
    pooled = partial(in_pool, campaign.settings.seed, campaign.public_id)
    classes = classes_of(part)
    items, said = guidance_table.items_with_comments(connection, [s.item_id for s in selections])
    keep_places(part, items.values())
    near = sorted({int(position) for s in selections for position, _ in s.nearest})
    validation = trusted_at(part, near)
    standing = gold.standing(part, turn, golds)
    tasks = []
    for s in selections:
        vote = vote_table.last_vote(connection, s.item_id, s.attempt, person) if voted else None
        near_ones = [] if s.blind else [(validation[int(p)], similarity) for p, similarity in s.nearest]
        neighbours = [
            Neighbour(one.key, content_of(one), classes[one.label], similarity)
            for one, similarity in near_ones
            if one.label is not None and not (campaign.settings.gold_share and pooled(one.position))
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
                rank=s.rank + gold.shift(golds, s.rank),
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
