"""The gain of cleaning, with an interval: two models on the same labelled samples.

y, a, b (n,) are the true classes and the predictions of the first and of the present model. Only the counts of the
triples (y, a, b) matter for accuracy and F1, so the bootstrap draws counts:

    m ~ Multinomial(n, (counts + s) / (n + 1)),   gain* = metric(y, b; m) − metric(y, a; m),

and the interval holds the middle 95 % of the gains*. Both metrics come from the same draw, so the noise they share cancels.
s adds half a sample that got better and half a sample that got worse, spread over the classes as y is (as Agresti and Min
do for paired shares): without it, the interval of two models that agree on all samples would have no width, however few they are.
F1 of class c is 2 TP_c / (T_c + P_c); the macro-F1 of a draw is its mean over the classes that occur in y or are predicted.

The change of the loss is a mean of differences; its interval is Student's.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import Metrics
from labelchef.domain.validation import Gain

_DRAWS = 2000
LEVEL = 0.95
"""Confidence level of every interval."""


@dataclass(frozen=True)
class Judged:
    """A model on labelled samples: metrics, predicted classes (n,) and cross-entropies (n,)."""

    metrics: Metrics
    predicted: Ints
    losses: Float64s


def gains(y: Ints, before: Judged, after: Judged, n_classes: int, seed: int) -> dict[str, Gain]:
    """The gain of every metric."""
    triples, counts = np.unique(np.stack([y, before.predicted, after.predicted], axis=1), axis=0, return_counts=True)
    extra, mass = _better_and_worse(y, n_classes)
    cells, weight = np.concatenate([triples, extra]), np.concatenate([counts, mass])
    drawn = np.random.default_rng(seed).multinomial(len(y), weight / weight.sum(), size=_DRAWS).astype(np.float64)
    one, two = (drawn_metrics(drawn, cells[:, 0], cells[:, k], n_classes) for k in (1, 2))
    bounds = {name: between(two[name] - one[name]) for name in one}
    bounds["loss"] = _mean_bounds(after.losses - before.losses)
    first, last = before.metrics.as_dict(), after.metrics.as_dict()
    rarest = int(np.bincount(y, minlength=n_classes).min())
    return {name: Gain(name, first[name], last[name], *bounds[name], len(y), rarest) for name in first}


def _better_and_worse(y: Ints, n_classes: int) -> tuple[Ints, Float64s]:
    """Half a sample that got better and half one that got worse; the wrong class is the most frequent other class."""
    share = np.bincount(y, minlength=n_classes) / len(y)
    order = np.argsort(-share, kind="stable")
    true = np.flatnonzero(share)
    wrong = np.where(true == order[0], order[1], order[0])
    cells = np.concatenate([np.stack([true, wrong, true], axis=1), np.stack([true, true, wrong], axis=1)])
    return cells, np.tile(share[true] / 2, 2)


def drawn_metrics(draws: Float64s, true: Ints, predicted: Ints, n_classes: int) -> dict[str, Float64s]:
    """Metrics of each draw, (draws,): `draws[d, k]` samples are of class `true[k]` and predicted as `predicted[k]`."""
    eye = np.eye(n_classes)
    right = (true == predicted).astype(np.float64)
    there = draws @ (eye[true] + eye[predicted])  # (draws, C): T + P
    hits = draws @ (eye[true] * right[:, None])
    f1 = 2 * hits / np.maximum(there, 1.0)
    found = {
        "accuracy": draws @ right / draws.sum(axis=1),
        "f1_macro": f1.sum(axis=1) / np.maximum((there > 0).sum(axis=1), 1),
    }
    return {**found, "f1": f1[:, 1]} if n_classes == 2 else found


def between(values: Float64s, level: float = LEVEL) -> tuple[float, float]:
    """The interval that holds the middle share `level` of drawn values."""
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _mean_bounds(change: Float64s) -> tuple[float, float]:
    n, mean = len(change), float(change.mean())
    half = float(student.ppf((1 + LEVEL) / 2, max(n - 1, 1)) * change.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    return mean - half, mean + half
