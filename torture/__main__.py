"""`python -m torture`: a campaign of faults; prints a table and ends with 1 if a count that must be zero is not.

A killed server is no proof against a power cut: what the operating system holds in memory survives a SIGKILL.
"""

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.status import Status
from tests.store_support import postgres_server

from torture.baseline import WAYS, Kept, measure
from torture.campaign import Episode, Results, markdown, plan, run, table
from torture.faults import FAULTS
from torture.nursery import Nursery
from torture.stage import POSTGRESQL, SQLITE, Workshop, can_mount


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=60, help="SIGKILLs in all, over servers, commands and databases")
    parser.add_argument("--times", type=int, default=2, help="strikes of every other fault on each kind of database")
    parser.add_argument("--hours", type=float, default=0.0, help="repeat with the next seeds until this time is over")
    parser.add_argument("--seed", type=int, default=0, help="every random choice follows from it")
    parser.add_argument("--only", action="append", default=[], choices=sorted(FAULTS), help="one fault; repeatable")
    parser.add_argument("--database", choices=(SQLITE, POSTGRESQL), help="one kind of database; the default is both")
    parser.add_argument(
        "--episode", type=int, help="with --only, --database and --times: one home of a longer run, again"
    )
    parser.add_argument("--patience", type=float, default=120.0, help="seconds in which the next round must come")
    parser.add_argument(
        "--out", type=Path, default=Path("torture-results"), help="folder of results, logs and failed homes"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the results that are in the folder")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell started it in the background
        signal.signal(number, signal.default_int_handler)
    console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 150)
    if not options.resume:
        shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    databases = (options.database,) if options.database else (SQLITE, POSTGRESQL)
    results = Results(options.out / "results.jsonl")
    deadline = time.monotonic() + 3600 * options.hours
    with contextlib.ExitStack() as stack:
        folder = (options.out / f"run-{time.time_ns()}").resolve()
        folder.mkdir()
        postgres = stack.enter_context(postgres_server()) if POSTGRESQL in databases else None
        nursery = stack.enter_context(Nursery(folder))
        shop = Workshop(folder, nursery, postgres, options.patience)
        seed = options.seed
        try:
            while True:
                _run_all(console, shop, _episodes(options, databases, seed), results)
                seed += 1
                if time.monotonic() >= deadline:
                    break
        except KeyboardInterrupt:
            console.print(f"interrupted; --resume goes on with what is in {options.out}")
    rows = results.rows()
    console.print(table(rows))
    (options.out / "table.md").write_text(markdown(rows) + "\n")
    for one in _without(options):
        console.print(
            f"without labelchef, {one.way}: {one.kills} kills, {one.acknowledged:,} answers acknowledged, {one.lost:,} lost, "
            f"after {one.harmed} of the kills"
        )
    kills = sum(one.kills for one in rows.values())
    left = sum(one.left for one in rows.values())
    console.print(
        f"{kills} SIGKILLs of servers and commands; seed {options.seed}; {left} temporary files left; {options.out}/table.md"
    )
    return int(any(one.bad for one in rows.values()))


def _without(options: argparse.Namespace) -> list[Kept]:
    """The same kills of scripts that keep answers in a file; not beside a single fault."""
    if options.only:
        return []
    with tempfile.TemporaryDirectory(prefix="torture-baseline-") as folder:
        return [measure(Path(folder), way, min(options.kills, 200), options.seed) for way in WAYS]


def _episodes(options: argparse.Namespace, databases: tuple[str, ...], seed: int) -> list[Episode]:
    if options.episode is not None:
        if len(options.only) != 1 or options.database is None:
            raise SystemExit("--episode needs one --only and a --database; the line of the episode shows the command")
        return [Episode(options.only[0], options.database, options.episode, options.times, seed)]
    return plan(options.kills, options.times, databases, seed, options.only)


def _run_all(console: Console, shop: Workshop, episodes: list[Episode], results: Results) -> None:
    mounts = can_mount(shop.folder)
    for k, episode in enumerate(episodes, 1):
        if episode.key in results.found:
            continue
        if FAULTS[episode.fault].disk and not mounts:
            console.print(f"{episode.key}: left out, only root may mount a small disk")
            continue
        with console.status("") as shown:

            def strike(number: int, episode: Episode = episode, shown: Status = shown) -> None:
                shown.update(f"{episode.key}: {number} of {episode.times}")

            result = run(shop, episode, strike)
        results.add(result)
        verdict = "BAD" if result.bad else "ok"
        console.print(
            f"{k}/{len(episodes)} {episode.key}: {result.times} times, {result.acknowledged} acknowledged, "
            f"{result.rounds} rounds, {result.seconds:.1f} s, {verdict}"
        )
        for note in result.notes:
            console.print(f"    {note}", markup=False)
        if result.bad:
            console.print(f"    again: {episode.again}")


if __name__ == "__main__":
    sys.exit(main())
