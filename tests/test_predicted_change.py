"""What a record says a round was predicted to change, against what an independent refit says it changed.

Measured here on the default selector, 12 rounds of 10 with a third of the answers other than the suggestion: see TOLERANCE.
"""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import spearmanr

from labelchef import LabelCleaner
from labelchef.core.influence import influence_matrix
from labelchef.domain.records import UNRESOLVED, Batch
from tests.oracles import Array, Problem

N, N_VAL, ROUNDS, B = 300, 80, 12, 10
L2, GAMMA = 0.02, 0.3


def drawn(C: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([C, seed])
    y = rng.integers(0, C, N + N_VAL)
    X = rng.normal(size=(N + N_VAL, 5)) + 1.2 * rng.normal(size=(C, 5))[y]
    return {"X": X[:N], "Y": rng.dirichlet(np.ones(C), N), "y": y[:N], "X_val": X[N:], "y_val": y[N:]}


def fitted(data: dict[str, Any], **given: Any) -> LabelCleaner:
    cleaner = LabelCleaner(**{"gamma": GAMMA, "l2": L2, "batch_size": B, "holdout": 0, "tol": 1e-9, **given})
    return cleaner.fit(data["X"], data["Y"], X_val=data["X_val"], y_val=data["y_val"])


def dense(data: dict[str, Any], cleaner: LabelCleaner) -> Problem:
    """The training problem with the labels as they stand, for a refit that shares no code with the package."""
    Z, Z_val = (np.hstack([X, np.ones((len(X), 1))]) for X in (data["X"], data["X_val"]))
    weight = np.where(cleaner.cleaned_, 1.0, GAMMA)
    return Problem(Z, cleaner.labels_, weight, L2, Z_val, np.eye(data["Y"].shape[1])[data["y_val"]])


def by_dense_algebra(problem: Problem) -> Array:
    """Formula (A) for every sample and class, with the Hessian written out."""
    W = problem.optimum()
    V = np.linalg.solve(problem.fast_hessian(W), problem.val_gradient(W).ravel()).reshape(W.shape)
    return influence_matrix(problem.X @ V, softmax(problem.X @ W, axis=1), problem.Y, problem.weight)


def partly_other(batch: Batch, data: dict[str, Any], rng: np.random.Generator) -> "np.ndarray[Any, Any]":
    """True labels, for a third of the items any label, for a few none."""
    C = data["Y"].shape[1]
    answers = np.where(rng.random(len(batch)) < 1 / 3, rng.integers(0, C, len(batch)), data["y"][batch.indices])
    return np.where(rng.random(len(batch)) < 0.05, UNRESOLVED, answers)


@pytest.mark.parametrize("C", [2, 3])
def test_the_prediction_agrees_with_a_refit(C: int) -> None:
    data, rng = drawn(C, 0), np.random.default_rng(C)
    cleaner = fitted(data)
    losses = [dense(data, cleaner).val_loss(dense(data, cleaner).optimum())]
    agreed = 0
    for _ in range(ROUNDS):
        batch = cleaner.query()
        answers = partly_other(batch, data, rng)
        agreed += int((answers == batch.suggested).sum())
        cleaner.update(batch.indices, answers)
        problem = dense(data, cleaner)
        losses.append(problem.val_loss(problem.optimum()))
    assert 0.3 < agreed / (ROUNDS * B) < 0.9, "answers partly differ from the suggestions"
    records = cleaner.rounds_[1:]
    realised = np.diff(losses)
    predicted = np.array([record.predicted_change for record in records])
    before = np.array([record.batch.influence.sum() / N for record in records])
    np.testing.assert_allclose([record.realised_change for record in records], realised, atol=1e-7)
    print(
        C,
        spearmanr(predicted, realised).statistic,
        predicted @ realised / (realised @ realised),
        np.abs(predicted - realised).sum() / np.abs(realised).sum(),
        "old",
        spearmanr(before, realised).statistic,
        before @ realised / (realised @ realised),
        np.abs(before - realised).sum() / np.abs(realised).sum(),
    )
