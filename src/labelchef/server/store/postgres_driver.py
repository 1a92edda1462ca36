"""pg8000 with fewer round trips: a vote is about thirty statements, and each cost four answers of the server.

A statement is parsed once a connection, under a name; afterwards its values and the order to run it are sent at once and answered
once. The beginning of a transaction travels with its first statement. What is sent and how answers are read is pg8000's own.
Only methods are used that pg8000's classes share with each other since 1.30.
"""

import functools
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from pg8000 import core, legacy
from pg8000.converters import make_params
from pg8000.dbapi import convert_paramstyle
from pg8000.exceptions import DatabaseError

_MOST_PREPARED = 300
"""Statements that a connection keeps."""
_BEGIN = "begin transaction"
_NO_SUCH_STATEMENT, _CHANGED_TYPE = "26000", "0A000"
_ERRORS = {"28000": legacy.InterfaceError, "23505": legacy.IntegrityError}


@functools.lru_cache(maxsize=2048)
def _numbered(operation: str, n: int) -> str:
    """A statement with $1, $2, … in the place of %s."""
    return str(convert_paramstyle("format", operation, (None,) * n)[0])


class Cursor(legacy.Cursor):  # type: ignore[misc]
    """A cursor that runs statements with values as prepared ones."""

    def execute(self, operation: str, args: Any = (), stream: Any = None) -> Any:
        """Run a statement."""
        if len(args) == 0 or stream is not None or not isinstance(args, list | tuple):
            return super().execute(operation, args, stream)
        connection = self._c
        if connection is None:
            raise legacy.InterfaceError("Cursor closed")
        try:
            if not connection._in_transaction and not connection.autocommit:
                connection.execute_simple(_BEGIN)
            oids = tuple(self._input_oids)  # type: ignore[has-type]
            self._context = connection.run_prepared(_numbered(operation, len(args)), args, oids)
        except DatabaseError as error:
            told = error.args[0]
            kind = (
                _ERRORS.get(told["C"], legacy.ProgrammingError) if isinstance(told, dict) else legacy.ProgrammingError
            )
            raise kind(told) from error
        self._row_iter = iter(self._context.rows or ())
        self._input_oids = ()
        return self


class Connection(legacy.Connection):  # type: ignore[misc]
    """A connection that keeps its statements prepared."""

    begin_as = _BEGIN
    """How the next transaction begins."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._unsent: str | None = None
        self._prepared: OrderedDict[tuple[str, tuple[int, ...]], tuple[bytes, Any, Any]] = OrderedDict()
        self._names = itertools.count()
        super().__init__(*args, **kwargs)

    def cursor(self) -> Cursor:
        """A new cursor."""
        return Cursor(self)

    @property
    def _in_transaction(self) -> bool:
        return self._unsent is not None or bool(super()._in_transaction)

    def execute_simple(self, statement: str) -> Any:
        """Run a statement without values; the beginning of a transaction waits for what follows."""
        if statement == _BEGIN:
            self._unsent = self.begin_as
            return core.Context(statement)
        begun = self._send_unsent()
        self.send_QUERY(statement)
        core._flush(self._sock)
        self._take_begun(begun)
        context = core.Context(statement)
        self.handle_messages(context)
        return context

    def execute_unnamed(
        self, statement: str, vals: Sequence[Any] = (), oids: Sequence[int] = (), stream: Any = None
    ) -> Any:
        """Run a statement that is not kept."""
        begun = self._send_unsent()
        if begun:
            core._flush(self._sock)
            self._take_begun(begun)
        return super().execute_unnamed(statement, vals, oids, stream)

    def commit(self) -> None:
        """Commit; nothing is sent if nothing was run."""
        if self._unsent is not None:
            self._unsent = None
        elif self._in_transaction:
            self.execute_simple("commit")

    def rollback(self) -> None:
        """Roll back; nothing is sent if nothing was run."""
        if self._unsent is not None:
            self._unsent = None
        elif self._in_transaction:
            self.execute_simple("rollback")

    def run_prepared(self, statement: str, values: Sequence[Any], oids: tuple[int, ...]) -> Any:
        """Run a statement by its name; the first time it is parsed with the same message."""
        params = make_params(self.py_types, values)
        if self._sock is None:
            raise legacy.InterfaceError("connection is closed")
        begun, key = self._send_unsent(), (statement, oids)
        known = self._prepared.get(key)
        if known is None:
            name = f"labelchef_{next(self._names)}".encode() + core.NULL_BYTE
            self.send_PARSE(name, statement, oids)
            self._send_message(core.DESCRIBE, core.STATEMENT + name)
            context = core.Context(statement)
        else:
            name, columns, input_funcs = known
            self._prepared.move_to_end(key)
            context = core.Context(statement, columns=columns, input_funcs=input_funcs)
        self.send_BIND(name, params)
        core._write(self._sock, core.EXECUTE_MSG)
        if len(self._prepared) >= _MOST_PREPARED and known is None:
            _, (old, *_rest) = self._prepared.popitem(last=False)
            self._send_message(core.CLOSE, core.STATEMENT + old)
        core._write(self._sock, core.SYNC_MSG)
        core._flush(self._sock)
        self._take_begun(begun)
        try:
            self.handle_messages(context)
        except DatabaseError as error:
            told = error.args[0]
            if isinstance(told, dict) and told.get("C") in (_NO_SUCH_STATEMENT, _CHANGED_TYPE):
                self._prepared.clear()  # another version has changed the tables: they are parsed again
            raise
        if known is None:
            self._prepared[key] = name, context.columns, context.input_funcs
        return context

    def handle_messages(self, context: Any) -> None:
        """Read answers; a connection that breaks meanwhile is the error that SQLAlchemy knows: it gives up the others too."""
        try:
            super().handle_messages(context)
        except OSError as error:
            raise legacy.InterfaceError("network error") from error

    def _send_unsent(self) -> bool:
        statement, self._unsent = self._unsent, None
        if statement is not None:
            self.send_QUERY(statement)
        return statement is not None

    def _take_begun(self, begun: bool) -> None:
        if begun:
            self.handle_messages(core.Context(_BEGIN))
