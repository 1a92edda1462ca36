"""The page in Firefox: Debian's firefox-esr, driven by Playwright over WebDriver BiDi, against a real server with its worker.

Playwright's own Firefox is a patched one that must be downloaded. The channel moz-firefox takes any Firefox that is installed.
"""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from labelchef.base.campaigns import Role
from labelchef.server.items import decisions
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import live, make_campaign
from tests.web.test_browser import SHOWN, press, saved, sign_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def firefox() -> Iterator[Browser]:
    found = shutil.which("firefox-esr") or shutil.which("firefox")
    if found is None:
        pytest.skip("no Firefox here; tools/system-parts installs it")
    with sync_playwright() as playwright:
        opened = playwright.firefox.launch(executable_path=found, channel="moz-firefox")
        yield opened
        opened.close()


@pytest.fixture
def served(ws: Workspace, people: dict[str, Role]) -> Iterator[str]:
    made = make_campaign(ws, people=1, batch_size=8)
    accounts.set_member(ws, made.slug, "ann", "lead")
    with live(ws, ServeOptions(team=True)) as base:
        yield base


@pytest.fixture
def told(firefox: Browser, served: str) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what it said that it should not."""
    context = firefox.new_context(base_url=served, viewport={"width": 1280, "height": 800})
    wrong: list[str] = []
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    yield page, wrong
    context.close()


def test_sign_in_label_by_keys_and_lead(ws: Workspace, told: tuple[Page, list[str]]) -> None:
    page, wrong = told
    sign_in(page, "ann", "/c/animals/label")
    page.wait_for_selector(SHOWN)
    for key in ("1", "2", "Enter"):
        press(page, key)
    saved(page)
    votes = decisions.ledger(ws, "animals", kind="vote").entries
    assert [vote.label for vote in votes] == [votes[0].what["suggested"], 1, 0], "newest first"
    page.keyboard.press("u")
    expect(page.locator("#toast")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.context.clear_cookies()
    sign_in(page, "lead", "/c/animals/lead")
    expect(page.get_by_role("link", name="How far are we?")).to_have_attribute("aria-current", "page")
    expect(page.locator("#overview")).to_contain_text("ann")
    for address in ("/", "/new", "/c/animals/lead/people", "/c/animals/lead/settings", "/c/animals/lead/ledger"):
        page.goto(address)
        expect(page.locator("h1").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, address
    expect(page.locator("tbody time").first).not_to_contain_text("+00:00")
    assert wrong == []
