"""Faults that are put into a process of labelchef from outside: dying at a chosen point, a wrong clock, a slow disk.

A child of the nursery calls `install` before it runs a command. Functions of the standard library, of SQLAlchemy and the
steps of the ledger are wrapped; labelchef itself has no code for it. Only processes of this package are touched.

    commit      a transaction that writes is committed, before and after
    fsync       a file or a folder is written to the disk, before and after
    rename      a file that was written completely gets its name, before and after
    half        an array is written by half
    count       votes become decisions, before and after the step
    close       the model of a round is stored, before and after the step
    open        the next batch is stored, before and after the step
"""

import functools
import io
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from sqlalchemy import Connection

from labelchef.server.ledger.sql import SqlLedger
from labelchef.server.store import arrays

STEPS = ("count", "close", "open")
POINTS = (*(f"{name} {side}" for name in ("commit", "fsync", "rename", *STEPS) for side in ("before", "after")), "half")
"""Where a process can be made to die."""
FREQUENT = ("commit before", "commit after")
"""Those that are passed many times a round; the others once or a few times."""


@dataclass(frozen=True)
class Injection:
    """What is wrong with a process."""

    point: str = ""
    """Where it dies, one of POINTS; empty: nowhere."""
    at: int = 0
    """At which passage, from 1."""
    clock: str = ""
    """A file with the seconds by which its clock is wrong; empty: the clock is right."""
    delay: float = 0.0
    """Seconds that every commit and every fsync takes longer."""


class _Bomb:
    """Counts the passages of a point and ends the process at the chosen one."""

    def __init__(self, point: str, at: int) -> None:
        self._point, self._left = point, at

    def pass_by(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # the signal is delivered before this ends

    def next_is_last(self, point: str) -> bool:
        return point == self._point and self._left == 1


def install(injection: Injection) -> None:
    """Put the fault into this process."""
    if injection.point:
        _install_bomb(_Bomb(injection.point, injection.at))
    if injection.delay:
        _install_delay(injection.delay)
    if injection.clock:
        _install_clock(Path(injection.clock))


_Around = Callable[[Callable[..., Any]], Callable[..., Any]]


def _wrapped(owner: Any, name: str, around: _Around) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(around(original)))


def _of_writers(around: _Around) -> _Around:
    """Only commits of transactions that write; those of readers stay as they are."""

    def chosen(original: Callable[..., Any]) -> Callable[..., Any]:
        faulty = around(original)

        def commit(connection: Connection) -> None:
            writes = "labelchef_write" in connection.get_execution_options()
            (faulty if writes else original)(connection)

        return commit

    return chosen


def _install_bomb(bomb: _Bomb) -> None:
    def dying(point: str) -> _Around:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                bomb.pass_by(f"{point} before")
                result = original(*args, **options)
                bomb.pass_by(f"{point} after")
                return result

            return call

        return around

    _wrapped(Connection, "_commit_impl", _of_writers(dying("commit")))
    _wrapped(os, "fsync", dying("fsync"))
    _wrapped(os, "replace", dying("rename"))
    for step in STEPS:
        _wrapped(SqlLedger, step, dying(step))

    def half(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(stream: IO[bytes], array: "np.ndarray[Any, Any]", **options: Any) -> None:
            if bomb.next_is_last("half"):
                whole = io.BytesIO()
                original(whole, array, **options)
                stream.write(whole.getvalue()[: len(whole.getvalue()) // 2])
                stream.flush()
            bomb.pass_by("half")
            original(stream, array, **options)

        return save

    class Numpy:
        """NumPy as the module of the arrays sees it, with another `save`."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        save = staticmethod(half(np.save))

    setattr(arrays, "np", Numpy())  # noqa: B010 (a type checker sees a module there)


def _install_delay(seconds: float) -> None:
    def slow(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            time.sleep(seconds)
            return original(*args, **options)

        return call

    _wrapped(Connection, "_commit_impl", _of_writers(slow))
    _wrapped(os, "fsync", slow)


def _install_clock(file: Path) -> None:
    right = time.time

    def wrong() -> float:
        try:
            return right() + float(file.read_text())
        except (OSError, ValueError):  # the file is being replaced
            return right()

    setattr(time, "time", wrong)  # noqa: B010
