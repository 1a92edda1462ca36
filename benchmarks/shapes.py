"""Seeded training problems of the paper's shapes (appendix table of data sets and of hyper-parameters).

A few dozen latent factors with a decaying spectrum and noise on top, as embeddings have; the class shows in one
factor; weak labels are uniformly random, as the paper's are for its three image sets. Features are standardised.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Shape:
    """Sizes and L2 of one of the paper's data sets; D without the bias."""

    name: str
    n_train: int
    n_features: int
    n_val: int
    n_test: int
    l2: float


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("mimic", 78_487, 2_048, 579, 1_628, 0.05),
        Shape("retina", 31_615, 2_048, 3_512, 2_000, 0.05),
        Shape("chexpert", 37_882, 2_048, 234, 234, 0.05),
        Shape("fashion", 29_031, 2_048, 146, 146, 0.001),
        Shape("fact", 38_176, 768, 255, 259, 0.01),
        Shape("twitter", 11_606, 768, 37, 37, 0.01),
    )
}

FACTORS, NOISE = 64, 0.5
_ROWS = 8192


@dataclass(frozen=True)
class Data:
    """A training problem with its true labels. Features are float32."""

    X: NDArray[np.float32]
    Y_weak: NDArray[np.float64]
    y: NDArray[np.int64]
    X_val: NDArray[np.float32]
    y_val: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]


def make(shape: Shape, *, seed: int = 0, n_classes: int = 2) -> Data:
    """The problem of that shape; the same for the same seed everywhere."""
    rng = np.random.default_rng([seed, shape.n_train, shape.n_features])
    n = shape.n_train + shape.n_val + shape.n_test
    y = rng.integers(0, n_classes, n)
    decay = (1.0 / np.sqrt(1.0 + np.arange(FACTORS))).astype(np.float32)
    mixing = rng.standard_normal((FACTORS, shape.n_features), dtype=np.float32) * decay[:, None]
    centres = np.zeros((n_classes, FACTORS), dtype=np.float32)
    centres[np.arange(n_classes), np.arange(n_classes) // 2] = 1 - 2 * (np.arange(n_classes) % 2)
    X = np.empty((n, shape.n_features), dtype=np.float32)
    for start in range(0, n, _ROWS):
        rows = slice(start, min(start + _ROWS, n))
        count = rows.stop - rows.start
        latent = centres[y[rows]] + rng.standard_normal((count, FACTORS), dtype=np.float32)
        X[rows] = latent @ mixing
        X[rows] += NOISE * rng.standard_normal((count, shape.n_features), dtype=np.float32)
    train = X[: shape.n_train]
    mean, deviation = train.mean(axis=0, dtype=np.float64), train.std(axis=0, dtype=np.float64)
    X -= mean.astype(np.float32)
    X /= deviation.astype(np.float32)
    weak = rng.dirichlet(np.ones(n_classes), shape.n_train)
    a, b = shape.n_train, shape.n_train + shape.n_val
    return Data(X[:a], weak, y[:a], X[a:b], y[a:b], X[b:], y[b:])


def median_seconds(work: Any, repeats: int = 9) -> float:
    """Median wall time of a call after one warm-up."""
    import time

    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return float(np.median(times))
