"""The Label page in a real browser: many classes, guidelines, threads, images, long texts, and a toast that is not in the way."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from labelchef.base.campaigns import Role
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.items import decisions
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import live
from tests.web.test_browser import PHONE, WIDE, Open, enter, opened, saved, sign_in

__all__ = ["opened"]
pytestmark = pytest.mark.slow
LONG = [
    f"Complaints about {word}, of kind {k:03d}"[:60]
    for k, word in enumerate(["lost baggage", "unbelievably_late_flights"] * 100)
]


def data_of(classes: list[str], items: pd.DataFrame, **contents: Any) -> CampaignData:
    """Blobs, one a class."""
    rng = np.random.default_rng(0)
    n, c = len(items), len(classes)
    y = np.concatenate([rng.integers(0, c, n), np.arange(c)])
    X = (rng.normal(size=(n + c, 6)) + 2.0 * rng.normal(size=(c, 6))[y]).astype(np.float32)
    weak = rng.dirichlet(np.ones(c), n)
    return CampaignData.of(
        X[:n],
        weak,
        X_val=X[n:],
        y_val=[classes[k] for k in y[n:]],
        classes=classes,
        contents=Contents(items, **contents),
    )


def start(ws: Workspace, name: str, data: CampaignData, **settings: Any) -> None:
    made = campaigns.create_campaign(
        ws, name, data, Settings(**{"budget": 30, "batch_size": 4, "people": 1, **settings}), "lead"
    )
    worker.advance(ws, made.slug)


def sideways(page: Page) -> int:
    """Pixels by which the page is too wide."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def resize(page: Page, size: dict[str, int]) -> None:
    page.set_viewport_size({"width": size["width"], "height": size["height"]})


@pytest.fixture
def many(ws: Workspace) -> Iterator[str]:
    start(ws, "Many", data_of(LONG, pd.DataFrame({"text": [f"Text {k}: short" for k in range(40)]})))
    with live(ws, ServeOptions()) as base:
        yield base


def test_two_hundred_classes_by_two_keys_by_name_and_by_finger(ws: Workspace, many: str, opened: Open) -> None:
    page = opened(many)
    enter(ws, page, "/c/many/label")
    expect(page.locator(".class")).to_have_count(200)
    codes = page.locator(".class kbd").all_text_contents()
    assert len(set(codes)) == 200
    expect(page.locator("#batch-text")).to_have_text("yours: 0 · batch: 0 of 4 answered")
    page.keyboard.press("3")
    expect(page.locator("#code")).to_contain_text("3_")
    expect(page.locator(".class.fits")).to_have_count(20)
    page.keyboard.press("Escape")
    expect(page.locator("#code")).to_have_text("")
    page.keyboard.press("3")
    page.keyboard.press("u")  # the second key of a code, not undo
    saved(page)
    expect(page.locator("#batch-text")).to_have_text("yours: 1 · batch: 1 of 4 answered")
    page.keyboard.press("7")
    expect(page.locator("#code")).to_have_text("", timeout=6000)  # three seconds later it is over
    page.keyboard.press("/")
    page.keyboard.type("kind 123")
    expect(page.locator(".class:visible")).to_have_count(1)
    page.keyboard.press("Enter")
    saved(page)
    votes = decisions.ledger(ws, "many", kind="vote").entries
    assert [one.label for one in reversed(votes)] == [codes.index("3u"), 123]
    page.keyboard.press("?")
    expect(page.locator("#help-classes dd")).to_have_count(200)
    expect(page.locator("#help-classes dt").nth(46)).to_have_text("3 7")
    page.keyboard.press("?")
    for size in (WIDE, PHONE):
        resize(page, size)
        assert sideways(page) == 0
        wrong = page.evaluate(
            """() => [...document.querySelectorAll('.class')].filter((one) => {
              const name = one.querySelector('.name');
              const below = name.getBoundingClientRect().bottom - one.getBoundingClientRect().bottom;
              return name.scrollWidth > name.clientWidth + 1 || below > 0;
            }).length"""
        )
        assert wrong == 0, "names stay in their buttons"
        box = page.locator("#classes").bounding_box()
        assert box is not None
        assert box["height"] < 0.5 * size["height"], "the list scrolls inside its box"


def test_a_toast_never_covers_the_action_bar(ws: Workspace, many: str, opened: Open) -> None:
    page = opened(many)
    enter(ws, page, "/c/many/label")
    for size in (PHONE, WIDE):
        resize(page, size)
        page.locator("#undo").click()
        expect(page.locator("#toast")).to_contain_text("no vote of yours")
        toast, bar = page.locator("#toast").bounding_box(), page.locator(".actions").bounding_box()
        assert toast is not None
        assert bar is not None
        assert toast["y"] + toast["height"] <= bar["y"] or toast["y"] >= bar["y"] + bar["height"]
        assert bar["y"] + bar["height"] <= size["height"], "and the bar is on the screen"


@pytest.fixture
def talking(ws: Workspace, people: dict[str, Role]) -> Iterator[str]:
    texts = [f"Text {k}: " + "word " * (4000 if k % 2 else 3) for k in range(40)]
    start(ws, "Animals", data_of(["cat", "dog", "cow"], pd.DataFrame({"text": texts})), people=2)
    for name in ("ann", "bob"):
        accounts.set_member(ws, "animals", name, "lead")
    with live(ws, ServeOptions(team=True)) as base:
        yield base


def test_guidelines_reach_people_and_a_question_gets_its_answer(ws: Workspace, talking: str, opened: Open) -> None:
    lead, ann = opened(talking), opened(talking)
    sign_in(lead, "lead", "/c/animals/lead/settings")
    sign_in(ann, "ann", "/c/animals/label")
    ann.wait_for_selector("#label:not(.idle) .class")
    expect(ann.locator("#guide-mark")).to_be_hidden()
    lead.wait_for_selector("#guidelines[data-ready]")
    lead.locator("#text").fill(
        "# Animals\n\nRead **all**.\n\n<script>document.title = 'owned'</script> [x](javascript:x)"
    )
    expect(lead.locator("#preview strong")).to_have_text("all")
    lead.get_by_role("button", name="Save the guidelines").click()
    expect(lead.locator("#guidelines-told")).to_contain_text("version 1")
    lead.get_by_label("Text about").select_option("=dog")
    lead.locator("#text").fill("It *barks*.")
    lead.get_by_role("button", name="Save the guidelines").click()
    expect(lead.locator("#versions > li")).to_have_count(2)
    expect(ann.locator("#guide-mark")).to_be_visible()
    expect(ann.locator(".class", has_text="dog").locator(".about")).to_have_text("It barks.")
    ann.keyboard.press("g")
    expect(ann.locator("#guide-text")).to_contain_text("<script>")
    expect(ann.locator("#guide-classes dt")).to_have_text("dog")
    ann.keyboard.press("g")
    expect(ann.locator("#guide")).to_be_hidden()
    expect(ann.locator("#guide-mark")).to_be_hidden()
    assert "owned" not in ann.title() + lead.title()

    asked = str(ann.locator("#item .text").text_content()).split(":")[0]
    ann.keyboard.press("c")
    ann.get_by_label("Your comment").fill("Cat or <b>cow</b>?")
    ann.keyboard.press("Control+Enter")
    expect(ann.locator("#thread .said")).to_have_text("Cat or <b>cow</b>?")
    ann.keyboard.press("Escape")
    expect(ann.locator("#thread-count")).to_have_text("1")
    ann.keyboard.press("1")
    saved(ann)
    lead.goto("/c/animals/lead/items?view=comments")
    expect(lead.locator("#comments .said")).to_have_text("Cat or <b>cow</b>?")
    lead.get_by_label("Your comment").fill("A cat.")
    lead.get_by_role("button", name="Send").click()
    expect(lead.locator("#comments .said")).to_have_count(2)
    expect(ann.locator("#news")).to_have_text("1 new answer")
    ann.locator("#news").click()
    expect(ann.locator("#thread-item")).to_contain_text(f"{asked}:")
    expect(ann.locator("#thread .said")).to_have_text(["Cat or <b>cow</b>?", "A cat."])
    ann.keyboard.press("Escape")
    expect(ann.locator("#news")).to_be_hidden()
    lead.get_by_role("button", name="Close the thread").click()
    expect(lead.locator("#nothing")).to_be_visible()
    for page in (lead, ann):
        resize(page, PHONE)
        assert sideways(page) == 0


def test_a_long_text_scrolls_in_its_card_and_says_where_one_is(ws: Workspace, talking: str, opened: Open) -> None:
    page = opened(talking)
    sign_in(page, "ann", "/c/animals/label")
    page.wait_for_selector("#label:not(.idle) .class")
    while page.locator("#item .text.long").count() == 0:
        page.keyboard.press("s")
        saved(page)
    expect(page.locator("#reading-text")).to_have_text("0 %")
    page.keyboard.press("PageDown")
    expect(page.locator("#reading-text")).not_to_have_text("0 %")
    page.locator("#item").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(page.locator("#reading-text")).to_have_text("100 %")
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")


def test_images_are_zoomed_moved_and_changed_by_keys_and_mouse(ws: Workspace, tmp_path: Path, opened: Open) -> None:
    media = tmp_path / "media"
    media.mkdir()
    for k in range(30):
        for name, grey in (("front", 60), ("side", 180)):
            Image.new("L", (400, 500), color=grey + k).save(media / f"{name}{k}.png")
    columns = {"image": [f"front{k}.png" for k in range(30)], "side": [f"side{k}.png" for k in range(30)]}
    data = data_of(["normal", "ill", "unclear"], pd.DataFrame(columns), media=media, more_images=("side",))
    start(ws, "Rays", data)
    with live(ws, ServeOptions()) as base:
        page = opened(base)
        enter(ws, page, "/c/rays/label")
        level, picture = page.locator(".level"), page.locator(".picture")
        expect(level).to_have_text("100 %")
        page.wait_for_function("() => document.querySelector('.picture').naturalWidth === 400")
        for _ in range(2):
            page.keyboard.press("+")
        expect(level).to_have_text("225 %")
        before = picture.bounding_box()
        page.keyboard.press("ArrowRight")
        after = picture.bounding_box()
        assert before is not None
        assert after is not None
        assert after["x"] == pytest.approx(before["x"] - 60, abs=1)
        page.mouse.move(500, 300)
        page.mouse.down()
        page.mouse.move(540, 330)
        page.mouse.up()
        moved = picture.bounding_box()
        assert moved is not None
        assert moved["x"] == pytest.approx(after["x"] + 40, abs=1)
        assert moved["y"] == pytest.approx(after["y"] + 30, abs=1)
        page.keyboard.press("0")
        expect(level).to_have_text("100 %")
        page.mouse.wheel(0, -200)
        expect(level).not_to_have_text("100 %")
        page.locator(".view").dblclick()
        expect(level).to_have_text("100 %")
        first = picture.get_attribute("src")
        page.keyboard.press("]")
        expect(picture).to_have_attribute("src", re.compile(r"/image\?number=1&v="))
        page.wait_for_function("() => document.querySelector('.picture').naturalWidth === 400")
        page.keyboard.press("[")
        expect(picture).to_have_attribute("src", str(first))
        page.keyboard.press("2")
        saved(page)
        assert len(decisions.ledger(ws, "rays", kind="vote").entries) == 1
        resize(page, PHONE)
        assert sideways(page) == 0
