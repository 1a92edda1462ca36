"""No route without a policy, and each policy holds: by enumeration over all routes."""

import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.intake import IntakeState
from labelchef.server.intake import steps
from labelchef.server.people import accounts
from labelchef.server.web.policies import Guard, Policy
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person, make_campaign
from tests.web.raw_files import image_files

Sign = Callable[[str], Person]


def guards_of(route: APIRoute) -> list[Guard]:
    def walk(dependant: Any) -> Iterator[Guard]:
        for inner in dependant.dependencies:
            if isinstance(inner.call, Guard):
                yield inner.call
            yield from walk(inner)

    return list(walk(route.dependant))


def addressed(app: FastAPI, policy: Policy, campaign: str, intake: str = "none") -> list[tuple[str, str]]:
    """(method, path) of all routes with a policy, with names filled in."""
    found = []
    for route in app.routes:
        assert isinstance(route, APIRoute)
        if guards_of(route)[0].policy is not policy:
            continue
        path = route.path
        for name, value in (
            ("campaign", campaign), ("item", "t1"), ("name", "ann"), ("token", "xyz"), ("chart", "metric"), ("intake", intake),
        ):  # fmt: skip
            path = path.replace("{" + name + "}", value).replace("{" + name + ":path}", value)
        found += [(method, path) for method in sorted((route.methods or set()) - {"HEAD"})]
    return found


def test_every_route_has_exactly_one_policy(app: FastAPI) -> None:
    routes = list(app.routes)
    assert len(routes) > 40
    for route in routes:
        assert isinstance(route, APIRoute), f"{route} is outside of the policies"
        assert len(guards_of(route)) == 1, f"{route.methods} {route.path} needs exactly one policy"


def test_only_a_few_routes_are_public(app: FastAPI) -> None:
    assert {path for _, path in addressed(app, Policy.PUBLIC, "x")} == {
        "/api/health",
        "/api/session",
        "/api/openapi.json",
        "/static/{digest}/{path:path}",
        "/start",
        "/sign-in",
    }
    assert {path for _, path in addressed(app, Policy.PROBE, "x")} == {"/healthz", "/readyz"}
    assert {path for _, path in addressed(app, Policy.METRICS, "x")} == {"/metrics"}


def test_without_signing_in_nothing_is_there(app: FastAPI, client: TestClient, campaign: CampaignSummary) -> None:
    for policy in (Policy.SIGNED_IN, Policy.MEMBER, Policy.LEAD):
        for method, path in addressed(app, policy, campaign.slug):
            answer = client.request(method, path)
            assert answer.status_code == 401, (method, path, answer.text)
            assert answer.json()["code"] == "sign_in"


def test_annotators_do_nothing_that_leads_do(app: FastAPI, as_person: Sign, campaign: CampaignSummary) -> None:
    ann = as_person("ann")
    for method, path in addressed(app, Policy.LEAD, campaign.slug):
        answer = ann.client.request(method, path)
        assert answer.status_code == 403, (method, path, answer.text)
        assert answer.json()["code"] == "role"


def test_another_campaign_cannot_be_told_from_none(app: FastAPI, as_person: Sign, campaign: CampaignSummary) -> None:
    eve = as_person("eve")
    for slug in (campaign.slug, campaign.id):
        for (method, path), (_, nowhere) in zip(
            addressed(app, Policy.MEMBER, slug), addressed(app, Policy.MEMBER, "no-such-campaign"), strict=True
        ):
            answer, empty = eve.client.request(method, path), eve.client.request(method, nowhere)
            assert answer.status_code == empty.status_code == 404, (method, path, answer.text)
            assert answer.json()["detail"].replace(slug, "?") == empty.json()["detail"].replace("no-such-campaign", "?")


def test_a_member_of_one_campaign_sees_only_that_one(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    other = make_campaign(ws, "Secret")
    ann = as_person("ann")
    assert [one["slug"] for one in ann.get("/api/campaigns").json()["entries"]] == [campaign.slug]
    assert ann.get(f"/api/campaigns/{other.id}").status_code == 404
    assert "Secret" not in ann.get("/", headers={"Accept": "text/html"}).text
    accounts.set_member(ws, other.slug, "ann", "lead")
    assert ann.get(f"/api/campaigns/{other.slug}").status_code == 200


def test_leads_may_call_what_leads_call(
    ws: Workspace, app: FastAPI, as_person: Sign, campaign: CampaignSummary
) -> None:
    lead = as_person("lead")
    files = [(name, io.BytesIO(body)) for name, body in image_files(captions=True).items()]
    intake = steps.start(ws, files, "lead").id
    while (found := steps.look(ws, intake)).state is IntakeState.READING:
        time.sleep(0.02)
    assert found.preview is not None
    picture = found.preview.rows[0].content["image"]
    proposed = lead.post(f"/api/campaigns/{campaign.slug}/sources/effect", {"muted": ["weak labels"]})
    assert proposed.status_code == 202, proposed.text
    for method, path in addressed(app, Policy.LEAD, campaign.slug, intake):
        if method == "GET" and "{" not in path:  # a job is made by the matrix
            queries = {
                "/image": {"path": picture},
                "/suggestion": {"column": "text"},
                "/source": {"name": "weak labels"},
            }
            query = queries.get(path[path.rfind("/") :])
            answer = lead.get(path, params=query)
            if answer.status_code == 308:  # an earlier address of a page
                answer = lead.get(answer.headers["location"])
            assert answer.status_code == 200, path


@pytest.mark.parametrize("path", ["/api/campaigns/{c}/ledger", "/api/campaigns/{c}/export/votes", "/c/{c}/lead/ledger"])
def test_others_votes_are_for_leads(as_person: Sign, campaign: CampaignSummary, path: str) -> None:
    assert as_person("ann").get(path.replace("{c}", campaign.slug)).status_code == 403
    assert as_person("lead").get(path.replace("{c}", campaign.slug)).status_code == 200
