"""`python -m torture.workers`: workers of a cluster are killed at random during rounds; every selection must be that of a run
without kills.

An episode is a small campaign on a local cluster of processes. Its rounds are run once undisturbed. Then they are run again
while a thread kills (SIGKILL) a worker at a time, at random moments; Dask starts a new process in its place. Compared are the
samples and suggestions of every round, and the parameters of the last model bit by bit. What the user has without this: a
campaign in one process, which a kill ends.
"""

import argparse
import json
import os
import signal
import threading
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from labelchef import EngineSettings, LabelCleaner
from labelchef.model.engines.cluster import ClusterError
from labelchef.model.engines.cluster.dask_workers import local_cluster

SELECTORS = ("expected_infl", "margin", "infl")
ROWS, COLUMNS, TRUSTED, ROUNDS = 3000, 16, 60, 3
_LAST = 0.1  # chance to kill the last worker that is left, too, at every look


@dataclass(frozen=True)
class Episode:
    """One campaign, run undisturbed and then with kills."""

    seed: int
    selector: str
    rounds: int
    kills: int
    lost: int
    """Workers whose loss the engine noticed."""
    equal: int
    """Rounds whose samples and suggestions were those of the undisturbed run."""
    identical: bool
    """Whether the parameters of the last model were the same bit by bit."""
    seconds: float
    error: str = ""


class Killer(threading.Thread):
    """Kills a random worker process of a cluster at random moments, until it is told to stop."""

    def __init__(self, processes: Any, rng: np.random.Generator, mean_seconds: float, most: int) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self._processes, self._rng, self._mean, self._most = processes, rng, mean_seconds, most
        self._over = threading.Event()

    def run(self) -> None:
        """Kill."""
        while self.kills < self._most and not self._over.wait(float(self._rng.exponential(self._mean))):
            known = set(self._processes.scheduler.workers)  # a process that has not joined yet holds nothing
            nannies = [nanny for nanny in list(self._processes.workers.values()) if nanny.worker_address in known]
            alive = [nanny.pid for nanny in nannies if nanny.pid is not None]
            if len(alive) > 1 or (alive and self._rng.random() < _LAST):
                try:
                    os.kill(int(self._rng.choice(sorted(alive))), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.kills += 1

    def stop(self) -> None:
        """Kill nobody from now on."""
        self._over.set()
        self.join()


def problem(seed: int) -> tuple[Any, ...]:
    """X, weak labels, trusted samples and their classes, the truth."""
    rng = np.random.default_rng(seed)
    C = 2 + seed % 2
    y = rng.integers(0, C, ROWS + TRUSTED)
    X = (rng.normal(size=(len(y), COLUMNS)) + 0.7 * rng.normal(size=(C, COLUMNS))[y]).astype(np.float32)
    weak = rng.dirichlet(np.ones(C), ROWS) + 0.4 * np.eye(C)[y[:ROWS]]
    return X[:ROWS], weak / weak.sum(axis=1, keepdims=True), X[ROWS:], y[ROWS:], y[:ROWS]


def rounds_of(address: str, selector: str, seed: int, rounds: int) -> tuple[list[Any], Any, int]:
    """Samples and suggestions of every round, the parameters of the last model, and how many workers were lost."""
    X, weak, X_val, y_val, truth = problem(seed)
    cleaner = LabelCleaner(
        selector=selector, budget=None, batch_size=12, engine=EngineSettings("dask", cluster=address), random_state=seed
    )
    cleaner.fit(X, weak, X_val=X_val, y_val=y_val)
    chosen = []
    for _ in range(rounds):
        batch = cleaner.query()
        chosen.append((batch.indices.tolist(), batch.suggested.tolist()))
        cleaner.update(batch.indices, truth[batch.indices])
    pace = cleaner._fitted().objective.engine.pace()
    return chosen, cleaner.W_, 0 if pace is None else pace.lost


def episode(processes: Any, seed: int, kills: int, rounds: int = ROUNDS, mean_seconds: float = 0.7) -> Episode:
    """One campaign with at most so many kills."""
    address, selector = processes.scheduler_address, SELECTORS[seed % len(SELECTORS)]
    before, W, _ = rounds_of(address, selector, seed, rounds)
    killer, began = Killer(processes, np.random.default_rng([seed, 0xDEAD]), mean_seconds, kills), time.perf_counter()
    killer.start()
    try:
        after, W_after, lost = rounds_of(address, selector, seed, rounds)
    except ClusterError as error:
        killer.stop()
        spent = time.perf_counter() - began
        return Episode(seed, selector, rounds, killer.kills, 0, 0, identical=False, seconds=spent, error=str(error))
    killer.stop()
    equal = sum(one == other for one, other in zip(before, after, strict=True))
    spent = time.perf_counter() - began
    same = bool(np.array_equal(W, W_after))
    return Episode(seed, selector, rounds, killer.kills, lost, equal, identical=same, seconds=spent)


def main() -> int:
    """Parse, run, print; 1 if a selection differed."""
    parser = argparse.ArgumentParser(prog="python -m torture.workers", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="SIGKILLs in all")
    parser.add_argument("--workers", type=int, default=3, help="processes of the cluster")
    parser.add_argument("--minutes", type=float, default=7.5, help="end after this time; --resume goes on")
    parser.add_argument("--out", type=Path, default=Path("torture-workers.jsonl"), help="results, a line an episode")
    parser.add_argument("--resume", action="store_true", help="go on with the results that are in the file")
    options = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    warnings.simplefilter("ignore")
    if not options.resume:
        options.out.unlink(missing_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    found, until = [Episode(**json.loads(line)) for line in lines], time.monotonic() + 60 * options.minutes
    with local_cluster(workers=options.workers) as processes:
        while (left := options.kills - sum(one.kills for one in found)) > 0 and time.monotonic() < until:
            seed = max((one.seed for one in found), default=-1) + 1
            found.append(episode(processes, seed, left))
            with options.out.open("a") as stream:
                stream.write(json.dumps(asdict(found[-1])) + "\n")
            console.print(
                f"{seed}: {found[-1].selector}, {found[-1].kills} kills, {found[-1].equal}/{found[-1].rounds} equal"
            )
    table = Table(
        "selector", "episodes", "rounds", "kills", "workers lost", "rounds not equal", "models not identical", "errors"
    )
    for selector in (*SELECTORS, "all"):
        rows = [one for one in found if selector in (one.selector, "all")]
        numbers = [
            len(rows),
            sum(one.rounds for one in rows),
            sum(one.kills for one in rows),
            sum(one.lost for one in rows),
            sum(one.rounds - one.equal for one in rows if not one.error),
            sum(not one.identical for one in rows if not one.error),
            sum(bool(one.error) for one in rows),
        ]
        table.add_row(selector, *map(str, numbers))
    console.print(table)
    console.print(
        f"{options.workers} workers; {sum(one.seconds for one in found):.0f} s with kills; results in {options.out}"
    )
    for one in found:
        if one.error:
            console.print(f"episode {one.seed}: {one.error}")
    return int(any(one.error or one.equal < one.rounds or not one.identical for one in found))


if __name__ == "__main__":
    raise SystemExit(main())
