"""A large team on PostgreSQL: 300 annotators, a vote every two seconds each, on two web processes and one worker.

The same run measures one annotator on the idle server. Votes begin by the clock, not when the one before was answered, so a slow
server is not spared. Clients, web processes, worker and database share the machine: the last lines say how much of a processor
each of them took a vote, which is what limits. Every acknowledged vote must be in the ledger once.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tests.store_support import postgres_server

from benchmarks.serving import (
    SLUG,
    Connection,
    Log,
    Team,
    annotate,
    check_votes,
    free_port,
    make_team,
    wait_until_ready,
)

PERIOD = 2.0
"""Seconds between two votes of a person."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Fleet:
    """`labelchef serve --processes N`, and what it started."""

    port: int
    process: "subprocess.Popen[bytes]"
    children: dict[str, list[int]] = field(default_factory=dict)
    """Kind → process ids."""


@contextlib.contextmanager
def fleet(home: Path, database: str, processes: int) -> Iterator[Fleet]:
    """A server of several processes, stopped at the end."""
    port = free_port()
    words = ["serve", "--team", "--home", str(home), "--database", database, "--port", str(port)]
    words += ["--processes", str(processes)] if processes > 1 else []
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "labelchef", *words], stdout=log, stderr=log)
    try:
        yield Fleet(port, process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def processes_of(parent: int) -> dict[str, list[int]]:
    """The children of a process, by the command of labelchef that they run."""
    found: dict[str, list[int]] = {"serve": [], "worker": []}
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(one.name)
            if int((one / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                words = (one / "cmdline").read_bytes().decode().split("\0")
                found[words[words.index("labelchef") + 1]].append(pid)
    return found


def _seconds(pids: list[int]) -> float:
    """Processor time that processes have used."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(parts[11]) + int(parts[12])) / _TICKS
    return total


def _postgres() -> list[int]:
    found = []
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if one.name.isdecimal() and (one / "comm").read_text().strip() == "postgres":
                found.append(int(one.name))
    return found


async def by_the_clock(port: int, person: str, token: str, log: Log, first: float, until: float) -> None:
    """A person who votes every `PERIOD` seconds, from `first` on."""
    connection = Connection(port, token)
    base, tasks, at = f"/api/campaigns/{SLUG}", list[dict[str, Any]](), first
    while (now := time.perf_counter()) < until:
        await asyncio.sleep(max(0.0, at - now))
        at += PERIOD
        try:
            if not tasks:
                status, answer = await connection.call("POST", f"{base}/next", {"n": 2})
                tasks = answer["tasks"] if status == 200 else []
                log.refused += not tasks
                continue
            sent = {"item": tasks[0]["item"], "label": tasks[0]["suggestion"], "seconds": 1.0, "n": 2}
            begun = time.perf_counter()
            request = f"{person}-{time.monotonic_ns()}"
            status, answer = await connection.call("POST", f"{base}/votes", {**sent, "request_id": request})
        except OSError:
            log.refused += 1
            continue
        if status == 200:
            log.seconds.append(time.perf_counter() - begun)
            log.acknowledged[answer["vote"]["id"]] = (person, answer["vote"]["item"])
            tasks = answer["next"]["tasks"]
        else:
            log.refused += 1
            tasks = []
    connection.close()


async def _everybody(port: int, team: Team, log: Log, seconds: float, rng: np.random.Generator) -> None:
    now = time.perf_counter()
    phases = rng.uniform(0.0, PERIOD, len(team.tokens))
    people = [
        by_the_clock(port, name, token, log, now + phase, now + seconds)
        for (name, token), phase in zip(team.tokens.items(), phases, strict=True)
    ]
    await asyncio.gather(*people)


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    people, items, batch, seconds = (30, 5_000, 1_000, 8.0) if quick else (300, 100_000, 4_000, 60.0)
    with tempfile.TemporaryDirectory(prefix="labelchef-fleet-") as folder, postgres_server(durable=True) as postgres:
        return _run(console, Path(folder), postgres.new_database(), people, items, batch, seconds)


def _run(
    console: Console, home: Path, database: str, people: int, items: int, batch: int, seconds: float
) -> dict[str, Any]:
    team = make_team(home, people=people, items=items, batch=batch, database=database)
    rng = np.random.default_rng(2)
    idle, warm, load = Log(), Log(), Log()
    used: dict[str, float] = {}
    with fleet(home, database, 2) as servers:

        async def whole() -> None:
            while True:
                try:
                    await wait_until_ready(servers.port, team)
                    break
                except OSError:
                    await asyncio.sleep(0.2)
            name, token = next(iter(team.tokens.items()))
            await annotate(servers.port, name, token, idle, lambda: 0.05, asyncio.Event(), most=100)
            await _everybody(servers.port, team, warm, 3 * PERIOD, rng)
            kinds = {**processes_of(servers.process.pid), "clients": [os.getpid()], "postgres": _postgres()}
            before = {kind: _seconds(pids) for kind, pids in kinds.items()}
            await _everybody(servers.port, team, load, seconds, rng)
            kinds["postgres"] = _postgres()
            used.update({kind: _seconds(pids) - before[kind] for kind, pids in kinds.items()})

        asyncio.run(whole())
    every = {**idle.acknowledged, **warm.acknowledged, **load.acknowledged}
    stored = check_votes(home, database, Log(acknowledged=every))
    table = Table(
        title=f"vote + next, {people} annotators, one vote in {PERIOD:.0f} s each, {items:,} items, PostgreSQL, 2 web processes"
    )
    for column in ("load", "votes", "votes/s", "p50 ms", "p95 ms", "p99 ms", "p95 × idle"):
        table.add_column(column, justify="left" if column == "load" else "right")
    base = float(np.percentile(idle.seconds, 95))
    figures: dict[str, Any] = {"stored": stored, "acknowledged": len(every)}
    for word, log, length in (("one annotator, idle server", idle, None), (f"{people} annotators", load, seconds)):
        p50, p95, p99 = (1e3 * float(np.percentile(log.seconds, q)) for q in (50, 95, 99))
        rate = "" if length is None else f"{len(log.seconds) / length:.0f}"
        row = (word, str(len(log.seconds)), rate, f"{p50:.1f}", f"{p95:.1f}", f"{p99:.1f}", f"{p95 / 1e3 / base:.1f}")
        table.add_row(*row)
        figures[word] = {"p50": p50, "p95": p95, "p99": p99, "votes": len(log.seconds)}
    console.print(table)
    votes = max(1, len(load.seconds))
    each = ", ".join(f"{kind} {1e3 * spent / votes:.1f}" for kind, spent in used.items())
    share = sum(used.values()) / (seconds * (os.cpu_count() or 1))
    console.print(f"processor ms a vote: {each}; {share:.0%} of {os.cpu_count()} cores were used by these")
    console.print(
        f"{len(every)} votes acknowledged, {stored} in the ledger: none lost, none doubled; "
        f"{idle.refused + warm.refused + load.refused} refused or without an item"
    )
    return figures | {"processor": used}
