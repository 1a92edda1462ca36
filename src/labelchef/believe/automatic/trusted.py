"""Honest votes on trusted rows: automatic sources learn from these rows, and are judged by them.

m trusted rows with classes y (m,) are divided into 5 folds, and each fold is voted on by what was made without its labels
(cross-fitting). A source casts n votes on trusted rows, k of them right, and n_v of them for class v, whose share among the
trusted rows is f(v). The source is better than chance, that is than the class shares, if

    P(Binomial(n, Σ_v n_v f(v) / n) ≥ k) ≤ 0.1
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from labelchef.base.arrays import Bools, Float64s, Ints

FOLDS = 5
DOUBT = 0.1
"""Largest probability that votes on trusted rows are as good by chance."""


def folds(y: Ints, k: int, seed: int) -> Ints:
    """(m,) the fold 0 … k−1 of every row; rows of one class are spread evenly over the folds.

    >>> folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0).tolist()
    [0, 0, 1, 1, 1, 0]
    """
    order = np.random.default_rng([seed, 32]).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    found = np.empty(len(y), dtype=np.int64)
    found[order] = np.arange(len(y)) % k
    return found


def held_out(y: Ints, seed: int) -> list[Bools]:
    """Masks (m,) of the rows of each fold; empty if there is one row only."""
    fold_of = folds(y, FOLDS, seed)
    return [fold_of == k for k in range(min(FOLDS, len(y)))] if len(y) > 1 else []


def beats_chance(right: NDArray[Any], cast: NDArray[Any], share: NDArray[Any]) -> Bools:
    """(q,) whether `right` of `cast` votes are better than chance, which is right with probability `share`; all (q,)."""
    return np.asarray(binom.sf(right - 1, cast, share) <= DOUBT)


def better_than_chance(beliefs: Float64s, y: Ints) -> bool:
    """Whether cross-fitted votes (m, C) on trusted rows of classes y (m,), NaN for none, are better than the class shares.

    >>> y = np.array([0, 1] * 10)
    >>> better_than_chance(np.eye(2)[y], y), better_than_chance(np.eye(2)[np.zeros(20, dtype=int)], y)
    (True, False)
    """
    heard = ~np.isnan(beliefs).any(axis=1)
    if not heard.any():
        return False
    said = beliefs[heard].argmax(axis=1)
    shares = np.bincount(y, minlength=beliefs.shape[1]) / len(y)
    return bool(beats_chance((said == y[heard]).sum(), heard.sum(), shares[said].mean()))
