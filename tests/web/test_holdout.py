"""The share of validation that judges, on the page and in the API."""

from typing import Any

import pytest

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.settings import OPTIONS, Settings
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.workspace import Workspace
from tests import store_support
from tests.oracles import STEERED
from tests.web.conftest import Person
from tests.web.test_api import Sign, base, upload_files


def judged(ws: Workspace, n_val: int = 200, **settings: Any) -> CampaignSummary:
    data = store_support.small_data(60, n_val)
    made = campaigns.create_campaign(ws, "Judged", data, Settings(budget=8, batch_size=4, **settings), "lead")
    worker.advance(ws, made.slug)
    store_support.label_all(ws, made.slug, "lead", n=30 + n_val)
    return campaigns.summary(ws, made.slug)


def test_rounds_tell_both_parts_and_the_gain(ws: Workspace, as_person: Sign, people: Any) -> None:
    made, lead = judged(ws, **STEERED), as_person("lead")
    last, first = [one for one in lead.get(f"{base(made)}/rounds").json()["entries"] if one["validation"]]
    gain = last["gain"]["f1_macro"]
    assert gain["samples"] in range(95, 101)
    assert (gain["before"], gain["after"]) == (first["validation"]["f1_macro"], last["validation"]["f1_macro"])
    assert gain["low"] <= gain["after"] - gain["before"] <= gain["high"]
    assert gain["doubt"] is None or gain["doubt"].startswith("±")
    assert last["steering"] != last["validation"]
    assert lead.get(f"{base(made)}/status").json()["settings"]["holdout"] == "auto"


def tile(lead: Person, made: CampaignSummary) -> str:
    page = lead.get(f"/c/{made.slug}/lead").text
    start = page.index('id="gain-tile"')
    return page[start : page.index("</div>", start)]


@pytest.mark.parametrize(
    ("n_val", "holdout", "others", "words"),
    [
        (600, "auto", STEERED, "samples held out"),
        (200, 0.1, STEERED, "too small to judge"),
        (200, 0, STEERED, "all of validation steers the selection"),
        (200, "auto", {}, "cannot be measured on trusted samples that train"),
        (200, 0.1, {}, "too small to judge"),
    ],
)
def test_the_progress_page_says_what_may_be_said(
    ws: Workspace,
    as_person: Sign,
    people: Any,
    n_val: int,
    holdout: float | str,
    others: dict[str, Any],
    words: str,
) -> None:
    made, lead = judged(ws, n_val, holdout=holdout, **others), as_person("lead")
    assert words in tile(lead, made)
    last = [one for one in campaigns.rounds(ws, made.slug) if one.validation][-1]
    if last.gain is not None:
        assert f"{last.gain['f1_macro'].low:+.3f}" in tile(lead, made)
    settings = lead.get(f"/c/{made.slug}/lead/settings").text
    assert f'<th scope="row">{OPTIONS["holdout"].title}</th><td>{holdout}</td>' in settings
    for theme in ("light", "dark"):
        chart = lead.get(f"{base(made)}/charts/metric.svg", params={"theme": theme}).text
        assert ("steering" in chart) == (holdout == 0.1 or (holdout == "auto" and bool(others)))


def test_a_campaign_is_made_with_it(ws: Workspace, as_person: Sign, people: Any, tmp_path: Any) -> None:
    lead = as_person("lead")
    assert lead.get("/new").text.count('name="settings.holdout"') == 2
    files: list[tuple[str, Any]] = [(n, (p.name, p.read_bytes())) for n, p in upload_files(tmp_path / "up").items()]

    def made(settings: str = "{}") -> Any:
        answer = lead.client.post(
            "/api/campaigns", files=files, data={"name": f"With {settings}", "settings": settings}
        )
        return (
            campaigns.settings(ws, answer.json()["slug"]).holdout if answer.status_code == 201 else answer.status_code
        )

    assert made() == "auto"
    assert made('{"holdout": 0.25}') == 0.25
    assert made('{"holdout": 0}') == 0.0
    assert made('{"holdout": "auto"}') == "auto"
    for refused in ("1", "NaN", '"most"', "null", '"0.5"'):
        assert made(f'{{"holdout": {refused}}}') == 422
    folder = tmp_path / "imports" / "one"
    (tmp_path / "imports").mkdir()
    upload_files(folder)
    body = {"name": "Folder", "folder": str(folder), "settings": {"holdout": 0.5}}
    slug = lead.post("/api/campaigns/from-folder", body).json()["slug"]
    assert campaigns.settings(ws, slug).holdout == 0.5
    kept = lead.client.patch(f"/api/campaigns/{slug}/settings", json={"holdout": 0.1})
    assert kept.status_code == 422
