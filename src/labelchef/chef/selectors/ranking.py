"""Selectors that do not use V: one score for each sample, smallest first.

Classic active learning (paper section 5.1, `Active (one)` and `Active (two)`), and random choice:

    least confidence   max_c P[i, c]                 smallest first
    entropy            Σ_c P[i, c] log P[i, c]       smallest first
    margin             largest − second largest of P[i]
    random             every order equally likely, from the session's seed

P (N, C) are the model's probabilities. All but random choice suggest the most probable class of what is believed: of the model,
the votes of sources and the labels of people together, where there are sources.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import xlogy

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.records import UNRESOLVED, Batch, SelectionDiagnostics
from labelchef.chef.selectors.protocol import SelectionContext, measured
from labelchef.model.order import Ties, grouped


@dataclass(frozen=True)
class Ranking:
    """Scores (N,), smallest asked first; suggested class ids (N,), or None."""

    scores: Float64s
    suggested: Ints | None = None
    influence: Float64s | None = None
    """N times the predicted change of the validation loss, where the score is one."""

    def batch(self, rows: Ints, diagnostics: SelectionDiagnostics) -> Batch:
        """These samples, with what the ranking says of them."""
        suggested = np.full(len(rows), UNRESOLVED) if self.suggested is None else self.suggested[rows]
        influence = np.full(len(rows), np.nan) if self.influence is None else self.influence[rows]
        return Batch(rows, suggested, influence, diagnostics)


@dataclass
class RankingSelector(ABC):
    """A selector that ranks the samples by a score."""

    name: ClassVar[str]
    suggests: ClassVar[bool] = False
    chance: ClassVar[bool] = False
    """Whether its choice depends on the random numbers of the context (beyond breaking ties)."""

    @measured
    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The eligible samples with the smallest scores. Where not all samples of an equal score fit, some are drawn."""
        ranking = self.rank(context)
        scores = np.where(context.eligible, ranking.scores, np.inf)
        rows = _first(scores, batch_size, context.rng, context.ties)
        batch = ranking.batch(rows, SelectionDiagnostics(candidates=int(context.eligible.sum())))
        return believed(context, batch) if self.suggests and ranking.suggested is None else batch

    @abstractmethod
    def rank(self, context: SelectionContext) -> Ranking:
        """Scores of all N samples, finite where eligible."""


def believed(context: SelectionContext, batch: Batch) -> Batch:
    """The batch with the most probable class of what is believed as suggestion; of tied classes the first."""
    return replace(batch, suggested=context.ties.most_probable(context.posterior_of(batch.indices)))


def _first(scores: Float64s, count: int, rng: np.random.Generator, ties: Ties) -> Ints:
    """The smallest scores in order, tied ones by index; a tie at the end of the batch is broken at random.

    Where all scores are equal, as with γ = 0 before anything is clean, the first rows would be a biased choice.
    """
    found, groups = grouped(scores, count, ties)
    if len(found) <= count or len(ties.first):
        return found[:count]
    tied = groups == groups[-1]
    kept, equal = found[~tied], found[tied]
    return np.concatenate([kept, np.sort(rng.choice(np.sort(equal), count - len(kept), replace=False))])


@dataclass
class RandomSelector(RankingSelector):
    """Chance."""

    name: ClassVar[str] = "random"
    chance: ClassVar[bool] = True

    def rank(self, context: SelectionContext) -> Ranking:
        """A random number between 0 and 1 for each sample."""
        return Ranking(context.rng.random(context.objective.engine.n_rows))


@dataclass
class LeastConfidenceSelector(RankingSelector):
    """The samples whose most probable class is least probable."""

    name: ClassVar[str] = "least_confidence"
    suggests: ClassVar[bool] = True

    def rank(self, context: SelectionContext) -> Ranking:
        """max_c P[i, c]."""
        return Ranking(context.probabilities.max(axis=1))


@dataclass
class EntropySelector(RankingSelector):
    """The samples whose probabilities are the most spread out."""

    name: ClassVar[str] = "entropy"
    suggests: ClassVar[bool] = True

    def rank(self, context: SelectionContext) -> Ranking:
        """Minus the entropy of P[i]."""
        P = context.probabilities
        return Ranking(np.asarray(xlogy(P, P).sum(axis=1)))


@dataclass
class MarginSelector(RankingSelector):
    """The samples whose two most probable classes are closest."""

    name: ClassVar[str] = "margin"
    suggests: ClassVar[bool] = True

    def rank(self, context: SelectionContext) -> Ranking:
        """Largest minus second largest of P[i]."""
        P = np.sort(context.probabilities, axis=1)
        return Ranking(np.asarray(P[:, -1] - P[:, -2]))
