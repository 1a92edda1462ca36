"""The browser of items: pages of a list of 100,000 on one `labelchef serve` process with SQLite, and what they cost votes.

First the pages, one after the other, each kind of filter and order by itself and together, beside an idle page of the same
server (the campaign's summary), which is what any request costs here. Then annotators vote, without and with ten open
browser tabs: a tab loads a page, reads for a while, loads the next, and asks for the state once a minute as the page does.
"""

import asyncio
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.serving import SLUG, Connection, Log, Team, crew, serving, wait_until_ready
from labelchef.base.campaigns import Role
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.server.campaigns import campaigns
from labelchef.server.people import accounts
from labelchef.server.workspace import open_workspace

TABS = 10
_LIMIT_MS = 200.0
BASE = f"/api/campaigns/{SLUG}/items"
IDLE = "idle: the campaign's summary"
_KINDS = {
    "all, order of the data": "",
    "all, by doubt": "sort=doubt",
    "all, by influence": "sort=influence",
    "one class, by probability of the label": "predicted=spam&sort=label",
    "suspects": "suspect=true&sort=label",
    "a rare word": "q=w{rare}",
    "a word in a third of all": "q=common",
    "beginnings of words": "q=w1{digit}*",
    "a phrase": "q=" + quote('"common word"'),
    "a source, for a class": "source=lexicon&vote=spam",
    "sources disagree, by doubt": "disagree=sources&sort=doubt",
    "people disagree": "disagree=people",
    "answered by a person": "person=annotator-00",
    "word, class, disagreement, not answered, by influence": (
        "q=common&predicted=spam&disagree=model-sources&state=unanswered&sort=influence"
    ),
}


def make(home: Path, *, people: int, items: int) -> tuple[Team, str]:
    """A campaign of `items` texts of twelve words with votes of three sources, its members, and the token of a lead."""
    rng = np.random.default_rng(0)
    trusted, classes = 500, np.array(["harmless", "spam", "unclear"])
    y = rng.integers(0, 3, items + trusted)
    X = (rng.normal(size=(items + trusted, 32)) + 1.2 * np.eye(3, 32)[y]).astype(np.float32)
    words = rng.integers(0, 20_000, (items, 10))
    common = rng.random(items) < 1 / 3
    texts = [
        ("common word " if often else "other words ") + " ".join(f"w{k}" for k in row)
        for often, row in zip(common, words.tolist(), strict=True)
    ]
    votes = {}
    for name, right in (("lexicon", 0.8), ("model", 0.7), ("rule", 0.6)):
        said = np.where(rng.random(items + trusted) < right, y, rng.integers(0, 3, items + trusted))
        votes[name] = [
            name if speaks else None
            for name, speaks in zip(classes[said], rng.random(items + trusted) < 0.7, strict=True)
        ]
    table = pd.DataFrame(votes)
    data = CampaignData.of(
        X[:items],
        None,
        votes=table[:items],
        votes_val=table[items:].reset_index(drop=True),
        X_val=X[items:],
        y_val=classes[y[items:]],
        classes=classes.tolist(),
        contents=Contents(pd.DataFrame({"id": [f"m{k}" for k in range(items)], "text": texts})),
    )
    tokens = {}
    with open_workspace(home) as ws:
        accounts.create_account(ws, "lead", Role.LEAD, "correct horse battery")
        settings = Settings(budget=None, batch_size=600, people=1, lease_minutes=0.2)
        campaigns.create_campaign(ws, SLUG, data, settings, "lead")
        for name in (f"annotator-{k:02d}" for k in range(people)):
            accounts.create_account(ws, name, Role.ANNOTATOR, None)
            accounts.set_member(ws, SLUG, name, "lead")
            tokens[name] = accounts.create_api_token(ws, name, "load")[0]
        lead = accounts.create_api_token(ws, "lead", "load")[0]
    return Team(home, tokens), lead


async def timed(connection: Connection, path: str) -> tuple[float, Any]:
    """Milliseconds of a request, and its answer."""
    began = time.perf_counter()
    try:
        status, answer = await connection.call("GET", path)
    except OSError:  # the server has closed a connection on which nothing came for a while
        status, answer = await connection.call("GET", path)
    if status != 200:
        raise RuntimeError(f"{path}: {status} {answer}")
    return 1e3 * (time.perf_counter() - began), answer


async def measured(port: int, lead: str, each: int, rng: np.random.Generator) -> dict[str, list[float]]:
    """Milliseconds of pages by kind, in turn with an idle request; every other page is the one behind the page before."""
    connection = Connection(port, lead)
    found: dict[str, list[float]] = {IDLE: [], **{kind: [] for kind in _KINDS}}
    idle = f"/api/campaigns/{SLUG}"
    for kind, query in _KINDS.items():
        await timed(connection, f"{BASE}?{query.format(rare=7, digit=7)}")  # the first look at the files
        for _ in range(each):
            path = f"{BASE}?{query.format(rare=int(rng.integers(20_000)), digit=int(rng.integers(10)))}"
            milliseconds, answer = await timed(connection, path)
            found[kind].append(milliseconds)
            found[IDLE].append((await timed(connection, idle))[0])
            if answer["next"] is not None:
                found[kind].append((await timed(connection, f"{path}&after={quote(answer['next'])}"))[0])
    connection.close()
    return found


async def tab(port: int, lead: str, seconds: float, rng: np.random.Generator, log: list[float]) -> None:
    """A lead who looks through the items: a page every few seconds."""
    connection, until = Connection(port, lead), time.monotonic() + seconds
    kinds = itertools.cycle(rng.permutation(list(_KINDS.values())).tolist())
    while time.monotonic() < until:
        query = next(kinds).format(rare=int(rng.integers(20_000)), digit=int(rng.integers(10)))
        log.append((await timed(connection, f"{BASE}?{query}"))[0])
        await asyncio.sleep(float(rng.uniform(2.0, 6.0)))
    connection.close()


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    people, items, each, seconds = (4, 5_000, 5, 5.0) if quick else (20, 100_000, 40, 40.0)
    with tempfile.TemporaryDirectory(prefix="labelchef-browse-") as folder:
        return _run(console, Path(folder), people, items, each, seconds)


def _run(console: Console, home: Path, people: int, items: int, each: int, seconds: float) -> dict[str, Any]:
    began = time.perf_counter()
    team, lead = make(home, people=people, items=items)
    made = time.perf_counter() - began
    rng = np.random.default_rng(1)
    without, with_tabs, tabs = Log(), Log(), list[float]()
    pages: dict[str, list[float]] = {}

    def human() -> float:
        return float(min(4.0, max(0.2, rng.exponential(1.0))))

    async def open_tabs(port: int) -> None:
        await asyncio.gather(*(tab(port, lead, seconds, rng, tabs) for _ in range(TABS)))

    with serving(home) as server:

        async def whole() -> None:
            await wait_until_ready(server.port, team)
            await crew(
                server.port, team, Log(), lambda: 0.05, asyncio.sleep(seconds / 4)
            )  # some answers, a closed round
            pages.update(await measured(server.port, lead, each, rng))
            await crew(server.port, team, without, human, asyncio.sleep(seconds))
            await crew(server.port, team, with_tabs, human, open_tabs(server.port))

        asyncio.run(whole())
    console.print(f"campaign of {items:,} items made in {made:.1f} s, with its full-text index")
    table = Table(title=f"a page of 50 of {items:,} items, one process, SQLite")
    for column in ("page", "requests", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "page" else "right")
    figures: dict[str, Any] = {}
    every = [value for kind, values in pages.items() if not kind.startswith("idle") for value in values]
    for kind, values in (*pages.items(), ("all pages", every)):
        figures[kind] = _row(table, kind, values)
    console.print(table)
    votes = Table(title=f"vote + next, {people} annotators, about a vote a second each")
    for column in ("load", "requests", "p50 ms", "p95 ms", "p99 ms"):
        votes.add_column(column, justify="left" if column == "load" else "right")
    figures["votes"] = _row(votes, "nobody browses", [1e3 * one for one in without.seconds])
    figures["votes with tabs"] = _row(votes, f"{TABS} tabs browse", [1e3 * one for one in with_tabs.seconds])
    figures["tabs"] = _row(votes, "a page of these tabs", tabs)
    console.print(votes)
    verdict = "within" if figures["all pages"]["p95"] <= _LIMIT_MS else "above"
    console.print(f"p95 of all pages {figures['all pages']['p95']:.0f} ms: {verdict} the limit of {_LIMIT_MS:.0f} ms")
    return figures


def _row(table: Table, word: str, values: list[float]) -> dict[str, float]:
    p50, p95, p99 = (float(np.percentile(values, q)) for q in (50, 95, 99))
    table.add_row(word, str(len(values)), f"{p50:.1f}", f"{p95:.1f}", f"{p99:.1f}")
    return {"p50": p50, "p95": p95, "p99": p99, "requests": len(values)}
