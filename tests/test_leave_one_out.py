"""Leave-one-out logits in closed form against models that are fitted again without the row."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from labelchef.base.arrays import Ints
from labelchef.chef.constructors import Construction
from labelchef.loop import judging
from labelchef.model import curvature
from labelchef.model.contrasts import with_reference
from labelchef.model.curvature import CurvatureKeeper, freeze
from labelchef.model.engines import Engine, MemoryEngine, RowLabels
from labelchef.model.leave_one_out import dense, kronecker, leave_one_out_logits
from labelchef.model.objective import Objective, Point
from tests.oracles import Array, Problem, make_problem

SIZE = 60


def trusted_problem(rng: np.random.Generator, C: int, *, weak: int = 0, d: int = 8, l2: float = 0.01) -> Problem:
    """Clean rows that train with weight one, after some weak rows."""
    problem = make_problem(rng, n=weak + SIZE, d=d, C=C, l2=l2, gamma=0.3, spread=0.6)
    problem.Y[weak:] = np.eye(C)[problem.Y[weak:].argmax(axis=1)]
    problem.weight[weak:] = 1.0
    return problem


def refitted(problem: Problem, W: Array, rows: Ints) -> Array:
    """Logits of every row under the optimum without it, against class 0."""
    found = []
    for j in rows:
        weight = problem.weight.copy()
        weight[j] = 0.0
        found.append(problem.X[j] @ replace(problem, weight=weight).optimum(W))
    A = np.array(found)
    return np.asarray(A - A[:, :1])


def at_optimum(problem: Problem) -> tuple[Objective, Point]:
    objective = problem.objective()
    return objective, objective.at(problem.optimum())


def error(found: Array, expected: Array, before: Array) -> float:
    """As a share of what leaving out changes."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected - before))


@pytest.mark.parametrize(("weak", "near"), [(0, 0.04), (200, 0.015)])
def test_two_classes_equal_refits(rng: np.random.Generator, weak: int, near: float) -> None:
    """What is left is of second order: a fiftieth of the change where a tenth of all rows decide."""
    problem = trusted_problem(rng, 2, weak=weak, l2=0.1)
    objective, point = at_optimum(problem)
    rows = np.arange(weak, weak + SIZE)
    expected, before = refitted(problem, point.W, rows), with_reference(point.logits[rows])
    by_factor = leave_one_out_logits(objective, point, rows)
    assert float(np.median(np.abs(by_factor - expected)[:, 1])) < 2e-3
    assert error(by_factor, expected, before) < near
    np.testing.assert_array_equal(by_factor.argmax(axis=1), expected.argmax(axis=1))
    assert (by_factor.argmax(axis=1) != before.argmax(axis=1)).any()
    exactly = dense(objective, point, rows)
    assert exactly is not None
    np.testing.assert_allclose(by_factor, exactly, atol=1e-5)  # the factor's basis is float32


@pytest.mark.parametrize(
    ("C", "weak", "l2", "near", "roughly"),
    [(3, 0, 0.1, 0.06, 0.08), (3, 200, 0.01, 0.02, 0.09), (6, 0, 0.1, 0.03, 0.1), (6, 200, 0.01, 0.03, 0.14)],
)
def test_more_classes_are_near_refits(
    rng: np.random.Generator, C: int, weak: int, l2: float, near: float, roughly: float
) -> None:
    problem = trusted_problem(rng, C, weak=weak, l2=l2)
    objective, point = at_optimum(problem)
    rows = np.arange(weak, weak + SIZE)
    expected, before = refitted(problem, point.W, rows), with_reference(point.logits[rows])
    exactly = leave_one_out_logits(objective, point, rows)
    by_factor = kronecker(objective, point, rows, freeze(objective, point.logits))
    assert error(exactly, expected, before) < near
    assert error(by_factor, expected, before) < roughly
    np.testing.assert_array_equal(exactly.argmax(axis=1), expected.argmax(axis=1))
    assert np.count_nonzero(by_factor.argmax(axis=1) != expected.argmax(axis=1)) <= 2
    true = problem.Y[rows].argmax(axis=1)
    for found in (exactly, by_factor):
        own, refit = (A[np.arange(SIZE), true] - A.mean(axis=1) for A in (found, expected))
        assert spearmanr(own, refit).statistic > 0.995


def test_the_error_is_of_second_order(rng: np.random.Generator) -> None:
    """Twice as many rows of the same kind: each changes half as much, and the error is a quarter."""
    small = trusted_problem(rng, 3, weak=100, l2=0.05)
    sizes = []
    for times in (1, 2, 4):
        X, Y, weight = (np.concatenate([part] * times) for part in (small.X, small.Y, small.weight))
        problem = replace(small, X=X, Y=Y, weight=weight)
        objective, point = at_optimum(problem)
        rows = np.arange(100, 100 + SIZE)
        found = leave_one_out_logits(objective, point, rows)
        sizes.append(float(np.linalg.norm(found - refitted(problem, point.W, rows))))
    assert sizes[1] < sizes[0] / 3.5
    assert sizes[2] < sizes[1] / 3.5


@pytest.mark.parametrize("C", [2, 3])
def test_all_engines_agree(rng: np.random.Generator, make_engine: Callable[..., Engine], C: int) -> None:
    problem = trusted_problem(rng, C, weak=50)
    W, rows = problem.optimum(), np.arange(40, 80)
    found = []
    for made in (MemoryEngine, make_engine):
        engine: Any = made(np.ascontiguousarray(problem.X[:, :-1]), bias=True)
        objective = Objective(engine, RowLabels(problem.Y, problem.weight), problem.l2)
        point = objective.at(W)
        exactly = dense(objective, point, rows)
        assert exactly is not None
        found.append((exactly, kronecker(objective, point, rows, freeze(objective, point.logits))))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-9)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-5)


def test_a_row_without_weight_keeps_its_logits(rng: np.random.Generator) -> None:
    problem = trusted_problem(rng, 3)
    problem.weight[5] = 0.0
    objective, point = at_optimum(problem)
    for found in (
        dense(objective, point, np.array([5])),
        kronecker(objective, point, np.array([5]), freeze(objective, point.logits)),
    ):
        assert found is not None
        np.testing.assert_allclose(found, with_reference(point.logits[5:6]), atol=1e-12)


@pytest.mark.parametrize(("sketched_rows", "near"), [(10_000, 0.02), (150, 0.35)])
def test_wide_problems_use_the_sketched_factor(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, sketched_rows: int, near: float
) -> None:
    """From all rows it is as exact as a whole factor; from some of them, the outside is an estimate."""
    problem = trusted_problem(rng, 2, weak=200, d=40, l2=0.03)
    monkeypatch.setattr(curvature, "LARGEST_FACTOR", 10)
    monkeypatch.setattr(curvature, "SKETCH_ROWS", sketched_rows)
    objective, point = at_optimum(problem)
    rows = np.arange(200, 200 + SIZE)
    expected, before = refitted(problem, point.W, rows), with_reference(point.logits[rows])
    factor = freeze(objective, point.logits)
    assert factor.rest is not None
    assert error(kronecker(objective, point, rows, factor), expected, before) < near


def test_a_tiny_l2_on_float32_rows_falls_back_to_the_factor(rng: np.random.Generator) -> None:
    X = np.repeat(rng.normal(size=(40, 6)), 2, axis=1).astype(np.float32)  # every column twice: singular but for l2
    Y = np.eye(3)[rng.integers(0, 3, 40)]
    objective = Objective(MemoryEngine(1e3 * X, bias=True), RowLabels(Y, np.ones(40)), 1e-12)
    point, rows = objective.at(np.zeros(objective.shape)), np.arange(40)
    assert dense(objective, point, rows) is None
    assert np.isfinite(leave_one_out_logits(objective, point, rows)).all()


def test_a_factor_that_never_saw_the_row_has_nothing_of_it_to_lose(rng: np.random.Generator) -> None:
    """Frozen while the row had no weight, it is the Hessian without the row: nothing is taken from it."""
    problem = trusted_problem(rng, 2, l2=0.01)
    objective, point = at_optimum(problem)
    problem.weight[0], was = 0.0, 1.0
    stale = freeze(problem.objective(), point.logits)
    problem.weight[0] = was
    fresh = freeze(objective, point.logits)
    row = np.array([0])
    assert np.allclose(kronecker(objective, point, row, stale), kronecker(objective, point, row, fresh))


def test_trusted_rows_that_were_weak_are_judged_by_the_curvature_of_now(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without trusted samples the first answers become them: the factor of the solver is older than their weights."""
    problem = trusted_problem(rng, 2, weak=200, d=40, l2=0.003)
    rows = np.arange(200, 200 + SIZE)
    before = replace(problem, weight=np.full(len(problem.weight), 0.001))
    keeper = CurvatureKeeper(freeze(before.objective(), before.objective().at(before.optimum()).logits))
    objective, point = at_optimum(problem)
    monkeypatch.setattr(judging, "_QUICK", 0.0)
    judges = judging.CrossFitted(problem.X[rows], problem.Y[rows].argmax(axis=1), 2, rows=rows, bias=False)
    found = judges.held_out(objective, Construction(point, keeper))
    assert error(found, refitted(problem, point.W, rows), with_reference(point.logits[rows])) < 0.15
