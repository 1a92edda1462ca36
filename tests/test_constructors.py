"""Retrain, DeltaGrad-L and Newton: against plain loops, against each other, forwards and back again."""

import itertools
import mmap
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelchef import LabelCleaner
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import LabelChange
from labelchef.chef.constructors import (
    CONSTRUCTORS,
    Construction,
    DeltaGradLConstructor,
    DescentSettings,
    NewtonConstructor,
    RetrainConstructor,
    make_constructor,
)
from labelchef.chef.constructors.replayed_descent import (
    Changed,
    Descents,
    Guard,
    QuasiHessian,
    approximate_steps,
    bend,
    learn,
)
from labelchef.chef.constructors.schedule import Schedule
from labelchef.loop.judging import Split
from labelchef.model.contrasts import Coordinates
from labelchef.model.engines import MemoryEngine
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective
from labelchef.model.solvers import Companion
from tests.oracles import Array, Problem, dense_quasi_hessian, make_problem, paper_cleaner, plain_descent

SMALL = DescentSettings(epochs=12, minibatch=32, seed=3)


class Campaign:
    """A problem whose labels change, as constructors see it."""

    def __init__(self, rng: np.random.Generator, C: int = 3, n: int = 240, d: int = 5, l2: float = 0.05) -> None:
        self.problem = make_problem(rng, n=n, d=d, C=C, l2=l2)
        self.table = LabelTable(self.problem.Y, 0.8)
        engine = MemoryEngine(np.ascontiguousarray(self.problem.X[:, :-1]), bias=True)
        self.objective = Objective(engine, self.table.rows, l2)
        self.losses = self.problem.losses

    def clean(self, items: Any, labels: Any) -> LabelChange:
        change = self.table.assign(np.asarray(items), np.asarray(labels))
        self.problem.Y, self.problem.weight = self.table.Y, self.table.weight
        return change


def last(construction: Construction) -> Array:
    assert construction.trajectory is not None
    return np.asarray(construction.trajectory.ends[-1])


@pytest.mark.parametrize("C", [2, 3, 5])
def test_retrain_is_plain_minibatch_descent(rng: np.random.Generator, C: int) -> None:
    campaign = Campaign(rng, C)
    found = RetrainConstructor(replace(SMALL, learning_rate=0.3)).initialise(campaign.objective, campaign.losses)
    assert found.trajectory is not None
    schedule = found.trajectory.schedule
    path = plain_descent(campaign.problem, [schedule.rows(t) for t in range(schedule.steps)], 0.3)
    ends = Coordinates(C).parameters(found.trajectory.ends)
    np.testing.assert_allclose(ends[1:], path[schedule.steps_per_epoch - 1 :: schedule.steps_per_epoch], atol=1e-6)
    losses = [campaign.problem.val_loss(W) for W in [np.zeros(campaign.problem.shape), *ends[1:]]]
    assert found.diagnostics.epoch == int(np.argmin(losses))
    np.testing.assert_array_equal(found.point.W, ends[found.diagnostics.epoch])


def test_early_stopping_can_be_left_out(rng: np.random.Generator) -> None:
    campaign = Campaign(rng)
    found = RetrainConstructor(replace(SMALL, early_stopping=False)).initialise(campaign.objective, campaign.losses)
    assert found.diagnostics.epoch == SMALL.epochs
    np.testing.assert_array_equal(found.point.W, Coordinates(3).parameters(last(found)))


def test_the_losses_of_all_epochs_are_those_of_each(rng: np.random.Generator) -> None:
    problem = make_problem(rng, C=4, n_val=1100)
    split = Split(np.ascontiguousarray(problem.X_val[:, :-1]), problem.Y_val.argmax(axis=1), 4, bias=True)
    stack = 30 * rng.normal(size=(3, *problem.shape))
    np.testing.assert_allclose(split.losses(stack), problem.losses(stack), rtol=1e-12)
    np.testing.assert_allclose(split.losses(stack), [split.at(W).value for W in stack], rtol=1e-12)


def test_the_automatic_rate_descends_and_too_large_a_rate_is_refused(rng: np.random.Generator) -> None:
    campaign = Campaign(rng)
    X = campaign.problem.X * 50
    campaign.objective = Objective(
        MemoryEngine(np.ascontiguousarray(X[:, :-1]), bias=True), campaign.table.rows, campaign.objective.l2
    )
    long = replace(SMALL, epochs=300, early_stopping=False)
    found = RetrainConstructor(long).initialise(campaign.objective, campaign.losses)
    start = campaign.objective.at(np.zeros(campaign.objective.shape))
    assert found.point.value < start.value
    assert found.point.gradient_norm < 0.1 * start.gradient_norm
    assert found.trajectory is not None
    rows = [found.trajectory.schedule.rows(t) for t in range(2)]
    exact = max(
        0.5 * np.linalg.eigvalsh(B.T @ B / len(B))[-1] for B in (campaign.objective.engine.rows(r) for r in rows)
    )
    assert found.trajectory.smoothness == pytest.approx(exact, rel=0.01)
    with pytest.raises(InvalidInputError, match=r"diverged with learning_rate 1e\+300; expected at most about"):
        RetrainConstructor(replace(SMALL, learning_rate=1e300)).initialise(campaign.objective, campaign.losses)


@given(st.integers(1, 70), st.integers(1, 80), st.integers(1, 4), st.integers(0, 9))
def test_every_epoch_deals_out_every_row_once(rows: int, minibatch: int, epochs: int, seed: int) -> None:
    schedule = Schedule(rows, min(minibatch, rows), epochs, seed)
    for epoch in range(epochs):
        batches = schedule.epoch(epoch)
        assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(rows))
        for k, batch in enumerate(batches):
            step = epoch * schedule.steps_per_epoch + k
            assert np.array_equal(batch, schedule.rows(step))
            assert len(batch) == schedule.sizes[k]
            assert np.array_equal(np.flatnonzero(schedule.steps_of(np.arange(rows))[epoch] == step), batch)
    again = Schedule(rows, min(minibatch, rows), epochs, seed)
    assert np.array_equal(again.numbers(epochs - 1), schedule.numbers(epochs - 1))


def test_epochs_and_seeds_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Schedule(100, 10, 2, 0), Schedule(100, 10, 2, 1)
    assert not np.array_equal(one.numbers(0), one.numbers(1))
    assert not np.array_equal(one.numbers(0), other.numbers(0))
    monkeypatch.setattr("labelchef.chef.constructors.schedule._KEPT_BYTES", 0)
    dealt_anew = Schedule(100, 10, 2, 0)
    assert np.array_equal(one.numbers(1), dealt_anew.numbers(1))


@pytest.mark.parametrize("C", [2, 4])
def test_with_every_step_explicit_deltagrad_is_retrain_bit_by_bit(rng: np.random.Generator, C: int) -> None:
    campaign = Campaign(rng, C)
    deltagrad, retrain = DeltaGradLConstructor(SMALL, period=1), RetrainConstructor(SMALL)
    replayed = deltagrad.initialise(campaign.objective, campaign.losses)
    trained = retrain.initialise(campaign.objective, campaign.losses)
    np.testing.assert_array_equal(last(replayed), last(trained))
    for items, labels in (([3, 7, 100], [0, 1, 1]), ([7, 200], [-1, 0])):
        change = campaign.clean(items, labels)
        replayed = deltagrad.construct(campaign.objective, replayed, change, campaign.losses)
        trained = retrain.construct(campaign.objective, trained, change, campaign.losses)
        assert replayed.trajectory is not None
        assert trained.trajectory is not None
        np.testing.assert_array_equal(replayed.trajectory.ends, trained.trajectory.ends)
        np.testing.assert_array_equal(replayed.point.W, trained.point.W)
        assert replayed.diagnostics.explicit == trained.diagnostics.explicit == replayed.trajectory.schedule.steps
        assert replayed.diagnostics.fell_back == 0


def naive_deltagrad(
    problem: Problem, old: tuple[Array, Array], change: LabelChange, cached: list[Array], schedule: Schedule, rate: float,
    constructor: DeltaGradLConstructor,
) -> Array:  # fmt: skip
    """Algorithm 2 on whole parameters with a dense quasi-Hessian; no guard may be needed on the way."""
    from scipy.special import softmax

    def data_gradient(W: Array, rows: Any, Y: Array, r: Array) -> Array:
        X = problem.X[rows]
        return np.asarray(X.T @ (r[rows][:, None] * (softmax(X @ W, axis=1) - Y[rows])) / len(rows))

    W, W_new, S, Y = np.zeros(problem.shape), np.zeros(problem.shape), list[Array](), list[Array]()
    for t in range(schedule.steps):
        rows, g = schedule.rows(t), cached[t]
        j0, T0 = constructor.burn_in, constructor.period
        if t <= j0 or (t - j0) % T0 == 0:
            on_old = data_gradient(W_new, rows, *old)
            S.append((W_new - W).ravel())
            Y.append((on_old - g).ravel())
        else:
            m = constructor.history
            B = dense_quasi_hessian(np.array(S[-m:]), np.array(Y[-m:]))
            on_old = g + (B @ (W_new - W).ravel()).reshape(W.shape)
        removed = np.intersect1d(rows, change.indices)
        share = len(removed) / len(rows)
        correction = np.zeros(problem.shape)
        if len(removed):
            added = data_gradient(W_new, removed, problem.Y, problem.weight)
            correction = share * (added - data_gradient(W_new, removed, *old))
        W = W - rate * (g + problem.l2 * W)
        W_new = W_new - rate * (on_old + correction + problem.l2 * W_new)
    return W_new


@pytest.mark.parametrize("C", [2, 3])
def test_deltagrad_is_algorithm_2(rng: np.random.Generator, C: int) -> None:
    campaign = Campaign(rng, C, n=299)
    settings = DescentSettings(learning_rate=0.05, epochs=6, minibatch=60, seed=1, early_stopping=False)
    constructor = DeltaGradLConstructor(settings, burn_in=7, period=4, history=2)
    first = constructor.initialise(campaign.objective, campaign.losses)
    assert first.trajectory is not None
    schedule, at = first.trajectory.schedule, Coordinates(C)
    cached = [np.asarray(at.parameters(g.astype(np.float64))) for g in first.trajectory.gradients]
    old = (campaign.problem.Y.copy(), campaign.problem.weight.copy())
    items = np.sort(np.concatenate([schedule.rows(0)[:2], rng.choice(299, 6, replace=False)]))
    change = campaign.clean(np.unique(items), rng.integers(0, C, len(np.unique(items))))
    replayed = constructor.construct(campaign.objective, first, change, campaign.losses)
    assert replayed.diagnostics.fell_back == 0
    assert replayed.diagnostics.explicit == 8 + (schedule.steps - 8) // 4
    expected = naive_deltagrad(campaign.problem, old, change, cached, schedule, 0.05, constructor)
    moved = np.linalg.norm(expected - at.parameters(last(first)))
    assert np.linalg.norm(at.parameters(last(replayed)) - expected) < 1e-3 * moved


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_the_compact_form_is_the_textbook_recursion(seed: int, history: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(6, 6))
    H = A @ A.T + 0.1 * np.eye(6)
    known = QuasiHessian(np.empty((0, 6)), np.empty((0, 6)), np.empty((0, 0)), 0.0)
    guard = Guard(history, np.inf, rate=0.0, period=1, l2=0.0, tolerated=1.0, tolerated_worse=1.0)
    pairs = [(s, H @ s) for s in 1e-3 * rng.normal(size=(5, 6))]
    for s, y in pairs:
        known, _ = learn(s, y, guard, known)
    S, Y = (np.array(part[-history:]) for part in zip(*pairs, strict=True))
    B, v, out = dense_quasi_hessian(S, Y), rng.normal(size=6), np.empty(6)
    curvature, size, length = cast(Any, bend)(v, known, out)
    np.testing.assert_allclose(out, B @ v, rtol=1e-6, atol=1e-6 * float(np.linalg.norm(B)))
    assert curvature == pytest.approx(v @ out)
    assert (size, length) == (pytest.approx(v @ v), pytest.approx(out @ out))


def test_pairs_that_no_batch_can_make_are_left_out() -> None:
    nothing = QuasiHessian(np.empty((0, 3)), np.empty((0, 3)), np.empty((0, 0)), 0.0)
    s = np.array([1.0, 0.0, 0.0])
    guard = Guard(2, 9.0, rate=0.001, period=10, l2=0.0, tolerated=0.012, tolerated_worse=0.006)
    assert len(learn(s, -s, guard, nothing)[0].S) == 0  # bends downwards
    assert len(learn(s, 10 * s, guard, nothing)[0].S) == 0  # more than the loss can bend
    assert len(learn(0 * s, 0 * s, guard, nothing)[0].S) == 0
    known, wrong = learn(s, 2 * s, guard, nothing)
    assert len(known.S) == 1
    assert not wrong
    assert not learn(s, s, guard, known)[-1]  # predicted 2, came 1: as good as nothing, and tolerated
    assert learn(s, 0.9 * s, guard, known)[-1]  # 1.1 off, worse than nothing, which is tolerated up to 0.6
    assert learn(s, 3.3 * s, guard, known)[-1]  # 1.3 off is too much in any case
    assert not learn(s, 3.1 * s, guard, known)[-1]
    half = guard._replace(rate=0.0005)
    assert not learn(s, 0.9 * s, half, known)[-1]  # half the step, half the harm
    large = guard._replace(rate=0.5, tolerated=0.35, tolerated_worse=0.2)
    assert not learn(s, 3 * s, large, known)[-1]  # a step that large forgets: the error counts once, as ε / h
    assert learn(s, 3.2 * s, large, known)[-1]


def test_steps_that_no_batch_can_bend_are_left_to_be_explicit() -> None:
    z, z_new = np.zeros((1, 2)), np.array([[1.0, 0.0]])
    G, ends = np.zeros((4, 1, 2), dtype=np.float32), np.zeros((3, 1, 2))
    descents = Descents(G, G.copy(), z, z_new, ends, 0.1, 0.0, np.array([2, 2]), Coordinates(2).B)
    no_rows, no_ids = np.empty((0, 3)), np.empty(0, dtype=np.int64)
    changed = Changed(np.empty((0, 2)), no_rows, no_rows, np.zeros(5, dtype=np.int64), no_ids)
    S = np.array([[1.0, 0.0]])
    for factor in (-1.0, 3.0):  # B = factor · I: downwards, and steeper than the smoothness of 2 allows
        known = QuasiHessian(S, factor * S, np.zeros((2, 2)), factor)
        assert approximate_steps(0, 4, known, 2.0, descents, changed) == 0
    assert approximate_steps(0, 4, QuasiHessian(S, S, np.zeros((2, 2)), 1.0), 2.0, descents, changed) == 4
    np.testing.assert_allclose(z_new[0, 0], 0.9**4, rtol=1e-6)
    np.testing.assert_allclose(ends[:, 0, 0], [0.0, 0.9**2, 0.9**4], rtol=1e-6)
    nothing = QuasiHessian(np.empty((0, 2)), np.empty((0, 2)), np.empty((0, 0)), 0.0)
    assert approximate_steps(0, 4, nothing, 2.0, descents, changed) == 0


def test_where_the_quasi_hessian_is_worth_nothing_steps_are_explicit_and_counted(rng: np.random.Generator) -> None:
    campaign = Campaign(rng, C=2, n=200, d=30, l2=0.01)
    hasty = DescentSettings(learning_rate=1.0, epochs=30, minibatch=10, seed=0, early_stopping=False)
    deltagrad, retrain = DeltaGradLConstructor(hasty), RetrainConstructor(hasty)
    first = deltagrad.initialise(campaign.objective, campaign.losses)
    change = campaign.clean(rng.choice(200, 20, replace=False), rng.integers(0, 2, 20))
    replayed = deltagrad.construct(campaign.objective, first, change, campaign.losses)
    trained = retrain.construct(campaign.objective, first, change, campaign.losses)
    scheduled = 11 + (600 - 11) // 10
    assert replayed.diagnostics.fell_back > 0
    assert replayed.diagnostics.explicit == replayed.diagnostics.fell_back + scheduled
    moved = np.linalg.norm(last(trained) - last(first))
    assert np.linalg.norm(last(replayed) - last(trained)) < moved


def test_a_change_that_changes_nothing_replays_without_fallbacks(rng: np.random.Generator) -> None:
    campaign = Campaign(rng)
    deltagrad = DeltaGradLConstructor(SMALL)
    first = deltagrad.initialise(campaign.objective, campaign.losses)
    change = campaign.clean([4, 9], [-1, -1])
    replayed = deltagrad.construct(campaign.objective, first, change, campaign.losses)
    assert replayed.diagnostics.fell_back == 0
    np.testing.assert_array_equal(last(replayed), last(first))


def test_deltagrad_follows_retrain_over_rounds(rng: np.random.Generator) -> None:
    campaign = Campaign(rng, C=3, n=2000, d=8)
    settings = DescentSettings(learning_rate=0.05, epochs=40, minibatch=200, early_stopping=False)
    deltagrad, retrain = DeltaGradLConstructor(settings), RetrainConstructor(settings)
    first = replayed = deltagrad.initialise(campaign.objective, campaign.losses)
    for k in range(5):
        change = campaign.clean(np.arange(20 * k, 20 * k + 20), rng.integers(0, 3, 20))
        replayed = deltagrad.construct(campaign.objective, replayed, change, campaign.losses)
    trained = retrain.construct(campaign.objective, first, change, campaign.losses)
    moved = np.linalg.norm(last(trained) - last(first))
    assert np.linalg.norm(last(replayed) - last(trained)) < 0.1 * moved
    assert replayed.diagnostics.sweeps < 0.5 * trained.diagnostics.sweeps


@pytest.mark.parametrize("name", CONSTRUCTORS)
@pytest.mark.parametrize("C", [2, 4])
def test_undo_then_redo_comes_back(rng: np.random.Generator, name: str, C: int) -> None:
    campaign = Campaign(rng, C, n=600)
    constructor = make_constructor(name, descent=replace(SMALL, minibatch=100, early_stopping=False))
    first = constructor.initialise(campaign.objective, campaign.losses)
    change = campaign.clean([1, 50, 300, 599], [0, 1, 1, 0])
    after = constructor.construct(campaign.objective, first, change, campaign.losses)
    undo = campaign.clean(change.indices, [-1, -1, -1, -1])
    np.testing.assert_array_equal(undo.Y_new, change.Y_old)
    back = constructor.construct(campaign.objective, after, undo, campaign.losses)
    redo = campaign.clean(change.indices, [0, 1, 1, 0])
    again = constructor.construct(campaign.objective, back, redo, campaign.losses)
    moved = np.linalg.norm(after.point.W - first.point.W)
    tolerance = {"newton": 1e-3, "retrain": 0.0, "deltagrad_l": 0.02}[name] * moved
    assert moved > 1e-3
    assert np.linalg.norm(back.point.W - first.point.W) <= tolerance
    assert np.linalg.norm(again.point.W - after.point.W) <= tolerance


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_any_change_of_label_and_weight_is_followed(rng: np.random.Generator, name: str) -> None:
    campaign = Campaign(rng, C=3, n=600)
    constructor = make_constructor(name, descent=replace(SMALL, minibatch=100, early_stopping=False))
    first = constructor.initialise(campaign.objective, campaign.losses)
    items = np.array([5, 6, 7])
    Y, weight = np.array([[0.2, 0.2, 0.6], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), np.array([0.0, 3.0, 1.5])
    labels = campaign.objective.labels
    change = LabelChange(items, labels.Y[items], labels.weight[items], Y, weight)
    labels.Y[items], labels.weight[items] = Y, weight
    followed = constructor.construct(campaign.objective, first, change, campaign.losses)
    anew = constructor.initialise(campaign.objective, campaign.losses)
    moved = np.linalg.norm(anew.point.W - first.point.W)
    assert np.linalg.norm(followed.point.W - anew.point.W) < 0.15 * moved


@pytest.mark.parametrize("C", [2, 3])
def test_newton_where_the_factor_is_too_large(
    rng: np.random.Generator, C: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelchef.model.curvature.LARGEST_FACTOR", 8)
    monkeypatch.setattr("labelchef.model.curvature.SKETCH_ROWS", 30)
    campaign = Campaign(rng, C, n=300, d=20, l2=0.01)
    newton = NewtonConstructor()
    first = newton.initialise(campaign.objective, campaign.losses)
    assert first.keeper.factor.E.shape[1] <= 30
    after = newton.construct(campaign.objective, first, campaign.clean([3, 4, 250], [0, 1, 1]), campaign.losses)
    assert after.diagnostics.gradient_norm <= 1e-6 * (1 + np.linalg.norm(after.point.W))
    np.testing.assert_allclose(after.point.W, campaign.problem.optimum_by_scipy(), atol=1e-5)


def test_a_trajectory_past_the_limit_lies_in_a_file(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(rng)
    mapped = DeltaGradLConstructor(replace(SMALL, memory_limit=1000))
    first = mapped.initialise(campaign.objective, campaign.losses)
    assert first.trajectory is not None
    base: Any = first.trajectory.gradients
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(getattr(base, "obj", base), mmap.mmap)
    in_memory = DeltaGradLConstructor(SMALL).initialise(campaign.objective, campaign.losses)
    change = campaign.clean([3, 4], [0, 1])
    one = mapped.construct(campaign.objective, first, change, campaign.losses)
    other = DeltaGradLConstructor(SMALL).construct(campaign.objective, in_memory, change, campaign.losses)
    np.testing.assert_array_equal(one.point.W, other.point.W)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("labelchef.chef.constructors.descent.os.posix_fallocate", full)
    with pytest.raises(InvalidInputError, match="No space left on device; set TMPDIR"):
        mapped.initialise(campaign.objective, campaign.losses)


def test_a_mapped_trajectory_travels_to_other_processes(rng: np.random.Generator) -> None:
    constructor = DeltaGradLConstructor(replace(SMALL, memory_limit=0))
    cleaner = cleaner_on(make_problem(rng, n=200), constructor=constructor, budget=None)
    copied = pickle.loads(pickle.dumps(cleaner))
    one, other = (who.update([1, 2], [0, 1]).W_ for who in (cleaner, copied))
    np.testing.assert_array_equal(one, other)
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(lambda who: who.update([3], [1]).W_)(cleaner) for _ in range(2))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("rest", [1, 3])
def test_rows_left_over_do_not_spoil_the_last_step(rng: np.random.Generator, rest: int) -> None:
    problem = make_problem(rng, n=400 + rest, d=100, C=2, l2=1e-3)
    found = RetrainConstructor(DescentSettings(epochs=20, minibatch=200, early_stopping=False)).initialise(
        problem.objective(), problem.losses
    )
    assert found.point.value < problem.value(np.zeros(problem.shape))


@pytest.mark.parametrize("name", ["retrain", "deltagrad_l"])
def test_a_companion_rides_on_the_last_sweep(rng: np.random.Generator, name: str) -> None:
    campaign = Campaign(rng, C=2)
    constructor = make_constructor(name, descent=SMALL)
    first = constructor.initialise(campaign.objective, campaign.losses)
    companion = Companion(
        np.zeros(campaign.objective.shape), np.zeros(campaign.objective.shape), campaign.problem.val_gradient
    )
    after = constructor.construct(campaign.objective, first, campaign.clean([3], [0]), campaign.losses, companion)
    assert after.point.linear is not None
    V = after.point.linear.V.ravel()
    np.testing.assert_allclose(after.point.linear.HV.ravel(), campaign.problem.hessian(after.point.W) @ V, atol=1e-9)


def test_newton_follows_where_the_changed_rows_are_half_of_all() -> None:
    for seed in range(12):
        campaign = Campaign(np.random.default_rng(seed), C=2, n=5, d=5, l2=0.01)
        newton = NewtonConstructor()
        found = newton.initialise(campaign.objective, campaign.losses)
        for k in range(4):
            change = campaign.clean([k, k + 1], [seed % 2, k % 2])
            found = newton.construct(campaign.objective, found, change, campaign.losses)
            assert found.diagnostics.converged


def test_an_interrupt_at_any_step_leaves_whole_rounds(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(rng, n=200, C=3)
    for where in ("_follow", "_record"):
        for action in ("update", "undo"):
            cleaner = cleaner_on(problem, constructor=DeltaGradLConstructor(SMALL)).update([5, 6], [1, -1])
            before = (cleaner.labels_, cleaner.W_, len(cleaner.rounds_), cleaner._session.labels.attempts.copy())

            def interrupted(*_: Any, **__: Any) -> None:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(cleaner._session, where, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    cleaner.undo() if action == "undo" else cleaner.update([1, 2], [0, 1])
            after = (cleaner.labels_, cleaner.W_, len(cleaner.rounds_), cleaner._session.labels.attempts)
            for one, other in zip(before, after, strict=True):
                np.testing.assert_array_equal(one, other)
            cleaner.undo()
            assert not cleaner._session.labels.attempts.any()


def test_look_ahead_does_not_run_ahead_of_an_early_stop(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=400, d=6, C=2, l2=0.01)
    early = RetrainConstructor(DescentSettings(learning_rate=0.05, epochs=2, minibatch=100))
    cleaner = cleaner_on(problem, constructor=early)
    seen: list[Array] = [cleaner.W_]
    split = cleaner._session.steering

    def watched(look: Callable[[Array], Any]) -> Callable[[Array], Any]:
        def looked(W: Array) -> Any:
            seen.append(W)
            return look(W)

        return looked

    split.at = watched(split.at)  # type: ignore[method-assign, assignment]
    split.gradient_there = watched(split.gradient_there)  # type: ignore[method-assign, assignment]
    cleaner.query(40)
    away = float(np.linalg.norm(problem.optimum() - cleaner.W_))
    steps = [float(np.linalg.norm(after - before)) for before, after in itertools.pairwise(seen)]
    assert len(steps) == 39  # between 40 picks
    assert max(steps) < 0.3 * away  # a renewal moves no farther than a pick does, though the optimum lies far off


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0; expected a number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"epochs": 0}, "epochs is 0; expected a whole number of at least 1"),
        ({"minibatch": 2.5}, "minibatch is 2.5"),
        ({"seed": -1}, "seed is -1"),
        ({"learning_rate": "0.1"}, "learning_rate is '0.1'"),
    ],
)
def test_bad_descents_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        DescentSettings(**changes)


@pytest.mark.parametrize(
    ("changes", "message"), [({"period": 0}, "period is 0"), ({"history": True}, "history is True")]
)
def test_bad_replays_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        DeltaGradLConstructor(**changes)


def test_numbers_of_numpy_are_taken(rng: np.random.Generator) -> None:
    settings = DescentSettings(learning_rate=np.float32(0.1), epochs=np.int64(3), minibatch=np.int32(50))  # type: ignore[arg-type]
    cleaner = cleaner_on(make_problem(rng, n=200), constructor=DeltaGradLConstructor(settings))
    assert cleaner.rounds_[0].construction.explicit == 12
    with pytest.raises(InvalidInputError, match=r"a Constructor \(an instance\)"):
        paper_cleaner(constructor=DeltaGradLConstructor).fit([[1.0]], [[1.0, 0.0]], X_val=[[1.0]], y_val=[0])
    with pytest.raises(InvalidInputError, match="train fewer epochs"):
        cleaner_on(make_problem(rng, n=200), constructor=RetrainConstructor(DescentSettings(epochs=10**14)))


def cleaner_on(problem: Problem, **settings: Any) -> LabelCleaner:
    y_val = problem.Y_val.argmax(axis=1)
    cleaner = paper_cleaner(**settings)
    return cleaner.fit(problem.X[:, :-1], problem.Y, X_val=problem.X_val[:, :-1], y_val=y_val)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_a_campaign_runs_with_every_constructor(rng: np.random.Generator, name: str) -> None:
    problem = make_problem(rng, n=300, C=3)
    truth = problem.Y.argmax(axis=1)
    cleaner = cleaner_on(problem, constructor=name, budget=30, l2=problem.l2)
    result = cleaner.run(lambda batch: truth[batch.indices])
    assert result.history["spent"].iloc[-1] == 30
    distances = result.history["distance_to_optimum"]
    optimum = replace(problem, Y=cleaner.labels_, weight=np.where(cleaner.cleaned_, 1.0, 0.8)).optimum()
    assert np.linalg.norm(cleaner.W_ - optimum) <= distances.iloc[-1] + 1e-9
    again = cleaner_on(problem, constructor=name, budget=30, l2=problem.l2)
    assert again.run(lambda batch: truth[batch.indices]).history["val_loss"].equals(result.history["val_loss"])


def test_the_seed_reaches_the_schedule(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=5000, d=3)
    one, same, other = (cleaner_on(problem, constructor="retrain", random_state=seed).W_ for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    drawn = cleaner_on(problem, constructor="retrain", random_state=np.random.default_rng(5)).W_
    np.testing.assert_array_equal(
        drawn, cleaner_on(problem, constructor="retrain", random_state=np.random.default_rng(5)).W_
    )


def test_undo_takes_rounds_back_one_by_one(rng: np.random.Generator) -> None:
    problem = make_problem(rng, n=300, C=3)
    cleaner = cleaner_on(problem)
    W0, labels0 = cleaner.W_, cleaner.labels_
    cleaner.update([1, 2], [0, -1])
    W1, labels1 = cleaner.W_, cleaner.labels_
    cleaner.update([1, 3], [2, 2])
    cleaner.undo()
    np.testing.assert_array_equal(cleaner.labels_, labels1)
    np.testing.assert_allclose(cleaner.W_, W1, atol=2e-6)
    cleaner.undo()
    np.testing.assert_array_equal(cleaner.labels_, labels0)
    np.testing.assert_allclose(cleaner.W_, W0, atol=2e-6)
    assert len(cleaner.rounds_) == 5
    assert cleaner.history_["spent"].tolist() == [0, 2, 3, 3, 3]
    assert not cleaner._session.labels.attempts.any()
    with pytest.raises(InvalidInputError, match="no round to take back"):
        cleaner.undo()
