"""Requests that mean harm against one `labelchef serve` process: memory, held connections, bodies that are slow to refuse.

A campaign of 100 000 items with a vote on each. Measured are the memory of the server before and after 20 requests at once for
the progress page (VmRSS, VmHWM of /proc), the processor time in which a body of unknown names is refused, and a health request
while 1 000 half-sent requests are held. To measure another version: PYTHONPATH=other/src:. python -m benchmarks hostile
"""

import asyncio
import contextlib
import http.client
import re
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fastapi import FastAPI
from rich.console import Console
from starlette.types import Message

from benchmarks.serving import SLUG, Server, make_team
from labelchef.server import worker
from labelchef.server.intake import importing
from labelchef.server.people import accounts
from labelchef.server.web.app import create_app
from labelchef.server.web.options import ServeOptions
from labelchef.server.workspace import open_workspace

_HALF = (
    b"GET / HTTP/1.1\r\nhost: x\r\nx-a: ",
    b"POST /api/session HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n{",
)


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Make the campaign, serve it, attack it."""
    items, at_once, held = (2_000, 20, 100) if quick else (100_000, 20, 1_000)
    with tempfile.TemporaryDirectory(prefix="labelchef-hostile-") as folder:
        home = Path(folder) / "home"
        make_team(home, people=1, items=items, features=16, batch=100)
        with open_workspace(home) as ws:
            token = {"Authorization": f"Bearer {accounts.create_api_token(ws, 'lead', 'x')[0]}"}
            worker.advance(ws, SLUG)
            labels = np.random.default_rng(1).integers(0, 3, items).astype(str)
            votes = pd.DataFrame({"item": [f"m{k}" for k in range(items)], "annotator": "crowd"})
            votes["label"] = np.array(["harmless", "spam", "unclear"])[labels.astype(int)]
            votes.to_csv(Path(folder) / "votes.csv", index=False)
            importing.import_votes(ws, SLUG, "lead", Path(folder) / "votes.csv")
        server = Server(home)
        server.start()
        try:
            found: dict[str, Any] = {"memory": _memory(server, token, at_once), "held": _held(server, held)}
        finally:
            server.stop()
        found["bodies"] = _bodies(Path(folder) / "other")
    before, after, peak = found["memory"]
    console.print(f"{at_once} requests for the progress of {items} items: {before} → {after} MB, at most {peak} MB")
    for size, (status, spent) in found["bodies"].items():
        console.print(f"a body of {size // 1024} KiB of unknown names: {status} after {spent:.2f} ms of processor time")
    console.print(f"health beside {held} half-sent requests: {found['held']}")
    return found


def _ask(port: int, path: str, headers: dict[str, str], timeout: float = 600.0) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def _megabytes(server: Server, name: str) -> int:
    assert server._process is not None
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{server._process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def _memory(server: Server, token: dict[str, str], at_once: int) -> tuple[int, int, int]:
    time.sleep(20)  # the worker rebuilds its session first
    _ask(server.port, "/api/campaigns", token)
    before, answers = _megabytes(server, "VmRSS"), []

    def ask() -> None:
        answers.append(_ask(server.port, f"/c/{SLUG}/progress", token))

    threads = [threading.Thread(target=ask) for _ in range(at_once)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert answers == [200] * at_once, answers
    return before, _megabytes(server, "VmRSS"), _megabytes(server, "VmHWM")


def _bodies(home: Path) -> dict[int, tuple[int, float]]:
    """Bytes → status and median processor milliseconds in which the event loop refuses a body of unknown names."""

    async def post(app: FastAPI, body: bytes) -> tuple[int, float]:
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        answers: list[Message] = []

        async def receive() -> Message:
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            answers.append(message)

        headers = {"host": "x", "content-type": "application/json", "content-length": str(len(body))}
        scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http"}
        scope |= {"path": "/api/session", "raw_path": b"/api/session", "query_string": b"", "root_path": ""}
        scope |= {"client": ("x", 1), "server": ("x", 1)}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        start = time.process_time()
        await app(scope, receive, send)
        return int(answers[0]["status"]), 1e3 * (time.process_time() - start)

    async def measure(app: FastAPI) -> dict[int, tuple[int, float]]:
        found = {}
        for size in (2**20, 2**16):
            body = ("{" + ",".join(f'"k{k}":0' for k in range(size // 12)) + "}").encode()
            answers = [await post(app, body) for _ in range(6)][1:]
            found[size] = answers[0][0], float(np.median([one[1] for one in answers]))
        return found

    with open_workspace(home) as ws:
        return asyncio.run(measure(create_app(ws, ServeOptions(team=True), work=False)))


def _held(server: Server, held: int) -> str:
    with contextlib.ExitStack() as stack:
        for k in range(held):
            with contextlib.suppress(OSError):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=2))
                one.sendall(_HALF[k % 2])
        start = time.perf_counter()
        try:
            status = _ask(server.port, "/api/health", {}, timeout=30)
        except OSError as error:
            return f"no answer ({type(error).__name__})"
        return f"{status} after {1e3 * (time.perf_counter() - start):.0f} ms"
