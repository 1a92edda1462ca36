"""Which person may see and change a campaign, and the transactions in which they do."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection

from labelchef.base.campaigns import SUGGESTION, Role
from labelchef.base.duties import Duty
from labelchef.base.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError
from labelchef.base.events import note
from labelchef.server.memory import Memory
from labelchef.server.store import account_table, campaign_table
from labelchef.server.store.rows import AccountRow, CampaignRow
from labelchef.server.workspace import Workspace

_RESERVED = (SUGGESTION, "votes")
_LONGEST_NAME = 120


class Standing(NamedTuple):
    """What a person is in a campaign."""

    account_id: int | None
    """None for someone without an account."""
    duty: Duty | None
    """Which items they get; None for all."""
    had_gold: bool
    """Whether hidden gold was ever put among their items."""


class Part(NamedTuple):
    """A transaction in which a person takes part in a campaign."""

    connection: Connection
    campaign: CampaignRow
    person: str
    standing: Standing
    memory: Memory
    """What this process keeps."""


def find(ws: Workspace, campaign: str) -> CampaignRow:
    """The campaign as it is now."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
    note(campaign=row.id)
    return row


@contextlib.contextmanager
def looking(ws: Workspace, campaign: str, person: str | None = None) -> Iterator[tuple[Connection, CampaignRow]]:
    """A transaction that reads a campaign; with `person`, only if they may see it."""
    with ws.reading() as connection:
        if person is not None:
            yield connection, _visit(ws, connection, campaign, person).campaign
            return
        row = campaign_table.find_campaign(connection, campaign)
        note(campaign=row.id)
        yield connection, row


@contextlib.contextmanager
def visiting(ws: Workspace, campaign: str, person: str) -> Iterator[Part]:
    """A transaction that reads a campaign for a person, if they may see it."""
    with ws.reading() as connection:
        yield _visit(ws, connection, campaign, person)


@contextlib.contextmanager
def changing(ws: Workspace, campaign: str, *, archived: bool = False) -> Iterator[tuple[Connection, CampaignRow]]:
    """A transaction in which no one else writes to the campaign; afterwards those who wait for a change are woken.

    A campaign in the archive is refused, unless `archived` says that this may be done to it.
    """
    with ws.writing() as connection:
        row = campaign_table.find_campaign(connection, campaign, locked=not ws.database.is_sqlite)
        if not archived:
            _refuse_archived(row)
        yield connection, row
    ws.signal.notify()


@contextlib.contextmanager
def taking_part(
    ws: Workspace, campaign: str, person: str, *, lasting: bool = True, before: Callable[[Part], None] | None = None
) -> Iterator[Part]:
    """The same for a person who takes part; no one is woken.

    `before` reads what others may change meanwhile without harm: on PostgreSQL nobody waits for it.
    """
    with ws.writing(lasting=lasting, queue=campaign) as connection:
        part = _visit(ws, connection, campaign, person)
        if before is not None:
            before(part)
        if not ws.database.is_sqlite:
            part = part._replace(
                campaign=campaign_table.find_campaign(connection, part.campaign.public_id, locked=True)
            )
        _refuse_archived(part.campaign)
        yield part


def row_of(connection: Connection, name: str) -> AccountRow:
    """The row of an account; a name that has none is refused."""
    row = account_table.account_by_name(connection, name)
    if row is None:
        raise NotFoundError(f"there is no account {name!r}; `labelchef users list` lists them", code="account")
    return row


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


def _visit(ws: Workspace, connection: Connection, campaign: str, person: str) -> Part:
    """The campaign as a person sees it; not found by annotators who are no members."""
    check_person(person)
    found = account_table.campaign_of_person(connection, campaign, person)
    if found is None or found.campaign.deleted_at is not None or found.campaign.purging:
        row = campaign_table.find_campaign(connection, campaign)  # an earlier name, or an error that says what it is
        found = account_table.campaign_of_person(connection, row.public_id, person)
        assert found is not None, "it was there"
    note(campaign=found.campaign.id)
    account = found.account
    if account is not None and not account.active:
        raise ForbiddenError(f"the account {person!r} is deactivated; ask a lead", code="account")
    if account is not None and account.role != Role.LEAD and not found.member:
        raise NotFoundError(f"there is no campaign {campaign!r}; `labelchef status` lists them", code="campaign")
    standing = Standing(None if account is None else account.id, found.duty, found.had_gold)
    return Part(connection, found.campaign, person, standing, ws.memory)
