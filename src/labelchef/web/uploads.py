"""Uploads: which routes accept large bodies, how their forms are read, where the files are stored."""

import contextlib
import errno
import re
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from fastapi import Request, Response, UploadFile
from fastapi.routing import APIRoute

from labelchef.domain.errors import InvalidInputError, LabelchefError, StoreError
from labelchef.domain.files import folder_for_a_while
from labelchef.services.workspace import UPLOADING

MOST_FILES = 200_000
_MOST_FIELDS = 1000
_SEVERAL = ("files", "media")
"""Parts of a form that may come several times."""
_LARGE = re.compile(r"/api/(campaigns(/[^/]+/import-votes)?|intakes(/[^/]+/files)?)")


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
    """Whether a request of a lead may bring much JSON: rules, and how files are used.

    >>> is_large("PUT", "/api/intakes/a/rules"), is_large("PATCH", "/api/intakes/a"), is_large("POST", "/api/campaigns/a/votes")
    (True, True, False)
    """
    return method in ("POST", "PUT", "PATCH") and path.startswith("/api/intakes/")


class UploadRoute(APIRoute):
    """A route whose form may hold many files. `Shield` has checked the sender before."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Read the form first: by default no more than 1000 files are accepted."""
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            with told_as_store_errors():
                form = await request.form(max_files=MOST_FILES, max_fields=_MOST_FIELDS)
            twice = [name for name, count in Counter(name for name, _ in form.multi_items()).items() if count > 1 and name not in _SEVERAL]
            if twice:
                why = f"the part {twice[0]!r} was sent twice, and one would be lost; send it once"
                raise InvalidInputError(why, code="same_name")
            return await handle(request)

        return read


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
