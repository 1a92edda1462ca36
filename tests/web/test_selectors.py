"""What picks the items: chosen by name in the API and on the page, refused where it cannot be."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelchef.chef.baselines import BASELINES
from labelchef.chef.selectors import SELECTORS
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person, make_campaign
from tests.web.test_api import upload_files

Sign = Callable[[str], Person]


def files_of(folder: Path) -> list[tuple[str, Any]]:
    return [(name, (path.name, path.read_bytes())) for name, path in upload_files(folder).items()]


def test_every_selector_can_be_chosen_on_the_page(as_person: Sign, people: Any) -> None:
    page = as_person("lead").get("/new").text
    for form in ("set", "arrays"):
        menu = page.split(f'<select id="{form}-selector" name="settings.selector"')[1].split("</select>")[0]
        for name in SELECTORS:
            assert f'<option value="{name}"' in menu
        assert menu.count(" selected") == 1
        assert '<option value="margin" selected>' in menu
        assert "random: Chance. No suggestions." in menu
        assert not any(f'value="{name}"' in menu for name in BASELINES)


def test_a_selector_by_name_from_files_and_folders(ws: Workspace, as_person: Sign, people: Any, tmp_path: Path) -> None:
    lead, files = as_person("lead"), files_of(tmp_path / "up")
    made = lead.client.post(
        "/api/campaigns", files=files, data={"name": "By chance", "settings": '{"selector": "random"}'}
    )
    assert made.status_code == 201, made.text
    assert campaigns.settings(ws, made.json()["slug"]).selector == "random"
    made = lead.client.post(
        "/api/campaigns", files=files, data={"name": "A baseline", "settings": '{"selector": "infl_d"}'}
    )
    assert made.status_code == 201, made.text
    upload_files(tmp_path / "imports" / "one")
    form = {"name": "Field", "folder": str(tmp_path / "imports" / "one"), "settings": {"selector": "entropy"}}
    made = lead.post("/api/campaigns/from-folder", form)
    assert made.status_code == 201, made.text
    assert lead.get(f"/api/campaigns/{made.json()['slug']}/status").json()["settings"]["selector"] == "entropy"


def test_what_cannot_be_is_refused_and_nothing_is_stored(
    ws: Workspace, as_person: Sign, people: Any, tmp_path: Path
) -> None:
    lead, files = as_person("lead"), files_of(tmp_path / "up")
    upload_files(tmp_path / "imports" / "one")
    form = {"name": "No", "folder": str(tmp_path / "imports" / "one")}
    for name in (name for name, made in SELECTORS.items() if not getattr(made, "suggests", True)):
        chosen = {"selector": name, "suggestion_votes": True}
        answers = [
            lead.client.post("/api/campaigns", files=files, data={"name": "No", "settings": json.dumps(chosen)}),
            lead.post("/api/campaigns/from-folder", {**form, "settings": chosen}),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == (422, "suggestion")
            assert "expected people alone" in answer.json()["detail"]
    tea = json.dumps({"selector": "tea leaves"})
    unknown = lead.client.post("/api/campaigns", files=files, data={"name": "No", "settings": tea})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "selector")
    assert campaigns.list_campaigns(ws) == []


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("selector", ["random", "o2u"])
def test_tasks_status_progress_and_exports_without_suggestions(
    ws: Workspace, as_person: Sign, people: Any, selector: str
) -> None:
    made = make_campaign(ws, selector=selector, batch_size=2)
    lead, base = as_person("lead"), f"/api/campaigns/{made.slug}"
    for _ in range(2):
        task = strict(lead.post(f"{base}/next", {"n": 1}).text)["tasks"][0]
        assert (task["suggestion"], task["influence"]) == (None, None)
        assert lead.post(f"{base}/votes", {"item": task["item"], "label": None}).status_code in (200, 201)
    worker.advance(ws, made.slug)
    assert strict(lead.get(f"{base}/conflicts").text)["entries"][0]["suggestion"] is None
    strict(lead.get(f"{base}/status").text)
    strict(lead.get(f"{base}/ledger").text)
    shown = lead.get(f"/c/{made.slug}/lead").text
    assert "Every round in numbers" in shown
    assert not re.search(r"\bnan\b", shown.split("<main")[1].lower())
    assert lead.get(f"{base}/charts/change.svg?theme=dark").status_code == 200
    for page in ("label", "lead", "lead/ledger", "lead/settings", "lead/items?view=conflicts"):
        assert lead.get(f"/c/{made.slug}/{page}").status_code == 200
