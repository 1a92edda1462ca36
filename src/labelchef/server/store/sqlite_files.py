"""The files of an open SQLite database: `x.db`, the log `x.db-wal`, and its index `x.db-shm`.

A connection goes on writing to the log that it has opened, even if the name of that file was removed: SQLite does not notice, and
what was written is gone when the process dies. `OpenFiles.lost` compares the names with the files that were opened, so that
nothing more is acknowledged.

A connection of our own, the anchor, is open all the time. While it is, SQLite itself never removes the log.
"""

import contextlib
import ctypes
import fcntl
import os
import sqlite3
import tempfile
from pathlib import Path

from labelchef.base.errors import StoreError

LOG = "-wal"
INDEX = "-shm"
_MAGIC = (bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))
"""How a log that SQLite can read begins."""
_PATIENCE = 2.0  # seconds to wait for another process that reads


class OpenFiles:
    """The files that the connections of this process have opened."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._anchor = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            for statement in (
                "PRAGMA journal_mode=WAL",
                "PRAGMA synchronous=FULL",
                "SELECT count(*) FROM sqlite_master",
            ):
                self._anchor.execute(statement).fetchall()
            self._log = os.open(self._path + LOG, os.O_RDONLY | os.O_CLOEXEC)
            self._known = {suffix: identity(self._path + suffix) for suffix in ("", LOG, INDEX)}
        except BaseException:
            self._anchor.close()
            raise
        self._readable = False
        """Whether the log had a beginning that can be read; an empty one has none."""
        self._lost: str | None = None
        self._written: int | None = None
        """When the database was written last, as it was found with the loss."""
        self._cut_off()

    def lost(self) -> str | None:
        """The suffix of a file that was removed, replaced or cut off since it was opened; None if all are as they were.

        A loss is for good: another process may have begun a new log, which the one that is open here must not overwrite.
        """
        if self._lost is None:
            gone = (suffix for suffix, known in self._known.items() if _identity_or_none(self._path + suffix) != known)
            self._lost = next(gone, LOG if self._cut_off() else None)
            if self._lost is not None:
                self._written = _written(self._path)
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._anchor))  # the end of the process must not close it
        return self._lost

    def _cut_off(self) -> bool:
        """Whether the beginning of the log was overwritten or cut off, so that SQLite would read nothing of it."""
        found = os.pread(self._log, 4, 0)
        self._readable = self._readable or found in _MAGIC
        return self._readable and len(found) == 4 and found not in _MAGIC

    def close(self) -> None:
        """Close the anchor: the last connection that is closed copies the log into the database.

        After a loss it stays open, unless nobody has written to the database since.
        """
        os.close(self._log)
        alone = not os.path.exists(self._path + LOG) and _written(self._path) == self._written is not None
        if self._lost is None or alone:
            self._anchor.close()


def identity(path: str | Path) -> tuple[int, int]:
    """Which file this is."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _written(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def _identity_or_none(path: str) -> tuple[int, int] | None:
    try:
        return identity(path)
    except OSError:
        return None


def make_database(path: Path) -> None:
    """Make an empty database that only this user can read, if there is none; refuse a file of 0 bytes.

    It appears whole: a file of 0 bytes is never one that a process was about to make.
    """
    try:
        size = path.stat().st_size if path.exists() else None
    except OSError as error:
        raise _refused(path, error) from None
    if size == 0:
        raise StoreError(
            f"{path} has 0 bytes: it was emptied, or made by another program. Restore it from a copy; if there never was "
            "anything in it, remove the file, and a new database is made",
            code="database_empty",
        )
    if size is not None:
        return
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 600
    except OSError as error:
        raise _refused(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # as long as this process makes it, nobody takes it for one left behind
        with contextlib.closing(sqlite3.connect(name)) as made:
            made.execute("PRAGMA journal_mode=WAL")
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(name, path)
    except (OSError, sqlite3.Error) as error:
        raise _refused(path, error) from None
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(descriptor)


def _refused(path: Path, error: Exception) -> StoreError:
    why = getattr(error, "strerror", None) or error
    return StoreError(
        f"the database {path} cannot be made: {why}; check the folder, its rights and its owner", code="database_rights"
    )
