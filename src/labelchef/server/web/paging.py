"""Pages of lists that fit in memory. The cursor is a sort key, so new or deleted entries do not shift the others."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query

from labelchef.base.campaigns import Page
from labelchef.base.errors import InvalidInputError

Entry = TypeVar("Entry")
Key = tuple[str | int | float, ...]
Cursor = Annotated[str | None, Query(max_length=4000, description="`next` of the previous page.")]
Limit = Annotated[int, Query(ge=1, le=200, description="The most entries to return.")]


def part_of(
    entries: Sequence[Entry], key: Callable[[Entry], Key], after: str | None, limit: int, *, falling: bool = False
) -> Page[Entry]:
    """The entries after the cursor, sorted by their keys, rising or falling. Keys are distinct.

    >>> first = part_of(["c", "a", "b"], tuple, None, 2)
    >>> first.entries, part_of(["c", "a"], tuple, first.next, 2).entries
    (('a', 'b'), ('c',))
    """
    keyed = sorted(((key(entry), entry) for entry in entries), key=lambda pair: pair[0], reverse=falling)
    if after is not None:
        last = _decoded(after)
        if keyed and [type(part) for part in last] != [type(part) for part in keyed[0][0]]:
            raise InvalidInputError("the cursor belongs to another list; start again without a cursor", code="cursor")
        keyed = [pair for pair in keyed if (pair[0] < last if falling else pair[0] > last)]
    return Page(
        tuple(entry for _, entry in keyed[:limit]), _encoded(keyed[limit - 1][0]) if len(keyed) > limit else None
    )


def _encoded(key: Key) -> str:
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _decoded(cursor: str) -> tuple[Any, ...]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("utf-8", "surrogatepass")
        key = json.loads(text)
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list):
        raise InvalidInputError("the cursor cannot be read; give `next` of the previous page", code="cursor")
    return tuple(key)
