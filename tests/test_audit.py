"""The audit slice: its share, its uniform draw, and an interval that holds at all times together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from labelchef import InvalidInputError
from labelchef.base.arrays import Float64s
from labelchef.base.records import UNRESOLVED
from labelchef.judge.audit import AuditTrail, anytime_bounds, audit_size, draw_audit


@given(
    share=st.floats(0, 1),
    batches=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    seed=st.integers(0, 2**32),
)
def test_the_share_is_right_after_any_batches(share: float, batches: list[int], seed: int) -> None:
    asked = audited = 0
    for size in batches:
        more = audit_size(share, size, asked, audited, seed)
        assert 0 <= more <= size
        asked, audited = asked + size, audited + more
        assert abs(audited - share * asked) <= 1.0


def test_the_share_is_right_on_average_even_for_one_batch() -> None:
    sizes = [audit_size(0.1, 5, 0, 0, seed) for seed in range(2000)]
    assert set(sizes) == {0, 1}
    assert np.mean(sizes) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_must_be_one(share: float) -> None:
    with pytest.raises(InvalidInputError, match="audit is"):
        audit_size(share, 5, 0, 0, 0)


def test_items_are_drawn_uniformly_and_from_the_seed() -> None:
    eligible = np.array([9, 2, 4, 7, 11])
    drawn = np.concatenate([draw_audit(eligible, 2, number, seed=3) for number in range(3000)])
    counts = np.array([(drawn == item).sum() for item in eligible])
    np.testing.assert_allclose(counts / 3000, 0.4, atol=0.04)
    one, two = (draw_audit(order, 3, 8, seed=3) for order in (eligible, eligible[::-1]))
    np.testing.assert_array_equal(one, two)
    assert len(np.unique(one)) == 3
    np.testing.assert_array_equal(draw_audit(eligible, 99, 0, seed=0), np.sort(eligible))


def test_the_interval_is_that_of_the_normal_mixture() -> None:
    """The sum over the grid is the integral over λ, and the ends are where it is 20."""
    fine = np.linspace(-12, 12, 200_001)

    def excess(m: float, right: int, audited: int) -> float:
        capital = norm.pdf(fine) * np.exp(fine * right - audited * np.log1p(m * np.expm1(fine)))
        return float(np.trapezoid(capital, fine)) - 20.0

    for right, audited in ((40, 50), (47, 50), (160, 200)):
        mean = right / audited
        expected = brentq(excess, mean / 2, mean, args=(right, audited)), brentq(excess, mean, 1, args=(right, audited))
        (low,), (high,) = anytime_bounds(np.array([right]), np.array([audited]))
        assert (float(low), float(high)) == pytest.approx(expected, abs=1e-3)


@given(audited=st.integers(0, 5000), share=st.floats(0, 1))
def test_ends_are_ordered_and_mirror_each_other(audited: int, share: float) -> None:
    right = round(share * audited)
    (low,), (high,) = anytime_bounds(np.array([right]), np.array([audited]))
    (other_low,), (other_high,) = anytime_bounds(np.array([audited - right]), np.array([audited]))
    assert 0.0 <= low <= (right / audited if audited else 0.5) <= high <= 1.0
    assert low == pytest.approx(1 - other_high, abs=1e-9)
    assert high == pytest.approx(1 - other_low, abs=1e-9)


def means(kind: str, size: int) -> Float64s:
    """m_i of a course: a model that stays, improves, or becomes worse."""
    ways = {"stays at 0.8": (0.8, 0.8), "stays at 0.97": (0.97, 0.97), "improves": (0.5, 0.95), "falls": (0.95, 0.6)}
    first, last = ways[kind]
    return np.asarray(last + (first - last) * np.exp(-np.arange(size) / 100))


@pytest.mark.parametrize("kind", ["stays at 0.8", "stays at 0.97", "improves", "falls"])
def test_the_interval_holds_at_all_times_together(kind: str) -> None:
    """400 courses of 400 items, each looked at after every item: at most 5 % may ever miss, give or take 1.1 %."""
    rng, size, runs = np.random.default_rng([7, *kind.encode()]), 400, 400
    true, audited = means(kind, size), np.arange(1, size + 1)
    right = np.cumsum(rng.random((runs, size)) < true, axis=1, dtype=np.int64)
    pairs, which = np.unique(right + (size + 1) * audited, return_inverse=True)  # ends depend on the counts only
    low, high = (ends[which].reshape(right.shape) for ends in anytime_bounds(pairs % (size + 1), pairs // (size + 1)))
    running = np.cumsum(true) / audited
    held = ((low <= running) & (running <= high)).all(axis=1).mean()
    assert held >= 0.95 - 0.022


def test_an_interval_for_one_look_does_not_hold_at_all_times() -> None:
    """What the interval above is for."""
    rng, size, runs = np.random.default_rng(11), 400, 400
    audited = np.arange(1, size + 1)
    mean = np.cumsum(rng.random((runs, size)) < 0.8, axis=1) / audited
    half = 1.96 * np.sqrt(np.maximum(mean * (1 - mean), 1e-4) / audited)
    held = (np.abs(mean - 0.8) <= half)[:, 30:].all(axis=1).mean()
    assert held < 0.8


def test_a_trail_counts_what_was_answered(rng: np.random.Generator) -> None:
    trail = AuditTrail.start(3)
    assert np.isnan(trail.accuracy().value)
    assert (trail.accuracy().low, trail.accuracy().high) == (0.0, 1.0)
    assert trail.one_look_figures(seed=0) == {}
    answered = rng.integers(0, 3, 90)
    predicted = np.where(rng.random(90) < 0.8, answered, (answered + 1) % 3)
    for part in np.array_split(np.arange(90), 9):
        trail = trail.extended(predicted[part], answered[part])
    unresolved = trail.extended(np.array([1, 2]), np.array([UNRESOLVED, UNRESOLVED]))
    assert unresolved.size == trail.size == 90
    figure = trail.accuracy()
    assert figure.value == pytest.approx((predicted == answered).mean())
    mean, low, high = trail.course()
    assert (mean[-1], low[-1], high[-1]) == (figure.value, figure.low, figure.high)
    once = trail.one_look_figures(seed=0)
    assert once["accuracy"].value == pytest.approx(figure.value)
    assert figure.low < once["accuracy"].low < once["accuracy"].high < figure.high
    assert once["f1_macro"].samples == 90
    with pytest.raises(InvalidInputError, match="as many of both"):
        trail.extended(np.array([1]), np.array([1, 2]))
