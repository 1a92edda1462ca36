"""The browser of items in a real browser: search, keys, many at once, one item, small and dark."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Dialog, Page, expect

from labelchef.server import worker
from labelchef.server.items import decisions
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import live, make_campaign
from tests.web.test_api import label_items
from tests.web.test_browser import PHONE, Open, enter, opened  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow


@pytest.fixture
def laptop(ws: Workspace) -> Iterator[str]:
    made = make_campaign(ws, budget=40)
    label_items(ws, made.slug, 4)
    worker.advance(ws, made.slug)
    with live(ws, ServeOptions()) as base:
        yield base


def _fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_lead_looks_through_the_items_and_acts_on_many(ws: Workspace, laptop: str, opened: Open) -> None:  # noqa: F811
    page = opened(laptop)
    enter(ws, page, "/c/animals/lead/items")
    expect(page.locator("#matches")).to_have_text("60 of 60 items")
    page.keyboard.press("/")
    page.keyboard.type('"text 2*" script')
    page.keyboard.press("Enter")
    page.wait_for_url("**/lead/items?q=*")
    assert "sort=" not in page.url  # empty filters are not in the address
    page.goto("/c/animals/lead/items?state=new&sort=doubt")
    matches = int(page.locator("#items").get_attribute("data-matches") or 0)
    for key in ("ArrowDown", "x", "ArrowDown", "ArrowDown", "x"):
        page.keyboard.press(key)
    expect(page.locator("#picked")).to_have_text("2 selected")
    chosen = [line.get_attribute("data-item") for line in page.locator(".item-line.picked").all()]
    said: list[str] = []

    def accept(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.accept()

    page.on("dialog", accept)
    page.locator("#act-label").select_option(label="dog")
    page.get_by_role("button", name="Decide", exact=True).click()
    expect(page.locator("#done")).to_contain_text("2 done")
    assert "2 items" in said[0]
    expect(page.locator("#matches")).to_have_text(f"{matches - 2} of 60 items")
    lines = decisions.ledger(ws, "animals", kind="decision").entries
    assert {one.item for one in lines if one.who == "me" and one.label == 1} >= set(chosen)
    page.locator(".pick").first.check()
    page.get_by_role("button", name="that match").click()
    page.get_by_role("button", name="Send to people").click()
    expect(page.locator("#done")).to_contain_text(f"{matches - 2} done")
    assert f"{matches - 2} items" in said[1]
    page.goto("/c/animals/lead/ledger?kind=decision")
    page.locator("td.id a").first.click()
    expect(page.locator("#similar li")).to_have_count(8)
    expect(page.locator("#decisions-title")).to_be_visible()
    _fits(page)
    page.locator("#similar a").first.click()
    expect(page.get_by_role("heading", name="What is known")).to_be_visible()


def test_the_items_fit_on_a_phone_in_the_dark(ws: Workspace, laptop: str, opened: Open) -> None:  # noqa: F811
    page = opened(laptop, viewport=PHONE, color_scheme="dark")
    enter(ws, page, "/")
    page.goto("/c/animals/lead/items?state=asked&disagree=model-people")
    _fits(page)
    page.goto("/c/animals/lead/items?q=text#map-box")
    expect(page.locator(".item-map circle").first).to_be_attached(timeout=60_000)
    page.locator(".pick").first.check()
    _fits(page)
    page.goto("/c/animals/lead/items/t5")
    expect(page.locator("#similar li").first).to_be_visible()
    _fits(page)
