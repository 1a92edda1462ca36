"""Pages of lists that fit in memory: the cursor is the key of the last entry, so that what is added does not shift it."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from labelchef.domain.errors import InvalidInputError
from labelchef.web.views import PageOf

Entry = TypeVar("Entry")
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200, description="Entries at most.")]


def part_of(entries: Sequence[Entry], key: Callable[[Entry], str], after: str | None, limit: int) -> PageOf[Entry]:
    """The entries behind the cursor.

    >>> first = part_of(["a", "b", "c"], str, None, 2)
    >>> first.entries, part_of(["a", "b", "c"], str, first.next, 2).entries
    (['a', 'b'], ['c'])
    """
    start = 0
    if after is not None:
        last = _decoded(after)
        start = next((k + 1 for k, entry in enumerate(entries) if key(entry) == last), -1)
        if start < 0:
            raise InvalidInputError(
                "the cursor does not belong to this list, or its entry is gone; start again", code="cursor"
            )
    chosen = list(entries[start : start + limit])
    more = start + limit < len(entries)
    return PageOf(entries=chosen, next=_encoded(key(chosen[-1])) if more and chosen else None)


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise InvalidInputError("the cursor cannot be read; give `next` of the page before", code="cursor") from None
