"""Accounts, passwords, sessions and tokens; and the accounts that take part in a campaign.

Only digests of secrets are stored. Passwords are hashed by argon2 (pwdlib), outside of any transaction.

**Guessed passwords.** Wrong passwords count by name and address, and by address: of too many, one has to wait. Those of a name
from anywhere only make it slower (`slowness`): whoever knows a name could lock the person out otherwise. A browser in which a
person signed in before keeps a mark. It counts by itself, and what others do neither slows it down nor stops it. A mark is a
nonce and an HMAC of name and nonce by the digest of the password: nothing is stored, and a new password ends all marks.
"""

import functools
import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from labelchef.base.campaigns import Account, Member, Role
from labelchef.base.errors import (
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    ThrottledError,
)
from labelchef.server.campaigns.access import changing, check_person, looking, row_of, takes_part
from labelchef.server.shared import common, moment
from labelchef.server.store import account_table, campaign_table, vote_table
from labelchef.server.store.rows import AccountRow
from labelchef.server.workspace import Workspace

if TYPE_CHECKING:
    from pwdlib import PasswordHash

LOCAL_NAME = "me"
"""The account that the link on one's own machine signs in to."""
SESSION_DAYS = 14.0
LINK_MINUTES = 60.0
_WINDOW = 15 * 60.0
_AHEAD = 60.0
"""An attempt that is noted for a time further ahead than this was noted by a clock that was wrong, and does not count."""
_TRIES = {"pair": 5, "address": 30}
"""Failed attempts within a quarter of an hour: of one name from one address or device, and from one address."""
_SLOW_FROM, _STEP, _SLOWEST = 50, 0.2, 10.0
"""From so many failed attempts of one name on, each one makes the next slower by so many seconds, up to the last number."""
MOST_MARKS = 5
"""People who sign in from one browser and are remembered there."""
MOST_TOKENS = 50
"""API tokens of a person that work at a time."""
_SHORTEST, _LONGEST = 10, 1000


@dataclass(frozen=True)
class SignedIn:
    """A session that began; its token is given out only here."""

    token: str
    account: Account
    expires_at: datetime
    mark: str | None = None
    """For the browser: that this person signed in there with a password."""


@dataclass(frozen=True)
class ApiTokenInfo:
    """An API token, without its secret."""

    id: str
    label: str
    created_at: datetime


def create_account(ws: Workspace, name: str, role: Role | str, password: str | None) -> Account:
    """A new account; without a password nobody can sign in by name."""
    check_person(name)
    if role not in list(Role):
        raise InvalidInputError(f"role is {role!r}; expected one of: {', '.join(Role)}", code="role")
    hashed = None if password is None else _hashed(password)
    with ws.writing() as connection:
        if account_table.account_by_name(connection, name) is not None:
            raise ConflictError(f"there is an account {name!r} already; choose another name", code="account")
        account_table.insert_account(connection, name, Role(role), hashed)
        return account_of(row_of(connection, name))


def list_accounts(ws: Workspace) -> list[Account]:
    """All accounts by name."""
    with ws.reading() as connection:
        return [account_of(row) for row in account_table.accounts(connection)]


def find_account(ws: Workspace, name: str) -> Account:
    """An account by name."""
    with ws.reading() as connection:
        return account_of(row_of(connection, name))


def has_lead(ws: Workspace) -> bool:
    """Whether someone can sign in as lead by a password."""
    with ws.reading() as connection:
        found = account_table.accounts(connection)
    return any(row.active and row.role == Role.LEAD and row.password_hash is not None for row in found)


def set_password(ws: Workspace, name: str, password: str) -> None:
    """Give an account a new password; its sessions and API tokens end."""
    hashed = _hashed(password)
    with ws.writing() as connection:
        row = row_of(connection, name)
        account_table.update_account(connection, row.id, password_hash=hashed)
        account_table.end_sessions(connection, row.id)
        account_table.revoke_tokens(connection, row.id, time.time())


def set_active(ws: Workspace, name: str, active: bool) -> Account:
    """Let an account sign in, or no longer: sessions and tokens end for good. The last lead stays, and so do votes."""
    with ws.writing() as connection:
        row = row_of(connection, name)
        leads = [r for r in account_table.accounts(connection) if r.active and r.role == Role.LEAD]
        if not active and [r.id for r in leads] == [row.id]:
            raise ConflictError(f"{name!r} is the last active lead; make another one first", code="last_lead")
        account_table.update_account(connection, row.id, active=active)
        if not active:
            account_table.end_sessions(connection, row.id)
            account_table.revoke_tokens(connection, row.id, time.time())
            for campaign in campaign_table.all_campaigns(connection):
                _free_leases(connection, campaign.id, name)
        changed = account_of(row_of(connection, name))
    ws.signal.notify()
    return changed


def _free_leases(connection: Connection, campaign_id: int, name: str) -> None:
    """Let others have the items that somebody holds who does not take part any more; those who wait are told."""
    if vote_table.free_leases(connection, name, campaign_id):
        campaign_table.update_campaign(connection, campaign_id)


def slowness(ws: Workspace, name: str, marks: Sequence[str] = ()) -> float:
    """Seconds that an attempt to sign in has to wait first, since too many have failed; 0 from a browser that is known."""
    now = time.time()
    with ws.reading() as connection:
        if _device(account_table.account_by_name(connection, name), marks) is not None:
            return 0.0
        failed = account_table.failures(connection, name, "", now - _WINDOW, now + _AHEAD)["name"]
    return min(_SLOWEST, _STEP * max(0, len(failed) - _SLOW_FROM + 1))


def check_password(
    ws: Workspace, name: str, password: str, *, address: str = "local", marks: Sequence[str] = ()
) -> Account:
    """The account whose password this is. Attempts are counted; too many have to wait. `marks` are those of the browser.

    An attempt counts as failed before the password is checked: many at once do not get around the count.
    """
    with ws.writing() as connection:
        account_table.lock_attempts(connection)
        row = account_table.account_by_name(connection, name)
        device = _device(row, marks)
        address = address if device is None else f"device {device}"
        _throttle(connection, name, address)
        account_table.note_attempt(connection, name, address, ok=False, forget_before=time.time() - 2 * _WINDOW)
    stored = None if row is None or not row.active else row.password_hash
    if not _verified(password, stored) or row is None:
        raise ForbiddenError("this name and password do not belong together; try again", code="credentials")
    with ws.writing() as connection:
        account_table.note_attempt(connection, name, address, ok=True, forget_before=time.time() - 2 * _WINDOW)
    return account_of(row)


def sign_in(ws: Workspace, name: str, password: str, *, address: str = "local", marks: Sequence[str] = ()) -> SignedIn:
    """Begin a session by name and password."""
    account = check_password(ws, name, password, address=address, marks=marks)
    with ws.writing() as connection:
        row = row_of(connection, account.name)
        return replace(_begin(connection, row), mark=_mark(row, secrets.token_urlsafe(12)))


def _mark(row: AccountRow, nonce: str) -> str:
    key, told = str(row.password_hash).encode(), f"labelchef device\0{row.name}\0{nonce}"
    return f"{nonce}.{hmac.new(key, told.encode(), hashlib.sha256).hexdigest()}"


def _device(row: AccountRow | None, marks: Sequence[str]) -> str | None:
    """The nonce of the mark by which a browser is known to this person; None where there is none."""
    if row is None or row.password_hash is None:
        return None
    nonces = ((one, one.partition(".")[0]) for one in marks[:MOST_MARKS])
    return next((nonce for one, nonce in nonces if hmac.compare_digest(one.encode(), _mark(row, nonce).encode())), None)


def sign_out(ws: Workspace, token: str) -> None:
    """End a session."""
    with ws.writing() as connection:
        account_table.end_session(connection, _digest(token))


def create_link(ws: Workspace) -> str:
    """A secret that signs in once, as the lead of this machine; made for the link that `labelchef serve` prints."""
    secret = secrets.token_urlsafe(32)
    with ws.writing() as connection:
        if account_table.account_by_name(connection, LOCAL_NAME) is None:
            account_table.insert_account(connection, LOCAL_NAME, Role.LEAD, None)
        row = row_of(connection, LOCAL_NAME)
        expires = time.time() + 60 * LINK_MINUTES
        account_table.insert_token(connection, row.id, _digest(secret), "link", once=True, expires_at=expires)
    return secret


def redeem_link(ws: Workspace, secret: str) -> SignedIn:
    """Begin a session by a link, which works once."""
    with ws.writing() as connection:
        row = account_table.spend_link(connection, _digest(secret), time.time())
        if row is None:
            why = "this link was used before or is too old; start `labelchef serve` again for a new one"
            raise ForbiddenError(why, code="link")
        return _begin(connection, row)


def create_api_token(ws: Workspace, name: str, label: str) -> tuple[str, ApiTokenInfo]:
    """A token for programs: its secret, given out only here, and what is stored of it."""
    if not 0 < len(label) <= 100 or not label.isprintable():
        raise InvalidInputError(f"{label!r} is no label; expected 1 to 100 printable characters", code="label")
    secret = f"lc_{secrets.token_urlsafe(32)}"
    with ws.writing() as connection:
        row = row_of(connection, name)
        if len(account_table.tokens_of(connection, row.id)) >= MOST_TOKENS:
            why = f"{name!r} has {MOST_TOKENS} API tokens, and no more are given; revoke one that is not used"
            raise ConflictError(why, code="tokens")
        account_table.insert_token(connection, row.id, _digest(secret), label, once=False, expires_at=None)
    return secret, next(token for token in list_api_tokens(ws, name) if token.id == _digest(secret)[:16])


def list_api_tokens(ws: Workspace, name: str) -> list[ApiTokenInfo]:
    """The tokens of an account that work."""
    with ws.reading() as connection:
        rows = account_table.tokens_of(connection, row_of(connection, name).id)
    return [ApiTokenInfo(row.token_hash[:16], row.label, moment(row.created_at)) for row in rows]


def revoke_api_token(ws: Workspace, name: str, token: str | None = None) -> None:
    """Make a token of an account useless; without `token`, all of them."""
    with ws.writing() as connection:
        account_id = row_of(connection, name).id
        if token is None:
            account_table.revoke_tokens(connection, account_id, time.time())
            return
        found = next(
            (row for row in account_table.tokens_of(connection, account_id) if row.token_hash[:16] == token), None
        )
        if found is None:
            raise NotFoundError(f"there is no token {token!r} of {name!r}", code="token")
        account_table.revoke_token(connection, found.id, time.time())


def visitor(
    ws: Workspace, *, session: str | None = None, token: str | None = None, campaign: str | None = None
) -> tuple[Account | None, Role | None]:
    """Who a session or an API token belongs to, and what they are in a campaign: read in one transaction.

    None: no member, as of a campaign that does not exist. Leads of the workspace lead all campaigns.
    """
    with ws.reading() as connection:
        if token is not None:
            found = account_table.account_of_token(connection, _digest(token), campaign)
        else:
            found = account_table.account_of_session(connection, _digest(session or ""), time.time(), campaign)
    if found is None:
        return None, None
    row, here = found
    return account_of(row), Role.LEAD if row.role == Role.LEAD else here


def members(ws: Workspace, campaign: str) -> list[Member]:
    """The accounts that take part in a campaign, by name."""
    with looking(ws, campaign) as (connection, row):
        found = [account_of(row_of(connection, name)) for name in account_table.member_names(connection, row.id)]
        own = set(account_table.member_names(connection, row.id, role=Role.LEAD))
    return [Member(**vars(one), here=Role.LEAD if one.name in own else Role.ANNOTATOR) for one in found]


def set_member(
    ws: Workspace, campaign: str, name: str, by: str = "lead", *, member: bool = True, role: Role | None = None
) -> None:
    """Let an account label in a campaign, or take it off; its votes stay. With `role`, as annotator or as lead of it.

    Leads of the workspace lead every campaign, and one of them always remains (`set_active`); so does a lead of every campaign.
    """
    with changing(ws, campaign) as (connection, row):
        account = row_of(connection, name)
        before = account_table.role_in(connection, row.id, account.id)
        after = (role or before or Role.ANNOTATOR) if member else None
        if before is after:
            return
        account_table.set_member(connection, row.id, account.id, after)
        noted: dict[str, object] = {"member_removed": name} if after is None else {"member_added": name}
        if after is Role.LEAD or before is Role.LEAD:
            noted["role"] = after
        campaign_table.note_change(connection, row.id, by, noted)
        if not takes_part(connection, row, account):
            _free_leases(connection, row.id, name)


def _begin(connection: Connection, row: AccountRow) -> SignedIn:
    token, now = secrets.token_urlsafe(32), time.time()
    expires = now + 86400 * SESSION_DAYS
    account_table.insert_session(connection, row.id, _digest(token), now, expires)
    return SignedIn(token, account_of(row), moment(expires))


def _throttle(connection: Connection, name: str, address: str) -> None:
    now = time.time()
    failed = account_table.failures(connection, name, address, now - _WINDOW, now + _AHEAD)
    for kind, most in _TRIES.items():
        if len(failed[kind]) >= most:
            wait = min(failed[kind][-most] + _WINDOW - now, _WINDOW)
            why = f"too many failed attempts; wait {max(1, round(wait / 60))} min and try again"
            raise ThrottledError(why, retry_after=max(1.0, wait))


def account_of(row: AccountRow) -> Account:
    """An account as others see it."""
    return Account(**{**common(Account, row), "created_at": moment(row.created_at)})


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def _hasher() -> "PasswordHash":
    try:
        from pwdlib import PasswordHash
    except ImportError:
        raise MissingExtraError("passwords need pwdlib; pip install 'labelchef[serve]'", code="serve") from None
    return PasswordHash.recommended()


def _hashed(password: str) -> str:
    if not _SHORTEST <= len(password) <= _LONGEST:
        why = f"the password has {len(password)} characters; expected {_SHORTEST} to {_LONGEST}"
        raise InvalidInputError(why, code="password")
    return _hasher().hash(password)


@functools.cache
def _nobody() -> str:
    return _hasher().hash(secrets.token_urlsafe(32))


def _verified(password: str, stored: str | None) -> bool:
    """Takes as long for a name that does not exist as for one that does."""
    matches = _hasher().verify(password[:_LONGEST], stored if stored is not None else _nobody())
    return matches and stored is not None
