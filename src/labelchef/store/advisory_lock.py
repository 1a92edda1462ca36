"""The worker's lock in a PostgreSQL database: the process that holds it moves the rounds of all its campaigns on."""

import contextlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from labelchef.domain.errors import StoreError
from labelchef.store.database import Database

_KEY = 0x6C6162656C636866  # "labelchf"; the server keeps such locks for each database apart
_LOST = (SQLAlchemyError, OSError)  # the driver lets a broken socket through as it is


class AdvisoryLock:
    """An advisory lock on a connection of its own: the server gives it back when the connection ends, however it ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sa.Connection | None = None
        self._driver: Any = None

    def take(self) -> bool:
        """Take the lock if it is free; tell whether this process holds it now."""
        try:
            connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            connection.detach()  # closed for good afterwards, not given back to the pool with the lock on it
            try:
                got = connection.execute(sa.select(sa.func.pg_try_advisory_lock(_KEY))).scalar_one()
            except BaseException:
                connection.close()
                raise
        except _LOST as error:
            place = self._database.engine.url.render_as_string(hide_password=True)
            raise StoreError(
                f"{place} does not answer ({str(error).splitlines()[0][:200]}); no worker can run. Check the database",
                code="database_down",
            ) from error
        if got:
            self._connection, self._driver = connection, connection.connection.dbapi_connection
        else:
            connection.close()
        return bool(got)

    def held(self) -> bool:
        """Whether the connection, and the lock with it, is still there."""
        if self._connection is None:
            return False
        try:
            self._connection.execute(sa.select(1))
        except _LOST:
            self.release()
            return False
        return True

    def release(self) -> None:
        """Give the lock back."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(*_LOST):
            connection.close()
        with contextlib.suppress(Exception):  # closed already, unless there was something to roll back and nobody there
            self._driver.close()
        self._driver = None
