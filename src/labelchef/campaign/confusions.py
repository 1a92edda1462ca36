"""Annotators of different quality: the errors of each by class, and what is believed of the samples they answered.

`people` takes all persons for about equally good, which holds for colleagues. A language model at a cent and an expert are not:
here every annotator g has its own prior, and rows of a confusion matrix of its own. With v_iw the answer of w on sample i, and
p_i what a model without the sample predicts (scaled, with a share δ that means nothing, as in `people`),

    q_i(c) ∝ p_i(c) Π_w Π_w(c, v_iw)          what is believed of a sample

    ε_g = (M_g + s_g e_g) / (n_g + s_g)       M_g: expected number of wrong answers among the n_g of g; e_g its error as given
                                              beforehand, worth s_g answers
    Π_g(c, ·) = (N_g(c, ·) + κ S(ε_g)(c, ·)) / (N_g(c) + κ)      N_g(c, v) = Σ_i q_i(c) [v_ig = v];
                                              S(ε): 1 − ε on the diagonal, ε / (C − 1) elsewhere
    Π_w(c, ·) = (N_w(c, ·) + κ Π_g(c, ·)) / (N_w(c) + κ)         for a worker w of a crowd g; for others Π_w = Π_g

in turn, with scale and share of p refitted in between, until they agree. With few answers of a class its row is that of ε_g; an
annotator that is wrong on one class is found out by its row.

**Interval.** With a_i the belief in the answer v_iw from all but this answer, the answer has the likelihood
(1 − ε) a_i + ε (1 − a_i) / (C − 1). Where an annotator answers alone, a contradiction of the model may be an error of either:
so the density of ε is a mean over the shares δ′, each with its best scale, weighted by the likelihood of all answers and by
(1 − δ′)¹⁹, times the prior Beta(s e, s (1 − e)). `AnnotatorFacts` has its mean and its 2.5 % and 97.5 % quantiles.

Shapes: m answered samples, K answers, W workers, G annotators; Q (m, C), Π (G, C, C).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labelchef.campaign.gain import LEVEL
from labelchef.campaign.people import SCALES, SHARES, SHARES_ASKED, Answers, Estimate
from labelchef.core.softmax import log_probabilities
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.learning import PeopleFacts
from labelchef.domain.records import UNRESOLVED
from labelchef.domain.routing import AnnotatorFacts, Price

GUESSED = 0.2
"""The error of an annotator of whom nothing is said."""
WORTH_NOTHING_SAID, WORTH_A_GUESS = 4.0, 10.0
"""Answers that an error is worth which nobody gave, and one that was not measured."""
ROW = 10.0
"""κ: answers on samples of a class that what is known of all classes, or of all workers, is worth."""

_ROUNDS = 12
_SHARE_PRIOR = 19.0  # δ′ is 5 % on average before anything is known
_FLOOR = 1e-6
_GRID: Float64s = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class Weighed:
    """What the answers of annotators come to."""

    estimate: Estimate
    confusions: Float64s
    """(G, C, C): [annotator][class][answer]."""
    share: float
    """δ of samples that a selector chose: the share of predictions of them that means nothing."""
    densities: Float64s
    """(G, 400): of the error, at the middles of 400 equal parts of [0, 1]."""


def prior_of(price: Price) -> tuple[float, float]:
    """(e, s): the error that is expected of an annotator, and how many answers that is worth."""
    if price.error is None:
        return GUESSED, WORTH_NOTHING_SAID
    return float(np.clip(price.error, 1e-4, 1.0 - 1e-4)), float(price.gold) or WORTH_A_GUESS


def symmetric(error: float, n_classes: int) -> Float64s:
    """S(ε), (C, C).

    >>> symmetric(0.2, 3).tolist()
    [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    """
    other = error / (n_classes - 1)
    return np.full((n_classes, n_classes), other) + (1.0 - error - other) * np.eye(n_classes)


def expected_confusions(prices: Sequence[Price], n_classes: int) -> Float64s:
    """(G, C, C) before anybody has answered."""
    return np.stack([symmetric(prior_of(one)[0], n_classes) for one in prices])


def information(Q: Float64s, confusions: Float64s) -> Float64s:
    """(m, G) in nats: what one answer of an annotator is expected to tell of a sample's class.

        I(c; v) = Σ_v P(v) Σ_c q(c | v) log q(c | v) − Σ_c q(c) log q(c) = H(v) − Σ_c q(c) H(Π(c, ·)),    P(v) = Σ_c q(c) Π(c, v)

    the expected value of the belief after the answer less that of the belief before, valued by the logarithmic score.

    >>> perfect, useless = symmetric(0.0, 2), symmetric(0.5, 2)
    >>> information(np.array([[0.5, 0.5], [1.0, 0.0]]), np.stack([perfect, useless])).round(3).tolist()
    [[0.693, 0.0], [0.0, 0.0]]
    """
    said = np.einsum("mc,gcv->mgv", Q, confusions)
    return np.asarray(np.maximum(_entropy(said) - Q @ _entropy(confusions).T, 0.0))


def group_of(names: Sequence[str], prices: Sequence[Price]) -> Ints:
    """(W,): which annotator each worker belongs to; −1 for none."""
    found = [next((k for k, one in enumerate(prices) if one.gave(name)), -1) for name in names]
    return np.array(found, dtype=np.int64)


def weigh(answers: Answers, A: Float64s, trusted: Float64s, y: Ints, prices: Sequence[Price]) -> Weighed:
    """From held-out logits of the answered samples (m, C) and of the trusted ones (n, C), whose classes are y (n,).

    Answers of people who are no annotators with a price count as those of an annotator of whom nothing is said.
    """
    cards = [*prices, Price("others", 1.0, "crowd")]
    C, group = A.shape[1], group_of(answers.names, prices)
    predictions = _Predictions(answers, A, trusted, y)
    priors = np.array([prior_of(one) for one in cards])
    group = np.where(group < 0, len(prices), group)
    pooled = np.stack([symmetric(e, C) for e, _ in priors])
    confusions, Q, likelihood = pooled[group], np.empty((0, C)), np.empty((0, C))
    for _ in range(_ROUNDS):
        likelihood = _log_likelihoods(answers, confusions, len(A))
        Q = np.exp(log_probabilities(np.log(predictions.best(likelihood)) + likelihood))
        counts = _counts(answers, Q, len(group))
        together = np.zeros((len(cards), C, C))
        np.add.at(together, group, counts)
        total = together.sum(axis=(1, 2))
        missed = total - np.einsum("gcc->g", together)
        errors = (missed + priors.prod(axis=1)) / (total + priors[:, 1])
        shape = np.stack([symmetric(float(e), C) for e in errors])
        pooled = (together + ROW * shape) / (together.sum(axis=2, keepdims=True) + ROW)
        own = (counts + ROW * pooled[group]) / (counts.sum(axis=2, keepdims=True) + ROW)
        crowd = np.array([one.kind == "crowd" for one in cards])[group]
        confusions = np.where(crowd[:, None, None], own, pooled[group])
    views = _views(answers, predictions.by_share(likelihood), likelihood, confusions)
    whose = group[answers.person]
    densities = np.stack([_density(views, whose == k, C, *priors[k]) for k in range(len(prices))])
    facts = _facts(answers, Q, _density(views, whose >= 0, C, GUESSED, WORTH_NOTHING_SAID))
    return Weighed(Estimate(facts, answers.samples, Q), pooled[: len(prices)], predictions.share, densities)


def facts_of(price: Price, density: Float64s, answers: int) -> AnnotatorFacts:
    """An annotator after so many answers; `density` (400,) is that of its error."""
    mean, low, high = _summary(density)
    return AnnotatorFacts(price.name, price.kind, price.price, answers, answers * price.price, mean, low, high)


def prior_density(price: Price, n_classes: int) -> Float64s:
    """(400,) before it has answered."""
    return _density([], np.empty(0, dtype=bool), n_classes, *prior_of(price))


class _Predictions:
    """p (m, C) by scale and share; the pair with the highest likelihood is used, one for drawn and one for chosen samples."""

    share: float

    def __init__(self, answers: Answers, A: Float64s, trusted: Float64s, y: Ints) -> None:
        self._known, self._drawn = answers.known, answers.drawn
        self._P = np.stack([np.exp(log_probabilities(float(s) * A)) for s in SCALES])
        P = np.stack([np.exp(log_probabilities(float(s) * trusted)) for s in SCALES])[:, np.arange(len(y)), y]
        mixed = (1.0 - SHARES) * P[..., None] + SHARES / A.shape[1]
        self._trusted = np.log(np.maximum(mixed, 1e-12)).sum(axis=1)  # (scales, shares)
        self._found, self.share = np.empty_like(A), 0.0

    def best(self, likelihood: Float64s) -> Float64s:
        """p, from the logarithms (m, C) of what the answers say; a known class is certain."""
        C, found = likelihood.shape[1], np.empty_like(likelihood)
        said = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        unknown = self._known == UNRESOLVED
        for drawn, shares in ((True, SHARES), (False, SHARES_ASKED)):
            here = self._drawn == drawn
            P, E = self._P[:, here & unknown], said[here & unknown]
            fits = (P * E).sum(axis=2)[..., None] * (1.0 - shares) + E.mean(axis=1)[None, :, None] * shares
            total = np.log(np.maximum(fits, 1e-300)).sum(axis=1) + (self._trusted if drawn else 0.0)
            s, d = np.unravel_index(int(total.argmax()), total.shape)
            found[here] = (1.0 - shares[d]) * self._P[s][here] + shares[d] / C
            if not drawn:
                self.share = float(shares[d])
        self._found = found
        return self._certain(found)

    def by_share(self, likelihood: Float64s) -> list[tuple[float, Float64s]]:
        """For each share of the chosen samples, with its best scale: the logarithm of its weight, and p (m, C)."""
        C, chosen, found = likelihood.shape[1], ~self._drawn, []
        said = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        here = chosen & (self._known == UNRESOLVED)
        fits, flat = (self._P[:, here] * said[here]).sum(axis=2), said[here].mean(axis=1)
        for share in SHARES_ASKED.tolist():
            total = np.log(np.maximum((1.0 - share) * fits + share * flat, 1e-300)).sum(axis=1)
            s = int(total.argmax())
            P = np.where(chosen[:, None], (1.0 - share) * self._P[s] + share / C, self._found)
            found.append((float(total[s]) + _SHARE_PRIOR * np.log1p(-min(share, 0.999)), self._certain(P)))
        return found

    def _certain(self, P: Float64s) -> Float64s:
        """With the known classes."""
        sure = np.eye(P.shape[1])[np.maximum(self._known, 0)]
        return np.maximum(np.where((self._known == UNRESOLVED)[:, None], P, sure), 1e-12)


def _log_likelihoods(answers: Answers, confusions: Float64s, m: int) -> Float64s:
    """(m, C): Σ_w log Π_w(c, v_iw)."""
    found = np.zeros((m, confusions.shape[1]))
    np.add.at(found, answers.place, np.log(np.maximum(confusions[answers.person, :, answers.label], _FLOOR)))
    return found


def _counts(answers: Answers, Q: Float64s, workers: int) -> Float64s:
    """(W, C, C): N_w(c, v)."""
    C = Q.shape[1]
    at = answers.person * C + answers.label
    columns = [np.bincount(at, weights=Q[answers.place, c], minlength=workers * C) for c in range(C)]
    return np.stack([one.reshape(workers, C) for one in columns], axis=1)


def _views(
    answers: Answers, predictions: list[tuple[float, Float64s]], likelihood: Float64s, confusions: Float64s
) -> list[tuple[float, Float64s, Float64s]]:
    """For each share: the logarithm of its weight; of each answer (K,) a, how far all but it believe in it, and the logarithm
    of the probability that they give it."""
    own = np.maximum(confusions[answers.person, :, answers.label], _FLOOR)
    rows, found = np.arange(len(answers.place)), []
    for weight, P in predictions:
        rest = np.exp(log_probabilities((np.log(P) + likelihood)[answers.place] - np.log(own)))
        found.append((weight, rest[rows, answers.label], np.log((rest * own).sum(axis=1))))
    return found


def _density(
    views: list[tuple[float, Float64s, Float64s]], whose: Bools, n_classes: int, error: float, worth: float
) -> Float64s:
    """Of ε on the grid, summing to 1, from the answers in `whose` (K,)."""
    a, b = worth * error, worth * (1.0 - error)
    prior = (a - 1.0) * np.log(_GRID) + (b - 1.0) * np.log1p(-_GRID)
    parts = [prior] if not whose.any() else []
    for weight, believed, said in views if whose.any() else []:
        right = believed[whose, None]
        mixed = (1.0 - _GRID) * right + _GRID * (1.0 - right) / (n_classes - 1)
        parts.append(prior + weight - said[whose].sum() + np.log(np.maximum(mixed, 1e-300)).sum(axis=0))
    log = np.stack(parts)
    density = np.exp(log - log.max()).sum(axis=0)
    return np.asarray(density / density.sum())


def _summary(density: Float64s) -> tuple[float, float, float]:
    """Mean and quantiles."""
    tail, total = (1.0 - LEVEL) / 2.0, np.cumsum(density)
    low, high = np.interp(
        [tail, 1.0 - tail], np.concatenate([[0.0], total]), np.arange(len(density) + 1) / len(density)
    )
    return float(density @ _GRID), float(low), float(high)


def _facts(answers: Answers, Q: Float64s, density: Float64s) -> PeopleFacts:
    """All annotators together, and each worker by the share of answers that is expected to be wrong."""
    count = np.bincount(answers.person, minlength=len(answers.names))
    doubt = 1.0 - Q[answers.place, answers.label]
    missed = np.bincount(answers.person, weights=doubt, minlength=len(answers.names))
    rates = (missed + GUESSED * WORTH_NOTHING_SAID) / (count + WORTH_NOTHING_SAID)
    return answers.facts(_summary(density), rates, source=True)


def _entropy(P: Float64s) -> Float64s:
    """Along the last axis, in nats."""
    return np.asarray(-(P * np.log(np.maximum(P, 1e-300))).sum(axis=-1))
