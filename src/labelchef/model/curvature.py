"""A frozen approximation of the Hessian with a cheap inverse.

    H ≈ M = Q ⊗ G + λ I

    h_i = r_i (1 − ‖P_i‖²)                     curvature of a row: the trace of r_i (diag P_i − P_i P_iᵀ)
    G   = (1/N) Σ h_i x_i x_iᵀ                 (D, D)
    Q   = Σ r_i (diag P_i − P_i P_iᵀ) / Σ h_i  (C, C), trace 1; for C = 2 it is the same for all rows, M is exact

With G = E diag(g) Eᵀ and Q = U diag(q) Uᵀ, one eigendecomposition is enough for all classes:

    M⁻¹ R = E [ (Eᵀ R U) / (g_j q_c + λ) ] Uᵀ

Where D is too large for a D×D matrix, G is estimated from a few rows: E (D, m) is then a basis of the span of those
rows, and outside of it the eigenvalues of G are taken to be ḡ, the smallest of those kept:

    M⁻¹ R = E [ (Eᵀ R U) ∘ (1 / (g_j q_c + λ) − 1 / (ḡ q_c + λ)) ] Uᵀ + [ R U / (ḡ q_c + λ) ] Uᵀ
"""

import functools
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.records import LabelChange
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import Engine, Pair, RowArray
from labelchef.model.objective import Objective
from labelchef.model.softmax import probabilities

LARGEST_FACTOR = 4096
"""Columns up to which a full D×D factor is kept (128 MiB in float64)."""

PAIRS, PAIRS_OF_EXACT = 60, 8
"""(ΔW, Δ∇F) pairs kept to correct the factor; an exact factor needs few, and each costs time at every solve."""

SKETCH_ROWS = 1024
"""Rows from which G is estimated where D is larger than `LARGEST_FACTOR`."""

DRIFT_ROWS = 256
"""Changed rows whose gradient a step computes exactly."""

_FORESIGHT = 2  # solves that include their nonlinearity; each gains about two digits
_CONTRACTION = 0.3  # each must change the step by at most this share of the change before
_FLOAT32_CONDITION = 1e5  # below this, a float32 basis is precise enough for a preconditioner


@dataclass(frozen=True)
class FrozenCurvature:
    """M and its inverse. Made by `freeze`.

    U (C, k) leaves out the constant vector: it does not change softmax, so M is λ I there. E is an array of the engine.
    """

    E: RowArray
    g: Float64s
    rest: float | None
    """ḡ, the eigenvalue of G assumed outside the span of E; None if E spans everything."""
    U: Float64s
    q: Float64s
    l2: float
    engine: Engine = field(repr=False)
    h: Float64s = field(repr=False)
    """(N,) curvature of each row when M was made, its weight included."""
    sampled: bool = False
    """Whether G was estimated from a part of the rows because all of them would cost too much (`Engine.factor_share`)."""

    @property
    def exact(self) -> bool:
        """Whether M is exactly the Hessian at the point where it was frozen: then older pairs make it worse."""
        return self.rest is None and len(self.q) == 1 and not self.sampled

    @property
    def contains_rows(self) -> bool:
        """Whether every row is part of M, so that a row can be taken from it."""
        return not self.rest and not self.sampled

    def changed(self, objective: Objective, logits: RowArray) -> float:
        """Σ |h' − h| / Σ h', with h' at these logits and with the weights as they are: how far rows are others than in M."""
        now = self.engine.host(objective.engine.row_curvature(objective.labels, logits)[0])
        return float(np.abs(now - self.h).sum() / (now.sum() or 1.0))

    @functools.cached_property
    def _placed(self) -> tuple[RowArray, RowArray, RowArray]:
        """U, the scale of coordinates along E and that outside of E, as arrays of the engine."""
        outside = np.zeros(len(self.q)) if self.rest is None else 1.0 / (self.rest * self.q + self.l2)
        scale = 1.0 / (np.outer(self.g, self.q) + self.l2) - outside
        return self.engine.place(self.U), self.engine.place(scale), self.engine.place(outside)

    def inverse(self, R: RowArray) -> RowArray:
        """M⁻¹ R for R of shape (D, C), on arrays of the engine."""
        (U, scale, outside), short = self._placed, functools.partial(self.engine.xp.asarray, dtype=self.E.dtype)
        flat = R.mean(axis=1, keepdims=True) / self.l2
        T = R @ U
        with self.engine.small_products():
            inside = self.E @ short(scale * (self.E.T @ short(T)))
        return (inside + T * outside) @ U.T + flat


def freeze(objective: Objective, logits: RowArray, *, roughly: bool = False) -> FrozenCurvature:
    """The frozen Hessian at the given logits; roughly, G is estimated from a few rows for each column."""
    engine = objective.engine
    h, Q = _row_curvature(objective, logits)
    q, U = np.linalg.eigh(Q)
    q, U = np.maximum(q[1:], 0.0), U[:, 1:]
    N, D = engine.n_rows, engine.n_columns
    rest = None
    if D > LARGEST_FACTOR:
        g, basis, rest = _sketched(objective, h, np.unique(np.linspace(0, N - 1, SKETCH_ROWS).astype(np.int64)))
        E = engine.place(basis)
    else:
        step = engine.rough_step() if roughly else engine.factor_step
        g, E = engine.eigh(engine.estimated_gram(h, step) / N)
        g = np.maximum(g, 0.0)
    if g.max(initial=0.0) < _FLOAT32_CONDITION * objective.l2:  # half the bytes to read at every solve
        E = engine.xp.asarray(E, dtype=engine.xp.float32)
    return FrozenCurvature(E, g, rest, U, q, objective.l2, engine, engine.host(h), sampled=engine.factor_step > 1)


def _sketched(objective: Objective, h: RowArray, rows: Ints) -> tuple[Float64s, Float64s, float]:
    """g, E and ḡ estimated from the given rows, by their (m, m) Gram matrix."""
    few = objective.engine.host(h[rows])
    scale = objective.engine.total(h) / (float(few.sum()) or 1.0) / objective.engine.n_rows
    B = objective.engine.rows(rows) * np.sqrt(few * scale)[:, None]
    g, basis = eigh(B @ B.T, overwrite_a=True, check_finite=False)
    kept = g > 1e-10 * max(float(g[-1]), np.finfo(float).tiny)
    g, basis = g[kept], basis[:, kept]
    all_rows = len(rows) == objective.engine.n_rows  # then G is zero outside their span
    rest = 0.0 if all_rows or len(g) == 0 else float(g[0])
    return g, np.ascontiguousarray(B.T @ (basis / np.sqrt(g))), rest


def _row_curvature(objective: Objective, logits: RowArray) -> tuple[RowArray, Float64s]:
    """h (N,) and Q (C, C) less 1/C: its eigenvector of the smallest eigenvalue is the constant one."""
    C = objective.shape[1]
    h, Q = objective.engine.row_curvature(objective.labels, logits)
    trace = float(np.trace(Q))
    # The constant vector is the null vector of Q. Subtracting 1/C makes its eigenvalue the smallest, so that it comes
    # first and can be left out. Where all rows are saturated, Q is zero and all directions are treated alike.
    Q = Q / trace if trace > 0 else np.eye(C) / C
    return h, Q - np.full((C, C), 1.0 / C)


class Drift(NamedTuple):
    """Rows whose labels changed since a factor was frozen: their part of H is known to differ from the factor.

    X (n, D) are the rows, weight (n,) their weights in the factor, P (n, C) their probabilities when the label changed.
    For these few rows the gradient after a step is computed exactly, without a sweep.
    """

    indices: Ints
    X: Float64s
    weight: Float64s
    P: Float64s

    def surplus(self, objective: Objective, logits: RowArray, step: Float64s) -> Float64s:
        """What the rows add to the gradient along a step beyond the product of the frozen Hessian with it.

        (1/N) Σ x ⊗ [ r (p(W + step) − p(W)) − r₀ (diag p₀ − p₀ p₀ᵀ) xᵀstep ]
        """
        A = with_reference(objective.engine.host(logits[self.indices]))
        Z = self.X @ step
        now = objective.labels.weight[self.indices, None] * (probabilities(A + Z) - probabilities(A))
        frozen = self.P * (Z - np.einsum("ic,ic->i", self.P, Z)[:, None]) * self.weight[:, None]
        return np.asarray(self.X.T @ (now - frozen) / objective.engine.n_rows)


@dataclass
class CurvatureKeeper:
    """A frozen curvature, its corrections, and the rule when to replace it.

    Every pair H·step = bend that a solver computes corrects M by the recursion of L-BFGS. Rounds differ by a few labels,
    so the pairs of one round are useful in the next.

    A refresh costs about D/20 sweeps (N·D² multiplications against N·D numbers read), or what the engine allows for a factor
    of a part of the rows. Solvers report the sweeps that they made beyond the two that are needed even with a perfect factor.
    Once this waste has cost as much as a refresh, the factor is replaced, so the cost is never more than twice the best
    possible. Sweeps are counted, not timed, so every machine takes the same decisions.
    """

    factor: FrozenCurvature
    waste: float = 0.0
    """Sweeps that a better factor would have saved."""
    drift: Drift | None = field(default=None, repr=False)
    _pairs: tuple[Pair, ...] = field(default=(), repr=False)

    def solve(self, R: Float64s) -> Float64s:
        """Approximately H⁻¹ R."""
        engine = self.factor.engine
        return engine.host(self.solve_there(engine.place(R)))

    def solve_there(self, R: RowArray) -> RowArray:
        """The same on arrays of the engine, by L-BFGS around M⁻¹; use or copy the result before the next solve."""
        return self.factor.engine.secant_solve(self.factor.inverse, self._pairs, R)

    def learn(self, step: Float64s, bend: Float64s) -> None:
        """Add the pair H · step = bend (exact or approximate)."""
        size = float(np.vdot(step, bend))
        if size > 1e-12 * float(np.linalg.norm(step)) * float(np.linalg.norm(bend)):
            kept = PAIRS_OF_EXACT if self.factor.exact else PAIRS
            self._pairs = (*self._pairs, (step, bend, 1.0 / size))[-kept:]

    def note(self, objective: Objective, logits: RowArray, change: LabelChange) -> None:
        """Keep the rows whose labels change at these logits, the newest `DRIFT_ROWS` of them."""
        new = slice(None) if self.drift is None else ~np.isin(change.indices, self.drift.indices)
        rows, weight = change.indices[new], change.weight_old[new]
        P = probabilities(with_reference(objective.engine.host(logits[rows])))
        drifts = [*([self.drift] if self.drift else []), Drift(rows, objective.engine.rows(rows), weight, P)]
        self.drift = Drift(*(np.concatenate(columns)[-DRIFT_ROWS:] for columns in zip(*drifts, strict=True)))

    def forget_rows(self, l2: float) -> None:
        """Any label may have changed, and l2 may be another: no row is known to differ from the factor any more."""
        self.drift = None
        if l2 != self.factor.l2:
            self.factor, self._pairs = replace(self.factor, l2=l2), ()

    def foreseen(self, objective: Objective, logits: RowArray, gradient: Float64s, plain: Float64s) -> Float64s:
        """The step to the optimum, estimated from the factor and the drifted rows; no sweep. `plain` is −`solve`(gradient).

        Where the factor is not exact, its own error is larger than what the rows could correct.
        """
        step = plain
        if self.drift is None or not self.factor.exact:
            return plain
        moved = _CONTRACTION * float(np.linalg.norm(plain))
        for _ in range(_FORESIGHT):
            step, last = -self.solve(gradient + self.drift.surplus(objective, logits, step)), step
            change = float(np.linalg.norm(step - last))
            if not change <= moved:  # the iteration diverges, for example where half of all rows changed
                return plain
            moved = _CONTRACTION * change
        return step

    def due(self, objective: Objective) -> bool:
        """Whether the waste has cost as much as a refresh."""
        engine, D = objective.engine, objective.engine.n_columns
        cost = SKETCH_ROWS / 20.0 if D > LARGEST_FACTOR else min(engine.gram_cost, engine.factor_share)
        return self.waste > 4.0 + cost

    def refresh(self, objective: Objective, logits: RowArray) -> None:
        """Replace the factor by the one at these logits."""
        self.factor = freeze(objective, logits)
        self._pairs = () if self.factor.exact else self._pairs
        self.drift, self.waste = None, 0.0
