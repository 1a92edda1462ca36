"""Numbers about the whole workspace, for operators: how many campaigns, leases, jobs and rounds there are."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from labelchef.base.campaigns import AssignmentState, RoundState
from labelchef.server.store.tables import Assignment, Campaign, Job, Round

_AT_ONCE = 200


@dataclass
class RoundTotals:
    """Sums over all rounds that were closed, the first models (number 0) among them. `add_closed` adds those that are new."""

    rounds: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    """Step → how often its time was taken."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Step → seconds in all."""
    sweeps: float = 0.0
    """Passes over the features, of all selections and models."""
    read_bytes: float = 0.0
    """Bytes of the features that were read from files; none while they are in memory."""
    last_closed: float | None = None
    counted: set[int] = field(default_factory=set, repr=False)
    """Rounds that are in the sums; closed rounds never change."""


def campaigns_by_state(connection: sa.Connection) -> dict[str, int]:
    """State → campaigns; those in the archive and deleted ones under names of their own."""
    found: Counter[str] = Counter()
    for state, archived, deleted in connection.execute(
        sa.select(Campaign.c.state, Campaign.c.archived_at, Campaign.c.deleted_at)
    ):
        found["deleted" if deleted is not None else "archived" if archived is not None else str(state)] += 1
    return dict(found)


def jobs_by_state(connection: sa.Connection) -> dict[str, int]:
    """State → jobs."""
    counted = sa.select(Job.c.state, sa.func.count()).group_by(Job.c.state)
    return {str(state): int(n) for state, n in connection.execute(counted)}


def open_leases(connection: sa.Connection) -> int:
    """Items that are reserved for a person now, in batches that are open."""
    held = (Assignment.c.state == AssignmentState.LEASED) & (Assignment.c.until > time.time())
    joined = sa.select(sa.func.count()).select_from(Assignment).join(Round, Round.c.id == Assignment.c.round_id)
    return int(connection.execute(joined.where(held, Round.c.state == RoundState.SELECTED)).scalar_one())


def add_closed(connection: sa.Connection, totals: RoundTotals) -> None:
    """Add the rounds that were closed since the last time, row by row."""
    closed = connection.execute(sa.select(Round.c.id).where(Round.c.state == RoundState.CLOSED)).scalars()
    new = [one for one in closed if one not in totals.counted]
    wanted = sa.select(Round.c.id, Round.c.seconds, Round.c.diagnostics, Round.c.outcome, Round.c.closed_at)
    for start in range(0, len(new), _AT_ONCE):
        for row in connection.execute(wanted.where(Round.c.id.in_(new[start : start + _AT_ONCE]))):
            totals.counted.add(row.id)
            totals.rounds += 1
            for made in (row.diagnostics, (row.outcome or {}).get("construction")):
                totals.sweeps += _number(made, "sweeps")
                totals.read_bytes += _number(made, "bytes_read")
            totals.last_closed = max(totals.last_closed or 0.0, row.closed_at)
            for step, one in row.seconds.items():
                totals.steps[step] = totals.steps.get(step, 0) + 1
                totals.seconds[step] = totals.seconds.get(step, 0.0) + float(one)


def _number(diagnostics: dict[str, Any] | None, name: str) -> float:
    return float((diagnostics or {}).get(name) or 0.0)
