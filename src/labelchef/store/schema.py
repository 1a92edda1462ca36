"""Bring a database to the schema of this version.

A new one is made from `store.tables`; the steps in `migrations` are for those that an earlier version made. The triggers of
the ledger are made anew after both, so a step need not make those of a new table.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from labelchef.domain.errors import StoreError
from labelchef.store import search
from labelchef.store.database import Database
from labelchef.store.removal import guards
from labelchef.store.tables import METADATA

_OLD = "0001"  # labelchef 0.1
_STEPS = Path(__file__).parent / "migrations"


def is_new(database: Database) -> bool:
    """Whether there are no tables in the database."""
    with database.reading() as connection:
        return not sa.inspect(connection).get_table_names()


@dataclass(frozen=True)
class SchemaStanding:
    """Which schema a database has, and which one this program expects."""

    current: str | None
    expected: str


@functools.cache
def expected_schema() -> str:
    """The schema of this program."""
    found = ScriptDirectory(str(_STEPS)).get_current_head()
    assert found is not None, "there are migrations"
    return found


def standing_of(database: Database) -> SchemaStanding:
    """Compare the schema of a database with this program's."""
    with database.reading() as connection:
        return SchemaStanding(MigrationContext.configure(connection).get_current_revision(), expected_schema())


def migrate(database: Database) -> None:
    """Make the tables if there are none; a database of an earlier version is changed by one process, while others wait.

    A database of a later version, or of other tables, is refused; one of this version is only read.
    """
    script = ScriptDirectory(str(_STEPS))
    with database.reading() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        tables = set(sa.inspect(connection).get_table_names())
    if current == script.get_current_head():
        return
    if current == _OLD:
        raise StoreError(
            "the database was made by labelchef 0.1 and cannot be opened by this version; nothing was changed. Export its "
            "labels and votes with labelchef 0.1, or start with a new --home or database",
            code="schema",
        )
    known = {step.revision for step in script.walk_revisions()}
    if current is not None and current not in known:
        raise StoreError(
            f"the database is of a later version of labelchef ({current}); install that version", code="schema"
        )
    if current is None and tables - {"alembic_version"}:
        raise StoreError("the database holds tables that labelchef did not make; name another one", code="schema")
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7610531)"))
        config = Config()
        config.set_main_option("script_location", str(_STEPS).replace("%", "%%"))
        config.attributes["connection"] = connection
        if (
            MigrationContext.configure(connection).get_current_revision() is not None
        ):  # another process may have made it
            command.upgrade(config, "head")
        else:
            METADATA.create_all(connection)
            search.create(connection)
            command.stamp(config, "head")
        for statement in guards(connection.dialect.name):
            connection.execute(sa.text(statement))
