"""What the use cases share: stored times and rows as people read them, and the words for a disk that refuses."""

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labelchef.base.errors import InvalidInputError, LabelchefError, StoreError


def moment(seconds: float) -> datetime:
    """A stored time."""
    return datetime.fromtimestamp(seconds, UTC)


def common(kind: type, row: object) -> dict[str, Any]:
    """Name → value of those fields of a record that a row has under the same name."""
    return {one.name: getattr(row, one.name) for one in fields(kind) if hasattr(row, one.name)}


@contextlib.contextmanager
def writing_to(
    place: Path, remedy: str, *, kind: type[StoreError | InvalidInputError] = StoreError, code: str = "out"
) -> Iterator[None]:
    """Say in a sentence what a disk, a folder or its rights do not allow."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename or place} cannot be written: {error.strerror or error}; {remedy}"
        if isinstance(error, FileNotFoundError) and not place.parent.is_dir():
            what = f"{place} cannot be written: there is no folder {place.parent}; make it, or name another file"
        raise kind(what, code="disk_full" if error.errno == errno.ENOSPC else code) from None


def below(text: str, folder: Path) -> str:
    """A message that names files as those know them who sent them, not where the server keeps them.

    >>> below("/srv/home/x/votes.csv is empty", Path("/srv/home/x"))
    'votes.csv is empty'
    """
    return text.replace(f"{folder}/", "").replace(str(folder), "the files")


@contextlib.contextmanager
def told_below(folder: Path) -> Iterator[None]:
    """Errors name files as those know them who sent them."""
    try:
        yield
    except LabelchefError as error:
        error.args = (below(str(error), folder), *error.args[1:])
        raise
