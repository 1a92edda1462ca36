"""Requests that mean harm against one `labelchef serve` process: memory, held connections, bodies that are slow to refuse.

A campaign of 100 000 items with a vote on each. Measured are the memory of the server before and after 20 requests at once for
the progress page (VmRSS, VmHWM of /proc), a health request while somebody who is not signed in sends bodies of unknown names,
and a health request while 1 000 half-sent requests are held. LABELCHEF_SOURCE names another copy of src/ to measure.
"""

import contextlib
import http.client
import json
import os
import re
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from benchmarks.serving import SLUG, Server, make_team
from labelchef.services import importing, worker
from labelchef.services.people import accounts
from labelchef.services.workspace import open_workspace

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
            importing.import_votes(ws, SLUG, Path(folder) / "votes.csv")
        server = Server(home)
        if "LABELCHEF_SOURCE" in os.environ:
            os.environ["PYTHONPATH"] = os.environ["LABELCHEF_SOURCE"]
        server.start()
        try:
            found = {"memory": _memory(server, token, at_once), "bodies": _bodies(server), "held": _held(server, held)}
        finally:
            server.stop()
    before, after, peak = found["memory"]
    console.print(f"{at_once} requests for the progress of {items} items: {before} → {after} MB, at most {peak} MB")
    console.print(
        f"health beside bodies of unknown names: median {found['bodies'][0]:.0f}, worst {found['bodies'][1]:.0f} ms"
    )
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


def _bodies(server: Server, seconds: float = 10.0) -> tuple[float, float]:
    """Median and worst milliseconds of a health request."""
    until, body = time.monotonic() + seconds, json.dumps({f"k{n}": 0 for n in range(90_000)}).encode()[: 2**20]
    small = json.dumps({f"k{n}": 0 for n in range(5_000)}).encode()

    def send() -> None:
        while time.monotonic() < until:
            for one in (body, small):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                    with contextlib.closing(connection):
                        connection.request("POST", "/api/session", one, {"Content-Type": "application/json"})
                        connection.getresponse().read()

    sender = threading.Thread(target=send)
    sender.start()
    found = []
    while time.monotonic() < until:
        start = time.perf_counter()
        _ask(server.port, "/api/health", {})
        found.append(1e3 * (time.perf_counter() - start))
        time.sleep(0.02)
    sender.join()
    return float(np.median(found)), max(found)


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
