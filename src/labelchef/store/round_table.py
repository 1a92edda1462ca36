"""Rounds: the first model, batches of items, and corrections."""

import time
from typing import Unpack

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.domain.campaigns import RoundKind
from labelchef.store.rows import RoundRow, RoundValues, all_rows, first_row, insert_row
from labelchef.store.tables import Round


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


_ROUND_BY_ID = sa.select(Round).where(Round.c.id == bindparam("round_id"))


def round_by_id(connection: sa.Connection, round_id: int) -> RoundRow:
    """A round by its inner id."""
    found = first_row(connection, _ROUND_BY_ID, RoundRow, round_id=round_id)
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
