"""The bounds contain the truth, always."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from labelchef.core.bounds import (
    AdaptedNorm,
    Theorem1,
    adapt_norm,
    fit_directions,
    half_spread,
    influence_bounds,
    power_norm,
    softmax_hessian_norms,
)
from labelchef.core.contrasts import with_reference
from labelchef.core.curvature import FrozenCurvature
from labelchef.core.influence import influence_matrix
from labelchef.engines import MemoryEngine, kernels


def random_norm(rng: np.random.Generator, D: int, rank: int) -> AdaptedNorm:
    E, _ = np.linalg.qr(rng.normal(size=(D, rank)))
    return AdaptedNorm(E, 10.0 ** rng.uniform(-3, 3, rank), 10.0 ** rng.uniform(-3, 3))


@given(seed=st.integers(0, 2**32 - 1), D=st.integers(1, 12), k=st.integers(1, 4))
def test_the_adapted_norm_is_a_norm_pair(seed: int, D: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, D + 1))
    norm = random_norm(rng, D, rank)
    K = norm.E @ np.diag(norm.g) @ norm.E.T + norm.rest * (np.eye(D) - norm.E @ norm.E.T)
    x, T = rng.normal(size=(5, D)), rng.normal(size=(k, D))
    nu = norm.of_rows(MemoryEngine(x, bias=False))
    truth = np.einsum("id,de,ie->i", x, np.linalg.inv(K), x)
    assert (nu**2 >= truth * (1 - 1e-9)).all()
    np.testing.assert_allclose(nu**2, truth, rtol=1e-5)
    np.testing.assert_allclose(norm.of_directions(T) ** 2, np.einsum("cd,de,ce->c", T, K, T), rtol=1e-6)
    np.testing.assert_allclose(norm.inner(T, T), T @ K @ T.T, rtol=1e-6, atol=1e-9 * np.abs(K).max())
    assert (np.abs(x @ T.T) <= np.outer(nu, norm.of_directions(T)) * (1 + 1e-9)).all()


def test_row_norms_of_float32_features_are_no_smaller_than_the_truth(rng: np.random.Generator) -> None:
    D = 100
    E = np.linalg.qr(rng.normal(size=(D, D)))[0]
    norm = AdaptedNorm(E, np.append(np.full(D - 1, 1e-6), 1.0), 1.0)
    x = (rng.normal(size=(500, D)) @ np.diag(np.append(np.full(D - 1, 1e-2), 1.0)) @ E.T).astype(np.float32)
    inside = x.astype(np.float64) @ E
    assert (norm.of_rows(MemoryEngine(x, bias=False)) >= np.sqrt(inside**2 @ (1.0 / norm.g)) * (1 - 1e-15)).all()


@settings(max_examples=1500)
@given(
    seed=st.integers(0, 2**32 - 1),
    C=st.integers(2, 20),
    gamma=st.floats(0, 1),
    log_v=st.floats(-6, 3),
    log_w=st.floats(-6, 3),
    adversarial=st.booleans(),
)
def test_bounds_contain_the_true_influence(
    seed: int, C: int, gamma: float, log_v: float, log_w: float, adversarial: bool
) -> None:
    rng = np.random.default_rng(seed)
    D, n, m = int(rng.integers(2, 10)), 12, int(rng.integers(1, 4))
    norm = random_norm(rng, D, int(rng.integers(1, D + 1)))
    X = rng.normal(size=(n, D)) * 10.0 ** rng.uniform(-2, 2)
    W_a, V_a = rng.normal(size=(2, C - 1, D)) * 10.0 ** rng.uniform(-2, 1)
    dW, dV = rng.normal(size=(2, C - 1, D))
    if adversarial:  # move straight along the worst direction of one sample, the other classes against it
        K = norm.E @ np.diag(norm.g) @ norm.E.T + norm.rest * (np.eye(D) - norm.E @ norm.E.T)
        worst = np.linalg.solve(K, X[0])
        dW = np.outer(rng.choice([-1.0, 1.0], C - 1), worst)
        dV = np.outer(rng.choice([-1.0, 1.0], C - 1), worst)
    W, V = W_a + 10.0**log_w * dW, V_a + 10.0**log_v * dV
    Y, weight = rng.dirichlet(np.ones(C), n), np.full(n, gamma)
    B = np.vstack([V_a, rng.normal(size=(m, D))])

    M, e = fit_directions(norm, B, V)
    S_hat = X @ B.T @ M
    nu = norm.of_rows(MemoryEngine(X, bias=False))
    Q = weight[:, None] * Y + (1 - weight)[:, None] * softmax(with_reference(X @ W_a.T), axis=1)
    move = half_spread(norm.of_directions(W - W_a))
    lower, upper = influence_bounds(with_reference(S_hat), Q, nu, weight, np.append(0.0, e), move)

    P = softmax(with_reference(X @ W.T), axis=1)
    truth = influence_matrix(with_reference(X @ V.T), P, Y, weight)
    room = 1e-9 * (np.abs(truth) + np.abs(X @ V.T).max() + np.abs(X @ B.T @ M).max())
    assert (truth >= lower - room).all()
    assert (truth <= upper + room).all()

    best = truth.min(axis=1)
    for i in range(n):  # the compiled row, against the plain formula
        low, high = kernels.bound_row(S_hat[i], Q[i, 1:], nu[i], 1 - gamma, e, move, 1e-9)
        assert low == pytest.approx(lower[i].min(), rel=1e-9, abs=1e-9 * (1 + abs(lower[i]).max()))
        assert high == pytest.approx(upper[i].min(), rel=1e-9, abs=1e-9 * (1 + abs(upper[i]).max()))
        assert low - room[i].max() <= best[i] <= high + room[i].max()


def test_the_bounds_are_tight_where_they_should_be(rng: np.random.Generator) -> None:
    """With nothing moved they collapse; with one sample moved along its own direction they are attained."""
    S, Q = with_reference(rng.normal(size=(6, 2))), rng.dirichlet(np.ones(3), 6)
    lower, upper = influence_bounds(S, Q, np.ones(6), np.full(6, 0.8), np.zeros(3), 0.0)
    np.testing.assert_allclose(lower, upper, atol=1e-8)
    x = rng.normal(size=(1, 4))
    norm = AdaptedNorm(np.eye(4), np.ones(4), 1.0)
    dV = 0.1 * x  # the worst case for two classes
    _, upper = influence_bounds(
        np.zeros((1, 2)), np.array([[0.7, 0.3]]), norm.of_rows(MemoryEngine(x, bias=False)), np.ones(1),
        np.append(0.0, norm.of_directions(dV)), 0.0,
    )  # fmt: skip
    assert upper[0, 1] == pytest.approx(0.7 * (x @ dV.T)[0, 0], rel=1e-4)


@given(seed=st.integers(0, 2**32 - 1), C=st.integers(2, 8), scale=st.floats(-3, 3))
def test_softmax_moves_by_half_the_spread_at_most(seed: int, C: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    A, a = rng.normal(size=(2, C)) * 10.0**scale
    moved = np.abs(softmax(A + a) - softmax(A)).sum()
    assert moved <= 0.5 * (a.max() - a.min()) + 1e-12


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
    """Its Hessians are frozen at w0, so it is no guarantee; near w0 it must hold all the same."""
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
        lower, upper = Theorem1(1.02 * norms, delta_terms).bounds(estimate, Y, weight, e1, e2)
        truth = influence_matrix(X @ V, P, Y, weight)
        assert (lower <= truth).all()
        assert (truth <= upper).all()


def test_the_adapted_norm_of_a_factor(rng: np.random.Generator) -> None:
    E = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    g, engine = np.array([0.1, 0.2, 0.3, 1.0, 2.0, 9.0]), MemoryEngine(np.zeros((1, 6)), bias=False)
    factor = FrozenCurvature(E.astype(np.float32), g, None, np.ones((2, 1)), np.ones(1), 0.1, engine)
    norm = adapt_norm(factor, 6, rank=2)
    assert norm.g.tolist() == [2.0, 9.0]
    assert norm.rest == pytest.approx((0.1 + 0.2 + 0.3 + 1.0) / 4)
    np.testing.assert_allclose(norm.E.T @ norm.E, np.eye(2), atol=1e-12)
    whole = adapt_norm(factor, 6, rank=6)
    np.testing.assert_allclose(
        whole.of_rows(MemoryEngine(np.ascontiguousarray(whole.E.T), bias=False)), 1 / np.sqrt(factor.g), rtol=1e-2
    )
