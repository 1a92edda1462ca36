"""Selection without scoring every sample: how many samples the bounds leave, the time, and whether the batch is the same.

One campaign for each data set and batch size. In every round all selectors get the same V. Their time without the solve
is compared with that of Full's sweep, X·[W | V] and all scores, measured in the same round. Rounds 2 to 10 count.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks import real
from benchmarks.shapes import SHAPES, Data, Shape, make
from labelchef import LabelCleaner
from labelchef.chef.baselines import Theorem1Selector
from labelchef.chef.selectors import InflSelector, SelectionContext
from labelchef.chef.selectors.infl import solve_direction
from labelchef.loop.session import MOST_ATTEMPTS
from labelchef.model.contrasts import contrast
from labelchef.model.objective import Linear
from labelchef.model.order import smallest

ROUNDS = 10
BATCHES = (1, 10, 100)
PRUNED = "infl, pruned"
MILLION = Shape("million", 1_000_000, 768, 1_000, 1_000, 0.01)


def main(console: Console, *, quick: bool = False) -> pd.DataFrame:
    """Run and print; returns a row for each data set, batch size and selector."""
    rows: list[dict[str, Any]] = []
    for name, l2, data in _problems(quick):
        for b in (10,) if quick or name == "million" else BATCHES:
            rows += [_summary(row, name, data, b) for row in campaign(data, l2, b)]
            _print(console, name, data, b, rows)
    frame = pd.DataFrame(rows)
    equal = frame[frame["selector"] == PRUNED]["equal"].min()
    console.print(f"pruned selections equal to Full's: at least {equal:.0%} of the rounds of every campaign above")
    return frame


def _problems(quick: bool) -> Iterator[tuple[str, float, Data]]:
    for name in ("twitter",) if quick else SHAPES:
        yield name, SHAPES[name].l2, make(SHAPES[name])
    folder = real.data_folder()
    for name in () if folder is None else ("youtube_wrench",) if quick else real.SETS:
        assert folder is not None
        yield name, 1e-3, real.split(real.load(folder, name), seed=0)
    if not quick:
        yield MILLION.name, MILLION.l2, make(MILLION)


@dataclass(frozen=True)
class Round:
    """One selector in one round; seconds without the solve of H V = g_val, which all of them share."""

    candidates: int
    seconds: float
    full_seconds: float
    solve_seconds: float
    equal: bool


@dataclass(frozen=True)
class Measured:
    """A selector's rounds."""

    selector: str
    rounds: tuple[Round, ...]


def campaign(data: Data, l2: float, b: int, rounds: int = ROUNDS) -> list[Measured]:
    """One campaign, every selector asked in every round with the same V."""
    selectors: dict[str, Any] = {
        PRUNED: InflSelector(),
        "theorem 1": Theorem1Selector(),
        "theorem 1, μ-term only": Theorem1Selector(delta_terms=False),
    }
    cleaner = LabelCleaner(preset="paper", l2=l2, budget=None, batch_size=b)
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val)
    session = cleaner._session
    measured: dict[str, list[Round]] = {key: [] for key in selectors}
    for _ in range(rounds):
        context = session.context(next(session.labels.tiers(MOST_ATTEMPTS)))
        began = time.perf_counter()
        linear = solve_direction(context, tol=1e-6, max_iterations=500).linear
        solve = time.perf_counter() - began
        chosen, full = _full(context, linear, b)
        for key, selector in selectors.items():
            began = time.perf_counter()
            batch = selector.select_along(context, linear, b)
            seconds = time.perf_counter() - began
            same = np.array_equal(batch.indices, chosen)
            measured[key].append(Round(batch.diagnostics.candidates, seconds, full, solve, same))
        cleaner.query(1)  # so that V rides along with the update
        cleaner.update(chosen, data.y[chosen])
    return [Measured(key, tuple(found)) for key, found in measured.items()]


def _summary(measured: Measured, name: str, data: Data, b: int) -> dict[str, Any]:
    later = measured.rounds[1:]
    return {
        "data": name,
        "n": len(data.X),
        "d": data.X.shape[1],
        "b": b,
        "selector": measured.selector,
        "candidates": float(np.mean([r.candidates for r in later])) / len(data.X),
        "most": max(r.candidates for r in later) / len(data.X),
        "ratio": float(np.median([r.full_seconds / r.seconds for r in later])),
        "equal": float(np.mean([r.equal for r in measured.rounds])),
    }


def _full(context: SelectionContext, linear: Linear, b: int) -> tuple[Any, float]:
    """Full INFL by a sweep of its own."""
    objective, engine = context.objective, context.objective.engine
    began = time.perf_counter()
    out = engine.sweep(objective.labels, W=contrast(context.point.W), V=contrast(linear.V))
    assert out.products is not None
    best, _ = engine.scores(out.logits, out.products, objective.labels, context.eligible)
    chosen = smallest(best, b)
    return chosen, time.perf_counter() - began


def _print(console: Console, name: str, data: Data, b: int, rows: list[dict[str, Any]]) -> None:
    table = Table(
        title=f"{name}: {len(data.X):,} × {data.X.shape[1]:,}, C = {data.Y_weak.shape[1]}, b = {b}, rounds 2–10"
    )
    for column in ("selector", "candidates, mean", "most", "Full's sweep ÷ time", "equal"):
        table.add_column(column, justify="left" if column == "selector" else "right")
    for row in rows[-3:]:
        table.add_row(
            row["selector"], f"{row['candidates']:.2%}", f"{row['most']:.2%}", f"{row['ratio']:.1f}",
            f"{row['equal']:.0%}",
        )  # fmt: skip
    console.print(table)
