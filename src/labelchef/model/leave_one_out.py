"""Logits of training rows under the model that was trained without them, in closed form (docs/method.md).

W minimises F (`model/objective.py`). Without row j, F⁻ = F − (w_j/N) ℓ_j, whose gradient at W is −(w_j/N) x_j ⊗ (p_j − y_j). One
Newton step from W gives its minimum up to the change of curvature of the other rows, and row j's logits there are

    a_j⁻ = a_j + (I − B_j Σ_j)⁻¹ B_j (p_j − y_j),      B_j = (w_j/N) (x_j ⊗ I)ᵀ H⁻¹ (x_j ⊗ I),   Σ_j = diag p_j − p_j p_jᵀ

by Woodbury's identity for (H − (w_j/N) x_j x_jᵀ ⊗ Σ_j)⁻¹. Row j itself is not in F⁻, so its own nonlinearity plays no part, and
no iteration of p_j at a_j⁻ would be an improvement. N stays: the row is left out by weight zero.

`dense`: H in contrasts against class 0, (kD, kD) with k = C − 1, from one weighted Gram matrix for each pair of classes,

    H̃ = (1/N) Σ_i r_i (diag p̃_i − p̃_i p̃_iᵀ) ⊗ x_i x_iᵀ + λ (I − 11ᵀ/C) ⊗ I

`kronecker`: H ≈ M = Q ⊗ G + λI of a `FrozenCurvature`. Row j has added (h_j/N) Q ⊗ x_j x_jᵀ to M, with its w_j (1 − ‖p_j‖²) of
then, h_j; that is taken from it, in the place of w_j Σ_j: with Q = U diag(q) Uᵀ, every direction c of U has its own number,

    a_j⁻ = a_j + U [ w_j s_jc / (1 − h_j q_c s_jc) · Uᵀ(p_j − y_j) ],      s_jc = (1/N) Σ_d (Eᵀx_j)_d² / (g_d q_c + λ)

For C = 2 this is the formula above where M was made at this point, since h_j Q = w_j Σ_j. For more classes it is an
approximation, but a stable one: the leverages h_j q_c s_jc of rows that are in M are below one. (With Σ_j in the place of
h_j Q they need not be, because M is not H: in trials with ten classes single rows were wrong by tens of logits.) If G was
sketched from a part of the rows, M hardly contains row j, and nothing is taken from it.

Shapes: x_j a row of X (n, D), with weight w_j; a_j, p_j, y_j rows of A, P, Y (n, C); b, q (k,); E (D, m).
"""

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.model.contrasts import with_reference
from labelchef.model.curvature import FrozenCurvature, freeze
from labelchef.model.objective import Objective, Point
from labelchef.model.softmax import probabilities

LARGEST_DENSE = 2500
"""Parameters, D (C − 1), up to which the whole Hessian is formed (50 MB) where there are more than two classes."""

_LARGEST_LEVERAGE = 0.99
"""Rounding, or a factor of another point, may give more than one."""


def leave_one_out_logits(
    objective: Objective, point: Point, rows: Ints, factor: FrozenCurvature | None = None
) -> Float64s:
    """Logits (n, C), against class 0, of the rows, each under the model trained without it; `point` is the optimum.

    The factor, if given, must have been frozen at this point (not `roughly`). It is used for two classes, where it is exact,
    and for more than `LARGEST_DENSE` parameters; else the Hessian is formed. Rows of weight zero keep their logits.
    """
    D, C = objective.shape
    if C > 2 and D * (C - 1) <= LARGEST_DENSE and factor is None:
        found = dense(objective, point, rows)
        if found is not None:
            return found
    return kronecker(objective, point, rows, freeze(objective, point.logits) if factor is None else factor)


def projected(objective: Objective, rows: Ints, factor: FrozenCurvature) -> Float64s:
    """The rows along the eigenvectors of a factor, (n, m): the larger part of the work, the same while the factor is."""
    engine = objective.engine
    return np.asarray(
        engine.host(engine.place(engine.rows(rows)) @ engine.xp.asarray(factor.E, dtype=engine.xp.float64))
    )


def kronecker(
    objective: Objective, point: Point, rows: Ints, factor: FrozenCurvature, inside: Float64s | None = None
) -> Float64s:
    """Leave-one-out logits (n, C) from a frozen curvature: n·D·(m + C) multiplications, n·D·C if `inside` is given."""
    engine, (A, _, residual, weight) = objective.engine, _row_state(objective, point, rows)
    inside = projected(objective, rows, factor) if inside is None else inside
    scale = 1.0 / (np.outer(factor.g, factor.q) + factor.l2)  # (m, k)
    with engine.small_products():
        squares = inside**2 @ scale
    if factor.rest is not None:
        X = engine.rows(rows)
        beyond = np.maximum(np.einsum("jd,jd->j", X, X) - np.einsum("jm,jm->j", inside, inside), 0.0)
        squares += np.outer(beyond, 1.0 / (factor.rest * factor.q + factor.l2))
    squares /= engine.n_rows
    leverage = np.minimum((factor.h[rows] * factor.contains_rows)[:, None] * factor.q * squares, _LARGEST_LEVERAGE)
    moved = A + (weight[:, None] * squares / (1.0 - leverage) * (residual @ factor.U)) @ factor.U.T
    return np.asarray(moved - moved[:, :1])


def dense(objective: Objective, point: Point, rows: Ints) -> Float64s | None:
    """Leave-one-out logits (n, C) from the whole Hessian; None where rounding has made it indefinite (l2 is tiny)."""
    engine, (A, P, residual, weight) = objective.engine, _row_state(objective, point, rows)
    inverse = _inverse_hessian(objective, point)
    if inverse is None:
        return None
    X, k = engine.rows(rows), A.shape[1] - 1
    B = np.empty((len(rows), k, k))
    for c in range(k):
        for e in range(c + 1):
            B[:, c, e] = B[:, e, c] = np.einsum("jd,jd->j", X @ inverse[c, :, e], X)
    B *= (weight / engine.n_rows)[:, None, None]
    p = P[:, 1:]
    covariance = np.einsum("jc,ce->jce", p, np.eye(k)) - np.einsum("jc,je->jce", p, p)
    step = _amplified(B, covariance, residual[:, 1:])
    return A + np.hstack([np.zeros((len(rows), 1)), step])


def _row_state(objective: Objective, point: Point, rows: Ints) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """A, P, P − Y (n, C) and the weights (n,) of the rows."""
    engine = objective.engine
    labels = engine.placed(objective.labels)
    A = with_reference(engine.host(point.logits[rows]))
    P = probabilities(A)
    return A, P, P - engine.host(labels.Y[rows]), engine.host(labels.weight[rows])


def _amplified(B: Float64s, covariance: Float64s, residual: Float64s) -> Float64s:
    """(I − BΣ)⁻¹ B r for every row, as B^½ (I − B^½ Σ B^½)⁻¹ B^½ r with leverages kept below one."""
    size, basis = np.linalg.eigh(B)
    root = np.einsum("jab,jb,jcb->jac", basis, np.sqrt(np.maximum(size, 0.0)), basis)
    leverage, turn = np.linalg.eigh(root @ covariance @ root)
    there = np.einsum("jba,jbc,jc->ja", turn, root, residual) / (1.0 - np.minimum(leverage, _LARGEST_LEVERAGE))
    return np.asarray(np.einsum("jab,jbc,jc->ja", root, turn, there))


def _inverse_hessian(objective: Objective, point: Point) -> Float64s | None:
    """H̃⁻¹ as (k, D, k, D); None unless H̃ is positive definite."""
    engine, (D, C), k = objective.engine, objective.shape, objective.shape[1] - 1
    H = engine.hessian(objective.labels, point.logits) / engine.n_rows
    for c in range(k):
        for e in range(k):
            H[c, :, e] += (float(c == e) - 1.0 / C) * objective.l2 * np.eye(D)
    flat = H.reshape(k * D, k * D)
    with engine.small_products():
        try:
            np.linalg.cholesky(flat)
        except np.linalg.LinAlgError:
            return None
        return np.asarray(np.linalg.inv(flat).reshape(k, D, k, D))
