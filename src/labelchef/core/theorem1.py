"""The bound of the paper's Theorem 1, and the norms of per-sample Hessians that it needs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labelchef.domain.arrays import Float64s


@dataclass(frozen=True)
class Theorem1:
    """The paper's bound: centre ± radius of I(i, c) at round k, from what was computed at w0.

    With v = −V, e1 = v·(w_k − w0), e2 = ‖v‖ ‖w_k − w0‖, h = ‖H(w0, z)‖ in place of the integrated Hessians, and
    δ = e_c − y:  I = I_0 + ½(1 − γ) e1 h + Σ δ_j e1 h ± (Σ |δ_j| e2 h + ½(1 − γ) e2 h). The theorem as printed has −I
    on the left; with its own v, which carries the minus sign, that is a sign error. For softmax all H^(j) are one matrix and
    Σ δ_j = 0, so the true δ-terms are zero; `delta_terms=False` leaves them out, as the authors' code does.
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
