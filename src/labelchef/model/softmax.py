"""Softmax regression on soft labels, row formulas (paper eq. 1 with the cross-entropy of eq. 8).

    P[i] = softmax(A[i])                       probabilities
    ℓ_i  = log Σ_c exp A[i, c] − Y[i]·A[i]     cross-entropy against a soft label

Shapes: A (n, C) logits; Y (n, C), rows on the simplex; P (n, C).
"""

from typing import Any

import numpy as np
from scipy.special import logsumexp

from labelchef.base.arrays import Float64s


def probabilities(A: Any) -> Any:
    """Row-wise softmax.

    >>> probabilities(np.array([[0.0, 0.0], [0.0, 800.0]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    E = np.exp(A - np.amax(A, axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def log_probabilities(A: Float64s) -> Float64s:
    """Logarithms of the row-wise softmax, finite for logits of any size.

    >>> log_probabilities(np.array([[0.0, 800.0]])).tolist()
    [[-800.0, 0.0]]
    """
    return np.asarray(A - logsumexp(A, axis=1, keepdims=True))


def cross_entropies(A: Float64s, Y: Float64s) -> Float64s:
    """ℓ_i of every row, finite for logits of any size.

    >>> cross_entropies(np.array([[0.0, 800.0]]), np.array([[1.0, 0.0]])).tolist()
    [800.0]
    """
    return np.asarray(logsumexp(A, axis=1) - np.einsum("ic,ic->i", Y, A))
