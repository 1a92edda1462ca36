"""A campaign of 250 rounds computed again as another machine would: one thread, and other kernels of OpenBLAS.

The default settings, and INFL with look-ahead where trusted samples only steer; 20,000 × 64 samples in three classes, four labels
a round. For each environment: in how many rounds selection and metrics are the same, the same to rounding, or differ,
and in how many the model has other bits. The first line of each table, the same environment again, is what to compare with.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.restart import label
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.rebuild import Verdict
from labelchef.server.campaigns import trained
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.store import campaign_table
from labelchef.server.workspace import open_workspace

ROUNDS = 250
_DEFAULT = Settings(batch_size=4, budget=None)
SETTINGS: Mapping[str, Settings] = {
    "default": _DEFAULT,
    "INFL": replace(_DEFAULT, trusted="steer", selector="infl"),
}
ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "as it was": {},
    "one thread": {"OPENBLAS_NUM_THREADS": "1"},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
}


def main(console: Console, *, quick: bool = False) -> None:
    """Print a table for each kind of settings."""
    rounds, N = (10, 2_000) if quick else (ROUNDS, 20_000)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N + 200)
    X = 0.25 * rng.normal(size=(3, 64))[y] + rng.normal(size=(N + 200, 64))
    weak = rng.dirichlet(np.ones(3), N) + 0.3 * np.eye(3)[y[:N]]
    data = CampaignData.of(X[:N], weak / weak.sum(axis=1, keepdims=True), X_val=X[N:], y_val=y[N:])
    for name, settings in SETTINGS.items():
        console.print(
            f"settings: {name}\n\n| environment | selection | metrics | models of other bits |\n|---|---|---|---|"
        )
        with tempfile.TemporaryDirectory() as home:
            with open_workspace(Path(home)) as ws:
                made = create_campaign(ws, "Elsewhere", data, settings, "lead")
                with ws.reading() as connection:
                    row = campaign_table.find_campaign(connection, made.slug)
                label(ws, row, y, rounds)
            for there, environment in ELSEWHERE.items():
                console.print(f"| {there} | {_compared(home, made.slug, environment)} |")
        console.print()


def _compared(home: str, campaign: str, environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-m", "benchmarks.elsewhere", home, campaign]
    found = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    verdicts = json.loads(found.stdout)
    cells = []
    for part in ("selection", "metrics"):
        counts = Counter(one[part] for one in verdicts if one[part] is not None)
        cells.append(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]))
    models = [one["model"] for one in verdicts if one["model"] is not None]
    return f"{cells[0]} | {cells[1]} | {models.count(Verdict.DIFFERS)} of {len(models)}"


if __name__ == "__main__":
    with open_workspace(Path(sys.argv[1])) as ws:
        outcome = trained.replay(ws, sys.argv[2])
    parts = ("selection", "metrics", "model")
    print(json.dumps([{part: getattr(one, part) for part in parts} for one in outcome.rounds]))
