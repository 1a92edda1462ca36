"""Who sends a request, and who may: known by a session cookie with its CSRF token, or by an API token.

Every route has one policy; a test fails on a route without one.
"""

import asyncio
import base64
import functools
import hashlib
import hmac
import ipaddress
import re
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response

from labelchef.base.campaigns import Account, Role
from labelchef.base.errors import NotFoundError
from labelchef.server.people import accounts
from labelchef.server.web.live import Hub
from labelchef.server.web.options import ServeOptions
from labelchef.server.web.paging import Cursor
from labelchef.server.web.problems import STORE, Case, WebError, fails
from labelchef.server.workspace import Workspace

Endpoint = TypeVar("Endpoint", bound=Callable[..., object])
CSRF_HEADER = "X-CSRF-Token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="labelchef"'}


class Policy(StrEnum):
    """Who may call a route."""

    PUBLIC = "anyone"
    SIGNED_IN = "anyone signed in"
    MEMBER = "members of the campaign, and leads"
    LEAD = "leads; of a campaign in the path, its own leads too"
    WORKSPACE_LEAD = "leads of the workspace"
    PROBE = "anyone, and nobody is looked up: it must answer while the database does not"
    METRICS = "holders of the metrics token; without one, programs on this machine"


@dataclass(frozen=True)
class Who:
    """The person who sends a request, and how they are signed in."""

    account: Account
    session: str | None
    """The session's secret; None with an API token."""
    here: Role | None
    """What they are in the campaign of the request; None where they may not see it, or where there is none."""

    @property
    def name(self) -> str:
        """Their name."""
        return self.account.name

    @property
    def is_lead(self) -> bool:
        """Whether they lead the workspace."""
        return self.account.role == Role.LEAD

    @property
    def may_lead(self) -> bool:
        """Whether they lead the campaign of the request: its own leads, and those of the workspace."""
        return self.is_lead or self.here is Role.LEAD

    @property
    def csrf(self) -> str | None:
        """The CSRF token of their session; None with an API token."""
        return None if self.session is None else csrf_token(self.session)


class Guard:
    """A dependency that checks the policy of a route and returns the person who calls it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(self, request: Request) -> Who | None:
        """Check before the route runs."""
        return self.check(request, request.path_params.get("campaign"))

    def check(self, request: Request, campaign: str | None) -> Who | None:
        """The same for the campaign of a request that has not found its route yet."""
        who = request.state.who = _identify(request, campaign)
        if request.method not in _SAFE:
            _check_csrf(request, who)
        if self.policy is Policy.PUBLIC:
            return who
        if who is None:
            told = "sign in first, or send an API token as 'Authorization: Bearer …'"
            raise WebError(401, told, code="sign_in", headers=_CHALLENGE)
        if self.policy is Policy.LEAD and not who.may_lead:
            raise WebError(403, "only leads may do this", code="role")
        if self.policy is Policy.WORKSPACE_LEAD and not who.is_lead:
            raise WebError(403, "only leads of the workspace may do this", code="role")
        if self.policy is Policy.MEMBER and who.here is None:
            raise NotFoundError(f"there is no campaign {campaign!r}, or you are not a member of it", code="campaign")
        return who


_FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip")


class ProbeGuard(Guard):
    """Lets everyone in at once, without a thread or the database."""

    def __init__(self) -> None:
        super().__init__(Policy.PROBE)

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        """Nothing to check."""


class MetricsGuard(Guard):
    """Who may read metrics: whoever sends the token; where there is none, only this machine, and not through a proxy."""

    def __init__(self) -> None:
        super().__init__(Policy.METRICS)

    def __call__(self, request: Request) -> None:
        """Check before the route runs."""
        options: ServeOptions = request.app.state.options
        if not options.metrics:
            raise WebError(404, "metrics are off; start the server with --metrics", code="metrics")
        if options.metrics_token is not None:
            sent = request.headers.get("authorization", "").partition(" ")[2].strip()
            if not secrets.compare_digest(sent.encode(), options.metrics_token.get_secret_value().encode()):
                told = "send the metrics token as 'Authorization: Bearer …'"
                raise WebError(401, told, code="metrics_token", headers=_CHALLENGE)
        elif not _is_here(request) or any(name in request.headers for name in _FORWARDED):
            told = "without LABELCHEF_METRICS_TOKEN only programs on the server's machine may read metrics"
            raise WebError(403, told, code="metrics_token")


def _is_here(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


lead = Guard(Policy.LEAD)
_OF_CAMPAIGN = re.compile(r"/api/campaigns/([^/]+)/.+")


def admit_upload(request: Request) -> Who | None:
    """Check who sends a large body before any of it is read: a lead, or a lead of the campaign in the path."""
    found = _OF_CAMPAIGN.fullmatch(request.scope["path"])
    return lead.check(request, None if found is None else found[1])


Probe = Annotated[None, Depends(ProbeGuard())]
Scraper = Annotated[None, Depends(MetricsGuard())]
Anyone = Annotated[Who | None, Depends(Guard(Policy.PUBLIC))]
SignedIn = Annotated[Who, Depends(Guard(Policy.SIGNED_IN))]
Member = Annotated[Who, Depends(Guard(Policy.MEMBER))]
Lead = Annotated[Who, Depends(lead)]
WorkspaceLead = Annotated[Who, Depends(Guard(Policy.WORKSPACE_LEAD))]


def _identify(request: Request, campaign: str | None) -> Who | None:
    """Who sends the request, if anyone is signed in. A bad API token is an error, an old cookie is not."""
    ws, session = request.app.state.workspace, request.cookies.get(request.app.state.options.cookie)
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        account, here = accounts.visitor(ws, token=secret.strip(), campaign=campaign)
        if account is None:
            told = "this API token is unknown or was revoked; make a new one under Account"
            raise WebError(401, told, code="token", headers=_CHALLENGE)
        return Who(account, None, here)
    if not session:
        return None
    account, here = accounts.visitor(ws, session=session, campaign=campaign)
    return None if account is None else Who(account, session, here)


def _check_csrf(request: Request, who: Who | None) -> None:
    """Refuse a change that a page of another site sent, with this person's cookie or to sign in."""
    if who is not None and who.csrf is None:
        return
    sent = request.headers
    elsewhere = "origin" in sent and _host_of(sent["origin"]) != sent.get("host", "").lower()
    if elsewhere or sent.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise WebError(403, "this request comes from a page of another site", code="csrf")
    if who is not None and not secrets.compare_digest(sent.get(CSRF_HEADER, "").encode(), str(who.csrf).encode()):
        told = f"the header {CSRF_HEADER} is missing or old; load the page again (programs use API tokens)"
        raise WebError(403, told, code="csrf")


def _host_of(origin: str) -> str | None:
    """Host and port of an Origin header; None where it is no address.

    >>> _host_of("https://Label.Example:8000"), _host_of("http://["), _host_of("null")
    ('label.example:8000', None, '')
    """
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def csrf_token(session: str) -> str:
    """The CSRF token of a session: only pages of this server can read it.

    >>> csrf_token("a") == csrf_token("a"), csrf_token("a") == csrf_token("b")
    (True, False)
    """
    digest = hmac.new(session.encode(), b"labelchef csrf", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def set_cookie(response: Response, options: ServeOptions, signed: accounts.SignedIn) -> None:
    """Set the session cookie; scripts and requests of other sites cannot use it."""
    response.set_cookie(
        options.cookie, signed.token, expires=signed.expires_at, httponly=True, samesite="lax", secure=options.https
    )


def _state(name: str) -> Callable[[Request], Awaitable[Any]]:
    async def found(request: Request) -> Any:
        return getattr(request.app.state, name)

    return found


async def _gone(request: Request) -> AsyncIterator[Callable[[], bool]]:
    """Whether the client has gone, for work that should end with it; the body was read before."""
    left = threading.Event()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left.set()

    watcher = asyncio.create_task(watch())
    try:
        yield left.is_set
    finally:
        watcher.cancel()


Gone = Annotated[Callable[[], bool], Depends(_gone)]
Store = Annotated[Workspace, Depends(_state("workspace"))]
Options = Annotated[ServeOptions, Depends(_state("options"))]
Changes = Annotated[Hub, Depends(_state("hub"))]

ITEM = (404, "item", "no such item in this campaign")
NAME_TAKEN = (409, "name_taken", "a campaign of this name exists: `campaign`; `suggestion` is a name that is free")
ACCOUNT = (404, "account", "no such account")
GUIDELINES = (422, "guidelines", "a text of the guidelines that is too long")
BUSY_RULES: Case = (
    429,
    "busy",
    "rules of this campaign are being tried, or take too long together; Retry-After says when",
)
SETTINGS: tuple[Case, ...] = (
    (422, "selector", "no such selector"),
    (422, "suggestion", "the suggestion should vote, but the selector suggests no labels"),
    (422, "answers", "answers as a source, where trusted samples only steer"),
    (422, "people", "nobody votes: neither people nor the suggestion"),
    (422, "gold_share", "more hidden gold than items shown blind"),
    (422, "metric", "no such metric, or not one of these classes"),
    (422, "stop", "a stopping rule that cannot be read"),
    (422, "audit", "a stopping rule that reads the audit, without an audit"),
    (422, "muted", "no such source, or nothing is learned about sources"),
    (422, "ahead", "more work ahead than there are items"),
    (422, "target", "a target that the metric cannot reach"),
    (422, "cluster", "the engine dask on a server without a cluster"),
    (422, "val", "no trusted samples are there, and a setting needs them"),
)
"""Settings that do not fit each other."""
_ALWAYS: list[Case] = [
    (413, "size", "the request is larger than the server takes"),
    (421, "host", "the request was sent to a host name this server does not answer to"),
    *((503, code, when) for code, when in STORE.items()),
    (422, "input", "a part of the request is not what this document says"),
    (401, "token", "an unknown or revoked API token"),
]


class Api:
    """Routes of the API. What follows from policy, method, path and parameters of a route is documented by itself."""

    def __init__(self, tag: str, prefix: str = "") -> None:
        self.router = APIRouter(prefix=f"/api{prefix}", tags=[tag], redirect_slashes=False)
        self.get = functools.partial(self._route, "GET")
        self.post = functools.partial(self._route, "POST")
        self.put = functools.partial(self._route, "PUT")
        self.patch = functools.partial(self._route, "PATCH")
        self.delete = functools.partial(self._route, "DELETE")

    def _route(self, method: str, path: str, *cases: Case, **given: Any) -> Callable[[Endpoint], Endpoint]:
        """A decorator; `cases` are the further problems of the route, `given` is for FastAPI."""

        def register(endpoint: Endpoint) -> Endpoint:
            known = _known_cases(method, self.router.prefix + path, endpoint)
            given["responses"] = {**fails(*_ALWAYS, *known, *cases), **given.get("responses", {})}
            self.router.add_api_route(path, endpoint, methods=[method], **given)
            return endpoint

        return register


def _known_cases(method: str, path: str, endpoint: Callable[..., object]) -> Iterator[Case]:
    hints = list(get_type_hints(endpoint, include_extras=True).values())
    if Anyone not in hints:
        yield 401, "sign_in", "no session and no API token"
    if Lead in hints or WorkspaceLead in hints:
        yield 403, "role", "this needs the role of a lead"
    if method not in _SAFE:
        yield 403, "csrf", "a change by cookie without the CSRF token, or from another site"
        yield 400, "request", "a body that is not JSON or a form"
    if "{campaign}" in path:
        yield 404, "campaign", "no such campaign, or you are not a member of it"
        if method not in _SAFE:
            yield 409, "archived", "the campaign is in the archive; reopen it first"
    if "{item:path}" in path:
        yield ITEM
    if Cursor in hints:
        yield 422, "cursor", "not a cursor of this list"
