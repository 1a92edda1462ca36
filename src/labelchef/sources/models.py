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
crowds: confusions given that a worker votes, no classifier; with `prior` = 0 the classic one. *Shares* counts votes. *Product* is
p times the shares.

Shapes: votes T (n, J·C) sparse; log p, Q (n, C); clean (n,) class ids, −1 where unknown; rates (J, C, C) by source, vote, class.
"""

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.engines.memory import thread_count
from labelchef.sources import kernels
from labelchef.sources.votes import SourceVotes

Found = TypeVar("Found")

_ROWS_A_PIECE, _MOST_PIECES = 4096, 8  # each piece has counts of its own
_TINY = 1e-12
_SMOOTHING = 0.05


@dataclass(frozen=True)
class Evidence:
    """What is known of n samples: votes, the classifier's log-probabilities log p (n, C), clean class ids (n,) or −1.

    `given` (n, C) are weak labels that came with the votes or in their place; the vote shares, if there were none.
    """

    votes: SourceVotes
    log_p: Float64s
    clean: Ints
    given: Float64s

    @property
    def weak(self) -> Bools:
        """(n,) samples without a clean label."""
        return self.clean < 0

    @property
    def class_counts(self) -> Float64s:
        """(C,) clean samples of each class."""
        return np.bincount(self.clean[~self.weak], minlength=self.votes.n_classes).astype(np.float64)

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
    objective: tuple[float, ...] = ()
    """The objective after each alternation, where the model has one: it never falls."""


class SourceModel(Protocol):
    """Turns evidence into beliefs."""

    name: ClassVar[str]

    def believe(self, evidence: Evidence) -> Belief:
        """Beliefs of all samples."""
        ...


@dataclass(frozen=True)
class Shares:
    """Weak labels as they were given, or votes counted, every source alike; no belief where all are silent."""

    name: ClassVar[str] = "shares"

    def believe(self, evidence: Evidence) -> Belief:
        """The given labels."""
        return Belief(_with_clean(evidence.given, evidence), ~evidence.votes.silent)


@dataclass(frozen=True)
class Product:
    """The classifier times the weak labels as given, or the vote shares."""

    name: ClassVar[str] = "product"

    def believe(self, evidence: Evidence) -> Belief:
        """p · shares, scaled to sum to 1."""
        Q = _softmax(evidence.log_p + np.log(softened(evidence.given)))
        return Belief(_with_clean(Q, evidence), np.ones(len(Q), dtype=bool))


@dataclass(frozen=True)
class NaiveBayes:
    """Class frequencies times the rates that clean samples show; no classifier."""

    alpha: float = 1.0
    kappa: float = 0.4
    name: ClassVar[str] = "naive_bayes"

    def believe(self, evidence: Evidence) -> Belief:
        """The closed form: θ_j(v | c) = (n_jvc + a_vc) / (n_c + 1)."""
        n = evidence.class_counts
        counts = _counts(evidence.votes, _one_hot(evidence), (~evidence.weak).astype(np.float64))
        rates = (counts + _prior(self.alpha, self.kappa, len(n))) / (evidence.shown_counts + 1.0)
        prior = np.log((n + 1.0) / (n.sum() + len(n)))
        Q, _ = _beliefs(evidence.votes, np.broadcast_to(prior, evidence.log_p.shape), np.log(rates), evidence.clean)
        return Belief(Q, ~evidence.votes.silent, rates)


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

    def believe(self, evidence: Evidence) -> Belief:
        """`alternations` of θ and q."""
        votes, clean, weak = evidence.votes, evidence.clean, evidence.weak
        n_weak = int(weak.sum())
        rho = min(1.0, 0.5 * (len(weak) - n_weak) / max(1, n_weak)) if self.rho is None else self.rho
        row_weight = np.where(weak, rho, 1.0)
        P = np.exp(evidence.log_p)
        sizes = evidence.shown_counts + rho * P[weak & evidence.shown].sum(axis=0) + 1.0
        pseudo = _prior(self.alpha, self.kappa, votes.n_classes)
        Q = _with_clean(_softmax(evidence.log_p + np.log(softened(evidence.given))), evidence)
        rates, found = np.empty(0), []
        for _ in range(self.alternations):
            rates = (_counts(votes, Q, row_weight) + pseudo) / sizes
            L = np.log(rates)
            Q, (free, known) = _beliefs(votes, evidence.log_p, L, clean)
            found.append(known + rho * free + float((pseudo * L).sum()) - float((rates * sizes).sum()))
        return Belief(Q, np.ones(len(Q), dtype=bool), rates, tuple(found))


@dataclass(frozen=True)
class DawidSkene:
    """Confusions of workers and class frequencies, by expectation and maximisation from vote shares; no classifier.

    `pooling` adds that many votes of the average worker to each: with thousands of workers who vote a few times each, a worker is
    taken for an average one until there is reason to think otherwise. `pooling` = 0 is the model of Dawid and Skene.
    """

    pooling: float = 2.0
    alternations: int = 20
    name: ClassVar[str] = "dawid_skene"

    def believe(self, evidence: Evidence) -> Belief:
        """`alternations` of confusions and beliefs; the objective is the log-likelihood with the prior of the first pooling."""
        votes, clean, silent = evidence.votes, evidence.clean, evidence.votes.silent
        C = votes.n_classes
        row_weight = np.where(silent & evidence.weak, 0.0, 1.0)
        Q = _with_clean(votes.shares(smoothing=_TINY if self.pooling == 0 else 0.1), evidence)
        pooled = _counts(votes, Q, row_weight).sum(axis=0) + 1e-3
        pseudo = self.pooling * pooled / pooled.sum(axis=0)
        confusion, found = np.empty(0), []
        for _ in range(self.alternations):
            counts = _counts(votes, Q, row_weight) + pseudo
            confusion = (counts + _TINY) / (counts + _TINY).sum(axis=1, keepdims=True)
            sizes = row_weight @ Q
            prior = np.log((sizes + _TINY) / (sizes + _TINY).sum())
            L = np.log(confusion)
            Q, (free, known) = _beliefs(votes, np.broadcast_to(prior, (votes.n_rows, C)), L, clean)
            known += float(evidence.class_counts @ prior)
            found.append(known + free + float((pseudo * L).sum()))
        return Belief(Q, ~silent, confusion, tuple(found))


def updated(belief: Belief | None, evidence: Evidence) -> Float64s:
    """(n, C): what a belief comes to with the classifier of `evidence` in the place of its own, rates as they are.

    Weak labels that were counted are multiplied with the classifier; without a belief there is the classifier alone.
    """
    if belief is None:
        return _with_clean(np.exp(evidence.log_p), evidence)
    if belief.rates is None:
        return Product().believe(evidence).Q
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


def softened(given: Float64s) -> Float64s:
    """Weak labels without zeros, which would rule a class out for good."""
    return np.asarray((given + _SMOOTHING) / (1.0 + _SMOOTHING * given.shape[1]))


def _softmax(A: Float64s) -> Float64s:
    E = np.exp(A - A.max(axis=1, keepdims=True))
    return np.asarray(E / E.sum(axis=1, keepdims=True))


def _counts(votes: SourceVotes, Q: Float64s, row_weight: Float64s) -> Float64s:
    """(J, C, C): expected votes by source, vote and class."""
    table, C = votes.table, votes.n_classes

    def work(lo: int, hi: int) -> Float64s:
        found = np.zeros((table.shape[1], C))
        kernels.count_rows(table.indptr, table.indices, table.data, row_weight, Q, found, lo, hi)
        return found

    parts = _by_threads(work, votes.n_rows)
    return np.asarray(sum(parts)).reshape(votes.n_sources, C, C)


def _beliefs(votes: SourceVotes, prior: Float64s, L: Float64s, clean: Ints) -> tuple[Float64s, tuple[float, float]]:
    """Q, and the log-likelihoods of the samples without and with a clean label."""
    table, Q = votes.table, np.empty((votes.n_rows, votes.n_classes))
    rates = np.ascontiguousarray(L.reshape(-1, votes.n_classes))

    def work(lo: int, hi: int) -> tuple[float, float]:
        given = (table.indptr, table.indices, table.data, prior, rates, clean, Q)
        return kernels.believe_rows(*given, lo, hi)  # type: ignore[no-any-return]

    parts = _by_threads(work, votes.n_rows)
    return Q, (float(sum(one for one, _ in parts)), float(sum(two for _, two in parts)))


def _by_threads(work: Callable[[int, int], Found], n_rows: int) -> list[Found]:
    """`work` on ranges of rows that depend on their number only, so that sums are the same on any machine."""
    pieces = min(_MOST_PIECES, max(1, -(-n_rows // _ROWS_A_PIECE)))
    ranges = list(itertools.pairwise(round(n_rows * c / pieces) for c in range(pieces + 1)))
    if pieces == 1:
        return [work(*ranges[0])]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(lambda cut: work(*cut), ranges))
