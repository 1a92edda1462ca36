"""One policy per route: who may call it. A test fails on a route without a policy."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from labelchef.domain.errors import NotFoundError
from labelchef.services.workspace import Workspace
from labelchef.web import identity
from labelchef.web.identity import Who
from labelchef.web.live import Hub
from labelchef.web.options import ServeOptions
from labelchef.web.problems import STORE, WebError, fails


class Policy(StrEnum):
    """Who may call a route."""

    PUBLIC = "anyone"
    SIGNED_IN = "anyone signed in"
    MEMBER = "members of the campaign, and leads"
    LEAD = "leads"


class Guard:
    """A dependency that checks the policy of a route and returns the person who calls it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(self, request: Request) -> Who | None:
        """Check before the route runs."""
        state = request.app.state
        campaign = request.path_params.get("campaign")
        who = identity.identify(state.workspace, state.options, request, campaign)
        identity.check_csrf(request, who, request.method)
        request.state.who = who
        if self.policy is Policy.PUBLIC:
            return who
        who = identity.require(who)
        if self.policy is Policy.LEAD and not who.is_lead:
            raise WebError(403, "only leads may do this", code="role")
        if self.policy is Policy.MEMBER and not who.takes_part:
            raise NotFoundError(f"there is no campaign {campaign!r}, or you are not a member of it", code="campaign")
        return who


public = Guard(Policy.PUBLIC)
signed_in = Guard(Policy.SIGNED_IN)
member = Guard(Policy.MEMBER)
lead = Guard(Policy.LEAD)

Anyone = Annotated[Who | None, Depends(public)]
SignedIn = Annotated[Who, Depends(signed_in)]
Member = Annotated[Who, Depends(member)]
Lead = Annotated[Who, Depends(lead)]


def workspace_of(request: Request) -> Workspace:
    """The open workspace."""
    workspace: Workspace = request.app.state.workspace
    return workspace


async def _workspace(request: Request) -> Workspace:
    return workspace_of(request)


async def _options(request: Request) -> ServeOptions:
    options: ServeOptions = request.app.state.options
    return options


async def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


Store = Annotated[Workspace, Depends(_workspace)]
Options = Annotated[ServeOptions, Depends(_options)]
Changes = Annotated[Hub, Depends(_hub)]

_COMMON = [
    (413, "size", "the request is larger than the server takes"),
    (421, "host", "the request was sent to a host name this server does not answer to"),
    *((503, code, when) for code, when in STORE.items()),
]
_UNREAD = (422, "input", "a part of the request is not what this document says")
_SIGN_IN = [
    (401, "sign_in", "no session and no API token"),
    (401, "token", "an unknown or revoked API token"),
]
CAMPAIGN = (404, "campaign", "no such campaign, or you are not a member of it")
ITEM = (404, "item", "no such item in this campaign")
_CSRF = (403, "csrf", "a change by cookie without the CSRF token, or from another site")
_ROLE = (403, "role", "this needs the role of a lead")


def answers(
    policy: Policy, *cases: tuple[int, str, str], changes: bool = False, campaign: bool = False
) -> dict[Any, Any]:
    """The problems a route may answer with, for its OpenAPI `responses`."""
    all_cases = [*_COMMON, _UNREAD, (401, "token", "an unknown or revoked API token")]
    if policy is not Policy.PUBLIC:
        all_cases += _SIGN_IN[:1]
    if policy is Policy.LEAD:
        all_cases.append(_ROLE)
    if changes:
        all_cases.append(_CSRF)
        all_cases.append((400, "request", "a body that is not JSON or a form"))
    if campaign:
        all_cases.append(CAMPAIGN)
    return fails(*all_cases, *cases)


def router(kind: type[APIRoute] = APIRoute) -> APIRouter:
    """A router for routes of the API."""
    return APIRouter(prefix="/api", redirect_slashes=False, route_class=kind)
