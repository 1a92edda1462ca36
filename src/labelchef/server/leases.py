"""One lease a campaign: which process moves its rounds on, until when, and how another takes over.

A lease is a row of the database (`server.store.lease_table`): holder, end, and a fencing number that goes up by one at every
taking. Whoever holds it renews it (`BEAT_SECONDS`) for `LEASE_SECONDS`. It is free again

    given back     by its holder
    holder dead    at once: PostgreSQL keeps a lock for every holder on a connection of its own and drops it when the process
                   ends, however it ends; beside a SQLite file each holder has a locked file instead
    holder hangs   when the lease has run out

The transaction in which the ledger is written compares the fencing number (`SqlLedger.fence`): what a process that hung writes
after another has taken over is refused. So neither the lock nor the clock has to be right for the ledger to be: they only say
who computes. Rows and not advisory locks alone, since a process that hangs keeps its connection, and SQLite has no such locks.
"""

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelchef.base.errors import ConflictError, StoreError
from labelchef.base.files import PRIVATE_FILE, is_locked, lock, writing_to

if TYPE_CHECKING:
    from labelchef.server.store.database import AdvisoryLock, Database

LEASE_SECONDS = 20.0
"""After which the lease of a process that hangs is free."""
BEAT_SECONDS = 4.0
"""Between two renewals."""
_LOOK_SECONDS = 1.0
"""Between two looks whether the holder of a job was asked to stop; what it tells is written as often."""
_HOUR = 3600.0
WORKER, CAMPAIGN, JOB, INTAKE = "worker:", "campaign:", "job:", "intake:"
"""How the names of leases begin."""
_LOCK_FILE = "worker-{}.lock"
_log = logging.getLogger("labelchef")


@dataclass(eq=False)
class Lease:
    """A lease that this process holds, or has held."""

    name: str
    fence: int
    lost: threading.Event = field(default_factory=threading.Event)
    """Set when another process has it."""
    asked: threading.Event = field(default_factory=threading.Event)
    """Set when somebody has asked the holder to stop."""
    told: Mapping[str, Any] | None = None
    """What its holder tells of the work; others read it a second later."""
    _written: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Held:
    """A lease as anybody sees it."""

    name: str
    holder: str
    told: Mapping[str, Any]


class Leases:
    """The leases of one workspace; many threads may use them. A thread renews what is held, until `close`."""

    def __init__(self, database: "Database", *, seconds: float = LEASE_SECONDS, beat: float = BEAT_SECONDS) -> None:
        self._database = database
        self._seconds, self._beat = seconds, beat
        self.life = secrets.randbits(31)
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{self.life}"
        self._held: dict[str, Lease] = {}
        self._turn = threading.Lock()
        self._alive: AdvisoryLock | int | None = None
        self._thread: threading.Thread | None = None
        self._halt = threading.Event()
        self._renewed = 0.0

    def take(self, name: str) -> Lease | None:
        """Take a lease if it is free; None if a thread of this process or another process has it."""
        from labelchef.server.store import lease_table

        with self._turn:
            if name in self._held:
                return None
            self._live()
            with self._database.writing(lasting=False) as connection:
                found = lease_table.lease(connection, name)
                dead = [found.life] if found is not None and self._dead(found.life) else []
                fence = lease_table.take(connection, name, self.holder, self.life, self._seconds, dead)
            if fence is None:
                return None
            lease = self._held[name] = Lease(name, fence)
            self._start()
            return lease

    @contextlib.contextmanager
    def holding(self, name: str, patience: float = 0.0) -> Iterator[Lease]:
        """Hold a lease; if it is taken, wait `patience` seconds, then refuse."""
        deadline = time.monotonic() + patience
        while (lease := self.take(name)) is None:
            if time.monotonic() >= deadline:
                raise ConflictError(
                    f"another process works on this already ({self._told_of(name)}); it moves the rounds on. "
                    "Wait for it, or stop it first to do this here",
                    code="worker",
                )
            time.sleep(0.05)
        try:
            yield lease
        finally:
            self.give_back(lease)

    def give_back(self, *leases: Lease, forget: bool = False) -> None:
        """End leases; with `forget`, nobody will take one of these names again."""
        from labelchef.server.store import lease_table

        with self._turn:
            mine = [one for one in leases if self._held.get(one.name) is one]
            for one in mine:
                del self._held[one.name]
        try:
            with self._database.writing(lasting=False) as connection:
                end = lease_table.forget if forget else lease_table.give_back
                end(connection, {one.name: one.fence for one in mine})
        except StoreError as error:  # it runs out by itself
            _log.warning("a lease could not be given back: %s", error)

    def held(self, prefix: str = "") -> list[Held]:
        """The leases that living processes hold, this one too."""
        from labelchef.server.store import lease_table

        with self._database.reading() as connection:
            alive = lease_table.living(connection)
            rows = lease_table.leases(connection)
        known: dict[int, bool] = {self.life: True}
        found = []
        for row, over in rows:
            if over or not row.name.startswith(prefix):
                continue
            if row.life not in known:
                known[row.life] = row.life in alive if alive is not None else not self._dead(row.life)
            if known[row.life]:
                found.append(Held(row.name, row.holder, row.told or {}))
        return found

    def told(self, name: str) -> Mapping[str, Any]:
        """What the holder of a lease tells of its work."""
        from labelchef.server.store import lease_table

        with self._database.reading() as connection:
            row = lease_table.lease(connection, name)
        return {} if row is None or row.told is None else row.told

    def ask_to_stop(self, name: str) -> None:
        """Ask the holder of a lease, in whatever process, to stop."""
        from labelchef.server.store import lease_table

        with self._database.writing(lasting=False) as connection:
            lease_table.ask_to_stop(connection, name)

    def sweep(self) -> None:
        """Delete the rows of workers and jobs that ended an hour ago; those of campaigns stay, since their fences count on."""
        from labelchef.server.store import lease_table

        with self._database.writing(lasting=False) as connection:
            lease_table.sweep(connection, (WORKER, JOB, INTAKE), _HOUR)

    def close(self) -> None:
        """Give all leases back."""
        self._halt.set()
        if self._thread is not None:
            self._thread.join(10.0)
        if self._held:
            self.give_back(*self._held.values())
        with self._turn:
            self._die()

    def _told_of(self, name: str) -> str:
        return next((one.holder for one in self.held() if one.name == name), "it has just ended")

    # --- that this process lives ---

    def _live(self) -> None:
        """Hold the lock by which others know that this process lives."""
        if self._database.path is not None:
            if not isinstance(self._alive, int):
                path = self._lock_file(self.life)
                with writing_to(path, "check its folder", code="home"):
                    self._alive = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
                lock(self._alive, wait=False)
            return
        from labelchef.server.store.database import AdvisoryLock

        if not isinstance(self._alive, AdvisoryLock):
            self._alive = AdvisoryLock(self._database, self.life)
        if not self._alive.held():
            self._alive.take()

    def _die(self) -> None:
        alive, self._alive = self._alive, None
        if isinstance(alive, int):
            with contextlib.suppress(OSError):
                self._lock_file(self.life).unlink()
            os.close(alive)
        elif alive is not None:
            alive.release()

    def _lock_file(self, life: int) -> Path:
        assert self._database.path is not None
        path = self._database.path.resolve()
        return path.with_name(f"{path.name}.{_LOCK_FILE.format(life)}")

    def _dead(self, life: int) -> bool:
        """Whether the process of another holder has ended, beside a SQLite file."""
        if self._database.path is None or life == self.life:
            return False
        path = self._lock_file(life)
        if is_locked(path):
            return False
        with contextlib.suppress(OSError):
            path.unlink()
        return True

    # --- the heartbeat ---

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._halt.clear()
            self._renewed = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="labelchef-leases", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._halt.wait(min(_LOOK_SECONDS, self._beat)):
            with self._turn:
                held = list(self._held.values())
            try:
                self._tell(held)
                if time.monotonic() - self._renewed >= self._beat or any(
                    one.name.startswith((JOB, INTAKE)) for one in held
                ):
                    self._renew(held)
            except Exception as error:  # tried again: the database may come back before the leases run out
                _log.warning("leases could not be renewed: %s", error)

    def _renew(self, held: list[Lease]) -> None:
        from labelchef.server.store import lease_table

        if not held:
            return
        with self._turn:
            self._live()
        with self._database.writing(lasting=False) as connection:
            kept = lease_table.renew(connection, {one.name: one.fence for one in held}, self._seconds)
        self._renewed = time.monotonic()
        for one in held:
            if one.name not in kept:
                with self._turn:
                    if self._held.get(one.name) is one:
                        del self._held[one.name]
                        _log.warning("another process has taken over %s", one.name)
                one.lost.set()
            elif kept[one.name]:
                one.asked.set()

    def _tell(self, held: list[Lease]) -> None:
        from labelchef.server.store import lease_table

        changed = [(one, one.told) for one in held if one.told is not None and one.told != one._written]
        if changed:
            with self._database.writing(lasting=False) as connection:
                for one, told in changed:
                    lease_table.tell(connection, one.name, one.fence, told or {})
                    one._written = told
