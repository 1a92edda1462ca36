"""A frozen approximation of the Hessian that can be inverted at once.

    H ≈ M = Q ⊗ G + λ I

    h_i = r_i (1 − ‖P_i‖²)                     curvature of a row: the trace of r_i (diag P_i − P_i P_iᵀ)
    G   = (1/N) Σ h_i x_i x_iᵀ                 (D, D)
    Q   = Σ r_i (diag P_i − P_i P_iᵀ) / Σ h_i  (C, C), trace 1; for C = 2 it is the same for all rows, M is exact

With G = E diag(g) Eᵀ and Q = U diag(q) Uᵀ the two parts separate, and one eigendecomposition serves all classes:

    M⁻¹ R = E [ (Eᵀ R U) / (g_j q_c + λ) ] Uᵀ

Where D is too large for a D×D matrix, G is sketched from a few rows: E (D, m) then spans what those rows span, and
g takes its smallest kept value ḡ on all the rest:

    M⁻¹ R = E [ (Eᵀ R U) ∘ (1 / (g_j q_c + λ) − 1 / (ḡ q_c + λ)) ] Uᵀ + [ R U / (ḡ q_c + λ) ] Uᵀ
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import eigh

from labelchef.core.contrasts import with_reference
from labelchef.core.objective import Objective
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.records import LabelChange
from labelchef.engines import Engine, Pair, RowArray

LARGEST_FACTOR = 4096
"""Columns up to which a full D×D factor is kept (128 MiB in float64)."""

PAIRS, PAIRS_OF_EXACT = 60, 8
"""(ΔW, Δ∇F) pairs kept to correct the factor with; an exact one needs few, and each costs time at every solve."""

SKETCH_ROWS = 1024
"""Rows that stand for all where D is larger than that."""

DRIFT_ROWS = 256
"""Changed rows that a step accounts for exactly."""

_FORESIGHT = 2  # solves that bring their nonlinearity in; each gains about two digits
_CONTRACTION = 0.3  # by which each must change the step less than the one before
_ROWS_PER_COLUMN = 4  # rows of X for each column of a sketched Gram matrix
_FLOAT32_CONDITION = 1e5  # below this, a float32 basis loses nothing a preconditioner needs
_CHUNK = 1 << 16


@dataclass(frozen=True)
class FrozenCurvature:
    """M and its inverse. Made by `freeze`.

    U (C, k) leaves out the constant vector: softmax does not see it, so M is λ I there. E lies where the engine is.
    """

    E: RowArray
    g: Float64s
    rest: float | None
    """ḡ, the eigenvalue of G assumed outside the span of E; None if E spans everything."""
    U: Float64s
    q: Float64s
    l2: float
    engine: Engine = field(repr=False)

    @property
    def exact(self) -> bool:
        """Whether M is the Hessian itself where it was frozen: then older pairs only blur it."""
        return self.rest is None and len(self.q) == 1

    @functools.cached_property
    def _placed(self) -> tuple[RowArray, RowArray, RowArray]:
        """U, the scale of coordinates along E and that of all the rest, where the engine is."""
        outside = np.zeros(len(self.q)) if self.rest is None else 1.0 / (self.rest * self.q + self.l2)
        scale = 1.0 / (np.outer(self.g, self.q) + self.l2) - outside
        return self.engine.place(self.U), self.engine.place(scale), self.engine.place(outside)

    def solve(self, R: Float64s) -> Float64s:
        """M⁻¹ R for R of shape (D, C)."""
        return self.engine.host(self.inverse(self.engine.place(R)))

    def inverse(self, R: RowArray) -> RowArray:
        """The same, in the engine's kind of array."""
        (U, scale, outside), short = self._placed, functools.partial(self.engine.xp.asarray, dtype=self.E.dtype)
        flat = R.mean(axis=1, keepdims=True) / self.l2
        T = R @ U
        with self.engine.small_products():
            inside = self.E @ short(scale * (self.E.T @ short(T)))
        return (inside + T * outside) @ U.T + flat


def freeze(objective: Objective, logits: RowArray, *, step: int = 1) -> FrozenCurvature:
    """The frozen Hessian at the given logits; `step` > 1 sketches G from every step-th row."""
    engine = objective.engine
    h, Q = _row_curvature(objective, logits)
    q, U = np.linalg.eigh(Q)
    q, U = np.maximum(q[1:], 0.0), U[:, 1:]
    N, D = engine.n_rows, engine.n_columns
    if D > LARGEST_FACTOR:
        g, E, rest = _sketched(objective, h, np.unique(np.linspace(0, N - 1, SKETCH_ROWS).astype(np.int64)))
        E = _short(engine.place(E), g, objective.l2, engine.xp)
        return FrozenCurvature(E, g, rest, U, q, objective.l2, engine)
    kept = float(h[::step].sum())
    g, E = engine.eigh(engine.gram(h, step) * (float(h.sum()) / (kept or 1.0) / N))
    g = np.maximum(g, 0.0)
    return FrozenCurvature(_short(E, g, objective.l2, engine.xp), g, None, U, q, objective.l2, engine)


def _short(E: RowArray, g: Float64s, l2: float, xp: Any) -> RowArray:
    """The basis in float32 where that loses nothing: half to read at every solve."""
    return xp.asarray(E, dtype=xp.float32) if g.max(initial=0.0) < _FLOAT32_CONDITION * l2 else E


def _sketched(objective: Objective, h: RowArray, rows: Ints) -> tuple[Float64s, Float64s, float]:
    """g, E and ḡ as the given rows show them, from the (m, m) Gram matrix of those rows."""
    few = objective.engine.host(h[rows])
    scale = float(h.sum()) / (float(few.sum()) or 1.0) / objective.engine.n_rows
    B = objective.engine.rows(rows) * np.sqrt(few * scale)[:, None]
    g, basis = eigh(B @ B.T, overwrite_a=True, check_finite=False)
    kept = g > 1e-10 * max(float(g[-1]), np.finfo(float).tiny)
    g, basis = g[kept], basis[:, kept]
    all_rows = len(rows) == objective.engine.n_rows  # nothing was left out: outside their span G is zero
    rest = 0.0 if all_rows or len(g) == 0 else float(g[0])
    return g, np.ascontiguousarray(B.T @ (basis / np.sqrt(g))), rest


def _row_curvature(objective: Objective, logits: RowArray) -> tuple[RowArray, Float64s]:
    """h (N,) and Q (C, C), a chunk of rows at a time."""
    engine, xp, C = objective.engine, objective.engine.xp, objective.shape[1]
    r, h = engine.placed(objective.labels).weight, []
    Q = engine.place(np.zeros((C, C)))
    for start in range(0, len(r), _CHUNK):
        rows = slice(start, start + _CHUNK)
        P = probabilities(with_reference(logits[rows], xp), xp)
        h.append(r[rows] * (1.0 - xp.einsum("ic,ic->i", P, P)))
        Q += xp.diag(r[rows] @ P) - P.T @ (r[rows, None] * P)
    Q = engine.host(Q)
    trace = float(np.trace(Q))
    # The constant vector is the null vector of Q; lifted below the others, it comes first and is left out. Where
    # all rows are saturated, no direction of class space is known to be better than another.
    Q = Q / trace if trace > 0 else np.eye(C) / C
    return xp.clip(xp.concatenate(h), 0.0, None), Q - np.full((C, C), 1.0 / C)


def sketch_step(n_rows: int, n_columns: int) -> int:
    """Stride that leaves about four rows for each column: enough to start from, far from a full pass."""
    return max(1, n_rows // (_ROWS_PER_COLUMN * n_columns))


def _corrected(factor: FrozenCurvature, pairs: tuple[Pair, ...], R: RowArray) -> RowArray:
    """L-BFGS around M⁻¹, in the engine's kind of array: symmetric, positive definite, and exact on the last pair."""
    return factor.engine.secant_solve(factor.inverse, pairs, R)


def _corrected_host(factor: FrozenCurvature, pairs: tuple[Pair, ...], R: Float64s) -> Float64s:
    return factor.engine.host(_corrected(factor, pairs, factor.engine.place(R)))


@dataclass(frozen=True)
class Drift:
    """Rows whose labels changed since a factor was frozen: where H is known to differ from it, and by how much.

    X (n, D) the rows, weight (n,) as the factor has them, P (n, C) as they were when the label changed. Of these few
    rows the gradient after a step is known exactly, so their nonlinearity and new weights need not wait for a sweep.
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
    """Keeps a frozen curvature, learns from every step taken with it, and says when a new one pays.

    Whatever a solver finds out about H, as H·step = bend, corrects M by the recursion of L-BFGS. Rounds differ by
    a few labels, so what one round learned serves the next.

    A refresh costs about D/20 sweeps (N·D² multiplications against N·D numbers read). Solvers report the sweeps
    they made beyond the two that even a perfect factor needs; once this waste has cost as much as a refresh, the
    factor is renewed: never more than twice the best possible cost. Sweeps are counted, not timed, so every
    machine takes the same decisions.
    """

    factor: FrozenCurvature
    waste: float = field(default=0.0)
    drift: Drift | None = field(default=None, repr=False)
    _pairs: tuple[Pair, ...] = field(default=(), repr=False)

    def solve(self, R: Float64s) -> Float64s:
        """Approximately H⁻¹ R."""
        return _corrected_host(self.factor, self._pairs, R)

    def solve_there(self, R: RowArray) -> RowArray:
        """The same in the engine's kind of array; use it before the next solve."""
        return _corrected(self.factor, self._pairs, R)

    def frozen_solve(self) -> Callable[[Float64s], Float64s]:
        """`solve` as it is now, whatever is learned later: conjugate gradients want one fixed operator."""
        return functools.partial(_corrected_host, self.factor, self._pairs)

    def learn(self, step: Float64s, bend: Float64s) -> None:
        """Take in that H · step = bend, or nearly so."""
        size = float(np.vdot(step, bend))
        if size > 1e-12 * float(np.linalg.norm(step)) * float(np.linalg.norm(bend)):
            kept = PAIRS_OF_EXACT if self.factor.exact else PAIRS
            self._pairs = (*self._pairs, (step, bend, 1.0 / size))[-kept:]

    def note(self, objective: Objective, logits: RowArray, change: LabelChange) -> None:
        """Remember rows whose labels change at these logits, the newest `DRIFT_ROWS` of them."""
        known = self.drift or Drift(
            np.empty(0, dtype=np.int64),
            np.empty((0, objective.shape[0])),
            np.empty(0),
            np.empty((0, objective.shape[1])),
        )
        new = ~np.isin(change.indices, known.indices)
        rows = change.indices[new]
        P = probabilities(with_reference(objective.engine.host(logits[rows])))
        self.drift = Drift(
            np.concatenate([known.indices, rows])[-DRIFT_ROWS:],
            np.concatenate([known.X, objective.engine.rows(rows)])[-DRIFT_ROWS:],
            np.concatenate([known.weight, change.weight_old[new]])[-DRIFT_ROWS:],
            np.concatenate([known.P, P])[-DRIFT_ROWS:],
        )

    def foreseen(self, objective: Objective, logits: RowArray, gradient: Float64s) -> Float64s:
        """The step to the optimum as far as the factor and the drifted rows know it; no sweep.

        Where the factor is not exact, its own error is the larger one and the rows would correct little.
        """
        plain = step = -self.solve(gradient)
        if self.drift is None or not self.factor.exact:
            return plain
        moved = _CONTRACTION * float(np.linalg.norm(plain))
        for _ in range(_FORESIGHT):
            step, last = -self.solve(gradient + self.drift.surplus(objective, logits, step)), step
            change = float(np.linalg.norm(step - last))
            if not change <= moved:  # so few rows that the changed ones are half of them: no fixed point to be had
                return plain
            moved = _CONTRACTION * change
        return step

    def wasted(self, sweeps: float) -> None:
        """Tell how many sweeps a better factor would have saved."""
        self.waste += sweeps

    def due(self, objective: Objective) -> bool:
        """Whether a refresh would have paid by now."""
        D = objective.engine.n_columns
        return self.waste > 4.0 + min(D, SKETCH_ROWS if D > LARGEST_FACTOR else D) / 20.0

    def refresh(self, objective: Objective, logits: RowArray) -> None:
        """Freeze the curvature here and now."""
        self.factor = freeze(objective, logits)
        if self.factor.exact:
            self._pairs = ()
        self.drift = None
        self.waste = 0.0
