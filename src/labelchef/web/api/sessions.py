"""Signing in and out, accounts, API tokens."""

from dataclasses import asdict

from fastapi import Request, Response

from labelchef.domain.campaigns import Account, Page
from labelchef.services.people import accounts
from labelchef.services.people.accounts import ApiTokenInfo
from labelchef.web import identity
from labelchef.web.forms import AccountChange, AccountForm, PasswordForm, SignInForm, TokenForm
from labelchef.web.paging import Cursor, Limit, part_of
from labelchef.web.policies import Anyone, Lead, Options, Policy, SignedIn, Store, answers, router
from labelchef.web.problems import WebError
from labelchef.web.views import NewTokenView, SessionView

routes = router()
_ACCOUNT = (404, "account", "no such account")


@routes.post(
    "/session",
    tags=["session"],
    responses=answers(
        Policy.PUBLIC,
        (401, "credentials", "the name or the password is wrong"),
        (403, "laptop", "this server has no accounts: open the link it printed"),
        (429, "throttled", "too many wrong passwords; Retry-After says when to try again"),
        changes=True,
    ),
)
def sign_in(
    form: SignInForm, request: Request, response: Response, ws: Store, options: Options, _: Anyone
) -> SessionView:
    """Sign in with name and password; the session comes as a cookie."""
    identity.check_origin(request)
    if not options.team:
        raise WebError(403, "this server has no accounts; open the link it printed when it started", code="laptop")
    address = request.client.host if request.client else "unknown"
    signed = accounts.sign_in(ws, form.name, form.password, address=address)
    identity.set_cookie(response, options, signed)
    return SessionView(account=signed.account, csrf=identity.csrf_token(signed.token))


@routes.get("/session", tags=["session"], responses=answers(Policy.SIGNED_IN))
def session(who: SignedIn) -> SessionView:
    """Who is signed in."""
    csrf = None if who.session is None else identity.csrf_token(who.session)
    return SessionView(account=who.account, csrf=csrf)


@routes.delete("/session", status_code=204, tags=["session"], responses=answers(Policy.SIGNED_IN, changes=True))
def sign_out(who: SignedIn, response: Response, ws: Store, options: Options) -> None:
    """End this session."""
    if who.session is not None:
        accounts.sign_out(ws, who.session)
        identity.clear_cookie(response, options)


@routes.patch(
    "/account",
    tags=["session"],
    responses=answers(
        Policy.SIGNED_IN,
        (401, "credentials", "the current password is wrong"),
        (403, "token_session", "API tokens cannot change passwords"),
        (429, "throttled", "too many wrong passwords; Retry-After says when to try again"),
        changes=True,
    ),
)
def change_password(
    form: PasswordForm, who: SignedIn, request: Request, response: Response, ws: Store, options: Options
) -> SessionView:
    """Change your own password; needs the current one. All sessions end, and a new one starts."""
    if who.session is None:
        raise WebError(403, "sign in to change a password; an API token is not enough", code="token_session")
    address = request.client.host if request.client else "unknown"
    accounts.check_password(ws, who.name, form.current, address=address)
    accounts.set_password(ws, who.name, form.password, revoke_tokens=False)
    signed = accounts.sign_in(ws, who.name, form.password, address=address)
    identity.set_cookie(response, options, signed)
    return SessionView(account=signed.account, csrf=identity.csrf_token(signed.token))


@routes.get(
    "/tokens", tags=["session"], responses=answers(Policy.SIGNED_IN, (422, "cursor", "not a cursor of this list"))
)
def list_tokens(who: SignedIn, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[ApiTokenInfo]:
    """Your own API tokens, without their secrets."""
    tokens = accounts.list_api_tokens(ws, who.name)
    return part_of(tokens, lambda token: (token.created_at.timestamp(), token.id), after, limit)


@routes.post(
    "/tokens",
    status_code=201,
    tags=["session"],
    responses=answers(Policy.SIGNED_IN, (403, "token_session", "API tokens cannot make API tokens"), changes=True),
)
def create_token(form: TokenForm, who: SignedIn, ws: Store) -> NewTokenView:
    """Make an API token; its secret is shown only once."""
    if who.session is None:
        raise WebError(403, "sign in to make a token; an API token is not enough", code="token_session")
    secret, token = accounts.create_api_token(ws, who.name, form.label)
    return NewTokenView(**asdict(token), secret=secret)


@routes.delete(
    "/tokens/{token}",
    status_code=204,
    tags=["session"],
    responses=answers(Policy.SIGNED_IN, (404, "token", "no such token of yours"), changes=True),
)
def revoke_token(token: str, who: SignedIn, ws: Store) -> None:
    """Revoke an API token."""
    accounts.revoke_api_token(ws, who.name, token)


@routes.get("/accounts", tags=["people"], responses=answers(Policy.LEAD, (422, "cursor", "not a cursor of this list")))
def list_accounts(_: Lead, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[Account]:
    """All accounts, by name."""
    return part_of(accounts.list_accounts(ws), lambda account: account.name, after, limit)


@routes.post(
    "/accounts",
    status_code=201,
    tags=["people"],
    responses=answers(Policy.LEAD, (409, "account", "the name is taken"), changes=True),
)
def create_account(form: AccountForm, _: Lead, ws: Store) -> Account:
    """Make an account."""
    return accounts.create_account(ws, form.name, form.role, form.password)


@routes.patch(
    "/accounts/{name:path}",
    tags=["people"],
    responses=answers(
        Policy.LEAD,
        _ACCOUNT,
        (409, "account", "you cannot deactivate your own account"),
        (409, "last_lead", "the last active lead cannot be deactivated"),
        changes=True,
    ),
)
def change_account(name: str, form: AccountChange, who: Lead, ws: Store) -> Account:
    """Deactivate, activate, or give a new password; a deactivated account's sessions and tokens end at once."""
    if form.active is False and name == who.name:
        raise WebError(409, "you cannot deactivate yourself; ask another lead", code="account")
    if form.password is not None:
        accounts.set_password(ws, name, form.password)
    if form.active is not None:
        accounts.set_active(ws, name, form.active)
    return accounts.find_account(ws, name)


@routes.delete(
    "/accounts/{name:path}/tokens",
    status_code=204,
    tags=["people"],
    responses=answers(Policy.LEAD, _ACCOUNT, changes=True),
)
def revoke_tokens(name: str, _: Lead, ws: Store) -> None:
    """Revoke all API tokens of an account."""
    accounts.revoke_api_tokens(ws, name)
