"""What a signed ledger costs: the size of the file, and the time to write it, to verify it and to check the links of a round.
Clusters in 20 columns of three classes with six sources (right in 50 to 85 % of their votes, voting on 60 % of the samples), 150
trusted samples, two votes an item. Times are of the processor, so that other work on the machine does not count.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.export.proof import write_ledger
from labelchef.server.export.verifying import verify_ledger
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.ledger.links import check_links
from labelchef.server.worker import advance
from labelchef.server.workspace import open_workspace

TRUSTED, COLUMNS, SOURCES = 150, 20, 6


def main(console: Console, *, quick: bool = False) -> None:
    """Print the table."""
    console.print(
        "| items | votes | rounds | ledger file | writing | verifying | links of one round |\n|---|---|---|---|---|---|---|"
    )
    for n, rounds in ((1_000, 5),) if quick else ((1_000, 25), (20_000, 10)):
        _ledger(console, n, rounds)


def _drawn(C: int, n: int, trusted: int) -> tuple[dict[str, Any], NDArray[np.int64]]:
    rng = np.random.default_rng(C)
    y = rng.integers(0, C, n + trusted)
    X = rng.normal(size=(n + trusted, COLUMNS)) + 1.4 * np.eye(C, COLUMNS)[y]
    votes = np.full((n + trusted, SOURCES), -1)
    for j, accuracy in enumerate(np.linspace(0.5, 0.85, SOURCES)):
        said = np.where(rng.random(n + trusted) < accuracy, y, rng.integers(0, C, n + trusted))
        votes[:, j] = np.where(rng.random(n + trusted) < 0.6, said, -1)
    data = {
        "X": X[:n],
        "votes": votes[:n],
        "X_val": X[n:],
        "y_val": y[n:],
        "votes_val": votes[n:],
        "classes": list(range(C)),
    }
    return data, y[:n]


def _ledger(console: Console, n: int, rounds: int) -> None:
    data, y = _drawn(3, n, TRUSTED)
    settings = Settings(people=2, batch_size=10, budget=10 * rounds, gamma=0.3, l2=0.01)
    with tempfile.TemporaryDirectory() as folder, open_workspace(Path(folder) / "home") as ws:
        made = create_campaign(ws, "Ledger", CampaignData.of(**data), settings, "lead").slug
        advance(ws, made)
        votes = 0
        while isinstance(tasks := next_tasks(ws, made, "ann", 10), list):
            for task in tasks:
                for person in ("ann", "bob"):
                    next_tasks(ws, made, person, 10)
                    cast_vote(ws, made, person, task.item, int(y[int(task.item)]))
                    votes += 1
            advance(ws, made)
        path = Path(folder) / "ledger.jsonl"
        began = time.process_time()
        write_ledger(ws, made, path)
        wrote = time.process_time() - began
        began = time.process_time()
        assert verify_ledger(path).intact
        checked = time.process_time() - began
        row = find(ws, made)
        began = time.process_time()
        with ws.reading() as connection:
            state = check_links(connection, row.id)
        each = (time.process_time() - began) / state.linked
        size = path.stat().st_size / 1e6
        console.print(
            f"| {n} | {votes} | {state.linked} | {size:.2f} MB | {wrote:.2f} s | {checked:.2f} s | {1000 * each:.1f} ms |"
        )
