"""Theorem 1 and the norms of per-sample Hessians."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from labelchef.chef.baselines.influence import softmax_hessian_norms, theorem1_bounds
from labelchef.model.influence import influence_matrix
from tests.oracles import power_norm


@given(seed=st.integers(0, 2**32 - 1), C=st.integers(2, 6))
def test_hessian_norms_by_formula_dense_algebra_and_power_method(seed: int, C: int) -> None:
    rng = np.random.default_rng(seed)
    x, p = rng.normal(size=4), rng.dirichlet(np.ones(C))
    H = np.kron(np.outer(x, x), np.diag(p) - np.outer(p, p))
    closed = softmax_hessian_norms(p[None], np.array([x @ x]))[0]
    assert closed == pytest.approx(np.linalg.norm(H, 2), rel=1e-9)
    assert power_norm(lambda v: H @ v, len(H), rng, tol=1e-10, max_iterations=20000) == pytest.approx(closed, rel=1e-3)


def test_power_norm_of_nothing() -> None:
    assert power_norm(lambda v: 0.0 * v, 3, np.random.default_rng(0)) == 0.0
    assert power_norm(lambda v: v * np.array([1.0, 0.5]), 2, np.random.default_rng(0), max_iterations=1) > 0.5


@pytest.mark.parametrize("delta_terms", [False, True])
def test_theorem_1_holds_for_small_moves(rng: np.random.Generator, delta_terms: bool) -> None:
    """Its Hessians are those at w0, so it is no guarantee. Near w0 it must hold."""
    for _ in range(50):
        n, d, C = 30, 4, int(rng.integers(2, 6))
        X, Y = rng.normal(size=(n, d)), rng.dirichlet(np.ones(C), n)
        W0, V = rng.normal(size=(2, d, C))
        dW = 1e-4 * rng.normal(size=(d, C))
        weight = np.full(n, 0.8)
        P0, P = softmax(X @ W0, axis=1), softmax(X @ (W0 + dW), axis=1)
        estimate = influence_matrix(X @ V, P0, Y, weight)
        e1, e2 = float(-np.vdot(V, dW)), float(np.linalg.norm(V) * np.linalg.norm(dW))
        norms = softmax_hessian_norms(P0, (X**2).sum(axis=1))
        lower, upper = theorem1_bounds(estimate, Y, weight, 1.02 * norms, e1, e2, delta_terms)
        truth = influence_matrix(X @ V, P, Y, weight)
        assert (lower <= truth).all()
        assert (truth <= upper).all()
