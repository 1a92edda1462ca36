"""Files that are written completely or not at all, folders for a while, and digests of content.

What is not finished has a name of its own beside the place it is for, and is locked (flock) by the process that writes it. A
process that dies leaves it behind; `remove_leftovers` deletes what no living process has locked.
"""

import contextlib
import errno
import hashlib
import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, TypeGuard

from labelchef.base.errors import InvalidInputError, StoreError

fcntl: ModuleType | None = None
with contextlib.suppress(ImportError):  # a system without such locks: what is left behind stays
    fcntl = importlib.import_module("fcntl")

PRIVATE_FOLDER, PRIVATE_FILE, _PUBLIC_FILE = 0o700, 0o600, 0o644
_OTHERS = 0o077
_UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}(-wal|-shm|-journal)?")  # as `tempfile.mkstemp` makes names


@contextlib.contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Write to a neighbour of `path` and move it there at the end, so that no reader sees half a file.

    In a folder that only its owner may enter, only the owner may read it; with `private`, in any folder.
    """
    descriptor, name = _neighbour(path)
    held = os.dup(descriptor) if fcntl is not None else None  # the lock stays until the file has its name
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(PRIVATE_FILE if private or _is_private(path.parent) else _PUBLIC_FILE)
        Path(name).replace(path)
        sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        if held is not None:
            os.close(held)


def _neighbour(path: Path) -> tuple[int, str]:
    """A new file beside `path` that this process has locked: its descriptor and name."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        lock(descriptor)
        if os.fstat(descriptor).st_nlink:  # else it was taken for a leftover before it was locked
            return descriptor, name
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can open folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_private(folder: Path) -> bool:
    return not folder.stat().st_mode & _OTHERS


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock an open file or folder until it is closed; whether this process has it now. True where there are no such locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def is_locked(path: Path) -> bool:
    """Whether a process has this file locked; True where nobody can tell, False if there is no such file."""
    if fcntl is None:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def folder_for_a_while(within: Path | None, prefix: str) -> Iterator[Path]:
    """A new folder that only its owner may enter; it is deleted afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        with locked_folder(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep others from taking a folder for one that was left behind."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, *prefixes: str) -> int:
    """Delete unfinished files in a folder, and the folders in it whose names begin so, if no process has them locked.

    Returns how many there were.
    """
    if fcntl is None or not folder.is_dir():
        return 0
    found = 0
    for entry in list(os.scandir(folder)):
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and entry.name.startswith(prefixes or ("\0",)):
            found += _removed(Path(entry.path), is_folder=True)
        elif entry.is_file(follow_symlinks=False) and _UNFINISHED.fullmatch(entry.name):
            found += _removed(Path(entry.path), is_folder=False)
    return found


def remove_unfinished(path: Path) -> int:
    """Delete what processes that died have left of `whole_file(path)`; how many files it was."""
    if fcntl is None or not path.parent.is_dir():
        return 0
    mine = re.compile(re.escape(f".{path.name}.") + r"[a-z0-9_]{8}")
    found = [Path(one.path) for one in os.scandir(path.parent) if mine.fullmatch(one.name)]
    return sum(_removed(one, is_folder=False) for one in found)


def _removed(path: Path, *, is_folder: bool) -> bool:
    assert fcntl is not None, "nothing is removed without locks"
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_folder:
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    except OSError:  # a living process has it, or nobody can tell
        return False
    finally:
        os.close(descriptor)
    return True


def make_private(*paths: Path) -> list[Path]:
    """Take the rights of others away from those files and folders that are there; returns which had any."""
    changed = []
    for path in paths:
        with contextlib.suppress(OSError):  # not there, or of another owner, who decides
            rights = path.stat().st_mode & 0o777
            if rights & _OTHERS:
                path.chmod(rights & ~_OTHERS)
                changed.append(path)
    return changed


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_url(location: str | Path) -> TypeGuard[str]:
    """Whether a place is a URL, which is a text and not a `Path`.

    >>> is_url("s3://bucket/x.npy"), is_url("folder/x.npy")
    (True, False)
    """
    return isinstance(location, str) and "://" in location


@contextlib.contextmanager
def writing_to(
    place: Path, remedy: str, *, kind: type[StoreError | InvalidInputError] = StoreError, code: str = "out"
) -> Iterator[None]:
    """Say in a sentence what a disk, a folder or its rights do not allow."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or place} cannot be written: {error.strerror or error}; {remedy}"
        if isinstance(error, FileNotFoundError) and not place.parent.is_dir():
            what = f"{place} cannot be written: there is no folder {place.parent}; make it, or name another file"
        raise kind(what, code="disk_full" if error.errno == errno.ENOSPC else code) from None
