"""Arrays of a campaign as .npy files with digests. A file appears whole; one that changed since is refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelchef.base.errors import StoreError
from labelchef.base.files import file_digest, whole_file
from labelchef.model.features import Features
from labelchef.model.features.saving import npy_pieces


@dataclass(frozen=True)
class ArrayFacts:
    """What the database stores about the file of an array."""

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


def write_array(
    folder: Path, name: str, array: "np.ndarray[Any, Any] | Features", *, stem: str | None = None
) -> ArrayFacts:
    """Write `folder/name.npy`, or `folder/stem.npy`, and take its digest; features in files are copied in blocks.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> facts = write_array(folder, "x", np.eye(2))
    >>> read_array(folder, facts).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    path = folder / f"{stem or name}.npy"
    try:
        with whole_file(path) as stream:
            if isinstance(array, Features):
                stream.writelines(npy_pieces(array))
            else:
                np.save(stream, array, allow_pickle=False)
        return ArrayFacts(name, path.name, str(array.dtype), tuple(array.shape), file_digest(path))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}; nothing was changed. Make room or check the rights",
            code="disk_full" if error.errno == 28 else "folder",
        ) from None


def read_array(folder: Path, facts: ArrayFacts, *, mapped: bool = True) -> "np.ndarray[Any, Any]":
    """The array, memory-mapped, after its digest was compared."""
    path = folder / facts.path
    if not path.is_file():
        raise StoreError(
            f"{path} is missing; expected the array {facts.name!r} of the campaign. Restore the folder from a copy",
            code="array_missing",
        )
    try:
        digest = file_digest(path)
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False) if digest == facts.sha256 else None
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} cannot be read: {error}. Restore it from a copy; votes and decisions are in the database, unharmed",
            code="array_damaged",
        ) from None
    if array is None:
        raise StoreError(
            f"{path} is not the file that was stored: its digest is {digest[:12]}…, expected {facts.sha256[:12]}…. "
            "Restore it from a copy; votes and decisions are in the database, unharmed",
            code="array_digest",
        )
    return np.asarray(array)
