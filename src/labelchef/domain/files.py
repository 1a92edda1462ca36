"""Files that appear whole or not at all, and the digests that tell whether they are still the same."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

_BLOCK = 1 << 24


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write to a neighbour of `path` and move it there at the end, so that no reader sees half a file."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
        _sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def array_digest(*arrays: "np.ndarray[Any, Any]") -> str:
    """SHA-256 of the shapes, types and values of arrays.

    >>> array_digest(np.zeros(2)) == array_digest(np.zeros(2)), array_digest(np.zeros(2)) == array_digest(np.zeros(3))
    (True, False)
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        rows = max(1, _BLOCK // max(1, array[:1].nbytes)) if array.ndim else 1
        for start in range(0, len(array) if array.ndim else 1, rows):
            digest.update(np.ascontiguousarray(array[start : start + rows] if array.ndim else array).tobytes())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """See the new name onto the disk, where folders can be opened."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
