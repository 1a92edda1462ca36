"""The accounts that take part in a campaign."""

from labelchef.domain.campaigns import Account
from labelchef.services.people.access import changing, looking, takes_part
from labelchef.services.people.accounts import account_of, row_of
from labelchef.services.workspace import Workspace
from labelchef.store import account_table, campaign_table


def members(ws: Workspace, campaign: str) -> list[Account]:
    """The accounts that take part in a campaign, by name."""
    with looking(ws, campaign) as (connection, row):
        return [account_of(row_of(connection, name)) for name in account_table.member_names(connection, row.id)]


def is_member(ws: Workspace, campaign: str, name: str) -> bool:
    """Whether an account may label in a campaign."""
    with looking(ws, campaign) as (connection, row):
        account = account_table.account_by_name(connection, name)
        return account is not None and account.active and takes_part(connection, row, account)


def add_member(ws: Workspace, campaign: str, name: str, by: str = "lead") -> None:
    """Let an account label in a campaign."""
    _set_member(ws, campaign, name, by, member=True)


def remove_member(ws: Workspace, campaign: str, name: str, by: str = "lead") -> None:
    """Take an account off a campaign; its votes stay."""
    _set_member(ws, campaign, name, by, member=False)


def _set_member(ws: Workspace, campaign: str, name: str, by: str, *, member: bool) -> None:
    with changing(ws, campaign) as (connection, row):
        account = row_of(connection, name)
        if account_table.is_member(connection, row.id, account.id) != member:
            account_table.set_member(connection, row.id, account.id, member=member)
            campaign_table.note_change(connection, row.id, by, {"member_added" if member else "member_removed": name})
