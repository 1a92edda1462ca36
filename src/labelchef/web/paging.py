"""Pages of lists that fit in memory. The cursor is a sort key, so new or deleted entries do not shift the others."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query

from labelchef.domain.campaigns import CampaignSummary, Page
from labelchef.domain.errors import InvalidInputError

Entry = TypeVar("Entry")
Key = str | int | float | tuple[str | int | float, ...]
Cursor = Annotated[str | None, Query(max_length=4000, description="`next` of the previous page.")]
Limit = Annotated[int, Query(ge=1, le=200, description="The most entries to return.")]


def part_of(
    entries: Sequence[Entry], key: Callable[[Entry], Key], after: str | None, limit: int, *, falling: bool = False
) -> Page[Entry]:
    """The entries after the cursor, sorted by their keys, rising or falling. Keys are distinct.

    >>> first = part_of(["c", "a", "b"], str, None, 2)
    >>> first.entries, part_of(["c", "a"], str, first.next, 2).entries
    (('a', 'b'), ('c',))
    """
    keyed = sorted(((_parts(key(entry)), entry) for entry in entries), key=lambda pair: pair[0], reverse=falling)
    if after is not None:
        last = _decoded(after)
        if keyed and [type(part) for part in last] != [type(part) for part in keyed[0][0]]:
            raise InvalidInputError("the cursor belongs to another list; start again without a cursor", code="cursor")
        keyed = [pair for pair in keyed if (pair[0] < last if falling else pair[0] > last)]
    chosen = keyed[:limit]
    more = len(keyed) > limit
    return Page(tuple(entry for _, entry in chosen), _encoded(chosen[-1][0]) if more else None)


def by_age(campaign: CampaignSummary) -> Key:
    """The key that sorts campaigns by when they were made."""
    return campaign.created_at.timestamp(), campaign.id


def _parts(key: Key) -> list[Any]:
    return list(key) if isinstance(key, tuple) else [key]


def _encoded(key: list[Any]) -> str:
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _decoded(cursor: str) -> list[Any]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("utf-8", "surrogatepass")
        key = json.loads(text)
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list):
        raise InvalidInputError("the cursor cannot be read; give `next` of the previous page", code="cursor")
    return key
