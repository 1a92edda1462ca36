"""A team on one server: 30 annotators at once against one `labelchef serve` process with SQLite.

First one annotator alone on the idle server, then all of them with the pauses of fast people, then all without any pause.
Every acknowledged vote must be in the ledger once. What happens when the server is killed is the matter of `torture/`.
"""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from labelchef.base.campaigns import Role
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.server.campaigns import campaigns
from labelchef.server.people import accounts
from labelchef.server.workspace import open_workspace

SLUG = "load"


@dataclass(frozen=True)
class Team:
    """A workspace with a campaign and people who hold API tokens."""

    home: Path
    tokens: dict[str, str]


@dataclass
class Log:
    """What the annotators saw: the seconds of every vote with its next item, and every vote the server acknowledged."""

    seconds: list[float] = field(default_factory=list)
    acknowledged: dict[str, tuple[str, str]] = field(default_factory=dict)
    refused: int = 0


def make_team(
    home: Path,
    *,
    people: int,
    items: int,
    features: int = 32,
    batch: int = 600,
    ahead: int = 0,
    trusted: int = 1000,
    database: str | None = None,
) -> Team:
    """A campaign of `items` texts in three classes, and `people` members of it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, items + trusted)
    X = (rng.normal(size=(items + trusted, features)) + 1.2 * np.eye(3, features)[y]).astype(np.float32)
    weak = 0.7 * np.eye(3)[np.where(rng.random(items) < 0.35, rng.integers(0, 3, items), y[:items])] + 0.1
    classes = np.array(["harmless", "spam", "unclear"])
    texts = {"id": [f"m{k}" for k in range(items)], "text": [f"Message {k}: is it spam?" for k in range(items)]}
    data = CampaignData.of(
        X[:items],
        weak / weak.sum(axis=1, keepdims=True),
        X_val=X[items:],
        y_val=classes[y[items:]],
        classes=classes.tolist(),
        contents=Contents(pd.DataFrame(texts)),
    )
    names = [f"annotator-{k:02d}" for k in range(people)]
    with open_workspace(home, database) as ws:
        accounts.create_account(ws, "lead", Role.LEAD, "correct horse battery")
        settings = Settings(budget=None, batch_size=batch, people=1, ahead=ahead, lease_minutes=0.2)
        campaigns.create_campaign(ws, SLUG, data, settings, "lead")
        tokens = {}
        for name in names:
            accounts.create_account(ws, name, Role.ANNOTATOR, None)
            accounts.set_member(ws, SLUG, name, "lead")
            tokens[name] = accounts.create_api_token(ws, name, "load")[0]
    return Team(home, tokens)


class Server:
    """One `labelchef serve` process on a port of this machine."""

    def __init__(self, home: Path, database: str | None = None) -> None:
        self._home, self._database = home, database
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (home / "server.log").open("ab")

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [
            sys.executable,
            "-m",
            "labelchef",
            "serve",
            "--team",
            "--home",
            str(self._home),
            "--port",
            str(self.port),
        ]
        command += [] if self._database is None else ["--database", self._database]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"the server did not start; see {self._home / 'server.log'}")

    def stop(self) -> None:
        """Stop as Ctrl-C does."""
        self._log.close()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextlib.contextmanager
def serving(home: Path, database: str | None = None) -> Iterator[Server]:
    """A server that is stopped at the end."""
    server = Server(home, database)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Connection:
    """A kept-alive HTTP connection, as little of it as is needed: the clients share the machine with the server."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Status and JSON of an answer; OSError if the server is not there. Bytes of another `kind` are sent as they are."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        try:
            writer.write(head.encode() + content)
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.split("content-length:", 1)[1].split("\r\n", 1)[0]) if "content-length:" in head else 0
            answer = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise OSError(str(error)) from None
        return int(head.split(" ", 2)[1]), json.loads(answer) if answer else None

    def move(self, port: int) -> None:
        """From now on, call another server."""
        self.close()
        self._port = port
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {self._token}\r\n"

    def close(self) -> None:
        """Drop the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def annotate(
    port: int, person: str, token: str, log: Log, pause: Callable[[], float], halt: asyncio.Event, most: int = 10**9
) -> None:
    """One person: votes, sends a vote again until it is acknowledged, waits where there is nothing to label."""
    connection = Connection(port, token)
    base = f"/api/campaigns/{SLUG}"
    tasks: list[dict[str, Any]] = []
    sent: dict[str, Any] | None = None
    serial = 0
    while not halt.is_set() and serial < most:
        try:
            if sent is None and not tasks:
                status, answer = await connection.call("POST", f"{base}/next", {"n": 2})
                tasks = answer["tasks"] if status == 200 else []
                if not tasks:
                    await asyncio.sleep(0.1)
                continue
            if sent is None:
                await asyncio.sleep(pause())
                serial += 1
                label = tasks[0]["suggestion"]
                request = f"{person}-{time.monotonic_ns()}"
                sent = {"item": tasks[0]["item"], "label": label, "seconds": 1.0, "request_id": request, "n": 2}
            begun = time.perf_counter()
            status, answer = await connection.call("POST", f"{base}/votes", sent)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        if status == 200:
            log.seconds.append(time.perf_counter() - begun)
            log.acknowledged[answer["vote"]["id"]] = (person, answer["vote"]["item"])
            tasks = answer["next"]["tasks"]
        elif status >= 500:
            continue
        else:
            log.refused += 1
            tasks = []
        sent = None
    connection.close()


async def crew(port: int, team: Team, log: Log, pause: Callable[[], float], during: Awaitable[None]) -> None:
    """Everybody at once, while `during` goes on."""
    halt = asyncio.Event()
    people = [asyncio.create_task(annotate(port, name, token, log, pause, halt)) for name, token in team.tokens.items()]
    try:
        await during
    finally:
        halt.set()
        await asyncio.gather(*people)


async def wait_until_ready(port: int, team: Team) -> None:
    """Until the first model is there."""
    connection = Connection(port, next(iter(team.tokens.values())))
    for _ in range(3000):
        status, answer = await connection.call("GET", f"/api/campaigns/{SLUG}")
        if status == 200 and answer["state"] == "running" and answer["round"] >= 1:
            connection.close()
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the first model did not come")


def check_ledger(home: Path, log: Log) -> int:
    """Every acknowledged vote is in the ledger, once; nobody's vote on an item counts twice. Returns the votes there."""
    return check_votes(home, None, log)


def check_votes(home: Path, url: str | None, log: Log) -> int:
    """`check_ledger` for a database by URL."""
    from labelchef.server.store.database import open_database

    database = open_database(url or home / "labelchef.db")
    with database.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT v.public_id, v.person, i.key, v.supersedes FROM vote v JOIN item i ON i.id = v.item_id"
        ).all()
    database.close()
    found = {row[0]: (row[1], row[2]) for row in rows}
    lost = [vote for vote in log.acknowledged if found.get(vote) != log.acknowledged[vote]]
    if lost:
        raise AssertionError(f"{len(lost)} acknowledged votes are not in the ledger, {lost[0]} the first")
    firsts = [(row[1], row[2]) for row in rows if row[3] is None]
    if len(firsts) != len(set(firsts)):
        raise AssertionError(f"{len(firsts) - len(set(firsts))} votes are doubled")
    return len(rows)


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    people, items, seconds = (8, 5_000, 5.0) if quick else (30, 100_000, 40.0)
    with tempfile.TemporaryDirectory(prefix="labelchef-load-") as folder:
        return _load(console, Path(folder), people, items, seconds)


def _load(console: Console, home: Path, people: int, items: int, seconds: float) -> dict[str, Any]:
    team = make_team(home, people=people, items=items)
    rng = np.random.default_rng(1)
    alone, calm, rush = Log(), Log(), Log()

    def human() -> float:
        return float(min(4.0, max(0.2, rng.exponential(1.0))))

    with serving(home) as server:

        async def whole() -> None:
            await wait_until_ready(server.port, team)
            name, token = next(iter(team.tokens.items()))
            await annotate(server.port, name, token, alone, lambda: 0.02, asyncio.Event(), most=200)
            await crew(server.port, team, calm, human, asyncio.sleep(seconds))
            await crew(server.port, team, rush, lambda: 0.0, asyncio.sleep(seconds / 2))

        asyncio.run(whole())
    everything = Log(acknowledged={**alone.acknowledged, **calm.acknowledged, **rush.acknowledged})
    stored = check_ledger(home, everything)
    table = Table(title=f"vote + next, {people} annotators, {items:,} items, one process, SQLite")
    for column in ("load", "votes", "votes/s", "p50 ms", "p95 ms", "p99 ms", "p95 × idle"):
        table.add_column(column, justify="left" if column == "load" else "right")
    idle = float(np.percentile(alone.seconds, 95))
    rows = [
        ("one annotator, idle server", alone, None),
        (f"{people}, about a vote a second each", calm, seconds),
        (f"{people}, without a pause", rush, seconds / 2),
    ]
    figures: dict[str, Any] = {"stored": stored, "acknowledged": len(everything.acknowledged)}
    for word, log, length in rows:
        p50, p95, p99 = (1e3 * float(np.percentile(log.seconds, q)) for q in (50, 95, 99))
        rate = "" if length is None else f"{len(log.seconds) / length:.0f}"
        table.add_row(
            word, str(len(log.seconds)), rate, f"{p50:.1f}", f"{p95:.1f}", f"{p99:.1f}", f"{p95 / 1e3 / idle:.1f}"
        )
        figures[word] = {"p50": p50, "p95": p95, "p99": p99, "votes": len(log.seconds)}
    console.print(table)
    refused = alone.refused + calm.refused + rush.refused
    console.print(
        f"{len(everything.acknowledged)} votes acknowledged, {stored} in the ledger: none lost, none doubled; {refused} refused"
    )
    return figures


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
