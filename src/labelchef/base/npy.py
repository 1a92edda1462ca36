"""NumPy's files, .npy and .npz, read without trust: headers first, then the arrays.

Before any array is read, every header is: its shape and type must account for the entry's bytes exactly, the sum must fit into
memory (`labelchef.base.limits`), and types are numbers, truth values and texts. Arrays of objects are pickles; they are
refused, never loaded. Texts hold characters that exist: damaged ones crash Python when they are taken out of the array.
"""

import ast
import io
import math
import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError
from labelchef.base.limits import check_unpacked

_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)
_PIECE = 1 << 22
_ENDING = ".npy"
_MOST_ENTRIES = 10_000
_MOST_AXES = 32
_MOST_EMPTY = 1 << 30
"""The longest side of an array that holds nothing."""


@dataclass(frozen=True)
class Header:
    """What stands before an array."""

    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"
    fortran: bool = False

    @property
    def nbytes(self) -> int:
        """Of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file, memory-mapped; one of texts is checked."""
    with path.open("rb") as stream:
        header, start = header_and_start(stream, str(path))
        size = stream.seek(0, io.SEEK_END)
    if size - start != header.nbytes:
        raise _damaged(str(path), f"it has {size - start} bytes for an array of {header.nbytes}")
    if header.nbytes == 0:
        return np.empty(header.shape, header.dtype)
    order: Literal["F", "C"] = "F" if header.fortran else "C"
    array = np.memmap(path, header.dtype, mode="r", offset=start, shape=header.shape, order=order)
    check_texts(array, str(path))
    return array


def npy_header(path: Path) -> Header:
    """The header of a .npy file."""
    with path.open("rb") as stream:
        return header_and_start(stream, str(path))[0]


def npz_headers(file: Path | bytes, what: str | None = None) -> dict[str, Header]:
    """The headers of all arrays of an .npz, which fit into memory together; nothing else is read."""
    named = what or str(file)
    with _opened(file) as stream, _archive(stream, named) as archive:
        return _headers(archive, named)


def read_npz(
    file: Path | bytes, what: str | None = None, names: Sequence[str] | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz, or those with these names; `what` names the file in messages."""
    named = what or str(file)
    with _opened(file) as stream, _archive(stream, named) as archive:
        headers = _headers(archive, named)
        found = {}
        for name in headers if names is None else names:
            if name not in headers:
                raise _damaged(named, f"it has no array {name!r}, only {list(headers)[:10]}")
            try:
                with archive.open(name + _ENDING) as entry:
                    header_and_start(entry, named)
                    found[name] = _array(entry, headers[name])
            except InvalidInputError:
                raise
            except Exception as error:  # a stream that cannot be unpacked fails in many ways
                raise _damaged(named, f"array {name!r}: {error}") from None
            check_texts(found[name], f"{named}, array {name!r}")
    return found


def check_lengths(what: str, lengths: Mapping[str, int]) -> None:
    """Refuse arrays of different lengths, by their headers."""
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(
            f"{what} holds arrays of different lengths {dict(lengths)}; expected a row each, in one order", code="file"
        )


def check_texts(array: NDArray[Any], what: str) -> None:
    """Refuse texts with characters that do not exist, and bytes that are no UTF-8."""
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
        codes = codes if array.dtype.isnative else codes.byteswap()
        for start in range(0, len(codes), _PIECE):
            some = codes[start : start + _PIECE]
            if (some > _LAST_CHARACTER).any() or ((some >= _SURROGATES[0]) & (some <= _SURROGATES[1])).any():
                raise _damaged(what, "it holds texts with characters that do not exist")
    elif array.dtype.kind == "S" and array.size and array.dtype.itemsize:
        try:
            for one in array.reshape(-1).tolist():
                one.decode("utf-8")
        except UnicodeDecodeError:
            raise _damaged(what, "it holds bytes that are no UTF-8 text") from None


def _opened(file: Path | bytes) -> IO[bytes]:
    return io.BytesIO(file) if isinstance(file, bytes) else file.open("rb")


def _archive(stream: IO[bytes], what: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(stream)
    except Exception as error:
        raise _damaged(what, f"it is no archive of arrays: {error}") from None


def _array(stream: IO[bytes], header: Header) -> NDArray[Any]:
    flat = np.empty(math.prod(header.shape), header.dtype)
    if header.nbytes:
        into, at = flat.view(np.uint8), 0
        while at < header.nbytes:
            piece = stream.read(min(_PIECE, header.nbytes - at))
            if not piece:
                raise EOFError("it is cut off")
            into[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
    if stream.read(1):  # reads to the end, where the checksum is compared
        raise ValueError("there is more behind the array")
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def _headers(archive: zipfile.ZipFile, what: str) -> dict[str, Header]:
    entries = archive.infolist()
    if not 0 < len(entries) <= _MOST_ENTRIES:
        raise _damaged(what, f"it holds {len(entries)} entries; expected 1 to {_MOST_ENTRIES} arrays")
    wrong = next((one.filename for one in entries if not one.filename.endswith(_ENDING)), None)
    if wrong is not None:
        raise _damaged(what, f"{wrong!r} is no array")
    if len({one.filename for one in entries}) < len(entries):
        raise _damaged(what, "it names an array twice")
    check_unpacked(what, sum(one.compress_size for one in entries), sum(one.file_size for one in entries))
    found = {}
    for one in entries:
        name = one.filename.removesuffix(_ENDING)
        where = f"{what}, array {name!r}"
        try:
            with archive.open(one) as stream:
                header, start = header_and_start(stream, where)
        except InvalidInputError:
            raise
        except Exception as error:  # zlib.error, encrypted entries, methods that are not known
            raise _damaged(where, str(error)) from None
        if one.file_size - start != header.nbytes:
            raise _damaged(where, f"it has {one.file_size - start} bytes for an array of {header.nbytes}")
        found[name] = header
    return found


_DESCRIBED = re.compile(r"[<>|=]?([biufUS]\d{1,10}|\?)")
_LONGEST_HEADER = 10_000


def header_and_start(stream: IO[bytes], what: str) -> tuple[Header, int]:
    """The header of an array and how many bytes it takes.

    It is read here and not by NumPy, which warns of some headers and makes types of code-like descriptions.
    """
    try:
        version = np.lib.format.read_magic(stream)
        form = {(1, 0): "<H", (2, 0): "<I"}[version]
        (length,) = struct.unpack(form, stream.read(struct.calcsize(form)))
        text = stream.read(min(length, _LONGEST_HEADER + 1))
        if not len(text) == length <= _LONGEST_HEADER:
            raise ValueError(f"it has {length} bytes")  # noqa: TRY301
        held = ast.literal_eval(text.decode("latin-1").strip())
        described, shape, fortran = held["descr"], held["shape"], held["fortran_order"]
        if type(shape) is not tuple or not all(type(one) is int and one >= 0 for one in shape):
            raise ValueError(f"the shape is {str(shape)[:100]}")  # noqa: TRY301
    except Exception as error:  # every way in which bytes can fail to be a header
        raise _damaged(what, f"its header cannot be read ({str(error)[:200] or type(error).__name__})") from None
    if isinstance(described, str) and described.endswith("O"):
        raise InvalidInputError(
            f"{what} is an array of Python objects, which is a pickle and could run code; it is not loaded. Save numbers, or "
            "texts as np.array(values, dtype=str)",
            code="file",
        )
    if not isinstance(described, str) or not _DESCRIBED.fullmatch(described):
        raise InvalidInputError(
            f"{what} has the type {str(described)[:100]}; expected numbers, truth values or texts", code="file"
        )
    try:
        header = Header(shape, np.dtype(described), bool(fortran))
    except (TypeError, ValueError) as error:
        raise _damaged(what, f"its type {described!r} does not exist ({error})") from None
    if len(shape) > _MOST_AXES or (header.nbytes == 0 and max(shape, default=0) > _MOST_EMPTY):
        raise _damaged(what, f"an array of the shape {shape} and type {described} holds nothing")
    return header, stream.tell()


def _damaged(what: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{what} cannot be read: {why}. The file may be cut off or damaged; write it again", code="file"
    )
