"""INFL in closed form (paper eq. 6; docs/method.md).

Cleaning sample i to class c replaces (weight γ, label y) by (weight 1, label e_c). With V = H⁻¹ g_val, S = X V and
the label change δ = e_c − y (the sign that agrees with the paper's derivation),

    I(i, c) = S[i, c] − (γ Y[i] + (1 − γ) P[i]) · S[i]                                  (A)

I(i, c) ≈ N · (validation loss after − before): negative means that cleaning helps. The score of a sample is
min_c I(i, c), its suggested label argmin_c S[i, c].

Shapes: S, P, Y (n, C); γ (n,), the present weight of each sample; I (n, C).
"""

import numpy as np

from labelchef.base.arrays import Float64s


def influence_matrix(S: Float64s, P: Float64s, Y: Float64s, gamma: Float64s) -> Float64s:
    """Formula (A) for every sample and class.

    >>> S, P, Y = np.array([[0.0, -2.0]]), np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
    >>> influence_matrix(S, P, Y, np.array([1.0])).tolist()
    [[0.0, -2.0]]
    """
    Q = gamma[:, None] * Y + (1.0 - gamma)[:, None] * P
    return np.asarray(S - np.einsum("ic,ic->i", Q, S)[:, None])
