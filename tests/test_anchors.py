"""Rounds without a sweep: every bound holds against dense algebra, and batches are as good as proven."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from labelchef import LabelCleaner
from labelchef.constructors import AnchoredConstructor
from labelchef.core.anchors import Anchor, AnchoredRows, KnownDirection, Metric, anchored, parameters
from labelchef.core.curvature import CurvatureKeeper, freeze
from labelchef.core.labels import LabelTable
from labelchef.core.objective import Linear, Objective
from labelchef.core.solvers import minimise
from labelchef.engines import MemoryEngine

L2 = 0.05


def objective_of(seed: int, N: int, d: int, decay: float = 0.0) -> tuple[Objective, LabelTable, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)) * (1.0 + np.arange(d)) ** -decay
    y = (X @ rng.normal(size=d) + rng.logistic(size=N) > 0).astype(int)
    q = np.clip(np.where(rng.random(N) < 0.75, y, 1 - y) * 0.6 + 0.2 + 0.1 * rng.normal(size=N), 0.01, 0.99)
    labels = LabelTable(np.stack([1 - q, q], axis=1), gamma=0.8)
    return Objective(MemoryEngine(X, bias=True), labels.rows, L2), labels, y


def optimum(objective: Objective, W: np.ndarray | None = None) -> tuple[Any, CurvatureKeeper]:
    start = objective.at(np.zeros(objective.shape) if W is None else W)
    keeper = CurvatureKeeper(freeze(objective, start.logits))
    return minimise(objective, start, keeper, tol=1e-12, max_sweeps=200).point, keeper


def dense_hessian(objective: Objective, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    X = objective.engine.rows(np.arange(objective.engine.n_rows))
    p = expit(X @ u)
    h = objective.labels.weight * p * (1 - p) / len(X)
    return X, (X.T * h) @ X + 0.5 * L2 * np.eye(X.shape[1])


def first_anchor(objective: Objective, b: np.ndarray) -> Anchor:
    point, _ = optimum(objective)
    metric = Metric.of(objective, freeze(objective, point.logits), np.asarray(point.logits))
    anchor = anchored(metric, point)
    X, H = dense_hessian(objective, anchor.u)
    v = np.linalg.solve(H, b)
    V = parameters(v)
    HV = np.stack([-H @ v, H @ v], axis=1)
    known = KnownDirection.of(Linear(V, (X @ v)[:, None], HV))
    return Anchor(metric, anchor.u, anchor.gradient, anchor.logits, anchor.drift, anchor.changed, known)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(200, 1500), st.integers(1, 9), st.integers(1, 8), st.floats(0.0, 1.0))
def test_bounds_hold_against_dense_algebra(seed: int, N: int, d: int, b: int, decay: float) -> None:
    """Model, direction and products are within their bounds of what dense algebra gives, for several rounds on one anchor."""
    objective, labels, y = objective_of(seed, N, d, decay)
    rng = np.random.default_rng(seed)
    g_val = rng.normal(size=d + 1)
    anchor = first_anchor(objective, g_val)
    metric = anchor.metric
    X, H = dense_hessian(objective, anchor.u)
    np.testing.assert_allclose(metric.leverage**2, np.einsum("ij,jk,ik->i", X, np.linalg.inv(H), X), rtol=1e-4)
    for _ in range(3):
        rows = rng.choice(N, b, replace=False)
        change = labels.assign(rows, y[rows])
        anchor = anchor.with_change(objective, rows, change.Y_old[:, 1], change.weight_old)
        found = anchor.model(objective)
        exact, _ = optimum(objective, parameters(found.u))
        u_exact = exact.W[:, 1] - exact.W[:, 0]
        assert np.linalg.norm(found.u - u_exact) <= found.distance(metric) + 1e-9
        _, H = dense_hessian(objective, found.u)
        gradient = objective.at(parameters(found.u)).gradient[:, 1]
        assert np.linalg.norm(gradient) <= found.gradient(metric) + 1e-12
        assert anchor.known is not None
        v, error = anchor.direction(objective, found, g_val, anchor.known)
        true = np.linalg.solve(H, g_val)
        assert (np.abs(X @ (v - true)) <= metric.leverage * error + 1e-9).all()


def test_bounds_say_something() -> None:
    """On ten thousand rows one label moves the model by less than a thousandth, and that is what is proven, within two digits."""
    objective, labels, y = objective_of(1, 10_000, 6)
    anchor = first_anchor(objective, np.random.default_rng(0).normal(size=7))
    change = labels.assign(np.array([17]), y[[17]])
    anchor = anchor.with_change(objective, np.array([17]), change.Y_old[:, 1], change.weight_old)
    found = anchor.model(objective)
    moved = np.linalg.norm(found.u - anchor.u)
    assert 0.0 < found.distance(anchor.metric) < 0.1 * moved
    assert anchor.known is not None
    v, error = anchor.direction(objective, found, np.random.default_rng(0).normal(size=7), anchor.known)
    assert error < 0.01 * anchor.metric.size(v)


def campaign(
    constructor: Any, N: int, rounds: int, C: int = 2, b: int = 3, **settings: Any
) -> tuple[LabelCleaner, list[Any]]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N + 200, 5))
    y = (X[:, :C] + rng.gumbel(size=(N + 200, C))).argmax(axis=1)
    weak = rng.dirichlet(np.ones(C), N)
    chosen: dict[str, Any] = {"selector": "infl", "look_ahead": False, **settings}
    cleaner = LabelCleaner(
        trusted="steer", gamma=0.8, holdout=0, l2=0.02, budget=None, batch_size=b, constructor=constructor, tol=1e-4, **chosen
    )  # fmt: skip
    cleaner.fit(X[:N], weak, X_val=X[N:], y_val=y[N:], classes=list(range(C)))
    batches = []
    for _ in range(rounds):
        batches.append(cleaner.query())
        cleaner.update(batches[-1].indices, y[batches[-1].indices])
    return cleaner, batches


def test_most_rounds_are_without_a_sweep_and_as_good_as_proven() -> None:
    """Of each batch without a sweep, no sample is worth less than the best one left out, less the regret that is proven."""
    share = 0.05
    constructor = AnchoredConstructor(tol=1e-4, share=share)
    cleaner, batches = campaign(constructor, 30_000, 8)
    sweeps = cleaner.history_["sweeps"].to_numpy()[1:]
    plain, others = campaign("newton", 30_000, 8)
    assert (sweeps < 0.01).sum() >= 4
    assert sweeps.sum() < 0.7 * plain.history_["sweeps"].to_numpy()[1:].sum()
    np.testing.assert_allclose(cleaner.W_, plain.W_, atol=2e-4)
    skipped = [batch for batch in batches if batch.diagnostics.sweeps < 0.01]
    assert skipped
    for batch in skipped:
        assert batch.diagnostics.candidates < 30_000
        assert 0.0 < -batch.diagnostics.slack <= -share * batch.influence[-1]
    for one, two in zip(batches, others, strict=True):  # the regret is a bound: in truth the batches are the same
        np.testing.assert_array_equal(one.indices, two.indices)


def test_everything_that_reads_the_model_still_works_after_a_round_without_a_sweep() -> None:
    """Scores, probabilities and predictions are those of the model that sweeps."""
    cleaner, _ = campaign(AnchoredConstructor(tol=1e-4, share=0.05), 20_000, 3)
    plain, _ = campaign("newton", 20_000, 3)
    session = cleaner._session
    assert isinstance(session.construction.point.logits, AnchoredRows)
    np.testing.assert_allclose(cleaner.posterior_, plain.posterior_, atol=1e-3)
    np.testing.assert_allclose(cleaner.scores(), plain.scores(), rtol=0.02, atol=1e-4)


@pytest.mark.parametrize("C", [2, 3])
def test_without_a_proof_it_is_newton(C: int) -> None:
    """With three classes, and where the regret allowed is tiny, the batches and models are those of 'newton'."""
    cleaner, batches = campaign(AnchoredConstructor(tol=1e-5, share=1e-9), 800, 4, C)
    plain, others = campaign("newton", 800, 4, C)
    for one, two in zip(batches, others, strict=True):
        np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_allclose(cleaner.W_, plain.W_, atol=1e-3)


@pytest.mark.parametrize(
    "settings", [{"look_ahead": True}, {"selector": "expected_infl"}, {"selector": "margin"}], ids=str
)
def test_other_selectors_get_a_model_that_was_swept(settings: dict[str, Any]) -> None:
    """Only INFL without look-ahead can choose without a sweep; models may be without one all the same."""
    cleaner, batches = campaign(AnchoredConstructor(tol=1e-4, share=0.05), 20_000, 4, **settings)
    assert isinstance(cleaner._session.construction.point.logits, AnchoredRows)
    plain, others = campaign("newton", 20_000, 4, **settings)
    np.testing.assert_allclose(cleaner.W_, plain.W_, atol=2e-4)
    if settings != {"selector": "margin"}:  # of 20,000 samples many are as near to the border, up to the tolerance
        assert [set(one.indices.tolist()) for one in batches] == [set(two.indices.tolist()) for two in others]


def test_a_label_can_be_taken_back() -> None:
    """Undoing a round gives the model of before."""
    cleaner, _ = campaign(AnchoredConstructor(tol=1e-4, share=0.05), 20_000, 2)
    before = cleaner.W_.copy()
    batch = cleaner.query()
    cleaner.update(batch.indices, [0] * len(batch))
    cleaner.undo()
    np.testing.assert_allclose(cleaner.W_, before, atol=3e-4)
