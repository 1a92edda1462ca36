"""Rounds without a sweep (`core/anchors.py`): sweeps a round beside those of constructor 'newton', and whether batches differ.

And what a first pass over an int8 copy of X would leave to read, with the proof that its error bounds give.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from labelchef import LabelCleaner
from labelchef.constructors import AnchoredConstructor, Constructor

BATCH, ROUNDS, COLUMNS = 10, 30, 32
SHARES = (0.01, 0.05)
SIZES = (200_000, 2_000_000, 10_000_000)


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    sizes, rounds = ((20_000, 60_000), 6) if quick else (SIZES, ROUNDS)
    table = Table(title=f"{rounds} rounds of {BATCH} labels, {COLUMNS} columns, selector infl, two classes")
    for column in (
        "rows",
        "regret allowed",
        "sweeps a round",
        "rounds without",
        "ms a round",
        "rows read",
        "same batch",
    ):
        table.add_column(column, justify="right")
    figures: dict[str, Any] = {}
    for N in sizes:
        problem = _problem(N)
        plain, batches = _campaign(problem, "newton", rounds)
        table.add_row(f"{N:,}", "newton", *_costs(plain, N), "")
        for share in SHARES:
            other, found = _campaign(problem, AnchoredConstructor(tol=1e-4, share=share), rounds)
            same = [len(np.intersect1d(one.indices, two.indices)) for one, two in zip(batches, found, strict=True)]
            table.add_row("", f"{share:.0%}", *_costs(other, N), f"{np.mean(same) / BATCH:.1%}")
            figures[f"{N} {share}"] = {"sweeps": float(_rounds(other)["sweeps"].mean()), "same": float(np.mean(same))}
    console.print(table)
    console.print("The first round of each is left out: it has no direction yet. Leverages take one pass over X, once.")
    _quantised(console, 20_000 if quick else 200_000)
    return figures


def _problem(N: int, d: int = COLUMNS, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Columns with a decaying spectrum; weak labels that are right in three of four cases."""
    rng = np.random.default_rng([seed, N, d])
    spectrum = ((1.0 + np.arange(d)) ** -0.5).astype(np.float32)
    X = rng.standard_normal((N + 500, d), dtype=np.float32)
    X *= spectrum / np.linalg.norm(spectrum)
    y = (X @ rng.normal(size=d).astype(np.float32) * 6.0 + rng.logistic(size=len(X)) > 0).astype(np.int64)
    right = np.where(rng.random(N) < 0.75, y[:N], 1 - y[:N])
    q = np.clip(right * 0.6 + 0.2 + 0.1 * rng.normal(size=N), 0.01, 0.99)
    return {"X": X[:N], "Y": np.stack([1 - q, q], axis=1), "y": y[:N], "X_val": X[N:], "y_val": y[N:]}


def _campaign(problem: dict[str, NDArray[Any]], constructor: str | Constructor, rounds: int) -> tuple[Any, list[Any]]:
    cleaner = LabelCleaner(
        trusted="steer", selector="infl", look_ahead=False, gamma=0.8, holdout=0, l2=0.01 / COLUMNS, budget=None,
        batch_size=BATCH, constructor=constructor, tol=1e-4,
    )  # fmt: skip
    cleaner.fit(problem["X"], problem["Y"], X_val=problem["X_val"], y_val=problem["y_val"])
    batches = []
    for _ in range(rounds):
        batches.append(cleaner.query())
        cleaner.update(batches[-1].indices, problem["y"][batches[-1].indices])
    return cleaner, batches


def _rounds(cleaner: LabelCleaner) -> Any:
    return cleaner.history_.iloc[2:]


def _costs(cleaner: LabelCleaner, N: int) -> list[str]:
    history = _rounds(cleaner)
    seconds = history["seconds_select"] + history["seconds_construct"]
    without = int((history["sweeps"] < 0.5).sum())
    read = f"{history['candidates'].mean():,.0f}" if without else f"{N:,}"
    return [f"{history['sweeps'].mean():.2f}", f"{without} of {len(history)}", f"{1e3 * seconds.median():.0f}", read]


def _quantised(console: Console, N: int) -> None:
    """Rows that could be among the ten best products, by an int8 copy with one scale a row and the exact norm of its error."""
    table = Table(
        title=f"a first pass over int8 instead of float32, {N:,} rows: rows left to read exactly, for the ten best of |X v|"
    )
    for column in ("columns", "bytes of X", "left by ‖x − x̂‖ ‖v‖", "ten best kept", "seconds int8 copy"):
        table.add_column(column, justify="right")
    for d in (64, 768):
        X = _problem(N, d)["X"]
        v = np.random.default_rng(1).normal(size=d).astype(np.float32)
        began = time.perf_counter()
        scale = np.abs(X).max(axis=1, keepdims=True) / 127.0
        Q = np.round(X / scale).astype(np.int8)
        seconds = time.perf_counter() - began
        error = np.linalg.norm(X - Q * scale, axis=1) * float(np.linalg.norm(v))
        rough, exact = np.abs((Q.astype(np.float32) @ v) * scale[:, 0]), np.abs(X @ v)
        reach = np.partition(rough - error, -10)[-10]
        left = rough + error >= reach
        kept = left[np.argsort(-exact)[:10]].all()
        table.add_row(str(d), "25 %", f"{left.mean():.3%}", "yes" if kept else "NO", f"{seconds:.1f}")
    console.print(table)
