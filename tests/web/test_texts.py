"""The texts of the page: all in the catalogue, all in German too, chosen by cookie or browser, and nothing cut in German."""

import json
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

from labelchef.web import catalogue
from labelchef.web.rendering import environment
from labelchef.web.texts import COOKIE, fill, texts_for, told_for
from tests.web.conftest import PASSWORD
from tests.web.test_browser import PHONE, SHOWN, WIDE, Open, opened, team

__all__ = ["opened", "team"]
WEB = Path(catalogue.__file__).parent
PLACE = re.compile(r"\{(\w+)\}")
LANGUAGE = "de"
GERMAN = json.loads((WEB / "static" / "texts" / "de.json").read_text())
SAME_EVERYWHERE = {"labelchef", "report.html", "ledger.jsonl", "rules.toml", "pts", "doctype", "html", "nbsp", "amp"}
"""Words that stand in templates outside of the catalogue: names, files and entities."""


def bare(source: str) -> list[str]:
    """Words of a template that readers would see and that are not in the catalogue: in text, and in attributes that are read."""
    tokens = environment().lex(source)
    text = "".join(value if kind == "data" else "\0" if kind.endswith("_begin") else "" for _, kind, value in tokens)
    read = re.findall(r'\b(?:aria-label|title|placeholder|alt|data-confirm|data-busy|data-done)="([^"]*)"', text)
    text = re.sub(r"<(script|code|kbd|svg)\b.*?</\1>|<!--.*?-->|(?<![<\w])/[\w/]+/", "", text, flags=re.S)
    shown = re.sub(r"<[^<>]*>", " ", text)
    words = [
        word for part in (shown, *read) if not part.startswith("/") for word in re.findall(r"[^\W\d_]{2,}[\w.]*", part)
    ]
    return [word for word in words if word not in SAME_EVERYWHERE]


def test_bare_words_are_found() -> None:
    assert bare('<p class="soft">Some {{ n }} words{% if x %}, too{% endif %}</p>') == ["Some", "words", "too"]
    assert bare('<input placeholder="Name" aria-label="{{ _("Name") }}">') == ["Name"]
    assert bare('<b>{{ _("All of it") }}</b> <code>labelchef serve</code> · labelchef') == []


@pytest.mark.parametrize("name", sorted(path.relative_to(WEB / "templates").as_posix() for path in WEB.rglob("*.html")))
def test_every_text_of_a_template_is_in_the_catalogue(name: str) -> None:
    assert bare((WEB / "templates" / name).read_text()) == [], f"{name}: wrap these in _(…)"


@pytest.mark.parametrize("path", sorted((WEB / "static" / "js").glob("*.js")), ids=lambda path: path.name)
def test_every_sentence_of_a_script_is_in_the_catalogue(path: Path) -> None:
    """Literals that begin like a sentence, or fill a place of one, are arguments of t(…)."""
    code = re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*|^import .*$", "", path.read_text(), flags=re.S | re.M)
    wrapped = re.sub(r"""(?<![\w.])t\(\s*("(?:[^"\\]|\\.)*"|`[^`]*`)""", "t(", code)
    left = re.findall(r"""(?<!=== )(["`][A-Z][a-z’]+(?: [\w$].*?)?["`])""", wrapped)
    words = "Enter Escape Backspace Shift CapsLock PageUp PageDown ArrowUp ArrowDown ArrowLeft ArrowRight Home End"
    technical = {"Accept", "Content-Type", "Content Security Policy", *words.split()}
    assert [one for one in left if one.strip('"`') not in technical] == [], f"{path.name}: wrap these in t(…)"


def test_german_is_complete_with_the_same_places() -> None:
    assert catalogue.missing(LANGUAGE) == [], "python -m labelchef.web.catalogue --missing"
    assert catalogue.dead(LANGUAGE) == [], "python -m labelchef.web.catalogue --dead"
    assert {key for key, text in GERMAN.items() if set(PLACE.findall(key)) != set(PLACE.findall(text))} == set()
    assert {key for key, text in GERMAN.items() if not text.strip() and key.strip()} == set()
    assert {key for key, text in GERMAN.items() if key.endswith((".", "…")) != text.endswith((".", "…"))} == set()
    assert len(GERMAN) > 500


def test_sentences_of_the_server_are_translated_where_they_are_shown() -> None:
    told, text = told_for(LANGUAGE), texts_for(LANGUAGE)
    assert told("round 12 is open") == "Runde 12 ist offen"
    assert told("the lead has paused the campaign") == text("the lead has paused the campaign") != ""
    assert told("a sentence that nobody knows") == "a sentence that nobody knows"
    assert told_for("en")("round 12 is open") == "round 12 is open"
    assert fill(text("{n} of {all} asked"), {"n": 3, "all": 9}) == "3 von 9 gefragt"


def test_the_language_is_that_of_the_cookie_then_of_the_browser(client: TestClient) -> None:
    german, english = 'lang="de"', 'lang="en"'
    assert english in client.get("/sign-in").text
    assert german in client.get("/sign-in", headers={"accept-language": "de-CH,de;q=0.9,en;q=0.5"}).text
    chosen = {"accept-language": "de", "cookie": f"{COOKIE}=en"}
    assert english in client.get("/sign-in", headers=chosen).text
    assert english in client.get("/sign-in", headers={"cookie": f"{COOKIE}=../../etc"}).text


CUT = """() => [...document.querySelectorAll('button, .button, nav a, .badge, .tile, th, summary, label, .class')]
  .filter((node) => node.offsetParent && node.scrollWidth > node.clientWidth + 1)
  .filter((node) => getComputedStyle(node).overflowX !== 'visible')
  .map((node) => node.textContent.trim().slice(0, 60))"""


def fits(page: Page) -> None:
    """Nothing is cut, and the page does not scroll sideways, wide and narrow."""
    for size in (WIDE, PHONE):
        page.set_viewport_size({"width": size["width"], "height": size["height"]})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (page.url, size)
        assert page.evaluate(CUT) == [], (page.url, size)


@pytest.mark.slow
def test_a_reader_chooses_german_and_works_with_it(team: str, opened: Open) -> None:
    page = opened(team)
    page.goto("/sign-in")
    page.get_by_label("Language").select_option("de")
    expect(page.get_by_role("heading", name="Anmelden")).to_be_visible()
    kept = next(one for one in page.context.cookies() if one.get("name") == COOKIE)
    assert (kept.get("value"), kept.get("sameSite")) == ("de", "Lax")
    page.get_by_label("Name").fill("lead")
    page.get_by_label("Passwort").fill("not the password")
    page.get_by_role("button", name="Anmelden").click()
    expect(page.get_by_role("alert")).to_contain_text("gehören nicht zusammen")
    page.get_by_label("Passwort").fill(PASSWORD)
    page.get_by_role("button", name="Anmelden").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    page.goto("/c/animals/label")
    page.wait_for_selector(SHOWN)
    expect(page.locator("#round")).to_have_text("Runde 1")
    expect(page.locator("#accept")).to_contain_text("Annehmen")
    fits(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("den Vorschlag annehmen")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(page.locator("#toast")).to_contain_text("keine eigene Stimme")
    for address, words in {
        "/c/animals/lead": "Runde 1 ist offen",
        "/c/animals/progress": "je Runde",
        "/c/animals/lead/settings": "Stapelgröße",
        "/new": "Dateien hier ablegen",
        "/": "Beispiele",
        "/people": "Person hinzufügen",
    }.items():
        page.goto(address)
        expect(page.locator("main")).to_contain_text(words)
        fits(page)
    page.set_viewport_size({"width": WIDE["width"], "height": WIDE["height"]})
    page.locator("details.menu summary").click()
    page.get_by_label("Sprache").select_option("en")
    expect(page.get_by_role("heading", name="People")).to_be_visible()
