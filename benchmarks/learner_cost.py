"""What the first model and a round cost at default settings, with 100 sources, in units of one X @ w and one X.T @ X.

Trusted samples train, the source model, γ and λ are chosen by cross-validation, labels are asked by margin. The first model
includes the choice. A round is what a caller waits for: `query` and `update`. Rounds in which a new choice is adopted are left
out of the median: it is computed while people label; how long it took is printed beside. Fidelity: the same model by scipy's
L-BFGS on the same labels and weights, in float64.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from benchmarks.shapes import SHAPES, make, median_seconds
from labelchef import LabelCleaner
from labelchef.believe import SourceVotes

SOURCES, COVERAGE = 100, 0.2
ROUNDS, BATCH = 9, 10


@dataclass(frozen=True)
class Inputs:
    """A training set with trusted samples, and the votes of sources on both."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    X_val: NDArray[np.float32]
    y_val: NDArray[np.int64]
    votes: SourceVotes
    votes_val: SourceVotes
    n_classes: int


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    found = {}
    for name, inputs in (("two classes", _two_classes(quick)), ("ten classes", _ten_classes(quick))):
        found[name] = _measured(console, name, inputs)
    return found


def _measured(console: Console, name: str, inputs: Inputs) -> dict[str, float]:
    X = inputs.X
    w = np.ones(X.shape[1], dtype=np.float32)
    units, grams = [median_seconds(lambda: X @ w)], [median_seconds(lambda: X.T @ X, 1)]
    cleaner = LabelCleaner(budget=None, batch_size=BATCH)
    began = time.perf_counter()
    cleaner.fit(
        X, votes=inputs.votes, votes_val=inputs.votes_val, X_val=inputs.X_val, y_val=inputs.y_val,
        classes=list(range(inputs.n_classes)),
    )  # fmt: skip
    first = time.perf_counter() - began
    waits = [first]
    for _ in range(ROUNDS):
        began = time.perf_counter()
        batch = cleaner.query()
        cleaner.update(batch.indices, inputs.y[batch.indices])
        waits.append(time.perf_counter() - began)
    units.append(median_seconds(lambda: X @ w))
    grams.append(median_seconds(lambda: X.T @ X, 1))
    unit, gram = float(np.median(units)), float(np.median(grams))
    choices = [record.choice for record in cleaner.rounds_]
    same = [k for k in range(2, len(choices)) if choices[k] == choices[k - 1]]
    history = cleaner.history_.iloc[same]
    parts = {phase: float(history[f"seconds_{phase}"].median()) for phase in ("select", "construct", "evaluate")}
    total = float(np.median([waits[k] for k in same]))
    table = Table(
        title=f"{name}: {X.shape[0]:,} × {X.shape[1]:,}, {SOURCES} sources, {len(inputs.y_val)} trusted, b = {BATCH}"
    )
    for column in ("part", "milliseconds", "× one X @ w", "× one X.T @ X"):
        table.add_column(column, justify="left" if column == "part" else "right")
    rows = {"one X @ w": unit, "one X.T @ X": gram, **parts, "round": total, "first model": first}
    choice = choices[0]
    assert choice is not None
    rows["of it the choice"] = choice.seconds
    for part, seconds in rows.items():
        table.add_row(part, f"{1e3 * seconds:.1f}", f"{seconds / unit:.2f}", f"{seconds / gram:.2f}")
    console.print(table)
    difference = _difference(cleaner)
    console.print(
        f"chosen: {choice.model}, gamma {choice.gamma:g}; sweeps of an update: {history['construct_sweeps'].median():.2f}; "
        f"against scipy: largest difference of a probability {difference:.1e}"
    )
    return {"round": total / unit, "first": first / gram, "difference": difference}


def _difference(cleaner: LabelCleaner) -> float:
    """Largest difference of the probabilities of 2,000 rows between the model and scipy's minimum of the same objective."""
    session = cleaner._session
    engine, labels, l2 = session.objective.engine, session.objective.labels, session.objective.l2
    N, C = engine.n_rows, labels.Y.shape[1]
    X = engine.rows(np.arange(N)).astype(np.float32)

    def at(flat: Any) -> tuple[float, Any]:
        W = flat.reshape(-1, C)
        A = (X @ W.astype(np.float32)).astype(np.float64)
        losses = logsumexp(A, axis=1) - np.einsum("ic,ic->i", labels.Y, A)
        R = (labels.weight[:, None] * (softmax(A, axis=1) - labels.Y)).astype(np.float32)
        return float(labels.weight @ losses) / N + 0.5 * l2 * float(np.vdot(W, W)), (X.T @ R / N + l2 * W).ravel()

    W = session.parameters - session.parameters.mean(axis=1, keepdims=True)
    start = np.zeros(W.size)  # not where our model is: a minimum elsewhere would show
    found = minimize(at, start, jac=True, method="L-BFGS-B", options={"maxiter": 500, "gtol": 1e-8, "ftol": 0.0}).x
    found = found.reshape(-1, C)
    few = X[:: max(1, N // 2000)]
    return float(np.abs(softmax(few @ found, axis=1) - softmax(few @ W, axis=1)).max())


def _two_classes(quick: bool) -> Inputs:
    data = make(SHAPES["twitter" if quick else "mimic"])
    return _with_votes(data.X, data.y, data.X_val, data.y_val, 2)


def _ten_classes(quick: bool) -> Inputs:
    n, d, C, n_val = (8000, 256, 10, 300) if quick else (50_000, 768, 10, 300)
    rng = np.random.default_rng(10)
    y = rng.integers(0, C, n + n_val)
    centres = rng.normal(size=(C, d))
    X = (rng.normal(size=(n + n_val, d)) + 0.12 * centres[y]).astype(np.float32)
    X /= np.sqrt(d)
    return _with_votes(X[:n], y[:n], X[n:], y[n:], C)


def _with_votes(X: Any, y: Any, X_val: Any, y_val: Any, n_classes: int) -> Inputs:
    rng = np.random.default_rng(100)
    truth = np.concatenate([y, y_val])
    votes = np.full((len(truth), SOURCES), -1, dtype=np.int64)
    for j in range(SOURCES):
        speaks = rng.random(len(truth)) < COVERAGE
        right = rng.random(len(truth)) < rng.uniform(0.4, 0.8)
        votes[speaks, j] = np.where(right, truth, rng.integers(0, n_classes, len(truth)))[speaks]
    made = SourceVotes.hard(votes, n_classes)
    return Inputs(X, y, X_val, y_val, made.rows(slice(len(y))), made.rows(slice(len(y), None)), n_classes)
