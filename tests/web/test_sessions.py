"""Signing in, staying signed in, and what another site cannot do."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from labelchef.base.campaigns import CampaignSummary, Role
from labelchef.base.errors import InvalidInputError
from labelchef.server.people import accounts
from labelchef.server.web.api import sessions
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions, check_binding
from labelchef.server.workspace import Workspace
from tests.web.conftest import PASSWORD, Person

Sign = Callable[[str], Person]


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(client: TestClient, people: dict[str, Role]) -> None:
    answer = Person(client).sign_in("ann")
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("labelchef-8000=")
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie
    assert answer.json()["account"] == {**answer.json()["account"], "name": "ann", "role": "annotator"}
    assert PASSWORD not in answer.text


def test_with_https_the_cookie_is_secure(ws: Workspace, people: dict[str, Role]) -> None:
    app = create_app(ws, ServeOptions(team=True, https=True), work=False)
    with TestClient(app, base_url="https://testserver") as client:
        answer = Person(client).sign_in("ann")
    assert answer.headers["set-cookie"].startswith("__Host-labelchef=")
    assert "secure" in answer.headers["set-cookie"].lower()
    assert answer.headers["strict-transport-security"]


def test_a_wrong_password_says_no_more_than_that(client: TestClient, people: dict[str, Role]) -> None:
    wrong = Person(client).sign_in("ann", "not the password")
    nobody = Person(client).sign_in("nobody", "not the password")
    assert wrong.status_code == nobody.status_code == 401
    assert wrong.json()["code"] == nobody.json()["code"] == "credentials"
    assert wrong.json()["detail"] == nobody.json()["detail"]
    assert "set-cookie" not in wrong.headers


def test_guessing_passwords_is_throttled(client: TestClient, people: dict[str, Role]) -> None:
    answers = [Person(client).sign_in("ann", f"guess number {k}") for k in range(12)]
    assert answers[0].status_code == 401
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert Person(client).sign_in("ann").status_code == 429, "the right password is not tried either"


def test_a_flood_of_wrong_passwords_locks_nobody_out(
    app: FastAPI, people: dict[str, Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("labelchef.server.web.api.sessions.asyncio.sleep", wait)
    monkeypatch.setattr(accounts, "_verified", lambda password, _: password == PASSWORD)

    def at(address: str) -> TestClient:
        return TestClient(app, client=(address, 5))

    known = at("2001:db8::1")
    answer = Person(known).sign_in("ann")
    said = answer.headers["set-cookie"].lower()
    assert "-known=" in said
    assert "samesite=strict" in said
    for k in range(60):
        assert Person(at(f"10.0.0.{k}")).sign_in("ann", "not the password").status_code == 401
    assert Person(at("10.0.1.1")).sign_in("ann").status_code == 200, "slowly, but in"
    assert waited[-1] > 1
    assert Person(known).sign_in("ann").status_code == 200
    assert waited[-1] == 0
    full = threading.BoundedSemaphore(1)
    full.acquire()
    monkeypatch.setattr(sessions, "_slowed", full)
    refused = Person(at("10.0.1.2")).sign_in("ann")
    assert (refused.status_code, refused.json()["code"]) == (429, "throttled")
    assert int(refused.headers["retry-after"]) <= 10
    for k in range(5):
        assert Person(at(f"2001:db8:0:1::{k}")).sign_in("bob", "not the password").status_code == 401
    assert Person(at("2001:db8:0:1::9")).sign_in("bob").status_code == 429, "one network, as one address"


def test_signing_out_ends_the_session_everywhere(client: TestClient, as_person: Sign, people: dict[str, Role]) -> None:
    ann = as_person("ann")
    copied = dict(ann.client.cookies)
    assert ann.client.delete("/api/session").status_code == 204
    client.cookies.update(copied)
    assert client.get("/api/session").status_code == 401


def test_changes_need_the_csrf_token(as_person: Sign, campaign: CampaignSummary) -> None:
    ann = as_person("ann")
    path = f"/api/campaigns/{campaign.slug}/next"
    assert ann.post(path, {}).status_code == 200
    assert ann.post(path, {}, headers={"X-CSRF-Token": "wrong"}).json()["code"] == "csrf"
    token = ann.client.headers.pop("X-CSRF-Token")
    assert ann.post(path, {}).json()["code"] == "csrf"
    ann.client.headers["X-CSRF-Token"] = token
    assert ann.post(path, {}, headers={"Origin": "https://evil.example"}).status_code == 403
    assert ann.post(path, {}, headers={"Sec-Fetch-Site": "same-site"}).status_code == 403
    assert ann.post(path, {}, headers={"Origin": "http://testserver"}).status_code == 200


def test_a_token_of_another_session_is_no_csrf_token(as_person: Sign, campaign: CampaignSummary) -> None:
    ann, bob = as_person("ann"), as_person("bob")
    ann.client.headers["X-CSRF-Token"] = bob.client.headers["X-CSRF-Token"]
    assert ann.post(f"/api/campaigns/{campaign.slug}/next", {}).status_code == 403


def test_signing_in_from_another_site_is_refused(client: TestClient, people: dict[str, Role]) -> None:
    answer = client.post(
        "/api/session", json={"name": "ann", "password": PASSWORD}, headers={"Origin": "https://evil.example"}
    )
    assert answer.status_code == 403


def test_api_tokens_need_no_csrf_token_and_can_be_revoked(
    as_person: Sign, client: TestClient, campaign: CampaignSummary
) -> None:
    ann = as_person("ann")
    made = ann.post("/api/tokens", {"label": "script"}).json()
    bearer = {"Authorization": f"Bearer {made['secret']}"}
    assert client.post(f"/api/campaigns/{campaign.slug}/next", json={}, headers=bearer).status_code == 200
    assert client.get("/api/session", headers=bearer).json()["csrf"] is None
    assert made["secret"] not in ann.get("/api/tokens").text
    bob = as_person("bob")
    assert bob.client.delete(f"/api/tokens/{made['id']}").status_code == 404
    assert ann.client.delete(f"/api/tokens/{made['id']}").status_code == 204
    refused = client.get("/api/session", headers=bearer)
    assert refused.status_code == 401
    assert refused.json()["code"] == "token"
    second = ann.post("/api/tokens", {"label": "script"}).json()["secret"]
    minting = client.post("/api/tokens", json={"label": "x"}, headers={"Authorization": f"Bearer {second}"})
    assert (minting.status_code, minting.json()["code"]) == (403, "token_session")
    assert as_person("lead").client.delete("/api/accounts/ann/tokens").status_code == 204
    assert client.get("/api/session", headers={"Authorization": f"Bearer {second}"}).status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")


def test_deactivating_ends_sessions_and_tokens(as_person: Sign, client: TestClient, campaign: CampaignSummary) -> None:
    lead, ann = as_person("lead"), as_person("ann")
    secret = ann.post("/api/tokens", {"label": "script"}).json()["secret"]
    assert lead.client.patch("/api/accounts/ann", json={"active": False}).json()["active"] is False
    assert ann.get("/api/session").status_code == 401
    assert client.get("/api/session", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert Person(client).sign_in("ann").status_code == 401
    assert lead.client.patch("/api/accounts/lead", json={"active": False}).status_code == 409


def test_a_password_changes_only_with_the_current_one(
    as_person: Sign, client: TestClient, people: dict[str, Role]
) -> None:
    ann = as_person("ann")
    change = {"current": "wrong one here", "password": "another long password"}
    assert ann.client.patch("/api/account", json=change).status_code == 401
    changed = ann.client.patch("/api/account", json={**change, "current": PASSWORD})
    assert changed.status_code == 200
    assert ann.get("/api/session").status_code == 200, "signed in again with the new one"
    assert Person(client).sign_in("ann").status_code == 401
    assert Person(client).sign_in("ann", "another long password").status_code == 200


@pytest.fixture
def laptop(ws: Workspace) -> FastAPI:
    return create_app(ws, ServeOptions(port=8123), work=False)


def test_the_link_of_a_laptop_works_once(ws: Workspace, laptop: FastAPI) -> None:
    link = accounts.create_link(ws)
    with TestClient(laptop, base_url="http://127.0.0.1:8123", follow_redirects=False) as client:
        first = client.get("/start", params={"token": link, "then": "/new"})
        assert first.status_code == 303
        assert first.headers["location"] == "/new"
        assert "httponly" in first.headers["set-cookie"].lower()
        assert client.get("/api/session").json()["account"]["role"] == "lead"
        again = TestClient(laptop, base_url="http://127.0.0.1:8123", follow_redirects=False)
        assert again.get("/start", params={"token": link}).status_code == 403
        assert again.get("/start", params={"token": "guess"}).status_code == 403
        assert "set-cookie" not in again.get("/start", params={"token": link}).headers


def test_a_link_never_leads_to_another_site(ws: Workspace, laptop: FastAPI) -> None:
    with TestClient(laptop, base_url="http://127.0.0.1:8123", follow_redirects=False) as client:
        for there in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
            answer = client.get("/start", params={"token": accounts.create_link(ws), "then": there})
            assert answer.headers["location"] == "/"


def test_a_laptop_answers_to_localhost_alone(laptop: FastAPI) -> None:
    with TestClient(laptop, base_url="http://127.0.0.1:8123") as client:
        assert client.get("/api/health").status_code == 200
        assert client.get("/api/health", headers={"Host": "localhost:8123"}).status_code == 200
        rebound = client.get("/api/health", headers={"Host": "evil.example:8123"})
        assert rebound.status_code == 421
        assert rebound.json()["code"] == "host"


def test_passwords_do_not_open_a_laptop(ws: Workspace, laptop: FastAPI, people: dict[str, Role]) -> None:
    with TestClient(laptop, base_url="http://127.0.0.1:8123") as client:
        assert Person(client).sign_in("lead").json()["code"] == "laptop"


def test_without_accounts_only_this_machine_is_served(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.168.1.5", "example.org", "::"):
        with pytest.raises(InvalidInputError, match="--team"):
            check_binding(ServeOptions(host=host))
    for host in ("127.0.0.1", "localhost", "::1"):
        check_binding(ServeOptions(host=host))
    check_binding(ServeOptions(host="0.0.0.0", team=True))
