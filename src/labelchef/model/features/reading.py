"""Reading ahead: blocks of a file are read by threads into page-aligned memory while the ones before them are used.

A file that is larger than half of the memory that is free is read past the page cache (O_DIRECT), where the file system allows
it: nothing of it would be found there by the next pass, and what is cached would push out other data. Offsets and lengths are
then multiples of 4 096 bytes, so a little more than a block is read, and the block is a view of it. Smaller files are read
through the cache, where the second pass finds them.
"""

import errno
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.limits import free_memory
from labelchef.base.stopping_work import go_on

PAGE = 4096
"""Bytes of which offsets and lengths past the page cache are multiples."""

_GAP_BYTES = 32 << 10  # between two rows that are taken, which are then read at once
_MOST_RUNS_BYTES = 4 << 20
_CACHED_SHARE = 0.5  # of the memory that is free, below which a file is left to the page cache


class Buffers:
    """Page-aligned memory for blocks. It is used again once no array that shows it is left."""

    def __init__(self) -> None:
        self._free: deque[mmap.mmap] = deque()

    def take(self, size: int) -> NDArray[np.uint8]:
        """At least `size` bytes."""
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = None
        if memory is None or len(memory) < size:
            memory = mmap.mmap(-1, -(-size // PAGE) * PAGE)
        whole = np.frombuffer(memory, np.uint8)
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole


Read = Callable[[int, int, Buffers], NDArray[Any]]
"""(first row, last row, memory) → the rows."""


def read_ahead(
    read: Read, cuts: Iterator[tuple[int, int]], readers: int, buffers: Buffers
) -> Iterator[tuple[int, NDArray[Any]]]:
    """(first row, rows) of every cut, in order; `readers` of them are read at once, and two wait to be used."""
    if readers == 1:  # views of memory
        for first, last in cuts:
            go_on()
            yield first, read(first, last, buffers)
        return
    pool = ThreadPoolExecutor(readers, thread_name_prefix="labelchef-read")
    waiting: deque[tuple[int, Future[NDArray[Any]]]] = deque()

    def start(count: int) -> None:
        for first, last in islice(cuts, count):
            waiting.append((first, pool.submit(read, first, last, buffers)))

    try:
        start(readers + 2)
        while waiting:
            go_on()
            first, future = waiting.popleft()
            block = future.result()
            del future  # it would keep the block
            yield first, block
            del block  # its memory is there for the next
            start(1)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def picked_runs(read: Read, rows: Ints, shape: tuple[int, int], dtype: "np.dtype[Any]", readers: int) -> NDArray[Any]:
    """Some rows, ascending: those that lie close together are read at once, and several such runs at a time."""
    found = np.empty(shape, dtype)
    row_bytes = max(1, shape[1] * dtype.itemsize)
    apart = np.diff(rows) > max(1, _GAP_BYTES // row_bytes)
    ends = [*(np.flatnonzero(apart) + 1).tolist(), len(rows)]
    most = max(1, _MOST_RUNS_BYTES // row_bytes)

    def runs() -> Iterator[tuple[int, int]]:
        begin = 0
        for end in ends:
            while begin < end:  # a long run in pieces
                inside = int(np.searchsorted(rows[begin:end], rows[begin] + most)) + begin
                yield begin, inside
                begin = inside

    def copy(begin: int, end: int, buffers: Buffers) -> NDArray[Any]:
        first = int(rows[begin])
        found[begin:end] = read(first, int(rows[end - 1]) + 1, buffers)[rows[begin:end] - first]
        return found[:0]

    for _ in read_ahead(copy, runs(), max(2, 4 * readers), Buffers()):
        pass
    return found


class LocalFile:
    """A file of this machine, which must stay as it is; read by several threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size, self._changed = self._facts()
        self._direct_wanted = hasattr(os, "O_DIRECT") and self.size > _CACHED_SHARE * free_memory()

    def _facts(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise InvalidInputError(
                f"{self.path} cannot be read: {error.strerror or error}. Bring the file back, or check the path",
                code="features",
            ) from None
        return found.st_size, found.st_mtime_ns

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Another process may read a copy of its own disk, which was written at another time; the size must be the same."""
        self.__dict__.update(state)
        try:
            found = self.path.stat()
        except OSError:  # `check` says so
            return
        if found.st_size == self.size:
            self._changed = found.st_mtime_ns

    def check(self) -> None:
        """Refuse a file that is missing or was changed since it was opened."""
        size, changed = self._facts()
        if (size, changed) != (self.size, self._changed):
            why = f"it has {size} bytes, and had {self.size}" if size != self.size else "it was written since"
            raise InvalidInputError(
                f"{self.path} has changed while it is used: {why}. Features must stay as they are; put the file back as it "
                "was, or begin again with the new one",
                code="features_changed",
            )

    def read(self, offset: int, length: int, buffers: Buffers) -> NDArray[np.uint8]:
        """Bytes of the file; those that are missing are an error."""
        begin = offset - offset % PAGE
        needed = offset + length - begin
        memory = buffers.take(-(-needed // PAGE) * PAGE)
        got = 0
        if self._direct_wanted:
            got = self._filled(memory, begin, 0, needed, os.O_DIRECT)
        if got < needed:  # the file system refuses, or gave a piece that does not end at a page
            got = self._filled(memory, begin, got, needed, 0)
        if got < needed:
            raise InvalidInputError(
                f"{self.path} ends at byte {begin + got}; expected {offset + length} bytes or more. The file is cut off: "
                "write it again",
                code="features",
            )
        return memory[offset - begin : offset - begin + length]

    def _filled(self, memory: NDArray[np.uint8], begin: int, got: int, needed: int, flags: int) -> int:
        """How many bytes are there after reading on from `got`, as far as this way of reading goes."""
        descriptor = -1
        try:
            descriptor = os.open(self.path, os.O_RDONLY | flags)
            while got < needed and not (flags and got % PAGE):
                count = os.preadv(descriptor, [memory[got:].data], begin + got)
                if count == 0:
                    break
                got += count
        except OSError as error:
            if flags and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                self._direct_wanted = False
                return got
            raise InvalidInputError(
                f"{self.path} cannot be read at byte {begin + got}: {error.strerror or error}. Check the disk, and begin "
                "again: nothing was changed",
                code="features",
            ) from None
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return got
