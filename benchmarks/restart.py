"""What a restart costs after few and after many rounds: the first model, reading the ledger, one fit.

A campaign of 20,000 × 64 samples in three classes, four labels a round, in SQLite. Beside the times stands how far the
rebuilt model is from the one that went through the rounds, and whether both would ask the same samples next.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.rebuild import rebuild
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.campaigns.trained import data_of, ledger_of, trained_now
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.store import campaign_table
from labelchef.server.store.rows import CampaignRow
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace

ROUNDS = (10, 300)
BATCH = 4


def main(console: Console, *, quick: bool = False) -> None:
    """Print the table."""
    rng, counts = np.random.default_rng(0), (3, 12) if quick else ROUNDS
    y = rng.integers(0, 3, 20_500)
    X = (rng.normal(size=(20_500, 64)) + 0.7 * np.eye(3, 64)[y]).astype(np.float32)
    data = CampaignData.of(X[:20_000], rng.dirichlet(np.ones(3), 20_000), X_val=X[20_000:], y_val=y[20_000:])
    settings = Settings(gamma=0.3, l2=0.01, budget=None, batch_size=BATCH)
    console.print(
        "| rounds | arrays and first model | reading the ledger | one fit | distance of the models | same next batch |"
    )
    console.print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home, open_workspace(Path(home)) as ws:
        made = create_campaign(ws, "Restart", data, settings, "lead")
        with ws.reading() as connection:
            row = campaign_table.find_campaign(connection, made.slug)
        costs = []
        for rounds in counts:
            label(ws, row, y, rounds)
            costs.append(_measure(ws, row, rounds, console))
    console.print(f"\nreading and fit after {counts[1]} rounds ÷ after {counts[0]}: {costs[1] / costs[0]:.2f}")


def label(ws: Workspace, row: CampaignRow, y: "np.ndarray[tuple[int], np.dtype[np.int64]]", rounds: int) -> None:
    """Answer batches with the truth until so many rounds are closed."""
    while True:
        advance(ws, row.slug)
        if len(trained_now(ws, row).session.rounds) > rounds:
            return
        found = next_tasks(ws, row.slug, "ann", BATCH)
        assert isinstance(found, list), found
        for task in found:
            cast_vote(ws, row.slug, "ann", task.item, int(y[int(task.item)]))


def _measure(ws: Workspace, row: CampaignRow, rounds: int, console: Console) -> float:
    """The parts of a restart, each the fastest of five."""
    whole, times = trained_now(ws, row).session, []
    for _ in range(5):
        marks = [time.perf_counter()]
        again = rebuild(data_of(ws, row), row.settings, [])
        marks.append(time.perf_counter())
        past = ledger_of(ws, row).rounds()[1:]
        marks.append(time.perf_counter())
        again.resume(past)
        marks.append(time.perf_counter())
        times.append(np.diff(marks))
    first, reading, following = np.min(times, axis=0)
    far = np.linalg.norm(again.parameters - whole.parameters) / (1 + np.linalg.norm(whole.parameters))
    same = np.array_equal(again.select(BATCH).indices, whole.select(BATCH).indices)
    ms = [f"{1e3 * seconds:.0f} ms" for seconds in (first, reading, following)]
    console.print(f"| {rounds} | {' | '.join(ms)} | {far:.1e} | {'yes' if same else 'no'} |")
    return float(reading + following)
