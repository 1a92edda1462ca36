"""Which person may see and change a campaign, and the transactions in which they do."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection

from labelchef.domain.campaigns import SUGGESTION, Role
from labelchef.domain.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError
from labelchef.services.workspace import Workspace
from labelchef.store import account_table, campaign_table
from labelchef.store.rows import AccountRow, CampaignRow

_RESERVED = (SUGGESTION, "votes")
_LONGEST_NAME = 120


class Part(NamedTuple):
    """A transaction in which a person takes part in a campaign."""

    connection: Connection
    campaign: CampaignRow
    person: str
    account_id: int | None = None
    """None for someone without an account."""


def find(ws: Workspace, campaign: str) -> CampaignRow:
    """The campaign as it is now."""
    with ws.reading() as connection:
        return campaign_table.find_campaign(connection, campaign)


@contextlib.contextmanager
def looking(ws: Workspace, campaign: str, person: str | None = None) -> Iterator[tuple[Connection, CampaignRow]]:
    """A transaction that reads a campaign; with `person`, only if they may see it."""
    with ws.reading() as connection:
        yield connection, _seen(connection, campaign, person)[0]


@contextlib.contextmanager
def changing(ws: Workspace, campaign: str, *, archived: bool = False) -> Iterator[tuple[Connection, CampaignRow]]:
    """A transaction in which no one else writes to the campaign; afterwards those who wait for a change are woken.

    A campaign in the archive is refused, unless `archived` says that this may be done to it.
    """
    with ws.writing() as connection:
        row = _locked(ws, connection, campaign, None)[0]
        if not archived:
            _refuse_archived(row)
        yield connection, row
    ws.signal.notify()


@contextlib.contextmanager
def taking_part(ws: Workspace, campaign: str, person: str, *, lasting: bool = True) -> Iterator[Part]:
    """The same for a person who takes part; no one is woken."""
    with ws.writing(lasting=lasting) as connection:
        row, account_id = _locked(ws, connection, campaign, person)
        _refuse_archived(row)
        yield Part(connection, row, person, account_id)


def takes_part(connection: Connection, campaign: CampaignRow, account: AccountRow) -> bool:
    """Whether an account may label in a campaign: members, and every lead."""
    return account.role == Role.LEAD or account_table.is_member(connection, campaign.id, account.id)


def leads(connection: Connection, campaign: CampaignRow, account: AccountRow) -> bool:
    """Whether an account may do what leads of a campaign do: its own leads, and every lead of the workspace."""
    own = account_table.role_in(connection, campaign.id, account.id)
    return account.role == Role.LEAD or own is Role.LEAD


def _refuse_archived(row: CampaignRow) -> None:
    if row.archived_at is not None:
        why = f"the campaign {row.name!r} is in the archive, where nothing changes; a lead can reopen it first"
        raise ConflictError(why, code="archived")


def check_person(person: str) -> None:
    """Refuse names that cannot be names of people."""
    printable = person.isprintable() and person.strip() == person
    if not printable or not 0 < len(person) <= _LONGEST_NAME or person in _RESERVED:
        raise InvalidInputError(
            f"{person!r} is no name of a person; expected 1 to {_LONGEST_NAME} printable characters, "
            f"not {' or '.join(_RESERVED)}",
            code="person",
        )


def _locked(ws: Workspace, connection: Connection, campaign: str, person: str | None) -> tuple[CampaignRow, int | None]:
    """The campaign and the account once no one else writes to the campaign; SQLite has one writer anyway."""
    found = _seen(connection, campaign, person)
    if ws.database.is_sqlite:
        return found
    ws.database.lock_campaign(connection, found[0].id)
    return _seen(connection, campaign, person)


def _seen(connection: Connection, campaign: str, person: str | None) -> tuple[CampaignRow, int | None]:
    """The campaign and the person's account, None for someone without one; not found by annotators who are no members."""
    row = campaign_table.find_campaign(connection, campaign)
    if person is None:
        return row, None
    check_person(person)
    account = account_table.account_by_name(connection, person)
    if account is None:
        return row, None
    if not account.active:
        raise ForbiddenError(f"the account {person!r} is deactivated; ask a lead", code="account")
    if not takes_part(connection, row, account):
        raise NotFoundError(f"there is no campaign {campaign!r}; `labelchef status` lists them", code="campaign")
    return row, account.id
