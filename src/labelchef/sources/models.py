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

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol, TypeVar

import numpy as np
from scipy.special import betainc

from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.stopping_work import go_on
from labelchef.engines.threads import thread_count
from labelchef.sources import kernels
from labelchef.sources.votes import SMOOTHING, SourceVotes

Found = TypeVar("Found")

_ROWS_A_PIECE, _MOST_PIECES = 4096, 8  # each piece has counts of its own
_TINY = 1e-12
_SMOOTHING = 0.05
_COIN_VOTES = 4.0
_DOUBT = 0.025


@dataclass(frozen=True)
class Evidence:
    """What is known of n samples: votes, the classifier's log-probabilities log p (n, C), clean class ids (n,) or −1.

    `given` (n, C) are weak labels that came with the votes or in their place; the vote shares, if there were none.
    """

    votes: SourceVotes
    log_p: Float64s
    clean: Ints
    given: Float64s
    known_heard: Bools | None = None
    """(J,) `heard`, where it was found on more samples than these."""

    @property
    def weak(self) -> Bools:
        """(n,) samples without a clean label."""
        return self.clean < 0

    @property
    def class_counts(self) -> Float64s:
        """(C,) clean samples of each class."""
        return np.bincount(self.clean[~self.weak], minlength=self.votes.n_classes).astype(np.float64)

    @cached_property
    def heard(self) -> Bools:
        """(J,) sources whose votes are counted where votes are counted: all but those worse than chance."""
        if self.known_heard is not None:
            return self.known_heard
        rows, n = np.flatnonzero(~self.weak), self.class_counts
        counts = expected_counts(self.votes.rows(rows), np.eye(len(n))[self.clean[rows]], np.ones(len(rows)))
        cast = counts.sum(axis=(1, 2))
        hits = np.einsum("jvv->j", counts)
        chance = counts.sum(axis=2) @ (n / max(1.0, n.sum())) / np.maximum(cast, 1e-12)
        doubt = betainc(np.maximum(cast - hits, 1e-12), hits + 1.0, 1.0 - chance)
        return np.asarray((cast == 0) | (doubt >= _DOUBT))

    @cached_property
    def counted(self) -> SourceVotes:
        """The votes of the sources that are heard."""
        return self.votes if self.heard.all() else self.votes.of_sources(self.heard)

    @cached_property
    def given_source(self) -> int | None:
        """The source that the weak labels are: the last one, if they were given; None where they are the shares of all votes."""
        counted = np.allclose(self.given[self.weak], self.votes.shares()[self.weak])
        return None if counted else self.votes.n_sources - 1

    @cached_property
    def shares(self) -> Float64s:
        """(n, C): weak labels as they were given; where they are vote shares, those of the sources that are heard."""
        return self.given if self.heard.all() or self.given_source is not None else self.counted.shares()

    @property
    def shown(self) -> Bools:
        """(n,) samples that the sources could vote on: only of these can votes be rates."""
        return np.ones(len(self.clean), dtype=bool) if self.votes.shown is None else self.votes.shown

    @property
    def shown_counts(self) -> Float64s:
        """(C,) clean samples of each class among them."""
        known = self.clean[~self.weak & self.shown]
        return np.bincount(known, minlength=self.votes.n_classes).astype(np.float64)


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
    """(J, 1, C): what counts were divided by to give the rates."""
    after: Float64s
    """(n, C) beliefs that follow from the rates."""
    objective: float


class SourceModel(Protocol):
    """Turns evidence into beliefs."""

    name: ClassVar[str]
    reads_classifier: ClassVar[bool]
    """Whether `Evidence.log_p` plays a part."""

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
        return Belief(_with_clean(evidence.shares, evidence), ~silent, heard=evidence.heard)


@dataclass(frozen=True)
class Product:
    """The classifier times the weak labels as given, or the vote shares."""

    name: ClassVar[str] = "product"
    reads_classifier: ClassVar[bool] = True

    def believe(self, evidence: Evidence) -> Belief:
        """p · shares, scaled to sum to 1."""
        return Belief(first_belief(evidence), np.ones(len(evidence.clean), dtype=bool), heard=evidence.heard)


@dataclass(frozen=True)
class NaiveBayes:
    """Class frequencies times the rates that clean samples show; no classifier."""

    alpha: float = 1.0
    kappa: float = 0.4
    name: ClassVar[str] = "naive_bayes"
    reads_classifier: ClassVar[bool] = False

    def alternate(self, evidence: Evidence) -> Iterator[Alternation]:
        """The closed form: θ_j(v | c) = (n_jvc + a_vc) / (n_c + 1); a single step, without an objective."""
        n, votes, before = evidence.class_counts, evidence.votes, _one_hot(evidence)
        rows = np.flatnonzero(~evidence.weak)
        counts = expected_counts(votes.rows(rows), before[rows], np.ones(len(rows)))
        sizes = evidence.shown_counts + 1.0
        rates = (counts + _prior(self.alpha, self.kappa, len(n))) / sizes
        prior = np.broadcast_to(np.log((n + 1.0) / (n.sum() + len(n))), evidence.log_p.shape)
        Q, _ = _beliefs(votes, prior, np.log(rates), evidence.clean)
        yield Alternation(before, rates, np.broadcast_to(sizes, (votes.n_sources, 1, len(n))), Q, float("nan"))

    def believe(self, evidence: Evidence) -> Belief:
        """The closed form."""
        (found,) = self.alternate(evidence)
        return Belief(found.after, ~evidence.votes.silent, found.rates)


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
        votes, clean, weak = evidence.votes, evidence.clean, evidence.weak
        n_weak = int(weak.sum())
        rho = self.weight_of_beliefs(len(weak) - n_weak, n_weak)
        row_weight = np.where(weak, rho, 1.0)
        sizes = evidence.shown_counts + rho * np.exp(evidence.log_p[weak & evidence.shown]).sum(axis=0) + 1.0
        pseudo = _prior(self.alpha, self.kappa, votes.n_classes)
        Q = first_belief(evidence)
        for _ in range(self.alternations):
            before, rates = Q, (expected_counts(votes, Q, row_weight) + pseudo) / sizes
            L = np.log(rates)
            Q, (free, known) = _beliefs(votes, evidence.log_p, L, clean)
            value = known + rho * free + float((pseudo * L).sum()) - float((rates * sizes).sum())
            yield Alternation(before, rates, np.broadcast_to(sizes, (votes.n_sources, 1, len(sizes))), Q, value)

    def believe(self, evidence: Evidence) -> Belief:
        """What the last alternation says."""
        course = list(self.alternate(evidence))
        found = tuple(one.objective for one in course)
        return Belief(course[-1].after, np.ones(len(evidence.clean), dtype=bool), course[-1].rates, objective=found)


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
        row_weight = _crowd_weight(evidence)
        Q, pseudo = _with_clean(evidence.votes.shares(self.smoothing), evidence), np.zeros(1)
        if self.pooling > 0:
            *_, last = coins(evidence, Q)
            Q, pseudo = last.after, self.pooling * last.rates
        for _ in range(self.alternations):
            before, counts = Q, expected_counts(evidence.votes, Q, row_weight) + pseudo + _TINY
            totals = counts.sum(axis=1, keepdims=True)
            L = np.log(counts / totals)
            Q, value = _crowd_beliefs(evidence, row_weight @ Q, L)
            yield Alternation(before, counts / totals, totals, Q, value + float((pseudo * L).sum()))

    @property
    def smoothing(self) -> float:
        """Of the vote shares that it starts from."""
        return _TINY if self.pooling == 0 else SMOOTHING

    def believe(self, evidence: Evidence) -> Belief:
        """What the last alternation says."""
        course = list(self.alternate(evidence))
        found = tuple(one.objective for one in course)
        return Belief(course[-1].after, ~evidence.votes.silent, course[-1].rates, objective=found)


def coins(evidence: Evidence, Q: Float64s, alternations: int = 20) -> Iterator[Alternation]:
    """Workers with one number each, from the beliefs Q on: right with probability a_j, else wrong like everybody.

        θ_j(v | c) = a_j where v = c, else (1 − a_j) e(v | c),     Σ_{v ≠ c} e(v | c) = 1

    a_j has a prior of `_COIN_VOTES` votes of the average worker under the first Q; e and the class frequencies have none. Each
    alternation maximises over a, e and the frequencies, then sets Q: the objective never falls. `totals` are votes by worker.
    """
    votes, C = evidence.votes, evidence.votes.n_classes
    row_weight, right, mean = _crowd_weight(evidence), np.eye(C, dtype=bool), None
    for _ in range(alternations):
        before, counts = Q, expected_counts(votes, Q, row_weight)
        hits, cast = np.einsum("jvv->j", counts), counts.sum(axis=(1, 2))
        if mean is None:
            mean = (float(hits.sum()) + 1.0) / (float(cast.sum()) + 2.0)
        a = (hits + _COIN_VOTES * mean) / (cast + _COIN_VOTES)
        wrong = np.where(right, 0.0, counts.sum(axis=0) + _TINY)
        errors = wrong / wrong.sum(axis=0)
        rates = np.where(right, a[:, None, None], (1.0 - a)[:, None, None] * errors)
        Q, value = _crowd_beliefs(evidence, row_weight @ Q, np.log(rates))
        value += _COIN_VOTES * float((mean * np.log(a) + (1.0 - mean) * np.log1p(-a)).sum())
        yield Alternation(before, rates, np.broadcast_to(cast[:, None, None], (len(a), 1, C)), Q, value)


def updated(belief: Belief | None, evidence: Evidence) -> Float64s:
    """(n, C): what a belief comes to with the classifier of `evidence` in the place of its own, rates as they are.

    Weak labels that were counted are multiplied with the classifier; without a belief there is the classifier alone.
    """
    if belief is None:
        return _with_clean(np.exp(evidence.log_p), evidence)
    if belief.rates is None:
        return first_belief(replace(evidence, known_heard=belief.heard))
    return _beliefs(evidence.votes, evidence.log_p, np.log(belief.rates), evidence.clean)[0]


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


def _prior(alpha: float, kappa: float, n_classes: int) -> Float64s:
    """a_vc (C, C)."""
    return np.asarray(alpha * (1.0 / n_classes + kappa * np.eye(n_classes)))


def _one_hot(evidence: Evidence) -> Float64s:
    return np.eye(evidence.votes.n_classes)[np.maximum(evidence.clean, 0)]


def _with_clean(Q: Float64s, evidence: Evidence) -> Float64s:
    return np.where(evidence.weak[:, None], Q, _one_hot(evidence))


def first_belief(evidence: Evidence) -> Float64s:
    """(n, C): p times the weak labels as given, and clean labels: where alternations start."""
    return _with_clean(softmax(evidence.log_p + np.log(softened(evidence.shares))), evidence)


def softened(given: Float64s) -> Float64s:
    """Weak labels without zeros, which would rule a class out for good."""
    return np.asarray((given + _SMOOTHING) / (1.0 + _SMOOTHING * given.shape[1]))


def softmax(A: Float64s) -> Float64s:
    """By rows."""
    E = np.exp(A - A.max(axis=1, keepdims=True))
    return np.asarray(E / E.sum(axis=1, keepdims=True))


def _crowd_weight(evidence: Evidence) -> Float64s:
    """(n,) 0 for samples of which nothing is known, else 1."""
    return np.where(evidence.votes.silent & evidence.weak, 0.0, 1.0)


def _crowd_beliefs(evidence: Evidence, sizes: Float64s, L: Float64s) -> tuple[Float64s, float]:
    """Beliefs for class frequencies in proportion to `sizes` (C,), and the log-likelihood of all votes and clean labels."""
    votes, prior = evidence.votes, np.log((sizes + _TINY) / (sizes + _TINY).sum())
    Q, (free, known) = _beliefs(votes, np.broadcast_to(prior, (votes.n_rows, votes.n_classes)), L, evidence.clean)
    return Q, free + known + float(evidence.class_counts @ prior)


def expected_counts(votes: SourceVotes, Q: Float64s, row_weight: Float64s) -> Float64s:
    """(J, C, C): expected votes by source, vote and class."""
    table, C = votes.table, votes.n_classes

    def work(lo: int, hi: int) -> Float64s:
        found = np.zeros((table.shape[1], C))
        kernels.count_rows(table.indptr, table.indices, table.data, row_weight, Q, found, lo, hi)
        return found

    parts = by_threads(work, votes.n_rows)
    return np.asarray(sum(parts)).reshape(votes.n_sources, C, C)


def _beliefs(votes: SourceVotes, prior: Float64s, L: Float64s, clean: Ints) -> tuple[Float64s, tuple[float, float]]:
    """Q, and the log-likelihoods of the samples without and with a clean label."""
    table, Q = votes.table, np.empty((votes.n_rows, votes.n_classes))
    rates = np.ascontiguousarray(L.reshape(-1, votes.n_classes))

    def work(lo: int, hi: int) -> tuple[float, float]:
        given = (table.indptr, table.indices, table.data, prior, rates, clean, Q)
        return kernels.believe_rows(*given, lo, hi)  # type: ignore[no-any-return]

    parts = by_threads(work, votes.n_rows)
    return Q, (float(sum(one for one, _ in parts)), float(sum(two for _, two in parts)))


def by_threads(work: Callable[[int, int], Found], n_rows: int) -> list[Found]:
    """`work` on ranges of rows that depend on their number only, so that sums are the same on any machine."""
    go_on()
    pieces = min(_MOST_PIECES, max(1, -(-n_rows // _ROWS_A_PIECE)))
    ranges = list(itertools.pairwise(round(n_rows * c / pieces) for c in range(pieces + 1)))
    if pieces == 1:
        return [work(*ranges[0])]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(lambda cut: work(*cut), ranges))
