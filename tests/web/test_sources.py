"""Sources, baselines and the audit in the API and on the pages."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelchef.base.errors import ThrottledError
from labelchef.base.settings import Settings
from labelchef.server import sharing, worker
from labelchef.server.campaigns import campaigns
from labelchef.server.people import accounts
from labelchef.server.sharing import Turn
from labelchef.server.sources import source_effects
from labelchef.server.workspace import Workspace
from tests.rule_campaigns import make as make_with_rules
from tests.source_support import WRONG, sourced_data
from tests.store_support import label_all
from tests.web.conftest import Person

Sign = Callable[[str], Person]


@pytest.fixture
def slug(ws: Workspace, people: Any) -> str:
    settings = Settings(budget=20, batch_size=4, audit=0.5, sources="naive_bayes", gamma=0.5)
    made = campaigns.create_campaign(ws, "Mails", sourced_data(), settings, "lead").slug
    worker.advance(ws, made)
    return made


def test_sources_are_for_leads(as_person: Sign, slug: str) -> None:
    found = as_person("lead").get(f"/api/campaigns/{slug}/sources")
    assert found.status_code == 200, found.text
    said = found.json()
    assert (said["model"], said["total"], len(said["sources"])) == ("naive_bayes", 3, 3)
    wrong = next(one for one in said["sources"] if one["name"] == WRONG)
    assert wrong["use"] == "turned"
    assert len(wrong["confusion"]) == len(said["classes"]) == 3
    assert as_person("ann").get(f"/api/campaigns/{slug}/sources").status_code == 403


def test_the_signed_ledger_is_for_leads(ws: Workspace, as_person: Sign, slug: str) -> None:
    label_all(ws, slug, "lead", rounds=1)
    ledger = as_person("lead").get(f"/api/campaigns/{slug}/export/ledger?pseudonyms=true")
    assert '"person":"person-' in ledger.text
    assert '"person":"lead"' not in ledger.text
    assert as_person("ann").get(f"/api/campaigns/{slug}/export/ledger").status_code == 403


def test_a_campaign_without_a_model_has_no_facts(ws: Workspace, as_person: Sign, people: Any) -> None:
    made = campaigns.create_campaign(ws, "New", sourced_data(), Settings(), "lead").slug
    answer = as_person("lead").get(f"/api/campaigns/{made}/sources")
    assert (answer.status_code, answer.json()["code"]) == (409, "preparing")


def test_audit_and_baselines(ws: Workspace, as_person: Sign, slug: str) -> None:
    lead = as_person("lead")
    none = lead.get(f"/api/campaigns/{slug}/audit").json()
    assert none == {"share": 0.5, "accuracy": None, "course": []}
    label_all(ws, slug, "lead", rounds=2)
    found = lead.get(f"/api/campaigns/{slug}/audit").json()
    assert found["accuracy"]["samples"] == len(found["course"]) == 4
    status = lead.get(f"/api/campaigns/{slug}/status").json()
    closed = [one for one in status["rounds"] if one["validation"]]
    assert status["audit"] == found
    assert closed[-1]["baselines"]["validation"].keys() == {"trusted_only", "no_weak"}
    assert closed[-1]["figures"]["validation"]["f1_macro"]["cross_fitted"] is True
    assert closed[-1]["in_use"]["model"] == "naive_bayes"
    page = lead.get(f"/c/{slug}/lead").text
    for words in (
        "trusted only",
        "without weak labels",
        "accuracy in the audit",
        "cross-fitted over 30 trusted samples",
        "In use:",
    ):
        assert words in page, words
    chart = lead.get(f"/api/campaigns/{slug}/charts/audit.svg")
    assert chart.status_code == 200
    assert "audited items" in chart.text
    assert "without weak labels" in lead.get(f"/api/campaigns/{slug}/charts/metric.svg").text
    assert '<th class="right">Without weak</th>' in page


def test_muting_and_editing_through_the_api(ws: Workspace, as_person: Sign, people: Any, tmp_path: Path) -> None:
    slug = make_with_rules(ws, tmp_path / "files", sources="naive_bayes", gamma=0.5, l2=0.001)
    lead, path = as_person("lead"), f"/api/campaigns/{slug}"
    assert lead.get(f"{path}/sources/effect").json()["code"] == "effect"
    page = lead.get(f"{path}/sources", params={"search": "w", "sort": "accuracy", "falling": False}).json()
    assert ([one["name"] for one in page["sources"]], page["found"], page["total"]) == (["wrong"], 1, 4)
    assert lead.get(f"{path}/sources", params={"sort": "colour"}).json()["code"] == "sort"
    detail = lead.get(f"{path}/source", params={"name": "wrong"}).json()
    assert (detail["rule"]["words"], detail["muted"]) == (["click"], [])
    assert detail["wrong"][0]["item"].startswith("g"), "a trusted item"
    assert lead.get(f"{path}/source", params={"name": "nobody"}).json()["code"] == "source"

    assert lead.post(f"{path}/sources/effect", {"muted": ["nobody"]}).json()["code"] == "muted"
    began = lead.post(f"{path}/sources/effect", {"muted": ["wrong"]})
    assert began.status_code == 202, began.text
    found, deadline = began.json(), time.monotonic() + 60
    while found["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
        found = lead.get(f"{path}/sources/effect").json()
    assert found["state"] == "done", found["problem"]
    gain = found["effect"]["gains"]["validation"]["loss"]
    assert gain["low"] <= gain["after"] - gain["before"] <= gain["high"]
    assert found["effect"]["baselines"]["validation"].keys() == {"trusted_only", "no_weak"}
    assert lead.post(f"{path}/sources/apply", {"muted": ["wrong"]}).json() == {"muted": ["wrong"], "version": 0}
    uses = {one["name"]: one["use"] for one in lead.get(f"{path}/sources").json()["sources"]}
    assert uses.pop("wrong") == "muted, from the next model on"
    assert not any("from the next model on" in use for use in uses.values())
    assert lead.get(f"{path}/status").json()["settings"]["muted"] == ["wrong"]
    assert lead.client.patch(f"{path}/settings", json={"muted": []}).status_code == 200

    now = lead.get(f"{path}/rules").json()
    assert (now["version"], now["texts"], now["classes"]) == (0, ["comment"], ["ham", "spam"])
    rules = [*now["rules"][:2], {**now["rules"][2], "label": "spam"}]
    tried = lead.post(f"{path}/rules", {"rules": rules}).json()["rules"][2]
    assert tried["n_right"] > tried["n_trusted"] / 2
    assert lead.post(f"{path}/sources/apply", {"muted": [], "rules": rules}).json()["version"] == 1
    assert len(lead.get(f"{path}/rules").json()["rules"]) == 3
    again = lead.post(f"{path}/sources/apply", {"muted": [], "rules": rules})
    assert (again.status_code, again.json()["code"]) == (409, "no_change")
    kinds = lead.get(f"{path}/ledger", params={"kind": "change"}).json()["entries"]
    assert any("votes-1_indices" in str(one) for one in kinds)
    for page_of in ("sources", "source?name=wrong", "source"):
        assert lead.get(f"/c/{slug}/lead/{page_of}").status_code == 200
    accounts.set_member(ws, slug, "ann", "lead")
    ann = as_person("ann")
    for closed in ("sources", "source?name=wrong", "sources/effect", "rules"):
        assert ann.get(f"{path}/{closed}").status_code == 403
    tasks = ann.post(f"{path}/next", {"n": 2}).json()["tasks"]
    assert all("highlights" in one for one in tasks)


def test_trying_rules_ends_with_its_client_and_few_wait(
    ws: Workspace, people: Any, as_person: Sign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, slug = as_person("lead"), make_with_rules(ws, tmp_path / "files", sources="naive_bayes", gamma=0.5, l2=0.001)
    ended: list[str] = []

    def endless(*_: object, check: Callable[[], None], **__: object) -> None:
        try:
            while True:
                check()
        except ThrottledError as error:
            ended.append(str(error))
            raise

    monkeypatch.setattr(source_effects, "facts_of", endless)
    path, body = f"/api/campaigns/{slug}/rules", json.dumps({"rules": []}).encode()
    sent: list[dict[str, Any]] = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
    headers = {"host": "testserver", "content-type": "application/json", "content-length": str(len(body))}
    headers["authorization"] = f"Bearer {accounts.create_api_token(ws, 'lead', 'rules')[0]}"
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [(a.encode(), b.encode()) for a, b in headers.items()], "client": ("1.2.3.4", 5),
        "server": ("testserver", 80),
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return sent.pop(0) if len(sent) > 1 else sent[0]

    async def send(_: object) -> None:
        pass

    async def ask() -> None:
        await lead.client.app(scope, receive, send)

    asyncio.run(ask())
    assert ended == ["the one who asked does not wait any more"]
    monkeypatch.setattr(sharing, "TRY_SECONDS", 0.2)
    answer = lead.post(path, {"rules": []})
    assert (answer.status_code, answer.json()["code"]) == (429, "busy")
    assert "try fewer at a time" in answer.json()["detail"]


def test_few_requests_wait_for_their_turn_to_try_rules() -> None:
    turn, waits, done = Turn(), threading.Semaphore(0), threading.Event()

    def gone() -> bool:
        waits.release()
        return done.is_set()

    def attempt() -> None:
        with pytest.raises(ThrottledError, match="does not wait any more"), turn.taken(gone):
            pass

    with turn.lock:
        others = [threading.Thread(target=attempt) for _ in range(sharing.MOST_TRIES)]
        for one in others:
            one.start()
        for _ in range(2 * len(others)):
            waits.acquire()
        with pytest.raises(ThrottledError, match="try again in a moment"), turn.taken(lambda: False):
            pass
        done.set()
        for one in others:
            one.join()
    with turn.taken(lambda: False) as check:
        check()


def test_few_requests_try_rules_of_all_campaigns_together() -> None:
    with contextlib.ExitStack() as held:
        for _ in range(sharing.MOST_TRIES_TOGETHER):
            held.enter_context(Turn().taken(lambda: False))
        with pytest.raises(ThrottledError, match="try again in a moment"), Turn().taken(lambda: False):
            pass
    with Turn().taken(lambda: False) as check:
        check()
