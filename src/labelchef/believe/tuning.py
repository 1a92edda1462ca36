"""Choose gamma and l2 by cross-validation over the trusted samples.

Each fold of the trusted samples is predicted by a model trained on the weak samples and the other folds, which represent the
samples that people will clean. On M of the N training samples, drawn if there are more than `ROWS`,

    F(W) = (1/M) [ γ Σ_weak ℓ_i + (M/N) Σ_trusted ℓ_j ] + (l2/2) ‖W‖²

and the trial (γ, l2) is scored by the cross-entropy of the held-out predictions at their best temperature,

    min_T  mean_j CE( softmax(T · A_j), y_j )

Soft weak labels make logits small, and a plain cross-entropy would favour anything that makes them larger, such as a small l2
or a small γ. At the best temperature only the direction of the logits counts.

l2 is searched in multiples of the mean squared length of a row, so that the scale of the features does not matter. The
search varies one value at a time: l2, then γ, then l2 next to the best one.

Shapes: X (M + n, D) weak rows above trusted ones; A (n, C) held-out logits.
"""

import time
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.model_selection import KFold, StratifiedKFold

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.model.contrasts import with_reference
from labelchef.model.curvature import CurvatureKeeper, FrozenCurvature, freeze
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.objective import Objective
from labelchef.model.solvers import minimise

GAMMAS = (1.0, 0.3, 0.1, 0.03)
RELATIVE_L2 = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Values of l2 that are tried, divided by the mean squared length of a row of X."""

ROWS, COLUMNS = 4000, 512
"""Largest numbers of training samples and of directions that are used."""

FOLDS = 4

_LARGEST_LENGTH = 1e30  # squared; sums of products of single-precision features must not overflow
_SWEEPS = 25  # for one fold of a trial; the temperature corrects for a scale that has not converged
_TOL = 1e-2
_COLDEST, _HOTTEST = -6.0, 6.0  # log T


@dataclass(frozen=True)
class Trial:
    """A pair that was tried, and its cross-entropy at the best temperature."""

    gamma: float
    l2: float
    loss: float


@dataclass(frozen=True)
class Tuned:
    """The chosen pair, all trials, and the time they took."""

    gamma: float
    l2: float
    trials: tuple[Trial, ...]
    seconds: float


def tune(
    X: Floats,
    Y: Float64s,
    clean: Ints,
    X_trusted: Floats,
    y_trusted: Ints,
    *,
    gamma: float | None = None,
    l2: float | None = None,
    bias: bool = True,
    seed: int = 0,
) -> Tuned:
    """Choose `gamma` or `l2`, or both, where None; `clean` holds class ids of samples that are clean already, −1 elsewhere.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 400)
    >>> X = rng.normal(size=(400, 3)) + 2 * y[:, None]
    >>> weak = np.where(rng.random(300) < 0.5, 1 - y[:300], y[:300])  # half of the weak labels are wrong
    >>> tuned = tune(X[:300], np.eye(2)[weak], np.full(300, -1), X[300:], y[300:])
    >>> tuned.gamma < 1
    True
    """
    began = time.perf_counter()
    if len(y_trusted) < 2:
        raise InvalidInputError(
            f"{len(y_trusted)} validation sample steers, too few to choose gamma and l2 by cross-validation; expected two or "
            "more. Add trusted samples, or give gamma and l2 as numbers",
            code="val",
        )
    search = _Search(X, Y, clean, X_trusted, y_trusted, bias=bias, seed=seed)
    grid = [l2] if l2 is not None else [relative * search.scale for relative in RELATIVE_L2]
    weights = [gamma] if gamma is not None else list(GAMMAS)
    middle = weights[len(weights) // 2]
    best = search.best([(middle, strength) for strength in grid])
    best = search.best([(weight, best.l2) for weight in weights])
    at = grid.index(best.l2)
    best = search.best([(best.gamma, strength) for strength in grid[max(at - 1, 0) : at + 2]])
    return Tuned(best.gamma, best.l2, tuple(search.trials.values()), time.perf_counter() - began)


class _Search:
    """Trials on one stack of rows, weak above trusted; the rows of the fold that is left out get weight zero."""

    def __init__(
        self, X: Floats, Y: Float64s, clean: Ints, X_trusted: Floats, y_trusted: Ints, *, bias: bool, seed: int
    ) -> None:
        rng = np.random.default_rng([seed, 0x7E57])
        N, C = Y.shape
        rows = np.arange(N) if N <= ROWS else np.sort(rng.choice(N, ROWS, replace=False))
        dtype = np.promote_types(X.dtype, np.float32)  # an engine reads no float16
        stack = np.concatenate([X[rows].astype(dtype, copy=False), X_trusted.astype(dtype)])
        self.scale = mean_squared_length(stack[: len(rows)])
        self._engine = MemoryEngine(fewer_columns(stack), bias=bias)
        self._Y = np.concatenate([Y[rows], np.eye(C)[y_trusted]])
        known = clean[rows] >= 0
        self._Y[: len(rows)][known] = np.eye(C)[clean[rows][known]]
        self._known, self._share = known, len(rows) / N
        self._y, self._folds = y_trusted, folds_of(y_trusted, FOLDS, rng)
        self._warm: dict[int, Float64s] = {}
        self._frozen: dict[float, FrozenCurvature] = {}
        self.trials: dict[tuple[float, float], Trial] = {}

    def best(self, pairs: list[tuple[float, float]]) -> Trial:
        """The best of some pairs; of equal ones, the one with the larger l2."""
        for gamma, l2 in pairs:
            if (gamma, l2) not in self.trials:
                self.trials[gamma, l2] = Trial(gamma, l2, self._loss(gamma, l2))
        return min((self.trials[pair] for pair in pairs), key=lambda trial: (trial.loss, -trial.l2, -trial.gamma))

    def _loss(self, gamma: float, l2: float) -> float:
        M, n = len(self._known), len(self._y)
        A = np.empty((n, self._Y.shape[1]))
        for k, (_, held) in enumerate(self._folds):
            trusted = np.full(n, self._share)
            trusted[held] = 0.0
            weight = np.concatenate([np.where(self._known, 1.0, gamma), trusted])
            objective = Objective(self._engine, RowLabels(self._Y, weight), l2 * M / (M + n))  # F above times M/(M + n)
            A[held] = with_reference(self._fitted(k, gamma, objective)[M:][held])
        return tempered_loss(A, self._y)

    def _fitted(self, fold: int, gamma: float, objective: Objective) -> Float64s:
        """Logits of every row at or near the optimum; each fold starts from its last model."""
        start = objective.at(self._warm.get(fold, np.zeros(objective.shape)))
        if gamma not in self._frozen:
            self._frozen[gamma] = freeze(objective, start.logits)
        keeper = CurvatureKeeper(replace(self._frozen[gamma], l2=objective.l2))
        point = minimise(objective, start, keeper, tol=_TOL, max_sweeps=_SWEEPS).point
        self._warm[fold] = point.W
        return self._engine.host(point.logits)


def tempered_loss(A: Float64s, y: Ints) -> float:
    """Mean cross-entropy of logits A (n, C) against class ids, at the best temperature.

    >>> A, y = np.array([[0.0, 0.1], [0.1, 0.0], [0.1, 0.0]]), np.array([1, 0, 1])
    >>> bool(np.isclose(tempered_loss(A, y), tempered_loss(100 * A, y)))
    True
    """
    return best_temperature(A, y)[1]


def best_temperature(A: Float64s, y: Ints) -> tuple[float, float]:
    """T that minimises the mean cross-entropy of softmax(T · A) for logits A (n, C), and that cross-entropy."""
    A = A - A.max(axis=1, keepdims=True)
    scale = float(np.abs(A).mean()) or 1.0
    A = A / scale
    chosen = A[np.arange(len(y)), y]

    def at(log_temperature: float) -> float:
        T = np.exp(log_temperature)
        return float(np.mean(logsumexp(T * A, axis=1) - T * chosen))

    found = minimize_scalar(at, bounds=(_COLDEST, _HOTTEST), method="bounded")
    return float(np.exp(found.x)) / scale, float(found.fun)


def mean_squared_length(rows: Floats) -> float:
    """Mean squared length of the rows, computed in float64; 1 if all are zero."""
    parts = (part.astype(np.float64) for part in np.array_split(rows, 16))
    length = sum(float(np.einsum("ij,ij->", part, part)) for part in parts) / len(rows)
    if not length < _LARGEST_LENGTH:
        raise InvalidInputError(
            f"features up to {float(np.abs(rows).max()):.3g} are too large to square; expected a scale near 1. Scale them",
            code="features",
        )
    return length or 1.0


def folds_of(y: Ints, most: int, rng: np.random.Generator) -> list[tuple[Ints, Ints]]:
    """Folds that contain every class, if each class has enough samples; else any folds."""
    if len(y) < 2:
        raise InvalidInputError(
            f"too few trusted samples to learn from: {len(y)}; expected two or more, better a few dozen, as some are held out to "
            "measure what the others teach",
            code="val",
        )
    folds, seed = min(most, len(y)), int(rng.integers(1 << 31))
    kind = StratifiedKFold if np.bincount(y)[np.unique(y)].min() >= folds else KFold
    return list(kind(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), y))


def fewer_columns(rows: Floats, most: int = COLUMNS) -> Floats:
    """The rows projected on the `most` directions of largest variance; unchanged if there are no more columns than that."""
    return rows if rows.shape[1] <= most else principal_axes(rows, most)


def principal_axes(rows: Floats, most: int) -> Floats:
    """The rows in coordinates along their `most` main directions: orthogonal columns."""
    R = rows.astype(np.float64)
    if R.shape[1] <= R.shape[0]:
        return np.ascontiguousarray(R @ np.linalg.eigh(R.T @ R)[1][:, -most:])
    g, U = np.linalg.eigh(R @ R.T)  # the smaller matrix: with R = U √g Eᵀ, the projection R E is U √g
    return np.ascontiguousarray(U[:, -most:] * np.sqrt(np.maximum(g[-most:], 0.0)))
