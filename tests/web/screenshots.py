"""The pictures of the docs, made by a real server and Chromium: `python -m tests.web.screenshots docs/screenshots`.

One campaign of short messages to an airline goes from files to its fourth round; on the way each page is taken. All of it
comes from seeds, except for times of day. The tests take the pictures too, into a folder of their own.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import product
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from labelchef.base.campaigns import Role
from labelchef.base.intake import IntakeState
from labelchef.base.settings import Settings
from labelchef.server import worker
from labelchef.server.intake import steps
from labelchef.server.labelling import tasks, votes
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace, open_workspace
from tests.web.conftest import ARGUMENTS, PASSWORD, chromium, live
from tests.web.raw_files import stored

SIZE: ViewportSize = {"width": 1200, "height": 860}
CAMPAIGN = "messages"
_CLASSES = ("negative", "neutral", "positive")
_SAID = {
    "negative": ["My bag is lost for the third day", "Two hours late and nobody told us why", "Nobody answers the phone",
                 "Rude staff at the gate", "Cancelled again, without a word", "The app took my money twice"],
    "neutral": ["Where do I enter my member number", "Is there a seat with a table", "Which terminal do we leave from",
                "Can I bring a bicycle", "When does check-in open", "Do you fly there in winter"],
    "positive": ["They found my bag within an hour", "Smooth check-in, great work", "Thanks for the quick answer",
                 "Friendly crew, best flight this year", "Lovely lunch on board", "Great help with my two children"],
}  # fmt: skip
_WHERE = ("in Oslo", "at gate B12", "on the 13:35 flight", "to Lima", "in Cairo", "on Sunday", "from Perth", "at the desk",
          "on flight 482", "to Quito", "this morning", "in Vienna", "with a small child", "after the storm")  # fmt: skip
_WORDS = {"word_thanks": ("thanks", "great", "friendly", "lovely"), "word_late": ("late", "lost", "cancelled", "bag")}


def messages(seed: int = 0) -> list[tuple[str, str, str]]:
    """(id, text, true class), in an order by chance; the class of every tenth is another one than its words say."""
    rng = random.Random(seed)
    pairs = [(f"{said} {where}.", label) for label in _CLASSES for said, where in product(_SAID[label], _WHERE)]
    rows = [(text, label if rng.random() < 0.9 else rng.choice(_CLASSES)) for text, label in pairs]
    rng.shuffle(rows)
    return [(f"{k:04}", text, label) for k, (text, label) in enumerate(rows)]


def files(seed: int = 0) -> dict[str, bytes]:
    """messages.csv, votes.csv and gold.csv: three word rules and an older model, which is right on three quarters."""
    rng, rows = random.Random(seed + 1), messages(seed)
    said = []
    for key, text, label in rows:
        for source, words in _WORDS.items():
            if any(word in text.lower() for word in words):
                said.append((key, source, "positive" if source == "word_thanks" else "negative"))
        if text.startswith(("Where", "Is", "Which", "Can", "When", "Do")):
            said.append((key, "question", "neutral"))
        if rng.random() < 0.7:
            said.append((key, "old_model", label if rng.random() < 0.75 else rng.choice(_CLASSES)))
    gold = [f"{key},{label}" for key, _, label in rng.sample(rows, 40)]
    return {
        "messages.csv": "\n".join(["id,text", *(f'{key},"{text}"' for key, text, _ in rows)]).encode(),
        "votes.csv": "\n".join(["item,source,label", *(",".join(vote) for vote in said)]).encode(),
        "gold.csv": "\n".join(["id,label", *gold]).encode(),
    }


def create(ws: Workspace, intake: str) -> None:
    """Make the campaign of the files that were uploaded."""
    steps.create(ws, intake, "Messages", Settings(people=2, batch_size=8, budget=120), "lead", encoders=("tfidf",))
    while (now := steps.look(ws, intake)).campaign is None:
        assert now.state is IntakeState.CREATING, now
        time.sleep(0.1)


def label_rounds(ws: Workspace, rounds: int) -> None:
    """Ann and Bob answer whole batches; Bob errs on every fifth."""
    truth = {key: label for key, _, label in messages()}
    rng = random.Random(2)
    for _ in range(rounds):
        worker.advance(ws, CAMPAIGN)
        for person, error in (("ann", 0.02), ("bob", 0.2)):
            while isinstance(given := tasks.next_tasks(ws, CAMPAIGN, person, 4), list):
                for task in given:
                    right = _CLASSES.index(truth[task.item])
                    label = right if rng.random() > error else (right + 1) % 3
                    votes.cast_vote(ws, CAMPAIGN, person, task.item, label, seconds=rng.uniform(1.5, 6.0))
    worker.advance(ws, CAMPAIGN)


def _nothing(page: Page) -> None:
    page.wait_for_load_state("load")


def _label(page: Page) -> None:
    page.wait_for_selector("#label:not(.idle) #item .text")
    page.wait_for_selector("#near li")


def _progress(page: Page) -> None:
    page.wait_for_function(
        "() => [...document.images].filter(i => i.offsetParent).every(i => i.complete && i.naturalWidth > 0)"
    )


def _sources(page: Page) -> None:
    expect(page.locator("#sources table").first).to_be_visible(timeout=60_000)


def _items(page: Page) -> None:
    expect(page.locator("#items > li").first).to_be_visible(timeout=60_000)


def _quality(page: Page) -> None:
    expect(page.locator("#quality-body table").first).to_be_visible(timeout=60_000)


def _conflicts(page: Page) -> None:
    expect(page.locator("#conflicts > li").first).to_be_visible()


PAGES: dict[str, tuple[str, str, Callable[[Page], None]]] = {
    "label": ("ann", "label", _label),
    "progress": ("ann", "progress", _progress),
    "overview": ("lead", "lead", _progress),
    "mine": ("ann", "mine", _nothing),
    "quality": ("lead", "lead/people", _quality),
    "items": ("lead", "lead/items", _items),
    "conflicts": ("lead", "lead/items?view=conflicts", _conflicts),
    "sources": ("lead", "lead/sources", _sources),
}
"""Picture → who looks, the page below the campaign, and what to wait for."""


def take(page: Page, path: Path) -> None:
    """A picture of what is seen, in 128 colours: text stays sharp, and the file is a third as large."""
    page.evaluate("document.fonts.ready")
    picture = Image.open(BytesIO(page.screenshot(animations="disabled")))
    picture.convert("RGB").quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


@contextmanager
def signed_in(browser: Browser, base: str, name: str) -> Iterator[Page]:
    """A page of somebody who has signed in."""
    context = browser.new_context(base_url=base, viewport=SIZE, color_scheme="light", timezone_id="UTC", locale="en-GB")
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto("/sign-in")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    yield page
    context.close()


def make(out: Path) -> list[str]:
    """Take all pictures into a folder; returns their file names."""
    out.mkdir(parents=True, exist_ok=True)
    made = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_workspace(Path(folder) / "home") as ws,
        sync_playwright() as playwright,
    ):
        for name, role in {"lead": Role.LEAD, "ann": Role.ANNOTATOR, "bob": Role.ANNOTATOR}.items():
            accounts.create_account(ws, name, role, PASSWORD)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        raw = Path(folder) / "raw"
        raw.mkdir()
        with live(ws, ServeOptions(team=True)) as base:
            with signed_in(browser, base, "lead") as page:
                page.goto("/new")
                page.locator("#choose-files").set_input_files(stored(raw, files()))
                page.wait_for_selector("#rows tbody tr")
                page.set_viewport_size({"width": SIZE["width"], "height": 1500})
                take(page, out / "new-campaign.png")
                made.append("new-campaign.png")
                create(ws, parse_qs(urlsplit(page.url).query)["intake"][0])
            for name in ("ann", "bob"):
                accounts.set_member(ws, CAMPAIGN, name, "lead")
        label_rounds(ws, 3)
        with live(ws, ServeOptions(team=True)) as base:
            for person in sorted({who for who, _, _ in PAGES.values()}):
                with signed_in(browser, base, person) as page:
                    for name, (who, path, ready) in PAGES.items():
                        if who == person:
                            page.goto(f"/c/{CAMPAIGN}/{path}")
                            ready(page)
                            take(page, out / f"{name}.png")
                            made.append(f"{name}.png")
        browser.close()
    return sorted(made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for one in make(parser.parse_args().out):
        print(one)
