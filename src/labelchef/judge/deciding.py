"""The decision rule that suits a metric: which class is predicted, given probabilities.

    ŷ = argmax_c [ log p_c − τ log π_c ]          π (C,): the mean prediction over the samples

τ = 0 is the most probable class, which is right for accuracy if probabilities are. τ = 1 divides the prior out, which suits
metrics that count every class alike, such as macro-F1. τ is the one of `TAUS` with the largest F1 that the probabilities p of
the samples themselves predict, of which no label need be known:

    F1_c(τ) = 2 Σ_{i: ŷ_i = c} p_ic / ( #{i: ŷ_i = c} + Σ_i p_ic )

the ratio of the expected true positives to the expected number of samples predicted or true. It is right if the probabilities
are: their temperature comes from cross-fitted logits of trusted samples (`calibration`). Counting on the trusted samples in its
place needs no such trust, but its noise is larger than most gains: experiments/results/judging.md has the comparison.

Held-out logits of a trusted sample are those of a model without it, which has another mean prediction: that of its training
rows, of weight w together, is the mean of their labels (Σ_i w_i (p_i − y_i) = 0 at the optimum, but for l2), so without sample j

    π⁻ = π − (y_j − π) / ((w − 1) max(T, 1))          (`scores_without`)

With π in its place, every sample looks as if its own class were rarer than the model without it takes it to be. Where features
tell nothing and τ = 1, that alone decides: accuracies of 0.1 were shown where 0.24 is true.

Shapes: logits (N, C) of samples; held-out logits (n, C) and y (n,) of trusted samples.
"""

from dataclasses import replace

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.learning import Ruling
from labelchef.judge.calibration import scaling
from labelchef.judge.metrics import check_metric
from labelchef.model.softmax import probabilities

TAUS = tuple(k / 10 for k in range(16))
"""Values of τ that are tried: 0 to 1.5."""
MOST = 10_000
"""So many samples are enough for π and the expected metric."""
METRICS = ("f1_macro", "f1", "accuracy", "loss")

_RAREST = 1e-6  # a class is never taken to be rarer than this


def best_tau(P: Float64s, metric: str) -> float:
    """τ with the largest expected metric over samples with probabilities P (N, C); the smallest of equal ones.

    >>> rare = np.array([[0.98, 0.02]] * 80 + [[0.6, 0.4]] * 20)
    >>> best_tau(rare, "accuracy"), best_tau(rare, "f1_macro") > 0
    (0.0, True)
    """
    C = P.shape[1]
    if metric not in METRICS:
        raise InvalidInputError(f"target_metric is {metric!r}; expected one of: {', '.join(METRICS)}", code="metric")
    check_metric(metric, C)
    if metric in ("accuracy", "loss") or len(P) == 0:
        return 0.0
    log_p, mass, found = np.log(np.maximum(P, np.finfo(float).tiny)), P.sum(axis=0), []
    for tau in TAUS:
        predicted = (log_p + offsets_of(tau, mass / len(P))).argmax(axis=1)
        hits = np.bincount(predicted, P[np.arange(len(P)), predicted], C)
        f1 = 2 * hits / np.maximum(np.bincount(predicted, minlength=C) + mass, _RAREST)
        found.append(float(f1[1] if metric == "f1" else f1.mean()))
    return TAUS[int(np.argmax(found))]


def ruling_of(held_out: Float64s, y: Ints, logits: Float64s, metric: str) -> Ruling:
    """Temperature from held-out logits (n, C) of trusted samples, and the decision rule for samples with these logits (N, C)."""
    T, shift = scaling(held_out, y)
    ruling = Ruling(T, 0.0, (), tuple(map(float, shift)))
    return followed(replace(ruling, tau=best_tau(probabilities(ruling.scaled(logits)), metric)), logits)


def followed(ruling: Ruling, logits: Float64s) -> Ruling:
    """The same scale and τ, with π of other logits (N, C)."""
    mean = probabilities(ruling.scaled(logits)).mean(axis=0)
    return replace(ruling, offsets=tuple(map(float, offsets_of(ruling.tau, mean))))


def scores_without(ruling: Ruling, held_out: Float64s, y: Ints, weight: float) -> Float64s:
    """(n, C), of which the largest decides, of samples with held-out logits, each by the mean prediction without it.

    `weight` is that of all rows that train the model, of which each of these samples has 1.

    >>> ruling = Ruling(1.0, 1.0, tuple(offsets_of(1.0, np.array([0.5, 0.5]))))
    >>> A = np.log([[4.0, 5.0]])  # of ten samples whose features tell nothing, without one of the first class
    >>> round(float(np.ptp(scores_without(ruling, A, np.array([0]), 10.0))), 6), round(float(np.ptp(ruling.scores(A))), 2)
    (0.0, 0.22)
    """
    if not ruling.tau:
        return ruling.scores(held_out)
    pi = np.exp(-np.array(ruling.offsets) / ruling.tau)
    less = (np.eye(len(pi))[y] - pi) / (max(weight - 1.0, 1.0) * max(ruling.temperature, 1.0))
    return np.asarray(ruling.scaled(held_out) + offsets_of(ruling.tau, pi - less))


def offsets_of(tau: float, mean_prediction: Float64s) -> Float64s:
    """−τ log π, (C,): what is added to the logits."""
    return np.asarray(-tau * np.log(np.maximum(mean_prediction, _RAREST)))
