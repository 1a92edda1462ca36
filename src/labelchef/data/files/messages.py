"""What an Arrow file unpacks to, from its messages, before anything is unpacked.

    stream     message*                         file    "ARROW1\\0\\0" stream footer
    message    ff ff ff ff | int32 m | m bytes of metadata (a FlatBuffer) | body
    body       the buffers of a record batch, at offsets that its metadata has; a packed buffer begins with its size, int64

FlatBuffers: a table begins with the distance back to its vtable; vtable = (uint16 size, uint16 size of the table, a uint16
offset for each field, 0 where it is missing); tables and vectors inside are reached by a uint32 distance.
"""

import mmap
import struct
from pathlib import Path

from labelchef.data.files.formats import unusable

_HEADER_TYPE, _HEADER, _BODY = 1, 2, 3
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_BUFFERS, _COMPRESSION, _DATA = 2, 3, 1
_MOST_MESSAGES = 1_000_000
_MARK = b"ARROW1"


def unpacked_size(path: Path) -> int:
    """Bytes of all buffers of an Arrow file or stream once they are unpacked."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as held:
        try:
            return _unpacked(held, 8 if held[:6] == _MARK else 0)
        except (struct.error, IndexError, ValueError) as error:
            raise unusable(f"{path} is no Arrow file ({error}); it may be cut off. Write it again") from None


def _unpacked(held: mmap.mmap, at: int) -> int:
    total = 0
    for _ in range(_MOST_MESSAGES):
        if at + 4 > len(held):
            return total
        (length,) = struct.unpack_from("<i", held, at)
        at += 4
        if length == -1:  # the mark of newer streams, before the length
            if at + 4 > len(held):
                return total
            (length,) = struct.unpack_from("<i", held, at)
            at += 4
        if length == 0:
            return total
        if length < 0 or at + length > len(held):
            raise ValueError("a message is longer than the file")
        message = _Table.at(held, at)
        body, kind = at + length, message.number(_HEADER_TYPE, "<B")
        size = message.number(_BODY, "<q")
        if size < 0 or body + size > len(held):
            raise ValueError("a body is longer than the file")
        header = message.table(_HEADER)
        if header is not None and kind == _DICTIONARY_BATCH:
            header = header.table(_DATA)
        if header is not None and kind in (_DICTIONARY_BATCH, _RECORD_BATCH):
            total += _buffers(held, header, body, size)
        at = body + size
    raise ValueError("it has too many messages")


def _buffers(held: mmap.mmap, batch: "_Table", body: int, size: int) -> int:
    packed, total = batch.table(_COMPRESSION) is not None, 0
    for offset, length in batch.pairs(_BUFFERS):
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError("a buffer is outside of its message")
        whole = length
        if packed and length >= 8:
            (whole,) = struct.unpack_from("<q", held, body + offset)
            whole = length if whole == -1 else whole  # -1: stored as it is
            if whole < 0:
                raise ValueError("a buffer has a negative size")
        total += whole
    return total


class _Table:
    """A table of a FlatBuffer."""

    def __init__(self, held: mmap.mmap, start: int) -> None:
        self.held, self.start = held, start
        self.vtable = start - struct.unpack_from("<i", held, start)[0]
        if start < 0 or self.vtable < 0:
            raise ValueError("a table is outside of the file")

    @classmethod
    def at(cls, held: mmap.mmap, place: int) -> "_Table":
        """The table whose distance stands at this place."""
        return cls(held, place + struct.unpack_from("<I", held, place)[0])

    def _place(self, field: int) -> int | None:
        (size,) = struct.unpack_from("<H", self.held, self.vtable)
        if 4 + 2 * field + 2 > size:
            return None
        (offset,) = struct.unpack_from("<H", self.held, self.vtable + 4 + 2 * field)
        return self.start + int(offset) if offset else None

    def number(self, field: int, form: str) -> int:
        """A field that is a whole number; 0 if it is missing."""
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.held, place)[0])

    def table(self, field: int) -> "_Table | None":
        """A field that is a table."""
        place = self._place(field)
        return None if place is None else _Table.at(self.held, place)

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A field that is a vector of pairs of int64."""
        place = self._place(field)
        if place is None:
            return []
        start = place + struct.unpack_from("<I", self.held, place)[0]
        (n,) = struct.unpack_from("<I", self.held, start)
        if start + 4 + 16 * n > len(self.held):
            raise ValueError("a list is longer than the file")
        return list(struct.iter_unpack("<qq", self.held[start + 4 : start + 4 + 16 * n]))
