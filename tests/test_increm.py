"""INFL with pruning selects what a full evaluation selects; look-ahead accounts for its own picks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.datasets import load_digits

from labelchef import Known
from labelchef.base.records import Batch
from labelchef.chef.baselines import Theorem1Selector
from labelchef.chef.selectors import (
    IncremInflSelector,
    InflSelector,
    LookAheadSelector,
    SelectionContext,
    Selector,
    look_ahead,
)
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.solvers import solve_spd
from tests.oracles import paper_cleaner, power_norm
from tests.profiles import examples


def problem(seed: int, n: int, C: int, d: int = 6, twins: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n + 60)
    X = rng.normal(size=(n + 60, d)) + 1.5 * rng.normal(size=(C, d))[y]
    weak = rng.dirichlet(np.ones(C), n)
    if twins:  # copies with equal labels: exact ties
        X[twins : 2 * twins], weak[twins : 2 * twins], y[twins : 2 * twins] = X[:twins], weak[:twins], y[:twins]
    return {"X": X[:n], "Y": weak, "y": y[:n], "Xv": X[n:], "yv": y[n:]}


def campaign(data: dict[str, Any], selector: Selector, rounds: int, b: int, **other: Any) -> list[Any]:
    cleaner = paper_cleaner(selector=selector, look_ahead=False, budget=None, batch_size=b, **other)
    cleaner.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"], classes=list(range(data["Y"].shape[1])))
    batches = []
    for _ in range(rounds):
        batch = cleaner.query()
        batches.append(batch)
        if len(batch) == 0:
            break
        cleaner.update(batch.indices, data["y"][batch.indices])
    return batches


def assert_same(one: list[Any], two: list[Any]) -> None:
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.indices, b.indices)
        np.testing.assert_array_equal(a.suggested, b.suggested)
        np.testing.assert_allclose(a.influence, b.influence, rtol=1e-6, atol=1e-12)


@settings(max_examples=examples(0.8))
@given(
    seed=st.integers(0, 2**32 - 1),
    C=st.integers(2, 8),
    b=st.sampled_from([1, 3, 10, 40]),
    gamma=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    l2=st.sampled_from([1e-3, 0.02, 1.0]),
    twins=st.sampled_from([0, 30]),
)
@pytest.mark.filterwarnings("ignore::labelchef.MissingClassWarning")
def test_pruned_equals_full_in_every_round(seed: int, C: int, b: int, gamma: float, l2: float, twins: int) -> None:
    data = problem(seed, 160, C, twins=twins)
    full = campaign(data, InflSelector(tol=1e-9, prune=False), 7, b, gamma=gamma, l2=l2)
    pruned = campaign(data, InflSelector(tol=1e-9), 7, b, gamma=gamma, l2=l2)
    assert_same(full, pruned)


@pytest.mark.parametrize("selector", [InflSelector, IncremInflSelector])
def test_pruning_says_what_it_did(selector: type[InflSelector]) -> None:
    data = problem(5, 6000, 2, d=8)
    full = campaign(data, InflSelector(prune=False), 9, 10)
    pruning = campaign(data, selector(), 9, 10)
    assert_same(full, pruning)
    first, later = pruning[0].diagnostics, [b.diagnostics for b in pruning[1:]]
    assert first.fell_back
    assert first.candidates == 6000
    pruned = [d for d in later if not d.fell_back]
    assert len(pruned) >= 5
    for d in pruned:
        assert d.candidates < 600
        assert 0.0 <= d.slack < np.inf
        assert d.seconds > d.solve_seconds
    whole = [b.diagnostics for b in full]
    assert all(d.candidates > 5000 and not d.fell_back for d in whole)


def test_a_huge_move_stays_exact() -> None:
    data = problem(2, 800, 3)
    cleaner = paper_cleaner(selector="infl", look_ahead=False, l2=1e-3)
    full = paper_cleaner(selector=InflSelector(prune=False), look_ahead=False, l2=1e-3)
    for one in (cleaner, full):
        one.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
        one.query()
        one.update(np.arange(300), data["y"][:300])
    assert_same([full.query()], [cleaner.query()])


def test_a_label_taken_back_is_bounded_by_what_it_is_now() -> None:
    """A sample that was clean in the last round and is weak again must be found again."""
    data = problem(8, 1500, 2)
    cleaner = paper_cleaner(selector="infl", look_ahead=False, batch_size=8)
    full = paper_cleaner(selector=InflSelector(prune=False), look_ahead=False, batch_size=8)
    for one in (full, cleaner):
        one.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
    best = full.query(40).indices
    for one in (full, cleaner):
        one.update(best, full.query(40).suggested)
        one.query()
        one.update(best, np.full(40, -1))
    for _ in range(4):
        ours, theirs = cleaner.query(), full.query()
        assert_same([theirs], [ours])
        for one in (full, cleaner):
            one.update(theirs.indices, data["y"][theirs.indices])


def test_nothing_left_and_fewer_left_than_asked() -> None:
    batches = campaign(problem(3, 60, 2), InflSelector(), 9, 25)
    assert [len(b) for b in batches] == [25, 25, 10, 0]


@given(seed=st.integers(0, 2**32 - 1), C=st.integers(2, 6), n=st.integers(1, 400))
def test_no_row_within_reach_is_missed(seed: int, C: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    engine = MemoryEngine(np.zeros((n, 1)), bias=False)
    A, S = rng.normal(size=(2, n, C - 1))
    labels = RowLabels(rng.dirichlet(np.ones(C), n), rng.uniform(0, 1, n))
    eligible = rng.random(n) < 0.8
    best, _ = engine.scores(A, S, labels, eligible)
    reach = float(rng.uniform(0, 3))
    rows = engine.within_reach(S, labels, eligible, reach)
    if rows is not None:
        assert set(np.flatnonzero(best <= -reach)) <= set(rows.tolist())
        assert eligible[rows].all()


@pytest.mark.parametrize("delta_terms", [True, False])
def test_theorem_1_selects_the_same_on_a_calm_problem(delta_terms: bool) -> None:
    data = problem(7, 2000, 2)
    full = campaign(data, InflSelector(prune=False), 6, 10, l2=0.5)
    paper = campaign(data, Theorem1Selector(delta_terms=delta_terms), 6, 10, l2=0.5)
    assert_same(full, paper)
    assert paper[0].diagnostics.fell_back
    assert all(b.diagnostics.candidates >= 10 for b in paper[1:])


def test_theorem_1_without_its_void_terms_prunes_better() -> None:
    data = problem(7, 2000, 2)
    loose, tight = (
        [b.diagnostics.candidates for b in campaign(data, Theorem1Selector(delta_terms=terms), 6, 5, l2=2.0)[1:]]
        for terms in (True, False)
    )
    assert sum(tight) < sum(loose)


def digits_f1(seed: int, b: int, ahead: bool) -> float:
    bunch, rng = load_digits(), np.random.default_rng(seed)
    order = rng.permutation(len(bunch.target))
    X, y = bunch.data[order] / 16, bunch.target[order]
    cleaner = paper_cleaner(budget=50, batch_size=b, look_ahead=ahead)
    weak = rng.dirichlet(np.ones(10), 1000)
    cleaner.fit(X[:1000], weak, X_val=X[1000:1300], y_val=y[1000:1300], known=Known(X_test=X[1300:], y_test=y[1300:]))
    return float(cleaner.run(lambda batch: y[batch.indices]).history["test_f1_macro"].iloc[-1])


@pytest.mark.slow
def test_look_ahead_recovers_most_of_what_a_batch_loses() -> None:
    plain, ahead, single = (
        np.mean([digits_f1(seed, b, on) for seed in range(3)]) for b, on in ((50, False), (50, True), (1, False))
    )
    assert single - plain > 0.1
    assert ahead - plain >= 0.7 * (single - plain)


def test_look_ahead_predicts_what_a_batch_brings() -> None:
    """Summed over a batch, plain influence promises too much; with look-ahead it comes true."""
    data = problem(11, 500, 3)
    ratios = {}
    for ahead in (False, True):
        cleaner = paper_cleaner(batch_size=40, budget=40, look_ahead=ahead, l2=0.02)
        cleaner.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
        batch = cleaner.query()
        row = cleaner.update(batch.indices, batch.suggested).history_.iloc[-1]
        ratios[ahead] = row["predicted_change"] / row["realised_change"]
        assert len(set(batch.indices.tolist())) == 40
    assert ratios[True] == pytest.approx(1.0, abs=0.15)
    assert abs(ratios[True] - 1.0) < abs(ratios[False] - 1.0)


def test_look_ahead_starts_with_the_best_and_leaves_no_trace() -> None:
    data = problem(4, 300, 3)
    plain, ahead = paper_cleaner(look_ahead=False), paper_cleaner(look_ahead=True)
    for one in (plain, ahead):
        one.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
    W, labels = ahead.W_, ahead.labels_
    first, again = ahead.query(45), ahead.query(45)
    assert first.indices[0] == plain.query().indices[0]
    np.testing.assert_array_equal(first.indices, again.indices)
    np.testing.assert_array_equal(ahead.W_, W)
    np.testing.assert_array_equal(ahead.labels_, labels)
    session = ahead._session
    context = session.context(~session.labels.cleaned)
    np.testing.assert_array_equal(context.validation.W, W)
    np.testing.assert_array_equal(context.validation.gradient, session.steering.at(W).gradient)
    np.testing.assert_array_equal(ahead.query(1).indices, plain.query(1).indices)


def test_look_ahead_when_the_labels_are_there_already() -> None:
    """Weak labels that are one-hot already, with full weight: assuming them moves nothing."""
    data = problem(6, 200, 2)
    cleaner = paper_cleaner(gamma=1.0, selector=LookAheadSelector(InflSelector(), renew=2), look_ahead=False)
    cleaner.fit(data["X"], np.eye(2)[data["y"]], X_val=data["Xv"], y_val=data["yv"])
    assert len(cleaner.query(6)) == 6


@settings(max_examples=examples(0.4))
@given(
    seed=st.integers(0, 2**32 - 1),
    C=st.integers(5, 20),
    n=st.integers(64, 300),
    gamma=st.sampled_from([0.0, 0.3, 0.8]),
    l2=st.sampled_from([1e-4, 1e-3, 1e-2]),
    ahead=st.booleans(),
)
@pytest.mark.filterwarnings("ignore::labelchef.MissingClassWarning", "ignore::labelchef.ConvergenceWarning")
def test_the_residual_that_is_claimed_is_the_true_one(
    seed: int, C: int, n: int, gamma: float, l2: float, ahead: bool
) -> None:
    """Large changes, many classes, weak regularisation: where corrections of V diverge, V must not follow them."""
    data = problem(seed, n, C, d=30)
    cleaner = paper_cleaner(batch_size=25, gamma=gamma, l2=l2, look_ahead=ahead)
    cleaner.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"], classes=list(range(C)))
    for _ in range(3):
        batch = cleaner.query()
        assert len(batch) == min(25, int((~cleaner.cleaned_).sum()))
        assert np.isfinite(batch.influence).all()
        if len(batch) == 0:
            break
        session = cleaner._session
        linear, point = session._carried, session.construction.point
        assert linear is not None
        g = session.steering.at(point.W).gradient
        product, _ = session.objective.hessian_product(point, linear.V)
        true = float(np.linalg.norm(g - product) / np.linalg.norm(g))
        assert true <= batch.diagnostics.residual + 1e-8
        cleaner.update(batch.indices, data["y"][batch.indices])


@pytest.mark.parametrize("scale", [1.0, 16.0])
def test_a_renewal_ranks_with_a_V_that_was_solved(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    bunch, rng = load_digits(), np.random.default_rng(0)
    X, y = scale * bunch.data[:600] / 16, bunch.target[:600]
    residuals = []
    whole = solve_spd

    def watched(*given: Any, **options: Any) -> Any:
        solved = whole(*given, **options)
        residuals.append(solved.residual)
        return solved

    monkeypatch.setattr(look_ahead, "solve_spd", watched)
    cleaner = paper_cleaner(batch_size=65, l2=1e-3)
    cleaner.fit(X[:300], rng.dirichlet(np.ones(10), 300), X_val=X[300:], y_val=y[300:])
    batch = cleaner.query()
    assert len(residuals) == 3
    assert max(residuals) <= 1e-3
    assert np.isfinite(batch.influence).all()
    assert len(set(batch.indices.tolist())) == 65
    np.testing.assert_array_equal(cleaner.query(3).indices, batch.indices[:3])
    assert cleaner.query(65) is batch


def test_theorem_1_with_norms_by_the_power_method() -> None:
    data = problem(9, 60, 3)

    def norms(context: SelectionContext) -> Any:
        X = context.objective.engine.rows(np.arange(60))
        P = softmax(with_reference(context.point.logits), axis=1)
        found = []
        for x, p in zip(X, P, strict=True):
            J = np.diag(p) - np.outer(p, p)

            def product(v: Any, x: Any = x, J: Any = J) -> Any:
                return np.outer(x, (x @ v.reshape(len(x), -1)) @ J).ravel()

            found.append(power_norm(product, X.shape[1] * 3, context.rng, tol=1e-9))
        return np.array(found)

    plain = campaign(data, Theorem1Selector(), 4, 5)
    powered = campaign(data, Theorem1Selector(hessian_norms=norms), 4, 5)
    assert_same(plain, powered)
    assert [b.diagnostics.candidates for b in plain] == [b.diagnostics.candidates for b in powered]


def test_a_ranking_is_plain() -> None:
    """Whoever asks for most samples, or for very many, wants them in the order of INFL."""
    data = problem(12, 260, 2)
    cleaner = paper_cleaner().fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
    for size in (101, 131, 260, 5000):
        batch = cleaner.query(size)
        np.testing.assert_array_equal(batch.indices, np.argsort(cleaner.scores(), kind="stable")[:size])
        assert (np.diff(batch.influence) >= 0).all()
    assert not np.array_equal(cleaner.query(100).indices, cleaner.query(260).indices[:100])


class FirstOnes:
    """A selector of a user's own that knows nothing of influence."""

    name = "first"
    suggests = True

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        indices = np.flatnonzero(context.eligible)[:batch_size]
        return Batch(indices, np.zeros(len(indices), dtype=np.int64), np.zeros(len(indices)))


def test_a_selector_without_influence_is_left_as_it_is() -> None:
    data = problem(13, 100, 2)
    cleaner = paper_cleaner(selector=FirstOnes(), budget=30)
    cleaner.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"])
    rounds = cleaner.run(lambda batch: data["y"][batch.indices]).rounds
    assert [r.batch.indices.tolist() for r in rounds[1:]] == [list(range(k, k + 10)) for k in (0, 10, 20)]
