"""Who may see a campaign, and times as people read them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from labelchef.domain.campaigns import SUGGESTION, Role
from labelchef.domain.errors import ForbiddenError, InvalidInputError, NotFoundError
from labelchef.store import account_table, campaign_table
from labelchef.store.rows import CampaignRow

if TYPE_CHECKING:
    import sqlalchemy as sa

_RESERVED = (SUGGESTION, "votes")
_LONGEST_NAME = 120


def visible_campaign(connection: "sa.Connection", campaign: str, person: str) -> tuple[CampaignRow, int | None]:
    """The campaign and the person's account, None for someone without one.

    A campaign that an annotator is no member of does not exist for them.
    """
    row = campaign_table.find_campaign(connection, campaign)
    check_person(person)
    account = account_table.account_by_name(connection, person)
    if account is None:
        return row, None
    if not account.active:
        raise ForbiddenError(f"the account {person!r} is deactivated; ask a lead", code="account")
    if account.role != Role.LEAD and not account_table.is_member(connection, row.id, account.id):
        raise NotFoundError(f"there is no campaign {campaign!r}; `labelchef status` lists them", code="campaign")
    return row, account.id


def check_person(person: str) -> None:
    """Refuse names that cannot stand for a person."""
    printable = person.isprintable() and person.strip() == person
    if not printable or not 0 < len(person) <= _LONGEST_NAME or person in _RESERVED:
        raise InvalidInputError(
            f"{person!r} is no name of a person; expected 1 to {_LONGEST_NAME} printable characters, "
            f"not {' or '.join(_RESERVED)}",
            code="person",
        )


def moment(seconds: float) -> datetime:
    """A stored time."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """A stored time that may be missing."""
    return None if seconds is None else moment(seconds)
