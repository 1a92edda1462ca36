"""gamma and l2 by cross-validation: the criterion, the fits behind it, and the choices it leads to."""

from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError
from labelchef.believe import tuning
from labelchef.believe.tuning import RELATIVE_L2, tempered_loss, tune
from tests.oracles import Array, Problem


def data(seed: int, n: int, flipped: float, d: int = 5, C: int = 2, scale: float = 1.0) -> "tuple[Array, Array, Ints]":
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    X = scale * (rng.normal(size=(n, d)) + 1.2 * rng.normal(size=(C, d))[y])
    said = np.where(rng.random(n) < flipped, (y + rng.integers(1, C, n)) % C, y)
    return X, np.eye(C)[said], y


def chosen(X: Array, Y: Array, y: Ints, n_val: int, **other: object) -> tuning.Tuned:
    n = len(X) - n_val
    return tune(X[:n], Y[:n], np.full(n, -1), X[n:], y[n:], **other)  # type: ignore[arg-type]


def test_the_criterion_is_the_loss_at_the_best_temperature(rng: np.random.Generator) -> None:
    A, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    A[np.arange(60), y] += 0.7

    def loss(t: float) -> float:
        return float(-log_softmax(np.exp(t) * A, axis=1)[np.arange(60), y].mean())

    assert tempered_loss(A, y) == pytest.approx(min(loss(t) for t in np.linspace(-4, 4, 4001)), abs=1e-6)
    assert tempered_loss(1e-3 * A, y) == pytest.approx(tempered_loss(A, y), abs=1e-6)
    assert tempered_loss(np.zeros((4, 3)), np.array([0, 1, 2, 0])) == pytest.approx(np.log(3))


def test_a_trial_is_what_refitting_every_fold_gives() -> None:
    """Each fold by a dense Newton fit on weak samples and the other folds."""
    X, Y, y = data(0, 130, 0.3)
    n, gamma, l2 = 90, 0.3, 0.05
    search = tuning._Search(X[:n], Y[:n], np.full(n, -1), X[n:], y[n:], bias=True, seed=4)
    trial = search.best([(gamma, l2)])
    A, ones = np.empty((40, 2)), np.ones((130, 1))
    for rest, held in search._folds:
        rows = np.concatenate([np.arange(n), n + rest])
        Z = np.hstack([X, ones])
        weight = np.where(rows < n, gamma, 1.0) * len(rows) / n  # the oracle divides by the rows it has
        labels = np.vstack([Y[:n], np.eye(2)[y[n:]]])[rows]
        A[held] = Z[n + held] @ Problem(Z[rows], labels, weight, l2, Z[n:], np.eye(2)[y[n:]]).optimum()
    assert trial.loss == pytest.approx(tempered_loss(A, y[n:]), rel=1e-4)


def test_bad_weak_labels_get_little_weight_and_good_ones_much() -> None:
    bad = [chosen(*data(seed, 700, 0.45), 200, seed=seed).gamma for seed in range(4)]
    good = [chosen(*data(seed, 700, 0.02), 60, seed=seed).gamma for seed in range(4)]
    assert max(bad) <= 0.3
    assert np.mean(good) > np.mean(bad)


def test_the_scale_of_the_features_does_not_matter() -> None:
    X, Y, y = data(3, 400, 0.2, C=3)
    one = chosen(X, Y, y, 100, bias=False)
    two = chosen(1000 * X, Y, y, 100, bias=False)
    assert one.gamma == two.gamma
    assert two.l2 == pytest.approx(1e6 * one.l2, rel=1e-6)


def test_what_is_given_stays_and_is_not_searched() -> None:
    X, Y, y = data(5, 300, 0.3)
    tuned = chosen(X, Y, y, 80, gamma=0.77)
    assert {trial.gamma for trial in tuned.trials} == {0.77}
    assert len(tuned.trials) == len(RELATIVE_L2)
    tuned = chosen(X, Y, y, 80, l2=0.123)
    assert {trial.l2 for trial in tuned.trials} == {0.123}
    assert chosen(X, Y, y, 80, l2=0.123, gamma=0.5).gamma == 0.5


def test_same_seed_same_choice_and_every_trial_is_told() -> None:
    X, Y, y = data(6, 300, 0.3)
    one, two = chosen(X, Y, y, 80, seed=1), chosen(X, Y, y, 80, seed=1)
    assert [(t.gamma, t.l2, t.loss) for t in one.trials] == [(t.gamma, t.l2, t.loss) for t in two.trials]
    best = min(one.trials, key=lambda t: t.loss)
    assert (one.gamma, one.l2) == (best.gamma, best.l2)


def test_many_rows_and_columns_are_stood_for_by_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the rows, weighted up, comes to nearly the same losses; many columns are turned, not cut."""
    X, Y, y = data(7, 3000, 0.3)
    pair = [(0.3, 0.01)]
    whole = tuning._Search(X[:2800], Y[:2800], np.full(2800, -1), X[2800:], y[2800:], bias=True, seed=0).best(pair)
    monkeypatch.setattr(tuning, "ROWS", 1000)
    part = tuning._Search(X[:2800], Y[:2800], np.full(2800, -1), X[2800:], y[2800:], bias=True, seed=0).best(pair)
    assert part.loss == pytest.approx(whole.loss, rel=0.1)
    assert part.loss != whole.loss
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 40))  # six directions in forty columns
    for shape in (rows, rows[:20]):
        fewer = tuning.fewer_columns(shape, most=8)
        assert fewer.shape[1] <= 8
        np.testing.assert_allclose(fewer @ fewer.T, shape @ shape.T, rtol=1e-8, atol=1e-8)


def test_clean_samples_count_as_such() -> None:
    """With every weak label wrong and every sample given as clean, weight on weak labels cannot hurt: all trials agree."""
    X, Y, y = data(8, 260, 1.0)
    n = 200
    tuned = tune(X[:n], Y[:n], y[:n], X[n:], y[n:], l2=0.05)
    losses = [trial.loss for trial in tuned.trials]
    assert max(losses) - min(losses) < 1e-3


@pytest.mark.parametrize("labels", [[0, 1], [0, 0, 0, 1], [1] * 9])
def test_tiny_and_lopsided_validation(labels: list[int]) -> None:
    X, Y, _ = data(9, 100, 0.3)
    y_val = np.array(labels)
    tuned = tune(X, Y, np.full(100, -1), np.zeros((len(labels), 5)) + y_val[:, None], y_val)
    assert np.isfinite(tuned.l2)
    assert tuned.l2 > 0
    assert tuned.gamma in tuning.GAMMAS


def test_it_chooses_what_predicts_best() -> None:
    """Going along one line at a time, it is never far from the best of the whole grid."""
    X, Y, y = data(10, 400, 0.35, d=12)
    n = 280
    tuned = chosen(X, Y, y, 120)
    search = tuning._Search(X[:n], Y[:n], np.full(n, -1), X[n:], y[n:], bias=True, seed=0)
    every = [search.best([(g, r * search.scale)]).loss for g in tuning.GAMMAS for r in RELATIVE_L2]
    assert min(t.loss for t in tuned.trials) <= min(every) + 0.01


def test_one_trusted_sample_is_too_few() -> None:
    X, Y, _ = data(9, 100, 0.3)
    with pytest.raises(InvalidInputError, match="1 validation sample steers, too few to choose gamma and l2 by"):
        tune(X, Y, np.full(100, -1), X[:1], np.array([0]))


def test_features_of_any_size_that_can_be_squared() -> None:
    X, Y, y = data(3, 200, 0.2)
    large: Any = (X * 1e14).astype(np.float32)
    assert np.isfinite(chosen(large, Y, y, 50, bias=False).l2)
    for scale in (1e20, 1e160):
        with pytest.raises(InvalidInputError, match="too large to square"):
            chosen(X * scale, Y, y, 50)
    assert chosen(np.zeros_like(X), Y, y, 50).l2 > 0
