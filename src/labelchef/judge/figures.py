"""A metric of one model with an interval, from labelled samples that the model was not trained on, or cross-fitted.

y, a (n,) are the true and the predicted classes. As for gains (`judge/gain.py`), the bootstrap draws the counts of the pairs,

    m ~ Multinomial(n, (counts + s) / (n + 1)),   v* = metric(y, a; m),

where s is half a sample that is right and half one that is wrong. With v the metric of counts + s, the mean v̄ of the draws and
their 2.5 and 97.5 percent points l and u, the interval is that of the draws, moved by their bias v̄ − v,

    [ v − (v̄ − v) − f_l (v̄ − l),   v − (v̄ − v) + f_u (u − v̄) ]

f_l = f_u = 1 for samples that did not train. Cross-fitted predictions come from models that share nearly all of their training
samples, so their errors go together, and intervals that take them for independent are too narrow (Bates, Hastie and Tibshirani,
"Cross-validation: what does it estimate and how well does it do it?"). Simulations (experiments/results/judging.md) give the
factors with which the interval holds its level: f_l = 1.2 and f_u = 1.6. Leave-one-out underestimates F1 for rare classes, and
accuracy where features tell nothing: without a sample of it, a class is predicted too seldom.

The loss is a mean; its interval is Student's. Where it is cross-fitted, temperature and strengths were chosen on the same samples
and single samples are very wrong: in 200 simulated campaigns the level needs 1.2 below and 1.8 above.
"""

import numpy as np
from scipy.stats import t as student

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.validation import Figure
from labelchef.judge.gain import LEVEL, between, drawn_metrics

WIDENED, WIDENED_ABOVE, WIDENED_ABOVE_LOSS = 1.2, 1.6, 1.8
"""Factors of a cross-fitted interval: below, above, and above a loss."""

_DRAWS = 2000
_MANY = 1e9  # samples, for a metric of shares


def figures(
    y: Ints, predicted: Ints, n_classes: int, *, seed: int, cross_fitted: bool, losses: Float64s | None = None
) -> dict[str, Figure]:
    """Accuracy, macro-F1, F1 (two classes) and, with the losses (n,) given, the loss."""
    pairs, counts = np.unique(np.stack([y, predicted], axis=1), axis=0, return_counts=True)
    extra, mass = _right_and_wrong(y, n_classes)
    cells, weight = np.concatenate([pairs, extra]), np.concatenate([counts, mass])
    share = weight / weight.sum()
    drawn = np.random.default_rng(seed).multinomial(len(y), share, size=_DRAWS).astype(np.float64)
    found, n, rarest = {}, len(y), int(np.bincount(y, minlength=n_classes).min())
    plain = drawn_metrics(np.ones((1, n)), y, predicted, n_classes)
    middle = drawn_metrics(_MANY * share[None], cells[:, 0], cells[:, 1], n_classes)
    for name, values in drawn_metrics(drawn, cells[:, 0], cells[:, 1], n_classes).items():
        below, above = (WIDENED, WIDENED_ABOVE) if cross_fitted else (1.0, 1.0)
        low, high = between(values)
        mean = float(values.mean())
        centre = 2 * float(middle[name][0]) - mean
        bounds = (max(centre - below * (mean - low), 0.0), min(centre + above * (high - mean), 1.0))
        found[name] = Figure(name, float(plain[name][0]), *bounds, n, rarest, cross_fitted)
    if losses is not None:
        half = float(student.ppf((1 + LEVEL) / 2, max(n - 1, 1)) * losses.std(ddof=min(1, n - 1)) / np.sqrt(n))
        below, above = (WIDENED, WIDENED_ABOVE_LOSS) if cross_fitted else (1.0, 1.0)
        value = float(losses.mean())
        found["loss"] = Figure(
            "loss", value, max(value - below * half, 0.0), value + above * half, n, rarest, cross_fitted
        )
    return found


def _right_and_wrong(y: Ints, n_classes: int) -> tuple[Ints, Float64s]:
    """Half a sample that is right and half one that is wrong; the wrong class is the most frequent other class."""
    share = np.bincount(y, minlength=n_classes) / len(y)
    order = np.argsort(-share, kind="stable")
    true = np.flatnonzero(share)
    wrong = np.where(true == order[0], order[1], order[0])
    return np.concatenate([np.stack([true, true], axis=1), np.stack([true, wrong], axis=1)]), np.tile(
        share[true] / 2, 2
    )
