"""What a SIGKILL does to answers that are kept as people keep them without a server: rows of a CSV file.

    appended     one row an answer, in a file that stays open, as `csv.writer` in a loop does
    flushed      the same, with `flush` after every row
    rewritten    the whole table after every answer, as `frame.to_csv` in a notebook does

A child stores answers and acknowledges each by a byte in a pipe; it is killed at a random moment; the file is read again.
"""

import contextlib
import csv
import functools
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 800
"""Answers a child stores at most, and rows of the table that is rewritten."""


@dataclass
class Kept:
    """What was left after all kills."""

    way: str
    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    harmed: int = 0
    """Kills after which the file lacked acknowledged answers."""


def _append(path: Path, acknowledge: Callable[[], object], *, flush: bool = False) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["item", "label"])
        for k in range(ROWS):
            writer.writerow([f"m{k}", "spam"])
            if flush:
                stream.flush()
            acknowledge()
            time.sleep(0.001)


def _rewrite(path: Path, acknowledge: Callable[[], object]) -> None:
    frame = pd.DataFrame({"item": [f"m{k}" for k in range(ROWS)], "label": [""] * ROWS})
    for k in range(ROWS):
        frame.loc[k, "label"] = "spam"
        frame.to_csv(path, index=False)
        acknowledge()


WAYS: dict[str, Callable[[Path, Callable[[], object]], None]] = {
    "answers appended to a CSV file": _append,
    "answers appended and flushed": functools.partial(_append, flush=True),
    "table rewritten after every answer": _rewrite,
}


def measure(folder: Path, way: str, kills: int, seed: int) -> Kept:
    """Kill a script that keeps answers in this way, so many times."""
    rng = np.random.default_rng(seed)
    kept = Kept(way)
    for k in range(kills):
        path = folder / f"answers-{k}.csv"
        told = _killed(path, WAYS[way], float(rng.uniform(0.02, 0.3)))
        there = _answers(path)
        kept.kills, kept.acknowledged = kept.kills + 1, kept.acknowledged + told
        kept.lost, kept.harmed = kept.lost + max(0, told - there), kept.harmed + (there < told)
        path.unlink(missing_ok=True)
    return kept


def _killed(path: Path, script: Callable[[Path, Callable[[], object]], None], seconds: float) -> int:
    """Run a script and kill it; how many answers it acknowledged."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            script(path, lambda: os.write(into, b"."))
        os._exit(0)
    os.close(into)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(out, "rb") as stream:
        return len(stream.read())


def _answers(path: Path) -> int:
    """Rows of the file that hold an answer; half a row is none."""
    if not path.exists():
        return 0
    return sum(1 for line in path.read_text().splitlines() if line.endswith(",spam"))
