"""The lock of the worker: a file beside the database or in the home, and for PostgreSQL a lock in the database too."""

import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from labelchef.domain.errors import ConflictError, StoreError

if TYPE_CHECKING:
    from labelchef.store.database import AdvisoryLock, Database


class WorkerLock:
    """A lock that only one worker of a database holds; a thread that holds it may take it again."""

    def __init__(self, path: Path, database: "Database") -> None:
        self._path, self._database = path, database
        self._turn = threading.RLock()
        self._lock_file: IO[str] | None = None
        self._advisory: AdvisoryLock | None = None
        self._lock_depth = 0

    @contextlib.contextmanager
    def holding(self, patience: float = 0.0) -> Iterator[None]:
        """Hold the lock: one thread of one process moves the rounds of a database at a time.

        If another thread or process holds it, from this home or another, wait `patience` seconds, then refuse.
        """
        if not self._turn.acquire(timeout=patience):
            raise _worker_elsewhere(str(self._path.parent))
        try:
            if self._lock_depth == 0:
                self._take_locks(patience)
            self._lock_depth += 1
            try:
                yield
            finally:
                self._lock_depth -= 1
                if self._lock_depth == 0:
                    self._give_locks_back()
        finally:
            self._turn.release()

    def keep(self) -> None:
        """Make sure that the lock in the database is still held: a server that was away has forgotten it."""
        if self._advisory is not None and not self._advisory.held() and not self._advisory.take():
            raise _worker_elsewhere(self._place())

    def _take_locks(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        self._lock_file = _locked(self._path, patience)
        if self._database.is_sqlite:
            return
        from labelchef.store.database import AdvisoryLock

        self._advisory = AdvisoryLock(self._database)
        try:
            while not self._advisory.take() and time.monotonic() < deadline:
                time.sleep(0.1)
            self.keep()
        except BaseException:
            self._give_locks_back()
            raise

    def _give_locks_back(self) -> None:
        if self._advisory is not None:
            self._advisory.release()
            self._advisory = None
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _place(self) -> str:
        return self._database.engine.url.render_as_string(hide_password=True)


def _locked(path: Path, patience: float) -> IO[str]:
    """The lock file, locked for this process until it is closed."""
    deadline = time.monotonic() + patience
    try:
        stream = path.open("a")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}; check its folder", code="home"
        ) from None
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                stream.close()
                raise _worker_elsewhere(str(path.parent)) from None
            time.sleep(0.05)
        else:
            return stream


def _worker_elsewhere(place: str) -> ConflictError:
    return ConflictError(
        f"a worker of {place} is running already, in this or another process; it moves the rounds on. "
        "Stop it first to do this here",
        code="worker",
    )
