"""Whether the server works; signing in and out, accounts, API tokens."""

import asyncio
import ipaddress
import threading
from dataclasses import asdict

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

import labelchef
from labelchef.base.campaigns import Account, Page, Role
from labelchef.base.errors import ThrottledError
from labelchef.server.people import accounts
from labelchef.server.people.accounts import ApiTokenInfo
from labelchef.server.web.forms import AccountChange, AccountForm, PasswordForm, SignInForm, TokenForm
from labelchef.server.web.paging import Cursor, Limit, part_of
from labelchef.server.web.policies import ACCOUNT, Anyone, Api, Lead, Options, SignedIn, Store, csrf_token, set_cookie
from labelchef.server.web.problems import WebError
from labelchef.server.web.views import HealthView, NewTokenView, SessionView
from labelchef.server.workspace import check_writable

server = Api("server")
routes = Api("session")
people = Api("people", "/accounts")
_THROTTLED = (429, "throttled", "too many wrong passwords; Retry-After says when to try again")
MARK_SECONDS = 180 * 86400
"""How long a browser is known in which somebody signed in."""
_slowed = threading.BoundedSemaphore(20)
"""Places of those who wait before their password is looked at; more are told to come back."""
_ENDED = "the worker has ended, so rounds do not continue"
_NO_TOKEN = "API tokens set no passwords and make no leads"


@server.get("/health", (503, "worker", _ENDED))
def health(request: Request, _: Anyone, ws: Store) -> HealthView:
    """Whether the server, its database, its disk and its worker work; 503 if one does not."""
    worker = getattr(request.app.state, "worker", None)
    if worker is not None and not worker.alive:
        raise WebError(503, f"{_ENDED}; the log says why. Restart the server", code="worker")
    accounts.has_lead(ws)
    check_writable(ws)
    return HealthView(status="ok", version=labelchef.__version__)


@routes.post(
    "/session",
    (401, "credentials", "the name or the password is wrong"),
    (403, "laptop", "this server has no accounts: open the link it printed"),
    _THROTTLED,
)
async def sign_in(
    form: SignInForm, request: Request, response: Response, options: Options, ws: Store, _: Anyone
) -> SessionView:
    """Sign in with name and password; the session comes as a cookie.

    After many wrong passwords for the name the answer takes up to 10 s, but not where the person signed in before.
    """
    if not options.team:
        raise WebError(403, "this server has no accounts; open the link it printed when it started", code="laptop")
    wait = await run_in_threadpool(accounts.slowness, ws, form.name, _marks(request))
    if wait and not _slowed.acquire(blocking=False):
        told = f"try again in {wait:.0f} s, or from a browser in which you signed in before"
        why = f"many wrong passwords come for this name; {told}"
        raise ThrottledError(why, retry_after=wait)
    try:
        await asyncio.sleep(wait)
    finally:
        if wait:
            _slowed.release()
    return await run_in_threadpool(_begin, form.name, form.password, request, response)


@routes.get("/session")
def session(who: SignedIn) -> SessionView:
    """Who is signed in."""
    return SessionView(account=who.account, csrf=who.csrf)


@routes.delete("/session", status_code=204)
def sign_out(who: SignedIn, response: Response, ws: Store, options: Options) -> None:
    """End this session."""
    if who.session is not None:
        accounts.sign_out(ws, who.session)
        response.delete_cookie(options.cookie, httponly=True, samesite="lax", secure=options.https)


@routes.patch(
    "/account",
    (401, "credentials", "the current password is wrong"),
    (403, "token_session", "API tokens cannot change passwords"),
    _THROTTLED,
)
def change_password(form: PasswordForm, who: SignedIn, request: Request, response: Response, ws: Store) -> SessionView:
    """Change your own password; needs the current one. All sessions and API tokens end, and a new session starts."""
    if who.session is None:
        raise WebError(403, "sign in to change a password; an API token is not enough", code="token_session")
    accounts.check_password(ws, who.name, form.current, address=_address(request), marks=_marks(request))
    accounts.set_password(ws, who.name, form.password)
    return _begin(who.name, form.password, request, response)


def _begin(name: str, password: str, request: Request, response: Response) -> SessionView:
    """Begin a session and set its cookie."""
    state = request.app.state
    marks = _marks(request)
    signed = accounts.sign_in(state.workspace, name, password, address=_address(request), marks=marks)
    set_cookie(response, state.options, signed)
    kept = "~".join([str(signed.mark), *marks][: accounts.MOST_MARKS])
    response.set_cookie(
        f"{state.options.cookie}-known",
        kept,
        MARK_SECONDS,
        httponly=True,
        samesite="strict",
        secure=state.options.https,
    )
    return SessionView(account=signed.account, csrf=csrf_token(signed.token))


def _marks(request: Request) -> list[str]:
    """The marks of those who signed in from this browser."""
    kept = request.cookies.get(f"{request.app.state.options.cookie}-known", "")
    return [one for one in kept.split("~") if one][: accounts.MOST_MARKS]


def _address(request: Request) -> str:
    """Where a request comes from: an IPv4 address, or the network of an IPv6 address, of which one machine has many.

    Other texts, as a proxy may send them, stay as they are.
    """
    host = request.client.host if request.client else "unknown"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address) or found.ipv4_mapped is not None:
        return host
    return str(ipaddress.ip_network((int(found), 64), strict=False))


@routes.get("/tokens")
def list_tokens(who: SignedIn, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[ApiTokenInfo]:
    """Your own API tokens, without their secrets."""
    tokens = accounts.list_api_tokens(ws, who.name)
    return part_of(tokens, lambda token: (token.created_at.timestamp(), token.id), after, limit)


@routes.post(
    "/tokens",
    (403, "token_session", "API tokens cannot make API tokens"),
    (409, "tokens", "as many API tokens as a person may have; revoke one"),
    (422, "label", "a label with characters that cannot be printed"),
    status_code=201,
)
def create_token(form: TokenForm, who: SignedIn, ws: Store) -> NewTokenView:
    """Make an API token; its secret is shown only once."""
    if who.session is None:
        raise WebError(403, "sign in to make a token; an API token is not enough", code="token_session")
    secret, token = accounts.create_api_token(ws, who.name, form.label)
    return NewTokenView(**asdict(token), secret=secret)


@routes.delete("/tokens/{token}", (404, "token", "no such token of yours"), status_code=204)
def revoke_token(token: str, who: SignedIn, ws: Store) -> None:
    """Revoke an API token."""
    accounts.revoke_api_token(ws, who.name, token)


@people.get("")
def list_accounts(_: Lead, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[Account]:
    """All accounts, by name."""
    return part_of(accounts.list_accounts(ws), lambda account: (account.name,), after, limit)


@people.post(
    "",
    (409, "account", "the name is taken"),
    (403, "token_session", _NO_TOKEN),
    (422, "person", "a name with characters that cannot be printed, or one that is reserved"),
    (403, "token_session", _NO_TOKEN),
    status_code=201,
)
def create_account(form: AccountForm, who: Lead, ws: Store) -> Account:
    """Make an account. An API token makes accounts of annotators only."""
    if who.session is None and form.role is Role.LEAD:
        raise WebError(403, f"{_NO_TOKEN}; sign in to make an account of a lead", code="token_session")
    return accounts.create_account(ws, form.name, form.role, form.password)


@people.patch(
    "/{name:path}",
    ACCOUNT,
    (409, "account", "you cannot deactivate your own account"),
    (409, "last_lead", "the last active lead cannot be deactivated"),
    (403, "token_session", _NO_TOKEN),
    (403, "own_password", "your own password: PATCH /api/account, which asks for the current one"),
)
def change_account(name: str, form: AccountChange, who: Lead, ws: Store) -> Account:
    """Deactivate, activate, or give another person a new password; either way all sessions and API tokens of it end.

    An API token can set no password.
    """
    if form.active is False and name == who.name:
        raise WebError(409, "you cannot deactivate yourself; ask another lead", code="account")
    if form.password is not None:
        if who.session is None:
            raise WebError(403, f"{_NO_TOKEN}; sign in for this", code="token_session")
        if name == who.name:
            told = "your own password changes under Account (PATCH /api/account), with the current one"
            raise WebError(403, told, code="own_password")
        accounts.set_password(ws, name, form.password)
    if form.active is not None:
        accounts.set_active(ws, name, form.active)
    return accounts.find_account(ws, name)


@people.delete("/{name:path}/tokens", ACCOUNT, status_code=204)
def revoke_tokens(name: str, _: Lead, ws: Store) -> None:
    """Revoke all API tokens of an account."""
    accounts.revoke_api_token(ws, name)
