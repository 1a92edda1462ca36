"""Features in a .npy file on this machine."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError
from labelchef.base.npy import Header, header_and_start
from labelchef.model.features.contract import KINDS, Features, Stored
from labelchef.model.features.reading import Buffers, LocalFile


class RawFeatures(Features):
    """Rows that lie one after the other in a file, from some byte on."""

    readers = 8

    def __init__(
        self,
        file: LocalFile,
        start: int,
        shape: tuple[int, int],
        dtype: "np.dtype[Any]",
    ) -> None:
        self._file, self._start = file, start
        super().__init__(shape, dtype, str(file.path))

    @property
    def path(self) -> Path:
        """Of the file."""
        return self._file.path

    def check(self) -> None:
        """See `Features.check`."""
        self._file.check()

    def mapped(self) -> Stored:
        """The rows as a memory map."""
        shape, start = self.shape, self._start + self._first * self.row_bytes
        return np.memmap(self.path, self.dtype, mode="r", offset=start, shape=shape)

    def _read(self, first: int, last: int, buffers: Buffers) -> Stored:
        size = self.row_bytes
        found = self._file.read(self._start + first * size, (last - first) * size, buffers)
        if found.ctypes.data % self.dtype.itemsize:  # a header of an odd length
            found = found.copy()
        return found.view(self.dtype).reshape(last - first, -1)


class NpyFeatures(RawFeatures):
    """A .npy file, opened; nothing of it but the header is read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.npy"
    >>> np.save(path, np.arange(6, dtype=np.float32).reshape(3, 2))
    >>> NpyFeatures(path).take([2, 0]).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InvalidInputError(f"{path} is missing; check the path", code="features")
        file = LocalFile(path)
        with path.open("rb") as stream:
            header, start = header_and_start(stream, str(path))
        shape = check_header(header, str(path))
        if file.size - start != header.nbytes:
            raise InvalidInputError(
                f"{path} has {file.size - start} bytes for an array of {header.nbytes}. The file is cut off or damaged: write "
                "it again",
                code="features",
            )
        super().__init__(file, start, shape, header.dtype)


def behind_map(X: NDArray[Any]) -> RawFeatures | None:
    """The features that a memory map shows; None for an array that is none, or whose rows do not lie one after the other.

    A map of mode "c" may have been changed in memory only, so it counts as an array.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.npy"
    >>> np.save(path, np.arange(6, dtype=np.float32).reshape(3, 2))
    >>> found = behind_map(np.asarray(np.load(path, mmap_mode="r"))[1:])
    >>> found.take([1]).tolist(), behind_map(np.eye(2)) is None
    ([[4.0, 5.0]], True)
    """
    owner: Any = X
    while isinstance(owner, np.ndarray) and not isinstance(owner.base, mmap.mmap):
        owner = owner.base
    name = getattr(owner, "filename", None)
    if owner is None or name is None or owner.mode == "c":
        return None
    if X.ndim != 2 or not X.flags.c_contiguous or X.dtype not in KINDS or 0 in X.shape:
        return None
    begin = owner.offset + X.ctypes.data - owner.ctypes.data
    return RawFeatures(LocalFile(Path(name)), begin, (X.shape[0], X.shape[1]), X.dtype)


def check_header(header: Header, what: str) -> tuple[int, int]:
    """The shape; refused are arrays that are no matrix, or stored by columns or with swapped bytes."""
    if len(header.shape) != 2:
        raise InvalidInputError(f"{what} has shape {header.shape}; expected (samples, features)", code="features")
    if header.fortran and 1 not in header.shape:
        raise InvalidInputError(
            f"{what} is stored column by column, so its rows cannot be streamed; write it again with "
            "np.save(path, np.ascontiguousarray(X))",
            code="features",
        )
    if not header.dtype.isnative:
        raise InvalidInputError(
            f"{what} holds numbers of another byte order ({header.dtype.str}); write it again with "
            "np.save(path, X.astype(X.dtype.newbyteorder('=')))",
            code="features",
        )
    return header.shape[0], header.shape[1]
