"""For every reader: times in their zone, every main action by keys alone with a focus that is seen, and what is told aloud."""

from datetime import datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from labelchef.base.campaigns import CampaignState
from labelchef.server.campaigns import campaigns
from labelchef.server.items import decisions
from labelchef.server.labelling import tasks, votes
from labelchef.server.workspace import Workspace
from tests.web.conftest import PASSWORD
from tests.web.test_browser import SHOWN, Open, enter, laptop, opened, saved, sign_in, team

__all__ = ["laptop", "opened", "team"]
pytestmark = pytest.mark.slow

FOCUS = """() => {
  const node = document.activeElement;
  const shown = [node, ...(node.labels ?? [])].some((one) => {
    const style = getComputedStyle(one);
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  });
  const text = node.getAttribute('role') === 'group' ? '' : node.textContent;
  const name = node.getAttribute('aria-label') || node.labels?.[0]?.textContent || text;
  return { name: name.trim().replace(/\\s+/g, ' '), shown, body: node === document.body };
}"""


def focus(page: Page) -> str:
    """The name of what has the focus, which must be seen."""
    found = page.evaluate(FOCUS)
    assert found["body"] or found["shown"], f"the focus on {found['name']!r} cannot be seen"
    return str(found["name"])


def tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Go on with the Tab key until something of this name has the focus."""
    passed = []
    for _ in range(60):
        page.keyboard.press(key)
        passed.append(focus(page))
        if passed[-1].startswith(name):
            return
    raise AssertionError(f"the Tab key does not reach {name!r}; it reaches {passed}")


def vote_once(ws: Workspace, person: str) -> None:
    given = tasks.next_tasks(ws, "animals", person, 1)
    assert isinstance(given, list)
    votes.cast_vote(ws, "animals", person, given[0].item, 0)


@pytest.mark.parametrize(("zone", "hours"), [("Asia/Tokyo", 9), ("America/Phoenix", -7)])
def test_times_are_shown_in_the_zone_of_the_reader(
    ws: Workspace, team: str, opened: Open, zone: str, hours: int
) -> None:
    vote_once(ws, "ann")
    page = opened(team, timezone_id=zone, locale="en-GB")
    sign_in(page, "lead", "/c/animals/lead/ledger")
    shown = page.locator("tbody time").first
    sent = datetime.fromisoformat(str(shown.get_attribute("datetime")))
    assert sent.utcoffset() == timedelta(0), "pages are sent with UTC"
    local = sent + timedelta(hours=hours)
    expect(shown).to_have_text(f"{local.day} {local:%b %Y, %H:%M}")
    assert str(shown.get_attribute("title")).startswith(f"{local:%A}")
    for address in ("/people", "/c/animals/lead", "/account"):
        page.goto(address)
        for text in page.locator("time").all_text_contents():
            assert "+00:00" not in text, address


def test_an_annotator_works_by_keys_alone(ws: Workspace, team: str, opened: Open) -> None:
    page = opened(team)
    page.goto("/")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("ann")
    tab_to(page, "Password")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/sign-in" not in url)
    page.keyboard.press("Tab")
    assert focus(page) == "To the content", "the first stop leaps over the navigation"
    page.keyboard.press("Enter")
    tab_to(page, "Animals")
    page.keyboard.press("Enter")
    page.wait_for_selector(SHOWN)
    tab_to(page, "2")
    page.keyboard.press("Enter")
    saved(page)
    assert decisions.ledger(ws, "animals", kind="vote").entries[0].label == 1
    tab_to(page, "Help")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for _ in range(4):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "!!document.activeElement.closest('dialog') || document.activeElement === document.body"
        ), "the focus stays in the dialog"
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert focus(page).startswith("Help"), "the focus is where it was"
    tab_to(page, "ann", "Shift+Tab")
    page.keyboard.press("Enter")
    menu = page.locator("details.menu")
    expect(menu).to_have_attribute("open", "")
    tab_to(page, "Account and tokens")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    assert focus(page).startswith("ann")
    page.keyboard.press("Enter")
    tab_to(page, "Sign out")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/sign-in" in url)


def test_a_lead_works_by_keys_alone(ws: Workspace, team: str, opened: Open) -> None:
    page = opened(team)
    sign_in(page, "lead", "/c/animals/lead")
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_contain_text("paused")
    expect(page.get_by_role("button", name="Resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_contain_text("running")
    assert campaigns.summary(ws, "animals").state is CampaignState.RUNNING
    page.goto("/people")
    tab_to(page, "Name")
    page.keyboard.type("new person")
    tab_to(page, "Password")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#accounts")).to_contain_text("new person")
    expect(page.locator("#accounts")).to_have_attribute("role", "group")
    page.goto("/new")
    tab_to(page, "Choose files")
    tab_to(page, "Choose a folder")


def test_short_messages_are_told_aloud(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    enter(ws, page)
    page.wait_for_selector(SHOWN)
    said = page.locator("#said")
    expect(said).to_have_attribute("role", "status")
    expect(said).to_have_text("")
    page.keyboard.press("u")
    expect(said).to_contain_text("no vote of yours")
    expect(page.locator("#heard")).to_contain_text("Next item")
