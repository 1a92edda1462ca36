"""A workspace with a small campaign, apps over it, and people who are signed in."""

import io
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pandas as pd
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright

from labelchef.base.campaigns import CampaignSummary, Role
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.people import accounts
from labelchef.server.web.app import configured, create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import campaign_data

ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
PASSWORD = "a long enough password"
PATIENCE = 60_000
"""Milliseconds that a page may take on a busy machine; Playwright's expectations wait for 5 000 otherwise."""
expect.set_options(timeout=PATIENCE)
NASTY = '<script>document.title="owned"</script><img src=x onerror="document.title=1"> & {{ 7*7 }}'


def small_data(media: Path | None = None, *, n: int = 60, pictures: bool = False) -> CampaignData:
    """Three classes that a line can tell apart, with texts, some of them nasty."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n + 30)
    X = (rng.normal(size=(n + 30, 4)) + 2.0 * np.eye(3, 4)[y]).astype(np.float32)
    weak = rng.dirichlet([1.0, 1.0, 1.0], n)
    items = pd.DataFrame({"id": [f"t{k}" for k in range(n)], "text": [f"Text {k}: {NASTY}" for k in range(n)]})
    items["length"] = [len(text) for text in items["text"]]
    val_items = pd.DataFrame({"id": [f"v{k}" for k in range(30)], "text": [f"Trusted {k}: {NASTY}" for k in range(30)]})
    if pictures:
        assert media is not None
        media.mkdir(exist_ok=True)
        for k in range(n):
            Image.new("L", (8, 8), color=k).save(media / f"p{k}.png")
        items["image"] = [f"p{k}.png" for k in range(n)]
    return campaign_data(
        X[:n], weak, X[n:], y[n:], classes=("cat", "dog", "<b>cow</b>"), items=items,
        val_items=val_items, media=media if pictures else None,
    )  # fmt: skip


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "home") as opened:
        yield opened


def make_campaign(ws: Workspace, name: str = "Animals", **settings: Any) -> CampaignSummary:
    """A campaign with its first batch selected."""
    chosen = Settings(**{"budget": 30, "batch_size": 4, "people": 1, **settings})
    made = campaigns.create_campaign(ws, name, small_data(), chosen, "lead")
    worker.advance(ws, made.slug)
    return campaigns.summary(ws, made.slug)


@pytest.fixture
def people(ws: Workspace) -> dict[str, Role]:
    roles = {"lead": Role.LEAD, "ann": Role.ANNOTATOR, "bob": Role.ANNOTATOR, "eve": Role.ANNOTATOR}
    for name, role in roles.items():
        accounts.create_account(ws, name, role, PASSWORD)
    return roles


@pytest.fixture
def campaign(ws: Workspace, people: dict[str, Role]) -> CampaignSummary:
    """Ann and Bob are members, Eve is not."""
    made = make_campaign(ws)
    for name in ("ann", "bob"):
        accounts.set_member(ws, made.slug, name, "lead")
    return made


@pytest.fixture
def app(ws: Workspace) -> FastAPI:
    """A team's server; rounds are moved by the tests themselves."""
    return create_app(ws, ServeOptions(team=True, import_root=ws.home.parent / "imports"), work=False)


class Person:
    """Someone with a browser's cookies and CSRF token."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def sign_in(self, name: str, password: str = PASSWORD) -> httpx2.Response:
        answer = self.client.post("/api/session", json={"name": name, "password": password})
        if answer.status_code == 200:
            self.client.headers["X-CSRF-Token"] = answer.json()["csrf"]
        return answer

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.client.get(path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return self.client.post(path, json={} if body is None else body, **options)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, follow_redirects=False) as opened:
        yield opened


@pytest.fixture
def as_person(app: FastAPI, client: TestClient) -> Callable[[str], Person]:
    """Sign someone in."""

    def sign_in(name: str) -> Person:
        person = Person(TestClient(app, follow_redirects=False))
        assert person.sign_in(name).status_code == 200
        return person

    return sign_in


def chromium() -> str | None:
    """The Chromium of this machine."""
    return os.environ.get("LABELCHEF_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = chromium()
    if found is None:
        pytest.skip("no Chromium here; tools/system-parts installs it")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield opened
        opened.close()


@contextmanager
def live(ws: Workspace, options: ServeOptions) -> Iterator[str]:
    """A real server with its worker in a thread; gives its address."""
    app = create_app(ws, options)
    config = configured(app, options.model_copy(update={"port": 0}))
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        for _ in range(500):
            if server.started:
                break
            time.sleep(0.02)
        assert server.started
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        app.state.hub.release()
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def png(color: int = 128) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (16, 16), color=color).save(buffer, "PNG")
    return buffer.getvalue()
