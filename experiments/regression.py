"""Softmax regression as all rows of the scoreboard use it: one fit, one choice of its strength, one decision rule.

Rows i have features x_i (scaled by one number so that their mean squared length is 1), soft labels q_i and weights w_i:

    F(W, b) = Σ_i w_i ℓ(q_i, softmax(x_i W + b)) + ‖W‖² / (2c),        ℓ(q, p) = −Σ_k q_k log p_k

Clean rows (trusted or answered) have one-hot q and weight 1, weak rows what a method makes of them.

**Strength**: c of `GRID` with the least mean log loss of the clean rows, each predicted by a model of the fold it is not in (5
folds, stratified); weak rows are trained on in every fold. Chosen again when the clean rows have grown by half.

**Decision rule**: ŷ = argmax_k [log p_k − τ log π_k], π (C,) the mean prediction over the training samples. τ of `TAUS` has the
largest macro-F1 over the trusted rows, which are a random draw while asked rows are not, each predicted out of fold, averaged
with the neighbours on the grid; it is used only if it beats τ = 0 by `BEYOND` standard errors of a paired bootstrap.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
FOLDS = 5
TAUS = np.linspace(0.0, 1.0, 11)
BEYOND = 0.5
"""Measured for LR with margin sampling: 0.5 or less is best for it, and it is the one to beat; 1.645 costs it 0.008 of area."""
_RESAMPLES = 200
_GROWTH = 1.5
_FLOOR = 1e-12
_CURVATURE = 0.1


@dataclass(frozen=True)
class Rows:
    """Training rows: x (n, D + 1) in float32 with a last column of ones, q (n, C), weight (n,)."""

    x: NDArray[np.float32]
    q: Floats
    weight: Floats


def with_ones(X: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """X divided by its scale, and a column of ones for the intercept."""
    return np.column_stack([X / np.float32(scale), np.ones(len(X), dtype=np.float32)])


def scale_of(X: NDArray[np.float32]) -> float:
    """Root of the mean squared length of a row."""
    return float(np.sqrt(np.mean(np.einsum("ij,ij->i", X, X, dtype=np.float64))))


def probabilities(x: NDArray[np.float32], W: Floats) -> Floats:
    """softmax(x W), (n, C)."""
    logits = (x @ W.astype(np.float32)).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    return np.asarray(logits / logits.sum(axis=1, keepdims=True))


def gram(rows: Rows) -> Floats:
    """Σ_i w_i x_i x_iᵀ, (D + 1, D + 1)."""
    return np.asarray((rows.x.T @ (rows.x * rows.weight[:, None].astype(np.float32))).astype(np.float64))


def fitted(rows: Rows, c: float, start: Floats, metric: Floats | None = None) -> Floats:
    """W (D + 1, C) that minimises F, the last row being the intercept; `start` is where the solver begins.

    `metric` is the Gram matrix of such rows: with G = `_CURVATURE` · metric + diag(1/c, …, 1/c, small) = R Rᵀ the solver works
    on U = Rᵀ W, in which the curvature is near 1 in all directions.
    """
    x, q, weight = rows.x, rows.q, rows.weight
    total, shape, mass = float(weight.sum()), start.shape, q.sum(axis=1)
    transposed = np.ascontiguousarray(x.T)
    R = None
    if metric is not None:
        ridge = np.full(len(metric), 1 / c)
        ridge[-1] = 1e-3 * total
        R = cholesky(_CURVATURE * metric + np.diag(ridge), lower=True)

    def objective(flat: Floats) -> tuple[float, Floats]:
        U = flat.reshape(shape)
        W = U if R is None else solve_triangular(R, U, lower=True, trans="T", check_finite=False)
        logits = (x @ W.astype(np.float32)).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        sums = p.sum(axis=1, keepdims=True)
        value = float(weight @ (mass * np.log(sums[:, 0]) - np.einsum("ij,ij->i", q, logits)))
        error = (p / sums * mass[:, None] - q) * weight[:, None]
        gradient = (transposed @ error.astype(np.float32)).astype(np.float64)
        gradient[:-1] += W[:-1] / c
        value += 0.5 / c * float(np.vdot(W[:-1], W[:-1]))
        if R is not None:
            gradient = solve_triangular(R, gradient, lower=True, check_finite=False)
        return value / total, gradient.ravel() / total

    options = {"maxiter": 300, "gtol": 1e-5 if R is None else 1e-5 / np.sqrt(total), "ftol": 1e-6, "maxcor": 12}
    begin = start if R is None else R.T @ start
    found = minimize(objective, begin.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(shape)
    return np.asarray(found if R is None else solve_triangular(R, found, lower=True, trans="T"))


def folds_of(y: Ints, rng: np.random.Generator) -> Ints:
    """A fold (n,) for every clean row: the classes are dealt one after the other, so each is spread over the folds."""
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    folds = np.empty(len(y), dtype=np.int64)
    folds[order] = np.arange(len(y)) % FOLDS
    return folds


def macro_f1(y: Ints, predicted: Ints, n_classes: int) -> float:
    """Mean over the classes of 2 TP / (2 TP + FP + FN); 0 for a class that is neither there nor predicted."""
    table = np.bincount(y * n_classes + predicted, minlength=n_classes**2).reshape(n_classes, n_classes)
    both = table.sum(axis=0) + table.sum(axis=1)
    return float(np.mean(2 * table.diagonal() / np.maximum(both, 1)))


def decided(P: Floats, tau: float, mean: Floats) -> Ints:
    """argmax_k [log p_k − τ log π_k], (n,)."""
    return np.asarray(np.argmax(np.log(P + _FLOOR) - tau * np.log(mean + _FLOOR), axis=1))


def chosen_tau(P: Floats, y: Ints, mean: Floats, rng: np.random.Generator) -> float:
    """τ from out-of-fold predictions P (n, C) of trusted rows; 0 unless another one is better beyond noise."""
    n_classes = P.shape[1]
    predictions = [decided(P, tau, mean) for tau in TAUS]
    score = np.array([macro_f1(y, predicted, n_classes) for predicted in predictions])
    padded = np.concatenate([score[:1], score, score[-1:]])
    best = int(np.argmax((padded[:-2] + padded[1:-1] + padded[2:]) / 3))
    if score[best] <= score[0]:
        return 0.0
    gains = []
    for _ in range(_RESAMPLES):
        pick = rng.integers(0, len(y), len(y))
        gains.append(
            macro_f1(y[pick], predictions[best][pick], n_classes) - macro_f1(y[pick], predictions[0][pick], n_classes)
        )
    return float(TAUS[best]) if score[best] - score[0] > BEYOND * np.std(gains) else 0.0


WeakOf = Callable[[Ints], Rows | None]
"""Weak rows, given the clean rows (their places) that may be used to make them: held-out ones may not."""


@dataclass
class Learner:
    """Keeps the strength and the last parameters of a campaign, so that the next fit begins there."""

    n_classes: int
    seed: int
    c: float | None = None
    tuned_at: int = 0
    W: Floats | None = None
    tau: float = 0.0
    mean: Floats | None = None
    metric: Floats | None = None
    strengths: list[float] = field(default_factory=list)
    taus: list[float] = field(default_factory=list)

    def fit(
        self,
        x: NDArray[np.float32],
        y: Ints,
        n_trusted: int,
        pool: NDArray[np.float32],
        weak: WeakOf | None = None,
        *,
        tune: bool = True,
    ) -> None:
        """Fit on clean rows x (n, D + 1), y (n,), trusted ones first, and weak rows; choose c where it is due, and τ.

        `tune` False: c and τ as they are, and no folds.
        """
        rng = np.random.default_rng([self.seed, 5])
        start = np.zeros((x.shape[1], self.n_classes)) if self.W is None else self.W
        everything = np.arange(len(y))
        q = np.eye(self.n_classes)[y]
        whole = _joined(x, q, np.ones(len(y)), None if weak is None else weak(everything))
        if weak is not None and self.metric is None:
            self.metric = gram(whole)
        if not tune:
            self.W = fitted(whole, GRID[2] if self.c is None else self.c, start, self.metric)
            self._end(pool)
            return
        folds = folds_of(y, rng)
        parts = [_part(x, q, folds != fold, weak) for fold in range(FOLDS)]
        due = self.c is None or len(y) >= _GROWTH * self.tuned_at
        grid = GRID if due or self.c is None else (self.c,)
        W, best = start, np.inf
        for c in grid:
            W = fitted(whole, c, W, self.metric)
            P = np.empty((len(y), self.n_classes))
            for fold, part in enumerate(parts):
                held = folds == fold
                if held.any():
                    P[held] = probabilities(x[held], fitted(part, c, W, self.metric))
            loss = float(-np.mean(np.log(P[everything, y] + _FLOOR)))
            if loss < best:
                best, self.c, self.W, out_of_fold = loss, c, W, P
        if due:
            self.tuned_at = len(y)
        self._end(pool)
        assert self.mean is not None
        self.tau = chosen_tau(out_of_fold[:n_trusted], y[:n_trusted], self.mean, rng)
        self.strengths.append(float(self.c or 0.0))
        self.taus.append(self.tau)

    def _end(self, pool: NDArray[np.float32]) -> None:
        self.mean = self.predict_proba(pool).mean(axis=0)

    def predict_proba(self, x: NDArray[np.float32]) -> Floats:
        """(n, C)."""
        assert self.W is not None
        return probabilities(x, self.W)

    def predict(self, x: NDArray[np.float32]) -> Ints:
        """By the decision rule, (n,)."""
        assert self.mean is not None
        return decided(self.predict_proba(x), self.tau, self.mean)


def _joined(x: NDArray[np.float32], q: Floats, weight: Floats, weak: Rows | None) -> Rows:
    if weak is None:
        return Rows(x, q, weight)
    return Rows(np.vstack([x, weak.x]), np.vstack([q, weak.q]), np.concatenate([weight, weak.weight]))


def _part(x: NDArray[np.float32], q: Floats, kept: NDArray[np.bool_], weak: WeakOf | None) -> Rows:
    return _joined(x[kept], q[kept], np.ones(int(kept.sum())), None if weak is None else weak(np.flatnonzero(kept)))
