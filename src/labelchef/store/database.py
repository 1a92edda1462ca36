"""The database: SQLite with one writer by default, PostgreSQL by URL.

`reading` and `writing` give a connection with a transaction around it. On SQLite a writer holds a lock of the process
and begins with BEGIN IMMEDIATE, so that it never fails half-way because of another one; on PostgreSQL `lock_campaign`
makes writers of one campaign wait for each other. Errors of the driver become a `StoreError` that says what to do.
"""

import contextlib
import getpass
import logging
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, NoSuchModuleError, OperationalError, SQLAlchemyError

from labelchef.domain.errors import InvalidInputError, MissingExtraError, StoreError
from labelchef.store.sqlite_files import LOG, OpenFiles, identity, make_database
from labelchef.store.tables import Campaign

_log = logging.getLogger("labelchef")

BUSY_SECONDS = 10.0
"""How long a transaction waits for another process to finish its own."""
_WORKER = 0x6C6162656C636866  # "labelchf"; the server keeps such locks for each database apart
_LOST = (SQLAlchemyError, OSError)  # the driver lets a broken socket through as it is


class Database:
    """An open database; `close` gives its connections back."""

    def __init__(self, url: sa.URL, path: Path | None) -> None:
        self.path = path
        self._writer = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._files: OpenFiles | None = None
        self._gate = threading.Lock()
        self._inside = 0
        self._abandoned = False
        self.engine = _sqlite(url) if path is not None else _postgres(url)
        event.listen(self.engine, "before_cursor_execute", _refuse_null)
        snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._read_options: dict[str, Any] = {} if self.is_sqlite else snapshot

    @property
    def is_sqlite(self) -> bool:
        """Whether this is the embedded database."""
        return self.path is not None

    @property
    def driver_error(self) -> type[Exception]:
        """What the driver raises: it comes as it is where a connection is prepared, before SQLAlchemy runs a statement."""
        found: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        return found

    def remember_file(self) -> None:
        """Remember which file this is, so that its loss is noticed before a vote is lost."""
        if self.path is not None:
            self._identity = identity(self.path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A consistent view; nothing can be written."""
        with (
            self._translated(),
            self._files_there(),
            self.engine.connect().execution_options(**self._read_options) as connection,
            connection.begin(),
        ):
            yield connection

    @contextlib.contextmanager
    def writing(self, *, lasting: bool = True) -> Iterator[sa.Connection]:
        """A transaction: all of it is stored when the block ends, or nothing.

        Without `lasting` the transaction does not wait for the disk: a power cut may undo what was written last. Leases are
        written in this way, since their loss costs nothing; votes never are.
        """
        kind = "lasting" if lasting else "passing"
        with self._translated(), self._one_writer(), self._files_there():
            with self.engine.connect().execution_options(labelchef_write=kind) as connection, connection.begin():
                if not lasting and not self.is_sqlite:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit TO OFF")
                yield connection
                self._check_files()
            self._check_files(committed=True)

    def lock_campaign(self, connection: sa.Connection, campaign_id: int) -> None:
        """Make other writers of this campaign wait until this transaction ends; SQLite has one writer anyway."""
        if not self.is_sqlite:
            connection.execute(sa.select(Campaign.c.id).where(Campaign.c.id == campaign_id).with_for_update())

    def close(self) -> None:
        """Give back the connections."""
        with self._gate:
            self._close()

    def _close(self) -> None:
        if self._abandoned:
            return
        files, self._files = self._files, None
        self.engine.dispose()
        if files is not None:
            files.close()

    @contextlib.contextmanager
    def _one_writer(self) -> Iterator[None]:
        if not self.is_sqlite:
            yield
            return
        if not self._writer.acquire(timeout=BUSY_SECONDS):
            raise StoreError(
                f"the database was busy for {BUSY_SECONDS:.0f} s; nothing was stored. Try again", code="locked"
            )
        try:
            yield
        finally:
            self._writer.release()

    @contextlib.contextmanager
    def _files_there(self) -> Iterator[None]:
        """Refuse to begin if a file of the database is gone, unless what it held can be saved."""
        if self.path is None or self._identity is None:
            yield
            return
        with self._gate:
            if self._files is not None and self._files.lost() not in (None, "") and self._inside == 0:
                self._save()
            self._check_files()
            if self._files is None:
                try:
                    self._files = OpenFiles(self.path)
                except (sqlite3.Error, OSError) as error:
                    raise _sentence(error, self.engine.url) from error
            self._inside += 1
        try:
            yield
        finally:
            with self._gate:
                self._inside -= 1

    def _save(self) -> None:
        """The log or its index is gone: copy the log, which is still open here, into the database and begin a new one."""
        assert self._files is not None, "nothing is lost before files are open"
        with contextlib.suppress(OSError):  # a database that is gone too cannot be helped
            if not self._abandoned and identity(str(self.path)) == self._identity and self._files.save():
                self._close()
                _log.error(
                    "%s%s was moved, deleted or replaced while it was in use. Nothing is lost: what it held was copied into the "
                    "database. Files of a database that is in use must be left alone",
                    self.path,
                    LOG,
                )

    def _check_files(self, *, committed: bool = False) -> None:
        """Refuse if a file is gone: what is written to it would be lost when this process ends."""
        if self.path is None or self._identity is None:
            return
        try:
            same = identity(self.path) == self._identity
        except OSError:
            same = False
        if not same:
            raise StoreError(
                f"{self.path} was moved, deleted or replaced while it was in use; nothing more is stored. "
                "Put it back and start again",
                code="database_gone",
            )
        if self._files is None:
            return
        lost = self._files.lost()
        if not self._abandoned and (self._files.begun_anew() if lost else committed and self._files.cut_off()):
            self._abandoned = True
            self._files.leave_open(self.engine.pool)
        if lost is not None or self._abandoned:
            remedy = (
                "Stop every labelchef process of this database, then start again" if self._abandoned else "Try again"
            )
            raise StoreError(
                f"{self.path}{lost or LOG} was moved, deleted or replaced while it was in use; nothing is stored now. {remedy}",
                code="log_gone",
            )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise _sentence(error, self.engine.url) from error
        except (
            ConnectionError,
            self.driver_error,
        ) as error:  # a broken socket, or an error of the driver, comes as it is
            place = self.engine.url.render_as_string(hide_password=True)
            why = getattr(error, "strerror", None) or error
            raise StoreError(
                f"{place} broke the connection ({why}); nothing was stored. Try again",
                code="database_down",
            ) from error


class AdvisoryLock:
    """The worker's lock in a PostgreSQL database: the process that holds it moves the rounds of all its campaigns on.

    It is on a connection of its own: the server gives it back when the connection ends, however it ends.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sa.Connection | None = None
        self._driver: Any = None

    def take(self) -> bool:
        """Take the lock if it is free; tell whether this process holds it now."""
        try:
            connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            connection.detach()  # closed for good afterwards, not given back to the pool with the lock on it
            driver = connection.connection.dbapi_connection
            try:
                got = connection.execute(sa.select(sa.func.pg_try_advisory_lock(_WORKER))).scalar_one()
            except BaseException:
                with contextlib.suppress(Exception):
                    connection.close()
                with contextlib.suppress(Exception):  # a connection that broke keeps its socket otherwise
                    driver.close()  # type: ignore[union-attr]
                raise
        except (*_LOST, self._database.driver_error) as error:
            place = self._database.engine.url.render_as_string(hide_password=True)
            raise StoreError(
                f"{place} does not answer ({str(error).splitlines()[0][:200]}); no worker can run. Check the database",
                code="database_down",
            ) from error
        if got:
            self._connection, self._driver = connection, driver
        else:
            connection.close()
        return bool(got)

    def held(self) -> bool:
        """Whether the connection, and the lock with it, is still there."""
        if self._connection is None:
            return False
        try:
            self._connection.execute(sa.select(1))
        except (*_LOST, self._database.driver_error):
            self.release()
            return False
        return True

    def release(self) -> None:
        """Give the lock back."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(*_LOST):  # the server ends a closed connection later, so its lock is given back before
            connection.execute(sa.select(sa.func.pg_advisory_unlock(_WORKER)))
        with contextlib.suppress(*_LOST):
            connection.close()
        with contextlib.suppress(Exception):  # closed already, unless there was something to roll back and nobody there
            self._driver.close()
        self._driver = None


def open_database(url: str | Path) -> Database:
    """Open a database: the path of a SQLite file, or a URL.

    >>> import tempfile
    >>> database = open_database(Path(tempfile.mkdtemp()) / "labelchef.db")
    >>> with database.reading() as connection:
    ...     print(connection.execute(sa.text("select 1")).scalar())
    1
    >>> database.close()
    """
    if isinstance(url, Path):
        make_database(url)
        return Database(sa.URL.create("sqlite", database=str(url)), url)
    try:
        parsed = sa.make_url(url)
    except (SQLAlchemyError, ValueError):
        raise StoreError(
            f"{url!r} is no address of a database; expected postgresql://user@host/name or sqlite:///file",
            code="database_url",
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        make_database(Path(str(parsed.database)))
        return Database(parsed, Path(str(parsed.database)))
    if backend != "postgresql":
        raise StoreError(
            f"databases of kind {backend!r} are not supported; expected postgresql://… or sqlite:///file",
            code="database_url",
        )
    if "+" not in parsed.drivername:
        parsed = parsed.set(drivername="postgresql+pg8000")
    if parsed.username is None:
        parsed = parsed.set(username=getpass.getuser())
    return Database(parsed, None)


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        poolclass=sa.QueuePool,
        pool_size=8,
        max_overflow=56,
        pool_timeout=BUSY_SECONDS,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin when `_begin` says so, not when the driver guesses
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-32768"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("labelchef_write")
        connection.exec_driver_sql(f"PRAGMA query_only={'ON' if write is None else 'OFF'}")
        if write is not None:
            connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if write == 'lasting' else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN" if write is None else "BEGIN IMMEDIATE")

    return engine


def _postgres(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(url, pool_size=8, max_overflow=56, pool_pre_ping=True, pool_timeout=BUSY_SECONDS)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"PostgreSQL needs the driver {error.name}; pip install 'labelchef[postgres]'", code="postgres"
        ) from None
    except NoSuchModuleError:
        raise StoreError(
            f"there is no driver {url.drivername!r}; expected postgresql://… (pg8000)", code="database_url"
        ) from None


def _refuse_null(_connection: Any, _cursor: Any, _statement: Any, values: Any, context: Any, many: bool) -> None:
    """Refuse to write text with a null character: SQLite would take it, PostgreSQL fails."""
    if context is None or not (context.isinsert or context.isupdate):
        return
    for row in values if many else (values,):
        for value in row.values() if isinstance(row, dict) else row:
            if isinstance(value, str) and "\x00" in value:
                told = f"the text {value[:60]!r} holds a null character, which no database can keep; remove it"
                raise InvalidInputError(told, code="input")


_CAUSES = (
    (r"locked|busy", "locked", "another process holds the database; nothing was stored. Try again"),
    (r"disk is full|no space|enospc", "disk_full", "the disk is full; nothing was stored. Make room and try again"),
    (
        r"readonly|read-only|permission denied|unable to open",
        "database_rights",
        "the database cannot be opened or written; check the folder, its rights and its owner",
    ),
    (
        r"malformed|not a database|disk i/o",
        "database_damaged",
        "the database file is damaged; nothing was stored. Restore it from a copy",
    ),
    (r"append-only", "append_only", "votes and decisions are only ever appended; nothing was changed"),
)


def _sentence(error: Exception, url: sa.URL) -> StoreError:
    """What went wrong, with the address of the database but without its password."""
    place = url.render_as_string(hide_password=True)
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    for pattern, code, sentence in _CAUSES:
        if re.search(pattern, said, re.IGNORECASE):
            return StoreError(f"{place}: {sentence}", code=code)
    if isinstance(error, OperationalError | InterfaceError) or "pool" in said.lower():
        return StoreError(
            f"{place} does not answer ({said.splitlines()[0][:200]}); nothing was stored. Check the database",
            code="database_down",
        )
    return StoreError(f"{place}: {said[:300]}; nothing was stored", code="database")
