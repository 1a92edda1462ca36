"""Hidden gold: trusted samples among the items of a person. What is sent of one is what is sent of an item shown blind.

A gold item is put in front of an item that a person gets for the first time, by a draw (`server.gold_draws`), and leased like
it. It is shown under the key of a training item that this person never had and that is not being asked (its *cover*): keys of
trusted samples often look different. The ranks that a person is shown count gold in. Its content must have the parts that the
item behind it has: a text, an image, the same fields. Answers go to a table of their own: they are no votes, cost no budget,
and no batch waits for them.
"""

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection

from labelchef.base.campaigns import AssignmentState, BatchStanding, Origin, OwnVote, SplitName, Task
from labelchef.server.campaigns.access import Part
from labelchef.server.campaigns.contents import content_of
from labelchef.server.gold_draws import drawn, in_pool, is_due
from labelchef.server.labelling.kept import classes_of, glance
from labelchef.server.memory import Latest, Memory
from labelchef.server.shared import moment
from labelchef.server.store import campaign_table, gold_table, guidance_table, round_table, vote_table
from labelchef.server.store.rows import CampaignRow, GoldRow, ItemRow, SelectionRow, TurnRow

_COVERS = 64  # training items that are looked at for a cover


def put_before(
    part: Part, turn: TurnRow, golds: Sequence[GoldRow], selection: SelectionRow, until: float
) -> GoldRow | None:
    """Lease a gold item to a person in front of a selection they get for the first time, if one is due and one is left."""
    connection, campaign, person, *_ = part
    settings = campaign.settings
    if not is_due(
        settings.seed, campaign.public_id, person, selection.item_id, selection.attempt, settings.gold_share
    ) or any(one.rank == selection.rank for one in golds):
        return None
    if vote_table.assignment_of(connection, selection.id, person) is not None:
        return None
    given = gold_table.given_to(connection, campaign.id, person)
    behind = campaign_table.items_by_id(connection, [selection.item_id])[selection.item_id]
    item = _chosen(part, set(given), behind)
    cover = None if item is None else _cover(part, turn, set(given.values()))
    if item is None or cover is None:
        return None
    gold_table.insert_gold(
        connection,
        campaign_id=campaign.id,
        round_id=turn.id,
        item_id=item.id,
        cover=cover,
        person=person,
        rank=selection.rank,
        until=until,
    )
    return next(one for one in gold_table.golds_of_round(connection, turn.id, person) if one.rank == selection.rank)


def left_for(memory: Memory, connection: Connection, campaign: CampaignRow, person: str) -> int:
    """Trusted samples that this person can still get as gold."""
    pool = _pool(memory, connection, campaign)
    given = gold_table.given_to(connection, campaign.id, person)
    seen = _neighbours(memory, connection, campaign, person)
    return sum(item_id not in given and position not in seen for item_id, position in pool)


def _chosen(part: Part, given: set[int], behind: ItemRow) -> ItemRow | None:
    """The next trusted sample in the order of this person: never given, never seen with its label, with the same parts."""
    connection, campaign, person, _, memory = part
    pool = _pool(memory, connection, campaign)
    seen = _neighbours(memory, connection, campaign, person)
    left = [item_id for item_id, position in pool if item_id not in given and position not in seen]
    left.sort(key=lambda item_id: drawn(campaign.settings.seed, campaign.public_id, "order", person, item_id))
    for start in range(0, len(left), _COVERS):
        some = left[start : start + _COVERS]
        rows = campaign_table.items_by_id(connection, some)
        for item_id in some:
            if _parts(rows[item_id]) == _parts(behind):
                return rows[item_id]
    return None


def _parts(row: ItemRow) -> tuple[bool, int, frozenset[str]]:
    shown = content_of(row)
    return row.text is None, len(shown.images), frozenset(shown.fields)


class _Kept:
    """What is kept of campaigns, by public id."""

    def __init__(self) -> None:
        self.seen = Latest[tuple[str, str], tuple[set[int], int]](1024)
        self.pools = Latest[str, list[tuple[int, int]]](64)


def _neighbours(memory: Memory, connection: Connection, campaign: CampaignRow, person: str) -> set[int]:
    """Positions of the trusted samples that a person has seen as neighbours; read once, then only what came since."""
    kept = memory.of(_Kept).seen
    known, upto = kept.get((campaign.public_id, person)) or (set(), 0)
    more, upto = gold_table.neighbours_shown(connection, campaign.id, person, upto)
    kept[campaign.public_id, person] = (known | more, upto)
    return known | more


def _pool(memory: Memory, connection: Connection, campaign: CampaignRow) -> list[tuple[int, int]]:
    """(inner id, position) of the pool; the trusted samples of a campaign never change."""
    seed, public_id = campaign.settings.seed, campaign.public_id

    def read() -> list[tuple[int, int]]:
        return [one for one in gold_table.labelled(connection, campaign.id) if in_pool(seed, public_id, one[1])]

    return memory.of(_Kept).pools.made(public_id, read)


def _cover(part: Part, turn: TurnRow, used: set[int]) -> int | None:
    """A training item under whose key gold is shown: one whose label was given, else one that others answered, else any."""
    connection, campaign, person, *_ = part
    seed = int(2**53 * drawn(campaign.settings.seed, campaign.public_id, "cover", person, len(used)))
    positions = np.random.default_rng(seed).integers(0, campaign.n_items, _COVERS)
    items = campaign_table.items_at(connection, campaign.id, SplitName.TRAIN, sorted(set(positions.tolist())))
    asked = gold_table.last_asked(connection, [one.id for one in items.values()])
    had = gold_table.had_by(connection, [one.id for one in items.values()], person)
    said = guidance_table.comment_counts(
        connection, [one.id for one in items.values()]
    )  # they are about another content
    free = [
        one
        for one in (items[p] for p in dict.fromkeys(positions.tolist()))
        if one.id not in used and one.id not in had and one.id not in said and asked.get(one.id) != turn.id
    ]
    free.sort(key=lambda one: (one.label is None, one.id not in asked))
    return free[0].id if free else None


def gold_behind(part: Part, item: ItemRow) -> GoldRow | None:
    """The gold that a person got under the key of this item; None if they were given the item itself later."""
    connection, campaign, person, standing, _ = part
    return gold_under(connection, campaign, person, item) if standing.had_gold else None


def gold_under(connection: Connection, campaign: CampaignRow, person: str, item: ItemRow) -> GoldRow | None:
    """The same of a person who may have had gold or not."""
    found = gold_table.shown_as(connection, campaign.id, person, item.id)
    return None if found is None or gold_table.had_by(connection, [item.id], person) else found


def golds_of(part: Part, turn: TurnRow) -> list[GoldRow]:
    """The gold that a person got in a round; nothing is read where there can be none."""
    if not part.standing.had_gold and not part.campaign.settings.gold_share:
        return []
    return gold_table.golds_of_round(part.connection, turn.id, part.person)


def shift(golds: Sequence[GoldRow], rank: int) -> int:
    """By how much the rank that a person is shown is above that of a selection: the gold in front of it."""
    return sum(one.rank <= rank for one in golds)


def gold_task(part: Part, gold: GoldRow, *, leased: bool = False) -> Task:
    """A gold item as it is sent: as an item shown blind."""
    connection, campaign, person, *_ = part
    rows = campaign_table.items_by_id(connection, [gold.item_id, gold.cover])
    turn = round_table.turn_by_id(connection, gold.round_id)
    golds = gold_table.golds_of_round(connection, gold.round_id, person)
    last = gold_table.last_answer(connection, gold.id)
    return Task(
        item=rows[gold.cover].key,
        content=content_of(rows[gold.item_id]),
        classes=classes_of(part),
        suggestion=None,
        blind=True,
        influence=None,
        weak=None,
        rank=gold.rank + shift(golds, gold.rank) - 1,
        round=turn.number,
        origin=Origin.BATCH,
        votes_needed=campaign.settings.people,
        neighbours=(),
        leased_until=moment(gold.until) if leased else None,
        own_vote=None if last is None or last.retracted else OwnVote(last.label, last.note),
        batch=standing(part, turn, golds),
        comments=guidance_table.comment_counts(connection, [gold.cover]).get(gold.cover, 0),
    )


def standing(part: Part, turn: TurnRow, golds: Sequence[GoldRow]) -> BatchStanding:
    """How far a batch is, to this person: their answers on gold count as others do, so none is told by its count."""
    people, seen = part.campaign.settings.people, glance(part, turn)
    if seen is None:
        answered, mine = round_table.batch_standing(part.connection, turn.id, part.person, people)
    else:
        mine = round_table.answered_by(part.connection, turn.id, part.person)
        answered = max(mine, seen.answered)
    more, wanted = sum(one.state == AssignmentState.VOTED for one in golds), turn.size * people
    if (
        answered + more >= wanted
    ):  # a tie for which one more vote is asked, or gold: all are answered when the batch is complete
        wanted += round_table.further_asked(part.connection, turn.id, people)
        open_ = round_table.batch_incomplete(part.connection, turn.id, people)
        answered = min(answered, wanted - more - open_)
    return BatchStanding(mine + more, answered + more, wanted)


def images_behind(connection: Connection, campaign: CampaignRow, person: str, item: str, mark: str) -> tuple[str, ...]:
    """The images of gold that a person got under the key of an item, if the mark is theirs."""
    sample = campaign_table.items_by_key(connection, campaign.id, [item]).get(item)
    found = None if sample is None else gold_table.shown_as(connection, campaign.id, person, sample.id)
    if found is None:
        return ()
    images = content_of(campaign_table.items_by_id(connection, [found.item_id])[found.item_id]).images
    return images if image_mark("".join(images[:1])) == mark else ()


def held(golds: Sequence[GoldRow], at: vote_table.Moment) -> list[GoldRow]:
    """Those that the person holds now."""
    return [one for one in golds if one.state == AssignmentState.LEASED and at.holds(one.until)]


def returning(golds: Sequence[GoldRow], at: vote_table.Moment) -> list[GoldRow]:
    """Those that the person let run out or skipped, earliest first."""
    lost = [one for one in golds if one.state != AssignmentState.VOTED and one not in held(golds, at)]
    return sorted(lost, key=lambda one: (one.state == AssignmentState.SKIPPED, one.until))


@functools.lru_cache(maxsize=65536)
def image_mark(image: str) -> str:
    """What the address of an image has behind it: another one for another image, under whatever key it is shown."""
    return hashlib.sha256(image.encode("utf-8", "surrogatepass")).hexdigest()[:12]
