"""What a screen reader and weak eyes meet: axe-core on every page, light and dark, for annotators and leads.

Any finding fails, of whatever impact. The content security policy is switched off here, so that axe can be
put into the page; everywhere else it is on.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from labelchef.base.campaigns import Role
from labelchef.base.settings import Settings
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, guidelines
from labelchef.server.export import exchange
from labelchef.server.intake import steps
from labelchef.server.labelling import tasks, votes
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace, open_workspace
from tests.source_support import sourced_data
from tests.web.conftest import PASSWORD, live
from tests.web.raw_files import tweet_files
from tests.web.test_attacker import cookie_of
from tests.web.test_browser import SHOWN, WIDE

pytestmark = pytest.mark.slow
CAMPAIGN = "/c/mails"


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A campaign with sources, closed rounds, votes, a conflict and members."""
    with open_workspace(tmp_path_factory.mktemp("home")) as opened:
        for name, role in {"lead": Role.LEAD, "ann": Role.ANNOTATOR, "bob": Role.ANNOTATOR}.items():
            accounts.create_account(opened, name, role, PASSWORD)
        made = campaigns.create_campaign(
            opened, "Mails", sourced_data(), Settings(people=2, batch_size=4, budget=20, audit=0.3), "lead"
        )
        for name in ("ann", "bob"):
            accounts.set_member(opened, made.slug, name, "lead")
        for _ in range(2):
            worker.advance(opened, made.slug)
            for k, person in enumerate(("ann", "bob")):
                given = tasks.next_tasks(opened, made.slug, person, 4)
                for number, task in enumerate(given if isinstance(given, list) else ()):
                    votes.cast_vote(opened, made.slug, person, task.item, k if number == 0 else 0, note="sure")
        worker.advance(opened, made.slug)
        told = "# Mails\n\nRead *all*, see [this](https://example.org).\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## spam\nAdverts."
        guidelines.write(opened, made.slug, "lead", guidelines.split(told, ["ham", "spam"]))
        accounts.create_api_token(opened, "ann", "a script")
        accounts.create_api_token(opened, "lead", "a script")
        yield opened


@pytest.fixture(scope="module")
def served(ws: Workspace) -> Iterator[str]:
    with live(ws, ServeOptions(team=True)) as base:
        yield base


@pytest.fixture(scope="module")
def intake(ws: Workspace) -> str:
    files = [(name, io.BytesIO(body)) for name, body in tweet_files().items()]
    return steps.start(ws, files, "lead").id


Step = Callable[[Page], None]


def _item(page: Page) -> None:
    page.wait_for_selector(SHOWN)


def _help(page: Page) -> None:
    _item(page)
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def _guide(page: Page) -> None:
    _item(page)
    page.keyboard.press("g")
    expect(page.locator("#guide-text h3")).to_be_visible()


def _thread(page: Page) -> None:
    _item(page)
    page.keyboard.press("c")
    expect(page.get_by_label("Your comment")).to_be_visible()


def _guidelines(page: Page) -> None:
    page.wait_for_selector("#guidelines[data-ready]")
    expect(page.locator("#preview h3")).to_be_visible()
    _open(page)


def _discussions(page: Page) -> None:
    expect(page.locator("#comments .said").first).to_be_visible()


def _open(page: Page) -> None:
    """Open every closed box."""
    for box in page.locator("details").all():
        box.evaluate("box => { box.open = true; }")


def _conflicts(page: Page) -> None:
    expect(page.locator("#conflicts > li").first).to_be_visible()


def _doubts(page: Page) -> None:
    expect(page.locator("#nothing")).to_be_visible()


def _sources(page: Page) -> None:
    page.locator("table.sources button").first.click()


def _quality(page: Page) -> None:
    page.locator("table.quality button").first.click(timeout=60_000)
    page.get_by_role("button", name="Change what ann gets").click()


def _source(page: Page) -> None:
    expect(page.locator("#source-facts .facts")).to_be_visible()
    page.locator("#mute").click()
    expect(page.locator("#effect table").first).to_be_visible()
    _open(page)


def _new_rule(page: Page) -> None:
    expect(page.locator("#rule")).to_be_visible()


def _refused(page: Page) -> None:
    page.get_by_label("Name").fill("nobody")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not belong together")


def _token(page: Page) -> None:
    page.get_by_label("What the token is for").fill("another")
    page.get_by_role("button", name="Make a token").click()
    expect(page.locator("#new-token .secret")).to_be_visible()


def _files(page: Page) -> None:
    expect(page.locator("#rows td").first).to_be_visible(timeout=60_000)
    _open(page)


def _folder(page: Page) -> None:
    page.get_by_label("Prepared arrays on the server").check()
    _open(page)


def _imported(page: Page) -> None:
    body = b"item,annotator,label\n1,robot,ham\n2,robot,spam\n"
    page.locator("#votes").set_input_files({"name": "votes.csv", "mimeType": "text/csv", "buffer": body})
    page.get_by_role("button", name="Check only").click()
    expect(page.locator("#imported td").first).to_be_visible()


def _picked(page: Page) -> None:
    _open(page)
    expect(page.locator(".item-map circle").first).to_be_attached(timeout=60_000)
    page.locator(".pick").first.check()
    page.locator("#act-label").select_option(index=1)
    page.get_by_role("button", name="Decide", exact=True).click()
    expect(page.locator("#done p")).to_be_visible()


def _similar(page: Page) -> None:
    expect(page.locator("#similar li").first).to_be_visible()


def _nothing(page: Page) -> None:
    page.wait_for_load_state("load")


PAGES: list[tuple[str, str, Step]] = [
    ("nobody", "/sign-in", _refused),
    ("ann", "/", _nothing),
    ("ann", "/account", _nothing),
    ("ann", f"{CAMPAIGN}/label", _item),
    ("ann", f"{CAMPAIGN}/label?guide", _guide),
    ("ann", f"{CAMPAIGN}/label?thread", _thread),
    ("ann", f"{CAMPAIGN}/progress", _open),
    ("ann", f"{CAMPAIGN}/lead", _nothing),  # refused: the page of an error
    ("lead", "/", _nothing),
    ("lead", "/new", _folder),
    ("lead", "/new?intake=", _files),
    ("lead", "/people", _nothing),
    ("lead", "/account", _token),
    ("lead", f"{CAMPAIGN}/label", _help),
    ("lead", f"{CAMPAIGN}/lead", _open),
    ("lead", f"{CAMPAIGN}/lead/items?view=conflicts", _conflicts),
    ("lead", f"{CAMPAIGN}/lead/ledger", _nothing),
    ("lead", f"{CAMPAIGN}/lead/items?view=comments", _discussions),
    ("lead", f"{CAMPAIGN}/lead/items?q=text&state=asked", _picked),
    ("lead", f"{CAMPAIGN}/lead/items?view=doubts", _doubts),
    ("lead", f"{CAMPAIGN}/lead/items/7", _similar),
    ("lead", f"{CAMPAIGN}/lead/sources", _sources),
    ("lead", f"{CAMPAIGN}/lead/people", _quality),
    ("ann", f"{CAMPAIGN}/mine", _nothing),
    ("lead", f"{CAMPAIGN}/lead/source?name=lexicon", _source),
    ("lead", f"{CAMPAIGN}/lead/source", _new_rule),
    ("lead", f"{CAMPAIGN}/lead/settings", _guidelines),
    ("lead", f"{CAMPAIGN}/lead/take-home", _imported),
    ("lead", f"{CAMPAIGN}/lead/copy", _open),
    ("lead", "/?shelf=archived", _nothing),
    ("lead", "/?shelf=deleted", _nothing),
    ("lead", "/nothing-here", _nothing),
]


def findings(page: Page) -> list[str]:
    """What axe finds."""
    answer = Axe().run(page).response
    assert len(answer["passes"]) > 5, "axe has looked at the page"
    told = answer["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:4]]}"
        for one in told
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(
    ws: Workspace,
    served: str,
    intake: str,
    browser: Browser,
    theme: Any,
    tmp_path: Path,
) -> None:
    found = {}
    for person in ("nobody", "ann", "lead"):
        context = browser.new_context(base_url=served, viewport=WIDE, color_scheme=theme, bypass_csp=True)  # type: ignore[arg-type]
        if person != "nobody":
            name, value = cookie_of(ws, person)
            context.add_cookies([{"name": name, "value": value, "url": served}])
        page = context.new_page()
        page.set_default_timeout(30_000)
        for who, path, step in PAGES:
            if who == person:
                page.goto(f"{path}{intake}" if path.endswith("=") else path)
                step(page)
                found[f"{person} {path}"] = findings(page)
        if person == "lead":
            (tmp_path / "report.html").write_text(exchange.report(ws, "mails"))
            page.goto((tmp_path / "report.html").as_uri())
            _open(page)
            found["the report"] = findings(page)
        context.close()
    assert {where: what for where, what in found.items() if what} == {}
    assert len(found) == len(PAGES) + 1
