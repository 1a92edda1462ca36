"""The predicted change of a record, compared with the change that an independent refit finds.

Trusted samples steer. With expected influence, 12 rounds of 10, a third of the answers drawn by chance, the rank correlation
found is 0.98 and more and the mean error 9 to 15 % of the change. The sum of `batch.influence`, which ignores the answers, errs
by 47 to 88 %.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import spearmanr

from labelchef import LabelCleaner
from labelchef.base.records import UNRESOLVED, Batch, Decisions, RoundRecord, SelectionDiagnostics, Votes
from labelchef.believe.aggregation import MajorityVote
from labelchef.loop.annotators import CallableAnnotator
from labelchef.loop.ledger.conversion import record_as_json, record_from_json
from labelchef.loop.session import MOST_ATTEMPTS
from labelchef.model.influence import influence_matrix
from tests.oracles import STEERED, Array, Problem, cleaner_of

N, N_VAL, ROUNDS, B = 300, 80, 12, 10
L2, GAMMA = 0.02, 0.3


def drawn(C: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([C, seed])
    y = rng.integers(0, C, N + N_VAL)
    X = rng.normal(size=(N + N_VAL, 5)) + 1.2 * rng.normal(size=(C, 5))[y]
    return {"X": X[:N], "Y": rng.dirichlet(np.ones(C), N), "y": y[:N], "X_val": X[N:], "y_val": y[N:]}


def fitted(data: dict[str, Any], **given: Any) -> LabelCleaner:
    cleaner = cleaner_of(**{**STEERED, "gamma": GAMMA, "l2": L2, "batch_size": B, "holdout": 0, "tol": 1e-9, **given})
    return cleaner.fit(data["X"], data["Y"], X_val=data["X_val"], y_val=data["y_val"])


def dense(data: dict[str, Any], cleaner: LabelCleaner) -> Problem:
    """The training problem with the labels as they stand, for a refit that shares no code with the package."""
    Z, Z_val = (np.hstack([X, np.ones((len(X), 1))]) for X in (data["X"], data["X_val"]))
    weight = np.where(cleaner.cleaned_, 1.0, GAMMA)
    return Problem(Z, cleaner.labels_, weight, L2, Z_val, np.eye(data["Y"].shape[1])[data["y_val"]])


def by_dense_algebra(problem: Problem) -> Array:
    """Formula (A) for every sample and class, with the Hessian written out."""
    W = problem.optimum()
    V = np.linalg.solve(problem.fast_hessian(W), problem.val_gradient(W).ravel()).reshape(W.shape)
    return influence_matrix(problem.X @ V, softmax(problem.X @ W, axis=1), problem.Y, problem.weight)


def partly_other(batch: Batch, data: dict[str, Any], rng: np.random.Generator) -> "np.ndarray[Any, Any]":
    """True labels, for a third of the items any label, for a few none."""
    C = data["Y"].shape[1]
    answers = np.where(rng.random(len(batch)) < 1 / 3, rng.integers(0, C, len(batch)), data["y"][batch.indices])
    return np.where(rng.random(len(batch)) < 0.05, UNRESOLVED, answers)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("C", [2, 3])
def test_the_prediction_agrees_with_a_refit(C: int, seed: int) -> None:
    data, rng = drawn(C, seed), np.random.default_rng(C)
    cleaner = fitted(data)
    losses = [dense(data, cleaner).val_loss(dense(data, cleaner).optimum())]
    agreed = 0
    for _ in range(ROUNDS):
        batch = cleaner.query()
        answers = partly_other(batch, data, rng)
        agreed += int((answers == batch.suggested).sum())
        cleaner.update(batch.indices, answers)
        problem = dense(data, cleaner)
        losses.append(problem.val_loss(problem.optimum()))
    assert 0.3 < agreed / (ROUNDS * B) < 0.9, "answers partly differ from the suggestions"
    records = cleaner.rounds_[1:]
    realised = np.diff(losses)
    predicted = np.array([record.predicted_change for record in records])
    before = np.array([record.batch.influence.sum() / N for record in records])
    np.testing.assert_allclose([record.realised_change for record in records], realised, atol=1e-7)
    assert spearmanr(predicted, realised).statistic > 0.95
    assert predicted @ realised / (realised @ realised) == pytest.approx(1.0, abs=0.25)
    error, old = (np.abs(change - realised).sum() / np.abs(realised).sum() for change in (predicted, before))
    assert error < 0.2
    assert error < old / 3


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("selector", ["expected_infl", "infl", "increm_infl"])
def test_without_look_ahead_it_is_the_plain_formula(selector: str, C: int) -> None:
    data, rng = drawn(C, 1), np.random.default_rng(C)
    cleaner = fitted(data, selector=selector, look_ahead=False)
    for _ in range(3):
        plain = by_dense_algebra(dense(data, cleaner))
        batch = cleaner.query()
        np.testing.assert_allclose(batch.by_answer, plain[batch.indices], rtol=1e-4, atol=1e-6)
        answers = partly_other(batch, data, rng)
        answers[0] = UNRESOLVED
        record = cleaner.update(batch.indices, answers).rounds_[-1]
        said = answers != UNRESOLVED
        total = plain[batch.indices[said], answers[said]].sum() / N
        assert record.predicted_change == pytest.approx(total, rel=1e-4, abs=1e-8)
        assert cleaner.history_["predicted_change"].iloc[-1] == record.predicted_change


def test_the_influence_of_a_batch_follows_from_that_of_its_answers() -> None:
    data = drawn(3, 2)
    best = fitted(data, selector="infl").query()
    np.testing.assert_allclose(best.influence, best.by_answer[np.arange(B), best.suggested], rtol=1e-12)
    np.testing.assert_allclose(best.influence, best.by_answer.min(axis=1), rtol=1e-12)
    expected = fitted(data).query()
    assert (expected.influence > expected.by_answer.min(axis=1)).all()
    assert (expected.influence < expected.by_answer.max(axis=1)).all()


def test_with_look_ahead_a_pick_counts_after_those_before_it() -> None:
    """The first pick is predicted at the model as it stands, the second at a refit with the first one's answer."""
    data = drawn(2, 3)
    cleaner = fitted(data, selector="infl")
    batch = cleaner.query()
    problem = dense(data, cleaner)
    plain = by_dense_algebra(problem)
    np.testing.assert_allclose(batch.by_answer[0], plain[batch.indices[0]], rtol=1e-4)
    problem.Y[batch.indices[0]], problem.weight[batch.indices[0]] = np.eye(2)[batch.suggested[0]], 1.0
    after, second = by_dense_algebra(problem)[batch.indices[1]], plain[batch.indices[1]]
    assert np.abs(batch.by_answer[1] - after).max() < 0.5 * np.abs(second - after).max()


def test_what_predicts_nothing_says_so() -> None:
    data = drawn(2, 4)
    cleaner = fitted(data, selector="margin")
    batch = cleaner.query()
    assert batch.by_answer.shape == (B, 0)
    record = cleaner.update(batch.indices, data["y"][batch.indices]).rounds_[-1]
    assert np.isnan([record.predicted_change, cleaner.rounds_[0].predicted_change]).all()
    assert np.isnan(cleaner.rounds_[0].realised_change)
    assert record.realised_change == record.steering.loss - cleaner.rounds_[0].steering.loss
    influence = fitted(data)
    assert np.isnan(influence.update([0, 1], [0, 1]).rounds_[-1].predicted_change), "nobody was asked about these"


def test_a_second_answer_is_a_correction() -> None:
    data = drawn(2, 5)
    cleaner = fitted(data)
    batch = cleaner.query()
    cleaner.update(batch.indices, data["y"][batch.indices])
    again = cleaner.update(batch.indices[:3], 1 - data["y"][batch.indices[:3]]).rounds_[-1]
    assert np.isnan(again.predicted_change)
    assert (again.batch.suggested == UNRESOLVED).all()
    assert again.spent == B


def decided(items: Any, labels: Any) -> Decisions:
    return Decisions(np.array(items), np.array(labels), np.ones(len(items)))


def corrected(cleaner: LabelCleaner) -> tuple[Batch, RoundRecord]:
    """Two of ten items decided, in another order, and after them a correction and an item that was never asked."""
    session = cleaner._session
    batch = cleaner.query()
    first, second = batch.indices[[4, 2]].tolist()
    never = next(i for i in range(N) if i not in batch.indices and not cleaner.cleaned_[i])
    known = int(np.flatnonzero(cleaner.cleaned_)[0])
    return batch, session.decide(batch, Votes.of([]), decided([first, second, known, never], [0, 1, 0, 1]))


def test_the_session_aligns_the_batch_with_the_decisions() -> None:
    data = drawn(2, 6)
    cleaner = fitted(data)
    cleaner.update([7], [1])
    batch, record = corrected(cleaner)
    assert record.batch.indices.tolist() == record.decisions.items.tolist()
    np.testing.assert_array_equal(record.batch.suggested[:2], batch.suggested[[4, 2]])
    np.testing.assert_array_equal(record.batch.influence[:2], batch.influence[[4, 2]])
    np.testing.assert_array_equal(record.batch.by_answer[:2], batch.by_answer[[4, 2]])
    assert (record.batch.suggested[2:] == UNRESOLVED).all()
    assert np.isnan(record.batch.influence[2:]).all()
    assert np.isnan(record.batch.by_answer[2:]).all()
    assert record.predicted_change == pytest.approx((batch.by_answer[4, 0] + batch.by_answer[2, 1]) / N)


def test_what_is_put_to_people_is_spent_and_corrections_cost_nothing() -> None:
    data = drawn(2, 6)
    cleaner = fitted(data)
    cleaner.update([7], [1])
    assert corrected(cleaner)[1].spent == 1 + B
    cleaner.undo()
    assert cleaner.rounds_[-1].spent == 1 + B
    assert np.isnan(cleaner.rounds_[-1].predicted_change)


def test_a_second_tier_keeps_its_influences() -> None:
    """Samples asked in vain come after those never asked; both parts of the batch are predicted for."""
    data = drawn(2, 7)
    cleaner = fitted(data, look_ahead=False)
    first = cleaner.query(N - 4)
    cleaner.update(first.indices, np.full(len(first), UNRESOLVED))
    plain = by_dense_algebra(dense(data, cleaner))
    batch = cleaner.query(8)
    tiers = [np.flatnonzero(tier) for tier in cleaner._session.labels.tiers(MOST_ATTEMPTS)]
    assert [np.isin(batch.indices, tier).sum() for tier in tiers] == [4, 4]
    np.testing.assert_allclose(batch.by_answer, plain[batch.indices], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        cleaner.suggest(batch.indices[::-1]).by_answer, batch.by_answer[::-1], rtol=1e-4, atol=1e-6
    )


def test_the_loop_records_it_too() -> None:
    data = drawn(3, 8)
    cleaner = fitted(data, budget=30)
    result = cleaner.run(CallableAnnotator(lambda batch: data["y"][batch.indices].tolist()), aggregator=MajorityVote())
    for record in result.rounds[1:]:
        chosen = record.batch.by_answer[np.arange(B), record.decisions.labels]
        assert record.predicted_change == pytest.approx(chosen.sum() / N)


def test_batches_are_taken_apart_and_joined() -> None:
    one = Batch(np.array([3, 8]), np.array([0, 1]), np.array([-2.0, -1.0]), SelectionDiagnostics(sweeps=2.0, slack=3.0),
                by_answer=np.array([[-2.0, 1.0], [0.5, -1.0]]))  # fmt: skip
    two = Batch.without_predictions(np.array([5]))
    both = one.joined(two)
    assert both.indices.tolist() == [3, 8, 5]
    assert (both.diagnostics.sweeps, both.diagnostics.slack) == (2.0, 3.0)
    np.testing.assert_array_equal(both.by_answer, [[-2.0, 1.0], [0.5, -1.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(both.take(np.array([2, 0])).by_answer, [[np.nan, np.nan], [-2.0, 1.0]])
    assert both.take(slice(1)).indices.tolist() == [3]
    assert both.without(np.array([3, 99])).indices.tolist() == [8, 5]
    assert two.joined(two.take(slice(0))).by_answer.shape == (1, 0)
    assert two.take(slice(0)).joined(one).by_answer.tolist() == one.by_answer.tolist()
    assert np.isnan(two.predicted_change(np.array([0])))
    assert both.predicted_change(np.array([1, UNRESOLVED, 0])) == 1.0


@pytest.mark.parametrize("selector", ["expected_infl", "margin"])
def test_a_ledger_keeps_the_influence_of_each_answer(selector: str, tmp_path: Path) -> None:
    data = drawn(2, 9)
    cleaner = fitted(data, selector=selector)
    cleaner.update([7], [1])
    records = [cleaner.rounds_[-1], corrected(cleaner)[1]]
    for record in records:
        past = record_from_json(json.loads(json.dumps(record_as_json(record))))
        np.testing.assert_array_equal(past.batch.by_answer, record.batch.by_answer)
