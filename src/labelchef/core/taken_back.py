"""What one label of a training row does to the model, in closed form: the step that taking it back would be (docs/method.md).

W minimises F (`core/objective.py`). Row i trains with (weight w, label y); without its answer it would train with (w', y'). The
gradient of F then changes by (1/N) x_i ⊗ d_i, and its Hessian by (δ_i/N) x_i x_iᵀ ⊗ Σ_i, δ_i = w' − w. One Newton step from W is

    −(1/N) H⁻¹ (x_i ⊗ u_i),      u_i = (I + δ_i Σ_i K_ii)⁻¹ d_i,      d_i = w' (p_i − y'_i) − w (p_i − y_i)

with K_ij = (1/N) (x_i ⊗ I)ᵀ H⁻¹ (x_j ⊗ I), by Woodbury's identity, as in `core/leave_one_out.py` (which is w' = 0). A loss with
gradient g, V = H⁻¹ g and S = X V changes by −(1/N) S_i·u_i, to first order in the step. Without the factor in u this is minus
formula (A) of `core/influence.py` at the present model: u says how much the row's own curvature adds.

**Held-out logits.** A trusted row j that trains is judged by the model without it. Without answer i, too, two rows are left out
together, and Woodbury's identity for both gives, up to the square of K_ij,

    u_i' = u_i − M_i δ_i Σ_i K_ij u_j,      u_j' = u_j + M_j w_j Σ_j K_ji u_i',      M = (I + δ Σ K)⁻¹ of the row itself
    a_j⁻ⁱ = a_j − K_jj u_j' − K_ji u_i'

The first order in g misses that every answer adds curvature, which makes leaving out a trusted row matter less. `bend` is the
change of a loss by these logits less what g says of it; the loss itself is taken at a_j⁻ⁱ, not to first order.

H is the whole Hessian for more than two classes and up to `LARGEST_DENSE` parameters, else the factor M = Q ⊗ G + λI of
`core/curvature.py`, which is H for two classes. With the factor Σ_i is h_i Q, as in `core/leave_one_out.py`.

Shapes, all in contrasts against class 0, k = C − 1: d, u (m, k), Σ, K_ii (m, k, k), K_ji (n, m, k, k), steps (m, k, D).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from labelchef.core.contrasts import with_reference
from labelchef.core.curvature import FrozenCurvature, freeze
from labelchef.core.leave_one_out import LARGEST_DENSE, amplified, inverse_hessian
from labelchef.core.objective import Objective, Point
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s, Ints

_NUMBERS = 1 << 22  # of K at a time

Losses = Callable[[Float64s], Float64s]
"""Logits (n, b, C) of n judged rows → their mean losses (b,)."""


@dataclass(frozen=True)
class Inverse:
    """H⁻¹ as it acts between rows."""

    n_rows: int
    whole: Float64s | None
    """(k, D, k, D)"""
    factor: FrozenCurvature | None = None
    """Where it stands for H."""

    @classmethod
    def at(cls, objective: Objective, point: Point) -> "Inverse":
        """At the optimum."""
        (D, C), N = objective.shape, objective.engine.n_rows
        if C > 2 and D * (C - 1) <= LARGEST_DENSE:
            whole = inverse_hessian(objective, point)
            if whole is not None:
                return cls(N, whole)
        return cls(N, None, freeze(objective, point.logits))

    def kernel(self, Z: Float64s, X: Float64s) -> Float64s:
        """K (n, m, k, k) between rows Z (n, D) and X (m, D)."""
        if self.whole is not None:
            k = len(self.whole)
            found = np.empty((len(Z), len(X), k, k))
            for c in range(k):
                for e in range(k):
                    found[:, :, c, e] = (Z @ self.whole[c, :, e]) @ X.T
            return found / self.n_rows
        basis, scales, rest = self._directions()
        inside, other = Z @ self._axes, X @ self._axes
        along = np.stack([(inside * scale) @ other.T for scale in scales.T], axis=2)  # (n, m, k)
        if rest is not None:
            along += (Z @ X.T - inside @ other.T)[:, :, None] * rest
        return np.asarray(np.einsum("ce,nme,de->nmcd", basis, along, basis) / self.n_rows)

    def own(self, X: Float64s) -> Float64s:
        """K_ii (m, k, k) of rows (m, D)."""
        if self.whole is not None:
            k = len(self.whole)
            found = np.empty((len(X), k, k))
            for c in range(k):
                for e in range(k):
                    found[:, c, e] = np.einsum("jd,jd->j", X @ self.whole[c, :, e], X)
            return found / self.n_rows
        basis, scales, rest = self._directions()
        inside = X @ self._axes
        along = inside**2 @ scales
        if rest is not None:
            along += np.maximum((X**2).sum(axis=1) - (inside**2).sum(axis=1), 0.0)[:, None] * rest
        return np.asarray(np.einsum("ce,me,de->mcd", basis, along, basis) / self.n_rows)

    def covariance(self, P: Float64s) -> Float64s:
        """Σ (m, k, k) of probabilities (m, C)."""
        p = P[:, 1:]
        if self.factor is None or p.shape[1] == 1:
            return np.asarray(np.einsum("jc,ce->jce", p, np.eye(p.shape[1])) - np.einsum("jc,je->jce", p, p))
        Q = (self.factor.U * self.factor.q) @ self.factor.U.T
        h = (1.0 - np.einsum("jc,jc->j", P, P)) * self.factor.contains_rows
        return np.asarray(h[:, None, None] * Q[1:, 1:])

    def steps(self, X: Float64s, u: Float64s) -> Float64s:
        """−(1/N) H⁻¹ (x ⊗ u), (m, k, D)."""
        if self.whole is not None:
            k, D = self.whole.shape[:2]
            outer = np.einsum("je,jd->jed", u, X).reshape(len(X), -1)
            return np.asarray(-(outer @ self.whole.reshape(k * D, k * D)).reshape(len(X), k, D) / self.n_rows)
        basis, scales, rest = self._directions()
        inside, E = X @ self._axes, self._axes
        found = np.zeros((len(X), len(basis), X.shape[1]))
        turned = u @ basis  # (m, k)
        for e, scale in enumerate(scales.T):
            moved = (inside * scale) @ E.T
            moved = moved if rest is None else moved + (X - inside @ E.T) * rest[e]
            found += basis[None, :, e, None] * (turned[:, e, None] * moved)[:, None, :]
        return -found / self.n_rows

    @property
    def _axes(self) -> Float64s:
        assert self.factor is not None, "one of the two is there"
        return np.asarray(self.factor.engine.host(self.factor.E), dtype=np.float64)

    def _directions(self) -> tuple[Float64s, Float64s, Float64s | None]:
        """Directions of Q in contrasts (k, k), 1 / (g q + λ) (m, k), and the same outside of the axes (k,)."""
        assert self.factor is not None, "one of the two is there"
        factor = self.factor
        scales = 1.0 / (np.outer(factor.g, factor.q) + factor.l2)
        rest = None if factor.rest is None else 1.0 / (factor.rest * factor.q + factor.l2)
        return factor.U[1:] - factor.U[:1], scales, rest


@dataclass(frozen=True)
class TakenBack:
    """The Newton steps that take back the labels of m rows, one by one."""

    inverse: Inverse
    X: Float64s
    """(m, D) the rows."""
    u: Float64s
    """(m, k)"""
    spread: Float64s
    """(m, k, k): δ M Σ."""

    def effects(self, S: Float64s) -> Float64s:
        """(m,): N times the change of a loss that each label, as it is there, has caused; S (m, C) are the rows' products X V."""
        return np.asarray(np.einsum("jc,jc->j", self.u, S[:, 1:] - S[:, :1]))

    def bend(self, judged: "Judges", losses: Losses, gradient: Float64s) -> Float64s:
        """(m,): the change of a loss that each label has caused beyond what its gradient (n, k) by the logits says."""
        n, k = len(judged.X), self.u.shape[1]
        found, at_once = np.empty(len(self.X)), max(1, _NUMBERS // (n * k * k))
        for start in range(0, len(self.X), at_once):
            part = slice(start, start + at_once)
            K = self.inverse.kernel(judged.X, self.X[part])  # (n, b, k, k)
            plain = -np.einsum("nbce,be->nbc", K, self.u[part])
            u = self.u[part] - np.einsum("bce,nbfe,nf->nbc", self.spread[part], K, judged.u)
            moved = -np.einsum("nbce,nbe->nbc", K, u)
            moved = moved + np.einsum("nce,nbe->nbc", judged.gain, moved)
            A = judged.logits[:, None, :] + np.concatenate([np.zeros((*moved.shape[:2], 1)), moved], axis=2)
            before = losses(judged.logits[:, None, :])[0]
            found[part] = before - losses(A) + np.einsum("nc,nbc->b", gradient, plain)
        return found

    def steps(self, at_once: int = 256) -> Iterator[tuple[int, Float64s]]:
        """The changes of the parameters in contrasts, (some of m, k, D), a block at a time, with the place of its first."""
        for start in range(0, len(self.X), at_once):
            part = slice(start, start + at_once)
            yield start, self.inverse.steps(self.X[part], self.u[part])


@dataclass(frozen=True)
class Judges:
    """n rows on which a loss is measured, and, if they train, what leaving each of them out takes."""

    X: Float64s
    logits: Float64s
    """(n, C), held out where the row trains."""
    u: Float64s
    """(n, k): of leaving the row out; 0 where it does not train."""
    gain: Float64s
    """(n, k, k): by how much a change of the logits grows because the row is left out, K_jj M_j w_j Σ_j."""

    @classmethod
    def plain(cls, X: Float64s, logits: Float64s) -> "Judges":
        """Rows that do not train."""
        n, k = len(X), logits.shape[1] - 1
        return cls(X, logits, np.zeros((n, k)), np.zeros((n, k, k)))

    @classmethod
    def held_out(cls, inverse: Inverse, objective: Objective, point: Point, rows: Ints, logits: Float64s) -> "Judges":
        """Rows of the objective that train, with their held-out logits."""
        X, P, now, w = _state(objective, point, rows)
        K, cover = inverse.own(X), inverse.covariance(P)
        u, _ = _solved(K, cover, -w[:, None] * (P - now)[:, 1:], -w)
        k = K.shape[1]
        columns = [amplified(K, w[:, None, None] * cover, w[:, None] * cover[:, :, e]) for e in range(k)]
        return cls(X, logits, u, np.stack(columns, axis=2))


def taken_back(
    inverse: Inverse, objective: Objective, point: Point, rows: Ints, Y: Float64s, weight: Float64s
) -> TakenBack:
    """The steps by which each of the rows would train with its label in Y (m, C) and weight (m,) instead, from the optimum."""
    X, P, now, w = _state(objective, point, rows)
    d = weight[:, None] * (P - Y) - w[:, None] * (P - now)
    u, spread = _solved(inverse.own(X), inverse.covariance(P), d[:, 1:], weight - w)
    return TakenBack(inverse, X, u, spread)


def _state(objective: Objective, point: Point, rows: Ints) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """X (n, D), P, Y (n, C) and weights (n,) of the rows."""
    engine = objective.engine
    placed = engine.placed(objective.labels)
    P = probabilities(with_reference(engine.host(point.logits[rows])))
    return engine.rows(rows), P, engine.host(placed.Y[rows]), engine.host(placed.weight[rows])


def _solved(K: Float64s, cover: Float64s, d: Float64s, more: Float64s) -> tuple[Float64s, Float64s]:
    """u = (I + δ Σ K)⁻¹ d (m, k), and δ (I + δ Σ K)⁻¹ Σ (m, k, k); leverages are kept below one."""
    scaled = more[:, None, None] * cover

    def solve(r: Float64s) -> Float64s:
        return np.asarray(r - np.einsum("jce,je->jc", scaled, amplified(K, -scaled, r)))

    columns = [solve(scaled[:, :, e]) for e in range(K.shape[1])]
    return solve(d), np.stack(columns, axis=2)
