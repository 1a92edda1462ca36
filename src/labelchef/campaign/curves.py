"""Curves of a metric against the number of labels: the area below, when a level is reached, and bootstrap draws of the area.

A curve is linear between its points (a_t, v_t), t = 0 … T: after a_t labels were asked, the metric was v_t.

    area = (1/a_T) ∫₀^{a_T} v(a) da = Σ_t w_t v_t,      w_t ≥ 0 the trapezoids' weights, Σ_t w_t = 1

is the mean of the metric over the curve. How v_t varies with the samples it is measured on is drawn by the bootstrap:

    m ~ Multinomial(n, 1/n each),      area* = Σ_t w_t metric(y, P_t; m)

with y (n,) the true classes, P_t (n,) those predicted at t. Curves drawn from one seed share their m, so the difference
of two is paired: the noise they share cancels.
"""

from collections.abc import Sequence

import numpy as np

from labelchef.campaign.gain import Judged, drawn_metrics
from labelchef.domain.arrays import Float64s, Ints

DRAWS = 1000
_BLOCK = 50  # draws at a time, to bound memory: (block, n)


def area(asked: Sequence[float], values: Sequence[float], labels: float) -> float:
    """Mean of the curve from the start to `labels` labels: the area under it divided by its width.

    >>> area([0, 10, 20], [0.0, 1.0, 1.0], 20)
    0.75
    """
    inside = [x for x in asked if x < labels]
    grid = np.array([*inside, labels])
    return float(np.trapezoid(np.interp(grid, asked, values), grid) / labels)


def labels_to_reach(asked: Sequence[float], values: Sequence[float], level: float) -> float:
    """Labels until the curve first reaches the level; infinity if it never does.

    >>> labels_to_reach([0, 10, 20], [0.5, 0.7, 0.6], 0.6), labels_to_reach([0, 10], [0.5, 0.7], 0.8)
    (5.0, inf)
    """
    above = np.flatnonzero(np.asarray(values) >= level)
    if not above.size:
        return float("inf")
    k = int(above[0])
    if k == 0:
        return float(asked[0])
    share = (level - values[k - 1]) / (values[k] - values[k - 1])
    return float(asked[k - 1] + share * (asked[k] - asked[k - 1]))


def drawn_areas(
    y: Ints, curve: Sequence[Judged], asked: Sequence[float], metric: str, n_classes: int, seed: int
) -> Float64s:
    """(DRAWS,) areas of a curve on resampled samples; the same draws for the same seed and y."""
    rng, n, weights = np.random.default_rng(seed), len(y), _weights(asked)
    found = np.zeros(DRAWS)
    for start in range(0, DRAWS, _BLOCK):
        part = slice(start, start + _BLOCK)
        draws = rng.multinomial(n, np.full(n, 1 / n), size=_BLOCK).astype(np.float64)
        for weight, point in zip(weights, curve, strict=True):
            if metric == "loss":
                found[part] += weight * (draws @ point.losses) / n
            else:
                found[part] += weight * drawn_metrics(draws, y, point.predicted, n_classes)[metric]
    return found


def _weights(asked: Sequence[float]) -> Float64s:
    """The weight of each point in the area.

    >>> _weights([0, 10, 20]).tolist()
    [0.25, 0.5, 0.25]
    """
    weights = np.convolve(np.diff(asked), [0.5, 0.5])
    return np.asarray(weights / weights.sum())
