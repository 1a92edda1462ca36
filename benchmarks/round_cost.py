"""What a round (select + update) costs, in units of one X @ w measured in the same run, and what it adds in memory.

Fidelity: the same round's influence from a plain NumPy gradient and scipy's conjugate gradients.
"""

import tracemalloc
from typing import Any

import numpy as np
import scipy.sparse.linalg as spl
from rich.console import Console
from rich.table import Table

from benchmarks.shapes import SHAPES, Data, Shape, make, median_seconds
from labelchef import LabelCleaner
from labelchef.chef.constructors import NewtonConstructor
from labelchef.model.order import smallest

ROUNDS, BATCH = 11, 10
STEERED: dict[str, Any] = {
    "trusted": "steer",
    "selector": "increm_infl",
    "gamma": 0.8,
    "holdout": 0,
    "constructor": NewtonConstructor(tol=1e-5),
}


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    shape = SHAPES["twitter"] if quick else SHAPES["mimic"]
    data = make(shape)
    w = np.ones(shape.n_features, dtype=np.float32)
    units = [median_seconds(lambda: data.X @ w)]
    cleaner = LabelCleaner(**STEERED, l2=shape.l2, budget=None, batch_size=BATCH)
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val)
    for _ in range(ROUNDS):
        batch = cleaner.query()
        cleaner.update(batch.indices, data.y[batch.indices])
    fidelity = _fidelity(cleaner, data, shape)
    units.append(median_seconds(lambda: data.X @ w))
    unit = float(np.median(units))
    history = cleaner.history_.iloc[2:]  # the initialisation and the first round aside
    parts = {phase: float(history[f"seconds_{phase}"].median()) for phase in ("select", "construct", "evaluate")}
    total = parts["select"] + parts["construct"]
    added = _added_memory(data, shape)
    factor = 8 * (shape.n_features + 1) ** 2

    table = Table(
        title=f"a round at {shape.n_train:,} × {shape.n_features:,}, C = 2, b = {BATCH} (median of {len(history)})"
    )
    for column in ("part", "milliseconds", "× one X @ w"):
        table.add_column(column, justify="left" if column == "part" else "right")
    first = float(cleaner.history_["seconds_construct"].iloc[0])
    rows = [("one X @ w", unit), ("select", parts["select"]), ("update", parts["construct"]), ("round", total)]
    for name, seconds in [*rows, ("evaluate", parts["evaluate"]), ("first model", first)]:
        table.add_row(name, f"{1e3 * seconds:.1f}", f"{seconds / unit:.2f}")
    console.print(table)
    console.print(
        f"sweeps a round: {history['sweeps'].median():.2f}; ‖∇F‖ at most {history['gradient_norm'].max():.1e}"
    )
    console.print(f"samples evaluated to select: {history['candidates'].mean() / shape.n_train:.2%} on average")
    console.print(
        f"memory beyond X: {added / 2**20:.0f} MiB at most, "
        f"{(added - factor) / data.X.nbytes:.1%} of X beside one D×D factor"
    )
    console.print(
        f"against plain NumPy and scipy: top-{BATCH} overlap {fidelity['overlap']}/{BATCH}, "
        f"largest relative difference of the influence {fidelity['difference']:.1e}"
    )
    return {"ratio": total / unit, "memory": (added - factor) / data.X.nbytes, **fidelity}


def _fidelity(cleaner: LabelCleaner, data: Data, shape: Shape) -> dict[str, Any]:
    """Influence of the next round by other means: one logit column, float64, scipy's CG without a preconditioner."""
    ours = cleaner.scores()
    W = cleaner.W_
    u = (W[:, 1] - W[:, 0]).astype(np.float64)
    N, weight = len(data.X), np.where(cleaner.cleaned_, 1.0, 0.8)

    def forward(v: Any) -> Any:
        return (data.X @ v[:-1].astype(np.float32)).astype(np.float64) + v[-1]

    def backward(r: Any) -> Any:
        return np.append((r.astype(np.float32) @ data.X).astype(np.float64), r.sum())

    p = 1.0 / (1.0 + np.exp(-forward(u)))
    bend = weight * p * (1 - p)
    # V of class 1 against class 0 solves (2 Xᵀ diag(bend) X / N + λ) v = 2 g for g the gradient of class 1.
    operator = spl.LinearOperator(
        (len(u), len(u)), matvec=lambda v: 2 * backward(bend * forward(v)) / N + shape.l2 * v, dtype=np.float64
    )
    p_val = 1.0 / (1.0 + np.exp(-(data.X_val @ u[:-1] + u[-1])))
    error = p_val - data.y_val
    g = np.append(error @ data.X_val, error.sum()) / len(error)
    v, _ = spl.cg(operator, 2 * g, rtol=1e-7, maxiter=400)
    S = np.stack([np.zeros(N), forward(v)], axis=1)
    Y, gamma = cleaner.labels_, 0.8
    Q = gamma * Y + (1 - gamma) * np.stack([1 - p, p], axis=1)
    score = np.where(cleaner.cleaned_, np.inf, S.min(axis=1) - (Q * S).sum(axis=1))
    top = smallest(np.where(np.isnan(ours), np.inf, ours), BATCH)
    difference = np.abs(score[top] - ours[top]) / np.abs(ours[top])
    return {"overlap": len(set(top) & set(smallest(score, BATCH))), "difference": float(difference.max())}


def _added_memory(data: Data, shape: Shape) -> int:
    """Peak of what NumPy allocated beyond X over initialisation and two rounds."""
    tracemalloc.start()
    cleaner = LabelCleaner(**STEERED, l2=shape.l2, budget=None, batch_size=BATCH)
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val)
    for _ in range(2):
        batch = cleaner.query()
        cleaner.update(batch.indices, data.y[batch.indices])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
