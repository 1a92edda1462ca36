"""A lead and three annotators in real browsers, from files to the data set: guidelines, hidden gold, a tie and its third vote, a
thread, a source that is muted, a decision on many items, export, delete and restore. Light and dark, wide and narrow."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from playwright.sync_api import Page, expect

from labelchef.base.campaigns import Role
from labelchef.server.campaigns import campaigns
from labelchef.server.items import decisions
from labelchef.server.people import accounts
from labelchef.server.store.tables import Assignment
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import PASSWORD, live
from tests.web.raw_files import stored, tweet_files
from tests.web.test_browser import PHONE, SHOWN, WIDE, Open, opened, press, saved, sign_in
from tests.web.test_intake_browser import choose

__all__ = ["opened"]
pytestmark = pytest.mark.slow
PLACE = "/c/flights"
PICTURES = os.environ.get("LABELCHEF_PICTURES")
"""A folder for pictures of every step, for people to look at."""


@pytest.fixture
def served(ws: Workspace) -> Iterator[str]:
    for name, role in (("lead", Role.LEAD), ("ann", Role.ANNOTATOR), ("bob", Role.ANNOTATOR), ("cat", Role.ANNOTATOR)):
        accounts.create_account(ws, name, role, PASSWORD)
    with live(ws, ServeOptions(team=True)) as base:
        yield base


def looked_at(page: Page, name: str) -> None:
    """Nothing is cut at the side, wide or narrow; with LABELCHEF_PICTURES a picture of both is kept."""
    for size, word in ((PHONE, "phone"), (WIDE, "wide")):
        page.set_viewport_size({"width": size["width"], "height": size["height"]})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
            f"{name} scrolls sideways ({word})"
        )
        if PICTURES:
            page.screenshot(path=str(Path(PICTURES) / f"{name}-{word}.png"))


def label_until_idle(page: Page, key: str) -> int:
    """Vote the same on every item until the page waits; the number of votes."""
    votes = 0
    while True:
        page.wait_for_function(
            "shown => document.querySelector(shown) || !document.querySelector('#waiting').hidden", arg=SHOWN
        )
        if page.locator("#waiting").is_visible():
            break
        press(page, key)
        votes += 1
        assert votes < 60
        saved(page)
    return votes


def test_a_team_from_files_to_the_data_set(ws: Workspace, served: str, opened: Open, tmp_path: Path) -> None:
    lead = opened(served, color_scheme="dark")
    lead.set_default_timeout(90_000)
    sign_in(lead, "lead", "/new")
    choose(lead, stored(tmp_path, tweet_files()))
    lead.get_by_role("textbox", name="Name", exact=True).fill("Flights")
    lead.locator("#create summary").first.click()
    lead.locator("#set-batch_size").fill("4")
    lead.locator("#set-people").fill("2")
    lead.get_by_role("button", name="Create the campaign").click()
    lead.wait_for_url(f"**{PLACE}/lead", wait_until="commit")
    lead.goto(f"{PLACE}/lead/settings")
    lead.locator("#blind_share").fill("0.5")
    lead.locator("#gold_share").fill("0.4")
    lead.locator("form", has=lead.locator("#blind_share")).get_by_role("button", name="Save").click()
    expect(lead.locator(".told.good").first).to_be_visible()
    looked_at(lead, "settings")
    for name in ("ann", "bob", "cat"):
        accounts.set_member(ws, "flights", name, "lead")
    lead.goto(f"{PLACE}/lead/people")
    looked_at(lead, "members")
    lead.goto(f"{PLACE}/lead/settings")
    lead.wait_for_selector("#guidelines[data-ready]")
    lead.locator("#text").fill("# Flights\n\nWas the **flight** good?")
    lead.get_by_role("button", name="Save the guidelines").click()
    expect(lead.locator("#guidelines-told")).to_contain_text("version 1")
    looked_at(lead, "guidelines")

    with ws.writing() as connection:  # items that the lead's Label page held would not be given to others for a while
        connection.execute(sa.update(Assignment).where(Assignment.c.person == "lead").values(until=0.0))
    ann, bob = opened(served), opened(served, color_scheme="dark")
    for page, name in ((ann, "ann"), (bob, "bob")):
        page.set_default_timeout(90_000)
        sign_in(page, name, f"{PLACE}/label")
    ann.wait_for_selector(SHOWN)
    ann.keyboard.press("g")
    expect(ann.locator("#guide-text")).to_contain_text("Was the flight good?")
    ann.keyboard.press("g")
    ann.keyboard.press("c")
    ann.get_by_label("Your comment").fill("What if it was late but friendly?")
    ann.keyboard.press("Control+Enter")
    expect(ann.locator("#thread .said")).to_have_count(1)
    ann.keyboard.press("Escape")
    looked_at(ann, "label-ann")

    first = label_until_idle(ann, "1")
    assert first >= 4
    assert label_until_idle(bob, "2") >= 4
    looked_at(bob, "waiting-bob")
    assert campaigns.summary(ws, "flights").round == 1, "every item is tied: nothing is closed yet"
    cat = opened(served)
    cat.set_default_timeout(90_000)
    sign_in(cat, "cat", f"{PLACE}/label")
    third = label_until_idle(cat, "1")
    assert third >= 4, "the third vote on each tie"
    lead.wait_for_function(
        "async () => (await (await fetch('/api/campaigns/flights')).json()).round >= 2", timeout=90_000
    )
    counted = [one for one in decisions.ledger(ws, "flights", kind="decision").entries if one.who == "votes"]
    assert not decisions.conflicts(ws, "flights"), "no tie went to the lead"
    assert len(counted) == 4 or decisions.ledger(ws, "flights", kind="decision").entries

    lead.goto(f"{PLACE}/lead/items?view=comments")
    expect(lead.locator("#comments .said")).to_have_text("What if it was late but friendly?")
    lead.get_by_label("Your comment").fill("Late is bad.")
    lead.get_by_role("button", name="Send").click()
    expect(ann.locator("#news")).to_have_text("1 new answer", timeout=60_000)
    looked_at(lead, "discussions")

    lead.goto(f"{PLACE}/lead/source?name=rule7")
    lead.get_by_role("button", name="Show the effect of muting it").click()
    expect(lead.locator("#effect")).to_contain_text("Trusted samples alone")
    looked_at(lead, "source")
    lead.get_by_role("button", name="Mute it").click()
    expect(lead.get_by_role("button", name="Show the effect of hearing it again")).to_be_visible()
    assert campaigns.settings(ws, "flights").muted == ("rule7",)

    lead.goto(f"{PLACE}/lead/items?state=new&sort=doubt")
    lead.on("dialog", lambda dialog: dialog.accept())
    for k in range(3):
        lead.locator(".pick").nth(k).check()
    lead.locator("#act-label").select_option(label="good")
    lead.get_by_role("button", name="Decide", exact=True).click()
    expect(lead.locator("#done")).to_contain_text("3 done")
    looked_at(lead, "items")

    label_until_idle(ann, "1")
    label_until_idle(bob, "1")
    label_until_idle(cat, "1")
    lead.goto(f"{PLACE}/lead/people")
    for name in ("ann", "bob", "cat"):
        expect(lead.locator("main")).to_contain_text(name)
    expect(lead.locator("main")).to_contain_text("too few")
    looked_at(lead, "quality")
    ann.goto(f"{PLACE}/mine")
    expect(ann.locator("main")).not_to_contain_text("gold")
    looked_at(ann, "mine")
    for part in ("", "/items?view=conflicts", "/items?view=doubts", "/ledger", "/sources", "/take-home"):
        lead.goto(f"{PLACE}/lead{part}")
        looked_at(lead, f"lead{part.replace('/', '-').replace('?', '-')}")

    lead.goto(f"{PLACE}/lead/take-home")
    lead.get_by_role("button", name="Data set as csv").click()
    link = lead.locator(".job[data-kind=dataset] a")
    with lead.expect_download() as download:
        link.click()
    assert len(download.value.path().read_text().splitlines()) == 121

    lead.goto(f"{PLACE}/lead/settings")
    lead.locator("#confirm").fill("Flights")
    lead.locator("#delete button").click()
    lead.wait_for_url("**/?shelf=deleted")
    looked_at(lead, "deleted")
    lead.get_by_role("button", name="Restore Flights").click()
    lead.wait_for_url(f"**{PLACE}/lead")
    assert campaigns.summary(ws, "flights").spent >= 4
