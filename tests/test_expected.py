"""Expected influence against refits and against scoring everything; the answers it expects against a refit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import spearmanr

from labelchef import LabelCleaner
from labelchef.base.records import Batch
from labelchef.chef.choice import make_selector
from labelchef.chef.selectors import ExpectedInflSelector
from labelchef.loop.judging import Split
from labelchef.loop.session import MOST_ATTEMPTS
from labelchef.model.contrasts import with_reference
from labelchef.model.influence import influence_matrix
from labelchef.model.posterior import expected_answers, step_towards_trusted
from tests.oracles import Array, Problem, cleaner_of, make_problem
from tests.test_increm import problem as drawn
from tests.test_influence import context as context_of
from tests.test_influence import influence_of


def validation_hessian(problem: Problem, W: Array) -> Array:
    """Of the mean validation loss, (D·C, D·C), by a loop."""
    (D, C), m = problem.shape, len(problem.X_val)
    H = np.zeros((D, C, D, C))
    for x, p in zip(problem.X_val, softmax(problem.X_val @ W, axis=1), strict=True):
        H += np.einsum("i,j,ab->iajb", x, x, (np.diag(p) - np.outer(p, p)) / m)
    return H.reshape(D * C, D * C)


def newton_direction(problem: Problem, W: Array) -> Array:
    """V = H⁻¹ g_val, dense."""
    v = np.linalg.solve(problem.hessian(W), problem.val_gradient(W).ravel())
    return np.asarray(v, dtype=np.float64).reshape(problem.shape)


@pytest.mark.parametrize("C", [2, 4])
def test_the_step_is_the_best_along_the_line(C: int) -> None:
    problem = make_problem(np.random.default_rng(C), n=120, d=4, C=C, gamma=0.3, l2=0.02, n_val=40)
    W = problem.optimum()
    g, H, Hv = problem.val_gradient(W).ravel(), problem.hessian(W), validation_hessian(problem, W)
    v = np.asarray(np.linalg.solve(H, g), dtype=np.float64)
    share = 40 / 120
    t = np.linspace(0, share, 20_001)
    quadratic = -t * share * (g @ v) + 0.5 * t**2 * (v @ H @ v + share * v @ Hv @ v)
    split = Split(np.ascontiguousarray(problem.X_val[:, :-1]), problem.Y_val.argmax(axis=1), C, bias=True)
    eta = step_towards_trusted(problem.X_val, split.at(W), v.reshape(problem.shape), 120)
    assert eta == pytest.approx(t[quadratic.argmin()], abs=2e-5)
    assert 0.0 < eta < share


def test_the_answers_are_those_of_a_model_that_learnt_from_the_trusted_samples_too() -> None:
    """To first order in their share; the model itself is much farther away."""
    problem = make_problem(np.random.default_rng(3), n=600, d=4, C=3, gamma=0.8, l2=0.02, n_val=30)
    W = problem.optimum()
    together = Problem(
        np.vstack([problem.X, problem.X_val]),
        np.vstack([problem.Y, problem.Y_val]),
        np.concatenate([problem.weight, np.ones(30)]),
        problem.l2 * 600 / 630,
        problem.X_val,
        problem.Y_val,
    )
    truly = softmax(problem.X @ together.optimum(W), axis=1)
    v = newton_direction(problem, W)
    split = Split(np.ascontiguousarray(problem.X_val[:, :-1]), problem.Y_val.argmax(axis=1), 3, bias=True)
    eta = step_towards_trusted(problem.X_val, split.at(W), v, 600)
    ours, before = expected_answers(problem.X @ W, problem.X @ v, eta), softmax(problem.X @ W, axis=1)
    assert np.abs(ours - truly).mean() < 0.25 * np.abs(before - truly).mean()


@pytest.mark.slow
def test_expected_influence_against_refitting() -> None:
    """Σ_c Q_c times what each answer does to the validation loss, every answer refitted."""
    problem = make_problem(np.random.default_rng(11), n=160, d=4, C=3, gamma=0.4, l2=0.03, n_val=60)
    predicted, W = influence_of(problem)
    batch = ExpectedInflSelector(tol=1e-10, optimism=0.0).select(context_of(problem), 160)
    v = newton_direction(problem, W)
    split = Split(np.ascontiguousarray(problem.X_val[:, :-1]), problem.Y_val.argmax(axis=1), 3, bias=True)
    Q = expected_answers(problem.X @ W, problem.X @ v, step_towards_trusted(problem.X_val, split.at(W), v, 160))
    before, actual = problem.val_loss(W), np.zeros(160)
    for i in range(160):
        y, r = problem.Y[i].copy(), problem.weight[i]
        for c in range(3):
            problem.Y[i], problem.weight[i] = np.eye(3)[c], 1.0
            actual[i] += Q[i, c] * 160 * (problem.val_loss(problem.optimum(W)) - before)
        problem.Y[i], problem.weight[i] = y, r
    np.testing.assert_allclose(batch.influence, (Q * predicted).sum(axis=1)[batch.indices], rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(batch.suggested, Q[batch.indices].argmax(axis=1))
    assert spearmanr(batch.influence, actual[batch.indices]).statistic > 0.98


def everything(cleaner: LabelCleaner, size: int, beta: float) -> Batch:
    """The batch by scoring every sample with plain NumPy, along the V of the last query."""
    session = cleaner._session
    context = session.context(next(session.labels.tiers(MOST_ATTEMPTS)))
    linear = session._carried
    assert linear is not None
    A, S = with_reference(context.point.logits), with_reference(linear.S)
    eta = step_towards_trusted(context.trusted.X, context.validation, linear.V, len(A))
    Q, labels = expected_answers(A, S, eta), context.objective.labels
    scores = influence_matrix(S, softmax(A, axis=1), labels.Y, labels.weight)
    influence = (Q * scores).sum(axis=1)
    worth = influence - beta * np.sqrt((Q * (scores - influence[:, None]) ** 2).sum(axis=1))
    order = np.argsort(np.where(context.eligible, worth, np.inf), kind="stable")[: min(size, context.eligible.sum())]
    return Batch(order, Q[order].argmax(axis=1), influence[order])


@given(
    st.integers(0, 10_000),
    st.integers(2, 4),
    st.sampled_from([0.05, 0.8, 1.0]),
    st.integers(1, 30),
    st.sampled_from([0.0, 1.0, 2.5]),
)
@settings(max_examples=25, deadline=None)
def test_the_choice_is_that_of_scoring_everything_plainly(seed: int, C: int, gamma: float, b: int, beta: float) -> None:
    data = drawn(seed, 120, C)
    selector = ExpectedInflSelector(optimism=beta)
    cleaner = cleaner_of(trusted="steer", selector=selector, tol=1e-3, gamma=gamma, l2=0.02, batch_size=b)
    cleaner.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"], classes=list(range(C)))
    for _ in range(3):
        batch = cleaner.query()
        expected = everything(cleaner, b, beta)
        np.testing.assert_array_equal(batch.indices, expected.indices)
        np.testing.assert_array_equal(batch.suggested, expected.suggested)
        np.testing.assert_allclose(batch.influence, expected.influence, rtol=1e-9, atol=1e-12)
        cleaner.update(batch.indices, data["y"][batch.indices])


def test_look_ahead_assumes_the_answers_to_be_expected() -> None:
    """The first pick is the plain one; the later ones take the first's expected answer into account."""
    data = drawn(6, 400, 3)
    plain = cleaner_of(trusted="steer", selector="expected_infl", look_ahead=False, gamma=0.3, l2=0.02)
    ahead = cleaner_of(trusted="steer", selector="expected_infl", look_ahead=True, gamma=0.3, l2=0.02)
    for cleaner in (plain, ahead):
        cleaner.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
    one, two = plain.query(10), ahead.query(10)
    assert one.indices[0] == two.indices[0]
    assert one.influence[0] == pytest.approx(two.influence[0])
    assert not np.array_equal(one.indices, two.indices)
    assert make_selector("expected_infl", look_ahead=True).name == "expected_infl+look_ahead"


def test_look_ahead_follows_a_refit_under_the_expected_answer() -> None:
    """Its second pick's worth is what refitting with the first pick's expected answer as a soft label gives."""
    data = drawn(6, 400, 3)
    ahead = cleaner_of(trusted="steer", selector="expected_infl", look_ahead=True, gamma=0.3, l2=0.02, tol=1e-8)
    ahead.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
    batch = ahead.query(2)
    session, (first, second) = ahead._session, batch.indices.tolist()
    context = session.context(next(session.labels.tiers(MOST_ATTEMPTS)))
    linear = session._carried
    assert linear is not None
    A, S = with_reference(context.point.logits), with_reference(linear.S)
    eta = step_towards_trusted(context.trusted.X, context.validation, linear.V, 400)
    Z = np.hstack([data["X"], np.ones((400, 1))])
    moved = Problem(
        Z,
        context.objective.labels.Y.copy(),
        context.objective.labels.weight.copy(),
        0.02,
        np.hstack([data["Xv"], np.ones((len(data["Xv"]), 1))]),
        np.eye(3)[data["yv"]],
    )
    moved.Y[first], moved.weight[first] = expected_answers(A, S, eta)[first], 1.0
    W = moved.optimum(context.point.W)
    v = newton_direction(moved, W)
    T, p = (Z @ v)[second : second + 1], softmax(Z[second : second + 1] @ W, axis=1)
    worth = influence_matrix(T, p, moved.Y[second : second + 1], moved.weight[second : second + 1])
    expected = float((expected_answers(Z[second : second + 1] @ W, T, eta) * worth).sum())
    assert batch.influence[1] == pytest.approx(expected, rel=0.1)


def test_nothing_to_learn_from_trusted_samples_leaves_the_model_as_it_is() -> None:
    """At a stationary point of the validation loss V is zero, and so is the step."""
    problem = make_problem(np.random.default_rng(8), n=50, d=3, C=2, gamma=1.0, l2=0.02, n_val=20)
    split = Split(np.ascontiguousarray(problem.X_val[:, :-1]), problem.Y_val.argmax(axis=1), 2, bias=True)
    W = problem.optimum()
    assert step_towards_trusted(problem.X_val, split.at(W), np.zeros(problem.shape), 50) == 0.0
