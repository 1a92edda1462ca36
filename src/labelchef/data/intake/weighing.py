"""How much each group of blocks of an encoder counts, chosen together with γ and λ by cross-validation.

Groups come with rows of mean squared length 1 (`data.encoders.fitted`). For G groups the weights tried are

    all 1;  one group at ½, the others at 1;  one group alone                    (G ≥ 2; nothing is tried for one group)

2 G + 1 in all. For all 1, `believe.learning.choose` makes the learner's whole choice on the rows that the learner itself would
draw; for the others it chooses γ and λ, with the source model that was chosen for all 1 (where that is none: λ alone). What
counts is the cross-entropy of held-out trusted samples under what was chosen, with the same folds for all. All 1 is taken unless
the best of the others lowers it to `learning.WORTH` of that: the best of many trials looks better than it is. Nothing depends on
the order of the trials, and all random numbers come from the seed.

Cost: at most `ROWS` + `CLEAN` rows in at most `AXES` directions, whatever the number of samples. Of more than
`GROUPS` groups only 'all 1' and 'one alone' are tried.

Shapes: blocks (N + n, width_k), training rows above trusted ones.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labelchef.base.arrays import Bools, Ints
from labelchef.base.intake import Progress, no_progress
from labelchef.base.learning import NO_SOURCES, Choice
from labelchef.base.settings import AUTO, TRAIN, Settings, fixed
from labelchef.believe import SourceVotes
from labelchef.believe.learner import drawn_rows, times_drawn
from labelchef.believe.learning import AXES, WORTH, Sample, choose
from labelchef.believe.tuning import mean_squared_length
from labelchef.data.campaign_data import CampaignData
from labelchef.data.encoders.fitted import Encoded
from labelchef.data.encoders.protocol import Block
from labelchef.data.training_rows import first_table, judges_of, stacked_votes
from labelchef.model.dense_fits import Axes
from labelchef.model.labels import LabelTable

HALF = 0.5
GROUPS = 5
"""With more groups than this, none is tried at ½."""


@dataclass(frozen=True)
class WeightTrial:
    """Weights (K,) and the held-out cross-entropy of what the learner chose with them."""

    weights: tuple[float, ...]
    loss: float


@dataclass(frozen=True)
class Weighing:
    """The weights (K,) to use, everything that was tried, and the time it took."""

    weights: tuple[float, ...]
    trials: tuple[WeightTrial, ...]
    seconds: float


def combinations(n_groups: int) -> Iterator[tuple[float, ...]]:
    """The weights that are tried, all 1 first.

    >>> list(combinations(2))
    [(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (1.0, 0.0), (0.0, 1.0)]
    >>> list(combinations(1))
    [(1.0,)]
    """
    yield (1.0,) * n_groups
    if n_groups < 2:
        return
    if n_groups <= GROUPS:
        yield from (tuple(HALF if j == k else 1.0 for j in range(n_groups)) for k in range(n_groups))
    yield from (tuple(float(j == k) for j in range(n_groups)) for k in range(n_groups))


def weigh(encoded: Encoded, data: CampaignData, settings: Settings, progress: Progress = no_progress) -> Weighing:
    """The weights of the blocks of `encoded`, which hold the rows of `data`: training samples, then validation samples.

    Where trusted samples only steer (`trusted='steer'`), there is none yet, or there is one group, nothing is tried.
    """
    began, names = time.perf_counter(), encoded.encoder.groups
    groups = list(dict.fromkeys(names))
    tried = [tuple(one[groups.index(name)] for name in names) for one in combinations(len(groups))]
    if settings.trusted != TRAIN or data.from_nothing or len(tried) == 1:
        return Weighing(tried[0], (), time.perf_counter() - began)
    rows = _Rows.of(data, settings)
    blocks, trials = [B[rows.places] for B in encoded.blocks], list[WeightTrial]()
    for k, weights in enumerate(tried):
        progress("weighing blocks", k, len(tried))
        kept = [B for B, weight in zip(blocks, weights, strict=True) if weight > 0]
        choice = rows.choice(encoded.encoder.weighted(weights).joined(kept), settings)
        trials.append(WeightTrial(weights, loss_of(choice)))
        settings = replace(settings, sources=choice.model)
    progress("weighing blocks", len(tried), len(tried))
    return Weighing(best_weights(trials), tuple(trials), time.perf_counter() - began)


def best_weights(trials: Sequence[WeightTrial]) -> tuple[float, ...]:
    """Those of the lowest loss, if it is worth it; else those of the first trial.

    >>> one, other = WeightTrial((1.0, 1.0), 0.50), WeightTrial((1.0, 0.5), 0.495)
    >>> best_weights([one, other]), best_weights([one, WeightTrial((1.0, 0.0), 0.4), other])
    ((1.0, 1.0), (1.0, 0.0))
    """
    best = min(trials, key=lambda trial: trial.loss)
    return best.weights if best.loss <= WORTH * trials[0].loss else trials[0].weights


def loss_of(choice: Choice) -> float:
    """The held-out cross-entropy of what was chosen."""
    chosen = (choice.model, choice.gamma, choice.strength)
    return min(one.loss for one in choice.trials if (one.model, one.gamma, one.strength) == chosen)


@dataclass(frozen=True)
class _Rows:
    """The rows that a choice is made on, as `Learner` draws them."""

    places: Ints
    """In the blocks."""
    rows: Ints
    """In the label table: training samples, then the trusted ones that train."""
    table: LabelTable
    votes: SourceVotes
    n_items: int

    @classmethod
    def of(cls, data: CampaignData, settings: Settings) -> "_Rows":
        steering: Bools = ~judges_of(data, settings)
        N = len(data.weak)
        table = first_table(data, 0.0, data.validation[1][steering])
        rows = drawn_rows(table.cleaned, N, np.arange(N, len(table.cleaned)), settings.seed)
        places = np.concatenate([np.arange(N), N + np.flatnonzero(steering)])[rows]
        return cls(places, rows, table, stacked_votes(data, steering), N)

    def choice(self, X: Block, settings: Settings) -> Choice:
        """What the learner would choose with these features (rows, D)."""
        cleaned, seed = self.table.cleaned, settings.seed
        wide = np.asarray(X, dtype=np.float64)
        dense = Axes.of(X, AXES, seed).rows(np.hstack([wide, np.ones((len(X), 1))]), bias=True)
        sample = Sample(
            rows=dense,
            scale=mean_squared_length(X),
            votes=self.votes.rows(self.rows),
            given=self.table.Y_weak[self.rows],
            y=self.table.clean_ids[self.rows[cleaned[self.rows]]],
            n_trusted=min(int((self.rows >= self.n_items).sum()), len(cleaned) - self.n_items),
            n_clean=int(np.count_nonzero(cleaned)),
            times=times_drawn(cleaned, self.n_items),
            bias=True,
            seed=seed,
        )
        l2 = fixed(settings.l2)
        strength = None if l2 is None else l2 * len(cleaned)
        if settings.sources == NO_SOURCES:
            return choose(sample, gamma=0.0, strength=strength)
        models = None if settings.sources == AUTO else (str(settings.sources),)
        return choose(sample, gamma=fixed(settings.gamma), strength=strength, models=models)
