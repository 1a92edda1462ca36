"""The accounts that take part in a campaign."""

from typing import TYPE_CHECKING

from labelchef.domain.campaigns import Account, Role
from labelchef.services.people.access import locked_campaign
from labelchef.services.people.accounts import account_of, row_of
from labelchef.services.workspace import Workspace
from labelchef.store import account_table, campaign_table

if TYPE_CHECKING:
    pass


def members(ws: Workspace, campaign: str) -> list[Account]:
    """The accounts that take part in a campaign, by name."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        return [account_of(row_of(connection, name)) for name in account_table.member_names(connection, row.id)]


def is_member(ws: Workspace, campaign: str, name: str) -> bool:
    """Whether an account may label in a campaign: members, and every lead."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        account = account_table.account_by_name(connection, name)
        if account is None or not account.active:
            return False
        return account.role == Role.LEAD or account_table.is_member(connection, row.id, account.id)


def add_member(ws: Workspace, campaign: str, name: str, by: str = "lead") -> None:
    """Let an account label in a campaign."""
    _set_member(ws, campaign, name, by, member=True)


def remove_member(ws: Workspace, campaign: str, name: str, by: str = "lead") -> None:
    """Take an account off a campaign; its votes stay."""
    _set_member(ws, campaign, name, by, member=False)


def _set_member(ws: Workspace, campaign: str, name: str, by: str, *, member: bool) -> None:
    with ws.writing() as connection:
        row = locked_campaign(ws, connection, campaign)
        account = row_of(connection, name)
        if account_table.is_member(connection, row.id, account.id) != member:
            account_table.set_member(connection, row.id, account.id, member=member)
            campaign_table.note_change(connection, row.id, by, {"member_added" if member else "member_removed": name})
