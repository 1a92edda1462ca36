"""Connections that are held, on a real server process with real sockets: half headers, half bodies, answers nobody reads."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from labelchef.services.people import accounts
from labelchef.services.workspace import open_workspace
from tests.web.conftest import make_campaign

Address = tuple[str, int]


@contextmanager
def serving(home: Path, **environment: str) -> Iterator[tuple[Address, dict[str, str]]]:
    """A server process with one campaign: its address, and the header of an annotator."""
    with open_workspace(home) as ws:
        accounts.create_account(ws, "lead", "lead", "a long enough password")
        accounts.create_account(ws, "ann", "annotator", None)
        token = accounts.create_api_token(ws, "ann", "t")[0]
        accounts.set_member(ws, make_campaign(ws).slug, "ann")
    command = [sys.executable, "-m", "labelchef", "serve", "--team", "--home", str(home), "--port", "0"]
    given = {**os.environ, **{f"LABELCHEF_{name.upper()}": value for name, value in environment.items()}}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=given)
    try:
        assert process.stdout is not None
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, "the server ended"
            found = re.search(r"http://([\d.]+):(\d+)", line)
        yield (found[1], int(found[2])), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest
    assert "Traceback" not in rest, rest


def ask(address: Address, path: str, headers: dict[str, str], body: object = None) -> tuple[int, dict[str, object]]:
    """An honest request on a connection of its own."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def votes(address: Address, headers: dict[str, str]) -> None:
    """An annotator asks for an item and votes on it."""
    base = "/api/campaigns/animals"
    status, found = ask(address, f"{base}/next", headers, {"n": 1})
    assert status == 200, found
    item = found["tasks"][0]["item"]  # type: ignore[index]
    status, found = ask(address, f"{base}/votes", headers, {"item": item, "label": 0})
    assert status == 200, found


def ended(held: list[socket.socket], seconds: float = 60.0) -> int:
    """How many of the connections the server ends within a time."""
    until, count = time.monotonic() + seconds, 0
    for one in held:
        one.settimeout(max(0.01, until - time.monotonic()))
        try:
            while one.recv(65536):
                pass
            count += 1
        except ConnectionError:
            count += 1
        except TimeoutError:
            pass
    return count


HALF_HEADER = b"GET /api/health HTTP/1.1\r\nhost: x\r\nx-slow: "
HALF_BODY = (
    b'POST /api/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{"name"'
)


@pytest.mark.slow
def test_600_half_sent_requests_do_not_keep_a_vote_out(tmp_path: Path) -> None:
    """More half-sent requests than the server takes connections, and more than it may open files."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(files[0], 2000), files[1]), files[1]))
    with serving(tmp_path / "home", max_connections="300", header_seconds="3", body_seconds="3") as (address, ann):
        with ExitStack() as stack:
            held = []
            for k in range(600):
                held.append(stack.enter_context(socket.create_connection(address, timeout=30)))
                held[-1].sendall((HALF_HEADER, HALF_BODY, b"")[k % 3])
                if k in (150, 450):
                    votes(address, ann)
            votes(address, ann)
            assert ended(held) == 600, "the server ends them all by itself"
        assert ask(address, "/api/health", {})[0] == 200


@pytest.mark.slow
def test_requests_in_drops_and_answers_that_nobody_reads_are_ended(tmp_path: Path) -> None:
    with serving(tmp_path / "home", header_seconds="2", body_seconds="2") as (address, _), ExitStack() as stack:
        headers, body = (stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(2))
        headers.sendall(HALF_HEADER)
        body.sendall(HALF_BODY)
        alive = {headers, body}
        until = time.monotonic() + 40
        while alive and time.monotonic() < until:  # a byte now and then keeps neither alive
            time.sleep(0.2)
            for one in tuple(alive):
                try:
                    one.sendall(b"x")
                except ConnectionError:
                    alive.discard(one)
        assert not alive
        kept = http.client.HTTPConnection(*address, timeout=60)
        stack.callback(kept.close)
        for _ in range(2):  # an idle connection is closed, one that works is not
            kept.request("GET", "/api/health")
            assert kept.getresponse().read()
            time.sleep(2.5)


@pytest.mark.slow
def test_large_bodies_and_headers_are_refused_before_they_are_read(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as (address, ann):
        for path, size in (
            ("/api/campaigns/animals/votes", 70_000),
            ("/api/session", 70_000),
            ("/api/intakes/a/rules", 2**21),
        ):
            with socket.create_connection(address, timeout=60) as one:
                lines = (
                    f"POST {path} HTTP/1.1",
                    "host: x",
                    f"content-length: {size}",
                    f"authorization: {ann['Authorization']}",
                )
                one.sendall("\r\n".join((*lines, "", "")).encode())
                status = one.recv(100).split(b" ")[1]
            assert status == (b"403" if "rules" in path else b"413"), path
        with socket.create_connection(address, timeout=60) as one:
            one.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 40_000)
            assert one.recv(100).startswith(b"HTTP/1.1 4")
        votes(address, ann)
