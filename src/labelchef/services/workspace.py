"""A workspace: a folder with a database and the campaigns' files, or a folder beside a PostgreSQL database."""

import contextlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Self

from labelchef.domain.errors import MissingExtraError, StoreError
from labelchef.services.signals import Signal
from labelchef.services.worker_lock import WorkerLock

if TYPE_CHECKING:
    import sqlalchemy as sa

    from labelchef.services.trained import Trained
    from labelchef.store.database import Database

DATABASE_FILE = "labelchef.db"
"""The database of a home, if no other is named."""
CAMPAIGNS = "campaigns"
"""The folder of a home that holds the folders of the campaigns."""


class Workspace:
    """An open workspace. Many threads may use it; `close` it at the end, or use it as a context manager."""

    def __init__(self, home: Path, database: "Database") -> None:
        self.home = home
        self.database = database
        self.signal = Signal()
        self.worker_lock = WorkerLock(_lock_path(home, database), database)
        self.trained: dict[int, Trained] = {}
        """Trained states by campaign: a cache, used by the thread that holds the worker's lock."""

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


def _lock_path(home: Path, database: "Database") -> Path:
    """Beside the SQLite file, which processes with different homes may share; else in the home."""
    if database.path is None:
        return home / "worker.lock"
    path = database.path.resolve()
    return path.with_name("worker.lock" if path.name == DATABASE_FILE else f"{path.name}.worker.lock")


def require_store() -> None:
    """Refuse to begin if an extra is missing, and name it."""
    for module in ("sqlalchemy", "alembic"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError(f"campaigns need {module}; pip install 'labelchef[serve]'", code="serve")
