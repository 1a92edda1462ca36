"""Rounds (the first model, batches of items, corrections) and selections: the items that rounds hand out."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.base.campaigns import AssignmentState, Origin, RoundKind
from labelchef.server.store.rows import (
    AMONG,
    NewSelection,
    RoundRow,
    RoundValues,
    SelectedItem,
    SelectionBrief,
    SelectionPlace,
    SelectionRow,
    TurnRow,
    all_rows,
    columns,
    first_row,
    insert_row,
    rows_among,
    values_of,
)
from labelchef.server.store.tables import Assignment, Item, Round, Selection


def links_of_all(connection: sa.Connection) -> Iterator[Mapping[str, Any]]:
    """The links of all campaigns, those made first before the others."""
    found = sa.select(Round.c.link).where(Round.c.link.is_not(None)).order_by(Round.c.id)
    for link in connection.execute(found).scalars():
        if link is not None:
            yield link


def rounds_of(connection: sa.Connection, campaign_id: int) -> list[RoundRow]:
    """All rounds in order."""
    found = sa.select(Round).where(Round.c.campaign_id == campaign_id).order_by(Round.c.number)
    return all_rows(connection, found, RoundRow)


_LAST_ROUND = (
    sa.select(Round).where(Round.c.campaign_id == bindparam("campaign_id")).order_by(Round.c.number.desc()).limit(1)
)


def last_round(connection: sa.Connection, campaign_id: int) -> RoundRow | None:
    """The round with the highest number: the open one, if any is."""
    return first_row(connection, _LAST_ROUND, RoundRow, campaign_id=campaign_id)


_LAST_TURN = _LAST_ROUND.with_only_columns(*columns(TurnRow, Round))


def last_turn(connection: sa.Connection, campaign_id: int) -> TurnRow | None:
    """The same in short."""
    return first_row(connection, _LAST_TURN, TurnRow, campaign_id=campaign_id)


_ROUND_BY_ID = sa.select(Round).where(Round.c.id == bindparam("round_id"))


def round_by_id(connection: sa.Connection, round_id: int) -> RoundRow:
    """A round by its inner id."""
    found = first_row(connection, _ROUND_BY_ID, RoundRow, round_id=round_id)
    assert found is not None, "foreign keys name rounds that exist"
    return found


_TURN_BY_ID = _ROUND_BY_ID.with_only_columns(*columns(TurnRow, Round))


def turn_by_id(connection: sa.Connection, round_id: int) -> TurnRow:
    """The same in short."""
    found = first_row(connection, _TURN_BY_ID, TurnRow, round_id=round_id)
    assert found is not None, "foreign keys name rounds that exist"
    return found


def insert_round(
    connection: sa.Connection, campaign_id: int, number: int, kind: RoundKind, **values: Unpack[RoundValues]
) -> int:
    """A new round; returns its inner id."""
    given = {"size": 0, "ahead": 0, "diagnostics": {}, "rebuilt": "", **values, "opened_at": time.time()}
    return insert_row(connection, Round, campaign_id=campaign_id, number=number, kind=kind, **given)


def update_round(connection: sa.Connection, round_id: int, **values: Unpack[RoundValues]) -> None:
    """Change a round."""
    connection.execute(sa.update(Round).where(Round.c.id == round_id).values(**values))


_BATCH = Selection.c.origin != Origin.AHEAD


def insert_selections(connection: sa.Connection, selections: Sequence[NewSelection]) -> None:
    """The items of a round; those of the batch are at the attempt that the round asks."""
    if not selections:
        return
    connection.execute(sa.insert(Selection), [values_of(s) for s in selections])
    for one in selections:
        if one.origin != Origin.AHEAD:
            connection.execute(
                sa.update(Item)
                .where(Item.c.id == one.item_id, Item.c.attempt != one.attempt)
                .values(attempt=one.attempt)
            )


def selections_of(connection: sa.Connection, round_id: int) -> list[SelectedItem]:
    """Selections of a round by rank, with position, key and attempt of their items."""
    found = (
        sa.select(*columns(SelectedItem, Selection, Item, item_attempt=Item.c.attempt))
        .select_from(Selection)
        .join(Item)
        .where(Selection.c.round_id == round_id)
        .order_by(Selection.c.rank)
    )
    return all_rows(connection, found, SelectedItem)


def batch_of(connection: sa.Connection, round_id: int) -> list[SelectedItem]:
    """Selections of a round's batch by rank: without the work ahead."""
    return [one for one in selections_of(connection, round_id) if one.origin != Origin.AHEAD]


_SELECTION_OF_ITEM = sa.select(Selection).where(
    Selection.c.round_id == bindparam("round_id"), Selection.c.item_id == bindparam("item_id")
)


def selection_of_item(connection: sa.Connection, round_id: int, item_id: int) -> SelectionRow | None:
    """The selection of an item in a round."""
    return first_row(connection, _SELECTION_OF_ITEM, SelectionRow, round_id=round_id, item_id=item_id)


_BY_ID = sa.select(Selection).where(Selection.c.id.in_(AMONG))


def selections_by_id(connection: sa.Connection, ids: Sequence[int]) -> list[SelectionRow]:
    """Selections by their inner id."""
    return rows_among(connection, _BY_ID, SelectionRow, ids)


_OF_ATTEMPT = sa.select(Selection).where(
    Selection.c.item_id == bindparam("item_id"), Selection.c.attempt == bindparam("attempt"), _BATCH
)


def batch_selection_of_attempt(connection: sa.Connection, item_id: int, attempt: int) -> SelectionRow | None:
    """The selection by which an attempt at an item was put to people in a batch."""
    return first_row(connection, _OF_ATTEMPT, SelectionRow, item_id=item_id, attempt=attempt)


_OF_ITEMS = sa.select(Selection).where(Selection.c.item_id.in_(AMONG), _BATCH)


def batch_selections(connection: sa.Connection, item_ids: Sequence[int]) -> dict[tuple[int, int], SelectionRow]:
    """By (item, attempt): the selection that put it to people in a batch."""
    rows = rows_among(connection, _OF_ITEMS, SelectionRow, item_ids)
    return {(row.item_id, row.attempt): row for row in rows}


def selections_of_campaign(connection: sa.Connection, campaign_id: int) -> list[SelectionBrief]:
    """What every round of a campaign selected, by round and rank."""
    return all_rows(connection, _selected(SelectionBrief, campaign_id), SelectionBrief)


def places_of_campaign(connection: sa.Connection, campaign_id: int) -> list[SelectionPlace]:
    """How the items of all batches of a campaign were shown, by round and rank; without work ahead."""
    return all_rows(connection, _selected(SelectionPlace, campaign_id).where(_BATCH), SelectionPlace)


def _selected(record: type[SelectionPlace], campaign_id: int) -> sa.Select[Any]:
    return (
        sa.select(*columns(record, Selection, Item))
        .select_from(Selection)
        .join(Round)
        .join(Item)
        .where(Round.c.campaign_id == campaign_id)
        .order_by(Selection.c.round_id, Selection.c.rank)
    )


_INCOMPLETE = (
    sa.select(Selection.c.id)
    .where(Selection.c.round_id == bindparam("round_id"), _BATCH)
    .where(Selection.c.votes < sa.func.coalesce(Selection.c.needed, bindparam("people")), sa.not_(Selection.c.decided))
    .limit(1)
)


def batch_incomplete(connection: sa.Connection, round_id: int, people: int) -> bool:
    """Whether an item of the batch still needs votes."""
    return connection.execute(_INCOMPLETE, {"round_id": round_id, "people": people}).first() is not None


_FURTHER = sa.select(sa.func.count()).where(
    Selection.c.round_id == bindparam("round_id"),
    _BATCH,
    sa.not_(Selection.c.decided),
    Selection.c.needed > bindparam("people"),
    Selection.c.votes < Selection.c.needed,
)


def further_asked(connection: sa.Connection, round_id: int, people: int) -> int:
    """Items of the batch whose votes tied, and that wait for a further one."""
    return int(connection.execute(_FURTHER, {"round_id": round_id, "people": people}).scalar_one())


_ALL = bindparam("people", type_=sa.Integer)
_ANSWERED = sa.select(
    sa.func.sum(sa.case((Selection.c.decided, _ALL), (Selection.c.votes > _ALL, _ALL), else_=Selection.c.votes))
).where(Selection.c.round_id == bindparam("round_id"), _BATCH)
_MINE = (
    sa.select(sa.func.count())
    .select_from(Assignment)
    .where(
        Assignment.c.round_id == bindparam("round_id"),
        Assignment.c.person == bindparam("person"),
        Assignment.c.state == AssignmentState.VOTED,
    )
)
_STANDING = sa.select(_ANSWERED.scalar_subquery(), _MINE.scalar_subquery())


def batch_standing(connection: sa.Connection, round_id: int, person: str, people: int) -> tuple[int, int]:
    """Answers on a round's batch, at most `people` an item, and the items of the round that this person voted on."""
    row = connection.execute(_STANDING, {"round_id": round_id, "person": person, "people": people}).one()
    return int(row[0] or 0), int(row[1])


def batch_answers(connection: sa.Connection, round_id: int, people: int) -> int:
    """The first of these alone: it goes through the batch."""
    return int(connection.execute(_ANSWERED, {"round_id": round_id, "people": people}).scalar() or 0)


def answered_by(connection: sa.Connection, round_id: int, person: str) -> int:
    """The second of these alone."""
    return int(connection.execute(_MINE, {"round_id": round_id, "person": person}).scalar_one())


def mark_decided(connection: sa.Connection, selection_id: int) -> None:
    """The lead decided the item: this selection needs no more votes."""
    connection.execute(sa.update(Selection).where(Selection.c.id == selection_id).values(decided=True))


_NEEDED = sa.update(Selection).where(Selection.c.id == bindparam("of_selection")).values(needed=bindparam("wanted"))


def need_votes(connection: sa.Connection, selection_id: int, needed: int | None) -> None:
    """So many votes of people settle the item, if they agree; None: as many as there are people an item."""
    connection.execute(_NEEDED, {"of_selection": selection_id, "wanted": needed})


COUNT_VOTE = (
    sa.update(Selection)
    .where(Selection.c.id == bindparam("of_selection"))
    .values(votes=Selection.c.votes + bindparam("more"))
)


def count_vote(connection: sa.Connection, selection_id: int, by: int) -> None:
    """Add to the count of live votes on a selection."""
    connection.execute(COUNT_VOTE, {"of_selection": selection_id, "more": by})
