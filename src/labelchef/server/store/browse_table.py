"""Statements of the browser of items: what happened to items since a row that is known, and which items a condition names."""

from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.base.campaigns import SUGGESTION, DecisionKind, Origin, RoundState, SplitName
from labelchef.server.store import campaign_table
from labelchef.server.store.rows import CampaignRow, LeadActionRow, first_row, insert_row
from labelchef.server.store.tables import Decision, Item, LeadAction, Round, Selection, Vote
from labelchef.server.store.vote_table import LIVE


class IdRange(NamedTuple):
    """The inner ids of the items of a split."""

    size: int
    first: int
    last: int
    least: int
    """The least id − position."""
    most: int

    @property
    def in_order(self) -> bool:
        """Whether position = id − least for every item."""
        return self.least == self.most


_IN_SPLIT = (Item.c.campaign_id == bindparam("campaign_id")) & (Item.c.split == bindparam("split"))
_from = Item.c.id - Item.c.position
_RANGE = sa.select(
    sa.func.count(), sa.func.min(Item.c.id), sa.func.max(Item.c.id), sa.func.min(_from), sa.func.max(_from)
).where(_IN_SPLIT)
_IDS = sa.select(Item.c.id).where(_IN_SPLIT).order_by(Item.c.position)


def id_range(connection: sa.Connection, campaign: CampaignRow, split: SplitName) -> IdRange:
    """How inner ids and positions of a split go together; of a campaign of an earlier version all items are looked at."""
    if campaign.first_item is None:
        found = connection.execute(_RANGE, {"campaign_id": campaign.id, "split": split}).one()
        return IdRange(*(int(value or 0) for value in found))
    first = campaign.first_item
    for one in SplitName:  # in this order they are stored
        size = campaign_table.size_of_split(connection, campaign.id, one)
        if one is split:
            return IdRange(size, first, first + size - 1, first, first)
        first += size
    raise AssertionError(f"{split} is a split")


def ids_by_position(connection: sa.Connection, campaign_id: int, split: SplitName) -> Iterator[int]:
    """Inner ids of a split in the order of positions."""
    return iter(connection.execute(_IDS, {"campaign_id": campaign_id, "split": split}).scalars())


class NewDecision(NamedTuple):
    """A decision as the browser needs it."""

    id: int
    item_id: int
    attempt: int
    label: int | None
    reopened: bool


_DECISIONS = (
    sa.select(*Decision.c["id", "item_id", "attempt", "label", "kind"])
    .where(Decision.c.campaign_id == bindparam("campaign_id"), Decision.c.id > bindparam("seen"))
    .order_by(Decision.c.id)
)


def decisions_since(connection: sa.Connection, campaign_id: int, seen: int) -> list[NewDecision]:
    """Decisions behind the row `seen`, oldest first."""
    rows = connection.execute(_DECISIONS, {"campaign_id": campaign_id, "seen": seen})
    return [
        NewDecision(id_, item, attempt, label, kind is DecisionKind.REOPEN) for id_, item, attempt, label, kind in rows
    ]


class NewRound(NamedTuple):
    """A round and its batch."""

    id: int
    number: int
    state: RoundState
    batch: list[tuple[int, int]]
    """(item id, attempt)."""


_ROUNDS = (
    sa.select(*Round.c["id", "number", "state"])
    .where(Round.c.campaign_id == bindparam("campaign_id"), Round.c.id >= bindparam("seen"))
    .order_by(Round.c.id)
)
_BATCH = sa.select(Selection.c.item_id, Selection.c.attempt).where(
    Selection.c.round_id == bindparam("round_id"), Selection.c.origin != Origin.AHEAD
)


def rounds_from(connection: sa.Connection, campaign_id: int, seen: int) -> list[NewRound]:
    """The round `seen` as it is now, without its batch, and those behind it."""
    rows = connection.execute(_ROUNDS, {"campaign_id": campaign_id, "seen": seen}).all()
    return [
        NewRound(
            row.id,
            row.number,
            row.state,
            []
            if row.id == seen
            else [(item, attempt) for item, attempt in connection.execute(_BATCH, {"round_id": row.id})],
        )
        for row in rows
    ]


def items_of_round(connection: sa.Connection, campaign_id: int, number: int) -> list[int]:
    """Inner ids of the items that a round asked."""
    found = (
        sa.select(Selection.c.item_id)
        .join(Round)
        .where(Round.c.campaign_id == campaign_id, Round.c.number == number, Selection.c.origin != Origin.AHEAD)
    )
    return list(connection.execute(found).scalars())


def items_of_person(connection: sa.Connection, campaign_id: int, person: str) -> list[int]:
    """Inner ids of the items on which a person's vote stands."""
    found = (
        sa.select(Vote.c.item_id).where(Vote.c.campaign_id == campaign_id, Vote.c.person == person, *LIVE).distinct()
    )
    return list(connection.execute(found).scalars())


def items_of_dissent(connection: sa.Connection, campaign_id: int) -> list[int]:
    """Inner ids of the items on which votes of people differ, in an attempt."""
    found = (
        sa.select(Vote.c.item_id)
        .where(Vote.c.campaign_id == campaign_id, Vote.c.person != SUGGESTION, *LIVE)
        .group_by(Vote.c.item_id, Vote.c.attempt)
        .having(sa.func.count(sa.distinct(sa.func.coalesce(Vote.c.label, -1))) > 1)
    )
    return list(connection.execute(found).scalars())


def rounds_of_item(connection: sa.Connection, item_id: int) -> list[int]:
    """Numbers of the rounds that asked an item."""
    found = (
        sa.select(Round.c.number)
        .join(Selection)
        .where(Selection.c.item_id == item_id, Selection.c.origin != Origin.AHEAD)
        .order_by(Round.c.number)
    )
    return list(connection.execute(found).scalars())


def action_of(connection: sa.Connection, campaign_id: int, person: str, request_id: str) -> LeadActionRow | None:
    """How a request of a lead was answered, None if it is new."""
    found = sa.select(LeadAction).where(
        LeadAction.c.campaign_id == campaign_id, LeadAction.c.person == person, LeadAction.c.request_id == request_id
    )
    return first_row(connection, found, LeadActionRow)


def insert_action(connection: sa.Connection, **values: object) -> None:
    """Remember how a request of a lead was answered."""
    insert_row(connection, LeadAction, **values)
