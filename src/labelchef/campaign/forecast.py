"""What the next labels are worth: the expected gain of a metric, with an interval, from the rounds so far and from other data.

(a_r, v_r), r = 0 … m, are the labels asked and the metric on the samples that judge, after each round; n is the number of clean
samples at the start. Metrics grow about with the logarithm of the clean samples, and wander:

    v_r − v_{r−1} = β u_r + η_r,      u_r = log((n + a_r) / (n + a_{r−1})),      η_r ~ N(0, σ² s_r),   s_r = a_r − a_{r−1}

(a random walk with drift: what a round did stays). β and σ² by weighted least squares, from d_r = v_r − v_{r−1}:

    β̂ = Σ_r u_r d_r / s_r / q,      q = Σ_r u_r² / s_r,      σ̂² = Σ_r (d_r − β̂ u_r)² / s_r / (m − 1)

With a hundred samples that judge, β̂ is mostly noise: its error is several times the gains that labels bring. So it is drawn to
what labels brought on other data sets, β ~ N(β₀, τ²), by as much as it is uncertain:

    w = τ² / (τ² + κ σ̂² / q),      β̃ = β₀ + w (β̂ − β₀),      τ̃² = (1 − w) τ²

(w = 0 with fewer than `FEWEST` rounds). κ = `DISTRUST` > 1: rounds are judged by the same samples, and a new choice of the
learner moves many of them at once, so β̂ is worse than σ̂² says; by hindsight, intervals with κ = 1 held 79 to 87 %. The gain of
the next L labels, with U = log((n + a_m + L) / (n + a_m)), is

    U (β̃ ± t τ̃),      t the 97.5 % point of Student's distribution with as many degrees of freedom as there were sets, less one.

β₀ and τ (`PRIOR`) are the mean and the spread of gains on test / U over the sets of `python -m experiments forecast`, which
judges every set by the others.

**What follows.** With a gain that the next L labels must bring to be worth their price (`worth`): *don't ask* if the whole
interval is below it, *ask* if the whole interval is at or above it, else *cannot say*. For the loss, less is better, and a gain
is a fall.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from labelchef.campaign.gain import LEVEL
from labelchef.campaign.metrics import value_of
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.numbers import check_number, check_whole
from labelchef.domain.records import RoundRecord
from labelchef.domain.settings import METRICS
from labelchef.domain.validation import Forecast

FEWEST = 4
"""Rounds with labels before which the curve is not looked at."""
DISTRUST = 10.0
"""By how much the variance of the curve's slope is larger than the rounds show."""
LABELS = 100
WORTH = 0.01
"""A gain that is worth asking `LABELS` labels for, where the user names none."""


@dataclass(frozen=True)
class Prior:
    """Gains on other data sets, per unit of the logarithm of the clean samples: mean β₀, spread τ, and the number of sets."""

    mean: float
    spread: float
    sets: int


PRIOR = {
    "accuracy": Prior(0.019, 0.031, 9),
    "f1_macro": Prior(0.019, 0.032, 9),
    "f1": Prior(0.019, 0.032, 9),
    "loss": Prior(0.035, 0.063, 9),
}


def forecast(
    rounds: Sequence[RoundRecord],
    metric: str,
    clean: int,
    *,
    labels: int = LABELS,
    worth: float = WORTH,
) -> Forecast:
    """The gain that the next labels will bring; `clean` is the number of clean samples at the start, trusted ones included."""
    if metric not in METRICS:
        raise InvalidInputError(f"unknown metric {metric!r}; expected one of: {', '.join(METRICS)}", code="metric")
    check_whole(labels, "the number of labels to forecast", code="labels")
    check_number(worth, "the gain that is worth asking", code="worth")
    sign = -1.0 if metric == "loss" else 1.0
    curve = {record.spent: sign * value_of(record.validation, metric) for record in rounds}  # the last of equal ones
    gain = gain_ahead(list(curve) or [0], list(curve.values()) or [0.0], clean, labels, PRIOR[metric])
    return Forecast(metric, labels, worth, max(len(curve) - 1, 0), *gain)


def gain_ahead(
    asked: Sequence[float] | Ints, values: Sequence[float] | Float64s, clean: int, labels: int, prior: Prior
) -> tuple[float, float, float]:
    """Gain of the next labels, and the ends of its interval.

    >>> gain, low, high = gain_ahead([0], [0.7], clean=100, labels=100, prior=Prior(0.02, 0.03, 9))
    >>> round(gain, 3), round(low, 3), round(high, 3)
    (0.014, -0.034, 0.061)
    """
    a, v = np.asarray(asked, dtype=np.float64), np.asarray(values, dtype=np.float64)
    ahead = float(np.log1p(labels / (clean + a[-1] + 1.0)))
    weight, drift = 0.0, 0.0
    if len(a) > FEWEST:
        s, d, u = np.diff(a), np.diff(v), np.diff(np.log(clean + a + 1.0))
        q = float((u**2 / s).sum())
        drift = float((u * d / s).sum()) / q
        noise = float(((d - drift * u) ** 2 / s).sum()) / (len(d) - 1) / q
        weight = prior.spread**2 / (prior.spread**2 + DISTRUST * noise)
    gain = ahead * (prior.mean + weight * (drift - prior.mean))
    half = ahead * float(student.ppf((1 + LEVEL) / 2, prior.sets - 1)) * prior.spread * float(np.sqrt(1 - weight))
    return gain, gain - half, gain + half
