"""Make the tables of a new database, and refuse one of another version: there is one schema, that of labelchef 0.2.

Whoever changes `server.store.tables` gives `VERSION` another name, and `prepare` the statements that bring a database of 0.2 to
it.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from labelchef.base.errors import StoreError
from labelchef.server.store import search
from labelchef.server.store.database import Database
from labelchef.server.store.removal import guards
from labelchef.server.store.tables import METADATA

VERSION = "0312_imported"
"""The schema of labelchef 0.2."""
_RELEASED = {"0001": "labelchef 0.1"}
_VERSIONS = sa.Table(
    "alembic_version",  # as Alembic named it, which made the first databases
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


@dataclass(frozen=True)
class SchemaStanding:
    """Which schema a database has, and whether it has tables."""

    current: str | None
    empty: bool


def standing_of(database: Database) -> SchemaStanding:
    """The schema that a database says it has."""
    with database.reading() as connection:
        return _standing(connection)


def prepare(database: Database) -> None:
    """Make the tables if there are none; of several processes one makes them, while others wait.

    A database of another version, or of other tables, is refused; one of this version is only read.
    """
    found = standing_of(database)
    if not found.empty:
        _check(found)
        return
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7610531)"))
        if not _standing(connection).empty:  # another process has made it
            return
        METADATA.create_all(connection)
        search.create(connection)
        _VERSIONS.create(connection)
        connection.execute(sa.insert(_VERSIONS).values(version_num=VERSION))
        for statement in guards(connection.dialect.name):
            connection.execute(sa.text(statement))


def _standing(connection: sa.Connection) -> SchemaStanding:
    tables = sa.inspect(connection).get_table_names()
    current = None
    if _VERSIONS.name in tables:
        current = connection.execute(sa.select(_VERSIONS.c.version_num)).scalar_one_or_none()
    return SchemaStanding(current, not tables)


def _check(found: SchemaStanding) -> None:
    """Refuse a database of another version, with what to do."""
    current = found.current
    if current is None:
        raise StoreError("the database holds tables that labelchef did not make; name another one", code="schema")
    if current > VERSION:
        raise StoreError(
            f"the database is of a later version of labelchef ({current}); install that version", code="schema"
        )
    if current < VERSION:
        made = _RELEASED.get(current, f"a version of labelchef 0.2 before its release ({current})")
        raise StoreError(
            f"the database was made by {made} and cannot be opened by this version; nothing was changed. Export its labels "
            f"and votes with {_RELEASED.get(current, 'the version that made it')}, or start with a new --home or database",
            code="schema",
        )
