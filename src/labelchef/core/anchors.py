"""Rounds without a sweep, for two classes: what the last sweep proves about the rounds after it.

u (D,) is the model, W[:, 1] − W[:, 0], and H(u) the Hessian of F by u (`core/objective.py`):

    F(u) = (1/N) Σ r_i ℓ(x_i·u, y_i) + (λ/4) ‖u‖²         H(u) = (1/N) Σ r_i p_i (1 − p_i) x_i x_iᵀ + λ/2

The factor M is H exactly, at the logits a_f and weights of when it was frozen (`core/curvature.py`). An **anchor** is the last
point u₀ that was swept: its gradient, its logits X u₀ and, for a direction v₀, the products X v₀. J are the few rows whose
labels changed since. They are kept in memory, so that their part of every sum is exact. Of all other rows this is known:

    |x_i·t| ≤ l_i ‖t‖_M,    l_i² = x_iᵀ M⁻¹ x_i                                        the leverage of a row, computed once
    e^−δ H_f ⪯ H(u) ⪯ e^δ H_f,    δ = max_i |x_i·u − a_f,i| ≤ max_i |x_i·u₀ − a_f,i| + max_i l_i ‖u − u₀‖_M

since p (1 − p) changes by no more than the factor e^|t| when its logit changes by t. From this follow, without a sweep:

**The model.** u solves the system that M and the rows of J give; r is the residual left. With η = ‖r‖_M⁻¹ + (e^δ − 1) ‖u − u₀‖_M
the true gradient is at most η, in the norm of M⁻¹, and with κ the largest eigenvalue of what the rows of J had added to M,
relative to M, the distance to the true optimum u* is

    ‖u − u*‖_M ≤ −log(1 − β η e^δ / (1 − κ)) / β,    β = max_i l_i                      integrate H ⪰ (1 − κ) e^−(δ + β t) M

**The direction.** H v = g_val, with H v₀ known from the sweep. With w = v − v₀ and δ₁ = max l_i ‖u − u₀‖_M, the system that M and
the rows of J give for w has a residual r_v, and

    ‖v − v*‖_M ≤ ω = e^δ (‖r_v‖_M⁻¹ + (e^δ₁ − 1) e^(δ/2) ‖v₀‖_H(u₀) + (e^δ − 1) ‖w‖_M) / (1 − κ)

**The batch.** The score of a row is a function of x_i·v with slope at most 1 in size, so it is known up to l_i ω, and before
row i is read, x_i·v is known up to l_i (‖v − v₀‖_M + ω). Rows that cannot be among the b best are not read; of the others x_i·v
is computed. A sample that is chosen is then worth no less than any other one less 2 ω max l_i: the **regret** of the batch.

The sums that made M are rounded: θ, a bound of their relative error, is added to δ. Where a bound is larger than what is allowed,
there is a sweep, and the swept point is the new anchor.

Shapes, k = 1: u, v, gradients (D,); logits and products (N, 1); J rows (m, D).
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit

from labelchef.core.curvature import FrozenCurvature
from labelchef.core.objective import Linear, Objective, Point
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.stopping_work import go_on
from labelchef.engines import Engine

MOST_ROWS = 4096
"""Changed rows that are kept; with more, there is a sweep and a new factor."""

_BLOCK_BYTES = 1 << 26  # of rows that are read at a time
_STEPS, _SMALL = 30, 1e-12  # of the fixed-point iteration, and where it ends: relative to the first residual
_SUM_ERROR = 4e-7  # of a Gram matrix whose blocks are summed in float32, relative to its largest eigenvalue


@dataclass
class AnchoredRows:
    """X·u (N, 1) for a u near that of an anchor. Some rows are read from X; all of them take a sweep, made when it is needed."""

    engine: Engine
    u: Float64s
    swept: Point | None = None
    """The same point with all its rows, once it was swept."""
    _values: Float64s | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, 1)."""
        return self.engine.n_rows, 1

    def __len__(self) -> int:
        return self.engine.n_rows

    def of(self, rows: Ints) -> Float64s:
        """(m, 1) of some rows, which are read."""
        return np.asarray(self.engine.rows(rows) @ self.u)[:, None]

    def __getitem__(self, which: Any) -> Float64s:
        if self._values is None and isinstance(which, np.ndarray) and which.dtype != np.bool_:
            return self.of(which)
        return np.asarray(self.whole()[which])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Float64s:
        return np.array(self.whole(), dtype=dtype, copy=copy)

    def whole(self) -> Float64s:
        """All rows; a sweep, unless there was one."""
        if self.swept is not None:
            return np.asarray(self.swept.logits)
        if self._values is None:
            parts = [self.of(rows) for rows in blocks(self.engine)]
            self._values = np.concatenate(parts)
        return self._values


def blocks(engine: Engine) -> list[Ints]:
    """The numbers of all rows, some megabytes of rows at a time."""
    size = max(1, _BLOCK_BYTES // (8 * engine.n_columns))
    return [np.arange(start, min(start + size, engine.n_rows)) for start in range(0, engine.n_rows, size)]


@dataclass(frozen=True)
class Metric:
    """M of a factor by u: eigenvectors, eigenvalues, and the leverages of all rows."""

    E: Float64s
    m: Float64s
    frozen: Float64s
    """(N,) logits at which the factor was frozen."""
    leverage: Float64s
    """(N,) l_i."""
    most: float
    """Their maximum."""
    error: float
    """θ."""

    @classmethod
    def of(cls, objective: Objective, factor: FrozenCurvature, logits: Float64s) -> "Metric":
        """Of a factor that is exact at these logits (N, 1); one pass over X, as long as that of a Gram matrix."""
        engine = objective.engine
        E = np.asarray(engine.host(factor.E), dtype=np.float64)
        m = 0.5 * (factor.g * factor.q[0] + factor.l2)
        scaled, parts = E / np.sqrt(m), []
        for rows in blocks(engine):
            go_on()
            inside = engine.rows(rows) @ scaled
            parts.append(np.sqrt(np.einsum("ij,ij->i", inside, inside)))
        leverage = np.concatenate(parts) * (1.0 + 1e-5)
        error = _SUM_ERROR * float(m.max() / m.min())
        return cls(E, m, np.array(logits[:, 0]), leverage, float(leverage.max(initial=0.0)), error)

    def size(self, t: Float64s) -> float:
        """‖t‖_M."""
        return float(np.linalg.norm(np.sqrt(self.m) * (self.E.T @ t)))

    def dual_size(self, r: Float64s) -> float:
        """‖r‖_M⁻¹."""
        return float(np.linalg.norm((self.E.T @ r) / np.sqrt(self.m)))

    def solve(self, r: Float64s) -> Float64s:
        """M⁻¹ r."""
        return np.asarray(self.E @ ((self.E.T @ r) / self.m))

    def product(self, t: Float64s) -> Float64s:
        """M t."""
        return np.asarray(self.E @ (self.m * (self.E.T @ t)))


@dataclass(frozen=True)
class ChangedRows:
    """J: rows whose labels changed since the factor was frozen."""

    indices: Ints
    X: Float64s
    """(m, D)"""
    frozen: Float64s
    """(m,) what each adds to M along x xᵀ: r p (1 − p) / N at the time of the factor."""
    y: Float64s
    """(m,) label of class 1 at the anchor."""
    weight: Float64s
    """(m,) at the anchor."""

    @classmethod
    def none(cls, n_columns: int) -> "ChangedRows":
        """Before any change."""
        return cls(np.empty(0, dtype=np.int64), np.empty((0, n_columns)), *(np.empty(0) for _ in range(3)))

    def joined(self, other: "ChangedRows") -> "ChangedRows":
        """These, and those of the others that are not among them."""
        new = ~np.isin(other.indices, self.indices)
        pairs = ((getattr(self, name), getattr(other, name)[new]) for name in self.__dataclass_fields__)
        return ChangedRows(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class KnownDirection:
    """A direction of which the sweep at the anchor has computed the products."""

    v: Float64s
    Hv: Float64s
    """(D,) H(u₀) v, under the labels of then."""
    S: Float64s
    """(N, 1) X v."""

    @classmethod
    def of(cls, linear: Linear) -> "KnownDirection":
        """From V (D, 2) and its products."""
        return cls(linear.V[:, 1] - linear.V[:, 0], linear.HV[:, 1].copy(), np.asarray(linear.S))

    @property
    def size(self) -> float:
        """‖v‖_H(u₀)."""
        return float(np.sqrt(max(float(self.v @ self.Hv), 0.0)))


@dataclass(frozen=True)
class Anchor:
    """The last swept point, and the rows that changed since."""

    metric: Metric
    u: Float64s
    gradient: Float64s
    """(D,) of F by u, at u, under the labels of then."""
    logits: Float64s
    """(N, 1) X u."""
    drift: float
    """max_i |x_i·u − a_f,i|."""
    changed: ChangedRows
    known: "KnownDirection | None" = None

    def itself(self) -> "ProvenModel":
        """The swept point as a model of which all is known."""
        return ProvenModel(self.u, self.drift + self.metric.error, 0.0, self._kept())

    def model(self, objective: Objective) -> "ProvenModel":
        """The model of the labels as they are now, with a bound of its distance to the optimum."""
        J, metric, N = self.changed, self.metric, objective.engine.n_rows
        y, weight = objective.labels.Y[J.indices, 1], objective.labels.weight[J.indices]
        before = J.weight * (expit(J.X @ self.u) - J.y)

        def residual(s: Float64s) -> Float64s:
            rows = weight * (expit(J.X @ (self.u + s)) - y) - before
            return np.asarray(self.gradient + metric.product(s) + J.X.T @ (rows / N - J.frozen * (J.X @ s)))

        s = np.zeros_like(self.u)
        r = residual(s)
        first = metric.dual_size(r)
        for _ in range(_STEPS):
            if metric.dual_size(r) <= _SMALL * first:
                break
            s = s - metric.solve(r)
            r = residual(s)
        moved = metric.size(s)
        delta = self.drift + metric.most * moved + metric.error
        eta = metric.dual_size(r) + np.expm1(delta) * moved
        return ProvenModel(self.u + s, delta, eta, self._kept())

    def _kept(self) -> float:
        """1 − κ: the share of M that is left without the rows of J, at least."""
        J = self.changed
        if len(J.indices) == 0:
            return 1.0
        B = np.sqrt(J.frozen)[:, None] * ((J.X @ self.metric.E) / np.sqrt(self.metric.m))
        small = B @ B.T if len(B) <= B.shape[1] else B.T @ B
        return float(max(0.0, 1.0 - np.linalg.eigvalsh(small)[-1]))

    def direction(
        self, objective: Objective, found: "ProvenModel", b: Float64s, known: KnownDirection
    ) -> tuple[Float64s, float]:
        """v with H v = b (D,) at the model, and ω, the bound of its error in the norm of M; infinite where nothing is proven."""
        J, metric, N = self.changed, self.metric, objective.engine.n_rows
        p, before = expit(J.X @ found.u), expit(J.X @ self.u)
        now = objective.labels.weight[J.indices] * p * (1.0 - p) / N
        turned = (now - J.weight * before * (1.0 - before) / N) * (J.X @ known.v)
        rest = b - known.Hv - J.X.T @ turned

        def residual(w: Float64s) -> Float64s:
            return np.asarray(rest - metric.product(w) - J.X.T @ ((now - J.frozen) * (J.X @ w)))

        w, size = np.zeros_like(b), metric.dual_size(b)
        for _ in range(_STEPS):
            r = residual(w)
            if metric.dual_size(r) <= _SMALL * size:
                break
            w = w + metric.solve(r)
        near = metric.most * metric.size(found.u - self.u)
        left = metric.dual_size(residual(w)) + np.expm1(found.delta) * metric.size(w)
        left += np.expm1(near) * np.exp(found.delta / 2) * known.size
        return known.v + w, float(np.exp(found.delta) * left / found.kept) if found.kept > 0.0 else float("inf")

    def with_change(self, objective: Objective, indices: Ints, y: Float64s, weight: Float64s) -> "Anchor":
        """The anchor after labels of these rows changed; y and weight (m,) are those from before."""
        new = ~np.isin(indices, self.changed.indices)
        rows = indices[new]
        p = expit(self.metric.frozen[rows])
        frozen = weight[new] * p * (1.0 - p) / objective.engine.n_rows
        fresh = ChangedRows(rows, objective.engine.rows(rows), frozen, y[new], weight[new])
        return replace(self, changed=self.changed.joined(fresh))

    def at(self, objective: Objective, point: Point) -> "Anchor":
        """A new anchor at a swept point, with the same factor."""
        J, logits = self.changed, np.asarray(point.logits)
        now = replace(J, y=objective.labels.Y[J.indices, 1], weight=objective.labels.weight[J.indices])
        return _anchor(self.metric, point, now, logits)


@dataclass(frozen=True)
class ProvenModel:
    """A model without a sweep: u, δ, η and 1 − κ."""

    u: Float64s
    delta: float
    eta: float
    kept: float

    def distance(self, metric: Metric) -> float:
        """A bound of ‖u − u*‖ (Euclidean); infinite where nothing is proven."""
        room = metric.most * self.eta * np.exp(self.delta) / self.kept if self.kept > 0.0 else np.inf
        if not room < 1.0:
            return float("inf")
        inside = -np.log1p(-room) / metric.most if metric.most > 0.0 else self.eta
        return float(inside / np.sqrt(metric.m.min()))

    def gradient(self, metric: Metric) -> float:
        """A bound of ‖∇F(u)‖ (Euclidean)."""
        return float(self.eta * np.sqrt(metric.m.max()))


def _anchor(metric: Metric, point: Point, changed: ChangedRows, logits: Float64s) -> Anchor:
    drift = float(np.abs(logits[:, 0] - metric.frozen).max(initial=0.0))
    known = None if point.linear is None else KnownDirection.of(point.linear)
    return Anchor(metric, point.W[:, 1] - point.W[:, 0], point.gradient[:, 1].copy(), logits, drift, changed, known)


def anchored(metric: Metric, point: Point) -> Anchor:
    """The anchor at the swept point where the factor was frozen, or near it."""
    return _anchor(metric, point, ChangedRows.none(len(point.W)), np.asarray(point.logits))


@dataclass
class Anchoring:
    """Where a model stands: the anchor, and what is proven of the model; None where the model is the anchor itself."""

    anchor: Anchor
    found: ProvenModel | None
    factor: FrozenCurvature = field(repr=False)
    share: float
    """The largest regret of a batch without a sweep, relative to its last score."""
    last: float | None = None
    """The worst score of the batch before."""

    def settle(self, objective: Objective, point: Point) -> None:
        """The model was swept: it is the anchor now."""
        self.anchor, self.found = self.anchor.at(objective, point), None

    def learn(self, linear: Linear) -> None:
        """Products of a direction that a sweep at the anchor has computed."""
        self.anchor = replace(self.anchor, known=KnownDirection.of(linear))


def parameters(u: Float64s) -> Float64s:
    """W (D, 2) of u (D,)."""
    return np.stack([-0.5 * u, 0.5 * u], axis=1)
