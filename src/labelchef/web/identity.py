"""Who sends a request: known by a session cookie with its CSRF token, or by an API token."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from labelchef.domain.campaigns import Account, Role
from labelchef.services.people import accounts
from labelchef.services.workspace import Workspace
from labelchef.web.options import ServeOptions
from labelchef.web.problems import WebError

CSRF_HEADER = "X-CSRF-Token"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Who:
    """The person who sends a request, and how they are signed in."""

    account: Account
    session: str | None
    """The session's secret; None with an API token."""
    takes_part: bool
    """Whether they may see the campaign of the request."""

    @property
    def name(self) -> str:
        """Their name."""
        return self.account.name

    @property
    def is_lead(self) -> bool:
        """Whether they have the role of a lead."""
        return self.account.role == Role.LEAD


def csrf_token(session: str) -> str:
    """The CSRF token of a session: only pages of this server can read it.

    >>> csrf_token("a") == csrf_token("a"), csrf_token("a") == csrf_token("b")
    (True, False)
    """
    digest = hmac.new(session.encode(), b"labelchef csrf", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def identify(ws: Workspace, options: ServeOptions, request: HTTPConnection, campaign: str | None) -> Who | None:
    """Who sends the request, or None, and whether they take part in `campaign`.

    A bad API token is an error, an old cookie is not.
    """
    header = request.headers.get("authorization", "")
    scheme, _, secret = header.partition(" ")
    if scheme.lower() == "bearer":
        account, part = accounts.visitor(ws, token=secret.strip(), campaign=campaign)
        if account is None:
            raise WebError(
                401,
                "this API token is unknown or was revoked; make a new one under Account",
                code="token",
                headers=_CHALLENGE,
            )
        return Who(account, None, part)
    session = request.cookies.get(options.cookie)
    if not session:
        return None
    account, part = accounts.visitor(ws, session=session, campaign=campaign)
    return None if account is None else Who(account, session, part)


_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="labelchef"'}


def require(who: Who | None) -> Who:
    """The person, or an error that asks to sign in."""
    if who is None:
        raise WebError(
            401, "sign in first, or send an API token as 'Authorization: Bearer …'", code="sign_in", headers=_CHALLENGE
        )
    return who


def check_csrf(request: HTTPConnection, who: Who | None, method: str) -> None:
    """Refuse a change that a page of another site sent with this person's cookie."""
    if method in SAFE or (who is not None and who.session is None):
        return
    check_origin(request)
    if who is None or who.session is None:
        return
    sent = request.headers.get(CSRF_HEADER, "")
    if not secrets.compare_digest(sent.encode(), csrf_token(who.session).encode()):
        raise WebError(
            403,
            f"the header {CSRF_HEADER} is missing or old; load the page again (programs use API tokens)",
            code="csrf",
        )


def check_origin(request: HTTPConnection) -> None:
    """Refuse a request that, by its headers, comes from a page of another site."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise WebError(403, "this request comes from a page of another site", code="csrf")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise WebError(403, "this request comes from a page of another site", code="csrf")


def set_cookie(response: Response, options: ServeOptions, signed: Any) -> None:
    """Set the session cookie; scripts and requests of other sites cannot use it."""
    response.set_cookie(
        options.cookie,
        signed.token,
        expires=signed.expires_at,
        path="/",
        httponly=True,
        samesite="lax",
        secure=options.https,
    )


def clear_cookie(response: Response, options: ServeOptions) -> None:
    """Delete the session cookie."""
    response.delete_cookie(options.cookie, path="/", httponly=True, samesite="lax", secure=options.https)
