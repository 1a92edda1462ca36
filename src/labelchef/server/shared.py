"""What the use cases share: stored times and rows as people read them, and the words for a disk that refuses."""

import contextlib
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labelchef.base.errors import LabelchefError


def moment(seconds: float) -> datetime:
    """A stored time."""
    return datetime.fromtimestamp(seconds, UTC)


def common(kind: type, row: object) -> dict[str, Any]:
    """Name → value of those fields of a record that a row has under the same name."""
    return {one.name: getattr(row, one.name) for one in fields(kind) if hasattr(row, one.name)}


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
