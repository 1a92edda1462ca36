"""The decision rule, and whether probabilities are what they say."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import f1_score

from labelchef import InvalidInputError
from labelchef.campaign.calibration import calibration_error, temperature
from labelchef.campaign.deciding import TAUS, choose_decision, most_probable
from labelchef.campaign.tuning import tempered_loss
from labelchef.core.softmax import cross_entropies, probabilities
from labelchef.domain.arrays import Float64s, Ints


def skewed(rng: np.random.Generator, n: int, prior: list[float], clarity: float) -> tuple[Float64s, Ints]:
    """Logits of a calibrated model and classes."""
    C = len(prior)
    y = rng.choice(C, n, p=prior)
    seen = clarity * np.eye(C)[y] + rng.normal(size=(n, C))
    return clarity * seen + np.log(prior), y


def test_a_rare_class_is_predicted_more_often_for_macro_f1(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 9000, [0.7, 0.2, 0.1], 0.8)
    pi = softmax(A, axis=1).mean(axis=0)
    rule = choose_decision(A[:3000], y[:3000], pi, "f1_macro", seed=0)
    assert 0.0 < rule.tau <= 1.5
    np.testing.assert_allclose(rule.offsets, -rule.tau * np.log(pi))
    assert 0.0 < rule.interval[0] < rule.gain < rule.interval[1]
    before, after = (
        f1_score(y[3000:], predicted, average="macro") for predicted in (A[3000:].argmax(axis=1), rule.decide(A[3000:]))
    )
    assert rule.interval[0] < after - before < rule.interval[1]
    assert after > before + 0.02


def test_the_gain_is_that_of_scikit_learn_smoothed(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 800, [0.85, 0.15], 1.0)
    pi = softmax(A, axis=1).mean(axis=0)
    rule = choose_decision(A, y, pi, "f1", seed=0)
    assert rule.tau > 0.0
    k = TAUS.index(rule.tau)
    values = [f1_score(y, (A - TAUS[j] * np.log(pi)).argmax(axis=1)) for j in (k - 1, k, k + 1, 0)]
    assert rule.gain == pytest.approx(0.25 * values[0] + 0.5 * values[1] + 0.25 * values[2] - values[3])


@pytest.mark.parametrize("metric", ["accuracy", "loss", "f1_macro"])
def test_the_most_probable_class_where_nothing_else_is_better(rng: np.random.Generator, metric: str) -> None:
    A, y = skewed(rng, 600, [0.5, 0.5] if metric == "f1_macro" else [0.8, 0.2], 1.5)
    rule = choose_decision(A, y, softmax(A, axis=1).mean(axis=0), metric, seed=0)
    assert (rule.tau, rule.gain) == (0.0, 0.0)
    np.testing.assert_array_equal(rule.decide(A), A.argmax(axis=1))
    np.testing.assert_array_equal(most_probable(2).decide(A), A.argmax(axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "C"), [(60, 2), (150, 2), (150, 4)])
def test_another_rule_is_rarely_chosen_where_none_is_better(n: int, C: int) -> None:
    """Classes that logits know nothing of: every rule has accuracy 1/C. 200 runs, a standard error of 1.5 %."""
    rng, chosen, runs = np.random.default_rng([n, C]), 0, 200
    for run in range(runs):
        A, y = rng.normal(size=(n, C)) + np.linspace(1.0, 0.0, C), rng.integers(0, C, n)
        rule = choose_decision(A, y, softmax(A, axis=1).mean(axis=0), "accuracy", seed=run)
        chosen += rule.tau > 0.0
    assert 0 < chosen <= (0.05 + 0.03) * runs


def test_hard_inputs(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 30, [0.9, 0.1], 1.0)
    pi = np.array([1.0, 0.0])
    assert np.isfinite(choose_decision(A, y, pi, "f1_macro", seed=0).offsets).all()
    assert choose_decision(A[:1], y[:1], pi, "f1_macro", seed=0).tau == 0.0
    assert choose_decision(A, np.zeros(30, dtype=np.int64), pi, "f1_macro", seed=0).tau == 0.0
    one, two = (choose_decision(A, y, pi, "f1_macro", seed=5) for _ in range(2))
    assert (one.tau, one.gain, one.interval) == (two.tau, two.gain, two.interval)
    with pytest.raises(InvalidInputError, match="expected one of"):
        choose_decision(A, y, pi, "auc", seed=0)
    with pytest.raises(InvalidInputError, match="F1 of one class"):
        choose_decision(np.zeros((5, 3)), np.zeros(5, dtype=np.int64), np.ones(3) / 3, "f1", seed=0)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_the_temperature_undoes_a_scale(rng: np.random.Generator, scale: float) -> None:
    A, y = skewed(rng, 6000, [0.5, 0.3, 0.2], 1.5)
    T = temperature(scale * A, y)
    assert scale / T == pytest.approx(1.0, abs=0.06)
    found = float(cross_entropies(scale * A / T, np.eye(3)[y]).mean())
    assert found == pytest.approx(tempered_loss(A, y), abs=1e-4)


def test_the_temperature_stays_finite_where_all_is_right_or_nothing_is_known() -> None:
    y = np.tile([0, 1], 10)
    T = temperature(3.0 * np.eye(2)[y], y)
    assert 0.5 < probabilities(3.0 * np.eye(2)[y] / T)[0, 0] < 0.99
    assert temperature(np.zeros((20, 2)), y) == 1.0


def test_the_calibration_error_is_that_of_its_definition(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 100, [0.5, 0.3, 0.2], 1.0)
    P = softmax(2 * A, axis=1)
    order = np.argsort(P.max(axis=1), kind="stable")
    right, confidence = (P.argmax(axis=1) == y)[order], P.max(axis=1)[order]
    parts: list[Any] = [slice(int(k * 100 / 6), int((k + 1) * 100 / 6)) for k in range(6)]
    expected = sum(abs(right[part].mean() - confidence[part].mean()) * len(right[part]) / 100 for part in parts)
    found = calibration_error(P, y, seed=0)
    assert (found.bins, found.samples) == (6, 100)
    assert found.error == pytest.approx(expected)


def test_noise_alone_is_within_noise_and_overconfidence_is_beyond() -> None:
    rng, beyond, errors, floors = np.random.default_rng(3), 0, [], []
    for run in range(200):
        A, y = skewed(rng, 200, [0.6, 0.4], 1.0)
        found = calibration_error(softmax(A, axis=1), y, seed=run)
        beyond += found.beyond_noise
        errors.append(found.error)
        floors.append(found.floor)
    assert beyond <= (0.05 + 0.04) * 200
    assert np.mean(errors) == pytest.approx(np.mean(floors), rel=0.05)
    assert calibration_error(softmax(4 * A, axis=1), y, seed=0).beyond_noise
