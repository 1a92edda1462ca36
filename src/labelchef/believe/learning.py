"""What to believe: the source model, gamma and l2, chosen by cross-validation over the clean samples.

The learner trains on clean samples (trusted or answered), with weight 1, and on weak ones, with weight γ and the beliefs q of a
source model (`believe.models`). The classifier that source models take for their prior is trained on the clean samples alone:

    clean model   Σ_clean ℓ_k + (μ/2) ‖W‖²,    p = softmax(T · logits)           μ and T by cross-validation
    learner       Σ_clean ℓ_k + γ Σ_weak ℓ(q_i, x_i) + (λ/2) ‖W‖²,    l2 = λ / (number of rows)

A trial (source model, γ, λ) is scored by cross-entropy on held-out clean samples at the best temperature, like the trials of
`tuning`. It is cross-fitted: the clean model, the source model and the learner of a fold are all made without the fold. γ = 0, no
weak labels at all, is among the trials, and is taken unless the best of the others is better by 2 %. μ, which is λ of γ = 0 too,
minimises the cross-entropy as it is: the temperature is there for soft labels, which make logits small, and without them it
only makes the minimum so flat that noise decides. With 50 trusted samples and more, only they score: answered samples were asked
because they are hard, and on hard samples weak labels look worse than they are.

M of the weak samples are drawn if there are more than `ROWS`; each then counts N/M times. The rows are taken along the main
directions of the sample (`Axes`); the clean model is sought there too. The search takes one value after
the other: μ; then for every source model λ, coarsely, at a middle γ; for the best two of them γ, and λ again.

Shapes: X (M + m, d), weak rows above clean ones; A (m, C) held-out logits.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.learning import NO_SOURCES, Choice, Trial
from labelchef.base.validation import FEWEST
from labelchef.believe import SourceVotes
from labelchef.believe.evidence import Evidence
from labelchef.believe.models import MODELS, DawidSkene, NaiveBayes, Shares, make_source_model
from labelchef.believe.tuning import best_temperature, folds_of
from labelchef.judge.calibration import temperature as smoothed_temperature
from labelchef.model.dense_fits import DenseRows
from labelchef.model.engines.threads import one_blas_thread
from labelchef.model.softmax import cross_entropies, log_probabilities

GAMMAS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
RELATIVE = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of λ and μ that are tried, divided by the mean squared length of a row."""

ROWS, COLUMNS = 2000, 256
"""Largest numbers of weak samples and of directions that the choice uses."""
AXES = 512
"""Largest number of directions of the clean model."""
CLEAN = 1500
"""Largest number of clean samples that are used."""

FOLDS = 5
WORTH = 0.98
"""Weak labels must lower the held-out loss to this share of it: the best of many trials looks better than it is."""
_MIDDLE = 0.1  # the γ at which source models are compared first
_KEPT = 2  # of the source models, for the search for γ


@dataclass(frozen=True)
class Sample:
    """What the choice is made on: weak rows above clean ones, M + m of them."""

    rows: DenseRows
    scale: float
    """Mean squared length of a row."""
    votes: SourceVotes
    given: Float64s
    """(M + m, C) weak labels as given; not read of the clean rows."""
    y: Ints
    """(m,) labels of the clean rows, the trusted ones first."""
    n_trusted: int
    """How many of them are trusted. The others were answered because a selector asked: they are no fair sample."""
    n_clean: int
    """Clean samples there are; m, unless that is limited."""
    times: float
    """How many weak samples each of the M stands for."""
    bias: bool
    seed: int

    @property
    def n_weak(self) -> int:
        """M."""
        return len(self.rows.X) - len(self.y)

    @property
    def scored(self) -> slice:
        """Which clean rows score: the trusted ones if there are enough of them, else all."""
        return slice(self.n_trusted if self.n_trusted >= FEWEST else None)


def choose(
    sample: Sample, *, gamma: float | None = None, strength: float | None = None, models: tuple[str, ...] | None = None
) -> Choice:
    """The choice for these samples; `gamma` or λ (`strength`) are taken as they are, if given. `models` are those to try."""
    with one_blas_thread():
        return _choose(sample, gamma, strength, tuple(MODELS) if models is None else models)


def _unseen(sample: Sample, gamma: float | None, strength: float | None, names: tuple[str, ...]) -> Choice:
    """The choice where nothing can be cross-validated: votes are counted and train with full weight, at a middle λ.

    Counting needs no clean sample, and unlike confusions it learns nothing from votes that only ever name one class.
    """
    if strength is None:
        strength = RELATIVE[len(RELATIVE) // 2] * sample.scale
    if sample.votes.n_sources == 0 or gamma == 0.0:
        return Choice(NO_SOURCES, 0.0, strength, strength, 1.0, sample.n_clean, ())
    model = names[0] if len(names) == 1 else Shares.name
    return Choice(model, 1.0 if gamma is None else gamma, strength, strength, 1.0, sample.n_clean, ())


def _choose(sample: Sample, gamma: float | None, strength: float | None, names: tuple[str, ...]) -> Choice:
    began = time.perf_counter()
    if len(np.unique(sample.y)) < 2:
        return _unseen(sample, gamma, strength, names)
    search = _Search(sample)
    grid = [relative * search.scale for relative in RELATIVE]
    strengths, gammas = grid if strength is None else [strength], list(GAMMAS) if gamma is None else [gamma]
    search.choose_clean(strengths)
    none, trials = search.clean, [search.clean]
    if sample.n_weak and gammas != [0.0]:
        middle, coarse = min(_MIDDLE, gammas[0]), strengths[1::2] or strengths
        usable = [name for name in names if len(names) == 1 or usable_model(name, sample)]
        first = [search.best(name, [(middle, one) for one in coarse]) for name in usable]
        for kept in sorted(first, key=lambda trial: trial.loss)[:_KEPT]:
            best = search.best(kept.model, [(one, kept.strength) for one in gammas])
            at = strengths.index(best.strength)
            trials.append(search.best(best.model, [(best.gamma, one) for one in strengths[max(at - 1, 0) : at + 2]]))
        if gamma is not None:
            trials.remove(none)
    best = min(trials, key=lambda trial: (trial.loss, -trial.strength))
    if gamma is None and best.loss > WORTH * min(trial.loss for trial in search.without):
        best = none
    return Choice(
        model=best.model,
        gamma=best.gamma,
        strength=best.strength,
        clean_strength=none.strength,
        temperature=search.temperature,
        n_clean=sample.n_clean,
        trials=(*search.without, *search.trials.values()),
        seconds=time.perf_counter() - began,
    )


def usable_model(name: str, sample: Sample) -> bool:
    """Whether a source model could have anything to say: a closed form needs votes on clean samples, a crowd more than one."""
    if name == NaiveBayes.name:
        return bool(sample.votes.rows(slice(sample.n_weak, None)).table.nnz)
    return name != DawidSkene.name or sample.votes.n_sources > 2


class _Search:
    """Trials on one stack of rows; the clean rows of the fold that is left out get weight zero."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self._M, self._C = sample.n_weak, sample.given.shape[1]
        self.scale = sample.scale
        self._rows = sample.rows.narrower(COLUMNS, bias=sample.bias)
        rng = np.random.default_rng([sample.seed, 0x7E57])
        self._folds = folds_of(sample.y, FOLDS, rng)
        self._one_hot = np.eye(self._C)[sample.y]
        self._log_p: list[Float64s] = []
        self._beliefs: dict[str, list[tuple[Float64s, Float64s]]] = {}
        self._warm: dict[tuple[str, int], Float64s] = {}
        self.trials: dict[tuple[str, float, float], Trial] = {}
        self.without: list[Trial] = []
        """Trials of the clean model: no weak labels."""
        self.clean = Trial(NO_SOURCES, 0.0, 0.0, np.inf)
        """The one that was taken."""
        self.temperature = 1.0

    def choose_clean(self, strengths: list[float]) -> None:
        """μ and T of the clean model, and its logits for every fold."""
        y, least, models = self.sample.y, np.inf, list[Float64s]()
        clean = self._rows.part(slice(self._M, None))
        parts = [clean.part(kept) for kept, _ in self._folds]
        warm: list[Float64s | None] = [None] * len(parts)
        for strength in strengths:
            A, found = np.empty((len(y), self._C)), []
            for k, (kept, held) in enumerate(self._folds):
                W = warm[k] = parts[k].fit(self._one_hot[kept], np.ones(len(kept)), strength, warm[k])
                A[held] = clean.X[held] @ W
                found.append(W)
            A, known = A[self.sample.scored], y[self.sample.scored]
            self.without.append(Trial(NO_SOURCES, 0.0, strength, best_temperature(A, known)[1]))
            loss = float(cross_entropies(A, np.eye(self._C)[known]).mean())
            if loss <= least:
                least, self.clean, models = loss, self.without[-1], found
                self.temperature = 1.0 / smoothed_temperature(A, known)
        self._log_p = [log_probabilities(self.temperature * (self._rows.X @ W)) for W in models]

    def best(self, model: str, pairs: list[tuple[float, float]]) -> Trial:
        """The best (γ, λ) of a source model; of equal ones, the one with the larger λ."""
        found = []
        for gamma, strength in pairs:
            key = (model, gamma, strength)
            if key not in self.trials:
                self.trials[key] = Trial(model, gamma, strength, self._loss(model, gamma, strength))
            found.append(self.trials[key])
        return min(found, key=lambda trial: (trial.loss, -trial.strength, -trial.gamma))

    def _believed(self, model: str) -> list[tuple[Float64s, Float64s]]:
        """For every fold: labels (M + m, C) and relative weights (M + m,), those of the fold being zero."""
        if model not in self._beliefs:
            self._beliefs[model] = list(self._each_fold(model))
        return self._beliefs[model]

    def _each_fold(self, model: str) -> Iterator[tuple[Float64s, Float64s]]:
        sample, M = self.sample, self._M
        for (kept, held), log_p in zip(self._folds, self._log_p, strict=True):
            rows = np.concatenate([np.arange(M), M + kept])
            clean = np.concatenate([np.full(M, -1), sample.y[kept]])
            evidence = Evidence(sample.votes.rows(rows), log_p[rows], clean, sample.given[rows])
            belief = make_source_model(model).believe(evidence)
            Y = np.concatenate([belief.Q[:M], self._one_hot])
            weight = np.concatenate([np.where(belief.spoken[:M], sample.times, 0.0), np.ones(len(sample.y))])
            weight[M + held] = 0.0
            yield Y, weight

    def _loss(self, model: str, gamma: float, strength: float) -> float:
        M, y = self._M, self.sample.y
        A = np.empty((len(y), self._C))
        for k, ((_, held), (Y, relative)) in enumerate(zip(self._folds, self._believed(model), strict=True)):
            weight = relative.copy()
            weight[:M] *= gamma
            W = self._warm[model, k] = self._rows.fit(Y, weight, strength, self._warm.get((model, k)))
            A[held] = self._rows.X[M + held] @ W
        return best_temperature(A[self.sample.scored], y[self.sample.scored])[1]
