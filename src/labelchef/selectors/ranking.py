"""What all selectors share that do not choose along INFL's V: a score a sample, smallest first."""

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
    """Scores (N,), smaller is asked first; suggested class ids (N,) where there are any."""

    scores: Float64s
    suggested: Ints | None = None
    influence: Float64s | None = None
    """N times the predicted change of the validation loss, where the score is one."""


@dataclass
class RankingSelector(ABC):
    """A selector that scores every sample by itself."""

    name: ClassVar[str]
    suggests: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False
    chance: ClassVar[bool] = False
    """Whether it draws from the context's random numbers: with others it would choose otherwise."""
    needs: ClassVar[str]
    """What it asks of the data, for the documentation."""

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The eligible samples of the smallest scores; whom of equals to take, where not all fit, is drawn from the seed."""
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
    """The smallest scores in order, equal ones by index; a tie at the end of the batch is broken by chance.

    A model that knows nothing, as with γ = 0 before anything is clean, finds all samples alike: the first rows of a file
    are no fair choice among them.
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
