"""No live message is lost: each test holds or breaks a request of the page while something changes, and nothing changes later."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import APIResponse, Page, Request, Route, expect

from labelchef.base.campaigns import Role
from labelchef.server.campaigns import campaigns
from labelchef.server.labelling import discussions
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import live, make_campaign
from tests.web.test_browser import SHOWN, Open, opened, sign_in

__all__ = ["opened"]
pytestmark = pytest.mark.slow


@pytest.fixture
def team(ws: Workspace, people: dict[str, Role]) -> Iterator[str]:
    made = make_campaign(ws, people=2, batch_size=2)
    for name in ("ann", "bob"):
        accounts.set_member(ws, made.slug, name, "lead")
    with live(ws, ServeOptions(team=True)) as base:
        yield base


def asked(ws: Workspace) -> str:
    """An item that ann was given and has said something of."""
    found = next_tasks(ws, "animals", "ann")
    assert isinstance(found, list)
    discussions.add(ws, "animals", "ann", found[0].item, "Cat or dog?", lead=False)
    return found[0].item


def held_once(page: Page, address: str) -> list[Route]:
    """Hold the next request to an address; its answer is the one that it would have had at once."""
    held: list[Route] = []

    def hold(route: Route, request: Request) -> None:
        if held or request.method != "GET":
            route.continue_()
        else:
            held.append(route)

    page.route(address, hold)
    return held


def test_an_answer_is_shown_though_the_page_failed_to_ask_for_it(ws: Workspace, team: str, opened: Open) -> None:
    ann, item = opened(team), asked(ws)
    sign_in(ann, "ann", "/c/animals/label")
    broken: list[Route] = []

    def fail_once(route: Route) -> None:
        if broken:
            route.continue_()
        else:
            broken.append(route)
            route.abort()

    with ann.expect_response("**/changes?since=-1*"):
        ann.reload()
    ann.wait_for_selector(SHOWN)
    ann.route("**/news", fail_once)
    discussions.add(ws, "animals", "lead", item, "A cat.", lead=True)
    expect(ann.locator("#news")).to_have_text("1 new answer")
    assert broken


def test_what_a_lead_writes_stays_while_threads_are_fetched(ws: Workspace, team: str, opened: Open) -> None:
    lead, item = opened(team), asked(ws)
    sign_in(lead, "lead", "/c/animals/lead/items?view=comments")
    expect(lead.locator("#comments .said")).to_have_count(1)
    held = held_once(lead, "**/threads?*")
    with lead.expect_request("**/threads?*"):
        discussions.add(ws, "animals", "bob", item, "I wonder too.", lead=True)
    lead.get_by_label("Your comment").fill("A cat.")
    with lead.expect_response("**/threads?*"):
        held[0].continue_()
    lead.get_by_role("button", name="Send").click()
    expect(lead.locator("#comments .said")).to_have_text(["Cat or dog?", "I wonder too.", "A cat."])
    assert discussions.news(ws, "animals", "ann").answers[0].count == 2


def test_a_change_while_the_page_is_fetched_is_shown(ws: Workspace, team: str, opened: Open) -> None:
    lead = opened(team)
    sign_in(lead, "lead", "/c/animals/lead")
    held: list[tuple[Route, APIResponse]] = []

    def stale(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    lead.route("**/c/animals/lead", stale)
    lead.evaluate(
        "() => { import(document.querySelector('script[src*=\"/js/page.js\"]').src).then((page) => page.renew()); }"
    )
    while not held:
        lead.evaluate("1")
    with lead.expect_response("**/changes?*"):
        campaigns.pause(ws, "animals", "lead")
    route, answer = held[0]
    route.fulfill(response=answer)
    expect(lead.get_by_role("button", name="Resume")).to_be_visible()
