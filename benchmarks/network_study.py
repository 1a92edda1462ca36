"""Does INFL on a network foretell what relabelling does? Rank correlation with relabel-and-continue-training.

A network is trained on weak labels. Then, for each of a few dozen samples, the sample gets the label INFL suggests, and
training goes on from the same weights, in the same order of batches; N times the change of the validation loss against
going on without the new label is the truth. Two ways of going on: `fine_tune` (Adam, 5 epochs) and plain gradient
descent over all samples for many steps, which is what the influence function describes.
"""

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from experiments.architectures import LeNet
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.real import data_folder
from labelchef import ConvergenceWarning
from labelchef.model.influence import influence_matrix
from labelchef.model.softmax import probabilities
from labelchef.networks import InfluenceSettings, NetworkTask, TrainingSettings, adapt
from labelchef.networks.influence import solve
from labelchef.networks.linearised import Linearised
from labelchef.networks.training import Examples, copied, mean_loss, train

GAMMA, L2 = 0.8, 1e-3
CPU = torch.device("cpu")
FIRST = TrainingSettings(epochs=30, batch_size=64)
WAYS = {
    "fine_tune": replace(FIRST, epochs=5, patience=None),
    "descent": TrainingSettings(epochs=30, batch_size=10**6, learning_rate=0.05, optimiser="sgd", patience=None),
}
CURVATURES: tuple[tuple[Literal["ggn", "hessian"], float], ...] = (
    ("ggn", 1e-3), ("ggn", 1e-2), ("ggn", 1e-1), ("ggn", 1.0), ("hessian", 0.1), ("hessian", 1.0),
)  # fmt: skip
CHOICES = [InfluenceSettings(curvature, damping, max_iterations=500) for curvature, damping in CURVATURES]


def main(console: Console, *, quick: bool = False) -> pd.DataFrame:
    """Run and print; a row for each problem, seed, way of going on and choice of curvature."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed in range(1 if quick else 3):
        for name, network, data, val in _problems(seed, 100 if quick else 200):
            rows += _study(name, seed, network, data, val, 8 if quick else 25)
    found = pd.DataFrame(rows)
    show(console, found)
    return found


def show(console: Console, found: pd.DataFrame) -> None:
    """The table."""
    table = Table(title="Spearman with relabel-and-continue-training, mean over seeds (lowest)")
    for column in ("network", "curvature", "damping", *WAYS, "CG iterations"):
        table.add_column(column, justify="right")
    for key, part in found.groupby(["network", "curvature", "damping"], sort=False):
        cells = [f"{part[w].mean():.2f} ({part[w].min():.2f})" for w in WAYS]
        table.add_row(*map(str, key), *cells, f"{part['iterations'].mean():.0f}")
    console.print(table)


def _problems(seed: int, n: int) -> Iterator[tuple[str, nn.Module, Examples, Examples]]:
    rng = np.random.default_rng(seed)
    bunch = load_digits()
    X, y = (bunch.data / 16).astype(np.float32), bunch.target.astype(np.int64)
    torch.manual_seed(seed)
    mlp = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    yield "two layers, digits", mlp, *_split(X, y, n, 10, rng)
    folder = data_folder()
    if folder is not None:
        with np.load(folder / "medmnist" / "pneumoniamnist.npz") as sets:
            X = sets["train_images"][:, None].astype(np.float32) / 255.0
            y = sets["train_labels"].ravel().astype(np.int64)
        yield "LeNet, pneumonia", LeNet(2), *_split(X, y, n, 2, rng)


def _split(X: Any, y: Any, n: int, n_classes: int, rng: np.random.Generator) -> tuple[Examples, Examples]:
    """Weak labels are halfway between random ones and the truth."""
    rows = rng.permutation(len(y))[: n + 200]
    weak = 0.5 * rng.dirichlet(np.ones(n_classes), n) + 0.5 * np.eye(n_classes)[y[rows[:n]]]
    return Examples(X[rows[:n]], weak, np.full(n, GAMMA)), Examples.hard(X[rows[n:]], y[rows[n:]], n_classes)


def _study(name: str, seed: int, network: nn.Module, data: Examples, val: Examples, count: int) -> list[dict[str, Any]]:
    task = adapt(network)
    train(task, data, val, FIRST, l2=L2, seed=seed, device=CPU)
    matrices, iterations = [], []
    for settings in CHOICES:
        linear = Linearised(task, CPU, settings.batch_size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the table shows the iterations
            solution = solve(linear, data, linear.gradient(val), settings, l2=L2)
        logits, S = linear.push(data.X, solution.v)
        matrices.append(influence_matrix(S, probabilities(logits), data.Y, data.weight))
        iterations.append(solution.iterations)
    picked = np.random.default_rng(seed).choice(len(data.X), count, replace=False)
    default = CURVATURES.index((InfluenceSettings().curvature, InfluenceSettings().damping))
    labels = matrices[default][picked].argmin(axis=1)  # one label a sample, so that all choices foretell the same
    truth = {way: _went(task, data, val, picked, labels, WAYS[way], seed) for way in WAYS}
    rows = []
    for settings, matrix, made in zip(CHOICES, matrices, iterations, strict=True):
        told = matrix[picked, labels]
        found = {way: float(spearmanr(told, truth[way]).statistic) for way in WAYS}
        rows.append(
            {"network": name, "seed": seed, "curvature": settings.curvature, "damping": settings.damping,
             "iterations": made, **found}
        )  # fmt: skip
    return rows


def _went(
    task: NetworkTask, data: Examples, val: Examples, picked: Any, labels: Any, way: TrainingSettings, seed: int
) -> list[float]:
    """N times the change of the validation loss for each sample relabelled, against none."""
    weights, losses = copied(task), []
    for sample, label in [(None, None), *zip(picked, labels, strict=True)]:
        Y, weight = data.Y.copy(), data.weight.copy()
        if sample is not None:
            Y[sample], weight[sample] = np.eye(Y.shape[1])[label], 1.0
        again = copy.deepcopy(task)
        again.load_state_dict(weights)
        train(again, Examples(data.X, Y, weight), val, way, l2=L2, seed=seed, device=CPU)
        losses.append(mean_loss(again, val, 512, CPU))
    return [len(data.X) * (loss - losses[0]) for loss in losses[1:]]
