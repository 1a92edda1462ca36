"""The features of the training samples, wherever they are: the contract, and the one for an array in memory.

    X (n, d)   as stored: float64, float32 or float16, which is widened to float32, exactly

A matrix is read in blocks, in the order of its rows, several ahead of the one that is used; or a few rows are taken out of it.
It can be pickled: files are opened by the process that reads. Rows of a part are counted from its own first row.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labelchef.base.arrays import Floats, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.features import check_scale
from labelchef.model.features.reading import Buffers, picked_runs, read_ahead

Stored = NDArray[Any]
"""Rows (n, d) as they are stored: float64, float32 or float16."""

KINDS = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16))
"""The types of numbers that are read."""

BLOCK_BYTES = 16 << 20
"""Of a block of rows, where nobody asks for another size."""

_SAMPLED = 64  # rows that the identity is computed from


class Features(ABC):
    """A matrix (n, d) that is read in blocks."""

    dtype: "np.dtype[Any]"
    """As stored."""
    readers = 4
    """Blocks that are read at once."""

    def __init__(self, shape: tuple[int, int], dtype: "np.dtype[Any]", what: str) -> None:
        self.what = what
        """Names the matrix in messages: a path, or 'X'."""
        self._whole = shape
        self._first, self._rows = 0, shape[0]
        self._known_identity: str | None = None
        if dtype not in KINDS:
            raise InvalidInputError(
                f"{what} holds numbers of type {dtype}; expected float64, float32 or float16. Convert them; int8 with scales "
                "becomes (X * scales).astype(np.float16)",
                code="features",
            )
        if 0 in shape:
            raise InvalidInputError(
                f"{what} has shape {shape}; expected (samples, features) with at least one of each", code="features"
            )
        self.dtype = np.dtype(dtype)

    @abstractmethod
    def _read(self, first: int, last: int, buffers: Buffers) -> Stored:
        """Rows first ≤ i < last of the whole matrix, contiguous; called by several threads at once."""

    @abstractmethod
    def check(self) -> None:
        """Refuse files that are missing, or changed since the matrix was opened; asked before every pass."""

    def _cuts(self, first: int, last: int, rows: int) -> Iterator[tuple[int, int]]:
        """Where blocks of `rows` rows begin and end, in rows of the whole matrix."""
        for start in range(first, last, rows):
            yield start, min(start + rows, last)

    def _pick(self, indices: Ints) -> Stored:
        """Rows of the whole matrix, ascending."""
        return picked_runs(self._read, indices, (len(indices), self.shape[1]), self.dtype, self.readers)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self._rows, self._whole[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as stored."""
        return self._whole[1] * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix as stored."""
        return self._rows * self.row_bytes

    @property
    def size(self) -> int:
        """Numbers in the matrix."""
        return self._rows * self._whole[1]

    @property
    def wide_dtype(self) -> "np.dtype[Any]":
        """What `take` returns: float64 for float64, else float32."""
        return np.dtype(np.float64 if self.dtype == np.float64 else np.float32)

    @property
    def in_memory(self) -> bool:
        """Whether reading it copies nothing."""
        return False

    @property
    def identity(self) -> str:
        """What another process compares to know that it reads the same matrix: shape, type, and a digest of 64 of its rows.

        It does not name the place: a copy of a file has the identity of the file.
        """
        if self._known_identity is None:
            n, d = self._whole
            digest = hashlib.sha256()
            rows = np.unique(np.linspace(0, n - 1, self._sampled()).astype(np.int64))
            digest.update(np.ascontiguousarray(self._pick(rows)).tobytes())
            digest.update(b"--")  # what version 0.2 wrote for features without scales
            self._known_identity = f"{n}x{d} {self.dtype} {digest.hexdigest()[:32]}"
        if self._rows == self._whole[0]:
            return self._known_identity
        return f"{self._known_identity} rows {self._first}:{self._first + self._rows}"

    def _sampled(self) -> int:
        return _SAMPLED

    def part(self, start: int, stop: int) -> Self:
        """The rows start ≤ i < stop; nothing is read."""
        if not 0 <= start < stop <= self._rows:
            raise InvalidInputError(
                f"rows {start} to {stop} of {self.what}; expected a part of its {self._rows} rows", code="features"
            )
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        found._first, found._rows = self._first + start, stop - start
        return found

    def blocks(
        self, start: int = 0, stop: int | None = None, rows: int | None = None, buffers: Buffers | None = None
    ) -> Iterator[tuple[int, Stored]]:
        """(number of its first row, rows as stored), in order; the next ones are read meanwhile.

        Blocks have `rows` rows, fewer at the end and where a file of several ends. They may be kept: memory is used again
        only once no array of a block is left. Ends with a `StoppedWorkError` where the computation was told to stop.
        """
        self.check()
        stop = self._rows if stop is None else stop
        rows = max(1, BLOCK_BYTES // self.row_bytes) if rows is None else rows
        cuts = self._cuts(self._first + start, self._first + stop, rows)
        for first, block in read_ahead(self._read, cuts, self.readers, buffers or Buffers()):
            for begin in range(0, len(block), rows):  # what is read as a whole may have more rows
                yield first - self._first + begin, block[begin : begin + rows]
            del block
        self.check()

    def take(self, indices: "Ints | Sequence[int]") -> Floats:
        """Some rows (m, d), widened; in any order, also several times."""
        rows = np.asarray(indices, dtype=np.int64)
        if len(rows) == 0:
            return np.empty((0, self.shape[1]), self.wide_dtype)
        if rows.min() < 0 or rows.max() >= self._rows:
            raise InvalidInputError(
                f"row {int(rows.max() if rows.max() >= self._rows else rows.min())} of {self.what}; expected 0 to "
                f"{self._rows - 1}",
                code="features",
            )
        distinct, back = np.unique(rows, return_inverse=True)
        found = widen(self._pick(distinct + self._first))
        return found if len(distinct) == len(rows) and (back[1:] > back[:-1]).all() else found[back]

    def stored(self, indices: Ints) -> Stored:
        """Some rows as stored; ascending, each once."""
        return self._pick(indices + self._first)

    def loaded(self) -> "ArrayFeatures":
        """The same matrix in memory, as stored."""
        X = np.empty(self.shape, self.dtype)
        for first, block in self.blocks():
            X[first : first + len(block)] = block
            del block
        return ArrayFeatures(X, self.what)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: Any) -> Floats:
        """Rows by a slice or an array of numbers, widened."""
        if isinstance(rows, slice):
            return self.take(np.arange(self._rows)[rows])
        if isinstance(rows, int | np.integer):
            return np.asarray(self.take([range(self._rows)[int(rows)]])[0])
        return self.take(np.arange(self._rows)[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Refused: an array of all rows is what is to be avoided."""
        raise InvalidInputError(
            f"{self.what} is read in blocks and not made an array; expected `take(rows)` or `blocks()`", code="features"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.what!r}, shape={self.shape}, dtype={self.dtype})"


class ArrayFeatures(Features):
    """An array in memory, or a memory map; blocks are views of it.

    >>> X = ArrayFeatures(np.eye(3, dtype=np.float16))
    >>> [(first, len(block)) for first, block in X.part(1, 3).blocks(rows=1)], X.take([2]).dtype
    ([(0, 1), (1, 1)], dtype('float32'))
    """

    readers = 1

    def __init__(self, X: Stored, what: str = "X") -> None:
        X = np.asarray(X)
        if X.ndim != 2:
            raise InvalidInputError(f"{what} has shape {X.shape}; expected (samples, features)", code="features")
        super().__init__((X.shape[0], X.shape[1]), X.dtype, what)
        self._X = np.ascontiguousarray(X)

    @property
    def in_memory(self) -> bool:
        """See `Features.in_memory`."""
        return True

    @property
    def array(self) -> Stored:
        """The rows as stored."""
        return self._X[self._first : self._first + self._rows]

    def loaded(self) -> "ArrayFeatures":
        """See `Features.loaded`."""
        return self

    def check(self) -> None:
        """See `Features.check`: an array does not go away."""

    def _read(self, first: int, last: int, buffers: Buffers) -> Stored:  # noqa: ARG002
        return self._X[first:last]

    def _pick(self, indices: Ints) -> Stored:
        return self._X[indices]

    def __getstate__(self) -> dict[str, Any]:
        """A part takes its own rows along, not all of them."""
        rows = slice(self._first, self._first + self._rows)
        known = self._known_identity if self._rows == self._whole[0] else None
        whole = (self._rows, self._whole[1])
        changed = {"_X": self._X[rows], "_known_identity": known, "_whole": whole, "_first": 0}
        return {**self.__dict__, **changed}


def widen(block: Stored) -> Floats:
    """Rows as stored (n, d) in float32, or float64 if they are; float arrays of such types are not copied."""
    return block if block.dtype in (np.float32, np.float64) else block.astype(np.float32)


def check_finite(X: Features, name: str = "X") -> None:
    """Refuse NaN and infinity, with the first row and column, and a scale that cannot be squared; one pass over X."""
    largest = 0.0
    for first, block in X.blocks():
        refuse_not_finite(block, first, name)
        largest = max(largest, float(block.max()), -float(block.min()))
        del block
    check_scale(largest, name)


def refuse_not_finite(block: Stored, first: int, name: str) -> None:
    """Refuse a block that holds NaN or infinity; `first` is the number of its first row."""
    half = block.dtype == np.float16  # all ones in the exponent; NumPy has no fast test for it
    fine = ((block.view(np.uint16) & 0x7C00) != 0x7C00).all() if half else np.isfinite(block).all()
    if not fine:
        row, column = np.argwhere(~np.isfinite(block))[0]
        raise InvalidInputError(
            f"{name}[{first + row}, {column}] is {block[row, column]}; expected finite numbers. "
            "Impute or drop missing values first",
            code="features",
        )
