"""Names of campaigns, and the short names that stand in addresses."""

import re
import unicodedata

from sqlalchemy import Connection

from labelchef.base.errors import ConflictError, InvalidInputError, NameTakenError
from labelchef.server.store import campaign_table

LONGEST = 200
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_SLUG = 60


def check_name(connection: Connection, name: str, *, but: int | None = None) -> str:
    """A name for a campaign, without spaces around it. One that another campaign has is refused, with a free one to take.

    `but` is the id of a campaign that may have it. Names are compared without regard to case.
    """
    if not 0 < len(name.strip()) <= LONGEST or not name.isprintable():
        why = f"{name!r} is no name of a campaign; expected 1 to {LONGEST} printable characters"
        raise InvalidInputError(why, code="name")
    there = campaign_table.named(connection, name, but=but)
    if there is None:
        return name.strip()
    free = free_name(connection, name.strip())
    archived = ", archived" if there.archived_at is not None else ""
    raise NameTakenError(
        f"a campaign named {there.name!r} exists already ({there.slug!r}{archived}); open that one, or choose another name, "
        f"such as {free!r}",
        suggestion=free,
        campaign=there.slug,
    )


def free_name(connection: Connection, name: str) -> str:
    """The name with the first number that makes it free: 'Digits 2'."""
    base = re.sub(r" \d{1,6}$", "", name)[: LONGEST - 8]
    k = 2
    while campaign_table.named(connection, f"{base} {k}") is not None:
        k += 1
    return f"{base} {k}"


def free_slug(connection: Connection, name: str) -> str:
    """A short name for a new campaign."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_SLUG].strip("-") or "campaign"
    slug, k = base, 1
    while campaign_table.slug_taken(connection, slug):
        k += 1
        slug = f"{base}-{k}"
    return slug


def check_slug(connection: Connection, slug: str, campaign_id: int) -> None:
    """Refuse what cannot stand in an address, and what leads or led to another campaign."""
    if len(slug) > _LONGEST_SLUG or not _SLUG.fullmatch(slug):
        why = f"{slug!r} is no short name; expected 1 to {_LONGEST_SLUG} letters a to z and digits, words joined by '-'"
        raise InvalidInputError(why, code="slug")
    if not campaign_table.slug_taken(connection, slug):
        return
    there = campaign_table.owner_of_slug(connection, slug)
    if there != campaign_id:
        why = f"the address {slug!r} leads to another campaign, or did before; choose another, such as"
        raise ConflictError(f"{why} {free_slug(connection, slug)!r}", code="slug_taken")
