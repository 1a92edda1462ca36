"""Class probabilities of every training sample, by a model that was trained without it.

Samples are dealt into K folds, stratified by their labels (the most probable class). The model of fold k is the optimum of
the same objective on all others,

    F_k(W) = (1/n_k) Σ_{i outside k} r_i ℓ_i(W) + (λ/2) ‖W‖²,      P[i] = softmax(x_i W_k)  for i in fold k,

with n_k samples outside the fold, soft labels and weights as in training. X is not copied: the rows of the fold get weight
zero and the others N/n_k. So one engine serves all folds, and the last sweep of a solve also gives the logits of the rows
left out. Solves start from the present W and its frozen curvature.

Shapes: P (N, C); folds (N,) with values 0 … K − 1.
"""

import warnings
from dataclasses import replace

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.objective import Objective
from labelchef.core.softmax import probabilities
from labelchef.core.solvers import minimise
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import ConvergenceWarning
from labelchef.engines import RowLabels
from labelchef.selectors.protocol import SelectionContext

_TOL = 1e-4
_MAX_SWEEPS = 300


def deal_folds(classes: Ints, count: int, rng: np.random.Generator) -> Ints:
    """A fold for each sample: the sizes of the folds differ by at most one, and so do their counts of each class.

    >>> folds = deal_folds(np.array([0, 0, 0, 0, 1, 1]), 2, np.random.default_rng(0))
    >>> np.bincount(folds[:4]).tolist(), np.bincount(folds[4:]).tolist()
    ([2, 2], [1, 1])
    """
    shuffled = rng.permutation(len(classes))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    folds = np.empty(len(classes), dtype=np.int64)
    folds[by_class] = np.arange(len(classes)) % count
    return folds


def out_of_fold(context: SelectionContext, count: int) -> Float64s:
    """Probabilities of all samples, each by the model of the other folds."""
    labels = context.objective.labels
    folds = deal_folds(labels.Y.argmax(axis=1), count, context.rng)
    P: Float64s = np.empty_like(labels.Y)
    worst = 0.0
    for fold in range(int(folds.max()) + 1):
        inside = folds == fold
        logits, excess = _solve_without(context, inside)
        P[inside] = probabilities(with_reference(logits[inside]))
        worst = max(worst, excess)
    if worst > 1.0:
        warnings.warn(
            f"the model of a fold stopped at {worst:.1e} times its gradient tolerance; its probabilities are approximate. "
            "Raise l2, or scale the features.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return P


def _solve_without(context: SelectionContext, left_out: Bools) -> tuple[Float64s, float]:
    """Logits of all samples at the optimum without some of them, and ‖∇F‖ there divided by its tolerance."""
    whole, N = context.objective, len(left_out)
    kept = max(1, N - int(left_out.sum()))
    weight = np.where(left_out, 0.0, whole.labels.weight * (N / kept))
    objective = Objective(whole.engine, RowLabels(whole.labels.Y, weight), whole.l2)
    start = objective.at(context.point.W, logits=context.point.logits)
    keeper = replace(context.keeper, drift=None)  # a copy: it learns from other weights
    found = minimise(objective, start, keeper, tol=_TOL, max_sweeps=_MAX_SWEEPS)
    return whole.engine.host(found.point.logits), found.point.gradient_norm / found.tolerance
