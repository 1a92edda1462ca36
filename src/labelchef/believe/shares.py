"""Weak labels from the votes of labelling functions."""

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import InvalidInputError


def vote_shares(votes: Ints, n_classes: int, smoothing: float = 0.1) -> Float64s:
    """Probabilities (n, C) from votes (n, functions) of class ids, −1 where a function abstains.

    Each class gets its votes plus `smoothing`, scaled to sum to 1; without any vote all classes are equal.

    >>> vote_shares(np.array([[0, 0, -1], [-1, -1, -1]]), 2, smoothing=0.5).tolist()
    [[0.8333333333333334, 0.16666666666666666], [0.5, 0.5]]
    """
    votes = np.asarray(votes)
    if votes.ndim != 2 or votes.size == 0 or votes.min() < -1 or votes.max() >= n_classes or smoothing <= 0:
        raise InvalidInputError(
            f"votes of shape {votes.shape}, smoothing {smoothing}; expected (samples, functions) of class ids from 0 "
            f"to {n_classes - 1}, −1 for abstain, and a smoothing above 0",
            code="votes",
        )
    counts = np.column_stack([(votes == c).sum(axis=1) for c in range(n_classes)]) + smoothing
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
