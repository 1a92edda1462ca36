"""The log of a server has no personal data: a session with marked names, texts and secrets leaves no mark in any line."""

import ast
import io
import json
import logging
import secrets
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import labelchef
from labelchef.base.campaigns import Role
from labelchef.base.errors import InvalidInputError, LabelchefWarning, StoreError
from labelchef.base.events import tell
from labelchef.base.settings import Settings
from labelchef.loop import steps
from labelchef.server import worker
from labelchef.server.campaigns import campaigns, care
from labelchef.server.labelling import tasks
from labelchef.server.logs import LogForm, configure
from labelchef.server.people import accounts
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import Workspace
from tests.web.conftest import Person, small_data

ADDRESS = "203.0.113.77"


@contextmanager
def logged(form: LogForm, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a process that logs in a form writes; loggers are as before afterwards."""
    root, own = logging.getLogger(), logging.getLogger("labelchef")
    before = root.handlers[:], root.level, own.level, sys.excepthook, threading.excepthook, warnings.showwarning
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure(form)
    try:
        yield written
    finally:
        root.handlers[:], root.level, own.level = before[:3]
        sys.excepthook, threading.excepthook, warnings.showwarning = before[3:]


class Marks:
    """Texts that stand for personal data; none may be found again."""

    def __init__(self) -> None:
        self.all: list[str] = [ADDRESS]

    def new(self, kind: str) -> str:
        """A text that occurs nowhere else."""
        made = f"{kind}Q{secrets.token_hex(6)}"
        self.all.append(made)
        return made


def a_session(ws: Workspace, marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone signs in, labels, mistypes, looks for items; a lead deletes a campaign; the server fails in three ways."""
    person, lead, password = marks.new("Person"), marks.new("Lead"), marks.new("Password")
    for name, role in ((person, Role.ANNOTATOR), (lead, Role.LEAD)):
        accounts.create_account(ws, name, role, password)
    called = marks.new("Campaign")
    made = campaigns.create_campaign(ws, called, small_data(), Settings(budget=30, batch_size=4, people=1), lead)
    marks.all += [made.slug, made.id]
    with pytest.MonkeyPatch.context() as failing:
        failing.setattr(steps, "due", _fails(ValueError(f"no column {called}")))
        with pytest.raises(ValueError, match="no column"), worker_threads_logged():
            worker.advance(ws, made.slug)
    worker.advance(ws, made.slug)
    accounts.set_member(ws, made.slug, person, lead)
    app = create_app(ws, ServeOptions(team=True), work=False)
    client = TestClient(app, client=(ADDRESS, 1), raise_server_exceptions=False, follow_redirects=False)
    user = Person(client)
    user.sign_in(marks.new("Nobody"), marks.new("Wrong"))
    assert user.sign_in(person, password).status_code == 200
    marks.all += [str(client.headers["X-CSRF-Token"]), *client.cookies.values()]
    where = f"/api/campaigns/{made.slug}"
    item = user.post(f"{where}/next", {"n": 2}).json()["tasks"][0]["item"]
    note, agent = marks.new("Note"), marks.new("Agent")
    assert (
        user.post(f"{where}/votes", {"item": item, "label": 0, "note": note}, headers={"User-Agent": agent}).status_code
        == 200
    )
    user.post(f"{where}/votes", {"item": marks.new("Item"), "label": marks.new("Label")})
    user.get(f"{where}/items", params={"q": marks.new("Query"), "sort": marks.new("Sort")})
    user.get(f"/c/{marks.new('Slug')}/label")
    user.get(f"/{marks.new('Path')}")
    user.get("/api/session", headers={"Authorization": f"Bearer {marks.new('Token')}", "X-Request-ID": marks.new("Id")})
    client.request(marks.new("METHOD").upper(), "/")
    marks.all[-1] = marks.all[-1].upper()
    for error in (
        ValueError(marks.new("Text")),
        StoreError(f"{marks.new('Key')}: duplicate key", code="database"),
        InvalidInputError(marks.new("Input"), code="label"),
    ):
        with pytest.MonkeyPatch.context() as failing:
            failing.setattr(tasks, "task", _fails(error, marks.new("Cause")))
            answer = user.get(f"{where}/tasks/{item}")
        assert answer.status_code in (500, 503, 422), answer.text
    care.delete(ws, made.slug, lead, confirm=called, now=True)
    care.purge(ws)
    logging.getLogger("some.library").error(marks.new("Preformatted"))
    logging.getLogger("some.library").error("of %s", marks.new("Argument"))
    warnings.warn(marks.new("Warning"), LabelchefWarning, stacklevel=1)
    thread = threading.Thread(target=_fails(RuntimeError(marks.new("Thread"))))
    thread.start()
    thread.join()


def _fails(error: Exception, cause: str = "cause"):  # type: ignore[no-untyped-def]
    def fail(*_: object, **__: object) -> None:
        raise error from KeyError(cause)

    return fail


@contextmanager
def worker_threads_logged() -> Iterator[None]:
    """What is raised inside is logged as the worker does."""
    try:
        yield
    except Exception:
        logging.getLogger("labelchef").exception("a step of campaign %s failed", "CampaignName")
        raise


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("form", list(LogForm))
def test_no_mark_is_in_any_line(ws: Workspace, monkeypatch: pytest.MonkeyPatch, form: LogForm) -> None:
    marks = Marks()
    with logged(form, monkeypatch) as written:
        a_session(ws, marks, monkeypatch)
    text = written.getvalue()
    assert len(marks.all) > 25
    found = [mark for mark in marks.all if mark.lower() in text.lower()]
    assert not found, found
    assert "removed for good: 90 items, 1 votes" in text, "numbers are shown"
    assert "ValueError" in text
    assert "Traceback" not in text
    if form is LogForm.WARNINGS:
        assert "/api/campaigns/{campaign}/next" not in text, "what went well is not logged"
    if form is LogForm.JSON:
        _check_lines([json.loads(line) for line in text.splitlines()])


def _check_lines(lines: list[dict[str, object]]) -> None:
    """Every line is an event with time and level; requests and steps have their facts."""
    assert all({"time", "level", "event"} <= set(line) for line in lines)
    requests = [line for line in lines if line["event"] == "request"]
    vote = next(line for line in requests if line["route"] == "/api/campaigns/{campaign}/votes")
    assert {"request", "method", "status", "ms", "campaign"} <= set(vote)
    assert (vote["status"], vote["campaign"]) == (200, 1)
    refused = [line for line in requests if line["route"] == vote["route"] and line["status"] != 200]
    assert refused[0]["code"] == "item" or refused[0]["code"] == "label"
    assert {line["route"] for line in requests if line["status"] == 404} >= {"none"}
    taken = {line["step"] for line in lines if line["event"] == "step"}
    assert taken == {"fit", "select"}
    failed = next(line for line in lines if line["event"] == "a request failed")
    assert failed["request"] in {line["request"] for line in requests if line["status"] == 500}
    errors = failed["errors"]
    assert isinstance(errors, list)
    assert [one["type"] for one in errors] == ["ValueError", "KeyError"], "causes too"
    assert any("test_logs.py" in place for place in errors[0]["places"])


def test_store_errors_of_our_own_words_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("labelchef")
    with logged(LogForm.JSON, monkeypatch) as written:
        log.error("%s", StoreError("/srv/x.db: the disk is full; nothing was stored", code="disk_full"))
        tell("step", campaign=3, step="fit", seconds=1.5)
    first, second = (json.loads(line) for line in written.getvalue().splitlines())
    assert (first["event"], first["code"]) == ("/srv/x.db: the disk is full; nothing was stored", "disk_full")
    assert {"campaign": 3, "step": "fit", "seconds": 1.5}.items() <= second.items()


def test_what_our_source_logs_is_a_constant() -> None:
    """`_event` shows the text of a call as it is: so no call may put data into it."""
    seen = 0
    for path in Path(labelchef.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id in ("_log", "log", "logging")):
                continue
            if node.func.attr in ("debug", "info", "warning", "error", "exception", "critical"):
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"
                seen += 1
    assert seen > 10
