"""What a process keeps between requests, so that a vote costs few statements.

Class names and trusted samples of a campaign never change. Of a large batch, where the free items begin and how many answers it
has is looked up at most twice a second: to find these, a database goes through the whole batch.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from labelchef.base.campaigns import SplitName
from labelchef.server.campaigns.access import Part
from labelchef.server.memory import Latest, Memory
from labelchef.server.store import campaign_table, round_table, vote_table
from labelchef.server.store.rows import CampaignRow, ItemRow, TurnRow

_LARGE = 500
"""Items of a batch from which on it is not searched for every request."""
_GLANCE_SECONDS = 0.5
_CAMPAIGNS, _SAMPLES, _LONGEST_TEXT = 256, 20_000, 4_000


class _Kept:
    """By public id of the campaign, and what else is named."""

    def __init__(self) -> None:
        self.classes = Latest[str, tuple[str, ...]](_CAMPAIGNS)
        self.places = Latest[tuple[str, str], int](_SAMPLES)
        self.trusted = Latest[tuple[str, int], ItemRow](_SAMPLES)
        self.glances = Latest[tuple[str, int], Glance](_CAMPAIGNS)


def classes_of(part: Part) -> tuple[str, ...]:
    """Class names of a campaign."""
    kept = part.memory.of(_Kept).classes
    return kept.made(part.campaign.public_id, lambda: campaign_table.classes_of(part.connection, part.campaign.id))


def keep_places(part: Part, items: Iterable[ItemRow]) -> None:
    """Keep the positions of training items, which never change either."""
    places = part.memory.of(_Kept).places
    for one in items:
        places[part.campaign.public_id, one.key] = one.position


def places_of(memory: Memory, connection: Connection, campaign: CampaignRow, keys: Sequence[str]) -> dict[str, int]:
    """Positions of training items; they are read only where they are not kept."""
    places = memory.of(_Kept).places
    found = {key: at for key in keys if (at := places.get((campaign.public_id, key))) is not None}
    missing = [key for key in keys if key not in found]
    if missing:
        read = campaign_table.items_by_key(connection, campaign.id, missing, SplitName.TRAIN)
        found.update({key: one.position for key, one in read.items()})
    return found


def trusted_at(part: Part, positions: Sequence[int]) -> dict[int, ItemRow]:
    """Trusted samples of a campaign by position; those with long texts are read every time."""
    campaign, trusted = part.campaign, part.memory.of(_Kept).trusted
    found = {p: one for p in positions if (one := trusted.get((campaign.public_id, p))) is not None}
    missing = [p for p in positions if p not in found]
    if missing:
        read = campaign_table.items_at(part.connection, campaign.id, SplitName.VALIDATION, missing)
        found.update(read)
        for position, one in read.items():
            if len(one.text or "") <= _LONGEST_TEXT:
                trusted[campaign.public_id, position] = one
    return found


@dataclass(frozen=True)
class Glance:
    """A look at a large batch."""

    version: int
    """That of the campaign: whatever frees items, other than time, changes it."""
    until: float
    """When it is too old."""
    lowest: int | None
    """The least rank of an item that has a place left; None where none has."""
    answered: int


def glance(part: Part, turn: TurnRow) -> Glance | None:
    """A look at a batch that is not older than half a second; None for a small one."""
    if turn.size <= _LARGE:
        return None
    connection, campaign, *_ = part
    key, now = (campaign.public_id, turn.number), time.time()
    glances = part.memory.of(_Kept).glances
    known = glances.get(key)
    if known is not None and known.version == campaign.version:
        if now < known.until <= now + _GLANCE_SECONDS:
            return known
        glances[key] = replace(known, until=now + _GLANCE_SECONDS)  # meanwhile, others take the last one
    at = vote_table.Moment.of(campaign.settings.lease_minutes)
    lowest = vote_table.lowest_free(connection, turn.id, campaign.settings.people, at)
    answered = round_table.batch_answers(connection, turn.id, campaign.settings.people)
    until = now + _GLANCE_SECONDS
    if lowest is None:
        until = min(until, vote_table.next_expiry(connection, turn.id, at) or until)
    glances[key] = found = Glance(campaign.version, until, lowest, answered)
    return found


def given_from(part: Part, turn: TurnRow, rank: int) -> None:
    """Somebody got the item of this rank. Where one person answers each, those before it are taken, until the next look."""
    key = (part.campaign.public_id, turn.number)
    glances = part.memory.of(_Kept).glances
    known = glances.get(key)
    if part.campaign.settings.people == 1 and known is not None and known.lowest is not None and known.lowest < rank:
        glances[key] = replace(known, lowest=rank)
