"""The optimum against other optimisers; H⁻¹g against dense algebra; hard inputs."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from labelchef.base.errors import ConvergenceWarning
from labelchef.base.records import LabelChange
from labelchef.chef.constructors import Construction, NewtonConstructor
from labelchef.model import curvature
from labelchef.model.curvature import CurvatureKeeper, freeze
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective
from labelchef.model.solvers import Companion, minimise, solve_spd
from tests.oracles import Problem, make_problem


def fit(problem: Problem, tol: float = 1e-7) -> Construction:
    return NewtonConstructor(tol=tol).initialise(problem.objective(), problem.losses)


@pytest.mark.parametrize("C", [2, 3, 6])
@pytest.mark.parametrize("l2", [1.0, 1e-2, 1e-4])
def test_optimum_against_trust_exact(rng: np.random.Generator, C: int, l2: float) -> None:
    problem = make_problem(rng, C=C, l2=l2, n=150, d=6, cleaned=0.3)
    found = fit(problem)
    np.testing.assert_allclose(found.point.W, problem.optimum_by_scipy(), atol=1e-6)
    assert found.diagnostics.converged
    assert found.diagnostics.gradient_norm <= found.diagnostics.tolerance


@pytest.mark.parametrize("C", [2, 4])
def test_optimum_against_scikit_learn_on_hard_labels(rng: np.random.Generator, C: int) -> None:
    problem = make_problem(rng, C=C, l2=0.02, n=300, d=5)
    y = problem.Y.argmax(axis=1)
    problem.Y = np.eye(C)[y]
    # scikit-learn minimises Σ r ℓ + ‖W‖²/(2·C_reg); the bias is a column there too, so that it is regularised.
    model = LogisticRegression(C=1 / (0.02 * 300), fit_intercept=False, tol=1e-10, max_iter=5000, solver="newton-cg")
    model.fit(problem.X, y, sample_weight=problem.weight)
    W = fit(problem).point.W
    if C == 2:  # one column there: the difference of ours, penalised as both columns are
        model.set_params(C=2 / (0.02 * 300)).fit(problem.X, y, sample_weight=problem.weight)
        np.testing.assert_allclose(W[:, 1] - W[:, 0], model.coef_[0], atol=1e-6)
    else:
        np.testing.assert_allclose(W, model.coef_.T, atol=1e-6)


@given(
    seed=st.integers(0, 2**32 - 1),
    C=st.integers(2, 5),
    n=st.integers(1, 80),
    d=st.integers(1, 8),
    log_l2=st.integers(-6, 1),
    gamma=st.floats(0, 1),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_the_error_bound_holds(seed: int, C: int, n: int, d: int, log_l2: int, gamma: float, scale: float) -> None:
    problem = make_problem(np.random.default_rng(seed), n=n, d=d, C=C, gamma=gamma, l2=10.0**log_l2, cleaned=0.2)
    problem.X[:, :-1] *= scale
    found = fit(problem, tol=1e-6)
    W, diagnostics = found.point.W, found.diagnostics
    assert diagnostics.converged
    assert np.linalg.norm(problem.gradient(W)) <= diagnostics.tolerance * 1.01 + 1e-13 * scale
    if scale <= 1:
        bound = max(1e-6, 1e-12 / problem.l2) * (1 + np.linalg.norm(W))
        assert np.linalg.norm(W - problem.optimum(W)) <= bound


HARD = [
    "separable",
    "one class",
    "ill-conditioned",
    "more features than samples",
    "one sample",
    "no feature varies",
]


@pytest.mark.parametrize("C", [2, 5])
@pytest.mark.parametrize("what", HARD)
def test_hard_inputs(rng: np.random.Generator, what: str, C: int) -> None:
    problem = make_problem(rng, n=120, d=8, C=C, l2=1e-4)
    match what:
        case "separable":
            problem.Y = np.eye(C)[(problem.X @ rng.normal(size=problem.shape)).argmax(axis=1)]
            problem.l2 = 1e-8
        case "one class":
            problem.Y = np.eye(C)[np.zeros(120, dtype=int)]
        case "ill-conditioned":
            problem.X[:, :-1] *= np.logspace(-4, 4, 8)
        case "more features than samples":
            problem = make_problem(rng, n=15, d=100, C=C, l2=1e-3)
        case "one sample":
            problem = make_problem(rng, n=1, d=3, C=C)
        case "no feature varies":
            problem.X[:] = 1.0
    found = fit(problem, tol=1e-6)
    assert found.diagnostics.converged
    assert np.isfinite(found.point.W).all()
    assert np.linalg.norm(problem.gradient(found.point.W)) <= 1.01 * found.diagnostics.tolerance


def test_features_wider_than_a_dense_factor(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "LARGEST_FACTOR", 10)
    monkeypatch.setattr(curvature, "SKETCH_ROWS", 12)
    problem = make_problem(rng, n=200, d=30, C=3, l2=1e-2)
    assert fit(problem).diagnostics.converged
    np.testing.assert_allclose(fit(problem).point.W, problem.optimum(), atol=1e-6)
    few = make_problem(rng, n=9, d=30, C=3, l2=1e-2)  # all rows fit into the sketch
    np.testing.assert_allclose(fit(few).point.W, few.optimum(), atol=1e-6)


def test_a_stop_before_convergence_is_reported(rng: np.random.Generator) -> None:
    problem = make_problem(rng, C=4, l2=1e-3)
    with pytest.warns(ConvergenceWarning, match="stopped at"):
        found = NewtonConstructor(max_sweeps=2).initialise(problem.objective(), problem.losses)
    assert not found.diagnostics.converged
    assert found.diagnostics.gradient_norm > found.diagnostics.tolerance


@pytest.mark.parametrize("C", [2, 3, 5])
def test_linear_solve_against_dense_algebra(rng: np.random.Generator, C: int) -> None:
    problem = make_problem(rng, C=C, l2=1e-3, n=100, d=6)
    objective = problem.objective()
    found = fit(problem)
    b = problem.val_gradient(found.point.W)
    solved = solve_spd(objective, found.point, b, found.keeper, tol=1e-10, max_iterations=200)
    dense = np.linalg.solve(problem.hessian(found.point.W), b.ravel()).reshape(b.shape)
    np.testing.assert_allclose(solved.linear.V, dense, rtol=1e-7, atol=1e-8 * np.abs(dense).max())
    XV = problem.X @ dense
    np.testing.assert_allclose(solved.linear.S, XV[:, 1:] - XV[:, :1], atol=1e-7 * np.abs(XV).max())
    assert solved.converged
    assert solved.residual <= 1e-10


def test_two_classes_have_an_exact_factor(rng: np.random.Generator) -> None:
    problem = make_problem(rng, C=2, n=200, d=6, l2=0.01)
    found = fit(problem)
    assert found.keeper.factor.exact
    R = rng.normal(size=problem.shape)
    dense = np.linalg.solve(problem.hessian(found.point.W), R.ravel()).reshape(R.shape)
    np.testing.assert_allclose(found.keeper.factor.inverse(R), dense, rtol=1e-5)


def test_linear_solve_of_nothing(rng: np.random.Generator) -> None:
    problem = make_problem(rng)
    found = fit(problem)
    solved = solve_spd(
        problem.objective(), found.point, np.zeros(problem.shape), found.keeper, tol=1e-9, max_iterations=5
    )
    assert solved.converged
    assert not solved.linear.V.any()


@pytest.mark.parametrize("C", [2, 4])
def test_following_a_change_equals_starting_anew(rng: np.random.Generator, C: int) -> None:
    problem = make_problem(rng, n=400, d=6, C=C, l2=0.01)
    table = LabelTable(problem.Y, 0.8)
    engine = MemoryEngine(np.ascontiguousarray(problem.X[:, :-1]), bias=True)
    objective, newton = Objective(engine, table.rows, problem.l2), NewtonConstructor()
    first = newton.initialise(objective, problem.losses)
    items = np.array([1, 5, 77, 300])
    change = table.assign(items, np.array([0, 1, 1, 0]))
    sweeps = engine.sweeps
    after = newton.construct(objective, first, change, problem.losses)
    assert engine.sweeps - sweeps < 25
    problem.Y, problem.weight = table.Y, table.weight
    np.testing.assert_allclose(after.point.W, problem.optimum(), atol=1e-6)
    back = newton.construct(objective, after, table.assign(items, np.full(4, -1)), problem.losses)
    np.testing.assert_allclose(back.point.W, first.point.W, atol=2e-6)


@pytest.mark.parametrize("C", [2, 3, 10])
@pytest.mark.parametrize("scale", [1.0, 0.3, 0.03])
def test_an_estimated_distance_is_near_the_true_one(rng: np.random.Generator, C: int, scale: float) -> None:
    """All labels change, and all weights by `scale`: with 0.03 the factor is far too large for the Hessian."""
    tol = 1e-3
    problem = make_problem(rng, n=600, d=20, C=C, l2=2e-3, gamma=1.0)
    objective = problem.objective(np.float32)
    problem.X = problem.X.astype(np.float32).astype(np.float64)
    newton = NewtonConstructor(tol=tol, proven=False)
    last = newton.initialise(objective, problem.losses)
    nothing = np.empty(0, dtype=np.int64)
    change = LabelChange(nothing, problem.Y[:0], problem.weight[:0], problem.Y[:0], problem.weight[:0], everywhere=True)
    sweeps = {}
    for proven in (True, False):
        problem.Y = 0.95 * problem.Y + 0.05 * rng.dirichlet(np.ones(C), 600)
        problem.weight = np.full(600, scale)
        after = NewtonConstructor(tol=tol, proven=proven).construct(
            replace(objective, labels=RowLabels(problem.Y, problem.weight)), copy.deepcopy(last), change, problem.losses
        )
        best = problem.optimum()
        assert after.diagnostics.converged
        assert np.linalg.norm(after.point.W - best) < 2 * tol * np.linalg.norm(best)
        sweeps[proven] = after.diagnostics.sweeps
    assert sweeps[False] < sweeps[True]


def test_rough_sweeps_hold_up_no_estimate(rng: np.random.Generator) -> None:
    """A tiny l2 and features of very different sizes: what float32 leaves of the gradient is not taken for convergence."""
    problem = make_problem(rng, n=400, d=12, C=3, l2=1e-7)
    problem.X[:, :-1] *= np.logspace(-3, 1, 12)
    objective = problem.objective(np.float32)
    problem.X = problem.X.astype(np.float32).astype(np.float64)
    newton = NewtonConstructor(tol=1e-3, proven=False)
    first = newton.initialise(objective, problem.losses)
    changed = replace(objective, labels=RowLabels(0.9 * problem.Y + 0.1 / 3, problem.weight))
    nothing = np.empty(0, dtype=np.int64)
    change = LabelChange(nothing, problem.Y[:0], problem.weight[:0], problem.Y[:0], problem.weight[:0], everywhere=True)
    after = newton.construct(changed, first, change, problem.losses)
    problem.Y = changed.labels.Y
    best = problem.optimum()
    assert after.diagnostics.converged
    assert np.linalg.norm(after.point.W - best) < 0.01 * np.linalg.norm(best)


def test_a_companion_arrives_with_the_model(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=500, d=6, C=2, l2=0.01)
    objective = problem.objective()
    found = fit(problem)
    rhs = problem.val_gradient
    solved = solve_spd(objective, found.point, rhs(found.point.W), found.keeper, tol=1e-10, max_iterations=99)
    start = objective.at(found.point.W + 0.01 * rng.normal(size=problem.shape))
    companion = Companion(solved.linear.V, solved.linear.HV, rhs)
    ended = minimise(objective, start, found.keeper, tol=1e-6, max_sweeps=50, companion=companion)
    assert ended.point.linear is not None
    b = rhs(ended.point.W)
    assert np.linalg.norm(ended.point.linear.HV - b) < 1e-2 * np.linalg.norm(b)
    dense = problem.hessian(ended.point.W) @ ended.point.linear.V.ravel()
    np.testing.assert_allclose(ended.point.linear.HV.ravel(), dense, atol=1e-10)


def test_the_keeper_refreshes_when_waste_has_cost_as_much(rng: np.random.Generator) -> None:
    problem = make_problem(rng, d=5)
    objective = problem.objective()
    keeper = CurvatureKeeper(freeze(objective, objective.at(np.zeros(problem.shape)).logits))
    assert not keeper.due(objective)
    keeper.waste += 4.0
    assert not keeper.due(objective)
    keeper.waste += 0.5
    assert keeper.due(objective)
    before = keeper.factor
    keeper.refresh(objective, objective.at(rng.normal(size=problem.shape)).logits)
    assert not keeper.due(objective)
    assert keeper.factor is not before
    assert not np.allclose(keeper.factor.g, before.g)


def test_all_weights_zero_and_saturated_curvature() -> None:
    labels = RowLabels(np.tile([1.0, 0.0], (5, 1)), np.zeros(5))
    objective = Objective(MemoryEngine(np.ones((5, 2)), bias=True), labels, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = NewtonConstructor().initialise(objective, lambda stack: np.zeros(len(stack)))
    assert not found.point.W.any()


@pytest.mark.parametrize("C", [2, 3])
def test_drifted_rows_are_accounted_for_exactly(rng: np.random.Generator, C: int) -> None:
    problem = make_problem(rng, n=900, d=300, C=C, l2=0.02, spread=0.1)
    table = LabelTable(problem.Y, 0.8)
    engine = MemoryEngine(np.ascontiguousarray(problem.X[:, :-1]), bias=True)
    objective = Objective(engine, table.rows, problem.l2)
    first = NewtonConstructor(tol=1e-9).initialise(objective, problem.losses)
    change = table.assign(np.array([1, 5, 77]), np.array([0, 1, 1]))
    first.keeper.note(objective, first.point.logits, change)
    assert first.keeper.drift is not None
    step = 0.3 * rng.normal(size=problem.shape)
    few = replace(
        problem, X=problem.X[change.indices], Y=table.Y[change.indices], weight=table.weight[change.indices], l2=0.0
    )
    gained = (few.gradient(first.point.W + step) - few.gradient(first.point.W)) * 3 / 900
    few_before = replace(few, weight=change.weight_old)
    expected = gained - (few_before.hessian(first.point.W) @ step.ravel()).reshape(step.shape) * 3 / 900
    np.testing.assert_allclose(first.keeper.drift.surplus(objective, first.point.logits, step), expected, atol=1e-12)
    start = objective.relabelled(first.point, change)
    blind = start.W - first.keeper.solve(start.gradient)
    seen = start.W + first.keeper.foreseen(objective, start.logits, start.gradient, -first.keeper.solve(start.gradient))
    if C == 2:  # the factor is the Hessian itself: what is left is the nonlinearity of all the other rows
        assert objective.at(seen).gradient_norm < 0.3 * objective.at(blind).gradient_norm


def test_only_the_newest_drifted_rows_are_kept(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelchef.model.curvature.DRIFT_ROWS", 4)
    problem = make_problem(rng, n=50, C=2)
    table, objective = LabelTable(problem.Y, 0.8), problem.objective()
    keeper, logits = fit(problem).keeper, objective.at(np.zeros(problem.shape)).logits
    for items in ([1, 2, 3], [2, 9], [3, 4]):
        keeper.note(objective, logits, table.assign(np.array(items), np.zeros(len(items), dtype=np.int64)))
    assert keeper.drift is not None
    assert keeper.drift.indices.tolist() == [2, 3, 9, 4]
    assert (keeper.drift.weight == 0.8).all()
    keeper.refresh(objective, logits)
    assert keeper.drift is None
