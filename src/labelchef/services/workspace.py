"""A workspace: a folder with a database and the campaigns' files, or a folder beside a PostgreSQL database."""

import contextlib
import fcntl
import importlib.util
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from labelchef.domain.errors import ConflictError, MissingExtraError, StoreError
from labelchef.services.shared import writing_to

if TYPE_CHECKING:
    from labelchef.services.intake.jobs import Job
    from labelchef.services.trained import Trained
    from labelchef.store.database import AdvisoryLock, Database
    from labelchef.store.rows import CampaignRow

DATABASE_FILE = "labelchef.db"
"""The database of a home, if no other is named."""
_PROBE_BYTES = 16384
CAMPAIGNS = "campaigns"
"""The folder of a home that holds the folders of the campaigns."""


class Workspace:
    """An open workspace. Many threads may use it; `close` it at the end, or use it as a context manager."""

    def __init__(self, home: Path, database: "Database") -> None:
        self.home = home
        self.database = database
        self.reading, self.writing = database.reading, database.writing
        self.signal = Signal()
        self.worker_lock = WorkerLock(home, database)
        self.writable_until = 0.0
        """Until when `check_writable` need not look again."""
        self.trained: dict[int, Trained] = {}
        """Trained states by campaign: a cache, used by the thread that holds the worker's lock."""
        self.intakes: dict[str, Job] = {}
        """What is being done with uploaded files, by intake; used by `services.intake.jobs` only."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the database's connections."""
        self.trained.clear()
        self.database.close()

    def forget(self, campaign_id: int) -> None:
        """Drop the trained state of a campaign: it will be built again when it is needed."""
        self.trained.pop(campaign_id, None)


def open_workspace(home: Path, database: str | None = None) -> Workspace:
    """Open the workspace in `home`, made if it is not there; bring its database to this version's schema.

    >>> import tempfile
    >>> with open_workspace(Path(tempfile.mkdtemp())) as ws:
    ...     print(ws.database.is_sqlite)
    True
    """
    require_store()
    from labelchef.store.database import open_database
    from labelchef.store.schema import migrate

    home = Path(home)
    try:
        (home / CAMPAIGNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"{home} cannot be used as a workspace: {error.strerror or error}; name another --home"
        raise StoreError(why, code="home") from None
    opened = open_database(home / DATABASE_FILE if database is None else database)
    try:
        migrate(opened)
        opened.remember_file()
    except BaseException:
        opened.close()
        raise
    return Workspace(home.resolve(), opened)


def require_store() -> None:
    """Refuse to begin if an extra is missing, and name it."""
    for module in ("sqlalchemy", "alembic"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(f"campaigns need {module}; pip install 'labelchef[serve]'", code="serve")


def check_writable(ws: Workspace) -> None:
    """Write to the home as a vote or an upload would; a full disk, a lost mount or wrong rights are told.

    At most once a second: whoever asks more often gets the answer before, if that was good.
    """
    now = time.monotonic()
    if now < ws.writable_until:
        return
    remedy = "votes and uploads are refused. Make room, or check the disk, the folder and its rights"
    with writing_to(ws.home, remedy, code="home"), tempfile.TemporaryFile(dir=ws.home) as probe:
        probe.write(bytes(_PROBE_BYTES))
        probe.flush()
        os.fsync(probe.fileno())
    ws.writable_until = now + 1.0


def folder_of(ws: Workspace, campaign: "CampaignRow") -> Path:
    """The folder of a campaign, whether this home holds it or not."""
    return ws.home / CAMPAIGNS / campaign.public_id


def require_folder(ws: Workspace, campaign: "CampaignRow") -> Path:
    """The folder of a campaign; refused if this home does not hold it."""
    folder = folder_of(ws, campaign)
    if not folder.is_dir():
        raise StoreError(
            f"the folder {folder} of campaign {campaign.slug!r} is missing: this home does not hold its files. "
            f"Use the --home in which {CAMPAIGNS}/{campaign.public_id} lies, or restore that folder from a copy",
            code="folder",
        )
    return folder


class Signal:
    """A count of changes that the threads of a process can wait on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ticks = 0

    def notify(self) -> None:
        """Wake the threads that wait: something changed."""
        with self._changed:
            self._ticks += 1
            self._changed.notify_all()

    def ticks(self) -> int:
        """How often `notify` was called."""
        with self._changed:
            return self._ticks

    def sleep(self, seconds: float, since: int) -> None:
        """Wait until something changes after tick `since`, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ticks != since, timeout=max(0.0, seconds))


_GRACE = 2.0
"""Seconds in which a PostgreSQL server may find out that a process that held the lock has died."""


class WorkerLock:
    """A lock that only one worker of a database holds: a file, and for PostgreSQL a lock in the database too."""

    def __init__(self, home: Path, database: "Database") -> None:
        self._database = database
        self._turn = threading.Lock()
        self._advisory: AdvisoryLock | None = None
        if database.path is None:
            self._path = home / "worker.lock"
        else:  # beside the SQLite file, which processes with different homes may share
            path = database.path.resolve()
            self._path = path.with_name("worker.lock" if path.name == DATABASE_FILE else f"{path.name}.worker.lock")

    @contextlib.contextmanager
    def holding(self, patience: float = 0.0) -> Iterator[None]:
        """Hold the lock: one thread of one process moves the rounds of a database at a time.

        If another thread or process holds it, from this home or another, wait `patience` seconds, then refuse.
        """
        deadline = time.monotonic() + patience
        with contextlib.ExitStack() as held:
            self._take(lambda: self._turn.acquire(blocking=False), deadline)
            held.callback(self._turn.release)
            with writing_to(self._path, "check its folder", code="home"):
                stream = held.enter_context(self._path.open("a"))
            self._take(lambda: _locked(stream), deadline)
            if not self._database.is_sqlite:
                from labelchef.store.database import AdvisoryLock

                self._advisory = AdvisoryLock(self._database)
                held.callback(self._advisory.release)
                self._take(self._advisory.take, max(deadline, time.monotonic() + _GRACE))
            yield

    def keep(self) -> None:
        """Make sure that the lock in the database is still held: a server that was away has forgotten it."""
        if self._advisory is not None and not self._advisory.held():
            self._take(self._advisory.take, time.monotonic())

    def _take(self, take: Callable[[], bool], deadline: float) -> None:
        while not take():
            if time.monotonic() >= deadline:
                url = self._database.engine.url.render_as_string(hide_password=True)
                raise ConflictError(
                    f"a worker of {self._path.parent if self._database.is_sqlite else url} is running already, in this or "
                    "another process; it moves the rounds on. Stop it first to do this here",
                    code="worker",
                )
            time.sleep(0.05)


def _locked(stream: IO[str]) -> bool:
    """Whether the file is now locked for this process, until it is closed."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
