"""The site of the docs: built as `make docs` does it, it is whole, reads as on a code host, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, expect
from tools.docs_reference import filled

import labelchef
from tests.web.conftest import browser

__all__ = ["browser"]
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
PAGES = {ROOT / "README.md": "index", ROOT / "CONTRIBUTING.md": "contributing", ROOT / "CHANGELOG.md": "changelog"}
PAGES |= {page: page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in (ROOT / "docs").rglob("*.md")}
PAGES |= {page: f"experiments/results/{page.stem}" for page in (ROOT / "experiments" / "results").glob("*.md")}
"""File in the repository → page of the site, without its ending."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Found(HTMLParser):
    """Ids, links, and addresses of what a page loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        elif tag == "link" and given.get("href") and given.get("rel") not in ("prev", "next", "canonical"):
            self.loads.append(str(given["href"]))
        self.loads += [str(given[name]) for name in ("src", "srcset", "data", "poster") if given.get(name)]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Found]:
    return {page: Found(page) for page in sorted(site.rglob("*.html")) if page.name != "404.html"}


def test_every_page_of_the_docs_is_there(pages: dict[Path, Found], site: Path) -> None:
    expected = set(PAGES.values())
    assert {page.relative_to(site).with_suffix("").as_posix() for page in pages} == expected
    home = Found(site / "index.html").links
    assert {f"{name}.html" for name in expected} - {"index.html"} <= {urlsplit(link).path for link in home}, (
        "in the menu"
    )


def test_every_link_and_anchor_of_the_site_leads_somewhere(pages: dict[Path, Found]) -> None:
    checked = 0
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.name} links {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, f"{page.name} links {link}: no such anchor"
                checked += 1
    assert checked > 500


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Found], site: Path) -> None:
    for page, found in pages.items():
        for address in found.loads:
            assert address.startswith("data:") or not urlsplit(address).netloc, f"{page.name} loads {address}"
            assert address.startswith("data:") or (page.parent / urlsplit(address).path).exists(), address
        text = page.read_text()
        assert 'class="mermaid"' not in text, "the theme would load mermaid from elsewhere"
    for sheet in site.rglob("*.css"):
        loaded = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s;]+)", sheet.read_text())
        assert [address for address in loaded if urlsplit(address).netloc and not address.startswith("data:")] == []


def test_markdown_reads_as_on_a_code_host(site: Path) -> None:
    """Lists, tables and code blocks of the site are those that CommonMark sees."""
    reader = MarkdownIt("commonmark").enable("table")
    for source, name in PAGES.items():
        if name == "api":
            continue
        html = (site / f"{name}.html").read_text()
        shown = html[html.index("<article") : html.index("</article>")]
        meant = reader.render(filled(source.read_text()))
        for tag in ("h2", "h3", "ul", "ol", "li", "table", "tr", "pre", "img", "strong", "em", "blockquote"):
            counts = [len(re.findall(rf"<{tag}[ >]", text)) for text in (meant, shown)]
            assert counts[0] == counts[1], f"{source.name}: {counts[0]} <{tag}> are meant, {counts[1]} shown"


def test_the_python_reference_has_every_public_name(site: Path) -> None:
    page = Found(site / "api.html")
    for name in labelchef.__all__:
        assert f"labelchef.{name}" in page.ids, f"docs/api.md does not name labelchef.{name}"
    for method in ("fit", "query", "update", "run", "finish"):
        assert f"labelchef.LabelCleaner.{method}" in page.ids
    text = (site / "api.html").read_text()
    assert "Take the last round back" in text, "the docstring of an inherited method"
    assert "&gt;&gt;&gt;" in text, "examples"


def test_the_search_works_from_the_file_system_without_a_network(browser: Browser, site: Path) -> None:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    wrong: list[str] = []
    context.on("request", lambda request: wrong.append(request.url) if not request.url.startswith("file:") else None)
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.set_default_timeout(30_000)
    page.goto((site / "experiments" / "results" / "exp1.html").as_uri())
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("pseudonyms")
    hit = page.locator(".md-search-result__link", has_text="What can be relied on").first
    expect(hit).to_be_visible()
    hit.click()
    page.wait_for_url(lambda url: "/trust.html" in url)
    context.close()
    assert wrong == []
