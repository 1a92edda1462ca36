"""What is told when the store fails: to leads all of it, to others a sentence without paths and addresses."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.errors import StoreError
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.trained import lease_name
from labelchef.server.labelling import tasks
from labelchef.server.people import accounts
from labelchef.server.web.problems import STORE
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person

Sign = Callable[[str], Person]
SECRET = "postgresql://chef@db.internal/labels: /srv/secret/campaigns"


@pytest.mark.parametrize("code", [*STORE, "something_new"])
def test_only_leads_hear_of_paths_and_addresses(
    as_person: Sign, campaign: CampaignSummary, monkeypatch: pytest.MonkeyPatch, code: str, caplog: Any
) -> None:
    ann, lead = as_person("ann"), as_person("lead")

    def refuse(*_: Any, **__: Any) -> None:
        raise StoreError(SECRET, code=code)

    monkeypatch.setattr(tasks, "next_tasks", refuse)
    monkeypatch.setattr(campaigns, "rounds", refuse)
    path = f"/api/campaigns/{campaign.slug}/next"
    for person, told in ((ann, False), (lead, True)):
        answer = person.post(path)
        assert (answer.status_code, answer.json()["code"]) == (503, code)
        assert (SECRET in answer.text) is told
        page = person.get(f"/c/{campaign.slug}/label", headers={"Accept": "text/html"})
        assert page.status_code == 503
        assert (SECRET in page.text) is told
    assert SECRET in caplog.text


def test_nobody_hears_of_the_store_before_it_is_known_who_asks(
    app: FastAPI, client: TestClient, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise StoreError(SECRET, code="database_down")

    monkeypatch.setattr(accounts, "visitor", refuse)
    monkeypatch.setattr(accounts, "redeem_link", refuse)
    headers = {"Authorization": "Bearer x"}
    for answer in (
        client.get("/api/campaigns", headers=headers),
        client.post("/api/campaigns", headers=headers),
        client.get("/start?token=x", headers={"Accept": "text/html"}),
    ):
        assert answer.status_code == 503
        assert SECRET not in answer.text


def test_why_a_campaign_failed_is_for_leads(ws: Workspace, as_person: Sign, campaign: CampaignSummary) -> None:
    with ws.leases.holding(lease_name(find(ws, campaign.slug))) as lease:
        worker._fail(ws, campaign.slug, SECRET, lease)
    ann, lead = as_person("ann"), as_person("lead")
    for path in (
        "/api/campaigns",
        f"/api/campaigns/{campaign.slug}",
        "/",
        f"/c/{campaign.slug}/label",
        f"/c/{campaign.slug}/progress",
    ):
        answer = ann.get(path)
        assert answer.status_code == 200
        assert "secret" not in answer.text, path
    assert "secret" not in ann.post(f"/api/campaigns/{campaign.slug}/next").text
    assert SECRET in lead.get(f"/api/campaigns/{campaign.slug}").text
    assert SECRET in lead.post(f"/api/campaigns/{campaign.slug}/next").text


def test_health_tells_of_the_worker_and_the_database(
    ws: Workspace, app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/api/health").json()["status"] == "ok"
    app.state.worker = SimpleNamespace(alive=False)
    ended = client.get("/api/health")
    assert (ended.status_code, ended.json()["code"]) == (503, "worker")
    app.state.worker = SimpleNamespace(alive=True)
    assert client.get("/api/health").status_code == 200

    def refuse(*_: Any) -> None:
        raise StoreError(SECRET, code="database_gone")

    monkeypatch.setattr(accounts, "has_lead", refuse)
    lost = client.get("/api/health")
    assert (lost.status_code, lost.json()["code"]) == (503, "database_gone")
    assert SECRET not in lost.text


def test_the_document_names_the_codes_of_the_store(app: FastAPI) -> None:
    named = app.openapi()["x-problem-codes"]["503"]
    assert set(STORE) <= set(named)
    assert "worker" in named
    assert "store" not in named
