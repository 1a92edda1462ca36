"""Campaigns of 100,000, 1,000,000 and 5,000,000 items side by side: what grows with the number of items, and what does not.

A campaign is made from files, as `labelchef init --folder` makes it: features.npy (N, 16) float32, items.parquet (id and a short
text), source_votes.parquet (three sources), 300 trusted rows. Every step runs in a process of its own, which tells its seconds
and its peak memory: `anon` is memory of its own, without files that are mapped. Then one `labelchef serve` process is asked for
pages, and people vote.

    python -m benchmarks items --sizes 100000 1000000 --databases sqlite postgres --folder DIR

What is measured is kept in the folder as JSON, and a second call goes on where the first ended; `--anew` forgets it. The last
table compares every size with the first one, and with a page of the same server that looks at no items (idle).
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from rich.console import Console
from rich.table import Table
from tests.store_support import PostgresServer

from benchmarks.browse import BASE, measured, timed
from benchmarks.serving import SLUG, Connection, Log, annotate, serving
from labelchef.base.campaigns import Role, Waiting
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import find_files

CLASSES = ("harmless", "spam", "unclear")
SOURCES = (("lexicon", 0.8), ("model", 0.7), ("rule", 0.6))
TRUSTED, WIDTH, BATCH, PEOPLE = 300, 16, 20, 4
_BLOCK = 200_000
_MIB = 1 << 20


def write_files(folder: Path, n: int) -> None:
    """The files of a campaign of `n` items, a block of rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    words = np.array([f"w{k}" for k in range(20_000)], dtype=object)
    with contextlib.ExitStack() as open_files:
        X = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (n, WIDTH))
        writers: dict[str, Any] = {}
        for start in range(0, n, _BLOCK):
            stop = min(n, start + _BLOCK)
            y, X[start:stop], votes = _drawn(rng, stop - start)
            drawn = words[rng.integers(0, len(words), (stop - start, 5))].tolist()
            often = rng.random(stop - start) < 1 / 3
            texts = [
                ("common word " if one else "other words ") + " ".join(row)
                for one, row in zip(often, drawn, strict=True)
            ]
            items = pa.table({"id": [f"m{k}" for k in range(start, stop)], "text": texts})
            for name, table in (("items", items), ("source_votes", pa.table(votes))):
                if name not in writers:
                    path = folder / f"{name}.parquet"
                    writers[name] = open_files.enter_context(pq.ParquetWriter(path, table.schema))
                writers[name].write_table(table)
        X.flush()
    y, X_val, votes = _drawn(rng, TRUSTED)
    np.save(folder / "val_features.npy", X_val)
    (folder / "val_labels.csv").write_text("label\n" + "\n".join(CLASSES[c] for c in y) + "\n")
    pq.write_table(pa.table(votes), folder / "val_source_votes.parquet")


def _drawn(rng: np.random.Generator, n: int) -> tuple[Any, Any, dict[str, list[str | None]]]:
    y = rng.integers(0, 3, n)
    X = (rng.normal(size=(n, WIDTH)) + 1.2 * np.eye(3, WIDTH)[y]).astype(np.float32)
    names, votes = np.array([*CLASSES, None], dtype=object), {}
    for name, right in SOURCES:
        said = np.where(rng.random(n) < right, y, rng.integers(0, 3, n))
        votes[name] = names[np.where(rng.random(n) < 0.7, said, 3)].tolist()
    return y, X, votes


class Watched:
    """Seconds and peak memory of what runs inside."""

    def __enter__(self) -> "Watched":
        self._over, self.anon = threading.Event(), 0
        self._before = self._now()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._began, self._worked = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._began, time.process_time() - self._worked
        self._over.set()
        self._thread.join()

    def _now(self) -> int:
        """Bytes of memory of its own, in use now."""
        text = Path("/proc/self/status").read_text()
        return int(text.split("RssAnon:", 1)[1].split()[0]) << 10

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.anon = max(self.anon, self._now())

    def told(self) -> dict[str, float]:
        """As it is kept."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {
            "seconds": self.seconds,
            "anon MiB": self.anon / _MIB,
            "peak MiB": peak,
            "start MiB": self._before / _MIB,
        }


# the steps, each in a process of its own


def create(home: Path, database: str | None, files: Path) -> dict[str, Any]:
    """Make the campaign, then people."""
    from labelchef.server.campaigns import campaigns
    from labelchef.server.people import accounts
    from labelchef.server.workspace import open_workspace

    settings = Settings(budget=None, batch_size=BATCH, people=1, lease_minutes=0.2)
    with open_workspace(home, database) as ws:
        accounts.create_account(ws, "lead", Role.LEAD, "correct horse battery")
        with Watched() as watched:
            made = campaigns.create_campaign(ws, SLUG, find_files(files, by_position=True), settings, "lead")
        tokens = {"lead": accounts.create_api_token(ws, "lead", "load")[0]}
        for name in (f"annotator-{k:02d}" for k in range(PEOPLE)):
            accounts.create_account(ws, name, Role.ANNOTATOR, None)
            accounts.set_member(ws, SLUG, name, "lead")
            tokens[name] = accounts.create_api_token(ws, name, "load")[0]
    (home / "tokens.json").write_text(json.dumps(tokens))
    return {**watched.told(), "items": made.n_items, "items/s": made.n_items / watched.seconds}


def steps(home: Path, database: str | None, _files: Path) -> dict[str, Any]:
    """The first model and three batches: seconds of every step of the worker, and of `next` and votes without a server."""
    from labelchef.server.campaigns.access import find
    from labelchef.server.campaigns.trained import due_step, lease_name, step
    from labelchef.server.labelling.tasks import next_tasks
    from labelchef.server.labelling.votes import cast_vote
    from labelchef.server.workspace import open_workspace

    found: dict[str, list[float]] = {}
    with (
        open_workspace(home, database) as ws,
        ws.leases.holding(lease_name(find(ws, SLUG))) as lease,
        Watched() as watched,
    ):
        for _ in range(3):
            while (due := due_step(ws, SLUG)) is not None:
                began = time.perf_counter()
                step(ws, SLUG, lease)
                found.setdefault(str(due), []).append(time.perf_counter() - began)
            while not isinstance(given := next_tasks(ws, SLUG, "annotator-00", 2), Waiting):
                cast_vote(ws, SLUG, "annotator-00", given[0].item, given[0].suggestion)
        while due_step(ws, SLUG) is not None:
            step(ws, SLUG, lease)
    return {**watched.told(), **{f"{name} s": float(np.median(values)) for name, values in found.items()}}


def restart(home: Path, database: str | None, _files: Path) -> dict[str, Any]:
    """The trained state of a new process."""
    from labelchef.server.campaigns.access import find
    from labelchef.server.campaigns.trained import trained_now
    from labelchef.server.workspace import open_workspace

    with open_workspace(home, database) as ws, Watched() as watched:
        trained_now(ws, find(ws, SLUG))
    return watched.told()


def export(home: Path, database: str | None, _files: Path) -> dict[str, Any]:
    """The data set as CSV."""
    from labelchef.server.export.take_home import export_dataset
    from labelchef.server.workspace import open_workspace

    with open_workspace(home, database) as ws, tempfile.TemporaryDirectory(dir=home) as folder, Watched() as watched:
        path = export_dataset(ws, SLUG, Path(folder) / "out.csv")
        rows = sum(block.count(b"\n") for block in iter_blocks(path)) - 1
    return {**watched.told(), "rows": rows, "rows/s": rows / watched.seconds}


def iter_blocks(path: Path) -> Iterator[bytes]:
    """A file in blocks."""
    with path.open("rb") as stream:
        while block := stream.read(1 << 22):
            yield block


def pages(home: Path, database: str | None, _files: Path, each: int = 20) -> dict[str, Any]:
    """What people ask a server for: milliseconds, p50 and p95."""
    tokens = json.loads((home / "tokens.json").read_text())
    lead = tokens.pop("lead")
    found: dict[str, list[float]] = {}
    log, rng = Log(), np.random.default_rng(1)

    async def whole(port: int) -> None:
        connection = Connection(port, lead)
        found["first page after a start"] = [(await timed(connection, BASE))[0]]
        found.update(await measured(port, lead, each, rng))
        for sort in ("order", "doubt", "influence", "label"):
            found[f"page 20 of 200, by {sort}"] = await _deep(connection, sort)
        n = (await timed(connection, BASE))[1]["total"]
        base = f"/api/campaigns/{SLUG}"
        for kind, path in (("an item", f"{BASE}/m{{}}/detail"), ("items like it (sweep)", f"{BASE}/m{{}}/similar")):
            found[kind] = [(await timed(connection, path.format(int(rng.integers(n)))))[0] for _ in range(each // 2)]
        for kind, path in (("map", f"{base}/map"), ("quality", f"{base}/quality"), ("status", f"{base}/status")):
            found[kind] = [(await timed(connection, path))[0] for _ in range(each)]
        connection.close()
        name, token = next(iter(tokens.items()))
        await annotate(port, name, token, log, lambda: 0.01, asyncio.Event(), most=BATCH * 3)
        found["vote + next"] = [1e3 * one for one in log.seconds]

    with serving(home, database) as server:
        asyncio.run(whole(server.port))
    return {
        kind: {"p50": float(np.percentile(values, 50)), "p95": float(np.percentile(values, 95))}
        for kind, values in found.items()
    }


async def _deep(connection: Connection, sort: str) -> list[float]:
    """Milliseconds of each of 20 pages, one behind the other."""
    path, after, found = f"{BASE}?sort={sort}&limit=200", "", []
    for _ in range(20):
        milliseconds, answer = await timed(connection, path + after)
        found.append(milliseconds)
        if answer["next"] is None:
            break
        after = f"&after={quote(answer['next'])}"
    return found[-5:]


STEPS = {"create": create, "steps": steps, "restart": restart, "pages": pages, "export": export}


# all of it


def run(
    console: Console, folder: Path, databases: Sequence[str], sizes: Sequence[int], *, each: int = 20
) -> dict[str, Any]:
    """Whatever is not measured yet; returns everything, by database, size and step."""
    figures: dict[str, Any] = {}
    for kind in databases:
        for n in sizes:
            place = folder / f"{kind}-{n}"
            with _database(kind, folder, n) as address:
                for name in STEPS:
                    kept = place / f"{name}.json"
                    if not kept.exists():
                        files = folder / f"files-{n}"
                        if name == "create" and not (files / "val_source_votes.parquet").exists():
                            write_files(files, n)
                        if name == "create" and place.exists():
                            shutil.rmtree(place)
                        console.print(f"{kind}, {n:,} items: {name} …", style="dim")
                        _measure(name, place, address, files, kept, each)
                    figures.setdefault(kind, {}).setdefault(n, {})[name] = json.loads(kept.read_text())
            figures[kind][n]["size"] = {
                "home MiB": _bytes(place) / _MIB,
                "database MiB": _bytes_of(folder, kind, n) / _MIB,
            }
    show(console, figures)
    return figures


def _measure(name: str, place: Path, address: str | None, files: Path, kept: Path, each: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.items", "--step", name, "--home", str(place / "home")]
    command += ["--files", str(files), "--each", str(each)] + ([] if address is None else ["--database", address])
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed in {place}: exit status {done.returncode}")
    kept.write_text(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def _database(kind: str, folder: Path, n: int) -> Iterator[str | None]:
    """The address of the database of a campaign; a PostgreSQL server runs meanwhile, its data stay in the folder."""
    if kind == "sqlite":
        yield None
        return
    inside = folder / f"{kind}-{n}-server"
    if not inside.is_dir():
        inside.mkdir(parents=True)
        inside.chmod(0o755)
        server = PostgresServer(inside)
    else:
        server = PostgresServer(inside, new=False)
    server.start()
    try:
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = 'items'"):
            server.execute("CREATE DATABASE items")
        yield server.url("items")
    finally:
        server.stop(fast=True)


def _bytes(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def _bytes_of(folder: Path, kind: str, n: int) -> int:
    if kind == "sqlite":
        return sum(one.stat().st_size for one in (folder / f"{kind}-{n}" / "home").glob("labelchef.db*"))
    return _bytes(folder / f"{kind}-{n}-server" / "data" / "base")


_ROWS = (
    ("creation, s", "create", "seconds"),
    ("creation, CPU s", "create", "cpu s"),
    ("creation, items/s", "create", "items/s"),
    ("creation, own memory at most, MiB", "create", "anon MiB"),
    ("creation, with mapped files, MiB", "create", "peak MiB"),
    ("fit, s", "steps", "fit s"),
    ("select, s", "steps", "select s"),
    ("count, s", "steps", "count s"),
    ("close, s", "steps", "close s"),
    ("worker, own memory at most, MiB", "steps", "anon MiB"),
    ("restart, s", "restart", "seconds"),
    ("export, s", "export", "seconds"),
    ("export, CPU s", "export", "cpu s"),
    ("export, rows/s", "export", "rows/s"),
    ("export, own memory at most, MiB", "export", "anon MiB"),
    ("database, MiB", "size", "database MiB"),
    ("home, MiB", "size", "home MiB"),
)


def show(console: Console, figures: dict[str, Any]) -> None:
    """Tables for the docs."""
    for kind, by_size in figures.items():
        sizes = list(by_size)
        made = Table(title=f"{kind}: making and moving on")
        made.add_column("")
        for n in sizes:
            made.add_column(f"{n:,}", justify="right")
        for title, step, key in _ROWS:
            values = [by_size[n].get(step, {}).get(key) for n in sizes]
            made.add_row(title, *("" if v is None else f"{v:,.1f}" if v < 100 else f"{v:,.0f}" for v in values))
        console.print(made)
        asked = Table(title=f"{kind}: requests, p50 / p95 ms, and p95 against {sizes[0]:,}")
        asked.add_column("")
        for n in sizes:
            asked.add_column(f"{n:,}", justify="right")
        asked.add_column("factor", justify="right")
        for name in by_size[sizes[0]].get("pages", {}):
            cells = [by_size[n]["pages"][name] for n in sizes if name in by_size[n]["pages"]]
            factor = cells[-1]["p95"] / cells[0]["p95"]
            asked.add_row(name, *(f"{one['p50']:.1f} / {one['p95']:.1f}" for one in cells), f"{factor:.1f}")
        console.print(asked)


def main(console: Console, *, quick: bool = False, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run and print; returns the figures."""
    options = _options(arguments)
    sizes = [2_000, 6_000] if quick else options.sizes
    if options.folder is None:
        with tempfile.TemporaryDirectory(prefix="lc-items-", dir="/tmp") as folder:
            Path(folder).chmod(0o755)
            return run(console, Path(folder), options.databases, sizes, each=3 if quick else options.each)
    if options.anew:
        shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    return run(console, options.folder.resolve(), options.databases, sizes, each=options.each)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks items")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--databases", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"])
    parser.add_argument("--folder", type=Path, help="where campaigns and results stay; a second call goes on there")
    parser.add_argument("--anew", action="store_true", help="forget what is in the folder")
    parser.add_argument("--each", type=int, default=20, help="requests of each kind")
    for name in ("--step", "--home", "--files", "--database"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _step(options: argparse.Namespace) -> None:
    more = {"each": options.each} if options.step == "pages" else {}
    found = STEPS[options.step](Path(options.home), options.database, Path(options.files), **more)
    print(json.dumps(found))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _step(_options(sys.argv[1:]))
