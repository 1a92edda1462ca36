"""Which items members get."""

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.base.duties import Duty
from labelchef.server.store.tables import Duty as DutyTable

_ALL = sa.select(DutyTable.c.person, DutyTable.c.rule).where(DutyTable.c.campaign_id == bindparam("campaign_id"))
_ONE = _ALL.where(DutyTable.c.person == bindparam("person"))


def duties(connection: sa.Connection, campaign_id: int) -> dict[str, Duty]:
    """Person → what they get, of those who do not get everything; by name."""
    rows = connection.execute(_ALL.order_by(DutyTable.c.person), {"campaign_id": campaign_id})
    return {row[0]: Duty.from_json(row[1]) for row in rows}


def duty_of(connection: sa.Connection, campaign_id: int, person: str) -> Duty | None:
    """What a person gets; None for everything."""
    row = connection.execute(_ONE, {"campaign_id": campaign_id, "person": person}).first()
    return None if row is None else Duty.from_json(row[1])


def set_duty(connection: sa.Connection, campaign_id: int, person: str, duty: Duty | None) -> None:
    """From now on."""
    here = (DutyTable.c.campaign_id == campaign_id) & (DutyTable.c.person == person)
    connection.execute(sa.delete(DutyTable).where(here))
    if duty is not None:
        connection.execute(sa.insert(DutyTable).values(campaign_id=campaign_id, person=person, rule=duty.as_json()))
