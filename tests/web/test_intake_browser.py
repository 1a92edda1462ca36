"""From raw files to labels and back in a real browser: upload, a correction, rules, create, label, export, import again."""

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import Progress
from labelchef.server.intake import steps
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import live
from tests.web.raw_files import image_files, stored, tweet_files
from tests.web.test_browser import PHONE, SHOWN, Open, enter, item, opened, press, saved

__all__ = ["opened"]
pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="document.title=1">.csv'


@pytest.fixture
def base(ws: Workspace) -> Iterator[str]:
    with live(ws, ServeOptions()) as address:
        yield address


def choose(page: Page, files: list[Path]) -> None:
    """Choose files and wait for their preview."""
    page.locator("#choose-files").set_input_files(files)
    page.wait_for_selector("#rows tbody tr")


def settled(page: Page) -> None:
    """Wait until a correction has been read."""
    page.wait_for_function("() => document.querySelector('#intake').getAttribute('aria-busy') === 'false'")


def test_raw_files_with_a_wrong_role_become_labels_and_come_back(
    ws: Workspace, base: str, opened: Open, tmp_path: Path
) -> None:
    files = tweet_files()
    files["test.csv"] = files.pop("gold.csv")  # trusted labels with the name of test labels
    page = opened(base)
    enter(ws, page, "/new")
    choose(page, stored(tmp_path, files))
    role = page.get_by_label("Use of test.csv", exact=True)
    expect(role).to_have_value("test")
    expect(page.locator(".finding.error")).to_contain_text("labels that are right")
    create = page.get_by_role("button", name="Create the campaign")
    expect(create).to_be_disabled()
    role.focus()
    role.select_option("trusted")
    expect(page.locator("#counts")).to_contain_text("30rows with labels you trust")
    expect(page.locator(".finding.error")).to_have_count(0)
    expect(role).to_be_focused()
    expect(page.locator("#rows tbody tr")).not_to_have_count(0)
    page.reload()  # the address holds the upload
    page.wait_for_selector("#rows tbody tr")
    expect(page.get_by_label("Use of test.csv", exact=True)).to_have_value("trusted")
    page.get_by_role("textbox", name="Name", exact=True).fill("From raw files")
    page.locator("#create summary").first.click()
    page.locator("#set-batch_size").fill("2")
    create.click()
    page.wait_for_url("**/c/from-raw-files/lead", timeout=90000)  # Label would reserve items for the lead
    page.goto("/c/from-raw-files/label")
    page.wait_for_selector(SHOWN, timeout=90000)
    assert item(page).startswith("Tweet ")
    for _ in range(2):
        press(page, "1")
    saved(page)
    page.wait_for_selector(SHOWN)
    page.goto("/c/from-raw-files/lead/take-home")
    page.get_by_role("button", name="Data set as csv").click()
    with page.expect_download(timeout=60000) as download:
        page.locator(".job[data-kind=dataset] a").click(timeout=60000)
    rows = download.value.path().read_text().splitlines()
    assert len(rows) == 121, "every row, trusted ones too"
    assert "Tweet 7: " in "".join(rows)
    with page.expect_download() as download:
        page.get_by_role("link", name="Votes as csv").click()
    votes = tmp_path / "votes-out.csv"
    download.value.save_as(votes)
    page.locator("#votes").set_input_files(votes)
    page.get_by_role("button", name="Check only").click()
    expect(page.locator("#imported tbody tr")).to_have_count(2)
    expect(page.locator("#imported tbody")).to_contain_text("unchanged")
    other = tmp_path / "other.csv"
    asked = {line.split(",")[0] for line in votes.read_text().splitlines()}
    never = next(
        f"{k:04d}" for k in range(120) if f"{k:04d}" not in asked and f"{k:04d}," not in files["test.csv"].decode()
    )
    other.write_text(f"item,annotator,label\n{never},maria,good\n")
    page.locator("#votes").set_input_files(other)
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("#imported tbody")).to_contain_text("decided")
    page.get_by_role("button", name="Data set as label-studio").click()
    with page.expect_download(timeout=60000) as download:
        page.locator(".job[data-kind=dataset] a", has_text="label-studio").click(timeout=60000)
    packed = tmp_path / "tasks.zip"
    download.value.save_as(packed)
    page.locator("#votes").set_input_files(packed)
    page.get_by_role("button", name="Check only").click()
    expect(page.locator("#imported tbody tr")).to_have_count(3)
    expect(page.locator("#imported tbody")).not_to_contain_text("decided")


def test_remedies_are_those_of_the_page(ws: Workspace, base: str, opened: Open, tmp_path: Path) -> None:
    page = opened(base)
    enter(ws, page, "/new")
    rows = [f"{k % 7},{'Yes' if k % 2 else 'No'},{'Yes' if k % 3 else 'No'},{k}" for k in range(40)]
    choose(page, stored(tmp_path, {"churn.csv": "\n".join(["id,Partner,Paperless,tenure", *rows]).encode()}))
    found = page.locator("#findings")
    for words in (
        "or name all classes: under “Classes” below",
        "choose “a source’s vote” for Partner, Paperless",
        "choose “Labels you trust” for the file; or name the column: choose “label you trust” for the column",
    ):
        expect(found).to_contain_text(words)
    expect(found).not_to_contain_text(re.compile(r"--(?!functions FILE\.py on the command line)[a-z]"))


def test_an_item_that_was_drawn_by_chance_says_so(ws: Workspace, base: str, opened: Open, tmp_path: Path) -> None:
    page = opened(base)
    enter(ws, page, "/new")
    texts = "\n".join(["id,text", *(f"t{k},{'music' if k % 2 else 'storm'} of day {k}" for k in range(70))]).encode()
    choose(page, stored(tmp_path, {"days.csv": texts}))
    page.locator("#classes").fill("calm, wild")
    page.get_by_role("button", name="Use these classes").click()
    expect(page.locator("#counts")).to_contain_text("calm, wild")
    expect(page.locator("#classes")).to_have_value("calm\nwild")
    page.get_by_role("button", name="Create the campaign").click()
    page.wait_for_url("**/lead", timeout=60000)
    page.goto(page.url.replace("/lead", "/label"))
    page.wait_for_selector(SHOWN, timeout=60000)
    expect(page.locator("#why-blind")).to_contain_text("This item was drawn by chance. There are no trusted labels yet")


def test_rules_are_typed_tried_and_kept(ws: Workspace, base: str, opened: Open, tmp_path: Path) -> None:
    page = opened(base)
    enter(ws, page, "/new")
    choose(page, stored(tmp_path, tweet_files()))
    page.get_by_text("Rules without code").click()
    page.get_by_label("Words").press_sequentially("delayed, wai")
    expect(page.locator("#rule-live")).to_contain_text("of 120 rows")
    expect(page.locator("#rule-live mark").first).to_have_text("delayed")
    page.get_by_label("What it looks for").select_option("regex")
    page.get_by_label("Regular expression").fill("(")
    expect(page.locator("#rule-told")).to_contain_text("no regular expression")
    page.get_by_label("Regular expression").fill("lovely|great")
    page.get_by_label("Votes for").select_option("good")
    expect(page.locator("#rule-live")).to_contain_text("100\u202f%")
    page.get_by_label("Regular expression").press("Enter")
    expect(page.locator("#rules-table tbody tr")).to_have_count(1)
    expect(page.locator("#counts")).to_contain_text("4sources")
    page.get_by_role("button", name="Remove the rule").click()
    expect(page.locator("#counts")).to_contain_text("3sources")
    page.get_by_role("button", name="Suggest rules").click()
    expect(page.get_by_role("button", name="Useful", exact=True)).to_be_focused()
    first = page.locator("#suggestion p").first.text_content()
    page.keyboard.press("Enter")
    expect(page.locator("#counts")).to_contain_text("4sources")
    expect(page.locator("#suggestion p").first).not_to_have_text(first or "")
    page.get_by_role("button", name="Don’t know").click()
    expect(page.locator("#suggestion")).to_contain_text("2 answered")
    expect(page.locator("#rules-table tbody tr")).to_have_count(1)


def test_files_are_dropped_and_their_names_are_text(ws: Workspace, base: str, opened: Open) -> None:
    page = opened(base)
    enter(ws, page, "/new")
    files = {(HOSTILE if name == "tweets.csv" else name): body.decode() for name, body in tweet_files().items()}
    page.evaluate(
        """files => {
            const transfer = new DataTransfer();
            for (const [name, body] of Object.entries(files)) transfer.items.add(new File([body], name));
            const dropped = new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true });
            document.querySelector('#from-files').dispatchEvent(dropped);
        }""",
        files,
    )
    page.wait_for_selector("#rows tbody tr")
    expect(page.locator(".file-name").filter(has_text="onerror")).to_have_count(1)
    assert page.title() == "New campaign · labelchef"
    page.get_by_role("button", name="Start over").click()
    page.wait_for_url("**/new")
    expect(page.locator("#waiting")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_images_in_a_folder_fit_a_phone(ws: Workspace, base: str, opened: Open, tmp_path: Path, scheme: str) -> None:
    page = opened(base, viewport=PHONE, color_scheme=scheme)
    enter(ws, page, "/new")
    stored(tmp_path / "pets", image_files())
    page.locator("#choose-folder").set_input_files(tmp_path / "pets")
    page.wait_for_selector("#rows img.thumb")
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.wait_for_function("() => document.querySelector('#rows img.thumb').naturalWidth > 0")
    page.get_by_text("Rules without code").click()
    nameless = page.evaluate(
        """[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
           .filter(e => !e.labels?.length && !e.getAttribute('aria-label')).map(e => e.outerHTML)"""
    )
    assert nameless == []
    page.goto("/new")
    page.get_by_role("link", name="pets").click()  # files that wait can be taken up again
    page.wait_for_selector("#rows img.thumb")


def test_the_page_says_how_far_the_work_is_and_why_it_failed(
    ws: Workspace, base: str, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slowly(*_: Any, progress: Progress, **__: Any) -> None:
        progress("encoding texts", 1200, 4000)
        assert go_on.wait(30)
        raise InvalidInputError("the encoder needs sentence-transformers; pip install 'labelchef[text]'", code="text")

    monkeypatch.setattr(steps, "start_campaign", slowly)
    page = opened(base)
    enter(ws, page, "/new")
    choose(page, stored(tmp_path, tweet_files()))
    page.get_by_role("button", name="Create the campaign").click()
    expect(page.locator("#create .told")).to_have_text("encoding texts: 1,200 of 4,000")
    assert page.locator("#making").evaluate("bar => bar.value / bar.max") == 0.3
    expect(page.get_by_label("Use of tweets.csv", exact=True)).to_be_disabled()
    page.reload()  # the work goes on without the page
    expect(page.locator("#create .told")).to_have_text("encoding texts: 1,200 of 4,000")
    if os.environ.get("LABELCHEF_SCREENSHOTS"):
        page.screenshot(path=Path(os.environ["LABELCHEF_SCREENSHOTS"]) / "creating.png", full_page=True)
    go_on.set()
    expect(page.locator("#create .told")).to_contain_text("labelchef[text]")
    expect(page.get_by_role("button", name="Create the campaign")).to_be_enabled()
    expect(page.get_by_label("Use of tweets.csv", exact=True)).to_be_enabled()
