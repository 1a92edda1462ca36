"""INFL-D, INFL-Y, DUTI and TARS against refits, finite differences, brute force and plain loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from scipy.stats import spearmanr

from labelchef import LabelCleaner
from labelchef.base.errors import ConvergenceWarning, InvalidInputError
from labelchef.base.records import UNRESOLVED, Batch, ConstructionDiagnostics, Decisions, Metrics, RoundRecord, Votes
from labelchef.chef.baselines import BASELINES, DutiSelector, InflDSelector, InflYSelector, TarsSelector
from labelchef.chef.baselines.duti import Bilevel, bilevel, descend, onto_simplex
from labelchef.chef.baselines.influence import label_slopes
from labelchef.chef.baselines.tars import annotator_confusion, majority_shares, posterior_of_truth
from labelchef.chef.constructors import NewtonConstructor
from labelchef.chef.selectors import SelectionContext
from labelchef.loop.annotators import SimulatedAnnotators
from labelchef.loop.judging import Split
from labelchef.model.solvers import solve_spd
from tests.oracles import Array, Problem, make_problem

NAMES = ("infl_d", "infl_y", "duti", "tars")


def context(
    problem: Problem, *, cleaned: "np.ndarray | None" = None, rounds: tuple[RoundRecord, ...] = ()
) -> SelectionContext:
    objective = problem.objective()
    found = NewtonConstructor(tol=1e-8).initialise(objective, problem.losses)
    split = Split(
        np.ascontiguousarray(problem.X_val[:, :-1]), problem.Y_val.argmax(axis=1), problem.shape[1], bias=True
    )
    clean = np.zeros(len(problem.X), dtype=bool) if cleaned is None else cleaned
    chance = np.random.default_rng(0)
    return SelectionContext(
        objective,
        found.point,
        split.at(found.point.W),
        split.at,
        split.gradient_there,
        ~clean,
        found.keeper,
        chance,
        clean,
        split.examples,
        rounds,
    )


def hardened(problem: Problem) -> Problem:
    return replace(problem, Y=np.eye(problem.shape[1])[problem.Y.argmax(axis=1)])


def influence_in_order(batch: Batch) -> Array:
    """Per sample, of a batch that holds them all."""
    found = np.empty(len(batch))
    found[batch.indices] = batch.influence
    return found


# INFL-D


@pytest.mark.slow
@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_infl_d_against_leave_one_out_refits(C: int, gamma: float) -> None:
    problem = make_problem(np.random.default_rng([C, 1]), n=200, d=5, C=C, gamma=gamma, l2=0.02, n_val=80)
    batch = InflDSelector(tol=1e-10).select(context(problem), 200)
    W = problem.optimum()
    actual = np.empty(200)
    for i in range(200):
        weight = problem.weight.copy()
        weight[i] = 0.0
        actual[i] = 200 * (problem.val_loss(replace(problem, weight=weight).optimum(W)) - problem.val_loss(W))
    predicted = influence_in_order(batch)
    assert spearmanr(predicted, actual).statistic >= 0.99
    slope = float(predicted @ actual / (predicted @ predicted))
    assert slope == pytest.approx(1.0, abs=0.1)
    # The most harmful is asked first: without it, validation does best.
    assert actual[batch.indices[0]] <= np.sort(actual)[2] < 0.0
    assert (np.diff(batch.influence) >= 0).all()


def test_infl_d_keeps_an_order_where_weak_labels_weigh_nothing(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=60, C=3, gamma=0.0, cleaned=0.3)
    clean = problem.weight == 1.0
    batch = InflDSelector(tol=1e-10).select(context(problem, cleaned=clean), 60)
    W = problem.optimum()
    v = np.linalg.solve(problem.hessian(W), problem.val_gradient(W).ravel()).reshape(W.shape)
    P = softmax(problem.X @ W, axis=1)
    harm = [-float(np.vdot(v, np.outer(problem.X[i], P[i] - problem.Y[i]))) for i in np.flatnonzero(~clean)]
    np.testing.assert_array_equal(batch.indices, np.flatnonzero(~clean)[np.argsort(-np.array(harm), kind="stable")])
    np.testing.assert_array_equal(batch.influence, 0.0)  # to delete what weighs nothing changes nothing


# INFL-Y


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_infl_y_against_finite_differences_in_the_label(C: int, gamma: float) -> None:
    """Label mass h on class c: label y + h e_c at weight r, or (y + h e_c)/(1 + h) at weight r (1 + h)."""
    problem = make_problem(np.random.default_rng([C, 2]), n=40, d=3, C=C, gamma=gamma, l2=0.05)
    here = context(problem)
    solved = solve_spd(here.objective, here.point, here.validation.gradient, here.keeper, tol=1e-11, max_iterations=500)
    S = np.hstack([np.zeros((40, 1)), solved.linear.S])
    slopes = label_slopes(S, softmax(problem.X @ here.point.W, axis=1))

    def loss(i: int, c: int, h: float) -> float:
        Y, weight = problem.Y.copy(), problem.weight.copy()
        Y[i] = (Y[i] + h * np.eye(C)[c]) / (1 + h)
        weight[i] *= 1 + h
        return problem.val_loss(replace(problem, Y=Y, weight=weight).optimum(here.point.W))

    h = 1e-3
    for i in range(0, 40, 5):
        for c in range(C):
            slope = 40 * (loss(i, c, h) - loss(i, c, -h)) / (2 * h) / gamma
            assert slopes[i, c] == pytest.approx(slope, rel=1e-3, abs=1e-6)
    batch = InflYSelector(tol=1e-11).select(here, 10)
    np.testing.assert_array_equal(batch.indices, np.argsort(slopes.min(axis=1), kind="stable")[:10])
    np.testing.assert_array_equal(batch.suggested, slopes.argmin(axis=1)[batch.indices])
    assert np.isnan(batch.influence).all()


# DUTI


def phi(problem: Problem, y: "np.ndarray", Y: Array, penalty: float, W0: Array | None = None) -> float:
    """DUTI's objective by a refit, a term a line."""
    W = replace(problem, Y=Y, weight=np.ones(len(Y))).optimum(W0)
    losses = -(Y * log_softmax(problem.X @ W, axis=1)).sum(axis=1)
    return float(problem.val_loss(W) + losses.mean() + penalty * (1 - Y[np.arange(len(Y)), y]).mean())


def sharp(problem: Problem) -> Bilevel:
    """DUTI's problem with inner solves to the limit."""
    exact = replace(hardened(problem), weight=np.ones(len(problem.X)))
    return replace(bilevel(context(exact)), tol=1e-9)


@pytest.mark.parametrize("C", [2, 4])
def test_duti_slopes_against_finite_differences(C: int) -> None:
    problem = make_problem(np.random.default_rng([C, 3]), n=30, d=3, C=C, gamma=0.5, l2=0.05)
    duti = sharp(problem)
    y, rng = problem.Y.argmax(axis=1), np.random.default_rng(4)
    inside = rng.dirichlet(np.ones(C), 30)  # away from the borders, so that both sides can be tried
    labels = duti.move(duti.begin(), inside)
    assert duti.value(labels, 1.5) == pytest.approx(phi(problem, y, inside, 1.5), rel=1e-8)
    G = duti.free_slopes(labels)
    G[np.arange(30), y] -= 1.5
    W, h = labels.point.W, 1e-3
    for i in range(0, 30, 4):
        for c in range(1, C):
            T = np.zeros((30, C))
            T[i, c], T[i, 0] = 1.0, -1.0
            slope = 30 * (phi(problem, y, inside + h * T, 1.5, W) - phi(problem, y, inside - h * T, 1.5, W)) / (2 * h)
            assert G[i, c] - G[i, 0] == pytest.approx(slope, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_duti_against_a_dense_grid(seed: int) -> None:
    """Five samples, two classes: all labellings in steps of a half."""
    problem = make_problem(np.random.default_rng([seed, 5]), n=5, d=2, C=2, l2=0.1, n_val=20, spread=2.0)
    y = problem.Y.argmax(axis=1)
    found = descend(sharp(problem), penalty=0.3, flagged=5, solves=200)
    W = problem.optimum()
    best = min(
        phi(problem, y, np.column_stack([1 - np.array(share), share]), 0.3, W)
        for share in product((0.0, 0.5, 1.0), repeat=5)
    )
    assert found.settled
    assert found.value == pytest.approx(phi(problem, y, found.labels.Y, 0.3), rel=1e-7)
    assert found.value <= best + 1e-4


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("penalty", [0.7, 1.5])
def test_duti_ends_where_no_small_move_is_better(seed: int, penalty: float) -> None:
    """A problem that is not convex: the grid may hold something better far off, but nothing close by."""
    problem = make_problem(np.random.default_rng([seed, 5]), n=5, d=2, C=2, l2=0.1, n_val=20, spread=2.0)
    y = problem.Y.argmax(axis=1)
    found = descend(sharp(problem), penalty=penalty, flagged=5, solves=200)
    assert found.settled
    for move in product((-0.02, 0.0, 0.02), repeat=5):
        share = np.clip(found.labels.Y[:, 1] + np.array(move), 0.0, 1.0)
        near = phi(problem, y, np.column_stack([1 - share, share]), penalty, found.labels.point.W)
        assert found.value <= near + 1e-6


def test_duti_against_a_general_minimiser() -> None:
    """Three classes, label entries as softmax of free numbers, refits inside: scipy finds nothing better near the start."""
    problem = make_problem(np.random.default_rng([3, 6]), n=8, d=2, C=3, l2=0.1, n_val=20, spread=2.0)
    y = problem.Y.argmax(axis=1)
    found = descend(sharp(problem), penalty=1.0, flagged=8, solves=200)
    start = 4.0 * np.eye(3)[y]
    other = minimize(
        lambda z: phi(problem, y, softmax(z.reshape(8, 3), axis=1), 1.0), start.ravel(), options={"maxiter": 60}
    )
    assert found.settled
    assert found.value <= other.fun + 1e-3
    moved = found.labels.Y[np.arange(8), y] < 0.5
    assert moved.any()  # or nothing was tested
    k = sharp(problem).holding(found.labels)
    # The conditions at a solution: who left would not be held, who stayed would be.
    assert k[moved].min() >= 0.99
    assert k[~moved].max() <= 1.01


def test_duti_flags_planted_flips_and_suggests_what_they_were() -> None:
    rng = np.random.default_rng(7)
    problem = make_problem(rng, n=200, d=6, C=3, gamma=0.8, l2=0.02, n_val=100)
    centres, y, y_val = 4.0 * np.eye(6)[:3], rng.integers(0, 3, 200), problem.Y_val.argmax(axis=1)
    problem.X[:, :6] = centres[y] + rng.normal(size=(200, 6))
    problem.X_val[:, :6] = centres[y_val] + rng.normal(size=(100, 6))
    flipped = rng.choice(200, 20, replace=False)
    given = y.copy()
    given[flipped] = (y[flipped] + 1) % 3
    noisy = replace(problem, Y=0.2 / 3 + 0.8 * np.eye(3)[given])
    batch = DutiSelector(flagged=30).select(context(noisy), 20)
    found = np.isin(batch.indices, flipped)
    assert found.mean() >= 0.8
    assert (batch.suggested == y[batch.indices])[found].mean() >= 0.9


def test_duti_leaves_clean_labels_alone(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=80, C=3, spread=2.0)
    clean = np.arange(80) < 20
    problem.Y[clean] = np.eye(3)[rng.integers(0, 3, 20)]  # wrong, many of them, but trusted
    here = context(problem, cleaned=clean)
    free = descend(bilevel(replace(here, cleaned=np.zeros(80, dtype=bool))), penalty=0.5, flagged=80, solves=20)
    held = descend(bilevel(here), penalty=0.5, flagged=80, solves=20)
    assert (free.labels.Y[clean] != problem.Y[clean]).any()  # they would go if they could
    np.testing.assert_array_equal(held.labels.Y[clean], problem.Y[clean])
    assert (held.labels.Y.argmax(axis=1) != problem.Y.argmax(axis=1)).any()


def test_the_projection_is_the_nearest_point(rng: np.random.Generator) -> None:
    Z = 2.0 * rng.normal(size=(40, 4))
    found = onto_simplex(Z)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    others = rng.dirichlet(np.ones(4), 300)
    # Nearest, by the angle: no point of the simplex lies on the far side of it.
    assert ((Z - found)[:, None, :] * (others[None] - found[:, None, :])).sum(axis=2).max() <= 1e-12


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_duti_takes_no_account_of_gamma(gamma: float) -> None:
    problem = make_problem(np.random.default_rng(8), n=80, C=3, gamma=0.6)
    one = DutiSelector().select(context(problem), 15)
    two = DutiSelector().select(context(replace(problem, weight=np.full(80, gamma))), 15)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.suggested, two.suggested)


# TARS


def record(votes: Votes) -> RoundRecord:
    nothing = np.empty(0, dtype=np.int64)
    return RoundRecord(
        1, Batch(nothing, nothing, np.empty(0)), votes, Decisions(nothing, nothing, np.empty(0)), nothing, 0, 0, 0,
        Metrics(0.0, 0.0, 0.0), Metrics(0.0, 0.0, 0.0), None, np.nan, np.nan, ConstructionDiagnostics(), {},
    )  # fmt: skip


def majority_by_enumeration(A: Array, n: int) -> Array:
    """Every one of the Cⁿ outcomes."""
    C = len(A)
    B = np.zeros((C, C))
    for t in range(C):
        for said in product(range(C), repeat=n):
            counts = np.bincount(said, minlength=C)
            if (counts == counts.max()).sum() == 1:
                B[t, counts.argmax()] += np.prod([A[t, a] for a in said])
    return B


@pytest.mark.parametrize(("C", "n"), [(2, 1), (2, 2), (2, 5), (3, 3), (3, 4), (4, 3), (5, 5)])
def test_majority_shares_against_every_outcome(C: int, n: int) -> None:
    A = np.random.default_rng([C, n]).dirichlet(np.ones(C), C)
    np.testing.assert_allclose(majority_shares(A, n), majority_by_enumeration(A, n), atol=1e-12)


def test_large_panels_are_nearly_certain() -> None:
    B = majority_shares(np.full((3, 3), 0.1) + 0.7 * np.eye(3), 99)
    np.testing.assert_allclose(B, np.eye(3), atol=1e-6)


def test_confusion_counts_people_on_clean_samples_only(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=20, C=3)
    clean = np.zeros(20, dtype=bool)
    clean[[2, 3, 4]] = True
    problem.Y[[2, 3, 4]] = np.eye(3)[[0, 1, 2]]
    votes = Votes.of([
        ("ann", [2, 3, 4, 5], [0, 1, 1, 2]),  # 5 was never resolved
        ("bob", [2, 3, 4, 5], [0, 1, 2, 0]),
        ("cid", [2, 3, 4, 5], [1, -1, 2, 1]),  # −1 is no answer
        ("suggestion", [2, 3, 4, 5], [2, 2, 0, 1]),
        ("undo", [2, 3], [1, 1]),
    ])  # fmt: skip
    A, panel = annotator_confusion(
        context(problem, cleaned=clean, rounds=(record(votes),)), prior_error=0.2, prior_votes=10
    )
    counts = np.array([[8.0, 1, 1], [1, 8, 1], [1, 1, 8]]) + np.array([[2.0, 1, 0], [0, 2, 0], [0, 1, 2]])
    np.testing.assert_allclose(A, counts / counts.sum(axis=1, keepdims=True))
    assert panel == 3
    assert annotator_confusion(context(problem))[1] is None


def tars_by_loops(problem: Problem, clean: "np.ndarray", A: Array, n: int, gain: Array) -> Array:
    """The expectation sample by sample, class by class, outcome by outcome; `gain` (N, C) is what cleaning brings."""
    C, W = problem.shape[1], problem.optimum()
    weak, model = problem.Y.argmax(axis=1), (problem.X @ W).argmax(axis=1)
    val_y, val_model = problem.Y_val.argmax(axis=1), (problem.X_val @ W).argmax(axis=1)
    expected = np.zeros(len(weak))
    for i in np.flatnonzero(~clean):
        posterior = np.zeros(C)
        for t in range(C):
            for m in range(C):
                R = (1 + ((val_y == t) & (val_model == m)).sum()) / (C + (val_y == t).sum())
                J = (1 + (~clean & (model == m) & (weak == weak[i])).sum()) / (C + (~clean & (model == m)).sum())
                posterior[t] += (1 + (val_y == t).sum()) * R * J
        posterior /= posterior.sum()
        for t in range(C):
            for said in product(range(C), repeat=n):
                counts = np.bincount(said, minlength=C)
                if (counts == counts.max()).sum() == 1:
                    expected[i] += posterior[t] * np.prod([A[t, a] for a in said]) * gain[i, counts.argmax()]
    return expected


@pytest.mark.slow
@pytest.mark.parametrize("C", [2, 4])
def test_tars_against_enumerated_expectations_with_refits(C: int) -> None:
    problem = make_problem(np.random.default_rng([C, 9]), n=120, d=4, C=C, gamma=0.7, l2=0.03, n_val=60)
    clean = np.zeros(120, dtype=bool)
    clean[:20] = True
    problem.Y[:20], problem.weight[:20] = np.eye(C)[problem.Y[:20].argmax(axis=1)], 1.0
    hard = hardened(problem)  # TARS must do this by itself
    W = hard.optimum()
    gain = np.zeros((120, C))
    for i in range(20, 120):
        for c in range(C):
            Y, weight = hard.Y.copy(), hard.weight.copy()
            Y[i], weight[i] = np.eye(C)[c], 1.0
            gain[i, c] = 120 * (hard.val_loss(replace(hard, Y=Y, weight=weight).optimum(W)) - hard.val_loss(W))
    here = context(problem, cleaned=clean)
    A, _ = annotator_confusion(here)
    expected = tars_by_loops(hard, clean, A, 3, gain)
    batch = TarsSelector(tol=1e-10).select(here, 120)
    assert sorted(batch.indices) == list(range(20, 120))
    actual = expected[batch.indices]
    assert spearmanr(batch.influence, actual).statistic >= 0.98
    slope = float(batch.influence @ actual / (batch.influence @ batch.influence))
    assert slope == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("C", [2, 4])
def test_tars_against_plain_formulas(C: int) -> None:
    """The same with formula (A) by a dense Hessian in place of refits: equal, not nearly so."""
    problem = hardened(make_problem(np.random.default_rng([C, 10]), n=60, d=3, C=C, gamma=0.7, l2=0.05))
    clean = np.zeros(60, dtype=bool)
    clean[:10], problem.weight[:10] = True, 1.0
    W = problem.optimum()
    v = np.linalg.solve(problem.hessian(W), problem.val_gradient(W).ravel()).reshape(W.shape)
    P = softmax(problem.X @ W, axis=1)
    gain = np.zeros((60, C))
    for i in range(60):
        for c in range(C):
            before, after = problem.weight[i] * (P[i] - problem.Y[i]), P[i] - np.eye(C)[c]
            gain[i, c] = -np.vdot(v, np.outer(problem.X[i], after - before))
    said = np.random.default_rng(11).integers(0, C, (4, 10))
    votes = Votes.of([(f"person {k}", np.arange(10), said[k]) for k in range(4)])
    here = context(problem, cleaned=clean, rounds=(record(votes),))
    A, panel = annotator_confusion(here)
    assert panel == 4
    expected = tars_by_loops(problem, clean, A, 4, gain)
    batch = TarsSelector(tol=1e-11).select(here, 50)
    np.testing.assert_array_equal(batch.indices, 10 + np.argsort(expected[10:], kind="stable"))
    np.testing.assert_allclose(batch.influence, expected[batch.indices], rtol=1e-5, atol=1e-8)


def test_weak_labels_that_mean_nothing_leave_the_class_shares(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=4000, C=2, n_val=400, spread=3.0)
    problem.Y[:] = np.eye(2)[rng.integers(0, 2, 4000)]
    here = context(problem)
    shares = problem.Y_val.mean(axis=0)
    np.testing.assert_allclose(posterior_of_truth(here, problem.Y.argmax(axis=1)), [shares, shares], atol=0.1)


# All of them


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("C", [2, 4])
def test_permuting_the_samples_permutes_the_selection(name: str, C: int) -> None:
    rng = np.random.default_rng([C, 12])
    problem = make_problem(rng, n=150, C=C, cleaned=0.1)
    clean, order = problem.weight == 1.0, rng.permutation(150)
    other = replace(problem, X=problem.X[order], Y=problem.Y[order], weight=problem.weight[order])
    one = BASELINES[name]().select(context(problem, cleaned=clean), 15)
    two = BASELINES[name]().select(context(other, cleaned=clean[order]), 15)
    np.testing.assert_array_equal(one.indices, order[two.indices])
    np.testing.assert_array_equal(one.suggested, two.suggested)
    np.testing.assert_allclose(one.influence, two.influence, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("gamma", [0.0, 0.8])
def test_only_eligible_samples_and_the_same_again(name: str, C: int, gamma: float) -> None:
    problem = make_problem(np.random.default_rng([C, 13]), n=90, C=C, gamma=gamma, cleaned=0.2)
    here = context(problem, cleaned=problem.weight == 1.0)
    eligible = ~here.cleaned & (np.arange(90) % 3 > 0)
    selector = BASELINES[name]()
    one = selector.select(replace(here, eligible=eligible), 200)
    np.testing.assert_array_equal(np.sort(one.indices), np.flatnonzero(eligible))
    two = BASELINES[name]().select(replace(here, eligible=eligible), 12)
    np.testing.assert_array_equal(two.indices, one.indices[:12])
    np.testing.assert_array_equal(selector.select(replace(here, eligible=eligible), 12).indices, two.indices)
    known = one.suggested != UNRESOLVED
    assert known.all() if selector.suggests else not known.any()
    assert ((one.suggested >= -1) & (one.suggested < C)).all()
    nothing = selector.select(replace(here, eligible=np.zeros(90, dtype=bool)), 5)
    assert len(nothing) == 0


@pytest.mark.parametrize("name", ["duti", "tars"])
@pytest.mark.parametrize("hard", [True, False])
def test_what_is_assumed_leaves_no_trace(name: str, hard: bool) -> None:
    problem = make_problem(np.random.default_rng(15), n=90, C=2, gamma=1.0)
    here = context(hardened(problem) if hard else problem)
    right = np.random.default_rng(1).normal(size=here.point.W.shape)
    before, labels = here.keeper.solve(right), here.objective.labels.Y.copy()
    BASELINES[name]().select(here, 10)
    np.testing.assert_array_equal(here.objective.labels.Y, labels)
    if name == "duti" or not hard:  # TARS on hard labels solves the campaign's own system, and may learn from it
        np.testing.assert_array_equal(here.keeper.solve(right), before)


def test_an_inner_model_that_does_not_arrive_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    here = context(make_problem(np.random.default_rng(16), n=60, C=3))
    monkeypatch.setattr("labelchef.chef.baselines.duti._ADJOINT_ITERATIONS", 0)
    with pytest.warns(ConvergenceWarning, match="adjoint"):
        DutiSelector(solves=0).select(here, 5)
    monkeypatch.setattr("labelchef.chef.baselines.rounded.INNER_SWEEPS", 1)
    with pytest.warns(ConvergenceWarning, match="model on rounded labels"):
        TarsSelector().select(here, 5)


@pytest.mark.parametrize("name", NAMES)
def test_a_campaign_with_simulated_people(name: str) -> None:
    problem = make_problem(np.random.default_rng(14), n=300, C=3, gamma=0.8, spread=2.0)
    truth = np.random.default_rng(14).integers(0, 3, 300)
    cleaners = [
        LabelCleaner(selector=name, batch_size=8, budget=40).fit(
            problem.X[:, :-1], problem.Y, X_val=problem.X_val[:, :-1], y_val=problem.Y_val.argmax(axis=1)
        )
        for _ in range(2)
    ]
    for cleaner in cleaners:
        cleaner.run(SimulatedAnnotators(truth, n_classes=3, seed=3))
        assert cleaner.history_["spent"].iloc[-1] == 40
        asked = np.concatenate([r.batch.indices for r in cleaner.rounds_])
        assert len(np.unique(asked)) == len(asked) or cleaner.history_["resolved"].sum() < 40
    np.testing.assert_array_equal(cleaners[0].W_, cleaners[1].W_)


@pytest.mark.parametrize("wrong", [{"annotators": 0}, {"prior_error": 0.0}, {"prior_votes": 0.0}])
def test_tars_refuses_settings_that_mean_nothing(wrong: "dict[str, float]") -> None:
    with pytest.raises(InvalidInputError, match="expected at least one annotator"):
        TarsSelector(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"penalty": -1.0}, {"flagged": 0}, {"solves": -1}])
def test_duti_refuses_settings_that_mean_nothing(wrong: "dict[str, int]") -> None:
    with pytest.raises(InvalidInputError, match="expected a penalty"):
        DutiSelector(**wrong)
