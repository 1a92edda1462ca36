"""Accounts, who takes part in which campaign, sessions, tokens and attempts to sign in."""

import time
from typing import Unpack

import sqlalchemy as sa

from labelchef.domain.campaigns import Role
from labelchef.store.rows import AccountRow, AccountValues, TokenRow, all_rows, columns, first_row
from labelchef.store.tables import Account, ApiToken, Campaign, LoginAttempt, LoginSession, Membership
from labelchef.store.values import storable

_ATTEMPTS = 2021_0001  # the advisory lock of PostgreSQL that sign-ins take
_ACCOUNT_COLUMNS = columns(AccountRow, Account)
_BY_NAME = sa.select(*_ACCOUNT_COLUMNS).where(Account.name == sa.bindparam("name"))


def account_by_name(connection: sa.Connection, name: str) -> AccountRow | None:
    """An account, or None."""
    return first_row(connection, _BY_NAME, AccountRow, name=name) if storable(name) else None


def insert_account(connection: sa.Connection, name: str, role: Role, password_hash: str | None) -> None:
    """A new account."""
    connection.execute(
        sa.insert(Account).values(
            name=name, role=role, password_hash=password_hash, active=True, created_at=time.time()
        )
    )


def accounts(connection: sa.Connection) -> list[AccountRow]:
    """All accounts by name."""
    return all_rows(connection, sa.select(*_ACCOUNT_COLUMNS).order_by(Account.name), AccountRow)


def account_ids(connection: sa.Connection) -> dict[str, int]:
    """Inner ids of accounts by name."""
    return {account.name: account.id for account in accounts(connection)}


def update_account(connection: sa.Connection, account_id: int, **values: Unpack[AccountValues]) -> None:
    """Change an account."""
    connection.execute(sa.update(Account).where(Account.id == account_id).values(**values))


def insert_session(connection: sa.Connection, account_id: int, digest: str, now: float, expires: float) -> None:
    """A new session; sessions that have ended are deleted."""
    connection.execute(sa.delete(LoginSession).where(LoginSession.expires_at < now))
    connection.execute(
        sa.insert(LoginSession).values(account_id=account_id, token_hash=digest, created_at=now, expires_at=expires)
    )


_ACCOUNT_OF_SESSION = (
    sa.select(*_ACCOUNT_COLUMNS)
    .select_from(Account)
    .join(LoginSession, LoginSession.account_id == Account.id)
    .where(
        LoginSession.token_hash == sa.bindparam("digest"),
        LoginSession.expires_at > sa.bindparam("now"),
        Account.active,
    )
)


def account_of_session(connection: sa.Connection, digest: str, now: float) -> AccountRow | None:
    """The active account a session belongs to."""
    return first_row(connection, _ACCOUNT_OF_SESSION, AccountRow, digest=digest, now=now)


def end_session(connection: sa.Connection, digest: str) -> None:
    """End one session."""
    connection.execute(sa.delete(LoginSession).where(LoginSession.token_hash == digest))


def end_sessions(connection: sa.Connection, account_id: int) -> None:
    """End all sessions of an account."""
    connection.execute(sa.delete(LoginSession).where(LoginSession.account_id == account_id))


def insert_token(
    connection: sa.Connection, account_id: int, digest: str, label: str, *, once: bool, expires_at: float | None
) -> None:
    """An API token, or a link that signs in once."""
    connection.execute(
        sa.insert(ApiToken).values(
            account_id=account_id,
            token_hash=digest,
            label=label,
            once=once,
            created_at=time.time(),
            expires_at=expires_at,
        )
    )


def spend_link(connection: sa.Connection, digest: str, now: float) -> AccountRow | None:
    """The account of a link that was valid until now; from now on it is used up."""
    spent = connection.execute(
        sa.update(ApiToken)
        .where(ApiToken.token_hash == digest, ApiToken.once, ApiToken.revoked_at.is_(None), ApiToken.expires_at > now)
        .values(revoked_at=now)
    )
    if spent.rowcount != 1:
        return None
    found = (
        sa.select(*_ACCOUNT_COLUMNS)
        .select_from(Account)
        .join(ApiToken, ApiToken.account_id == Account.id)
        .where(ApiToken.token_hash == digest, Account.active)
    )
    return first_row(connection, found, AccountRow)


def tokens_of(connection: sa.Connection, account_id: int) -> list[TokenRow]:
    """The API tokens of an account that work, oldest first."""
    found = (
        sa.select(*columns(TokenRow, ApiToken))
        .where(ApiToken.account_id == account_id, sa.not_(ApiToken.once), ApiToken.revoked_at.is_(None))
        .order_by(ApiToken.id)
    )
    return all_rows(connection, found, TokenRow)


def revoke_tokens(connection: sa.Connection, account_id: int, now: float) -> None:
    """Make all tokens and links of an account useless."""
    working = sa.and_(ApiToken.account_id == account_id, ApiToken.revoked_at.is_(None))
    connection.execute(sa.update(ApiToken).where(working).values(revoked_at=now))


def revoke_token(connection: sa.Connection, token_id: int, now: float) -> None:
    """Make a token useless."""
    connection.execute(sa.update(ApiToken).where(ApiToken.id == token_id).values(revoked_at=now))


_ACCOUNT_OF_TOKEN = (
    sa.select(*_ACCOUNT_COLUMNS)
    .select_from(Account)
    .join(ApiToken, ApiToken.account_id == Account.id)
    .where(
        ApiToken.token_hash == sa.bindparam("digest"),
        sa.not_(ApiToken.once),
        ApiToken.revoked_at.is_(None),
        Account.active,
    )
)


def account_of_token(connection: sa.Connection, digest: str) -> AccountRow | None:
    """The active account an API token belongs to."""
    return first_row(connection, _ACCOUNT_OF_TOKEN, AccountRow, digest=digest)


_TAKES_PART = (
    sa.select(Membership.id)
    .join(Campaign, Campaign.id == Membership.campaign_id)
    .where(
        sa.or_(Campaign.slug == sa.bindparam("campaign"), Campaign.public_id == sa.bindparam("campaign")),
        Membership.account_id == sa.bindparam("account_id"),
    )
)


def takes_part(connection: sa.Connection, campaign: str, account_id: int) -> bool:
    """Whether an account is a member of a campaign, named by its slug or id."""
    given = {"campaign": campaign, "account_id": account_id}
    return storable(campaign) and connection.execute(_TAKES_PART, given).first() is not None


def lock_attempts(connection: sa.Connection) -> None:
    """Let no other sign-in be counted until this transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ATTEMPTS)))


def note_attempt(connection: sa.Connection, name: str, address: str, *, ok: bool, forget_before: float) -> None:
    """Remember an attempt to sign in; old ones are forgotten. A success clears the failures of its name there."""
    connection.execute(sa.delete(LoginAttempt).where(LoginAttempt.created_at < forget_before))
    if ok:
        connection.execute(
            sa.delete(LoginAttempt).where(LoginAttempt.name == name[:120], LoginAttempt.address == address[:120])
        )
    connection.execute(
        sa.insert(LoginAttempt).values(name=name[:120], address=address[:120], ok=ok, created_at=time.time())
    )


def failures(connection: sa.Connection, name: str, address: str, since: float) -> dict[str, list[float]]:
    """Times of failed attempts: of this name from this address, from this address, of this name."""
    name, address = name[:120], address[:120]
    failed = [sa.not_(LoginAttempt.ok), LoginAttempt.created_at > since]
    named, there = LoginAttempt.name == name, LoginAttempt.address == address
    wanted = {"pair": [named, there], "address": [there], "name": [named]}
    return {
        kind: list(
            connection.execute(
                sa.select(LoginAttempt.created_at).where(*failed, *where).order_by(LoginAttempt.created_at)
            ).scalars()
        )
        for kind, where in wanted.items()
    }


_MEMBER = sa.select(Membership.id).where(
    Membership.campaign_id == sa.bindparam("campaign_id"), Membership.account_id == sa.bindparam("account_id")
)


def is_member(connection: sa.Connection, campaign_id: int, account_id: int) -> bool:
    """Whether an account takes part in a campaign."""
    return connection.execute(_MEMBER, {"campaign_id": campaign_id, "account_id": account_id}).first() is not None


def member_names(connection: sa.Connection, campaign_id: int) -> list[str]:
    """Names of the accounts that take part."""
    return list(
        connection.execute(
            sa.select(Account.name)
            .join(Membership, Membership.account_id == Account.id)
            .where(Membership.campaign_id == campaign_id)
            .order_by(Account.name)
        ).scalars()
    )


def set_member(connection: sa.Connection, campaign_id: int, account_id: int, *, member: bool) -> None:
    """Put an account on a campaign, or take it off."""
    if member:
        connection.execute(sa.insert(Membership).values(campaign_id=campaign_id, account_id=account_id))
    else:
        connection.execute(
            sa.delete(Membership).where(Membership.campaign_id == campaign_id, Membership.account_id == account_id)
        )
