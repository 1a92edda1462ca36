"""Common parts of the selectors that do not use V: one score for each sample, smallest first."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.core.influence import smallest
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import UNRESOLVED, Batch, SelectionDiagnostics
from labelchef.selectors.protocol import SelectionContext


@dataclass(frozen=True)
class Ranking:
    """Scores (N,), smallest asked first; suggested class ids (N,), or None."""

    scores: Float64s
    suggested: Ints | None = None
    influence: Float64s | None = None
    """N times the predicted change of the validation loss, where the score is one."""


@dataclass
class RankingSelector(ABC):
    """A selector that ranks the samples by a score."""

    name: ClassVar[str]
    suggests: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False
    chance: ClassVar[bool] = False
    """Whether its choice depends on the random numbers of the context (beyond breaking ties)."""
    needs: ClassVar[str]
    """What it needs of the data, for the documentation."""

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The eligible samples with the smallest scores. Where not all samples of an equal score fit, some are drawn."""
        began, engine = time.perf_counter(), context.objective.engine
        sweeps = engine.sweeps
        ranking = self.rank(context)
        indices = _first(np.where(context.eligible, ranking.scores, np.inf), batch_size, context.rng)
        unknown, none = np.full(len(indices), UNRESOLVED), np.full(len(indices), np.nan)
        diagnostics = SelectionDiagnostics(
            candidates=int(context.eligible.sum()),
            sweeps=engine.sweeps - sweeps,
            seconds=time.perf_counter() - began,
        )
        return Batch(
            indices,
            unknown if ranking.suggested is None else ranking.suggested[indices],
            none if ranking.influence is None else ranking.influence[indices],
            diagnostics,
        )

    @abstractmethod
    def rank(self, context: SelectionContext) -> Ranking:
        """Scores of all N samples, finite where eligible."""


def _first(scores: Float64s, count: int, rng: np.random.Generator) -> Ints:
    """The smallest scores in order, equal ones by index; a tie at the end of the batch is broken at random.

    A model without training signal, as with γ = 0 before anything is clean, scores all samples alike. Taking the first rows
    of the file would then be a biased choice.
    """
    found = smallest(scores, count)
    if len(found) == 0:
        return found
    last = scores[found[-1]]
    equal = np.flatnonzero(scores == last)
    kept = found[scores[found] != last]
    room = len(found) - len(kept)
    if room == len(equal):
        return found
    return np.concatenate([kept, np.sort(rng.choice(equal, room, replace=False))])
