"""A small problem and a small network for the tests of `NetworkCleaner`."""

from typing import Any

import numpy as np
from torch import nn

from labelchef.networks import NetworkCleaner, TrainingSettings
from tests.oracles import with_known

QUICK = TrainingSettings(epochs=4, batch_size=32, learning_rate=0.01)


class Problem:
    def __init__(self, classes: int = 3) -> None:
        rng = np.random.default_rng(5)
        self.y = rng.integers(0, classes, 260)
        X = rng.normal(size=(260, 6)) + 1.5 * np.eye(classes, 6)[self.y]
        self.X = X.astype(np.float32)
        self.weak = 0.6 * rng.dirichlet(np.ones(classes), 160) + 0.4 / classes
        self.given: dict[str, Any] = {"X_val": self.X[160:200], "y_val": self.y[160:200]}
        self.test: dict[str, Any] = {"X_test": self.X[200:], "y_test": self.y[200:]}

    def fit(self, cleaner: NetworkCleaner, **more: Any) -> NetworkCleaner:
        return cleaner.fit(self.X[:160], self.weak, **with_known({**self.given, **self.test, **more}))


def net(classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, classes))
