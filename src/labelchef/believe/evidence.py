"""What is known of samples before a source model is applied, and the passes over the rows that source models are made of.

Votes T (n, J·C), the log-probabilities log p (n, C) of a classifier, clean class ids. A source model needs these passes only,

    labelled      Q = weak labels as given, or vote shares                                        (n, C)
    first         Q ∝ p · (weak labels, softened)
    tallied       Σ_i r_i T_i ⊗ Q_i   and   Σ_i r_i Q_i       r_i: 1 for clean rows                (J, C, C), (C,)
    followed      Q_i ∝ exp(prior_i + T_i L), and the two log-likelihoods                         (n, C)
    prior_mass    Σ p_i over the weak rows that sources could vote on                             (C,)

where clean rows of every Q have their label.
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from scipy.special import betainc

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.stopping_work import go_on
from labelchef.believe import kernels
from labelchef.believe.votes import SourceVotes
from labelchef.model.engines.threads import thread_count

Found = TypeVar("Found")

_ROWS_A_PIECE, _MOST_PIECES = 4096, 8  # each piece has counts of its own
_SMOOTHING = 0.05
_DOUBT = 0.025


@dataclass(frozen=True)
class Evidence:
    """What is known of n samples: votes, log p (n, C), clean class ids (n,) or −1, weak labels, and passes over the rows.

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
    def clean_tally(self) -> Float64s:
        """(J, C, C): votes on clean samples, by source, vote and class."""
        rows = np.flatnonzero(~self.weak)
        return expected_counts(
            self.votes.rows(rows), np.eye(self.votes.n_classes)[self.clean[rows]], np.ones(len(rows))
        )

    @cached_property
    def heard(self) -> Bools:
        """(J,) sources whose votes are counted where votes are counted: all but those worse than chance."""
        if self.known_heard is not None:
            return self.known_heard
        counts, n = self.clean_tally, self.class_counts
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

    @property
    def taken_as_given(self) -> bool:
        """Whether weak labels are taken as they are: they were given, or are the shares of votes that are all counted."""
        return bool(self.heard.all()) or self.given_source is not None

    @property
    def shown(self) -> Bools:
        """(n,) samples that the sources could vote on: only of these can votes be rates."""
        return np.ones(len(self.clean), dtype=bool) if self.votes.shown is None else self.votes.shown

    @property
    def shown_counts(self) -> Float64s:
        """(C,) clean samples of each class among them."""
        known = self.clean[~self.weak & self.shown]
        return np.bincount(known, minlength=self.votes.n_classes).astype(np.float64)

    @cached_property
    def shares(self) -> Float64s:
        """(n, C): weak labels as they were given; where they are vote shares, those of the sources that are heard."""
        return self.given if self.taken_as_given else self.counted.shares()

    def labelled(self, smoothing: float | None = None) -> Float64s:
        """(n, C): weak labels as they are; with `smoothing`, shares of all votes with this added to each class."""
        return self._with_clean(self.shares if smoothing is None else self.votes.shares(smoothing))

    def first(self, weight: float = 1.0) -> Float64s:
        """(n, C): p times the weak labels, which count `weight`: where alternations start."""
        return self._with_clean(softmax(self.log_p + weight * np.log(softened(self.shares))))

    def tallied(self, Q: Float64s, weak: float, silent: float) -> tuple[Float64s, Float64s]:
        """Expected votes (J, C, C) by source, vote and class, and samples (C,) by class.

        Weak rows count `weak`, weak rows without votes `silent`, clean ones 1.
        """
        row_weight = np.where(self.weak, np.where(self.votes.silent, silent, weak), 1.0)
        return expected_counts(self.votes, Q, row_weight), row_weight @ Q

    def followed(self, prior: Float64s | None, L: Float64s) -> tuple[Float64s, tuple[float, float]]:
        """What follows from the votes, with log-rates L (J, C, C) and the classifier, or `prior` (C,) in its place.

        And the log-likelihoods of the votes on the samples without and with a clean label.
        """
        votes = self.votes
        table, Q = votes.table, np.empty((votes.n_rows, votes.n_classes))
        rates = np.ascontiguousarray(L.reshape(-1, votes.n_classes))
        before = self.log_p if prior is None else np.broadcast_to(prior, Q.shape)

        def work(lo: int, hi: int) -> tuple[float, float]:
            given = (table.indptr, table.indices, table.data, before, rates, self.clean, Q)
            return kernels.believe_rows(*given, lo, hi)  # type: ignore[no-any-return]

        parts = by_threads(work, votes.n_rows)
        return Q, (float(sum(one for one, _ in parts)), float(sum(two for _, two in parts)))

    def prior_mass(self) -> Float64s:
        """(C,): the sum of p over weak samples that the sources could vote on."""
        return np.asarray(np.exp(self.log_p[self.weak & self.shown]).sum(axis=0))

    def classifier(self) -> Float64s:
        """(n, C): p, and clean labels."""
        return self._with_clean(np.exp(self.log_p))

    def one_hot(self) -> Float64s:
        """(n, C): clean labels; class 0 for weak samples."""
        return np.eye(self.votes.n_classes)[np.maximum(self.clean, 0)]

    def _with_clean(self, Q: Float64s) -> Float64s:
        return np.where(self.weak[:, None], Q, self.one_hot())


def softened(given: Float64s) -> Float64s:
    """Weak labels without zeros, which would rule a class out for good."""
    return np.asarray((given + _SMOOTHING) / (1.0 + _SMOOTHING * given.shape[1]))


def softmax(A: Float64s) -> Float64s:
    """By rows."""
    E = np.exp(A - A.max(axis=1, keepdims=True))
    return np.asarray(E / E.sum(axis=1, keepdims=True))


def expected_counts(votes: SourceVotes, Q: Float64s, row_weight: Float64s) -> Float64s:
    """(J, C, C): expected votes by source, vote and class."""
    table, C = votes.table, votes.n_classes

    def work(lo: int, hi: int) -> Float64s:
        found = np.zeros((table.shape[1], C))
        kernels.count_rows(table.indptr, table.indices, table.data, row_weight, Q, found, lo, hi)
        return found

    parts = by_threads(work, votes.n_rows)
    return np.asarray(sum(parts)).reshape(votes.n_sources, C, C)


def by_threads(work: Callable[[int, int], Found], n_rows: int) -> list[Found]:
    """`work` on ranges of rows that depend on their number only, so that sums are the same on any machine."""
    go_on()
    pieces = min(_MOST_PIECES, max(1, -(-n_rows // _ROWS_A_PIECE)))
    ranges = list(itertools.pairwise(round(n_rows * c / pieces) for c in range(pieces + 1)))
    if pieces == 1:
        return [work(*ranges[0])]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(lambda cut: work(*cut), ranges))
