"""What a process keeps between requests, so that a vote costs few statements.

Class names and trusted samples of a campaign never change. Of a large batch, where the free items begin and how many answers it
has is looked up at most twice a second: to find these, a database goes through the whole batch.
"""

import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlalchemy import Connection

from labelchef.domain.campaigns import SplitName
from labelchef.services.people.access import Part
from labelchef.store import campaign_table, round_table, vote_table
from labelchef.store.rows import CampaignRow, ItemRow, TurnRow

_LARGE = 500
"""Items of a batch from which on it is not searched for every request."""
_GLANCE_SECONDS = 0.5
_CAMPAIGNS, _SAMPLES, _LONGEST_TEXT = 256, 20_000, 4_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_classes: "OrderedDict[str, tuple[str, ...]]" = OrderedDict()
_places: "OrderedDict[tuple[str, str], int]" = OrderedDict()
_trusted: "OrderedDict[tuple[str, int], ItemRow]" = OrderedDict()
_glances: "OrderedDict[tuple[str, int], Glance]" = OrderedDict()


def _keep(known: "OrderedDict[Key, Value]", key: Key, value: Value, most: int) -> None:
    known[key] = value
    while len(known) > most:
        known.popitem(last=False)


def classes_of(part: Part) -> tuple[str, ...]:
    """Class names of a campaign."""
    found = _classes.get(part.campaign.public_id)
    if found is None:
        found = campaign_table.classes_of(part.connection, part.campaign.id)
        _keep(_classes, part.campaign.public_id, found, _CAMPAIGNS)
    return found


def keep_places(part: Part, items: Iterable[ItemRow]) -> None:
    """Keep the positions of training items, which never change either."""
    for one in items:
        _keep(_places, (part.campaign.public_id, one.key), one.position, _SAMPLES)


def places_of(connection: Connection, campaign: CampaignRow, keys: Sequence[str]) -> dict[str, int]:
    """Positions of training items; they are read only where they are not kept."""
    found = {key: at for key in keys if (at := _places.get((campaign.public_id, key))) is not None}
    missing = [key for key in keys if key not in found]
    if missing:
        read = campaign_table.items_by_key(connection, campaign.id, missing, SplitName.TRAIN)
        found.update({key: one.position for key, one in read.items()})
    return found


def trusted_at(part: Part, positions: Sequence[int]) -> dict[int, ItemRow]:
    """Trusted samples of a campaign by position; those with long texts are read every time."""
    campaign = part.campaign
    found = {p: one for p in positions if (one := _trusted.get((campaign.public_id, p))) is not None}
    missing = [p for p in positions if p not in found]
    if missing:
        read = campaign_table.items_at(part.connection, campaign.id, SplitName.VALIDATION, missing)
        found.update(read)
        for position, one in read.items():
            if len(one.text or "") <= _LONGEST_TEXT:
                _keep(_trusted, (campaign.public_id, position), one, _SAMPLES)
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
    known = _glances.get(key)
    if known is not None and known.version == campaign.version:
        if now < known.until <= now + _GLANCE_SECONDS:
            return known
        _glances[key] = replace(known, until=now + _GLANCE_SECONDS)  # meanwhile, others take the last one
    at = vote_table.Moment.of(campaign.settings.lease_minutes)
    lowest = vote_table.lowest_free(connection, turn.id, campaign.settings.people, at)
    answered = round_table.batch_answers(connection, turn.id, campaign.settings.people)
    until = now + _GLANCE_SECONDS
    if lowest is None:
        until = min(until, vote_table.next_expiry(connection, turn.id, at) or until)
    found = Glance(campaign.version, until, lowest, answered)
    _keep(_glances, key, found, _CAMPAIGNS)
    return found


def given_from(part: Part, turn: TurnRow, rank: int) -> None:
    """Somebody got the item of this rank. Where one person answers each, those before it are taken, until the next look."""
    key = (part.campaign.public_id, turn.number)
    known = _glances.get(key)
    if part.campaign.settings.people == 1 and known is not None and known.lowest is not None and known.lowest < rank:
        _glances[key] = replace(known, lowest=rank)
