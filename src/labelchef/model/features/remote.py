"""Features in an object store or on a web server, through fsspec: .npy files, Parquet files, and folders of them.

A block is one request for a range of bytes; several are under way at once.
"""

import io
from pathlib import PurePosixPath
from typing import IO, Any

import numpy as np

from labelchef.base.errors import InvalidInputError, LabelchefError, MissingExtraError
from labelchef.base.npy import header_and_start
from labelchef.model.features.contract import Features, Stored
from labelchef.model.features.npy import check_header
from labelchef.model.features.reading import Buffers
from labelchef.model.features.shards import MANIFEST, open_shards, shard_names

_LONGEST_HEADER = 1 << 14
_MARKS = (
    *("ETag", "etag", "md5Hash", "Content-MD5"),  # of the content
    *("mtime", "Last-Modified", "LastModified", "last_modified", "updated", "created"),
)  # what stores and web servers call the version of a file; the first that is there counts


class RemoteFile:
    """A file at a URL, which must stay as it is."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.facts = self._facts()

    def _facts(self) -> tuple[int, str]:
        """Size, and what the store says of the version."""
        fs, path = file_system(self.url)
        try:
            fs.invalidate_cache(path)  # a listing from before would say what was
            found = fs.info(path)
        except Exception as error:
            raise InvalidInputError(
                f"{self.url} cannot be found: {str(error)[:200] or type(error).__name__}. Check the URL and the rights",
                code="features",
            ) from None
        if found.get("size") is None:
            raise InvalidInputError(
                f"{self.url}: the server does not say how large it is, so it cannot be read in parts; copy the file here",
                code="features",
            )
        return int(found["size"]), str(next((found[name] for name in _MARKS if found.get(name)), ""))

    def check(self) -> None:
        """Refuse a file that changed."""
        now = self._facts()
        if now != self.facts:
            size = self.facts[0]
            why = f"it has {now[0]} bytes, and had {size}" if now[0] != size else "it was written since"
            raise InvalidInputError(
                f"{self.url} has changed while it is used: {why}. Put the file back as it was, or begin again with the new one",
                code="features_changed",
            )

    def read(self, start: int, stop: int) -> bytes:
        """A range of its bytes."""
        fs, path = file_system(self.url)
        try:
            found = bytes(fs.cat_file(path, start=start, end=stop))
        except Exception as error:
            raise InvalidInputError(
                f"{self.url} cannot be read at byte {start}: {str(error)[:200] or type(error).__name__}. Try again: nothing was "
                "changed",
                code="features",
            ) from None
        if len(found) != stop - start:
            raise InvalidInputError(
                f"{self.url} gave {len(found)} bytes for a range of {stop - start}; expected a server that knows ranges, and a "
                "file that is whole",
                code="features",
            )
        return found

    def open(self) -> IO[bytes]:
        """As a file."""
        fs, path = file_system(self.url)
        return fs.open(path, "rb")  # type: ignore[no-any-return]


class RemoteNpyFeatures(Features):
    """A .npy file at a URL."""

    readers = 8

    def __init__(self, url: str) -> None:
        self._file = RemoteFile(url)
        size = self._file.facts[0]
        header, self._start = header_and_start(io.BytesIO(self._file.read(0, min(size, _LONGEST_HEADER))), url)
        shape = check_header(header, url)
        if size - self._start != header.nbytes:
            raise InvalidInputError(
                f"{url} has {size - self._start} bytes for an array of {header.nbytes}. The file is cut off: write it again",
                code="features",
            )
        super().__init__(shape, header.dtype, url)

    def check(self) -> None:
        """See `Features.check`."""
        self._file.check()

    def _read(self, first: int, last: int, buffers: Buffers) -> Stored:
        size, rows = self.row_bytes, last - first
        found = self._file.read(self._start + first * size, self._start + last * size)
        memory = buffers.take(rows * size)[: rows * size]
        memory[:] = np.frombuffer(found, np.uint8)
        return memory.view(self.dtype).reshape(rows, -1)


def open_remote(url: str) -> Features:
    """The features at a URL."""
    suffix = PurePosixPath(url.split("?")[0]).suffix
    if suffix == ".npy":
        return RemoteNpyFeatures(url)
    if suffix == ".parquet":
        from labelchef.model.features.remote_parquet import RemoteParquetFeatures

        return RemoteParquetFeatures(url)
    fs, path = file_system(url)
    try:
        names = [PurePosixPath(one.rstrip("/")).name for one in fs.ls(path, detail=False)]
    except Exception as error:
        raise InvalidInputError(
            f"{url} cannot be listed: {str(error)[:200] or type(error).__name__}; expected a .npy or .parquet file, or a "
            "folder of them",
            code="features",
        ) from None
    folder = url.rstrip("/")
    manifest = RemoteFile(f"{folder}/{MANIFEST}") if MANIFEST in names else None
    content = None if manifest is None else manifest.read(0, manifest.facts[0])
    return open_shards(shard_names(names, content, url), lambda name: open_remote(f"{folder}/{name}"), url)


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, which fsspec keeps, and the path there."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(
            "features at a URL need fsspec; pip install 'labelchef[features]'", code="features"
        ) from None
    try:
        found = fsspec.core.url_to_fs(url)
    except LabelchefError:
        raise
    except (ImportError, ValueError) as error:
        raise InvalidInputError(f"{url} cannot be opened: {error}", code="features") from None
    return found[0], found[1]
