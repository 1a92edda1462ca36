"""Accounts, who takes part in which campaign, sessions, tokens and attempts to sign in."""

import time
from dataclasses import fields
from typing import Any, NamedTuple, Unpack

import sqlalchemy as sa
from sqlalchemy import bindparam

from labelchef.base.campaigns import Role
from labelchef.base.duties import Duty
from labelchef.server.store.rows import AccountRow, AccountValues, CampaignRow, TokenRow, all_rows, first_row, storable
from labelchef.server.store.tables import (
    Account,
    ApiToken,
    Campaign,
    Gold,
    LoginAttempt,
    LoginSession,
    Membership,
    OldSlug,
    Vote,
)
from labelchef.server.store.tables import Duty as DutyTable

_ATTEMPTS = 2021_0001  # the advisory lock of PostgreSQL that sign-ins take
_BY_NAME = sa.select(Account).where(Account.c.name == bindparam("name"))


def account_by_name(connection: sa.Connection, name: str) -> AccountRow | None:
    """An account, or None."""
    return first_row(connection, _BY_NAME, AccountRow, name=name) if storable(name) else None


def insert_account(connection: sa.Connection, name: str, role: Role, password_hash: str | None) -> None:
    """A new account."""
    values = {"name": name, "role": role, "password_hash": password_hash, "active": True, "created_at": time.time()}
    connection.execute(sa.insert(Account), values)


def accounts(connection: sa.Connection) -> list[AccountRow]:
    """All accounts by name."""
    return all_rows(connection, sa.select(Account).order_by(Account.c.name), AccountRow)


def update_account(connection: sa.Connection, account_id: int, **values: Unpack[AccountValues]) -> None:
    """Change an account."""
    connection.execute(sa.update(Account).where(Account.c.id == account_id).values(**values))


def insert_session(connection: sa.Connection, account_id: int, digest: str, now: float, expires: float) -> None:
    """A new session; sessions that have ended are deleted."""
    connection.execute(sa.delete(LoginSession).where(LoginSession.c.expires_at < now))
    values = {"account_id": account_id, "token_hash": digest, "created_at": now, "expires_at": expires}
    connection.execute(sa.insert(LoginSession), values)


_NAMED = (
    (Campaign.c.slug == bindparam("campaign"))
    | (Campaign.c.public_id == bindparam("campaign"))
    | Campaign.c.id.in_(sa.select(OldSlug.c.campaign_id).where(OldSlug.c.slug == bindparam("campaign")))
)


def _with_role(found: sa.Select[Any]) -> sa.Select[Any]:
    """Accounts, with their role in a campaign and when that was deleted."""
    own = (Membership.c.account_id == Account.c.id) & _NAMED
    return found.add_columns(Membership.c.role, Campaign.c.deleted_at).outerjoin(Membership.join(Campaign), own)


def _visitor(
    connection: sa.Connection, statement: sa.Select[Any], campaign: str | None, **given: object
) -> tuple[AccountRow, Role | None] | None:
    named = campaign if campaign is not None and storable(campaign) else ""
    row = connection.execute(statement, {"campaign": named, **given}).first()
    if row is None:
        return None
    *account, role, deleted_at = row
    gone = role is None or (deleted_at is not None and role is not Role.LEAD)
    return AccountRow(*account), None if gone else Role(role)


_ACCOUNT_OF_SESSION = _with_role(
    sa.select(Account)
    .join(LoginSession)
    .where(LoginSession.c.token_hash == bindparam("digest"), LoginSession.c.expires_at > bindparam("now"))
    .where(Account.c.active)
)


def account_of_session(
    connection: sa.Connection, digest: str, now: float, campaign: str | None
) -> tuple[AccountRow, Role | None] | None:
    """The active account a session belongs to, and what it is in a campaign, named by its slug or id.

    The role is None for no member. Of a deleted campaign only leads are left.
    """
    return _visitor(connection, _ACCOUNT_OF_SESSION, campaign, digest=digest, now=now)


def end_session(connection: sa.Connection, digest: str) -> None:
    """End one session."""
    connection.execute(sa.delete(LoginSession).where(LoginSession.c.token_hash == digest))


def end_sessions(connection: sa.Connection, account_id: int) -> None:
    """End all sessions of an account."""
    connection.execute(sa.delete(LoginSession).where(LoginSession.c.account_id == account_id))


def insert_token(
    connection: sa.Connection, account_id: int, digest: str, label: str, *, once: bool, expires_at: float | None
) -> None:
    """An API token, or a link that signs in once."""
    values = {"account_id": account_id, "token_hash": digest, "label": label, "once": once, "expires_at": expires_at}
    connection.execute(sa.insert(ApiToken), {**values, "created_at": time.time()})


_WORKING = ApiToken.c.revoked_at.is_(None)
_ACCOUNT_BY_TOKEN = (
    sa.select(Account).join(ApiToken).where(ApiToken.c.token_hash == bindparam("digest"), Account.c.active)
)
_ACCOUNT_OF_TOKEN = _with_role(_ACCOUNT_BY_TOKEN.where(sa.not_(ApiToken.c.once), _WORKING))


def spend_link(connection: sa.Connection, digest: str, now: float) -> AccountRow | None:
    """The account of a link that was valid until now; from now on it is used up."""
    valid = (ApiToken.c.token_hash == digest) & ApiToken.c.once & _WORKING & (ApiToken.c.expires_at > now)
    if connection.execute(sa.update(ApiToken).where(valid).values(revoked_at=now)).rowcount != 1:
        return None
    return first_row(connection, _ACCOUNT_BY_TOKEN, AccountRow, digest=digest)


def account_of_token(
    connection: sa.Connection, digest: str, campaign: str | None
) -> tuple[AccountRow, Role | None] | None:
    """The same for an API token."""
    return _visitor(connection, _ACCOUNT_OF_TOKEN, campaign, digest=digest)


def tokens_of(connection: sa.Connection, account_id: int) -> list[TokenRow]:
    """The API tokens of an account that work, oldest first."""
    own = sa.select(ApiToken).where(ApiToken.c.account_id == account_id, sa.not_(ApiToken.c.once), _WORKING)
    return all_rows(connection, own.order_by(ApiToken.c.id), TokenRow)


def revoke_tokens(connection: sa.Connection, account_id: int, now: float) -> None:
    """Make all tokens and links of an account useless."""
    own = sa.update(ApiToken).where(ApiToken.c.account_id == account_id, _WORKING)
    connection.execute(own.values(revoked_at=now))


def revoke_token(connection: sa.Connection, token_id: int, now: float) -> None:
    """Make a token useless."""
    connection.execute(sa.update(ApiToken).where(ApiToken.c.id == token_id).values(revoked_at=now))


def lock_attempts(connection: sa.Connection) -> None:
    """Let no other sign-in be counted until this transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ATTEMPTS)))


def note_attempt(connection: sa.Connection, name: str, address: str, *, ok: bool, forget_before: float) -> None:
    """Remember an attempt to sign in; old ones are forgotten. A success clears the failures of its name there."""
    name, address = name[:120], address[:120]
    over = LoginAttempt.c.created_at < forget_before
    if ok:
        over |= (LoginAttempt.c.name == name) & (LoginAttempt.c.address == address)
    connection.execute(sa.delete(LoginAttempt).where(over))
    values = {"name": name, "address": address, "ok": ok, "created_at": time.time()}
    connection.execute(sa.insert(LoginAttempt), values)


def failures(connection: sa.Connection, name: str, address: str, since: float, until: float) -> dict[str, list[float]]:
    """Times of failed attempts: of this name from this address, from this address, of this name."""
    named, there = LoginAttempt.c.name == name[:120], LoginAttempt.c.address == address[:120]
    failed = (
        sa.select(LoginAttempt.c.created_at)
        .where(sa.not_(LoginAttempt.c.ok), LoginAttempt.c.created_at.between(since, until))
        .order_by(LoginAttempt.c.created_at)
    )
    wanted = {"pair": named & there, "address": there, "name": named}
    return {kind: list(connection.execute(failed.where(where)).scalars()) for kind, where in wanted.items()}


_MEMBER = sa.select(Membership.c.id).where(
    Membership.c.account_id == bindparam("account_id"), Membership.c.campaign_id == bindparam("campaign_id")
)
_ROLE = _MEMBER.with_only_columns(Membership.c.role)


def role_in(connection: sa.Connection, campaign_id: int, account_id: int) -> Role | None:
    """What an account is in a campaign; None for no member."""
    found = connection.execute(_ROLE, {"campaign_id": campaign_id, "account_id": account_id}).scalar()
    return None if found is None else Role(found)


def is_member(connection: sa.Connection, campaign_id: int, account_id: int) -> bool:
    """Whether an account takes part in a campaign."""
    return connection.execute(_MEMBER, {"campaign_id": campaign_id, "account_id": account_id}).first() is not None


class CampaignOfPerson(NamedTuple):
    """A campaign, and what a person is in it."""

    campaign: CampaignRow
    account: AccountRow | None
    """None for somebody without one."""
    member: bool
    duty: Duty | None
    had_gold: bool


_PERSON: sa.BindParameter[str] = bindparam("person")
_CAMPAIGN_OF_PERSON = (
    sa.select(
        Campaign,
        Membership.c.id,
        DutyTable.c.rule,
        sa.select(Gold.c.id).where(Gold.c.campaign_id == Campaign.c.id, Gold.c.person == _PERSON).exists(),
        Account,
    )
    .select_from(Campaign)
    .outerjoin(Account, Account.c.name == _PERSON)
    .outerjoin(Membership, (Membership.c.account_id == Account.c.id) & (Membership.c.campaign_id == Campaign.c.id))
    .outerjoin(DutyTable, (DutyTable.c.campaign_id == Campaign.c.id) & (DutyTable.c.person == _PERSON))
    .where((Campaign.c.slug == bindparam("campaign")) | (Campaign.c.public_id == bindparam("campaign")))
)
_WIDTH = len(fields(CampaignRow))


def campaign_of_person(connection: sa.Connection, campaign: str, person: str) -> CampaignOfPerson | None:
    """A campaign by its slug or id, deleted ones too, and what a person is in it."""
    if not storable(campaign) or not storable(person):
        return None
    row = connection.execute(_CAMPAIGN_OF_PERSON, {"campaign": campaign, "person": person}).first()
    if row is None:
        return None
    member, rule, had_gold, *account = row[_WIDTH:]
    return CampaignOfPerson(
        CampaignRow(*row[:_WIDTH]),
        None if account[0] is None else AccountRow(*account),
        member is not None,
        None if rule is None else Duty.from_json(rule),
        bool(had_gold),
    )


def member_names(connection: sa.Connection, campaign_id: int, *, role: Role | None = None) -> list[str]:
    """Names of the accounts that take part; with `role`, of those that have it in this campaign."""
    found = sa.select(Account.c.name).join(Membership).where(Membership.c.campaign_id == campaign_id)
    if role is not None:
        found = found.where(Membership.c.role == role)
    return list(connection.execute(found.order_by(Account.c.name)).scalars())


def active_members(connection: sa.Connection, campaign_id: int) -> set[str]:
    """Names of the members who can sign in."""
    found = sa.select(Account.c.name).join(Membership).where(Membership.c.campaign_id == campaign_id, Account.c.active)
    return set(connection.execute(found).scalars())


def names_that_take_part(connection: sa.Connection, campaign_id: int) -> set[str]:
    """Names of the active accounts that vote in a campaign: its annotators, and the leads who have voted; if none, every lead.

    Every lead of the workspace or of the campaign may vote, but most do not: an item must not wait for them.
    """
    here = sa.select(Membership.c.account_id).where(Membership.c.campaign_id == campaign_id)
    members = here.where(Membership.c.role == Role.ANNOTATOR)
    voted = sa.select(Vote.c.account_id).where(Vote.c.campaign_id == campaign_id, Vote.c.account_id.is_not(None))
    active = sa.select(Account.c.name).where(Account.c.active)
    lead = (Account.c.role == Role.LEAD) | Account.c.id.in_(here.where(Membership.c.role == Role.LEAD))
    found = set(
        connection.execute(active.where(Account.c.id.in_(members) | (lead & Account.c.id.in_(voted)))).scalars()
    )
    return found or set(connection.execute(active.where(lead)).scalars())


def set_member(connection: sa.Connection, campaign_id: int, account_id: int, role: Role | None) -> None:
    """Put an account on a campaign in a role, or take it off."""
    here = (Membership.c.campaign_id == campaign_id) & (Membership.c.account_id == account_id)
    connection.execute(sa.delete(Membership).where(here))
    if role is not None:
        values = {"campaign_id": campaign_id, "account_id": account_id, "role": role}
        connection.execute(sa.insert(Membership).values(**values))
