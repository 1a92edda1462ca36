"""Classic active learning (paper section 5.1, `Active (one)` and `Active (two)`), and random choice.

    least confidence   max_c P[i, c]                 smallest first
    entropy            Σ_c P[i, c] log P[i, c]       smallest first
    margin             largest − second largest of P[i]
    random             every order equally likely, from the session's seed

P (N, C) are the model's probabilities. These selectors use neither the weak labels nor the validation samples nor the effect
of cleaning, so they suggest no label.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import xlogy

from labelchef.selectors.protocol import SelectionContext
from labelchef.selectors.ranking import Ranking, RankingSelector


@dataclass
class RandomSelector(RankingSelector):
    """Chance."""

    name: ClassVar[str] = "random"
    chance: ClassVar[bool] = True
    needs: ClassVar[str] = "nothing"

    def rank(self, context: SelectionContext) -> Ranking:
        """A random number between 0 and 1 for each sample."""
        return Ranking(context.rng.random(context.objective.engine.n_rows))


@dataclass
class LeastConfidenceSelector(RankingSelector):
    """The samples whose most probable class is least probable."""

    name: ClassVar[str] = "least_confidence"
    needs: ClassVar[str] = "the model's probabilities"

    def rank(self, context: SelectionContext) -> Ranking:
        """max_c P[i, c]."""
        return Ranking(context.probabilities.max(axis=1))


@dataclass
class EntropySelector(RankingSelector):
    """The samples whose probabilities are the most spread out."""

    name: ClassVar[str] = "entropy"
    needs: ClassVar[str] = "the model's probabilities"

    def rank(self, context: SelectionContext) -> Ranking:
        """Minus the entropy of P[i]."""
        P = context.probabilities
        return Ranking(np.asarray(xlogy(P, P).sum(axis=1)))


@dataclass
class MarginSelector(RankingSelector):
    """The samples whose two most probable classes are closest."""

    name: ClassVar[str] = "margin"
    needs: ClassVar[str] = "the model's probabilities"

    def rank(self, context: SelectionContext) -> Ranking:
        """Largest minus second largest of P[i]."""
        P = np.sort(context.probabilities, axis=1)
        return Ranking(np.asarray(P[:, -1] - P[:, -2]))
