"""What to believe: the source model, gamma and l2, chosen by cross-validation over the clean samples.

The learner trains on clean samples (trusted or answered), with weight 1, and on weak ones, with weight γ and the beliefs q of a
source model (`sources.models`). The classifier that source models take for their prior is trained on the clean samples alone:

    clean model   Σ_clean ℓ_k + (μ/2) ‖W‖²,    p = softmax(T · logits)           μ and T by cross-validation
    learner       Σ_clean ℓ_k + γ Σ_weak ℓ(q_i, x_i) + (λ/2) ‖W‖²,    l2 = λ / (number of rows)

A trial (source model, γ, λ) is scored by cross-entropy on held-out clean samples at the best temperature, like the trials of
`tuning`. It is cross-fitted: the clean model, the source model and the learner of a fold are all made without the fold. γ = 0, no
weak labels at all, is among the trials.

M of the weak samples are drawn if there are more than `ROWS`; each then counts N/M times. The search takes one value after
the other: μ; then for every source model λ at a middle γ; for the best of them γ, and λ again.

Shapes: X (M + m, d), weak rows above clean ones; A (m, C) held-out logits.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_softmax

from labelchef.campaign.tuning import best_temperature, fewer_columns, folds_of, mean_squared_length
from labelchef.core.contrasts import with_reference
from labelchef.core.curvature import CurvatureKeeper, FrozenCurvature, freeze
from labelchef.core.objective import Objective
from labelchef.core.solvers import minimise
from labelchef.domain.arrays import Float64s, Floats, Ints
from labelchef.domain.learning import NO_SOURCES, Choice, Trial
from labelchef.engines import MemoryEngine, RowLabels
from labelchef.sources import SourceVotes
from labelchef.sources.models import MODELS, Evidence, make_source_model

GAMMAS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
RELATIVE = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of λ and μ that are tried, divided by the mean squared length of a row."""

ROWS, COLUMNS = 2500, 512
"""Largest numbers of weak samples and of directions that are used."""
CLEAN = 1500
"""Largest number of clean samples that are used."""

FOLDS = 5
_MIDDLE = 0.1  # the γ at which source models are compared first
_KEPT = 2  # of the source models, for the search for γ
_SWEEPS, _TOL = 30, 1e-2


@dataclass(frozen=True)
class Sample:
    """What the choice is made on: weak rows above clean ones, in X (M + m, d) and in the votes."""

    X: Floats
    votes: SourceVotes
    given: Float64s
    """(M + m, C) weak labels as given; not read of the clean rows."""
    y: Ints
    """(m,) labels of the clean rows."""
    times: float
    """How many weak samples each of the M stands for."""
    bias: bool
    seed: int

    @property
    def n_weak(self) -> int:
        """M."""
        return len(self.X) - len(self.y)


def choose(
    sample: Sample, *, gamma: float | None = None, strength: float | None = None, models: tuple[str, ...] | None = None
) -> Choice:
    """The choice for these samples; `gamma` or λ (`strength`) are taken as they are, if given. `models` are those to try."""
    began = time.perf_counter()
    search = _Search(sample)
    grid = [relative * search.scale for relative in RELATIVE]
    search.choose_clean(grid if strength is None else [strength])
    names = tuple(MODELS) if models is None else models
    strengths, gammas = grid if strength is None else [strength], list(GAMMAS) if gamma is None else [gamma]
    none = Trial(NO_SOURCES, 0.0, search.clean_strength, search.clean_loss)
    trials = [none]
    if sample.n_weak and gammas != [0.0]:
        first = [search.best(name, [(min(_MIDDLE, gammas[0]), one) for one in strengths]) for name in names]
        for kept in sorted(first, key=lambda trial: trial.loss)[:_KEPT]:
            best = search.best(kept.model, [(one, kept.strength) for one in gammas])
            at = strengths.index(best.strength)
            trials.append(search.best(best.model, [(best.gamma, one) for one in strengths[max(at - 1, 0) : at + 2]]))
        if gamma is not None:
            trials.remove(none)
    best = min(trials, key=lambda trial: (trial.loss, -trial.strength))
    return Choice(
        model=best.model,
        gamma=best.gamma,
        strength=best.strength,
        clean_strength=search.clean_strength,
        temperature=search.temperature,
        n_clean=len(sample.y),
        trials=(none, *search.trials.values()),
        seconds=time.perf_counter() - began,
    )


class _Search:
    """Trials on one stack of rows; the clean rows of the fold that is left out get weight zero."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self._M, self._C = sample.n_weak, sample.given.shape[1]
        self.scale = mean_squared_length(sample.X)
        self._X = np.ascontiguousarray(fewer_columns(sample.X, COLUMNS))
        self._engine = MemoryEngine(self._X, bias=sample.bias)
        rng = np.random.default_rng([sample.seed, 0x7E57])
        self._folds = folds_of(sample.y, FOLDS, rng)
        self._one_hot = np.eye(self._C)[sample.y]
        self._log_p: list[Float64s] = []
        self._beliefs: dict[str, list[tuple[Float64s, Float64s]]] = {}
        self._warm: dict[tuple[str, int], Float64s] = {}
        self._frozen: dict[tuple[str, float], FrozenCurvature] = {}
        self.trials: dict[tuple[str, float, float], Trial] = {}
        self.clean_strength = self.temperature = self.clean_loss = 0.0

    def choose_clean(self, strengths: list[float]) -> None:
        """μ and T of the clean model, and its logits for every fold."""
        X, y = self._X[self._M :], self.sample.y
        best: tuple[float, float, float, list[Float64s]] | None = None
        fits = {
            k: CleanFit(X[kept], y[kept], self._C, bias=self.sample.bias) for k, (kept, _) in enumerate(self._folds)
        }
        for strength in strengths:
            A, parameters = np.empty((len(y), self._C)), []
            for k, (_, held) in enumerate(self._folds):
                W = fits[k].at(strength)
                A[held] = logits_of(X[held], W, bias=self.sample.bias)
                parameters.append(W)
            temperature, loss = best_temperature(A, y)
            if best is None or loss <= best[0]:
                best = (loss, strength, temperature, parameters)
        assert best is not None, "there is something to try"
        self.clean_loss, self.clean_strength, self.temperature = best[:3]
        self._log_p = [
            log_softmax(self.temperature * logits_of(self._X, W, bias=self.sample.bias), axis=1) for W in best[3]
        ]

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
            objective = Objective(self._engine, RowLabels(Y, weight), strength / len(weight))
            A[held] = self._fitted((model, k), gamma, objective)[M:][held]
        return best_temperature(A, y)[1]

    def _fitted(self, key: tuple[str, int], gamma: float, objective: Objective) -> Float64s:
        """Logits of every row at or near the optimum; each fold starts from its last model."""
        start = objective.at(self._warm.get(key, np.zeros(objective.shape)))
        if (key[0], gamma) not in self._frozen:
            self._frozen[key[0], gamma] = freeze(objective, start.logits)
        keeper = CurvatureKeeper(replace(self._frozen[key[0], gamma], l2=objective.l2))
        point = minimise(objective, start, keeper, tol=_TOL, max_sweeps=_SWEEPS).point
        self._warm[key] = point.W
        return np.asarray(with_reference(self._engine.host(point.logits)))


class CleanFit:
    """Softmax regression on a few clean rows: Σ ℓ + (μ/2) ‖W‖², the bias penalised like the rest.

    W lies in the span of the rows. With fewer rows than columns it is sought there: X = U √g Eᵀ, and the rows are U √g.
    """

    def __init__(self, X: Floats, y: Ints, n_classes: int, *, bias: bool) -> None:
        rows = np.asarray(X, dtype=np.float64)
        rows = np.hstack([rows, np.ones((len(rows), 1))]) if bias else rows
        self._basis: Float64s | None = None
        if len(rows) < rows.shape[1]:
            g, U = np.linalg.eigh(rows @ rows.T)
            kept = g > 1e-10 * max(float(g[-1]), np.finfo(float).tiny)
            root = np.sqrt(g[kept])
            self._basis, rows = rows.T @ (U[:, kept] / root), U[:, kept] * root
        labels = RowLabels(np.eye(n_classes)[y], np.ones(len(y)))
        self._objective = Objective(MemoryEngine(np.ascontiguousarray(rows), bias=False), labels, 1.0)
        self._factor: FrozenCurvature | None = None
        self._warm: Float64s | None = None

    def at(self, strength: float, *, tol: float = 1e-4) -> Float64s:
        """W (D, C) for μ = `strength`."""
        objective = replace(self._objective, l2=strength / self._objective.engine.n_rows)
        start = objective.at(np.zeros(objective.shape) if self._warm is None else self._warm)
        if self._factor is None:
            self._factor = freeze(objective, start.logits)
        keeper = CurvatureKeeper(replace(self._factor, l2=objective.l2))
        found = minimise(objective, start, keeper, tol=tol, max_sweeps=200).point
        self._warm = found.W
        return found.W if self._basis is None else np.asarray(self._basis @ found.W)


def logits_of(X: Floats, W: Float64s, *, bias: bool) -> Float64s:
    """(n, C) logits of a few rows."""
    return np.asarray(X @ W[:-1] + W[-1] if bias else X @ W)
