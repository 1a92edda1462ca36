"""Derivatives against finite differences and dense algebra."""

import numpy as np
import pytest

from labelchef.base.records import LabelChange
from tests.oracles import central_difference, make_problem


@pytest.mark.parametrize("C", [2, 3, 5])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_gradient_against_central_differences(rng: np.random.Generator, C: int, gamma: float) -> None:
    problem = make_problem(rng, C=C, gamma=gamma, cleaned=0.2)
    objective, W = problem.objective(), rng.normal(size=problem.shape)
    G = objective.at(W).gradient
    for _ in range(5):
        T = rng.normal(size=W.shape)
        numeric = central_difference(lambda M: objective.at(M).value, W, T)
        assert numeric == pytest.approx(float(np.vdot(G, T)), rel=1e-6)


@pytest.mark.parametrize("C", [2, 3, 5])
def test_hessian_product_against_central_differences_and_dense(rng: np.random.Generator, C: int) -> None:
    problem = make_problem(rng, C=C, cleaned=0.2)
    objective, W, T = problem.objective(), rng.normal(size=problem.shape), rng.normal(size=problem.shape)
    product, along = objective.hessian_product(objective.at(W), T)
    numeric = central_difference(lambda M: objective.at(M).gradient, W, T)
    np.testing.assert_allclose(product, numeric, rtol=1e-6, atol=1e-6 * np.abs(product).max())
    np.testing.assert_allclose(product.ravel(), problem.hessian(W) @ T.ravel(), rtol=1e-10)
    XT = problem.X @ T
    np.testing.assert_allclose(along, XT[:, 1:] - XT[:, :1], rtol=1e-12, atol=1e-12)


def test_the_oracle_hessians_agree(rng: np.random.Generator) -> None:
    problem, W = make_problem(rng, C=4), rng.normal(size=(5, 4))
    np.testing.assert_allclose(problem.hessian(W), problem.fast_hessian(W), rtol=1e-12)


def test_a_direction_rides_along(rng: np.random.Generator) -> None:
    problem = make_problem(rng, C=4)
    objective, W, V = problem.objective(), rng.normal(size=problem.shape), rng.normal(size=problem.shape)
    point = objective.at(W, V=V)
    product, along = objective.hessian_product(point, V)
    assert point.linear is not None
    np.testing.assert_allclose(point.linear.HV, product, rtol=1e-12)
    np.testing.assert_allclose(point.linear.S, along, rtol=1e-12, atol=1e-14)


def test_relabelling_needs_no_sweep(rng: np.random.Generator) -> None:
    problem = make_problem(rng, C=3)
    objective, W = problem.objective(), rng.normal(size=problem.shape)
    before = objective.at(W)
    items = np.array([3, 17, 40])
    change = LabelChange(items, problem.Y[items], problem.weight[items], np.eye(3)[[2, 0, 1]], np.ones(3))
    problem.Y[items], problem.weight[items] = change.Y_new, change.weight_new
    sweeps = objective.engine.sweeps
    predicted = objective.relabelled(before, change)
    assert objective.engine.sweeps - sweeps < 0.1
    after = objective.at(W)
    np.testing.assert_allclose(predicted.gradient, after.gradient, rtol=1e-10, atol=1e-12)
    assert predicted.value == pytest.approx(after.value, rel=1e-12)
    undo = LabelChange(items, change.Y_new, change.weight_new, change.Y_old, change.weight_old)
    back = objective.relabelled(predicted, undo)
    np.testing.assert_allclose(back.gradient, before.gradient, rtol=1e-10, atol=1e-12)


def test_slope_and_curvature_along_a_line(rng: np.random.Generator) -> None:
    problem = make_problem(rng, C=3)
    objective, W, T = problem.objective(), rng.normal(size=problem.shape), rng.normal(size=problem.shape)
    point = objective.at(W)
    _, products = objective.hessian_product(point, T)
    slope, bend = objective.along(point, T, products, 0.3)
    ahead = objective.at(W + 0.3 * T)
    assert slope == pytest.approx(float(np.vdot(ahead.gradient, T)), rel=1e-10)
    assert bend == pytest.approx(float(np.vdot(T, objective.hessian_product(ahead, T)[0])), rel=1e-10)


def test_float32_features_are_accumulated_in_float64(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=2000, d=30, C=3)
    problem.X[:, :-1] = problem.X[:, :-1].astype(np.float32)
    W = rng.normal(size=problem.shape)
    np.testing.assert_allclose(problem.objective(np.float32).at(W).gradient, problem.gradient(W), rtol=1e-9, atol=1e-12)
