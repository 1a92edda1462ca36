"""Rounds of one campaign while another one trains its first model, in the same worker.

A round is the wall time from the last vote of a batch to the moment at which the next batch is out. The same campaign is measured
first alone, then beside first fits of a large campaign, which begin again as soon as one ends. Selections do not depend on what
runs beside: both parts must ask for as many items.
"""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from labelchef.base.campaigns import CampaignState
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.labelling import tasks, votes
from labelchef.server.workspace import Workspace, open_workspace

BATCH = 10


def _data(items: int, features: int, seed: int) -> CampaignData:
    rng = np.random.default_rng(seed)
    trusted = 500
    y = rng.integers(0, 3, items + trusted)
    X = (rng.normal(size=(items + trusted, features)) + 0.4 * np.eye(3, features)[y]).astype(np.float32)
    weak = 0.7 * np.eye(3)[np.where(rng.random(items) < 0.35, rng.integers(0, 3, items), y[:items])] + 0.1
    texts = {"id": [f"m{k}" for k in range(items)], "text": ["?"] * items}
    return CampaignData.of(
        X[:items],
        weak / weak.sum(axis=1, keepdims=True),
        X_val=X[items:],
        y_val=np.array(["a", "b", "c"])[y[items:]],
        classes=["a", "b", "c"],
        contents=Contents(pd.DataFrame(texts)),
    )


def _round(ws: Workspace, campaign: str) -> float:
    """Answer the open batch; seconds from its last vote to the next batch."""
    while True:
        found = tasks.next_tasks(ws, campaign, "ann", BATCH)
        if isinstance(found, list):
            break
        worker.wait_for_change(ws, campaign, campaigns.summary(ws, campaign).version, 0.5)
    before = len(campaigns.status(ws, campaign).rounds)
    for task in found:
        votes.cast_vote(ws, campaign, "ann", task.item, task.suggestion or 0)
    begun = time.perf_counter()
    while True:
        now = campaigns.status(ws, campaign)
        if len(now.rounds) > before and now.open_round is not None:
            return time.perf_counter() - begun
        worker.wait_for_change(ws, campaign, now.summary.version, 0.5)


class _Fits:
    """First fits, one after another, until the block ends."""

    def __init__(self, ws: Workspace, data: CampaignData) -> None:
        self._ws, self._data = ws, data
        self._halt = threading.Event()
        self.begun = threading.Event()
        self.fits = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "_Fits":
        self._thread.start()
        self.begun.wait(300)
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._halt.is_set():
            self.fits += 1
            made = campaigns.create_campaign(self._ws, f"Large {self.fits}", self._data, Settings(), "lead").slug
            while not self._halt.wait(0.2):
                self.begun.set()
                if campaigns.summary(self._ws, made).state is not CampaignState.PREPARING:
                    break
            campaigns.stop(self._ws, made, "lead")


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    small, large, features, rounds = (2_000, 5_000, 32, 5) if quick else (20_000, 200_000, 256, 40)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="labelchef-beside-") as home, open_workspace(Path(home)) as ws:
        campaign = campaigns.create_campaign(
            ws, "Small", _data(small, 64, 1), Settings(batch_size=BATCH, people=1, budget=None), "lead"
        ).slug
        other = _data(large, features, 2)
        with worker.Worker(ws):
            for _ in range(2):
                _round(ws, campaign)
            figures["alone"] = [_round(ws, campaign) for _ in range(rounds)]
            with _Fits(ws, other) as fits:
                figures["beside first fits"] = [_round(ws, campaign) for _ in range(rounds)]
            figures["fits"] = fits.fits
    table = Table(
        title=f"wall time of a round, {small:,} items, beside first fits of {large:,} × {features}, one worker"
    )
    for column in ("", "rounds", "p50 ms", "p95 ms", "p95 ÷ alone"):
        table.add_column(column, justify="right" if column else "left")
    alone = float(np.percentile(figures["alone"], 95))
    for name in ("alone", "beside first fits"):
        p50, p95 = (1e3 * float(np.percentile(figures[name], q)) for q in (50, 95))
        table.add_row(name, str(rounds), f"{p50:.0f}", f"{p95:.0f}", f"{p95 / 1e3 / alone:.2f}")
    console.print(table)
    console.print(
        f"{fits.fits} first fits were begun meanwhile; without a worker of several threads every round would wait for them"
    )
    return figures
