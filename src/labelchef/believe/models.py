"""Models of sources: what is believed of a sample, from the votes on it, what clean samples say of the sources, and a classifier.

A sample i has votes λ_ij of sources j, and p_i, the probabilities of a classifier that was trained on clean samples alone. Clean
samples have a known class y. Every model turns these into beliefs Q (n, C); clean samples have the belief of their label.

*Joint*, the model with the classifier as prior. θ_j(v | c) is the rate at which source j votes v on samples of class c:

    J(θ) = Σ_clean Σ_votes log θ_j(v | y) + ρ Σ_weak log Σ_c p_i(c) Π_votes θ_j(v | c)
           + Σ_jvc a_vc log θ_j(v | c) − Σ_c m_c Σ_jv θ_j(v | c)

    m_c = n_c + ρ Σ_weak p_i(c) + 1,    a_vc = α (1/C + κ [v = c])

The last term makes θ a rate: with q fixed, the maximum is θ_j(v | c) = (counts_jvc + a_vc) / m_c, counts over clean samples and,
with weight ρ, over beliefs. An alternation

    q_i(c) ∝ p_i(c) Π_votes θ_j(λ_ij | c),      θ_j(v | c) = (n_jvc + ρ Σ_weak, λ_ij = v q_i(c) + a_vc) / m_c

never lowers J: q makes the bound of Jensen's inequality tight, θ maximises it, and m does not depend on q. A source that is
silent on a sample says nothing about it; n_c and the sum over p_i count the samples that the sources could vote on
(`SourceVotes.shown`), because trusted samples may come without votes. Rates rather than confusions, because a labelling function
that can only vote for one class tells by where it votes, not by what it votes. The start is q_i ∝ p_i · (vote shares): sources
are better than chance.

*Naive Bayes* is θ from clean samples alone (ρ = 0) with the class frequencies in place of p: a closed form. *Dawid–Skene* is for
crowds: confusions given that a worker votes, π_j(v | c), and class frequencies f, no classifier. It maximises

    Σ_clean log f(y) Π_votes π_j(v | y) + Σ_weak log Σ_c f(c) Π_votes π_j(v | c) + Σ_jvc b_jvc log π_j(v | c)

by expectation and maximisation; b (J, C, C) are votes that each worker is taken to have cast before, b = 0 the classic form.
*Shares* counts votes. *Product* is p times the shares. Counted votes cannot be turned, so a source that is worse than chance on
clean samples, beyond doubt (2.5 %), is not counted: n_j votes on clean samples, h_j of them right, and

    P(Binomial(n_j, Σ_v n_jv f(v) / n_j) ≤ h_j) < 0.025,      f(v): frequency of class v among the clean samples

so that a rule for a rare class is compared with the frequency of this class.

Shapes: votes T (n, J·C) sparse; log p, Q (n, C); clean (n,) class ids, −1 where unknown; rates (J, C, C) by source, vote, class.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from labelchef.base.arrays import Bools, Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.believe.evidence import Evidence
from labelchef.believe.votes import SMOOTHING

_TINY = 1e-12
_COIN_VOTES = 4.0
_CROWD = (1.0, 0.0)  # weights of weak samples, and of those of which nothing is known


@dataclass(frozen=True)
class Belief:
    """What a model believes."""

    Q: Float64s
    """(n, C), rows on the simplex."""
    spoken: Bools
    """(n,) samples of which the model says something: the others should not train as weak samples."""
    rates: Float64s | None = None
    """(J, C, C) θ_j(v | c) by source, vote and class; None for a model without any."""
    heard: Bools | None = None
    """(J,) sources that were counted; None for a model that does not count votes."""
    objective: tuple[float, ...] = ()
    """The objective after each alternation, where the model has one: it never falls."""


@dataclass(frozen=True)
class Alternation:
    """One step of a model that alternates."""

    before: Float64s
    """(n, C) beliefs that the rates were counted with."""
    rates: Float64s
    """(J, C, C)."""
    totals: Float64s
    """(J, 1, C): what counts were divided by to give the rates; of `Joint` (1, 1, C) where there is no source."""
    after: Float64s
    """(n, C) beliefs that follow from the rates."""
    objective: float


class SourceModel(Protocol):
    """Turns evidence into beliefs."""

    name: ClassVar[str]
    reads_classifier: ClassVar[bool]
    """Whether the classifier plays a part."""

    def believe(self, evidence: Evidence) -> Belief:
        """Beliefs of all samples."""
        ...


@dataclass(frozen=True)
class Shares:
    """Weak labels as they were given, or votes counted, every source alike; no belief where all are silent."""

    name: ClassVar[str] = "shares"
    reads_classifier: ClassVar[bool] = False

    def believe(self, evidence: Evidence) -> Belief:
        """The given labels."""
        silent = evidence.counted.silent if evidence.given_source is None else evidence.votes.silent
        return Belief(evidence.labelled(), ~silent, heard=evidence.heard)


@dataclass(frozen=True)
class Product:
    """The classifier times the weak labels as given, or the vote shares."""

    name: ClassVar[str] = "product"
    reads_classifier: ClassVar[bool] = True

    def believe(self, evidence: Evidence) -> Belief:
        """p · shares, scaled to sum to 1."""
        everything = np.ones(len(evidence.clean), dtype=bool)
        return Belief(evidence.first(), everything, heard=evidence.heard)


@dataclass(frozen=True)
class NaiveBayes:
    """Class frequencies times the rates that clean samples show; no classifier."""

    alpha: float = 1.0
    kappa: float = 0.4
    name: ClassVar[str] = "naive_bayes"
    reads_classifier: ClassVar[bool] = False

    def alternate(self, evidence: Evidence) -> Iterator[Alternation]:
        """A single step, without an objective."""
        rates, sizes = self._rates(evidence)
        Q = self._follow(evidence, rates)
        totals = np.broadcast_to(sizes, (evidence.votes.n_sources, 1, len(sizes)))
        yield Alternation(evidence.one_hot(), rates, totals, Q, float("nan"))

    def believe(self, evidence: Evidence) -> Belief:
        """The closed form."""
        rates, _ = self._rates(evidence)
        return Belief(self._follow(evidence, rates), ~evidence.votes.silent, rates)

    def _rates(self, evidence: Evidence) -> tuple[Float64s, Float64s]:
        """θ_j(v | c) = (n_jvc + a_vc) / (n_c + 1), and n_c + 1."""
        sizes = evidence.shown_counts + 1.0
        return (evidence.clean_tally + _prior(self.alpha, self.kappa, len(sizes))) / sizes, sizes

    @staticmethod
    def _follow(evidence: Evidence, rates: Float64s) -> Float64s:
        n = evidence.class_counts
        return evidence.followed(np.log((n + 1.0) / (n.sum() + len(n))), np.log(rates))[0]


@dataclass(frozen=True)
class Joint:
    """The classifier as prior, rates from clean samples and, with weight `rho`, from the beliefs themselves.

    `rho` None takes half of (clean samples) / (weak samples), at most 1: all beliefs together count half as much as the clean
    samples.
    """

    rho: float | None = None
    alpha: float = 1.0
    kappa: float = 0.4
    alternations: int = 3
    name: ClassVar[str] = "joint"
    reads_classifier: ClassVar[bool] = True

    def weight_of_beliefs(self, n_clean: int, n_weak: int) -> float:
        """ρ for this many samples."""
        return min(1.0, 0.5 * n_clean / max(1, n_weak)) if self.rho is None else self.rho

    def alternate(self, evidence: Evidence) -> Iterator[Alternation]:
        """`alternations` of θ and q."""
        n_weak, J = int(evidence.weak.sum()), evidence.votes.n_sources
        rho = self.weight_of_beliefs(len(evidence.clean) - n_weak, n_weak)
        sizes = evidence.shown_counts + rho * evidence.prior_mass() + 1.0
        pseudo = _prior(self.alpha, self.kappa, evidence.votes.n_classes)
        Q = evidence.first()
        for _ in range(self.alternations):
            before, rates = Q, (evidence.tallied(Q, rho, rho)[0] + pseudo) / sizes
            L = np.log(rates)
            Q, (free, known) = evidence.followed(None, L)
            value = known + rho * free + float((pseudo * L).sum()) - float((rates * sizes).sum())
            yield Alternation(before, rates, np.broadcast_to(sizes, (max(J, 1), 1, len(sizes))), Q, value)

    def believe(self, evidence: Evidence) -> Belief:
        """What the last alternation says."""
        return _last(self.alternate(evidence), np.ones(len(evidence.clean), dtype=bool))


@dataclass(frozen=True)
class DawidSkene:
    """Confusions of workers and class frequencies, by expectation and maximisation; no classifier.

    `pooling` adds that many votes to each class of each worker, as a worker would cast them who is as often right as this one
    and errs like all others (`coins`): with thousands of workers who vote a few times each, that much can be told of a worker,
    and a confusion only where there is reason. `pooling` = 0 is the model of Dawid and Skene, started from vote shares.
    """

    pooling: float = 4.0
    alternations: int = 20
    name: ClassVar[str] = "dawid_skene"
    reads_classifier: ClassVar[bool] = False

    def alternate(self, evidence: Evidence) -> Iterator[Alternation]:
        """`alternations` of confusions and beliefs; the objective is the log-likelihood with the prior of the coins."""
        Q, pseudo = evidence.labelled(self.smoothing), np.zeros(1)
        if self.pooling > 0:
            *_, last = coins(evidence, Q)
            Q, pseudo = last.after, self.pooling * last.rates
        for _ in range(self.alternations):
            before, (counts, sizes) = Q, evidence.tallied(Q, *_CROWD)
            counts = counts + pseudo + _TINY
            totals = counts.sum(axis=1, keepdims=True)
            L = np.log(counts / totals)
            Q, value = _crowd_beliefs(evidence, sizes, L)
            yield Alternation(before, counts / totals, totals, Q, value + float((pseudo * L).sum()))

    @property
    def smoothing(self) -> float:
        """Of the vote shares that it starts from."""
        return _TINY if self.pooling == 0 else SMOOTHING

    def believe(self, evidence: Evidence) -> Belief:
        """What the last alternation says."""
        return _last(self.alternate(evidence), ~evidence.votes.silent)


def coins(evidence: Evidence, Q: Float64s, alternations: int = 20) -> Iterator[Alternation]:
    """Workers with one number each, from the beliefs Q on: right with probability a_j, else wrong like everybody.

        θ_j(v | c) = a_j where v = c, else (1 − a_j) e(v | c),     Σ_{v ≠ c} e(v | c) = 1

    a_j has a prior of `_COIN_VOTES` votes of the average worker under the first Q; e and the class frequencies have none. Each
    alternation maximises over a, e and the frequencies, then sets Q: the objective never falls. `totals` are votes by worker.
    """
    C, mean = evidence.votes.n_classes, None
    right = np.eye(C, dtype=bool)
    for _ in range(alternations):
        before, (counts, sizes) = Q, evidence.tallied(Q, *_CROWD)
        hits, cast = np.einsum("jvv->j", counts), counts.sum(axis=(1, 2))
        if mean is None:
            mean = (float(hits.sum()) + 1.0) / (float(cast.sum()) + 2.0)
        a = (hits + _COIN_VOTES * mean) / (cast + _COIN_VOTES)
        wrong = np.where(right, 0.0, counts.sum(axis=0) + _TINY)
        errors = wrong / wrong.sum(axis=0)
        rates = np.where(right, a[:, None, None], (1.0 - a)[:, None, None] * errors)
        Q, value = _crowd_beliefs(evidence, sizes, np.log(rates))
        value += _COIN_VOTES * float((mean * np.log(a) + (1.0 - mean) * np.log1p(-a)).sum())
        yield Alternation(before, rates, np.broadcast_to(cast[:, None, None], (len(a), 1, C)), Q, value)


def updated(belief: Belief | None, evidence: Evidence, weights: Float64s | None = None) -> Float64s:
    """(n, C): what a belief comes to with the classifier of `evidence` in the place of its own, rates as they are.

    Weak labels that were counted are multiplied with the classifier; without a belief there is the classifier alone. `weights`
    (J,) are what the votes of each source count, or (1,) what counted labels do; 1 without them.
    """
    if belief is None:
        return evidence.classifier()
    if belief.rates is None:
        return replace(evidence, known_heard=belief.heard).first(1.0 if weights is None else float(weights[0]))
    L = np.log(belief.rates)
    return evidence.followed(None, L if weights is None else weights[:, None, None] * L)[0]


MODELS: Mapping[str, Callable[[], SourceModel]] = {
    one.name: one for one in (Shares, Product, NaiveBayes, Joint, DawidSkene)
}
"""Name → factory."""


def make_source_model(name: str) -> SourceModel:
    """The model of this name.

    >>> make_source_model("joint").name
    'joint'
    """
    if name not in MODELS:
        raise InvalidInputError(f"unknown source model {name!r}; expected one of: {', '.join(MODELS)}", code="sources")
    return MODELS[name]()


def _last(course: Iterator[Alternation], spoken: Bools) -> Belief:
    """What the last alternation says; beliefs of those before it are not kept."""
    objective = []
    for one in course:
        objective.append(one.objective)
        rates, Q = one.rates, one.after
    return Belief(Q, spoken, rates, objective=tuple(objective))


def _prior(alpha: float, kappa: float, n_classes: int) -> Float64s:
    """a_vc (C, C)."""
    return np.asarray(alpha * (1.0 / n_classes + kappa * np.eye(n_classes)))


def _crowd_beliefs(evidence: Evidence, sizes: Float64s, L: Float64s) -> tuple[Float64s, float]:
    """Beliefs for class frequencies in proportion to `sizes` (C,), and the log-likelihood of all votes and clean labels."""
    prior = np.log((sizes + _TINY) / (sizes + _TINY).sum())
    Q, (free, known) = evidence.followed(prior, L)
    return Q, free + known + float(evidence.class_counts @ prior)
