"""The decision rule, and whether probabilities are what they say."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import f1_score

from labelchef import InvalidInputError
from labelchef.base.arrays import Float64s, Ints
from labelchef.believe.tuning import tempered_loss
from labelchef.judge.calibration import calibration_error, temperature
from labelchef.judge.deciding import TAUS, best_tau, followed, ruling_of
from labelchef.model.softmax import cross_entropies, probabilities


def skewed(rng: np.random.Generator, n: int, prior: list[float], clarity: float) -> tuple[Float64s, Ints]:
    """Logits of a calibrated model and classes."""
    C = len(prior)
    y = rng.choice(C, n, p=prior)
    seen = clarity * np.eye(C)[y] + rng.normal(size=(n, C))
    return clarity * seen + np.log(prior), y


def f1_of(y: Ints, predicted: Ints) -> float:
    return float(f1_score(y, predicted, average="macro"))


def test_a_rare_class_is_predicted_more_often_for_macro_f1(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 9000, [0.7, 0.2, 0.1], 0.8)
    rule = ruling_of(A[:300], y[:300], A[300:6000], "f1_macro")
    assert 0.0 < rule.tau <= 1.5
    pi = softmax(rule.scaled(A[300:6000]), axis=1).mean(axis=0)
    np.testing.assert_allclose(rule.offsets, -rule.tau * np.log(pi))
    before, after = (f1_of(y[6000:], scores.argmax(axis=1)) for scores in (A[6000:], rule.scores(A[6000:])))
    assert after > before + 0.02


@pytest.mark.parametrize(("metric", "prior"), [("f1_macro", [0.6, 0.3, 0.1]), ("f1", [0.85, 0.15]), ("f1", [0.2, 0.8])])
def test_no_other_value_is_better_on_labels_drawn_from_the_probabilities(
    rng: np.random.Generator, metric: str, prior: list[float]
) -> None:
    """0.002 is noise: the F1 of 60,000 samples has a standard error of about that."""
    A, y = skewed(rng, 60_000, prior, 1.0)
    P = softmax(A, axis=1)
    average = {"f1_macro": "macro", "f1": "binary"}[metric]
    true = {
        tau: f1_score(y, (np.log(P) - tau * np.log(P.mean(axis=0))).argmax(axis=1), average=average) for tau in TAUS
    }
    assert true[best_tau(P, metric)] > max(true.values()) - 0.002
    assert max(true.values()) > min(true.values()) + 0.02


def test_the_expected_f1_is_that_of_its_definition() -> None:
    """Three samples, on which τ = 0 and τ = 1.5 predict (0, 0, 1) and (0, 1, 1), by hand."""
    P = np.array([[0.99, 0.01], [0.65, 0.35], [0.3, 0.7]])
    kept = 0.5 * (2 * 1.64 / (2 + 1.94) + 2 * 0.7 / (1 + 1.06))
    moved = 0.5 * (2 * 0.99 / (1 + 1.94) + 2 * 1.05 / (2 + 1.06))
    assert kept > moved
    assert best_tau(P, "f1_macro") == 0.0
    assert 2 * 0.7 / (1 + 1.06) < 2 * 1.05 / (2 + 1.06)
    assert best_tau(P, "f1") > 0.0  # the rare class alone counts


@pytest.mark.parametrize("metric", ["accuracy", "loss", "f1_macro"])
def test_the_most_probable_class_where_nothing_else_is_better(rng: np.random.Generator, metric: str) -> None:
    A, _ = skewed(rng, 600, [0.8, 0.2], 1.5)
    A = np.concatenate([A, A[:, ::-1]]) if metric == "f1_macro" else A  # classes alike
    assert best_tau(softmax(A, axis=1), metric) == 0.0


@pytest.mark.parametrize("prior", [[0.5, 0.5], [0.25, 0.25, 0.25, 0.25], [0.6, 0.3, 0.1]])
def test_few_trusted_samples_do_not_make_a_harmful_rule(prior: list[float]) -> None:
    """60 trusted samples and overconfident logits: over 40 runs it costs at most 0.005 in the mean, whatever the classes."""
    rng, gains = np.random.default_rng(len(prior)), []
    for _ in range(40):
        A, y = skewed(rng, 4060, prior, 1.2)
        rule = ruling_of(2.5 * A[:60], y[:60], 2.5 * A[60:2060], "f1_macro")
        gains.append(
            f1_of(y[2060:], rule.scores(2.5 * A[2060:]).argmax(axis=1)) - f1_of(y[2060:], A[2060:].argmax(axis=1))
        )
    assert np.mean(gains) > -0.005
    if min(prior) < 0.2:
        assert np.mean(gains) > 0.01


def test_the_scale_of_logits_does_not_matter(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 3000, [0.7, 0.2, 0.1], 0.8)
    one, two = (ruling_of(scale * A[:500], y[:500], scale * A, "f1_macro") for scale in (1.0, 5.0))
    assert one.tau == two.tau > 0
    same = one.scores(A).argmax(axis=1) == two.scores(5.0 * A).argmax(axis=1)
    assert same.mean() > 0.99  # the prior of T knows the scale


def test_a_rule_follows_the_model(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 3000, [0.7, 0.2, 0.1], 0.8)
    first, other = ruling_of(A[:500], y[:500], A, "f1_macro"), A + np.array([0.0, 1.0, 0.0])
    later = followed(first, other)
    assert (later.temperature, later.tau, later.shift) == (first.temperature, first.tau, first.shift)
    pi = softmax(first.scaled(other), axis=1).mean(axis=0)
    np.testing.assert_allclose(later.offsets, -first.tau * np.log(pi))


def test_hard_inputs(rng: np.random.Generator) -> None:
    A, y = skewed(rng, 30, [0.9, 0.1], 1.0)
    sure = 1e4 * np.eye(3)[rng.integers(0, 2, 50)]  # the third class has probability zero
    assert np.isfinite(ruling_of(sure[:20], sure[:20].argmax(axis=1), sure, "f1_macro").offsets).all()
    assert best_tau(np.empty((0, 2)), "f1_macro") == 0.0
    assert ruling_of(A[:0], y[:0], A, "f1_macro").temperature == 1.0
    with pytest.raises(InvalidInputError, match="expected one of"):
        best_tau(softmax(A, axis=1), "auc")
    with pytest.raises(InvalidInputError, match="F1 of one class"):
        best_tau(np.full((5, 3), 1 / 3), "f1")


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
