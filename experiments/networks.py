"""Campaigns on networks: LeNet on images, a 1-D CNN on embeddings of text (paper, appendix).

The network is trained from its random start, again after every batch, as in the paper. Inputs get mean 0 and variance 1
over all of training.
"""

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import real

from experiments import data
from experiments.cells import Cell, followed, problem_of
from labelchef import Known

IMAGES = {"pneumonia_images": "pneumoniamnist", "retina_images": "retinamnist"}
"""Name → file of MedMNIST, 28 × 28 pixels; weak labels are random, as the paper's are."""

EPOCHS, MINIBATCH = 10, 64
"""Of a training at most (it stops early), and samples a step."""

DAMPING, TOLERANCE, CURVATURE_ROWS = 0.1, 1e-2, 200
"""Of the solve for v."""


LAST_EPOCH = "fine_tune (last epoch)"
"""A constructor of cells: fine-tuning that keeps the last epoch, not the best."""


def images_here() -> tuple[str, ...]:
    """The image sets that are in LABELCHEF_DATA."""
    folder = real.data_folder()
    return () if folder is None else tuple(name for name in IMAGES if _file(folder, name).exists())


def campaign(cell: Cell) -> dict[str, Any]:
    """A cell with a network; the same every time, on one thread."""
    import torch

    from labelchef.networks import FineTune, InfluenceSettings, NetworkCleaner, TrainingSettings

    problem = _scaled(_images(cell) if cell.data in IMAGES else problem_of(cell))
    d, threads = problem.data, torch.get_num_threads()
    constructors = {LAST_EPOCH: FineTune(patience=None)}
    cleaner = NetworkCleaner(
        _network(d.X.shape, problem.n_classes, cell.seed), cell.selector, constructors.get(cell.constructor, cell.constructor),
        training=TrainingSettings(epochs=EPOCHS, batch_size=MINIBATCH),
        influence=InfluenceSettings(damping=DAMPING, tol=TOLERANCE, curvature_rows=CURVATURE_ROWS),
        budget=cell.labels, batch_size=cell.b, device="cpu", random_state=cell.seed, trusted="steer",
        **{name: getattr(cell, name) for name in ("gamma", "l2", "holdout") if getattr(cell, name) is not None},
    )  # fmt: skip
    torch.set_num_threads(1)
    try:
        cleaner.fit(d.X, d.Y_weak, X_val=d.X_val, y_val=d.y_val, known=Known(X_test=d.X_test, y_test=d.y_test))
        found = followed(cleaner, problem, cell)
        return {**found, "test_loss": [round(float(loss), 5) for loss in cleaner.history_["test_loss"]]}
    finally:
        torch.set_num_threads(threads)


def _network(shape: tuple[int, ...], n_classes: int, seed: int) -> Any:
    import torch

    from experiments.architectures import EmbeddingCnn, LeNet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LeNet(n_classes, channels=shape[1]) if len(shape) == 4 else EmbeddingCnn(shape[1], n_classes)


def _scaled(problem: data.Problem) -> data.Problem:
    d = problem.data
    mean, deviation = d.X.mean(), d.X.std()
    parts = {part: ((getattr(d, part) - mean) / deviation).astype(np.float32) for part in ("X", "X_val", "X_test")}
    return replace(problem, data=replace(d, **parts))


def _images(cell: Cell) -> data.Problem:
    pool = _pool(cell.data, Path(os.environ.get("LABELCHEF_DATA") or "."))
    return data.drawn_from(pool, None, cell.seed, n_train=cell.n_train, n_test=cell.n_test, n_val=cell.n_val)


def _file(folder: Path, name: str) -> Path:
    return folder / "medmnist" / f"{IMAGES[name]}.npz"


@functools.cache
def _pool(name: str, folder: Path) -> real.Pool:
    parts = ("train", "val", "test")
    with np.load(_file(folder, name)) as file:
        images = np.concatenate([file[f"{part}_images"] for part in parts])
        y = np.concatenate([file[f"{part}_labels"].ravel() for part in parts]).astype(np.int64)
        n_train = len(file["train_labels"])
    X = (images.transpose(0, 3, 1, 2) if images.ndim == 4 else images[:, None]).astype(np.float32) / 255.0
    if name == "retina_images":  # the paper's two classes: the two lowest grades against the others
        y = (y >= 2).astype(np.int64)
    trusted = np.arange(len(y)) >= n_train
    return real.Pool(X, None, y, trusted, 2, n_val=min(300, int(trusted.sum()) // 2))
