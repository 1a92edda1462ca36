"""Rows of a SQL query, fetched once into a file of JSON lines, so that everything after sees the same rows.

The URL is SQLAlchemy's (dialect+driver://user:password@host/database). Passwords appear in no message and no file.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.files import whole_file
from labelchef.base.intake import Progress, no_progress
from labelchef.data.files.formats import MOST_BYTES, text_of

_CHUNK = 5_000


@dataclass(frozen=True)
class SqlQuery:
    """A query and the database that it is asked of.

    >>> SqlQuery("postgresql://me:secret@host/db", "select 1")
    SqlQuery(query='select 1', name='query')
    """

    url: str = field(repr=False)
    query: str
    name: str = "query"
    """What the rows are called in messages and the preview."""


def fetch(asked: SqlQuery, into: Path, progress: Progress = no_progress) -> Path:
    """Ask the database and write the rows to `into`/`name`.jsonl; every value as text, NULL as null."""
    try:
        import sqlalchemy
        from sqlalchemy.engine import make_url
    except ImportError:
        raise MissingExtraError("a SQL query needs SQLAlchemy; pip install 'labelchef[sql]'", code="sql") from None
    try:
        url = make_url(asked.url)
    except Exception:
        raise InvalidInputError(
            "the database's URL cannot be read; expected dialect://user:password@host/database, such as "
            "sqlite:///data.db",
            code="sql",
        ) from None
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:") and not _is_file(url.database):
        raise InvalidInputError(f"there is no database {url.database}; check the URL", code="sql")
    path = into / f"{asked.name}.jsonl"
    try:
        engine = sqlalchemy.create_engine(url)
    except Exception as error:
        raise _failed(shown, error, url.password) from None
    try:
        with engine.connect().execution_options(stream_results=True) as connection, whole_file(path) as stream:
            _write_rows(connection.execute(sqlalchemy.text(asked.query)), stream, asked.name, progress)
    except InvalidInputError:
        raise
    except Exception as error:
        raise _failed(shown, error, url.password) from None
    finally:
        engine.dispose()
    return path


def _write_rows(answer: Any, stream: IO[bytes], name: str, progress: Progress) -> None:
    if not answer.returns_rows:
        raise InvalidInputError("the query returns no rows; expected a SELECT", code="sql")
    names = list(map(str, answer.keys()))
    if len(set(names)) < len(names):
        raise InvalidInputError(f"the query names a column twice: {names}; rename one with AS", code="sql")
    written = done = 0
    for some in answer.partitions(_CHUNK):
        for row in some:
            record = dict(zip(names, map(text_of, row), strict=True))
            written += stream.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        done += len(some)
        if written > MOST_BYTES:
            raise InvalidInputError(
                f"the query returns more than {MOST_BYTES >> 30} GiB; select fewer rows or columns", code="sql"
            )
        progress(f"fetching rows of {name}", done, 0)


def _is_file(database: str | None) -> bool:
    return database is not None and (database.startswith("file:") or Path(database).is_file())


def _failed(shown: str, error: Exception, password: object) -> InvalidInputError:
    why = str(getattr(error, "orig", None) or error).split("\n")[0][:300]
    if password:
        why = why.replace(str(password), "***")
    return InvalidInputError(f"the query on {shown} failed: {why}. Check the URL and the query", code="sql")
