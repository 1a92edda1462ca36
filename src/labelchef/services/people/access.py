"""Which person may see and change a campaign."""

from typing import TYPE_CHECKING

from labelchef.domain.campaigns import SUGGESTION, Role
from labelchef.domain.errors import ForbiddenError, InvalidInputError, NotFoundError
from labelchef.services.workspace import Workspace
from labelchef.store import account_table, campaign_table
from labelchef.store.rows import CampaignRow

if TYPE_CHECKING:
    import sqlalchemy as sa

_RESERVED = (SUGGESTION, "votes")


_LONGEST_NAME = 120


def visible_campaign(connection: "sa.Connection", campaign: str, person: str) -> tuple[CampaignRow, int | None]:
    """The campaign and the person's account, None for someone without one.

    For an annotator who is no member, the campaign is not found.
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


def locked_campaign(ws: Workspace, connection: "sa.Connection", campaign: str) -> CampaignRow:
    """The campaign as it is once no one else writes to it."""
    row = campaign_table.find_campaign(connection, campaign)
    if ws.database.is_sqlite:
        return row
    ws.database.lock_campaign(connection, row.id)
    return campaign_table.find_campaign(connection, row.public_id)


def locked_for(
    ws: Workspace, connection: "sa.Connection", campaign: str, person: str
) -> tuple[CampaignRow, int | None]:
    """The same for a person who takes part, with their account."""
    row, account_id = visible_campaign(connection, campaign, person)
    if ws.database.is_sqlite:
        return row, account_id
    ws.database.lock_campaign(connection, row.id)
    return visible_campaign(connection, campaign, person)


def check_person(person: str) -> None:
    """Refuse names that cannot be names of people."""
    printable = person.isprintable() and person.strip() == person
    if not printable or not 0 < len(person) <= _LONGEST_NAME or person in _RESERVED:
        raise InvalidInputError(
            f"{person!r} is no name of a person; expected 1 to {_LONGEST_NAME} printable characters, "
            f"not {' or '.join(_RESERVED)}",
            code="person",
        )
