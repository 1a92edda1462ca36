"""What the next labels are worth: the expected gain of a metric, with an interval, from the rounds so far.

(a_r, v_r), r = 0 … m, are the labels asked and the metric on the samples that judge, after each round; n is the number of clean
samples at the start. Metrics grow about with the logarithm of the clean samples, and wander:

    v_r − v_{r−1} = β u_r + η_r,      u_r = log((n + a_r) / (n + a_{r−1})),      η_r ~ N(0, σ² s_r),   s_r = a_r − a_{r−1}

(a random walk with drift: what a round did stays). β and σ² by weighted least squares:

    β̂ = Σ_r u_r d_r / s_r / q,      q = Σ_r u_r² / s_r,      σ̂² = Σ_r (d_r − β̂ u_r)² / s_r / (m − 1),    d_r = v_r − v_{r−1}

The gain of the next L labels, with U = log((n + a_m + L) / (n + a_m)), is then

    β̂ U  ±  t_{m−1} √( σ̂² (L + U² / q) ),

Student's interval for a new observation. Its noise includes that of the samples that judge, so it is wide where these are few.

**What follows.** With a gain that the next L labels must bring to be worth their price (`worth`): *don't ask* if the whole
interval is below it, *ask* if the whole interval is at or above it, else *cannot say*. With fewer than `FEWEST` rounds nothing is
said at all.
For the loss, less is better, and a gain is a fall.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from labelchef.campaign.gain import LEVEL
from labelchef.campaign.metrics import value_of
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.numbers import check_number, check_whole
from labelchef.domain.records import RoundRecord
from labelchef.domain.settings import METRICS
from labelchef.domain.validation import Forecast

FEWEST = 4
"""Rounds with labels, before which nothing is said."""
LABELS = 100
WORTH = 0.01
"""A gain that is worth asking `LABELS` labels for, where the user names none."""


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
    curve = {
        record.spent: sign * value_of(record.validation, metric) for record in rounds
    }  # the last one of equal spent
    found = curve_gain(list(curve), list(curve.values()), clean, labels)
    gain, low, high = (None, None, None) if found is None else found
    return Forecast(metric, labels, worth, len(curve) - 1, gain, low, high)


def curve_gain(
    asked: Sequence[float], values: Sequence[float], clean: int, labels: int
) -> tuple[float, float, float] | None:
    """Gain of the next labels and the ends of its interval; None with too few rounds.

    >>> gain, low, high = curve_gain([0, 20, 40, 60, 80, 100], [0.7, 0.72, 0.73, 0.745, 0.75, 0.76], clean=100, labels=100)
    >>> round(gain, 3), low < 0.03 < high
    (0.035, True)
    """
    a, v = np.asarray(asked, dtype=np.float64), np.asarray(values, dtype=np.float64)
    m = len(a) - 1
    if m < FEWEST:
        return None
    s, d, u = np.diff(a), np.diff(v), np.diff(np.log(clean + a + 1.0))
    q = float((u**2 / s).sum())
    drift = float((u * d / s).sum()) / q
    variance = float(((d - drift * u) ** 2 / s).sum()) / (m - 1)
    ahead = float(np.log1p(labels / (clean + a[-1] + 1.0)))
    half = float(student.ppf((1 + LEVEL) / 2, m - 1)) * float(np.sqrt(variance * (labels + ahead**2 / q)))
    return drift * ahead, drift * ahead - half, drift * ahead + half
