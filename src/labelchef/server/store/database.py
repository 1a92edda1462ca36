"""The database: SQLite with one writer by default, PostgreSQL by URL.

`reading` and `writing` give a connection with a transaction around it. On SQLite a writer holds a lock of the process
and begins with BEGIN IMMEDIATE, so that it never fails half-way because of another one; on PostgreSQL `lock_campaign`
makes writers of one campaign wait for each other. Errors of the driver become a `StoreError` that says what to do.

A SQLite file where nothing can be written is only read. A log beside it is read with it, if its index is there too.
"""

import contextlib
import getpass
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as NoConnectionError

from labelchef.base.errors import InvalidInputError, MissingExtraError, StoreError
from labelchef.server.store.lease_table import LIVES
from labelchef.server.store.sqlite_files import LOG, OpenFiles, identity, make_database
from labelchef.server.store.tables import Campaign

_PRAGMAS = ("foreign_keys=ON", "cache_size=-32768")
BUSY_SECONDS = 10.0
"""How long a transaction waits for another process to finish its own."""
_QUEUES = 64
_LOST = (SQLAlchemyError, OSError)  # the driver lets a broken socket through as it is


class Database:
    """An open database; `close` gives its connections back."""

    def __init__(self, url: sa.URL, path: Path | None, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        """Whether nothing can be written where the file is."""
        self._writer = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._files: OpenFiles | None = None
        self._gate = threading.Lock()
        self._may_group: bool | None = None
        self._queues = [threading.Lock() for _ in range(_QUEUES)]
        self.engine = _postgres(url) if path is None else _sqlite(_to_read(url, path) if read_only else url, read_only)
        event.listen(self.engine, "before_cursor_execute", _refuse_null)
        self._read_options: dict[str, Any] = {} if self.is_sqlite else {"labelchef_read": True}

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
        if self.path is not None and not self.read_only:
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
    def writing(self, *, lasting: bool = True, queue: str | None = None) -> Iterator[sa.Connection]:
        """A transaction: all of it is stored when the block ends, or nothing.

        Without `lasting` the transaction does not wait for the disk: a power cut may undo what was written last. Leases are
        written in this way, since their loss costs nothing; votes never are. Threads of this process that name the same `queue`
        take turns.
        """
        if self.read_only:
            why = f"{self.path} is where nothing can be written, so it is only read; for changes, give rights to its folder"
            raise StoreError(f"{why}, or copy it", code="database_rights")
        with self._translated(), self._one_writer(), self._files_there(), self._turn(queue) as over:
            grouped = lasting and queue is not None and self._groups()
            kind = "grouped" if grouped else "lasting" if lasting else "passing"
            with self.engine.connect().execution_options(labelchef_write=kind) as connection:
                with connection.begin():
                    yield connection
                    self._check_files()
                over()
                if grouped:
                    self._reach_disk(connection)
            self._check_files()

    @contextlib.contextmanager
    def _turn(self, queue: str | None) -> Iterator[Callable[[], None]]:
        """PostgreSQL: wait in a queue of this process; what is given ends the turn early.

        All of them would wait for one row of the database, each with a connection, and take the processor from the one whose turn
        it is.
        """
        with contextlib.ExitStack() as turn:
            if queue is not None and not self.is_sqlite:
                turn.enter_context(self._queues[hash(queue) % _QUEUES])
            yield turn.close

    def _groups(self) -> bool:
        """PostgreSQL: whether `_reach_disk` can be used."""
        if self.is_sqlite:
            return False
        if self._may_group is None:
            with self.engine.connect() as connection:
                self._may_group = bool(connection.execute(_MAY_EMIT).scalar_one())
        return self._may_group

    def _reach_disk(self, connection: sa.Connection) -> None:
        """Wait until everything that was committed is on disk, by a record in PostgreSQL's log that is committed after it.

        Votes of one campaign wait for each other. A transaction that waits for the disk itself keeps its locks meanwhile, so
        there would be one vote a write of the disk. Instead it ends at once, the next one goes on, and all wait for the disk
        together. The log is written in its order: what is on disk never rests on something that is not.
        """
        driver: Any = connection.connection.dbapi_connection
        try:
            driver.execute_simple("SELECT pg_catalog.pg_logical_emit_message(true, 'labelchef', '')")
        except (*_LOST, self.driver_error) as error:
            connection.invalidate()
            place = self.engine.url.render_as_string(hide_password=True)
            why = str(error).splitlines()[0][:200]
            raise StoreError(
                f"{place} broke the connection ({why}); it is not known whether this was stored. Try again",
                code="database_down",
            ) from error

    def pool_use(self) -> dict[str, int]:
        """How many connections of this process are at work, and how many wait for work."""
        pool = self.engine.pool
        assert isinstance(pool, sa.QueuePool), "both kinds of database have one"
        return {"busy": pool.checkedout(), "idle": pool.checkedin()}

    def try_to_write(self) -> None:
        """Fail as a vote would where the database does not answer, is read-only or is locked; nothing is changed."""
        with self.writing(lasting=False) as connection:
            connection.execute(sa.update(Campaign).where(sa.false()).values(version=Campaign.c.version))

    def lock_campaign(self, connection: sa.Connection, campaign_id: int) -> None:
        """Make other writers of this campaign wait until this transaction ends; SQLite has one writer anyway."""
        if not self.is_sqlite:
            connection.execute(sa.select(Campaign.c.id).where(Campaign.c.id == campaign_id).with_for_update())

    def notify(self, channel: str, payload: str) -> None:
        """PostgreSQL: tell those who are `subscribed`."""
        with self._translated(), self.engine.begin() as connection:
            connection.execute(sa.select(sa.func.pg_notify(channel, payload)))

    @contextlib.contextmanager
    def subscribed(self, channel: str) -> Iterator[tuple[Any, Callable[[], list[str]]]]:
        """PostgreSQL: a connection of its own that hears what is told on a channel: its socket, and what fetches the payloads.

        The socket is readable when something came; None where the driver does not show it.
        """
        with self._translated():
            connection = self.engine.connect()
            try:
                connection.detach()
                driver: Any = connection.connection.dbapi_connection
                with connection.begin():
                    connection.exec_driver_sql(f"LISTEN {channel}")

                def fetch() -> list[str]:
                    with self._translated(), connection.begin():  # they come between transactions only
                        connection.exec_driver_sql("SELECT 1")
                    found = [str(one[2]) for one in driver.notifications]
                    driver.notifications.clear()
                    return found

                yield getattr(driver, "_usock", None), fetch
            finally:
                with contextlib.suppress(Exception):
                    connection.close()

    def close(self) -> None:
        """Give back the connections."""
        with self._gate:
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
        """Refuse to begin if a file of the database is gone."""
        with self._gate:
            self._check_files()
            if self.path is not None and self._identity is not None and self._files is None:
                try:
                    self._files = OpenFiles(self.path)
                except (sqlite3.Error, OSError) as error:
                    raise _sentence(error, self.engine.url) from error
        yield

    def _check_files(self) -> None:
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
        if self._files is not None and (lost := self._files.lost()) is not None:
            raise StoreError(
                f"{self.path}{lost} was moved, deleted or replaced while it was in use; nothing more is stored. Stop every "
                "labelchef process of this database, put the file back if it was moved, and start again. If votes are missing "
                "then, restore the last backup (labelchef backup restore)",
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
    """A lock in a PostgreSQL database that tells others that this process lives.

    It is on a connection of its own: the server gives it back when the connection ends, however it ends.
    """

    def __init__(self, database: Database, life: int) -> None:
        self._database = database
        self._keys = (LIVES, life)
        self._connection: sa.Connection | None = None
        self._driver: Any = None

    @property
    def _integers(self) -> list[sa.ColumnElement[int]]:
        return [sa.cast(one, sa.Integer) for one in self._keys]

    def take(self) -> bool:
        """Take the lock if it is free; tell whether this process holds it now."""
        try:
            connection = self._database.engine.connect()
            connection.detach()  # closed for good afterwards, not given back to the pool with the lock on it
            driver = connection.connection.dbapi_connection
            try:
                with connection.begin():  # the lock stays with the connection
                    got = connection.execute(sa.select(sa.func.pg_try_advisory_lock(*self._integers))).scalar_one()
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
            with self._connection.begin():
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
        # the server ends a closed connection later, so its lock is given back before
        with contextlib.suppress(*_LOST), connection.begin():
            connection.execute(sa.select(sa.func.pg_advisory_unlock(*self._integers)))
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
        return _of_file(sa.URL.create("sqlite", database=str(url)), url)
    try:
        parsed = sa.make_url(url)
    except (SQLAlchemyError, ValueError):
        raise StoreError(
            f"{url!r} is no address of a database; expected postgresql://user@host/name or sqlite:///file",
            code="database_url",
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return _of_file(parsed, Path(str(parsed.database)))
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


def _of_file(url: sa.URL, path: Path) -> Database:
    read_only = path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    if not read_only:
        make_database(path)
    return Database(url, path, read_only=read_only)


def _to_read(url: sa.URL, path: Path) -> sa.URL:
    """The address of a file that is only read. Without a log nobody writes to it, so SQLite needs no index of one."""
    log = path.with_name(path.name + LOG)
    mode = "mode=ro" if log.is_file() and log.stat().st_size else "immutable=1"
    return url.set(database=f"file:{quote(str(path.absolute()))}?{mode}", query={"uri": "true"})


def _sqlite(url: sa.URL, read_only: bool) -> sa.Engine:
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
        for pragma in (() if read_only else ("journal_mode=WAL", "synchronous=FULL")) + _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("labelchef_write")
        connection.exec_driver_sql(f"PRAGMA query_only={'ON' if write is None else 'OFF'}")
        if write is not None:
            connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if write == 'lasting' else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN" if write is None else "BEGIN IMMEDIATE")

    return engine


_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NOT_YET = "BEGIN; SET LOCAL synchronous_commit TO OFF"
_WRITES = {None: "BEGIN", "lasting": "BEGIN", "grouped": _NOT_YET, "passing": _NOT_YET}
_MAY_EMIT = sa.text(
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE proname = 'pg_logical_emit_message' "
    "AND pronamespace = 'pg_catalog'::regnamespace AND has_function_privilege(oid, 'execute'))"
)
_TRUSTED_SECONDS = 1.0
"""For which a connection that was used is taken to be there still; older ones are asked."""


def _postgres(url: sa.URL) -> sa.Engine:
    try:
        engine = sa.create_engine(url, pool_size=16, max_overflow=48, pool_timeout=BUSY_SECONDS)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"PostgreSQL needs the driver {error.name}; pip install 'labelchef[postgres]'", code="postgres"
        ) from None
    except NoSuchModuleError:
        raise StoreError(
            f"there is no driver {url.drivername!r}; expected postgresql://… (pg8000)", code="database_url"
        ) from None

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, args: Any, given: Any) -> Any:
        from labelchef.server.store.postgres_driver import Connection

        return Connection(*args, **given)

    @event.listens_for(engine, "checkin")
    def _used(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _ask(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get("used", time.monotonic()) < _TRUSTED_SECONDS:
            return
        try:
            connection.execute_simple(";")
        except (*_LOST, engine.dialect.loaded_dbapi.Error) as error:
            raise DisconnectionError(str(error)) from error

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        driver: Any = connection.connection.dbapi_connection
        driver.begin_as = _READ if options.get("labelchef_read") else _WRITES[options.get("labelchef_write")]

    return engine


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
    if isinstance(error, OperationalError | InterfaceError | NoConnectionError):
        return StoreError(
            f"{place} does not answer ({said.splitlines()[0][:200]}); nothing was stored. Check the database",
            code="database_down",
        )
    return StoreError(f"{place}: {said[:300]}; nothing was stored", code="database")
