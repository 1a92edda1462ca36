"""Hidden gold: trusted samples among the items of a person, and the answers on them, which are no votes."""

import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.base.campaigns import AssignmentState, SplitName
from labelchef.server.store.rows import (
    AMONG,
    GoldAnswerOn,
    GoldAnswerRow,
    GoldRow,
    NewGoldAnswer,
    ShownGoldAnswer,
    all_rows,
    columns,
    first_row,
    insert_row,
    new_public_id,
    values_of,
)
from labelchef.server.store.tables import Assignment, Gold, GoldAnswer, Item, Round, Selection

_CAMPAIGN: sa.BindParameter[int] = bindparam("campaign_id")
_OF_PERSON = Gold.c.person == bindparam("person")
_OF_ROUND = sa.select(Gold).where(Gold.c.round_id == bindparam("round_id"), _OF_PERSON).order_by(Gold.c.rank)


def golds_of_round(connection: sa.Connection, round_id: int, person: str) -> list[GoldRow]:
    """What a person got in a round, in the order in which it was put among their items."""
    return all_rows(connection, _OF_ROUND, GoldRow, round_id=round_id, person=person)


_GIVEN = sa.select(Gold.c.item_id, Gold.c.cover).where(Gold.c.campaign_id == _CAMPAIGN, _OF_PERSON)


def given_to(connection: sa.Connection, campaign_id: int, person: str) -> dict[int, int]:
    """Trusted samples that a person got at any time → the items they were shown as."""
    rows = connection.execute(_GIVEN, {"campaign_id": campaign_id, "person": person})
    return {int(item): int(cover) for item, cover in rows}


_SHOWN_AS = (
    sa.select(Gold)
    .where(Gold.c.campaign_id == _CAMPAIGN, _OF_PERSON, Gold.c.cover == bindparam("cover"))
    .order_by(Gold.c.id.desc())
    .limit(1)
)


def shown_as(connection: sa.Connection, campaign_id: int, person: str, cover: int) -> GoldRow | None:
    """The gold that a person got under the key of this training item."""
    return first_row(connection, _SHOWN_AS, GoldRow, campaign_id=campaign_id, person=person, cover=cover)


def insert_gold(
    connection: sa.Connection,
    *,
    campaign_id: int,
    round_id: int,
    item_id: int,
    cover: int,
    person: str,
    rank: int,
    until: float,
) -> None:
    """Put a trusted sample among the items of a person, leased to them."""
    insert_row(
        connection,
        Gold,
        campaign_id=campaign_id,
        round_id=round_id,
        item_id=item_id,
        cover=cover,
        person=person,
        rank=rank,
        state=AssignmentState.LEASED,
        until=until,
        created_at=time.time(),
    )


def gold_by_id(connection: sa.Connection, gold_id: int) -> GoldRow:
    """A gold item by its inner id."""
    found = first_row(connection, sa.select(Gold).where(Gold.c.id == gold_id), GoldRow)
    assert found is not None, "answers name gold that exists"
    return found


def set_state(connection: sa.Connection, gold_id: int, state: AssignmentState, until: float) -> None:
    """Store what became of it."""
    connection.execute(sa.update(Gold).where(Gold.c.id == gold_id).values(state=state, until=until))


_cover = Item.alias()
_SHOWN = (
    sa.select(*columns(ShownGoldAnswer, GoldAnswer, key=_cover.c.key))
    .select_from(GoldAnswer)
    .join(Gold, Gold.c.id == GoldAnswer.c.gold_id)
    .join(_cover, _cover.c.id == Gold.c.cover)
    .where(GoldAnswer.c.campaign_id == _CAMPAIGN, GoldAnswer.c.person == bindparam("person"))
)
_later = GoldAnswer.alias()
_LIVE = (
    sa.not_(GoldAnswer.c.retracted),
    ~sa.select(_later.c.id)
    .where(_later.c.gold_id == GoldAnswer.c.gold_id, _later.c.seq > GoldAnswer.c.seq)
    .correlate(GoldAnswer)
    .exists(),
)
_BY_REQUEST = _SHOWN.where(GoldAnswer.c.request_id == bindparam("request_id"))
_NEWEST = _SHOWN.where(*_LIVE).order_by(GoldAnswer.c.id.desc()).limit(1)
_LAST = (
    sa.select(GoldAnswer).where(GoldAnswer.c.gold_id == bindparam("gold_id")).order_by(GoldAnswer.c.seq.desc()).limit(1)
)


def answer_by_request(
    connection: sa.Connection, campaign_id: int, person: str, request_id: str
) -> ShownGoldAnswer | None:
    """The answer that a request stored earlier."""
    given = {"campaign_id": campaign_id, "person": person, "request_id": request_id}
    return first_row(connection, _BY_REQUEST, ShownGoldAnswer, **given)


def newest_live_answer(connection: sa.Connection, campaign_id: int, person: str) -> ShownGoldAnswer | None:
    """This person's latest answer on gold that still counts."""
    return first_row(connection, _NEWEST, ShownGoldAnswer, campaign_id=campaign_id, person=person)


def last_answer(connection: sa.Connection, gold_id: int) -> GoldAnswerRow | None:
    """The last row on a gold item; it may be a retraction."""
    return first_row(connection, _LAST, GoldAnswerRow, gold_id=gold_id)


def insert_answer(connection: sa.Connection, prior: GoldAnswerRow | None, answer: NewGoldAnswer) -> str:
    """Append an answer that follows `prior`; returns its public id."""
    public_id = new_public_id()
    order = {"seq": 0 if prior is None else prior.seq + 1, "supersedes": None if prior is None else prior.id}
    values = {"public_id": public_id, "created_at": time.time(), **order, **values_of(answer)}
    connection.execute(sa.insert(GoldAnswer), values)
    return public_id


_ANSWERS = (
    sa.select(*columns(GoldAnswerOn, GoldAnswer, Gold, Item, truth=Item.c.label, cover_key=_cover.c.key))
    .select_from(GoldAnswer)
    .join(Gold, Gold.c.id == GoldAnswer.c.gold_id)
    .join(Item, Item.c.id == Gold.c.item_id)
    .join(_cover, _cover.c.id == Gold.c.cover)
    .where(GoldAnswer.c.campaign_id == _CAMPAIGN, *_LIVE)
    .order_by(GoldAnswer.c.id)
)


def live_answers(connection: sa.Connection, campaign_id: int) -> list[GoldAnswerOn]:
    """Every answer on gold that counts, with the label of the trusted sample."""
    return all_rows(connection, _ANSWERS, GoldAnswerOn, campaign_id=campaign_id)


def live_answers_of_person(connection: sa.Connection, campaign_id: int, person: str) -> list[GoldAnswerRow]:
    """This person's answers on gold that count."""
    found = sa.select(GoldAnswer).where(
        GoldAnswer.c.campaign_id == _CAMPAIGN, GoldAnswer.c.person == bindparam("person"), *_LIVE
    )
    return all_rows(connection, found.order_by(GoldAnswer.c.id), GoldAnswerRow, campaign_id=campaign_id, person=person)


_NEWEST_OF_CAMPAIGN = sa.select(sa.func.max(GoldAnswer.c.id)).where(GoldAnswer.c.campaign_id == _CAMPAIGN)


def newest_of_campaign(connection: sa.Connection, campaign_id: int) -> int:
    """The inner id of the last answer on gold; 0 before the first."""
    return int(connection.execute(_NEWEST_OF_CAMPAIGN, {"campaign_id": campaign_id}).scalar() or 0)


def labelled(connection: sa.Connection, campaign_id: int) -> list[tuple[int, int]]:
    """(inner id, position) of the trusted samples with a label, by position."""
    found = sa.select(Item.c.id, Item.c.position).where(
        Item.c.campaign_id == campaign_id, Item.c.split == SplitName.VALIDATION, Item.c.label.is_not(None)
    )
    return [(int(row[0]), int(row[1])) for row in connection.execute(found.order_by(Item.c.position))]


_NEIGHBOURS = (
    sa.select(Assignment.c.id, Selection.c.nearest)
    .select_from(Assignment)
    .join(Selection)
    .join(Round, Round.c.id == Selection.c.round_id)
    .where(Round.c.campaign_id == _CAMPAIGN, Assignment.c.person == bindparam("person"), sa.not_(Selection.c.blind))
    .where(Assignment.c.id > bindparam("after"))
)


def neighbours_shown(connection: sa.Connection, campaign_id: int, person: str, after: int = 0) -> tuple[set[int], int]:
    """Positions of the trusted samples that this person has seen with their label, beside an item, by assignments behind the
    one with the inner id `after`; and the inner id of the last of these."""
    given = {"campaign_id": campaign_id, "person": person, "after": after}
    rows = connection.execute(_NEIGHBOURS, given).all()
    return {int(p) for _, nearest in rows for p, _ in nearest}, max((int(row[0]) for row in rows), default=after)


_ASKED = (
    sa.select(Selection.c.item_id, sa.func.max(Selection.c.round_id))
    .where(Selection.c.item_id.in_(AMONG))
    .group_by(Selection.c.item_id)
)
_HAD = (
    sa.select(Selection.c.item_id)
    .join(Assignment, Assignment.c.selection_id == Selection.c.id)
    .where(Selection.c.item_id.in_(AMONG), Assignment.c.person == bindparam("person"))
    .distinct()
)


def last_asked(connection: sa.Connection, item_ids: Sequence[int]) -> dict[int, int]:
    """Of some items, those that were ever selected → the last round that did."""
    return {int(row[0]): int(row[1]) for row in connection.execute(_ASKED, {"among": list(item_ids)})}


def had_by(connection: sa.Connection, item_ids: Sequence[int], person: str) -> set[int]:
    """Of some items, those that a person was ever given."""
    return set(connection.execute(_HAD, {"among": list(item_ids), "person": person}).scalars())
