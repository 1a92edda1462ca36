"""The page in a real browser: Chromium, driven by Playwright, against a real server with its worker."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from labelchef.base.campaigns import Role
from labelchef.base.settings import Settings
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.items import decisions
from labelchef.server.labelling import tasks, votes
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.rule_campaigns import make as make_with_rules
from tests.source_support import WRONG, sourced_data
from tests.web.conftest import NASTY, PASSWORD, PATIENCE, live, make_campaign
from tests.web.raw_files import stored, tweet_files
from tests.web.test_api import upload_files

pytestmark = pytest.mark.slow
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SHOWN = "#label:not(.idle) #item .text"


class Watched:
    """A browser context that remembers what should not happen: errors in scripts, and requests to elsewhere."""

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.context = context
        self.wrong: list[str] = []
        context.on("page", self._watch)
        context.on("request", lambda request: self._check(request.url, base))
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on(
            "console", lambda said: self.wrong.append(said.text) if "Content Security Policy" in said.text else None
        )

    def _check(self, url: str, base: str) -> None:
        if not url.startswith((base, "data:", "blob:")):
            self.wrong.append(f"request to {url}")


Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Open a context of its own for a person; at the end nothing may have gone wrong in any."""
    contexts: list[Watched] = []

    def new(base: str, **options: Any) -> Page:
        settings: dict[str, Any] = {"viewport": WIDE, "color_scheme": "light", **options}
        watched = Watched(browser.new_context(base_url=base, **settings), base)
        contexts.append(watched)
        return watched.page

    yield new
    for watched in contexts:
        watched.context.close()
    assert [line for watched in contexts for line in watched.wrong] == []


@pytest.fixture
def laptop(ws: Workspace) -> Iterator[str]:
    make_campaign(ws, target=0.99, budget=40)
    with live(ws, ServeOptions()) as base:
        yield base


@pytest.fixture
def team(ws: Workspace, people: dict[str, Role]) -> Iterator[str]:
    made = make_campaign(ws, people=2, batch_size=2)
    for name in ("ann", "bob"):
        accounts.set_member(ws, made.slug, name, "lead")
    with live(ws, ServeOptions(team=True)) as base:
        yield base


def enter(ws: Workspace, page: Page, there: str = "/c/animals/label") -> None:
    """Open the one-time link of a laptop."""
    page.goto(f"/start?token={accounts.create_link(ws)}&then={there}")


def sign_in(page: Page, name: str, there: str = "/") -> None:
    page.goto(f"/sign-in?then={there}")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)


def item(page: Page) -> str:
    text = page.locator(SHOWN).text_content()
    assert text is not None
    return text.split(":")[0]


def press(page: Page, key: str) -> None:
    """Press a key on an item and wait until another one is there, or the waiting screen."""
    before = item(page)
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.querySelector('#label').classList.contains('idle') || "
        "!document.querySelector('#item .text')?.textContent.startsWith(before + ':')",
        arg=before,
    )


def saved(page: Page) -> None:
    expect(page.locator("#saved")).to_have_text("saved")


def test_label_by_keys_undo_finish_a_round_and_see_the_metric_move(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    enter(ws, page)
    score = page.locator("#score").text_content()
    first = item(page)
    expect(page.locator(".class.suggested")).to_have_count(1)
    expect(page.locator("#weak progress")).to_have_count(3)
    expect(page.locator("#near li")).not_to_have_count(0)
    press(page, "2")
    saved(page)
    assert item(page) != first
    page.keyboard.press("u")
    expect(page.locator(SHOWN)).to_contain_text(f"{first}:")
    page.keyboard.press("Backspace")
    expect(page.locator("#toast")).to_contain_text("no vote of yours")
    for _ in range(4):
        page.wait_for_selector(SHOWN)
        press(page, "Enter")
    saved(page)
    page.wait_for_selector(SHOWN)
    expect(page.locator("#round")).to_have_text("Round 2")
    expect(page.locator("#score")).not_to_have_text(str(score))
    page.get_by_role("link", name="How far are we?").click()
    expect(page.locator("#metric-tile")).to_contain_text("cross-fitted over 30 trusted samples")
    expect(page.locator("#metric-tile")).not_to_contain_text("at the start")  # on samples that train it shows no gain
    expect(page.locator("#metric-tile b")).not_to_have_text(str(score))
    page.wait_for_function(
        "() => [...document.images].filter(i => i.offsetParent).every(i => i.complete && i.naturalWidth > 0)"
    )
    assert len(page.locator("figure:visible").all()) == 3


def test_the_next_item_is_there_before_the_vote_is_saved(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    waiting: list[Route] = []
    page.route("**/votes", lambda route: waiting.append(route))  # noqa: PLW0108 - a builtin is refused
    enter(ws, page)
    first = item(page)
    press(page, "1")
    second = item(page)
    assert second != first
    page.wait_for_function("() => document.querySelector('#saved').textContent === 'saving…'")
    press(page, "1")
    assert item(page) not in (first, second)
    assert len(waiting) == 1, "in order, one at a time"
    waiting[0].continue_()
    while len(waiting) < 2:
        page.wait_for_timeout(20)
    waiting[1].continue_()
    saved(page)
    assert len(decisions.ledger(ws, "animals", kind="vote").entries) == 2


def test_a_vote_survives_a_lost_connection_and_counts_once(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    enter(ws, page)
    item(page)
    tries: list[str] = []

    def lossy(route: Route) -> None:
        tries.append(route.request.post_data or "")
        if len(tries) == 1:
            route.abort()
        elif len(tries) == 2:  # stored, but the answer is lost
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.route("**/votes", lossy)
    press(page, "3")
    expect(page.locator("#saved")).to_contain_text("trying again")
    saved(page)
    assert len(set(tries)) == 1, "each time the same request"
    assert len(tries) == 3
    assert len(decisions.ledger(ws, "animals", kind="vote").entries) == 1


def test_skip_ambiguous_note_and_help(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    enter(ws, page)
    first = item(page)
    press(page, "s")
    assert item(page) != first
    page.keyboard.press("n")
    page.keyboard.type("1 or 2, who knows?")
    page.keyboard.press("Enter")
    press(page, "a")
    saved(page)
    vote = decisions.ledger(ws, "animals", kind="vote").entries[0]
    assert vote.label is None
    assert vote.what["note"] == "1 or 2, who knows?"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("1")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert len(decisions.ledger(ws, "animals", kind="vote").entries) == 1, "keys in the help are no votes"


def test_hostile_content_is_text(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    enter(ws, page)
    expect(page.locator(SHOWN)).to_contain_text(NASTY)
    assert page.locator("#item script, #item img, #near script, #classes b").count() == 0
    assert page.title() == "Label · Animals"
    expect(page.locator(".class").nth(2)).to_contain_text("<b>cow</b>")


def test_hiding_the_suggestion_is_written_down(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    enter(ws, page)
    item(page)
    page.keyboard.press("b")
    expect(page.locator(".class.suggested")).to_have_count(0)
    expect(page.locator("#why-shown")).to_be_hidden()
    before = item(page)
    page.keyboard.press("Enter")
    assert item(page) == before, "there is nothing to accept"
    press(page, "1")
    saved(page)
    assert decisions.ledger(ws, "animals", kind="vote").entries[0].what["blind"]


def test_two_annotators_disagree_and_the_lead_resolves(ws: Workspace, team: str, opened: Open, tmp_path: Path) -> None:
    ann, bob, lead = opened(team), opened(team), opened(team)
    ann.goto("/c/animals/label")
    assert ann.url.endswith("/sign-in?then=%2Fc%2Fanimals%2Flabel")
    ann.get_by_label("Name").fill("ann")
    ann.get_by_label("Password").fill("not her password")
    ann.get_by_role("button", name="Sign in").click()
    expect(ann.get_by_role("alert")).to_contain_text("do not belong together")
    ann.get_by_label("Password").fill(PASSWORD)
    ann.get_by_role("button", name="Sign in").click()
    ann.wait_for_selector(SHOWN)
    expect(ann.get_by_role("link", name="Settings")).to_have_count(0)
    for _ in range(2):
        ann.wait_for_selector(SHOWN)
        press(ann, "1")
    expect(ann.locator("#waiting-title")).to_have_text("Others are still labelling")
    sign_in(bob, "bob", "/c/animals/label")
    for _ in range(2):
        bob.wait_for_selector(SHOWN)
        press(bob, "2")
    ann.wait_for_selector(SHOWN)
    expect(ann.locator("#round")).to_have_text("Round 2")
    sign_in(lead, "lead", "/c/animals/lead/items?view=conflicts")
    expect(lead.locator("#conflicts > li")).to_have_count(2)
    expect(lead.locator("#conflicts > li").first).to_contain_text("ann")
    decided = lead.locator("#conflicts > li").first.get_attribute("data-key")
    lead.keyboard.press("3")
    expect(lead.locator("#conflicts > li")).to_have_count(1)
    lead.get_by_role("link", name="Take home").click()
    with lead.expect_download() as download:
        lead.locator("section", has_text="Labels").get_by_role("link", name="csv").click()
    download.value.save_as(tmp_path / "labels.csv")
    line = next(one for one in (tmp_path / "labels.csv").read_text().splitlines() if one.startswith(f"{decided},"))
    assert "<b>cow</b>,cleaned,lead" in line


def test_the_waiting_screen_wakes_by_itself(ws: Workspace, team: str, opened: Open) -> None:
    page = opened(team)
    sign_in(page, "ann", "/c/animals/label")
    page.wait_for_selector(SHOWN)
    campaigns.pause(ws, "animals", "lead")
    for _ in range(2):
        page.wait_for_selector(SHOWN)
        press(page, "1")
    expect(page.locator("#waiting-title")).to_have_text("Paused")
    campaigns.resume(ws, "animals", "lead")
    expect(page.locator("#waiting-title")).to_have_text("Others are still labelling")
    for _ in range(2):
        given = tasks.next_tasks(ws, "animals", "bob", 1)
        assert isinstance(given, list)
        votes.cast_vote(ws, "animals", "bob", given[0].item, 0)
    expect(page.locator("#round")).to_have_text("Round 2")


def test_the_lead_sets_everything_blind(ws: Workspace, team: str, opened: Open) -> None:
    lead = opened(team)
    sign_in(lead, "lead", "/c/animals/lead/settings")
    lead.get_by_label("Share of hidden gold").fill("0.3")
    lead.get_by_role("button", name="Save", exact=True).click()
    expect(lead.locator("form[data-body] .told")).to_contain_text(
        "“Share of hidden gold” is 0.3 and “Share shown blind” is 0"
    )
    lead.get_by_label("Share of hidden gold").fill("0")
    lead.get_by_label("Share shown blind").fill("1")
    lead.get_by_label("Budget").fill("")
    lead.get_by_role("button", name="Save", exact=True).click()
    expect(lead.locator("form[data-body] .told")).to_contain_text("Saved")
    assert campaigns.settings(ws, "animals").blind_share == 1.0
    assert campaigns.settings(ws, "animals").budget is None
    for person in ("ann", "bob"):
        for task in tasks.next_tasks(ws, "animals", person, 2):  # type: ignore[union-attr]
            votes.cast_vote(ws, "animals", person, task.item, 0)
    ann = opened(team)
    sign_in(ann, "ann", "/c/animals/label")
    expect(ann.locator("#round")).to_have_text("Round 2")
    expect(ann.locator("#why-blind")).to_be_visible()
    expect(ann.locator(".class.suggested")).to_have_count(0)
    expect(ann.locator("#accept")).to_be_hidden()


def test_a_campaign_is_made_from_arrays_on_the_server(ws: Workspace, laptop: str, opened: Open, tmp_path: Path) -> None:
    upload_files(tmp_path / "up")
    page = opened(laptop)
    enter(ws, page, "/new")
    page.get_by_label("Prepared arrays on the server").check()
    page.locator("#arrays-name").fill("From a folder")
    page.get_by_label("Folder of arrays").fill(str(tmp_path / "up"))
    page.locator("#from-arrays").get_by_role("button").click()
    page.wait_for_url("**/c/from-a-folder/lead")  # Label would reserve items for the lead


def test_accounts_and_tokens_in_the_browser(ws: Workspace, team: str, opened: Open) -> None:
    page = opened(team)
    sign_in(page, "lead", "/people")
    page.get_by_label("Name").fill("dora")
    page.get_by_label("Password").fill("doras long password")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#accounts")).to_contain_text("dora")
    page.goto("/c/animals/lead/people")
    page.locator("tr", has_text="dora").get_by_role("button", name="Add to this campaign").click()
    expect(page.locator("tr", has_text="dora").get_by_role("button", name="Remove")).to_be_visible()
    page.goto("/account")
    page.get_by_label("What the token is for").fill("a script")
    page.get_by_role("button", name="Make a token").click()
    expect(page.locator("#new-token .secret")).to_have_text(re.compile("^lc_"))
    expect(page.locator("#tokens")).to_contain_text("a script")
    page.locator("summary", has_text="lead").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in*")


def test_light_and_dark_follow_the_system_and_the_toggle(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop, color_scheme="dark")
    enter(ws, page, "/")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Switch between light and dark").click()
    light = page.evaluate(background)
    assert dark != light
    page.reload()
    assert page.evaluate(background) == light, "the choice stays"
    page.goto("/c/animals/lead")
    assert page.locator("img.only-light").first.is_visible()
    assert not page.locator("img.only-dark").first.is_visible()


PATHS = ["/", "/new", "/account", "/c/animals/label", "/c/animals/lead"]
PATHS += [f"/c/animals/lead/{part}" for part in ("ledger", "items?view=conflicts", "people", "settings", "take-home")]


def test_every_page_fits_a_phone_and_has_names_for_all_it_asks(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop, viewport=PHONE, has_touch=True, is_mobile=True)
    enter(ws, page)
    before = item(page)
    page.locator(".class").first.tap()
    page.wait_for_function(f"() => !document.querySelector('#item .text')?.textContent.startsWith('{before}:')")
    for path in PATHS:
        page.goto(path)
        page.wait_for_load_state("load")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        nameless = page.evaluate(
            """[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
               .filter(e => !e.labels?.length && !e.getAttribute('aria-label')).map(e => e.outerHTML)"""
        )
        assert nameless == [], path
        mute = page.evaluate(
            """[...document.querySelectorAll('button, a')]
               .filter(e => !e.hidden && !e.textContent.trim() && !e.getAttribute('aria-label')).map(e => e.outerHTML)"""
        )
        assert mute == [], path


def test_texts_have_contrast() -> None:
    sheet = (Path(__file__).parents[2] / "src/labelchef/server/web/static/labelchef.css").read_text()
    pairs = dict(re.findall(r"--([a-z-]+): light-dark\((#\w{6}), #\w{6}\)", sheet))
    darks = dict(re.findall(r"--([a-z-]+): light-dark\(#\w{6}, (#\w{6})\)", sheet))

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    for colours in (pairs, darks):
        for ink in ("text", "soft", "accent", "good", "warn", "bad"):
            for paper in ("page", "card", "sunk"):
                assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper, colours[ink])
        for ink in ("accent", "good", "warn", "bad"):
            assert contrast(colours[ink], colours[f"{ink}-wash"]) >= 4.5, ink
        assert contrast(colours["accent-ink"], colours["accent"]) >= 4.5
        assert contrast(colours["edge"], colours["card"]) >= 3, "borders of fields"


def test_the_mouse_and_the_tab_key_work_as_well(ws: Workspace, laptop: str, opened: Open) -> None:
    page = opened(laptop)
    enter(ws, page)
    first = item(page)
    page.locator(".class").nth(1).click()
    page.wait_for_function(f"() => !document.querySelector('#item .text')?.textContent.startsWith('{first}:')")
    press(page, "Enter")
    page.locator(".class").nth(0).focus()
    press(page, "Enter")
    saved(page)
    votes = decisions.ledger(ws, "animals", kind="vote").entries
    assert votes[2].label == 1
    assert votes[1].label == votes[1].what["suggested"], "after a click, Enter is for the suggestion again"
    assert votes[0].label == 0, "on a button that has the focus, Enter presses it"


def test_a_campaign_by_chance_is_made_and_labelled_without_suggestions(
    ws: Workspace, laptop: str, opened: Open, tmp_path: Path
) -> None:
    page = opened(laptop, viewport=PHONE)
    enter(ws, page, "/new")
    page.locator("#choose-files").set_input_files(stored(tmp_path, tweet_files()))
    page.locator("#create summary").first.click()
    page.get_by_role("textbox", name="Name", exact=True).fill("By chance")
    page.locator("#set-batch_size").fill("2")
    page.locator("#set-budget").fill("")
    page.locator("#create .more summary").click()
    page.locator("#set-seed").fill("7")
    page.locator("#set-selector").select_option("random")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator("#set-suggestion_votes").check()
    make = page.get_by_role("button", name="Create the campaign")
    make.click()
    expect(page.locator("#create .told")).to_contain_text("suggests no labels")
    page.locator("#set-suggestion_votes").uncheck()
    page.set_viewport_size({"width": WIDE["width"], "height": WIDE["height"]})
    make.click()
    page.wait_for_url("**/lead", timeout=60000)
    page.goto(page.url.replace("/lead", "/label"))
    page.wait_for_selector(SHOWN, timeout=60000)
    first = item(page)
    expect(page.locator(".class.suggested")).to_have_count(0)
    expect(page.locator("#accept")).to_be_hidden()
    expect(page.locator("#suggestion")).to_have_text("none")
    expect(page.locator("#effect")).to_have_text("")
    expect(page.locator("#rank")).to_have_text("number 1 in line")
    page.keyboard.press("Enter")
    expect(page.locator("#toast")).to_contain_text("no suggestion to accept")
    assert item(page) == first
    for _ in range(2):
        page.wait_for_selector(SHOWN)
        press(page, "1")
    saved(page)
    page.wait_for_selector(SHOWN)
    expect(page.locator("#round")).to_have_text("Round 2")
    page.get_by_role("link", name="How far are we?").click()
    page.wait_for_function(
        "() => [...document.images].filter(i => i.offsetParent).every(i => i.complete && i.naturalWidth > 0)"
    )
    row = page.locator("#every-round tbody tr").nth(1)
    expect(row.locator("td").nth(6)).to_have_text("–")
    expect(row.locator("td").nth(-3)).to_have_text("")
    made = campaigns.settings(ws, "by-chance")
    assert (made.selector, made.batch_size, made.budget, made.seed) == ("random", 2, None, 7)


def test_a_lead_sees_what_is_known_of_sources(ws: Workspace, opened: Open) -> None:
    settings = Settings(budget=20, batch_size=4, audit=0.5, sources="naive_bayes", gamma=0.5)
    made = campaigns.create_campaign(ws, "Mails", sourced_data(), settings, "lead").slug
    worker.advance(ws, made)
    with live(ws, ServeOptions()) as base:
        page = opened(base)
        enter(ws, page, f"/c/{made}/lead/sources")
        rows = page.locator("table.sources > tbody > tr")
        expect(rows.filter(has_text=WRONG)).to_contain_text("turned")
        expect(page.locator("#sources-told")).to_contain_text("The source model in use is naive_bayes.")
        expect(page.locator("svg.interval")).to_have_count(3)
        page.get_by_role("button", name="Measured").click()
        page.get_by_role("button", name="Measured ↓").click()
        expect(rows.first).to_contain_text(WRONG)
        page.get_by_label("Find a source").fill("coin")
        expect(rows).to_have_count(1)
        page.get_by_label("Find a source").fill("")
        page.get_by_role("link", name=WRONG).click()
        expect(page.locator("#source-facts")).to_contain_text("against the class they name")
        expect(page.locator("#source-no-rule")).to_be_visible()  # votes in a file: it can be muted only
        page.locator("summary", has_text="Confusion").click()
        expect(page.get_by_role("region", name="Confusion")).to_contain_text("votes spam")
        page.goto(f"/c/{made}/label")
        expect(page.locator("#why-blind")).to_be_visible()  # audited items come first, without a suggestion
        expect(page.locator(".class.suggested")).to_have_count(0)
        press(page, "1")
        saved(page)


def test_a_lead_mutes_a_source_after_seeing_the_effect(ws: Workspace, opened: Open, tmp_path: Path) -> None:
    made = make_with_rules(ws, tmp_path / "files", sources="naive_bayes", gamma=0.5, l2=0.001, batch_size=20, budget=40)
    with live(ws, ServeOptions()) as base:
        page = opened(base)
        page.set_default_timeout(60_000)
        enter(ws, page, f"/c/{made}/lead/source?name=wrong")
        expect(page.locator("#source-examples")).to_contain_text("votes ham, is spam; trusted", timeout=60_000)
        expect(page.locator(".rule-text")).to_contain_text('words = ["click"]')
        example = page.locator("#source-examples a").first.get_attribute("href")
        assert example is not None
        assert re.fullmatch(rf"/c/{made}/lead/items/g\d+\?split=val", example), (
            "a trusted item, in the browser of items"
        )

        page.get_by_label("Votes for").select_option("spam")
        expect(page.locator("#rule-live")).to_contain_text("95 % interval", timeout=60_000)
        page.get_by_role("button", name="Show the effect of muting it").click()
        effect = page.locator("#effect")
        expect(effect.locator("table")).to_contain_text("macro F1", timeout=60_000)
        expect(effect).to_contain_text("Trusted samples alone")
        expect(effect).to_contain_text("each judged by a model without it")
        assert campaigns.settings(ws, made).muted == ()
        page.get_by_role("button", name="Mute it").click()
        expect(page.get_by_role("button", name="Show the effect of hearing it again")).to_be_visible(timeout=60_000)
        assert campaigns.settings(ws, made).muted == ("wrong",)
        page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

        page.goto(f"/c/{made}/label")
        page.wait_for_selector(SHOWN)
        expect(page.locator("#margin")).to_contain_text("points apart")
        for _ in range(15):
            marks = page.locator("#item .text mark.lit")
            if marks.count():
                break
            press(page, "s")
        text = page.locator(SHOWN).text_content() or ""
        assert text.startswith("🎉 "), "marks behind an emoji are where the words are"
        words = {
            "subscribe": "asks votes spam",
            "free": "asks votes spam",
            "song": "praise votes ham",
            "voice": "praise votes ham",
        }
        assert {(one.text_content(), one.get_attribute("title")) for one in marks.all()} <= set(words.items())
        expect(page.locator(".lit-legend li")).not_to_have_count(0)
        expect(page.locator("mark", has_text="click")).to_have_count(0)  # the muted rule marks nothing
        overlapping = page.evaluate(
            """async () => {
                const script = document.querySelector('script[src$="label.js"]').src;
                const { marked } = await import(script.replace("label.js", "highlight.js"));
                const spans = [[0, 5, "a"], [3, 8, "b"], [8, 8, "c"], [9, 99, "d"]]
                    .map(([start, end, source]) => ({ start, end, source, label: "x" }));
                return marked("0123456789", spans).map((node) => (node.title ? [node.textContent, node.title] : node));
            }"""
        )
        assert overlapping == [["012", "a votes x"], ["34", "a votes x; b votes x"], ["567", "b votes x"], "89"]
