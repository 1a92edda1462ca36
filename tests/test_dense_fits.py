"""Fits in a few directions: leave-one-out against refits, beliefs without a fold against refits."""

from typing import Any

import numpy as np
import pytest

from labelchef import LabelCleaner
from labelchef.believe.learner import _DRAW, _Probed
from labelchef.believe.learning import COLUMNS, FOLDS
from labelchef.believe.tuning import folds_of
from labelchef.model.dense_fits import DenseRows
from tests.oracles import Array, Problem


def optimum(rows: DenseRows, Y: Array, weight: Array, strength: float) -> Array:
    n, none = len(Y), np.zeros((1, rows.X.shape[1]))
    return Problem(rows.X, Y, weight, strength / n, none, none).optimum()


def drawn(rng: np.random.Generator, n: int, r: int, C: int) -> tuple[DenseRows, Array]:
    y = rng.integers(0, C, n)
    X = 0.5 * rng.normal(size=(n, r)) + 0.8 * rng.normal(size=(C, r))[y]
    return DenseRows(X), np.eye(C)[y]


@pytest.mark.parametrize(("n", "r"), [(60, 12), (30, 45)])
@pytest.mark.parametrize("C", [2, 4, 7])
def test_quadratic_forms_equal_inverses(rng: np.random.Generator, n: int, r: int, C: int) -> None:
    """By Cholesky factors, by eigenvectors of the columns and by those of the rows; some rows have no curvature."""
    rows, _ = drawn(rng, n, r, C)
    h, q = rng.uniform(0, 1, n), np.sort(rng.uniform(0, 0.5, C - 1))
    h[:3] = [0.0, 1e-14, 1.0]
    G = rows.X.T @ (h[:, None] * rows.X)
    expected = [np.diag(rows.X @ np.linalg.inv(one * G + 0.3 * np.eye(r)) @ rows.X.T) for one in q]
    np.testing.assert_allclose(rows._quadratic(h, q, 0.3), np.stack(expected, axis=1), rtol=1e-6)


@pytest.mark.parametrize("C", [2, 5])
def test_leave_one_out_is_near_refits(rng: np.random.Generator, C: int) -> None:
    rows, Y = drawn(rng, 40, 15, C)
    W, strength = optimum(rows, Y, np.ones(40), 2.0), 2.0
    found = rows.leave_one_out(Y, W, strength)
    real = np.empty_like(found)
    for j in range(40):
        real[j] = rows.X[j] @ optimum(rows, Y, (np.arange(40) != j).astype(float), strength)
    moved, predicted = (one - rows.X @ W for one in (real, found))
    assert np.linalg.norm(
        (predicted - moved) - (predicted - moved).mean(axis=1, keepdims=True)
    ) < 0.25 * np.linalg.norm(moved)


def problem(seed: int, C: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, C])
    y = rng.integers(0, C, 400)
    X = (rng.normal(size=(400, 20)) + 0.6 * rng.normal(size=(C, 20))[y]).astype(np.float32)
    votes = np.where(rng.random((400, 8)) < 0.5, y[:, None], rng.integers(0, C, (400, 8)))
    votes[rng.random((400, 8)) < 0.6] = -1
    return {
        "X": X[:320], "votes": votes[:320], "X_val": X[320:], "y_val": y[320:], "votes_val": votes[320:],
        "classes": list(range(C)),
    }  # fmt: skip


@pytest.mark.parametrize("C", [2, 5])
@pytest.mark.parametrize("sources", ["naive_bayes", "joint", "product", "dawid_skene"])
def test_the_shift_of_beliefs_agrees_with_refits(sources: str, C: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fits for each fold, with the beliefs of all and with those without the fold."""
    session = LabelCleaner(sources=sources, gamma=0.3).fit(**problem(1, C))._session
    learner, labels, objective = session.learner, session.labels, session.objective
    assert learner is not None
    found = learner.belief_shift(objective, labels)
    clean, weak = labels.clean_ids, learner._probe(labels)
    rows = np.flatnonzero(clean >= 0)
    y, M, m, n = clean[rows], len(weak), len(rows), len(clean) - learner.n_items
    both = np.concatenate([weak, rows])
    dense = learner._along_axes(objective, labels, both).narrower(COLUMNS, bias=learner.bias)
    assert learner.choice is not None
    assert learner.belief is not None
    probed = _Probed(learner.choice, dense, learner.votes.rows(both), learner.given[weak], y)
    whole, start = probed.without(np.empty(0, dtype=np.int64), None)
    Y, strength = np.eye(C)[y], objective.l2 * objective.engine.n_rows
    times = np.count_nonzero(~labels.cleaned & learner.belief.spoken) / M
    real = np.empty((n, C))
    for _, held in folds_of(y[-n:], FOLDS, np.random.default_rng([learner.seed, _DRAW])):
        weight = np.concatenate([np.full(M, learner.choice.gamma * times), np.ones(m)])
        weight[M + m - n + held] = 0.0
        without, _ = probed.without(m - n + held, start)
        one, two = (optimum(dense, np.vstack([Q, Y]), weight, strength) for Q in (whole.Q[:M], without.Q[:M]))
        real[held] = dense.X[M + m - n + held] @ (two - one)
    real -= real[:, :1]
    assert found is not None
    assert np.linalg.norm(found - real) < 0.03 * np.linalg.norm(real)
