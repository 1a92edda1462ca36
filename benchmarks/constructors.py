"""What it costs to bring the model up to date after b = 10 labels changed, and how near each way comes.

Part one, the paper's six shapes with its learning rates, L2, epochs and mini-batches (appendix), one table a run:

    torch        a plain PyTorch loop of SGD on the same schedule, timed over some epochs and scaled to all
    retrain      our mini-batch descent
    deltagrad_l  the replay; fidelity: distance to Retrain's parameters, of the distance Retrain moved since the first model
    newton       ours; fidelity: ‖∇F‖ / (1 + ‖W‖)
    sklearn      LogisticRegression (lbfgs), warm-started, on the equivalent weighted hard labels; fidelity: the same norm

Times leave the choice of the epoch out, as the paper's do. Part two, the real sets: ten rounds of b = 10 with
DeltaGrad-L at automatic rates, then one Retrain on the final labels.
"""

import gc
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import real
from benchmarks.shapes import SHAPES, Data, Shape, make
from labelchef import Known, LabelCleaner
from labelchef.chef.constructors import (
    Construction,
    DeltaGradLConstructor,
    DescentSettings,
    NewtonConstructor,
    RetrainConstructor,
)
from labelchef.chef.constructors.schedule import Schedule
from labelchef.loop.annotators import GroundTruth
from labelchef.model.contrasts import Coordinates
from labelchef.model.engines import MemoryEngine
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective

PAPER = {
    "mimic": (0.0005, 150),
    "retina": (0.001, 200),
    "chexpert": (0.02, 200),
    "fashion": (0.05, 200),
    "fact": (0.005, 150),
    "twitter": (0.01, 400),
}
"""Learning rate and epochs of each shape."""

MINIBATCH, BATCH, GAMMA, TORCH_EPOCHS, ROUNDS = 2000, 10, 0.8, 8, 3


@dataclass
class Measured:
    """A problem whose labels change by ten at a time, and the model before each change."""

    data: Data
    table: LabelTable
    objective: Objective
    rng: np.random.Generator

    def clean(self) -> Any:
        items = np.sort(self.rng.choice(np.flatnonzero(~self.table.cleaned), BATCH, replace=False))
        return self.table.assign(items, self.data.y[items])


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    table = Table(title="seconds to bring the model up to date after 10 labels changed, median of rounds")
    for column in ("shape", "torch SGD", "retrain", "deltagrad_l", "newton", "sklearn", "retrain ÷ torch", "retrain ÷ "
                   "deltagrad_l", "… no guard", "retrain ÷ newton", "sklearn ÷ newton", "deltagrad_l off", "… no guard",
                   "explicit (fallback) steps",
                   "newton ‖∇F‖", "sklearn ‖∇F‖"):  # fmt: skip
        table.add_column(column, justify="left" if column == "shape" else "right")
    figures: dict[str, Any] = {}
    for name in ("twitter",) if quick else PAPER:
        figures[name] = _shape(SHAPES[name], *(PAPER[name] if not quick else (0.01, 20)))
        f = figures[name]
        table.add_row(
            name, f"{f['torch']:.2f}", f"{f['retrain']:.2f}", f"{f['deltagrad_l']:.3f}", f"{f['newton']:.4f}",
            f"{f['sklearn']:.2f}", f"{f['retrain'] / f['torch']:.2f}", f"{f['retrain'] / f['deltagrad_l']:.1f}",
            f"{f['retrain'] / f['unguarded']:.1f}", f"{f['retrain'] / f['newton']:.0f}", f"{f['sklearn'] / f['newton']:.0f}",
            f"{f['off']:.1%}", f"{f['unguarded_off']:.1%}", f["steps"],
            f"{f['newton_norm']:.0e}", f"{f['sklearn_norm']:.0e}",
        )  # fmt: skip
        console.print(f"{name} done", style="dim")
    console.print(table)
    folder = real.data_folder()
    if folder is not None:
        figures["real"] = _real(console, folder, quick)
    return figures


def _shape(shape: Shape, rate: float, epochs: int) -> dict[str, Any]:
    problem = problem_of(shape)
    settings = DescentSettings(learning_rate=rate, epochs=epochs, minibatch=MINIBATCH, early_stopping=False)
    figures = descents(problem, settings)
    figures["torch"], off = _torch(problem, settings)
    assert off < 1e-3, f"the loop of torch is another descent: {off}"
    gc.collect()
    found, seconds = newton_updates(problem, 2 * ROUNDS)
    figures |= {"newton": float(np.median(seconds))} | _optima(problem, found)
    return figures


def problem_of(shape: Shape, seed: int = 0) -> Measured:
    """A problem of that shape, nothing cleaned yet."""
    data = make(shape, seed=seed)
    labels = LabelTable(data.Y_weak, GAMMA)
    objective = Objective(MemoryEngine(data.X, bias=True), labels.rows, shape.l2)
    return Measured(data, labels, objective, np.random.default_rng(seed))


def _no_choice(stack: Any) -> Any:
    return np.zeros(len(stack))


def descents(problem: Measured, settings: DescentSettings) -> dict[str, Any]:
    """Median seconds of Retrain and the two replays, how far the replays end from Retrain, how many steps were explicit."""
    deltagrad, retrain = DeltaGradLConstructor(settings), RetrainConstructor(settings)
    unguarded = DeltaGradLConstructor(settings, error_guard=False)
    first = replayed = heedless = deltagrad.initialise(problem.objective, _no_choice)
    seconds: dict[str, list[float]] = {"deltagrad_l": [], "unguarded": [], "retrain": []}
    for _ in range(ROUNDS):
        change = problem.clean()
        replayed = deltagrad.construct(problem.objective, replayed, change, _no_choice)
        seconds["deltagrad_l"].append(replayed.diagnostics.seconds)
        heedless = unguarded.construct(problem.objective, heedless, change, _no_choice)
        seconds["unguarded"].append(heedless.diagnostics.seconds)
        trained = retrain.construct(problem.objective, first, change, _no_choice)
        seconds["retrain"].append(trained.diagnostics.seconds)
    moved = np.linalg.norm(trained.point.W - first.point.W)
    return {
        **{name: float(np.median(taken)) for name, taken in seconds.items()},
        "off": float(np.linalg.norm(replayed.point.W - trained.point.W) / moved),
        "unguarded_off": float(np.linalg.norm(heedless.point.W - trained.point.W) / moved),
        "steps": f"{replayed.diagnostics.explicit} ({replayed.diagnostics.fell_back}) of {replayed.diagnostics.iterations}",
    }


def _torch(problem: Measured, settings: DescentSettings) -> tuple[float, float]:
    """Seconds of all epochs of a plain loop, from some of them; and how far its parameters are from ours then."""
    import torch

    data, l2 = problem.data, problem.objective.l2
    schedule = Schedule(len(data.y), min(MINIBATCH, len(data.y)), min(TORCH_EPOCHS, settings.epochs), settings.seed)
    X, Y = torch.from_numpy(data.X), torch.from_numpy(problem.table.Y.astype(np.float32))
    weight = torch.from_numpy(problem.table.weight.astype(np.float32))
    model = torch.nn.Linear(data.X.shape[1], 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimiser = torch.optim.SGD(model.parameters(), lr=settings.learning_rate or 1.0, weight_decay=l2)
    batches = [[torch.from_numpy(rows) for rows in schedule.epoch(epoch)] for epoch in range(schedule.epochs)]
    began = time.perf_counter()
    for epoch in batches:
        for rows in epoch:
            optimiser.zero_grad()
            losses = -(Y[rows] * torch.log_softmax(model(X[rows]), dim=1)).sum(dim=1)
            loss: Any = (weight[rows] * losses).mean()
            loss.backward()
            optimiser.step()
    seconds = (time.perf_counter() - began) * settings.epochs / schedule.epochs
    short = DescentSettings(settings.learning_rate, schedule.epochs, MINIBATCH, early_stopping=False)
    ours = RetrainConstructor(short).initialise(problem.objective, _no_choice).point.W
    theirs = np.vstack([model.weight.detach().numpy().T, model.bias.detach().numpy()])
    return seconds, float(np.linalg.norm(ours - theirs) / np.linalg.norm(ours))


def newton_updates(problem: Measured, rounds: int) -> tuple[Construction, list[float]]:
    """The optimum after so many rounds, and the seconds each took."""
    newton = NewtonConstructor()
    found = newton.initialise(problem.objective, _no_choice)
    seconds = []
    for _ in range(rounds):
        found = newton.construct(problem.objective, found, problem.clean(), _no_choice)
        seconds.append(found.diagnostics.seconds)
    return found, seconds


def _optima(problem: Measured, found: Construction) -> dict[str, Any]:
    sklearn, seconds = _Stacked(problem), []
    for _ in range(ROUNDS):
        problem.clean()
        seconds.append(sklearn.refit(problem))
    return {
        "sklearn": float(np.median(seconds)),
        "newton_norm": found.diagnostics.gradient_norm / (1 + np.linalg.norm(found.point.W)),
        "sklearn_norm": sklearn.gradient_norm(problem),
    }


class _Stacked:
    """scikit-learn on every sample twice, once a class, with weights r·y; the bias is a column, regularised as ours."""

    def __init__(self, problem: Measured) -> None:
        from sklearn.linear_model import LogisticRegression

        N = len(problem.data.y)
        X = np.hstack([problem.data.X, np.ones((N, 1), dtype=np.float32)])
        self._X, self._y = np.vstack([X, X]), np.repeat([0, 1], N)
        # W with columns ±u/2 has ‖W‖² = ‖u‖²/2, so the penalty (λ/2)‖W‖² is (λ/4)‖u‖².
        self._model = LogisticRegression(
            C=2 / (N * problem.objective.l2), fit_intercept=False, warm_start=True, tol=1e-6, max_iter=1000
        )
        self.refit(problem)

    def refit(self, problem: Measured) -> float:
        weight = (problem.table.weight[:, None] * problem.table.Y).T.reshape(-1)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lbfgs may give up on the last digit
            self._model.fit(self._X, self._y, sample_weight=weight)
        return time.perf_counter() - began

    def gradient_norm(self, problem: Measured) -> float:
        u = self._model.coef_[0].astype(np.float64)
        W = np.stack([-u / 2, u / 2], axis=1)
        return problem.objective.at(W).gradient_norm / (1 + float(np.linalg.norm(W)))


def _real(console: Console, folder: Any, quick: bool) -> dict[str, Any]:
    table = Table(
        title="ten rounds of 10 labels with deltagrad_l, then one retrain on the final labels (rate 1/L, 150 epochs)"
    )
    for column in ("set", "N × d, C", "off, of the way moved", "test F1 (deltagrad_l)", "test F1 (retrain)", "epochs chosen",
                   "explicit steps", "test predictions that differ at the last step"):  # fmt: skip
        table.add_column(column, justify="left" if column == "set" else "right")
    figures = {}
    for name in list(real.SETS)[:1] if quick else real.SETS:
        data = real.split(real.load(folder, name), 0, 20_000)
        settings = DescentSettings(epochs=150)
        cleaner = LabelCleaner(
            trusted="steer",
            selector="increm_infl",
            constructor=DeltaGradLConstructor(settings),
            budget=100,
            gamma=0.8,
            l2=0.001,
            holdout=0,
        )
        cleaner.fit(
            data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val, known=Known(X_test=data.X_test, y_test=data.y_test)
        )
        first: Construction = cleaner._session.construction
        result = cleaner.run(GroundTruth(data.y))
        session = cleaner._session
        nothing = session.labels.assign(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        trained = RetrainConstructor(settings).construct(session.objective, first, nothing, session.steering.losses)
        off, flipped = _compared(session.construction, trained, first, data)
        figures[name] = {"off": off, "flipped": flipped}
        assert session.test is not None
        history = result.history
        table.add_row(
            name, f"{len(data.X):,} × {data.X.shape[1]}, {data.Y_weak.shape[1]}", f"{off:.1%}",
            f"{history['test_f1_macro'].iloc[-1]:.4f}", f"{session.test.metrics(trained.point.W).f1_macro:.4f}",
            f"{history['epoch'].iloc[-1]}, {trained.diagnostics.epoch}",
            f"{history['explicit_steps'].iloc[1:].mean():.0f} of {trained.diagnostics.iterations}", f"{flipped:.2%}",
        )  # fmt: skip
    console.print(table)
    return figures


def _compared(replayed: Construction, trained: Construction, first: Construction, data: Data) -> tuple[float, float]:
    """Distance at the last step over the distance moved; share of test predictions at the last step that differ."""
    at = Coordinates(data.Y_weak.shape[1])
    ends = [at.parameters(c.trajectory.ends[-1]) for c in (replayed, trained, first) if c.trajectory is not None]
    off = np.linalg.norm(ends[0] - ends[1]) / np.linalg.norm(ends[1] - ends[2])
    chosen = [data.X_test @ W[:-1] + W[-1] for W in ends[:2]]
    return float(off), float(np.mean(chosen[0].argmax(axis=1) != chosen[1].argmax(axis=1)))
