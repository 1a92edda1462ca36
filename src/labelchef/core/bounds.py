"""Rigorous bounds on the influence from what an earlier sweep left behind: no pass over X.

An anchor keeps, for a basis B of directions, the products Z = X B, and the probabilities P̂ at its own parameters W_a. At a
later round with W and V, and with q̂ = γY + (1 − γ)P̂ from the labels as they are then:

    V = B M + E, Ŝ = Z M          M: least squares;  |S[i, c] − Ŝ[i, c]| ≤ ε_ic = ν_i ‖E_c‖_K
    logits moved by at most α_ic = ν_i ‖(W − W_a)_c‖_K;  η_i = ½ (largest + second largest of α_i, with α_i0 = 0)

(columns are contrasts against class 0, so class 0 has S = ε = α = 0). For any positive definite K,

    |x·T| ≤ ν(x) ‖T‖_K,   ν(x) = (xᵀK⁻¹x)^½,   ‖T‖_K = (TᵀKT)^½

by Cauchy–Schwarz; K adapted to the data makes it tight, because ‖E‖_K is then about the root mean square of X·E.

With e = S − Ŝ and ΔP = P − P̂, formula (A) moves by exactly

    I_c − Î_c = (e_c − q̂·e) − (1 − γ) ΔP·(Ŝ + e).

- |e_c − q̂·e| ≤ (1 − q̂_c) ε_c + Σ_{j≠c} q̂_j ε_j.
- ‖ΔP‖₁ ≤ η: the derivative of softmax along a is p ∘ (a − p·a), whose L1 norm is a mean absolute deviation, at most half the
  spread of a; the spread of the move is at most the sum of its two largest bounds. And ‖ΔP‖₁ ≤ 2.
- ΔP sums to zero, so |ΔP·s| ≤ ½ ‖ΔP‖₁ (max s − min s), for s = Ŝ and for s = e, whose spread is at most the sum of the two
  largest ε (ε_0 = 0 counted in).

Hence |I_c − Î_c| ≤ (1 − q̂_c) ε_c + Σ_{j≠c} q̂_j ε_j + (1 − γ) ½ min(2, η) (spread Ŝ + spread e). No Hessian is
approximated by another. A little more is allowed for the rounding of the products themselves (`ROUNDING`).

The paper's Theorem 1 is here too, for the record and for models other than softmax regression; it bounds by norms of
per-sample Hessians.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labelchef.core.curvature import FrozenCurvature
from labelchef.domain.arrays import Float64s
from labelchef.engines import Engine, RowArray

ROUNDING = 1e-9
"""Relative to the spread of Ŝ: room for the rounding of cached products and sums."""


@dataclass(frozen=True)
class AdaptedNorm:
    """K = E diag(g) Eᵀ + τ (I − E Eᵀ): the leading directions of the data apart, all others alike.

    E (D, m) has orthonormal columns, g (m,) and τ are positive.
    """

    E: Float64s
    g: Float64s
    rest: float

    def of_directions(self, T: Float64s) -> Float64s:
        """‖T_c‖_K of each row of T (k, D)."""
        inside = T @ self.E
        outside = np.maximum(np.einsum("cd,cd->c", T, T) - np.einsum("cj,cj->c", inside, inside), 0.0)
        return np.asarray(np.sqrt(inside**2 @ self.g + self.rest * outside))

    def of_rows(self, engine: Engine) -> RowArray:
        """ν of every row, in one pass over X."""
        return engine.xp.sqrt(engine.row_quadratic(self.E, 1.0 / self.g, 1.0 / self.rest))

    def inner(self, S: Float64s, T: Float64s) -> Float64s:
        """(a, b) matrix of S_a·K·T_b for rows of S (a, D) and T (b, D)."""
        left, right = S @ self.E, T @ self.E
        return np.asarray((left * self.g) @ right.T + self.rest * (S @ T.T - left @ right.T))


def adapt_norm(factor: FrozenCurvature, n_columns: int, rank: int) -> AdaptedNorm:
    """The norm of the frozen curvature's G: its leading `rank` directions, the mean of the rest, a floor for both."""
    g = factor.g[-rank:]
    E = np.asarray(factor.engine.host(factor.E[:, -rank:]), dtype=np.float64)
    E, _ = np.linalg.qr(E)  # float32 directions are orthonormal to 1e-7 only; a norm must be one
    floor = max(1e-6 * float(g.max(initial=0.0)), 1e-12)
    g = np.maximum(g, floor)
    outside = n_columns - E.shape[1]
    if outside == 0:  # nothing is left over, whatever it is called
        return AdaptedNorm(E, g, float(g.max()))
    return AdaptedNorm(E, g, max(float(factor.g[:-rank].sum()) / outside, floor))


def fit_directions(norm: AdaptedNorm, B: Float64s, V: Float64s) -> tuple[Float64s, Float64s]:
    """M (q, k) and ‖E_c‖_K (k,) for V ≈ B M, rows of B (q, D) and V (k, D) being directions.

    M is a least-squares fit in the norm K; whatever it is, E = V − B M is computed from it, so the bound holds.
    """
    gram = norm.inner(B, B)
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    M, *_ = np.linalg.lstsq(gram / np.outer(scale, scale), norm.inner(B, V) / scale[:, None], rcond=1e-10)
    M = M / scale[:, None]
    return M, norm.of_directions(V - M.T @ B)


def half_spread(alpha: Float64s) -> float:
    """½ (largest + second largest), the zero of class 0 counted in: the most that softmax can move, in L1, for ν = 1.

    >>> half_spread(np.array([3.0])), half_spread(np.array([3.0, 2.0]))
    (1.5, 2.5)
    """
    top = np.sort(np.append(alpha, 0.0))[::-1]
    return 0.5 * float(top[0] + top[1])


def influence_bounds(
    S: Float64s, Q: Float64s, nu: Float64s, weight: Float64s, e: Float64s, move: float
) -> tuple[Float64s, Float64s]:
    """Lower and upper bound of I(i, c) for every sample and class, (n, C) each; the formula above, plainly.

    S (n, C) and Q (n, C) with S[:, 0] = 0; e (C,) = ‖E_c‖_K with e[0] = 0; move = `half_spread` of ‖ΔW_c‖_K.
    """
    eps = nu[:, None] * e
    estimate = S - np.einsum("ic,ic->i", Q, S)[:, None]
    first = (1.0 - Q) * eps + (np.einsum("ic,ic->i", Q, eps)[:, None] - Q * eps)
    spread = S.max(axis=1) - S.min(axis=1)
    two = np.sort(eps, axis=1)[:, -2:].sum(axis=1)
    eta = np.minimum(2.0, nu * move)
    common = 0.5 * (1.0 - weight) * eta * (spread + two) + ROUNDING * spread
    width = first + common[:, None]
    return estimate - width, estimate + width


@dataclass(frozen=True)
class Theorem1:
    """The paper's bound: centre ± radius of I(i, c) at round k, from provenance at w0.

    With v = −V, e1 = v·(w_k − w0), e2 = ‖v‖ ‖w_k − w0‖, h = ‖H(w0, z)‖ in place of the integrated Hessians, and
    δ = e_c − y:  I = I_0 + ½(1 − γ) e1 h + Σ δ_j e1 h ± (Σ |δ_j| e2 h + ½(1 − γ) e2 h). The theorem as printed has −I
    on the left; with its own v, which carries the minus sign, that is a slip. For softmax all H^(j) are one matrix and
    Σ δ_j = 0, so the δ-terms are zero in truth; `delta_terms=False` leaves them out, as the authors' code does.
    """

    hessian_norm: Float64s
    delta_terms: bool = True

    def bounds(
        self, estimate: Float64s, Y: Float64s, weight: Float64s, e1: float, e2: float
    ) -> tuple[Float64s, Float64s]:
        """Lower and upper bounds (n, C) from the estimates I_0 (n, C)."""
        h, free = self.hessian_norm[:, None], (1.0 - weight)[:, None]
        centre = estimate + 0.5 * free * e1 * h
        radius = 0.5 * free * e2 * h * np.ones_like(estimate)
        if self.delta_terms:
            radius = radius + 2.0 * (1.0 - Y) * e2 * h  # ‖e_c − y‖₁ = 2 (1 − y_c) on the simplex
        return centre - radius, centre + radius


def softmax_hessian_norms(P: Float64s, squares: Float64s) -> Float64s:
    """‖H(w, z_i)‖ = ‖x_i‖² λ_max(diag p_i − p_i p_iᵀ), in closed form for softmax; P (n, C), squares ‖x_i‖² (n,).

    >>> softmax_hessian_norms(np.array([[0.5, 0.5]]), np.array([4.0])).tolist()
    [2.0]
    """
    if P.shape[1] == 2:
        return np.asarray(squares * 2.0 * P[:, 0] * P[:, 1])
    J = np.einsum("ic,cd->icd", P, np.eye(P.shape[1])) - np.einsum("ic,id->icd", P, P)
    return np.asarray(squares * np.linalg.eigvalsh(J)[:, -1])


def power_norm(
    product: Callable[[Float64s], Float64s],
    size: int,
    rng: np.random.Generator,
    *,
    tol: float = 1e-6,
    max_iterations: int = 1000,
) -> float:
    """‖H‖ of any symmetric H given as v ↦ H v, by the power method (paper, appendix D).

    >>> round(power_norm(lambda v: np.array([3.0, -5.0]) * v, 2, np.random.default_rng(0)), 4)
    5.0
    """
    v = rng.standard_normal(size)
    norm = 0.0
    for _ in range(max_iterations):
        v = v / np.linalg.norm(v)
        v = product(v)
        following = float(np.linalg.norm(v))
        if following == 0.0 or abs(following - norm) <= tol * following:
            return following
        norm = following
    return norm
