"""Work in the background: what leads have started, and what came of it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import sqlalchemy as sa

from labelchef.base.jobs import JobKind, JobState
from labelchef.server.store.rows import JobRow, JobValues, all_rows, first_row, insert_row, new_public_id, storable
from labelchef.server.store.tables import Campaign, Job

_KNOWN = sa.select(Job).where(Job.c.kind.in_(list(JobKind)))
"""Jobs of the kinds that there are; a workspace may hold some of kinds that have left, whose results are not shown."""
_BY_ID = _KNOWN.where(Job.c.campaign_id == sa.bindparam("campaign_id"), Job.c.public_id == sa.bindparam("public_id"))


def insert_job(
    connection: sa.Connection, campaign_id: int, kind: JobKind, options: Mapping[str, Any], person: str
) -> str:
    """A new job that waits; its public id."""
    public_id = new_public_id()
    insert_row(
        connection,
        Job,
        public_id=public_id,
        campaign_id=campaign_id,
        kind=kind,
        options=dict(options),
        person=person,
        state=JobState.WAITING,
        created_at=time.time(),
        bytes=0,
    )
    return public_id


def job_by_id(connection: sa.Connection, campaign_id: int, job: str) -> JobRow | None:
    """A job of a campaign, or None."""
    return first_row(connection, _BY_ID, JobRow, campaign_id=campaign_id, public_id=job) if storable(job) else None


def jobs_of(connection: sa.Connection, campaign_id: int) -> list[JobRow]:
    """The jobs of a campaign, newest first."""
    return all_rows(connection, _KNOWN.where(Job.c.campaign_id == campaign_id).order_by(Job.c.id.desc()), JobRow)


def jobs_in(connection: sa.Connection, states: Sequence[JobState]) -> list[tuple[JobRow, str]]:
    """Jobs in some states and the public ids of their campaigns, oldest first; not of deleted campaigns."""
    found = _KNOWN.add_columns(Campaign.c.public_id.label("campaign")).join(Campaign).where(Job.c.state.in_(states))
    rows = connection.execute(found.where(Campaign.c.deleted_at.is_(None)).order_by(Job.c.id))
    return [(JobRow(*row[:-1]), str(row[-1])) for row in rows]


def update_job(connection: sa.Connection, job_id: int, **values: Unpack[JobValues]) -> None:
    """Change a job."""
    connection.execute(sa.update(Job).where(Job.c.id == job_id).values(**values))


def move_job(connection: sa.Connection, job_id: int, before: JobState, **values: Unpack[JobValues]) -> bool:
    """Change a job if it is still in a state; whether it was."""
    here = (Job.c.id == job_id) & (Job.c.state == before)
    return connection.execute(sa.update(Job).where(here).values(**values)).rowcount == 1


def delete_job(connection: sa.Connection, job_id: int) -> None:
    """Forget a job."""
    connection.execute(sa.delete(Job).where(Job.c.id == job_id))
