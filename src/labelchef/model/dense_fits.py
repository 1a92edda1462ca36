"""Fits on a few thousand rows in their main directions: milliseconds each, no engine, no sweep.

axes      E (d, r), the directions of largest variance of some rows
rows      X E (n, r), and the column of the bias
fit       W (r, C) near the minimum of Σ_i w_i ℓ(y_i, x_i; W) + (λ/2) ‖W‖²
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, eigh, solve_triangular
from scipy.optimize import minimize
from sklearn.utils.extmath import randomized_svd

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.stopping_work import go_on
from labelchef.model.softmax import probabilities

_STEPS, _TOL = 40, 1e-3
_LARGEST_LEVERAGE = 0.99
_FEW = 2  # Cholesky factors that take less time than eigenvectors


@dataclass(frozen=True)
class Axes:
    """The main directions E (d, r) of some rows: a basis in which fits are a matter of milliseconds."""

    E: Float64s

    @classmethod
    def of(cls, X: Floats, most: int, seed: int) -> "Axes":
        """The `most` directions of largest variance around zero, largest first; all of them, if there are no more."""
        n, d = X.shape
        if min(n, d) <= 2 * most:
            rows = X.astype(np.float64)
            if n < d:
                g, U = np.linalg.eigh(rows @ rows.T)
                kept = np.flatnonzero(g > 1e-10 * max(float(g[-1]), np.finfo(float).tiny))[::-1][:most]
                return cls(np.ascontiguousarray(rows.T @ (U[:, kept] / np.sqrt(g[kept]))))
            return cls(np.ascontiguousarray(np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :most]))
        _, _, V = randomized_svd(X, most, n_iter=2, random_state=seed)
        return cls(np.ascontiguousarray(V.T, dtype=np.float64))

    def rows(self, X: Float64s, *, bias: bool) -> "DenseRows":
        """Rows (n, d + bias) in these directions; the column of the bias, the last one, stays."""
        inside = X[:, : len(self.E)] @ self.E
        return DenseRows(np.ascontiguousarray(np.hstack([inside, X[:, -1:]]) if bias else inside))

    def parameters(self, W: Float64s, *, bias: bool) -> Float64s:
        """W (r + bias, C) of rows in these directions as parameters (d + bias, C)."""
        inside = self.E @ W[: self.E.shape[1]]
        return np.vstack([inside, W[-1:]]) if bias else np.asarray(inside)


@dataclass(frozen=True)
class DenseRows:
    """A few thousand rows in their main directions, on which a fit is a matter of milliseconds: no engine, no sweep.

    The columns are nearly orthogonal, so a diagonal is a good preconditioner: with s_j = (¼ Σ_i w_i x_ij² + λ)^(−½), the Hessian
    of the loss in W / s is near the identity, and L-BFGS needs about ten steps.
    """

    X: Float64s
    """(n, r), with a column of ones last if there is a bias."""

    def part(self, which: "Ints | slice") -> "DenseRows":
        """Some of the rows."""
        return DenseRows(self.X[which])

    def narrower(self, most: int, *, bias: bool) -> "DenseRows":
        """In the first `most` directions only."""
        if self.X.shape[1] - int(bias) <= most:
            return self
        return DenseRows(
            np.ascontiguousarray(np.hstack([self.X[:, :most], self.X[:, -1:]]) if bias else self.X[:, :most])
        )

    def fit(
        self, Y: Float64s, weight: Float64s, strength: float, start: Float64s | None = None, *, tol: float = _TOL
    ) -> Float64s:
        """W (r, C) near the minimum of Σ w ℓ(y, x; W) + (λ/2) ‖W‖²."""
        go_on()
        X, kept = self.X, weight > 0
        if not kept.all():
            X, Y, weight = X[kept], Y[kept], weight[kept]
        C = Y.shape[1]
        s = 1.0 / np.sqrt(0.25 * (weight @ (X * X)) + strength)
        scaled = (X * s).astype(np.float32)
        penalty = strength * s[:, None] ** 2

        def at(flat: Float64s) -> tuple[float, Float64s]:
            U = flat.reshape(-1, C)
            A = np.asarray(scaled @ U.astype(np.float32), dtype=np.float64)
            top = A.max(axis=1, keepdims=True)
            E = np.exp(A - top)
            total = E.sum(axis=1, keepdims=True)
            losses = np.log(total[:, 0]) + top[:, 0] - np.einsum("ic,ic->i", Y, A)
            R = (weight[:, None] * (E / total - Y)).astype(np.float32)
            gradient = scaled.T @ R + penalty * U
            return float(weight @ losses) + 0.5 * float(np.vdot(penalty * U, U)), gradient.ravel()

        first = np.zeros(X.shape[1] * C) if start is None else (start / s[:, None]).ravel()
        options = {"maxiter": _STEPS, "gtol": tol * np.sqrt(float(weight.sum()))}
        found = minimize(at, first, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x.reshape(-1, C) * s[:, None])

    def leave_one_out(self, Y: Float64s, W: Float64s, strength: float) -> Float64s:
        """Logits (n, C) of all rows, each without itself, at the minimum W for weights 1.

        The Kronecker form of `model.leave_one_out`: b_jc = x_jᵀ (q_c G + λ)⁻¹ x_j for each direction c of Q.
        """
        A = self.X @ W
        P = probabilities(A)
        h = 1.0 - np.einsum("ic,ic->i", P, P)
        Q = (np.diag(P.sum(axis=0)) - P.T @ P) / max(float(h.sum()), 1e-12)
        q, U = np.linalg.eigh(Q - np.full(Q.shape, 1.0 / len(Q)))
        q, U = np.maximum(q[1:], 0.0), U[:, 1:]
        b = self._quadratic(h, q, strength)
        leverage = np.minimum(h[:, None] * q * b, _LARGEST_LEVERAGE)
        return np.asarray(A + (b / (1.0 - leverage) * ((P - Y) @ U)) @ U.T)

    def _quadratic(self, h: Float64s, q: Float64s, strength: float) -> Float64s:
        """b_jc = x_jᵀ (q_c G + λ)⁻¹ x_j (n, k) with G = Σ h x xᵀ: a Cholesky factor for each of few q, else eigenvectors for all.

        With fewer rows than columns the eigenvectors e_d are those of the rows: with √h X Xᵀ √h = Σ_d g_d v_d v_dᵀ they are
        e_d = Xᵀ √h v_d / √g_d, and what is left of a row outside of their span has the curvature λ.
        """
        X, (n, r) = self.X, self.X.shape
        if len(q) <= _FEW:
            G, b = X.T @ (h[:, None] * X), np.empty((n, len(q)))
            for c, size in enumerate(q):
                factor, _ = cho_factor(
                    size * G + strength * np.eye(r), lower=True, overwrite_a=True, check_finite=False
                )
                half = solve_triangular(factor, X.T, lower=True, check_finite=False)
                b[:, c] = np.einsum("dj,dj->j", half, half)
            return b
        if r <= n:
            g, E = eigh(X.T @ (h[:, None] * X), overwrite_a=True, check_finite=False, driver="evd")
            return np.asarray((X @ E) ** 2 @ (1.0 / (np.outer(np.maximum(g, 0.0), q) + strength)))
        products, root = X @ X.T, np.sqrt(np.maximum(h, 0.0))
        g, V = eigh(root[:, None] * products * root, overwrite_a=True, check_finite=False, driver="evd")
        kept = g > 1e-10 * max(float(g[-1]), np.finfo(float).tiny)
        squares = ((products * root) @ (V[:, kept] / np.sqrt(g[kept]))) ** 2
        beyond = np.maximum(np.diag(products) - squares.sum(axis=1), 0.0)
        return np.asarray(squares @ (1.0 / (np.outer(g[kept], q) + strength)) + beyond[:, None] / strength)
