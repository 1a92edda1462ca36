"""Which items members get: set by a lead, for each member some classes, a slice of the items, or both.

A member without a duty gets everything. A member with one gets its items first. When none of these is left, they get items for
which too few members are there: fewer than the votes the item still may need. So no item waits for nobody; the lead is told how
many there are.
"""

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection

from labelchef.base.campaigns import RoundState
from labelchef.base.duties import MOST_ITEMS, Duty
from labelchef.base.errors import InvalidInputError
from labelchef.server.campaigns.access import Part, changing, looking, row_of
from labelchef.server.store import account_table, campaign_table, duty_table, round_table, vote_table
from labelchef.server.store.rows import CampaignRow, OpenSelection, SelectionRow, TurnRow
from labelchef.server.workspace import Workspace

_LONGEST = 1000


def duties(ws: Workspace, campaign: str) -> dict[str, Duty]:
    """Person → duty, of those who do not get everything."""
    with looking(ws, campaign) as (connection, row):
        return duty_table.duties(connection, row.id)


def set_duty(ws: Workspace, campaign: str, person: str, duty: Duty | None, by: str) -> None:
    """From now on, this member gets these items; None or an empty duty: everything. What they hold stays with them."""
    _check(duty)
    chosen = None if duty is None or duty == Duty() else duty
    with changing(ws, campaign) as (connection, row):
        account = row_of(connection, person)
        if not account_table.is_member(connection, row.id, account.id):
            raise InvalidInputError(
                f"{person!r} is no member of this campaign; add them first (Lead, People), then say what they get",
                code="member",
            )
        classes = campaign_table.classes_of(connection, row.id)
        unknown = [name for name in (() if chosen is None else chosen.classes) if name not in classes]
        if unknown:
            shown = ", ".join(repr(name) for name in classes[:20])
            raise InvalidInputError(f"there is no class {unknown[0]!r}; expected some of {shown}", code="duty")
        if duty_table.duty_of(connection, row.id, person) == chosen:
            return
        duty_table.set_duty(connection, row.id, person, chosen)
        what = {"person": person, "gets": "everything" if chosen is None else chosen.as_json()}
        campaign_table.note_change(connection, row.id, by, {"duty": what})
        campaign_table.update_campaign(connection, row.id)


def _check(duty: Duty | None) -> None:
    if duty is None:
        return
    if bool(duty.field) != bool(duty.value):
        raise InvalidInputError(
            f"field is {duty.field!r} and value is {duty.value!r}; expected both or none of them", code="duty"
        )
    if len(duty.items) > MOST_ITEMS or any(len(text) > _LONGEST for text in (duty.field, duty.value, duty.prefix)):
        raise InvalidInputError(
            f"the duty names {len(duty.items)} items; expected at most {MOST_ITEMS}, and texts of at most {_LONGEST} characters",
            code="duty",
        )


def free_selections(part: Part, turn: TurnRow, duty: Duty, at: vote_table.Moment, limit: int) -> list[SelectionRow]:
    """Selections that a person with a duty should be asked next: their own, else those for which too few are there."""
    connection, campaign, person, *_ = part
    free = vote_table.open_selections(connection, turn.id, person, campaign.settings.people, at)
    classes = campaign_table.classes_of(connection, campaign.id)
    chosen = []
    for one in _covered(connection, duty, free, classes):
        chosen.append(one.id)
        if len(chosen) == limit:
            break
    if not chosen and free:
        others = _of_members(connection, campaign.id)
        lonely = _short(connection, others, free, classes, campaign.settings.people)
        chosen = [one.id for one in lonely[:limit]]
    found = {one.id: one for one in round_table.selections_by_id(connection, chosen)}
    return [found[selection_id] for selection_id in chosen]


def uncovered(connection: Connection, campaign: CampaignRow) -> int:
    """Open items of the batch for which fewer members are there than votes are asked; 0 where nobody has a duty."""
    turn = round_table.last_turn(connection, campaign.id)
    if turn is None or turn.state != RoundState.SELECTED or not duty_table.duties(connection, campaign.id):
        return 0
    free = vote_table.open_selections(
        connection, turn.id, "", campaign.settings.people, vote_table.Moment.of(campaign.settings.lease_minutes)
    )
    classes = campaign_table.classes_of(connection, campaign.id)
    members = _of_members(connection, campaign.id)
    return len(_short(connection, members, free, classes, campaign.settings.people))


def _of_members(connection: Connection, campaign_id: int) -> dict[str, Duty]:
    """What each member gets who can sign in; an empty duty is everything."""
    known = duty_table.duties(connection, campaign_id)
    return {name: known.get(name, Duty()) for name in account_table.active_members(connection, campaign_id)}


def _short(
    connection: Connection,
    members: Mapping[str, Duty],
    free: list[OpenSelection],
    classes: tuple[str, ...],
    people: int,
) -> list[OpenSelection]:
    there = dict.fromkeys((one.id for one in free), 0)
    for duty in members.values():
        for one in _covered(connection, duty, free, classes):
            there[one.id] += 1
    return [one for one in free if there[one.id] < (people if one.needed is None else one.needed)]


def _covered(
    connection: Connection, duty: Duty, free: list[OpenSelection], classes: tuple[str, ...]
) -> Iterator[OpenSelection]:
    """Those that belong to a duty, in their order; what people see of items is read only where the duty looks at it."""
    for start in range(0, len(free), 200):
        some = free[start : start + 200]
        items = campaign_table.items_by_id(connection, [one.item_id for one in some]) if duty.sliced else {}
        for one in some:
            item = items.get(one.item_id)
            believed = classes[one.believed]
            if duty.covers(believed, *(() if item is None else (item.key, item.fields))):
                yield one
