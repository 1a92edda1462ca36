"""`labelchef serve` as a process: the link, the refusals, a clean stop."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labelchef.base.errors import InvalidInputError, LabelchefError
from labelchef.cli.main import app
from labelchef.server.people import accounts
from labelchef.server.web.options import ServeOptions
from labelchef.server.web.processes import bind
from labelchef.server.workspace import open_workspace


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A server, and the address it printed."""
    command = [sys.executable, "-m", "labelchef", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = re.search(r"http://\S+", line)
        if found:
            return process, found.group()
    process.wait()
    raise AssertionError("".join(lines))


def stopped(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 0, rest
    return rest


@pytest.mark.slow
def test_the_demo_is_ready_to_label_by_its_link(tmp_path: Path) -> None:
    process, link = started("demo", "--serve", "--home", str(tmp_path / "home"))
    try:
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        page = browser.open(link).read().decode()
        assert "<title>Label · Digits</title>" in page
        token = re.search(r'name="csrf" content="([^"]+)"', page)
        assert token is not None
        base = link.split("/start")[0]
        for _ in range(300):  # the first model takes seconds, on a busy machine a minute
            request = urllib.request.Request(
                f"{base}/api/campaigns/digits/next",
                b"{}",
                {"X-CSRF-Token": token[1], "Content-Type": "application/json"},
            )
            answer = json.load(browser.open(request))
            if answer["tasks"]:
                break
            time.sleep(0.4)
        task = answer["tasks"][0]
        image = browser.open(base + task["content"]["image"])
        assert image.headers["content-type"] == "image/png"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(link)
    finally:
        rest = stopped(process)
    assert "Traceback" not in rest


@pytest.mark.slow
def test_a_stopped_server_lets_those_who_wait_go(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        accounts.create_account(ws, "lead", "lead", "a long enough password")
        secret = accounts.create_api_token(ws, "lead", "t")[0]
    process, address = started("serve", "--team", "--home", str(tmp_path / "home"))
    request = urllib.request.Request(f"{address}api/session", headers={"Authorization": f"Bearer {secret}"})
    assert json.load(urllib.request.urlopen(request))["account"]["name"] == "lead"
    assert "Traceback" not in stopped(process)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "--team"),
        (["--team"], "labelchef users add"),
        (["--port", "70000"], "port"),
    ],
)
def test_what_serve_refuses(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["serve", "--home", str(tmp_path / "home"), *arguments])
    assert isinstance(result.exception, LabelchefError)
    assert words in str(result.exception)


def test_a_second_server_does_not_share_the_port_of_the_first() -> None:
    with contextlib.closing(bind(ServeOptions(port=0), shared=True)) as first:
        first.listen()
        options = ServeOptions(port=first.getsockname()[1])
        for shared in (False, True):
            with pytest.raises(InvalidInputError, match="cannot be used") as refused:
                bind(options, shared=shared)
            assert refused.value.code == "port"
        bind(options.model_copy(update={"share_port": True}), shared=True).close()  # a process of the first server


def test_several_web_processes_need_postgresql(tmp_path: Path) -> None:
    command = ["serve", "--home", str(tmp_path / "home"), "--processes", "2"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, LabelchefError)
    assert "PostgreSQL" in str(result.exception)
