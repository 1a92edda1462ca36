"""A workspace: a folder with a database and the campaigns' files, or a folder beside a PostgreSQL database."""

import contextlib
import fcntl
import importlib.util
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from labelchef.domain.errors import ConflictError, MissingExtraError, StoreError

if TYPE_CHECKING:
    import sqlalchemy as sa

    from labelchef.services.trained import Trained
    from labelchef.store.database import Database
    from labelchef.store.rows import CampaignRow
    from labelchef.store.worklock import WorkLock

DATABASE_FILE = "labelchef.db"


class Workspace:
    """An open workspace. Many threads may use it; `close` it at the end, or use it as a context manager."""

    def __init__(self, home: Path, database: "Database") -> None:
        self.home = home
        self.database = database
        self.trained: dict[int, Trained] = {}
        """Trained states by campaign: a cache, touched by whoever holds the worker's lock."""
        self._changed = threading.Condition()
        self._ticks = 0
        self._turn = threading.RLock()
        self._lock_file: IO[str] | None = None
        self._work_lock: WorkLock | None = None
        self._lock_depth = 0

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

    def reading(self) -> "contextlib.AbstractContextManager[sa.Connection]":
        """A read-only transaction."""
        return self.database.reading()

    def writing(self, *, lasting: bool = True) -> "contextlib.AbstractContextManager[sa.Connection]":
        """A transaction that writes; `lasting` waits for the disk."""
        return self.database.writing(lasting=lasting)

    def folder_of(self, campaign: "CampaignRow") -> Path:
        """Where a campaign's arrays and media lie."""
        return self.home / "campaigns" / campaign.public_id

    def require_folder(self, campaign: "CampaignRow") -> Path:
        """The campaign's folder; refused where this home does not hold it, since another one may."""
        folder = self.folder_of(campaign)
        if not folder.is_dir():
            raise StoreError(
                f"the folder {folder} of campaign {campaign.slug!r} is missing: this home does not hold its files. "
                f"Use the --home in which campaigns/{campaign.public_id} lies, or restore that folder from a copy",
                code="folder",
            )
        return folder

    def notify(self) -> None:
        """Tell threads that wait in this process that something changed."""
        with self._changed:
            self._ticks += 1
            self._changed.notify_all()

    def ticks(self) -> int:
        """How often `notify` was called."""
        with self._changed:
            return self._ticks

    def sleep(self, seconds: float, since: int | None = None) -> None:
        """Wait until something changes in this process (after tick `since`), at most `seconds`."""
        with self._changed:
            known = self._ticks if since is None else since
            self._changed.wait_for(lambda: self._ticks != known, timeout=max(0.0, seconds))

    @contextlib.contextmanager
    def working(self, patience: float = 0.0) -> Iterator[None]:
        """Hold the worker's lock: one thread of one process moves the rounds of a database at a time.

        Whoever else holds it, from this home or another, is waited for `patience` seconds, then reported.
        """
        if not self._turn.acquire(timeout=patience):
            raise _worker_elsewhere(str(self.home))
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

    def keep_working(self) -> None:
        """Whoever is `working` makes sure of the lock in the database, which a server that was away has forgotten."""
        if self._work_lock is not None and not self._work_lock.held() and not self._work_lock.take():
            raise _worker_elsewhere(self._place())

    def _take_locks(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        self._lock_file = _locked(self._lock_path(), patience)
        if self.database.is_sqlite:
            return
        from labelchef.store.worklock import WorkLock

        self._work_lock = WorkLock(self.database)
        try:
            while not self._work_lock.take() and time.monotonic() < deadline:
                time.sleep(0.1)
            self.keep_working()
        except BaseException:
            self._give_locks_back()
            raise

    def _give_locks_back(self) -> None:
        if self._work_lock is not None:
            self._work_lock.release()
            self._work_lock = None
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _lock_path(self) -> Path:
        """Beside the SQLite file, which processes with different homes may share; else in the home."""
        if self.database.path is None:
            return self.home / "worker.lock"
        path = self.database.path.resolve()
        return path.with_name("worker.lock" if path.name == DATABASE_FILE else f"{path.name}.worker.lock")

    def _place(self) -> str:
        return self.database.engine.url.render_as_string(hide_password=True)


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
        (home / "campaigns").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{home} cannot be used as a workspace: {error.strerror or error}; name another --home", code="home"
        ) from None
    opened = open_database(home / DATABASE_FILE if database is None else database)
    try:
        migrate(opened)
        opened.remember_file()
    except BaseException:
        opened.close()
        raise
    return Workspace(home.resolve(), opened)


def require_store() -> None:
    """Say which extra is missing before anything is begun."""
    for module in ("sqlalchemy", "alembic"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(f"campaigns that last need {module}; pip install 'labelchef[serve]'", code="serve")


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
