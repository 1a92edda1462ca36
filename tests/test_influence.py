"""Formula (A) against relabel-and-refit, and the ranking."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import spearmanr

from labelchef.base.errors import ConvergenceWarning
from labelchef.chef.constructors import NewtonConstructor
from labelchef.chef.selectors import InflSelector, SelectionContext
from labelchef.loop.judging import Split
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.influence import influence_matrix
from labelchef.model.order import smallest
from labelchef.model.solvers import solve_spd
from tests.oracles import Problem, make_problem


def influence_of(problem: Problem) -> "tuple[np.ndarray, np.ndarray]":
    objective = problem.objective()
    found = NewtonConstructor(tol=1e-8).initialise(objective, problem.losses)
    b = problem.val_gradient(found.point.W)
    solved = solve_spd(objective, found.point, b, found.keeper, tol=1e-10, max_iterations=500)
    P = softmax(problem.X @ found.point.W, axis=1)
    return influence_matrix(with_reference(solved.linear.S), P, problem.Y, problem.weight), found.point.W


@pytest.mark.slow
@pytest.mark.parametrize("C", [2, 5])
@pytest.mark.parametrize("gamma", [0.2, 0.8, 1.0])
def test_influence_against_refitting(C: int, gamma: float) -> None:
    problem = make_problem(np.random.default_rng([C, int(10 * gamma)]), n=240, d=5, C=C, gamma=gamma, l2=0.02, n_val=80)
    predicted, W = influence_of(problem)
    before = problem.val_loss(W)
    actual = np.empty_like(predicted)
    for i in range(len(problem.X)):
        y, r = problem.Y[i].copy(), problem.weight[i]
        for c in range(C):
            problem.Y[i], problem.weight[i] = np.eye(C)[c], 1.0
            actual[i, c] = len(problem.X) * (problem.val_loss(problem.optimum(W)) - before)
        problem.Y[i], problem.weight[i] = y, r
    rank = spearmanr(predicted.ravel(), actual.ravel()).statistic
    assert rank >= 0.99
    slope = float(np.vdot(predicted, actual) / np.vdot(predicted, predicted))
    assert slope == pytest.approx(1.0, abs=0.1)  # the size is right too, not the order alone


def test_influence_against_a_loop_over_gradients(rng: np.random.Generator) -> None:
    """Eq. (6) term by term: −g_valᵀ H⁻¹ [∇_y∇_w ℓ · δ + (1 − γ) ∇_w ℓ] with δ = e_c − y."""
    problem = make_problem(rng, n=25, d=3, C=4, gamma=0.7, l2=0.03)
    predicted, W = influence_of(problem)
    v = np.linalg.solve(problem.hessian(W), problem.val_gradient(W).ravel()).reshape(W.shape)
    P = softmax(problem.X @ W, axis=1)
    for i, (x, y, p, r) in enumerate(zip(problem.X, problem.Y, P, problem.weight, strict=True)):
        for c in range(4):
            # −∇_w log p_j = x ⊗ (p − e_j); the class-wise gradients of paper eq. (9)
            class_wise = [np.outer(x, p - np.eye(4)[j]) for j in range(4)]
            delta = np.eye(4)[c] - y
            bracket = sum(delta[j] * class_wise[j] for j in range(4)) + (1 - r) * np.outer(x, p - y)
            assert predicted[i, c] == pytest.approx(-np.vdot(v, bracket), rel=1e-6, abs=1e-9)


def context(problem: Problem, eligible: "np.ndarray | None" = None) -> SelectionContext:
    objective = problem.objective()
    found = NewtonConstructor(tol=1e-8).initialise(objective, problem.losses)
    split = Split(
        np.ascontiguousarray(problem.X_val[:, :-1]), problem.Y_val.argmax(axis=1), problem.shape[1], bias=True
    )
    everyone = np.ones(len(problem.X), dtype=bool) if eligible is None else eligible
    clean = np.zeros(len(problem.X), dtype=bool)
    chance = np.random.default_rng(0)
    return SelectionContext(
        objective,
        found.point,
        split.at(found.point.W),
        split.at,
        split.gradient_there,
        everyone,
        found.keeper,
        chance,
        clean,
        split.examples,
    )


def test_selection_is_the_top_of_the_full_matrix(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=300, C=4)
    eligible = rng.random(300) < 0.7
    predicted, _ = influence_of(problem)
    batch = InflSelector(tol=1e-9).select(context(problem, eligible), 20)
    scores = np.where(eligible, predicted.min(axis=1), np.inf)
    np.testing.assert_array_equal(batch.indices, np.argsort(scores, kind="stable")[:20])
    np.testing.assert_array_equal(batch.suggested, predicted.argmin(axis=1)[batch.indices])
    np.testing.assert_allclose(batch.influence, scores[batch.indices], rtol=1e-6)
    diagnostics = batch.diagnostics
    assert diagnostics.converged
    assert diagnostics.residual <= 1e-9
    assert diagnostics.sweeps == diagnostics.iterations > 0
    assert diagnostics.seconds > 0


def test_permuting_the_samples_permutes_the_selection(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=200, C=3)
    order = rng.permutation(200)
    other = Problem(problem.X[order], problem.Y[order], problem.weight, problem.l2, problem.X_val, problem.Y_val)
    one = InflSelector(tol=1e-9).select(context(problem), 15)
    two = InflSelector(tol=1e-9).select(context(other), 15)
    np.testing.assert_array_equal(one.indices, order[two.indices])


def test_ties_go_to_the_lower_index(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=40, C=3)
    twice = Problem(
        np.vstack([problem.X] * 3), np.vstack([problem.Y] * 3), np.tile(problem.weight, 3), problem.l2,
        problem.X_val, problem.Y_val,
    )  # fmt: skip
    batch = InflSelector().select(context(twice), 6)
    assert len(set(batch.influence[:3])) == 1
    first = batch.indices[0]
    np.testing.assert_array_equal(batch.indices[:3], [first, first + 40, first + 80])


def test_an_unconverged_solve_warns(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=100, C=4, l2=1e-4)
    with pytest.warns(ConvergenceWarning, match="relative residual"):
        batch = InflSelector(tol=1e-12, max_iterations=1).select(context(problem), 5)
    assert not batch.diagnostics.converged


@given(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, np.inf]), max_size=30), st.integers(1, 35))
def test_smallest_is_a_stable_sort(values: list[float], count: int) -> None:
    scores = np.array(values)
    expected = [int(i) for i in np.argsort(scores, kind="stable") if np.isfinite(scores[i])][:count]
    assert smallest(scores, count).tolist() == expected


@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-100, 100))
def test_influence_ignores_a_constant_added_to_a_row_of_S(seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    S, P, Y = rng.normal(size=(8, 3)), rng.dirichlet(np.ones(3), 8), rng.dirichlet(np.ones(3), 8)
    gamma = rng.uniform(0, 1, 8)
    np.testing.assert_allclose(
        influence_matrix(S + shift, P, Y, gamma),
        influence_matrix(S, P, Y, gamma),
        atol=1e-12 * (1 + abs(shift)),
    )


def test_a_validation_split_keeps_the_point_of_its_model_only(rng: np.random.Generator) -> None:
    split = Split(rng.normal(size=(20, 3)), rng.integers(0, 2, 20), 2, bias=True)
    W = np.zeros((4, 2))
    kept = split.settled(W)
    assert kept.value == pytest.approx(np.log(2))
    split.at(np.ones((4, 2)))
    assert split.settled(W) is kept
    assert split.at(W) is not kept
    assert split.settled(W.copy()) is not kept


def test_engine_contract_is_all_the_mathematics_sees() -> None:
    engine = MemoryEngine(np.zeros((3, 1)), bias=False)
    out = engine.sweep(RowLabels(np.full((3, 2), 0.5), np.ones(3)), W=np.zeros((1, 1)))
    assert out.gradient is None
    assert out.hessian_product is None
    assert out.products is None
