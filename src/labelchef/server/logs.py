"""The log of a server: one line an event, as JSON or as text, to the standard error. It holds no personal data.

What a line may hold is decided here, for every logger of the process, libraries too:

    event      the constant text of the call. Of what is put into it only numbers, paths of the server and errors whose words
               this program chose are shown; everything else is "…"
    facts      those of `base.events`
    error      type, code and places in the source, for the whole chain of causes; never the message, which may quote data
"""

import json
import logging
import re
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from labelchef.base.errors import LabelchefError, StoreError
from labelchef.base.events import FACTS

_HIDDEN = "…"
_OWN = ("labelchef",)
_PLACE = re.compile(r"%(?:\((?P<name>\w+)\))?[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[a-zA-Z]|%%")
_SAID = frozenset(
    {
        "locked", "disk_full", "database_rights", "database_damaged", "database_down", "database_gone", "log_gone",
        "database_empty", "home", "array_missing", "array_damaged", "array_digest", "key", "schema",
    }
)  # fmt: skip
"""Codes of store errors whose words are this program's own, with paths and addresses of the server only."""
_MOST_FRAMES = 20


class LogForm(StrEnum):
    """How much is logged, and how."""

    WARNINGS = "warnings"
    """Text, only what went wrong."""
    TEXT = "text"
    JSON = "json"


def configure(form: LogForm) -> None:
    """Log this process in a form: every logger, warnings, and errors that nobody catches."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form is LogForm.JSON else TextLines())
    level = logging.WARNING if form is LogForm.WARNINGS else logging.INFO
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # libraries
    logging.getLogger("labelchef").setLevel(level)
    log = logging.getLogger("labelchef")

    def uncaught(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("an error ended this process", exc_info=(kind, error, trace))

    def in_thread(given: threading.ExceptHookArgs) -> None:
        if given.exc_value is not None and not issubclass(given.exc_type, SystemExit):
            told = (given.exc_type, given.exc_value, given.exc_traceback)
            log.error("an error ended a thread", exc_info=told)

    def warned(
        message: Warning | str,  # noqa: ARG001
        category: type[Warning],
        filename: str,  # noqa: ARG001
        lineno: int,  # noqa: ARG001
        file: TextIO | None = None,  # noqa: ARG001
        line: str | None = None,  # noqa: ARG001
    ) -> None:
        log.warning("a warning", extra={FACTS: {"kind": category.__name__}})

    sys.excepthook, threading.excepthook, warnings.showwarning = uncaught, in_thread, warned


class JsonLines(logging.Formatter):
    """A JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        return json.dumps(dict(_parts(record)), ensure_ascii=False)


class TextLines(logging.Formatter):
    """Time, level, event, then facts as name=value; errors below, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record."""
        parts = dict(_parts(record))
        errors = parts.pop("errors", [])
        head = f"{parts.pop('time')} {parts.pop('level').upper()} {parts.pop('event')}"
        lines = [" ".join([head, *(f"{name}={value}" for name, value in parts.items())])]
        for error in errors:
            lines.append(f"    {error['type']}" + (f" ({error['code']})" if "code" in error else ""))
            lines += [f"        {place}" for place in error["places"]]
        return "\n".join(lines)


def _parts(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    yield "time", datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    yield "level", record.levelname.lower()
    yield "event", _event(record)
    if not record.name.startswith(_OWN):
        yield "logger", record.name
        yield "place", f"{Path(record.pathname).name}:{record.lineno}"
    facts: Mapping[str, Any] = getattr(record, FACTS, {})
    yield from ((name, value) for name, value in facts.items() if value is not None)
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        yield "errors", [_error(one) for one in _chain(error)]
    else:
        found = [one for one in _arguments(record) if isinstance(one, LabelchefError)]
        if found and "code" not in facts:
            yield "code", found[0].code


def _event(record: logging.LogRecord) -> str:
    """The text of a record with what is safe put into it. Text without places is a constant only in our own source."""
    text = str(record.msg) if isinstance(record.msg, str) else _HIDDEN
    if not record.args:
        return text if record.name.startswith(_OWN) else f"a message of {record.name}"
    given = record.args
    rest = iter(given if isinstance(given, tuple) else ())

    def filled(place: re.Match[str]) -> str:
        if place[0] == "%%":
            return "%"
        value = given.get(place["name"]) if isinstance(given, Mapping) else next(rest, _HIDDEN)
        return shown(value)

    return _PLACE.sub(filled, text)


def shown(value: object) -> str:
    """A value as a log may hold it.

    >>> shown(3), shown(Path("/srv/home")), shown("Ann"), shown(StoreError("/srv/x.db: the disk is full", code="disk_full"))
    ('3', '/srv/home', '…', '/srv/x.db: the disk is full')
    """
    if isinstance(value, bool | int | float | Path):
        return str(value)
    if isinstance(value, StoreError) and value.code in _SAID:
        return str(value)
    if isinstance(value, LabelchefError):
        return f"{type(value).__name__} ({value.code})"
    return type(value).__name__ if isinstance(value, BaseException) else _HIDDEN


def _arguments(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _error(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)[-_MOST_FRAMES:]
    code = {"code": error.code} if isinstance(error, LabelchefError) else {}
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"type": type(error).__name__, **code, "places": places}
