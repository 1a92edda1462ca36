"""Changes that other processes have made: who waits in this process is woken, without a look at the database.

`Signal` counts the changes of this process for its threads. With several processes on one database each tells the others:
PostgreSQL by NOTIFY, and beside a SQLite file by the time of a file. A message that is lost costs a second, after which everybody
who waits looks by themselves; so it may be sent after the transaction, and errors are of no consequence.
"""

import contextlib
import os
import secrets
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labelchef.base.errors import StoreError
from labelchef.base.files import PRIVATE_FILE

if TYPE_CHECKING:
    from labelchef.server.store.database import Database

_CHANNEL = "labelchef"
_FILE_SECONDS = 0.05
"""Between two looks at the file."""
_SOCKET_SECONDS = 0.5
"""After which a connection is asked, though nothing was heard on it."""
_PAUSE = 2.0
"""Before a database that does not answer is tried again."""


class Signal:
    """A count of changes that the threads of a process can wait on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ticks = 0
        self.outward: Callable[[], None] | None = None
        """Tells other processes."""

    def notify(self) -> None:
        """Wake the threads that wait, of all processes: something changed."""
        self.wake()
        if self.outward is not None:
            self.outward()

    def wake(self) -> None:
        """Wake the threads of this process."""
        with self._changed:
            self._ticks += 1
            self._changed.notify_all()

    def ticks(self) -> int:
        """How often there was a change."""
        with self._changed:
            return self._ticks

    def sleep(self, seconds: float, since: int) -> None:
        """Wait until something changes after tick `since`, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ticks != since, timeout=max(0.0, seconds))


class Changes:
    """Tells other processes of changes, and, after `listen`, hears of theirs."""

    def __init__(self, database: "Database", signal: Signal) -> None:
        self._database, self._signal = database, signal
        self._token = secrets.token_hex(8)
        self._listeners = 0
        self._turn = threading.Lock()
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = 0
        signal.outward = self._tell

    @contextlib.contextmanager
    def listening(self) -> Any:
        """Hear of the changes of other processes inside the block."""
        with self._turn:
            self._listeners += 1
            if self._thread is None:
                self._halt.clear()
                run = self._listen if self._database.path is None else self._look
                self._thread = threading.Thread(target=run, name="labelchef-changes", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._turn:
                self._listeners -= 1
                ended = self._thread if self._listeners == 0 else None
                if ended is not None:
                    self._thread = None
                    self._halt.set()
            if ended is not None:
                ended.join(5.0)

    def _tell(self) -> None:
        if self._database.path is not None:
            with contextlib.suppress(OSError):
                if not os.path.exists(self._file):
                    os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))
                os.utime(self._file)
            return
        with contextlib.suppress(StoreError):
            self._database.notify(_CHANNEL, self._token)

    @property
    def _file(self) -> str:
        assert self._database.path is not None
        return f"{self._database.path.resolve()}.changes"

    def _look(self) -> None:
        """Beside a SQLite file: look at the time of the file."""
        while not self._halt.wait(_FILE_SECONDS):
            with contextlib.suppress(OSError):
                changed = os.stat(self._file).st_mtime_ns
                if changed != self._seen:
                    self._seen = changed
                    self._signal.wake()

    def _listen(self) -> None:
        """PostgreSQL: wait for messages on a connection of its own; a new one if it breaks."""
        while not self._halt.is_set():
            try:
                with self._database.subscribed(_CHANNEL) as (socket, fetch):
                    self._signal.wake()  # what happened meanwhile was not heard
                    while not self._halt.is_set():
                        if socket is None:
                            self._halt.wait(_SOCKET_SECONDS / 5)
                        else:
                            select.select([socket], [], [], _SOCKET_SECONDS)
                        if any(payload != self._token for payload in fetch()):
                            self._signal.wake()
            except (StoreError, OSError, ValueError):  # ValueError: the socket was closed meanwhile
                self._halt.wait(_PAUSE)
