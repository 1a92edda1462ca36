"""Hidden gold through the API and the page: nothing that an annotator is sent tells it; Quality and My work in a browser."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fastapi import FastAPI
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from labelchef.base.campaigns import Waiting
from labelchef.base.settings import Settings
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.labelling import tasks, votes
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.store_support import campaign_data
from tests.web.conftest import PASSWORD, Person, live
from tests.web.test_leaks import looks

Sign = Callable[[str], Person]


@pytest.fixture
def slug(ws: Workspace, people: Any, tmp_path: Path) -> str:
    """Items and trusted samples with a picture and a text each, whose ids tell which is which; much of what is asked is gold."""
    rng, n, media = np.random.default_rng(0), 80, tmp_path / "media"
    y = rng.integers(0, 3, n + 40)
    X = rng.normal(size=(n + 40, 4)) + 2.0 * np.eye(3, 4)[y]
    media.mkdir()
    for k in range(n + 40):
        Image.new("L", (8, 8), color=k).save(media / f"p{k}.png")
    frames = [
        pd.DataFrame(
            {
                "id": [f"{kind}{k}" for k in rows],
                "text": [f"Text {k}" for k in rows],
                "image": [f"p{k}.png" for k in rows],
                "lang": ["de"] * len(rows),
            }
        )
        for kind, rows in (("t", range(n)), ("trusted-", range(n, n + 40)))
    ]
    data = campaign_data(
        X[:n], rng.dirichlet([1.0] * 3, n), X[n:], y[n:], items=frames[0], val_items=frames[1], media=media
    )
    chosen = Settings(people=1, batch_size=16, budget=48, gold_share=0.4, blind_share=0.5)
    made = campaigns.create_campaign(ws, "Pictures", data, chosen, "lead").slug
    for name in ("ann", "bob"):
        accounts.set_member(ws, made, name, "lead")
    worker.advance(ws, made)
    return made


def number(task: dict[str, Any]) -> int:
    return int(task["content"]["text"].split()[1])


def shape(value: Any) -> Any:
    """The keys and types of an answer."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def test_nothing_that_is_sent_tells_gold(app: FastAPI, as_person: Sign, slug: str, ws: Workspace) -> None:
    ann, base = as_person("ann"), f"/api/campaigns/{slug}"
    task = ann.post(f"{base}/next", {"n": 1}).json()["tasks"][0]
    seen, said, before = [], set(), None
    while True:
        counted = ann.get(f"/c/{slug}/progress").text
        assert counted != before  # each answer counts, whichever it is on
        before = counted
        address = task["content"]["image"]
        assert re.fullmatch(rf"/api/campaigns/{slug}/items/{task['item']}/image\?v=[0-9a-f]{{12}}", address)
        picture = ann.get(address)
        assert picture.status_code == 200
        expected = (ws.home.parent / "media" / f"p{number(task)}.png").read_bytes()
        assert picture.content == expected
        assert ann.get(f"{base}/tasks/{task['item']}").json()["content"] == task["content"]
        body = {"item": task["item"], "label": 0, "seconds": 1.0, "n": 1}
        answer = ann.post(f"{base}/votes", body).json()
        seen.append(task)
        said.add(str(shape(answer["vote"])))
        if not answer["next"]["tasks"]:
            break
        task = answer["next"]["tasks"][0]
    gold = [one for one in seen if number(one) >= 80]
    blind = [one for one in seen if number(one) < 80 and one["blind"]]
    assert len(gold) >= 3
    assert len(blind) >= 3
    assert len(said) == 1
    for one in gold:
        assert shape(one) == shape(blind[0])
        same = [key for key in one if key not in ("item", "content", "rank", "leased_until", "batch")]
        assert {key: one[key] for key in same} == {key: blind[0][key] for key in same}
        assert one["item"].startswith("t")
        assert not one["item"].startswith("trusted")
    assert [one["rank"] for one in seen] == list(range(len(seen)))
    assert [one["batch"]["mine"] for one in seen] == list(range(len(seen)))
    for one in (gold[0], blind[0]):  # its thread, too
        asked = ann.post(f"{base}/threads/{one['item']}", {"text": "odd"})
        assert asked.status_code in (200, 201), asked.text
        assert asked.json()["content"]["text"] == one["content"]["text"]
    worker.advance(ws, slug)
    for path in looks(app, slug):
        if "/items/" not in path and "/tasks/" not in path:
            assert "gold" not in ann.get(path).text.lower(), path
    assert ann.get(f"{base}/quality").status_code == 403
    mine = ann.get(f"{base}/mine").json()
    assert mine["answers"] == len(seen)
    assert mine["different"] == []
    facts = as_person("lead").get(f"{base}/quality").json()
    assert facts["people"][0]["gold_answered"] == len(gold)
    assert {one["item"] for one in facts["wrong"]} <= {f"trusted-{number(one)}" for one in gold}


@pytest.fixture
def told(ws: Workspace, slug: str) -> Iterator[str]:
    """A server over a campaign with closed rounds."""
    for _ in range(2):
        for person in ("ann", "bob") * 20:
            found = tasks.next_tasks(ws, slug, person, 1)
            if not isinstance(found, Waiting):
                votes.cast_vote(ws, slug, person, found[0].item, int(found[0].item[-1]) % 3, seconds=2.0)
        worker.advance(ws, slug)
    with live(ws, ServeOptions(team=True)) as base:
        yield base


def enter(browser: Browser, base: str, name: str, width: int) -> Page:
    page = browser.new_context(base_url=base, viewport={"width": width, "height": 800}).new_page()
    page.goto("/sign-in")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")
    return page


CLOCK = """async (path) => {
  const { Clock } = await import(path);
  let now = 0;
  const clock = new Clock(() => now);
  const at = (time) => { now = 1000 * time; };
  at(5); clock.touch();
  at(30); const working = clock.seconds();
  at(400); const away = clock.seconds();
  clock.touch(); at(410);
  return [working, away, clock.seconds()];
}"""


@pytest.mark.slow
def test_quality_and_own_work_in_a_browser(told: str, slug: str, browser: Browser, ws: Workspace) -> None:
    given = tasks.next_tasks(ws, slug, "lead", 1)
    assert isinstance(given, list)
    votes.cast_vote(ws, slug, "lead", given[0].item, 0)  # too few to be drawn; it may be on gold
    for width in (1280, 390):
        page = enter(browser, told, "lead", width)
        page.goto(f"/c/{slug}/lead/people")
        page.locator("table.quality button").first.click(timeout=60_000)
        expect(page.get_by_role("heading", name="Against the decisions")).to_be_visible()
        expect(page.locator("#not-drawn")).to_contain_text(
            "lead (too few: 1 of 20 answers"
        )  # who is missing in the chart, and why
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Change what ann gets").click()
    page.get_by_label("ham").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("cell", name="classes ham")).to_be_visible()
    assert page.evaluate(
        CLOCK, page.evaluate("document.querySelector('script[type=module]').src.replace('page.js', 'clock.js')")
    ) == [
        30,
        65,
        75,
    ]
    own = enter(browser, told, "ann", 390)
    own.goto(f"/c/{slug}/label")
    own.get_by_role("link", name="My work").click()
    expect(own.get_by_role("heading", name="Rounds")).to_be_visible()
    assert own.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "gold" not in own.content().lower()
