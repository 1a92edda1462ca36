"""The answers to expect from people, given the model and the trusted samples (docs/method.md).

The model is not trained on the trusted samples: they are validation. A model that is, with weight 1 each, minimises

    F(W) + (m/N) L_val(W)

A Newton step from W goes along −V, since V = H⁻¹ g_val, and its length is where the quadratic model along that line is least,

    η = (m/N) g·V / (g·V + (m/N) Vᵀ H_val V)             0 ≤ η ≤ m/N

so its logits are A − η S and its probabilities

    Q[i] = softmax(A[i] − η S[i])                        the answers to be expected

computed from what INFL has already computed: no fit, no sweep, no parameter.

Shapes: g, V (D, C); S = X V, A, Q (n, C); X_val (m, D).
"""

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.model.contrasts import with_reference
from labelchef.model.objective import Point
from labelchef.model.softmax import probabilities


def step_towards_trusted(X_val: Float64s, validation: Point, V: Float64s, n_train: int) -> float:
    """η, for the validation loss at the present model and V = H⁻¹ g_val."""
    P, slope = probabilities(with_reference(validation.logits)), float(np.vdot(validation.gradient, V))
    return step_length(P, X_val @ V, slope, n_train)


def step_length(P: Float64s, T: Float64s, slope: float, n_train: int) -> float:
    """η, from the probabilities P (m, C) of the trusted samples, the change T (m, C) of their logits along V, and g·V.

    >>> step_length(np.array([[0.5, 0.5]]), np.array([[1.0, -1.0]]), 1.0, 1)
    0.5
    """
    share = len(T) / n_train
    bend = float(np.mean(np.einsum("jc,jc->j", P, T**2) - np.einsum("jc,jc->j", P, T) ** 2))
    return share * slope / (slope + share * bend) if slope > 0.0 else 0.0


def expected_answers(A: Float64s, S: Float64s, eta: float) -> Float64s:
    """Q, from logits and products.

    >>> expected_answers(np.array([[0.0, 0.0]]), np.array([[0.0, -200.0]]), 4.0).tolist()
    [[0.0, 1.0]]
    """
    return np.asarray(probabilities(A - eta * S))
