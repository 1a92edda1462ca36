"""All rows of a database as JSON lines, and back: the same text for SQLite and PostgreSQL.

A line is a JSON array of the values of a row in the order of `columns_of`. JSON columns are kept as the text that is stored, so
that digests over rows stay what they were; times and numbers are exact; NaN and infinities are texts ("NaN", "Infinity").

    dump   SELECT … ORDER BY primary key, in one transaction of the caller (a consistent view), chunks of about 4 MiB
    load   INSERT, chunk by chunk; PostgreSQL reads a chunk in one statement (json_to_recordset)

Sessions and attempts to sign in are left out: people sign in again after a restore. So are leases of workers. The full-text
index is filled by triggers.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from labelchef.server.store import search
from labelchef.server.store.campaign_table import gather_statistics
from labelchef.server.store.tables import METADATA, Enumerated, SettingsColumn

_LEFT_OUT = frozenset({"login_session", "login_attempt", "lease"})
_CHUNK = 4 * 2**20
_ROWS = 20_000
_POSTGRES = {"number": "bigint", "float": "double precision", "text": "text", "truth": "boolean", "json": "text"}


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table."""

    table: str
    lines: bytes
    rows: int


def tables() -> list[sa.Table]:
    """The tables that are kept, those first that others refer to."""
    return [table for table in METADATA.sorted_tables if table.name not in _LEFT_OUT]


def columns_of(table: sa.Table) -> list[str]:
    """Names of the columns of a table."""
    return [column.name for column in table.columns]


def dump(connection: sa.Connection) -> Iterator[Chunk]:
    """Every row of the tables that are kept, in an order in which they can be inserted again."""
    for table in tables():
        primary = next(iter(table.primary_key.columns))
        found = connection.execution_options(yield_per=1000).execute(
            sa.select(*(_raw(column) for column in table.columns)).order_by(primary)
        )
        lines, size = list[bytes](), 0
        for row in found:
            line = json.dumps([_kept(value) for value in row], ensure_ascii=False, separators=(",", ":")).encode()
            lines.append(line)
            size += len(line) + 1
            if size >= _CHUNK or len(lines) >= _ROWS:
                yield Chunk(table.name, b"\n".join(lines) + b"\n", len(lines))
                lines, size = [], 0
        if lines:
            yield Chunk(table.name, b"\n".join(lines) + b"\n", len(lines))


def load(connection: sa.Connection, chunk: Chunk) -> None:
    """Insert the rows of a chunk; the tables are there and hold nothing of it yet."""
    table = METADATA.tables[chunk.table]
    rows = [json.loads(line) for line in chunk.lines.splitlines()]
    if connection.dialect.name == "postgresql":
        _load_postgres(connection, table, rows)
    else:
        _load_sqlite(connection, table, rows)


def finish(connection: sa.Connection) -> None:
    """Let new rows count on after those that were loaded: SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in tables():
        if "id" in table.columns:
            last = f"SELECT max(id) FROM {table.name}"
            sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
            statement = f"SELECT setval({sequence}, ({last})) WHERE ({last}) IS NOT NULL AND {sequence} IS NOT NULL"
            connection.execute(sa.text(statement))
    gather_statistics(connection, *(table.name for table in tables()), search.TABLE)


def is_empty(connection: sa.Connection) -> bool:
    """Whether no table holds a row."""
    found = (connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() for table in tables())
    return all(one is None for one in found)


def _kind(column: sa.Column[Any]) -> str:
    kind = column.type
    if isinstance(kind, sa.JSON | SettingsColumn):
        return "json"
    if isinstance(kind, Enumerated | sa.Text):
        return "text"
    if isinstance(kind, sa.Boolean):
        return "truth"
    return "float" if isinstance(kind, sa.Double) else "number"


def _raw(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A column as it is stored: JSON and members of enums as text."""
    kind = _kind(column)
    if kind == "json":
        return sa.cast(column, sa.Text).label(column.name)
    return sa.type_coerce(column, sa.Text).label(column.name) if kind == "text" else column


def _kept(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _load_sqlite(connection: sa.Connection, table: sa.Table, rows: Sequence[list[Any]]) -> None:
    kinds = [_kind(column) for column in table.columns]
    names = ", ".join(f'"{name}"' for name in columns_of(table))
    places = ", ".join("?" for _ in kinds)
    values = [
        tuple(
            float(value) if kind == "float" and value is not None else value
            for kind, value in zip(kinds, row, strict=True)
        )
        for row in rows
    ]
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({places})", values)


def _load_postgres(connection: sa.Connection, table: sa.Table, rows: Sequence[list[Any]]) -> None:
    names, kinds = columns_of(table), [_kind(column) for column in table.columns]
    pairs = list(zip(names, kinds, strict=True))
    declared = ", ".join(f'"{name}" {_POSTGRES[kind]}' for name, kind in pairs)
    given = ", ".join(f'CAST(x."{name}" AS json)' if kind == "json" else f'x."{name}"' for name, kind in pairs)
    into = ", ".join(f'"{name}"' for name in names)
    content = json.dumps([dict(zip(names, row, strict=True)) for row in rows], ensure_ascii=False)
    connection.execute(
        sa.text(
            f"INSERT INTO {table.name} ({into}) SELECT {given} "
            f"FROM json_to_recordset(CAST(:rows AS json)) AS x({declared})"
        ),
        {"rows": content},
    )
