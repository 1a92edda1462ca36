"""Whether a workspace can be worked with: one check a part, each with a sentence that holds no secret and no name.

    database   it answers, and a transaction that writes can begin
    schema     it is the one of this program
    folder     a file can be written to the home
    disk       more than `LEAST_FREE` is free where the home lies, and where the SQLite file lies
    worker     one was seen lately; without one votes are stored, but no round goes on, so this is only said
    cluster    its scheduler answers, where there is one (`LABELCHEF_CLUSTER`); without it campaigns wait, so this is only said

`Readiness.look` runs them at most once a second however often it is asked, and never waits longer than `PATIENCE`: what has not
answered by then counts as failed, and no second try is begun meanwhile.
"""

import logging
import shutil
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as OverTimeError
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from labelchef.base.cluster_address import LOCAL, cluster_address
from labelchef.base.errors import StoreError
from labelchef.server.store.schema import VERSION, standing_of
from labelchef.server.workspace import Workspace, check_writable

_log = logging.getLogger("labelchef")
LEAST_FREE = 64 * 2**20
"""Bytes that must be free: less is a full disk for the next upload or round."""
KEPT_SECONDS = 1.0
PATIENCE = 3.0
"""Seconds in which all checks must have answered."""


@dataclass(frozen=True)
class Check:
    """What a look at one part has shown."""

    name: str
    ok: bool
    told: str
    needed: bool = True
    """Whether nothing works without it."""


@dataclass(frozen=True)
class Report:
    """All checks of one look."""

    checks: tuple[Check, ...]

    @property
    def ready(self) -> bool:
        """Whether requests can be answered."""
        return all(one.ok for one in self.checks if one.needed)


class Readiness:
    """The checks of a workspace, shared by all who ask."""

    def __init__(self, ws: Workspace, worker: Callable[[], Check], least_free: int = LEAST_FREE) -> None:
        """`worker` looks for one; it is called after the database has answered."""
        self._ws = ws
        self._worker = worker
        self._least_free = least_free
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="labelchef-ready")
        self._running: Future[Report] | None = None
        self._last: tuple[float, Report] | None = None

    def look(self) -> Report:
        """What the checks show now, or showed within the last second."""
        with self._lock:
            if self._last is not None and time.monotonic() - self._last[0] < KEPT_SECONDS:
                return self._last[1]
            if self._running is None:
                self._running = self._pool.submit(self._checked)
            running = self._running
        try:
            return running.result(PATIENCE)
        except OverTimeError:
            told = f"the checks have not answered within {PATIENCE:.0f} s"
            return Report((Check("answer", False, told),))

    def close(self) -> None:
        """Take no more questions."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _checked(self) -> Report:
        report = Report((Check("answer", False, "a check failed with an error; the log says which"),))
        try:
            report = self._report()
        except Exception:
            _log.exception("a check of the health failed")
        with self._lock:
            self._running, self._last = None, (time.monotonic(), report)
        return report

    def _report(self) -> Report:
        database = self._database()
        if database.ok:
            rest = self._schema(), self._worker()
        else:
            told = "not looked at: the database fails"
            rest = Check("schema", False, told), Check("worker", False, told, needed=False)
        return Report((database, *rest, self._folder(), *self._disks(), *_cluster()))

    def _database(self) -> Check:
        try:
            self._ws.database.try_to_write()
        except StoreError as error:
            return Check("database", False, f"it cannot be written ({error.code})")
        return Check("database", True, "it answers and takes writes")

    def _schema(self) -> Check:
        try:
            found = standing_of(self._ws.database)
        except StoreError as error:
            return Check("schema", False, f"it cannot be read ({error.code})")
        if found.current == VERSION:
            return Check("schema", True, f"{VERSION}, as this program expects")
        told = f"the database has {found.current}, this program expects {VERSION}"
        return Check("schema", False, f"{told}; restart with the program of the other version")

    def _folder(self) -> Check:
        try:
            check_writable(self._ws)
        except StoreError as error:
            return Check("folder", False, f"nothing can be written to the home ({error.code})")
        return Check("folder", True, "the home can be written")

    def _disks(self) -> list[Check]:
        places = {"disk": self._ws.home}
        database = self._ws.database.path
        if database is not None and database.resolve().parent != self._ws.home:
            places["disk of the database"] = database.parent
        return [_disk(name, place, self._least_free) for name, place in places.items()]


def _cluster() -> list[Check]:
    address = cluster_address()
    if address is None or address == LOCAL:
        return []
    place = urlsplit(address)
    try:
        with socket.create_connection((place.hostname, place.port), timeout=1.0):
            return [Check("cluster", True, "its scheduler answers", needed=False)]
    except (OSError, ValueError):
        told = "its scheduler does not answer; campaigns whose features lie there wait for it"
        return [Check("cluster", False, told, needed=False)]


def _disk(name: str, place: Path, least: int) -> Check:
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check(name, False, f"it cannot be looked at ({error.strerror})")
    told = f"{free // 2**20} MiB are free; at least {least // 2**20} MiB are needed"
    return Check(name, free >= least, told)
