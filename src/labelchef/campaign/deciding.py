"""The decision rule that suits a metric: which class is predicted, given probabilities.

    ŷ = argmax_c [ log p_c − τ log π_c ]          π (C,): the mean prediction over the training samples

τ = 0 is the most probable class, which is right for accuracy if probabilities are. τ = 1 divides the prior out, which suits
metrics that count every class alike, such as macro-F1. τ is chosen among `TAUS` over cross-fitted logits, and 0 unless the gain
is beyond noise:

    d_τ      metric(τ) − metric(0), averaged over τ and its neighbours with weights ¼, ½, ¼
    d*_τ     the same on counts drawn by the bootstrap of `campaign/gain.py`, with its half a sample that got better and half a
             sample that got worse; one draw serves all τ
    s_τ      standard deviation of d*_τ
    q        a quantile (`level`) of max_τ (d*_τ − mean d*_τ) / s_τ

The chosen τ has the largest d_τ, and is used if some τ has d_τ > q s_τ. Since q is that of the maximum, the number of values
tried is accounted for. The interval of the gain is d_τ ± q' s_τ with q' the 95 % point of the maximum of the absolute value.

Shapes: logits (n, C), cross-fitted; y (n,).
"""

from dataclasses import dataclass

import numpy as np

from labelchef.campaign.calibration import temperature
from labelchef.campaign.gain import LEVEL, better_and_worse, drawn_metrics
from labelchef.campaign.metrics import check_metric
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.learning import Ruling

TAUS = tuple(k / 10 for k in range(16))
"""Values of τ that are tried: 0 to 1.5."""
EVEN = 0.5
"""The level of a ruling: the gain must be above the median of what noise alone makes of the largest gain."""
METRICS = ("f1_macro", "f1", "accuracy", "loss")

_DRAWS = 1000
_BLOCK = 100  # draws at a time, to bound memory: (block, n)
_RAREST = 1e-6  # a class is never taken to be rarer than this


@dataclass(frozen=True)
class Decision:
    """A rule, the gain of the metric it was chosen by over the most probable class, and the gain's 95 % interval.

    >>> rule = Decision(np.array([0.0, 0.5]), tau=0.4, gain=0.02, interval=(0.01, 0.03))
    >>> rule.decide(np.array([[0.3, 0.0], [0.9, 0.0]])).tolist()
    [1, 0]
    """

    offsets: Float64s
    """(C,), −τ log π: what is added to the logits."""
    tau: float
    gain: float
    interval: tuple[float, float]

    def decide(self, logits: Float64s) -> Ints:
        """Class ids (n,) for logits or log-probabilities (n, C)."""
        return np.asarray((logits + self.offsets).argmax(axis=1), dtype=np.int64)


def most_probable(n_classes: int) -> Decision:
    """The rule τ = 0."""
    return Decision(np.zeros(n_classes), 0.0, 0.0, (0.0, 0.0))


def choose_decision(
    logits: Float64s, y: Ints, mean_prediction: Float64s, metric: str, *, seed: int, level: float = LEVEL
) -> Decision:
    """The rule for a metric, from cross-fitted logits; the most probable class unless another rule is better beyond noise.

    Where no rule is better, another one is chosen with a probability of at most 1 − `level`.
    """
    n, C = logits.shape
    if metric not in METRICS:
        raise InvalidInputError(f"target_metric is {metric!r}; expected one of: {', '.join(METRICS)}", code="metric")
    check_metric(metric, C)
    if metric == "loss" or n < 2:
        return most_probable(C)
    prior = np.log(np.maximum(mean_prediction, _RAREST))
    predicted = np.stack([(logits - tau * prior).argmax(axis=1) for tau in TAUS], axis=1)
    found = _metric(np.ones((1, n)), y, predicted, metric, C)
    gain = _smooth(found - found[:, :1])[0, 1:]
    drawn = _drawn_gains(y, predicted, metric, C, seed)
    spread = drawn.std(axis=0)
    noise = (drawn - drawn.mean(axis=0)) / spread
    best = int(gain.argmax())
    needed = float(np.quantile(noise.max(axis=1), level))
    if not (gain > needed * spread).any():
        return most_probable(C)
    half = float(np.quantile(np.abs(noise).max(axis=1), LEVEL) * spread[best])
    tau, value = TAUS[best + 1], float(gain[best])
    return Decision(-tau * prior, tau, value, (value - half, value + half))


def _drawn_gains(y: Ints, predicted: Ints, metric: str, n_classes: int, seed: int) -> Float64s:
    """d*_τ of every draw for τ > 0, (draws, len(TAUS) − 1)."""
    extra, mass = better_and_worse(y, n_classes)
    true = np.concatenate([y, extra[:, 0]])
    after = np.repeat(extra[:, 2:], len(TAUS) - 1, axis=1)
    cells = np.concatenate([predicted, np.hstack([extra[:, 1:2], after])])
    share = np.concatenate([np.ones(len(y)), mass])
    rng, found = np.random.default_rng(seed), []
    for _ in range(0, _DRAWS, _BLOCK):
        draws = rng.multinomial(len(y), share / share.sum(), size=_BLOCK).astype(np.float64)
        values = _metric(draws, true, cells, metric, n_classes)
        found.append(_smooth(values - values[:, :1])[:, 1:])
    return np.concatenate(found)


def _metric(draws: Float64s, true: Ints, predicted: Ints, metric: str, n_classes: int) -> Float64s:
    """(draws, len(TAUS)): the metric of each draw under each rule; rules that predict alike are computed once."""
    columns, which = np.unique(predicted, axis=1, return_inverse=True)
    values = [drawn_metrics(draws, true, column, n_classes)[metric] for column in columns.T]
    return np.stack(values, axis=1)[:, which.ravel()]


def _smooth(values: Float64s) -> Float64s:
    """Weights ¼, ½, ¼ along the last axis; at its ends the missing neighbour is the end itself.

    >>> _smooth(np.array([[0.0, 4.0, 0.0, 8.0]])).tolist()
    [[1.0, 2.0, 3.0, 6.0]]
    """
    padded = np.pad(values, ((0, 0), (1, 1)), mode="edge")
    return np.asarray(0.25 * padded[:, :-2] + 0.5 * padded[:, 1:-1] + 0.25 * padded[:, 2:])


def ruling_of(logits: Float64s, y: Ints, mean_prediction: Float64s, metric: str, seed: int) -> Ruling:
    """Temperature and decision rule from cross-fitted logits (n, C); π is the mean prediction, (C,)."""
    T = temperature(logits, y)
    tau = choose_decision(logits / T, y, mean_prediction, metric, seed=seed, level=EVEN).tau
    return Ruling(T, tau, offsets_of(tau, mean_prediction))


def retempered(ruling: Ruling, logits: Float64s, y: Ints, mean_prediction: Float64s) -> Ruling:
    """The same τ, with the temperature and the offsets of other cross-fitted logits (n, C)."""
    return Ruling(temperature(logits, y), ruling.tau, offsets_of(ruling.tau, mean_prediction))


def offsets_of(tau: float, mean_prediction: Float64s) -> tuple[float, ...]:
    """−τ log π, (C,)."""
    return tuple(float(v) for v in -tau * np.log(np.maximum(mean_prediction, _RAREST)))
