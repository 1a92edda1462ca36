"""Uploads: which routes accept large bodies, how their forms are read, where the files are stored."""

import contextlib
import errno
import re
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import IO, Any

from fastapi import Request, Response, UploadFile
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from labelchef.base.errors import InvalidInputError, LabelchefError, StoreError
from labelchef.base.files import folder_for_a_while
from labelchef.server.workspace import UPLOADING

MOST_FILES = 200_000
_MOST_FIELDS = 1000
_SEVERAL = ("files", "media", "classes")
"""Parts of a form that may come several times."""
_LARGE = re.compile(r"/api/(campaigns(/[^/]+/import-votes)?|intakes(/[^/]+/files)?)")


_ACTIONS = re.compile(r"/api/campaigns/[^/]+/items/actions")


def is_upload(method: str, path: str) -> bool:
    """Whether a request may bring files, and so be large.

    >>> is_upload("POST", "/api/campaigns"), is_upload("POST", "/api/campaigns/a/import-votes")
    (True, True)
    >>> is_upload("POST", "/api/intakes"), is_upload("POST", "/api/intakes/a/files"), is_upload("POST", "/api/intakes/a/create")
    (True, True, False)
    >>> is_upload("POST", "/api/session"), is_upload("GET", "/api/campaigns")
    (False, False)
    """
    return method == "POST" and _LARGE.fullmatch(path) is not None


def is_large(method: str, path: str) -> bool:
    """Whether a request of a lead may bring much JSON: rules, how files are used, an action on many items.

    >>> is_large("PUT", "/api/intakes/a/rules"), is_large("PATCH", "/api/intakes/a"), is_large("POST", "/api/campaigns/a/votes")
    (True, True, False)
    >>> is_large("POST", "/api/campaigns/a/items/actions")
    True
    """
    if method == "POST" and _ACTIONS.fullmatch(path) is not None:
        return True
    return method in ("POST", "PUT", "PATCH") and path.startswith("/api/intakes/")


class UploadRoute(APIRoute):
    """A route whose form may hold many files. `Shield` has checked the sender before."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Read the form first, each file to the disk; by default no more than 1000 files are accepted."""
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            held, home = contextlib.ExitStack(), request.app.state.workspace.home
            with told_as_store_errors():
                folder = held.enter_context(folder_for_a_while(home, UPLOADING))
            try:
                with told_as_store_errors():
                    form = await _read_form(request, folder)
                twice = [name for name, n in Counter(name for name, _ in form.multi_items()).items() if n > 1]
                wrong = [name for name in twice if name not in _SEVERAL]
                if wrong:
                    await form.close()
                    why = f"the part {wrong[0]!r} was sent twice, and one would be lost; send it once"
                    raise InvalidInputError(why, code="same_name")
                return await handle(request)
            finally:
                await run_in_threadpool(held.close)

        return read


async def _read_form(request: Request, folder: Path) -> FormData:
    """The form of a request, which `Request.form` answers with from now on; its files lie in `folder`."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return await request.form(max_fields=_MOST_FIELDS)
    try:
        async with contextlib.aclosing(request.stream()) as stream:
            parser = _ParkingParser(folder, request.headers, stream, max_files=MOST_FILES, max_fields=_MOST_FIELDS)
            request._form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, error.message) from None
    return request._form


class _ParkingParser(MultiPartParser):
    """Reads a form and opens one file at a time, so that thousands of pictures need one file handle and no memory."""

    def __init__(self, folder: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._folder = folder

    def on_headers_finished(self) -> None:
        """A part begins: its file is one that is open only while it is written or read."""
        super().on_headers_finished()
        file = self._current_part.file
        if file is not None:
            file.file.close()
            file.file = _Parked(self._folder / str(self._current_files))  # type: ignore[assignment]


class _Parked:
    """A file that is closed between two writes, and from the end of reading on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading: IO[bytes] | None = None

    def write(self, data: bytes) -> int:
        """Append."""
        with self._path.open("ab") as stream:
            return stream.write(data)

    def seek(self, offset: int) -> int:
        """All is written: reading begins at the first byte."""
        self.write(b"")  # an empty file is a file
        return offset

    def read(self, size: int = -1) -> bytes:
        """The next bytes; at the end the file is closed."""
        if self._reading is None:
            self._reading = self._path.open("rb")
        found = self._reading.read(size)
        if not found or size < 0:
            self.close()
        return found

    def close(self) -> None:
        """Close; the folder is deleted with the request."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None


@contextlib.contextmanager
def told_as_store_errors() -> Iterator[None]:
    """Report errors of the disk as errors of the store."""
    try:
        yield
    except LabelchefError:  # some of them are a PermissionError, too
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            told = "the disk is full, the upload was not stored; make room and send it again"
            raise StoreError(told, code="disk_full") from error
        told = f"the upload cannot be stored: {error.strerror or error}; check the folder and its rights"
        raise StoreError(told, code="folder") from error


@contextlib.contextmanager
def upload_folder(within: Path | None = None) -> Iterator[Path]:
    """A folder for uploaded files; it is deleted afterwards."""
    with told_as_store_errors(), folder_for_a_while(within, UPLOADING) as folder:
        yield folder


def saved(folder: Path, upload: UploadFile) -> Path:
    """Store an upload under its own name; folders in the name are ignored."""
    name = Path((upload.filename or "").replace("\\", "/")).name
    if not name or name in (".", "..") or "\x00" in name or len(name.encode()) > 200:
        raise InvalidInputError("an uploaded file has no usable name; give each a name with its ending", code="file")
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / name).exists():
        why = f"two uploaded files are called {name!r}, and one would be lost; give each a name of its own"
        raise InvalidInputError(why, code="same_name")
    with (folder / name).open("wb") as target:
        shutil.copyfileobj(upload.file, target, 1 << 20)
    return folder / name
