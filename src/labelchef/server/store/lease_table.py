"""Leases: a row for everything that one process at a time may work on. Times are by the clock of the database."""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from labelchef.server.store.rows import LeaseRow, all_rows, first_row
from labelchef.server.store.tables import Lease

LIVES = 0x6C616263
"""The first of the two numbers of the advisory locks by which PostgreSQL knows that a holder's process lives."""
_NOW = {
    "postgresql": "extract(epoch FROM clock_timestamp())",
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
}
_ALIVE = f"""SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = {LIVES} AND objsubid = 2
    AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def _now(connection: sa.Connection) -> str:
    return _NOW[connection.dialect.name]


def living(connection: sa.Connection) -> set[int] | None:
    """The `life` of every process that is known to live; None where the database does not know it (SQLite)."""
    if connection.dialect.name != "postgresql":
        return None
    return {int(one) for one in connection.execute(sa.text(_ALIVE)).scalars()}


def take(
    connection: sa.Connection, name: str, holder: str, life: int, seconds: float, dead: Collection[int]
) -> int | None:
    """Take a lease that is free: never taken, given back, run out, or of a dead holder. Its new fence, else None.

    One that ends later than a new one would was written by a clock that was wrong, and counts as run out.
    """
    now = _now(connection)
    ended = "".join(f", {int(one)}" for one in dead)
    free = f"lease.until < {now} OR lease.until > {now} + {2 * float(seconds)} OR lease.life IN (-1{ended})"
    if connection.dialect.name == "postgresql":
        free += f" OR lease.life NOT IN ({_ALIVE})"
    taken = connection.execute(
        sa.text(
            "INSERT INTO lease (name, holder, life, fence, until, asked, told) "
            f"VALUES (:name, :holder, :life, 1, {now} + {float(seconds)}, {_false(connection)}, NULL) "
            "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, life = excluded.life, fence = lease.fence + 1, "
            f"until = excluded.until, asked = {_false(connection)}, told = NULL WHERE {free} RETURNING fence"
        ),
        {"name": name, "holder": holder, "life": life},
    ).scalar()
    return None if taken is None else int(taken)


def _false(connection: sa.Connection) -> str:
    return "false" if connection.dialect.name == "postgresql" else "0"


def renew(connection: sa.Connection, held: Mapping[str, int], seconds: float) -> dict[str, bool]:
    """Move the end of leases (name → fence) on; name → whether its holder was asked to stop, of those that are still held.

    One that was given back meanwhile stays so: it would keep others waiting for a holder that is not there.
    """
    if not held:
        return {}
    later = sa.literal_column(f"{_now(connection)} + {float(seconds)}", sa.Double)
    still = sa.update(Lease).where(_one_of(held), Lease.c.until > 0.0)
    moved = still.values(until=later).returning(Lease.c.name, Lease.c.asked)
    return {str(name): bool(asked) for name, asked in connection.execute(moved)}


def _one_of(held: Mapping[str, int]) -> sa.ColumnElement[bool]:
    return sa.or_(*(sa.and_(Lease.c.name == name, Lease.c.fence == fence) for name, fence in held.items()))


def give_back(connection: sa.Connection, held: Mapping[str, int]) -> None:
    """End leases, if they are still held."""
    if held:
        connection.execute(sa.update(Lease).where(_one_of(held)).values(until=0.0, told=None))


def forget(connection: sa.Connection, held: Mapping[str, int]) -> None:
    """Delete the rows of leases that nobody will take again, if they are still held."""
    if held:
        connection.execute(sa.delete(Lease).where(_one_of(held)))


def sweep(connection: sa.Connection, prefixes: Collection[str], seconds: float) -> None:
    """Delete rows of leases that ended so long ago."""
    old = sa.literal_column(f"{_now(connection)} - {float(seconds)}", sa.Double)
    some = sa.or_(*(Lease.c.name.startswith(one) for one in prefixes))
    connection.execute(sa.delete(Lease).where(some, Lease.c.until < old))


def tell(connection: sa.Connection, name: str, fence: int, told: Mapping[str, Any]) -> None:
    """Write what a holder tells of its work."""
    here = (Lease.c.name == name) & (Lease.c.fence == fence)
    connection.execute(sa.update(Lease).where(here).values(told=dict(told)))


def ask_to_stop(connection: sa.Connection, name: str) -> None:
    """Ask the holder of a lease to stop."""
    connection.execute(sa.update(Lease).where(Lease.c.name == name).values(asked=True))


def leases(connection: sa.Connection) -> list[tuple[LeaseRow, bool]]:
    """All leases that were not given back, and whether each has run out by the clock."""
    now = float(connection.execute(sa.text(f"SELECT {_now(connection)}")).scalar_one())
    found = all_rows(connection, sa.select(Lease).where(Lease.c.until > 0.0).order_by(Lease.c.id), LeaseRow)
    return [(row, row.until < now) for row in found]


def lease(connection: sa.Connection, name: str) -> LeaseRow | None:
    """A lease by its name."""
    return first_row(connection, sa.select(Lease).where(Lease.c.name == sa.bindparam("name")), LeaseRow, name=name)


def still_holds(connection: sa.Connection, name: str, fence: int) -> bool:
    """Whether nobody has taken the lease since: the row is kept as it is until this transaction ends."""
    found = sa.select(Lease.c.fence).where(Lease.c.name == name)
    if connection.dialect.name == "postgresql":
        found = found.with_for_update(read=True)
    return connection.execute(found).scalar() == fence
