"""The t-SNE figure: where the samples that a selector asks first lie among validation and training samples."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.manifold import TSNE

from experiments.cells import Cell, cleaner_of, problem_of

SHOWN_TRAIN, SHOWN_VAL = 250, 200
SELECTORS = ("increm_infl", "entropy", "random")
"""Whose first batches are marked; the first one is the figure's subject."""


def measure(cell: Cell) -> dict[str, Any]:
    """Points (x, y, kind, true class, suggested class or −1) of one data set."""
    problem = problem_of(cell)
    d = problem.data
    picked: dict[int, tuple[str, int]] = {}
    for selector in SELECTORS:
        cleaner = cleaner_of(replace(cell, selector=selector))
        cleaner.fit(d.X, d.Y_weak, X_val=d.X_val, y_val=d.y_val)
        batch = cleaner.query()
        for item, suggested in zip(batch.indices.tolist(), batch.suggested.tolist(), strict=True):
            picked.setdefault(item, (selector, suggested))
    others = [k for k in range(min(SHOWN_TRAIN, len(d.y))) if k not in picked]
    rows = list(picked) + others
    X = np.concatenate([d.X[rows], d.X_val[:SHOWN_VAL]]).astype(np.float64)
    Z = TSNE(random_state=cell.seed, init="pca", perplexity=min(30.0, len(X) / 4)).fit_transform(X)
    kinds = (
        [picked[k] for k in picked] + [("training", -1)] * len(others) + [("validation", -1)] * len(d.y_val[:SHOWN_VAL])
    )
    truth = np.concatenate([d.y[rows], d.y_val[:SHOWN_VAL]])
    return {
        "points": [
            [round(float(z[0]), 2), round(float(z[1]), 2), kind, int(true), suggested]
            for z, (kind, suggested), true in zip(Z, kinds, truth, strict=True)
        ]
    }
