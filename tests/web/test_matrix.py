"""Roles × routes, generated from the routes of the app: what each role is answered follows from the policy of the route.

A new route fails `test_every_route_says_how_it_is_called` until it has an entry in `tests/web/calls.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from labelchef.server.people import accounts
from labelchef.server.web.policies import CSRF_HEADER, Policy
from tests.web.calls import CALLS, Headers, Route, Sent, World, world_in
from tests.web.test_policies import guards_of

SAFE = {"GET", "HEAD", "OPTIONS"}
Answer = tuple[int, str | None]
"""Status and code; no code where the request works."""


@dataclass(frozen=True)
class Caller:
    """Someone who sends a request: who it is, by what they are known, and what that is worth."""

    name: str
    person: str
    by: str
    """'nothing', 'session', 'token', 'bad token', 'no csrf', or 'foreign' (a session, from a page of another site)."""
    lead: bool = False
    member: bool = False
    here: bool = False
    """Whether they lead the campaign that requests are about, and no other."""


CALLERS = [
    Caller("nobody", "nobody", "nothing"),
    Caller("annotator, member", "ann", "session", member=True),
    Caller("annotator, not a member", "eve", "session"),
    Caller("annotator, removed from the campaign", "rob", "session"),
    Caller("lead", "lead", "session", lead=True),
    Caller("deactivated, by the session of before", "gone", "nothing"),
    Caller("deactivated, by the token of before", "gone", "bad token"),
    Caller("expired session", "ann", "nothing"),
    Caller("revoked token", "ann", "bad token"),
    Caller("annotator by token, member", "ann", "token", member=True),
    Caller("annotator by token, not a member", "eve", "token"),
    Caller("lead by token", "second", "token", lead=True),
    Caller("lead of the campaign", "cora", "session", member=True, here=True),
    Caller("lead of the campaign by token", "cora", "token", member=True, here=True),
    Caller("lead of another campaign", "otto", "session"),
    Caller("lead without the CSRF token", "lead", "no csrf", lead=True),
    Caller("lead from a page of another site", "lead", "foreign", lead=True),
    Caller("nobody from a page of another site", "nobody", "foreign nothing"),
]


def expected(policy: Policy, method: str, path: str, caller: Caller, sent: Sent) -> Answer | None:
    """What the policy gives this caller; None: the request works."""
    if policy is Policy.PROBE:
        return None
    if policy is Policy.METRICS:  # of a server that was started without --metrics
        return 404, "metrics"
    if caller.by == "bad token":
        return 401, "token"
    if caller.by in ("no csrf", "foreign", "foreign nothing") and method not in SAFE:
        return 403, "csrf"
    if policy is Policy.PUBLIC:
        return None
    if caller.by in ("nothing", "foreign nothing"):
        return 401, "sign_in"
    if policy is Policy.LEAD and not (caller.lead or (caller.here and "{campaign}" in path)):
        return 403, "role"
    if policy is Policy.WORKSPACE_LEAD and not caller.lead:
        return 403, "role"
    if policy is Policy.MEMBER and not (caller.lead or caller.member):
        return 404, "campaign"
    if sent.session_only and caller.by == "token":
        return 403, "token_session"
    return None


class Roles:
    """The headers of each caller; sessions are made anew, since some requests end them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.old = world.session("gone")
        self.dead = world.token("gone")
        accounts.set_active(world.ws, "gone", False)
        self.revoked = world.token("ann")
        accounts.revoke_api_token(world.ws, "ann")

    def headers(self, caller: Caller) -> Headers:
        """Those of this caller."""
        world, foreign = self.world, {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        if caller.name.startswith("deactivated"):
            return self.dead if caller.by == "bad token" else self.old
        if caller.name == "expired session":
            return world.session(caller.person, expired=True)
        if caller.by == "bad token":
            return self.revoked
        if caller.by == "token":
            for one in accounts.list_api_tokens(world.ws, caller.person):  # a person has a limited number of them
                if one.label == "program":
                    accounts.revoke_api_token(world.ws, caller.person, one.id)
            return world.token(caller.person)
        if caller.by in ("nothing", "foreign nothing"):
            return foreign if caller.by == "foreign nothing" else {}
        found = world.session(caller.person)
        if caller.by == "no csrf":
            del found[CSRF_HEADER]
        return {**found, **foreign} if caller.by == "foreign" else found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(scope="module")
def roles(world: World) -> Roles:
    return Roles(world)


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[TestClient]:
    with TestClient(world.app, follow_redirects=False) as opened:
        yield opened


def routes_of(world: World) -> dict[tuple[str, str], Policy]:
    """(method, path) → policy, of every route of the app."""
    found = {}
    for route in world.app.routes:
        assert isinstance(route, APIRoute), f"{route} is outside of the policies"
        guards = guards_of(route)
        assert len(guards) == 1, f"{route.methods} {route.path} needs exactly one policy"
        for method in route.methods or ():
            found[method, route.path] = guards[0].policy
    return found


def test_every_route_says_how_it_is_called(world: World) -> None:
    routes = routes_of(world)
    assert sorted(set(routes) - set(CALLS)) == [], "add them to CALLS of tests/web/calls.py"
    assert sorted(set(CALLS) - set(routes)) == [], "these routes are gone"


@pytest.fixture(scope="module")
def sent_before() -> dict[Route, Sent]:
    """The requests of somebody who may send them, for those who may not: what they are about is not made ready anew."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("caller", CALLERS, ids=lambda one: one.name)
def test_what_a_role_is_answered_follows_from_the_policy(
    world: World, roles: Roles, client: TestClient, caller: Caller, sent_before: dict[Route, Sent]
) -> None:
    wrong = []
    world.running()  # otherwise those who are no members would find no campaign for another reason
    for (method, path), policy in routes_of(world).items():
        if (method, path) not in CALLS:
            continue
        known = sent_before.get((method, path))
        if known is None or expected(policy, method, path, caller, known) is None:
            known = sent_before[method, path] = CALLS[method, path](world, caller.person)
        sent = known
        client.cookies.clear()
        answer = client.request(method, sent.path, headers=roles.headers(caller), **sent.options())
        want = expected(policy, method, path, caller, sent)
        right = (
            answer.status_code in sent.ok if want is None else (answer.status_code, answer.json().get("code")) == want
        )
        if not right:
            wrong.append(f"{method} {path}: {want or sent.ok} expected, {answer.status_code} came: {answer.text[:200]}")
    assert wrong == []


def test_other_methods_are_refused(world: World, client: TestClient) -> None:
    routes = routes_of(world)
    for path in {path for _, path in routes}:
        for method in ("HEAD", "OPTIONS", "TRACE", "GET", "POST", "PUT", "PATCH", "DELETE"):
            address = path.replace("{", "").replace("}", "").replace(":path", "")
            taken = any(method == one and _matches(world, one, address) for one, _ in routes)
            answer = client.request(method, address)
            if not taken:
                assert answer.status_code in (401, 404, 405), (method, path)  # 401: large bodies need a lead first


def _matches(world: World, method: str, address: str) -> bool:
    return any(
        isinstance(route, APIRoute) and method in (route.methods or ()) and route.path_regex.match(address)
        for route in world.app.routes
    )
