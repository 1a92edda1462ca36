"""Annotators, strategies and majority vote."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelchef.base.errors import InvalidInputError
from labelchef.base.records import Batch, Votes
from labelchef.believe.aggregation import MajorityVote
from labelchef.loop.annotators import (
    CallableAnnotator,
    GroundTruth,
    Panel,
    RecordedVotes,
    SimulatedAnnotators,
    Suggestion,
    make_strategy,
)


def batch_of(indices: list[int], suggested: list[int]) -> Batch:
    return Batch(np.array(indices), np.array(suggested), -np.arange(len(indices), 0, -1.0))


def decide(ballots: list[list[int]], suggested: int = 0, **settings: str) -> int:
    batch = batch_of([5], [suggested])
    votes = Votes.of([(f"w{k}", [5], vote) for k, vote in enumerate(ballots)])
    return int(MajorityVote(**settings).aggregate(votes, batch).labels[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ballots", "expected"),
    [
        ([[0], [0], [1]], 0),
        ([[1], [2], [1]], 1),
        ([[0], [1]], -1),
        ([[0], [1], [2]], -1),
        ([[-1], [-1], [1]], -1),
        ([[-1], [1]], -1),
        ([[-1], [1], [1]], 1),
        ([], -1),
    ],
)
def test_majority(ballots: list[list[int]], expected: int) -> None:
    assert decide(ballots) == expected


def test_ties_are_handled_as_asked() -> None:
    tie = [[2], [1]]
    assert decide(tie, tie="lowest") == 1
    assert decide(tie, suggested=2, tie="suggestion") == 2
    assert decide(tie, suggested=0, tie="suggestion") == -1
    assert decide([[-1], [1]], suggested=1, tie="suggestion") == -1
    with pytest.raises(InvalidInputError, match="coin"):
        MajorityVote(tie="coin")  # type: ignore[arg-type]


def test_votes_on_items_that_were_not_asked_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="not asked"):
        MajorityVote().aggregate(Votes.of([("a", [9], [0])]), batch_of([5], [0]))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 2)), max_size=20), st.randoms())
def test_majority_does_not_depend_on_the_order_of_votes(rows: list[tuple[int, int]], random: object) -> None:
    batch = batch_of([0, 1, 2, 3], [0, 0, 0, 0])
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    answers = [
        MajorityVote().aggregate(Votes.of([(f"w{k}", [i], [c]) for k, (i, c) in enumerate(order)]), batch)
        for order in (rows, shuffled)
    ]
    np.testing.assert_array_equal(answers[0].labels, answers[1].labels)
    np.testing.assert_array_equal(answers[0].support, answers[1].support)
    assert ((answers[0].support >= 0) & (answers[0].support <= 1)).all()


def test_simulated_people_err_independently_and_repeatably() -> None:
    truth = np.random.default_rng(0).integers(0, 4, 4000)
    people = SimulatedAnnotators(truth, n_classes=4, error_rates=(0.1, 0.3), seed=7)
    every = batch_of(list(range(4000)), [0] * 4000)
    one, two = people.annotate(every).labels.reshape(2, 4000)
    wrong_one, wrong_two = one != truth, two != truth
    assert wrong_one.mean() == pytest.approx(0.1, abs=0.02)
    assert wrong_two.mean() == pytest.approx(0.3, abs=0.03)
    assert (wrong_one & wrong_two).mean() == pytest.approx(0.03, abs=0.01)
    shift = (one - truth)[wrong_one] % 4
    assert np.bincount(shift, minlength=4)[1:].min() > 90  # every other class is said about equally often
    again = SimulatedAnnotators(truth, n_classes=4, error_rates=(0.1, 0.3), seed=7)
    few = batch_of([3999, 17], [0, 0])
    np.testing.assert_array_equal(again.annotate(few).labels, [one[3999], one[17], two[3999], two[17]])
    other = SimulatedAnnotators(truth, n_classes=4, error_rates=(0.1, 0.3), seed=8)
    assert (other.annotate(every).labels.reshape(2, 4000)[0] != one).any()


def test_strategies_of_the_paper() -> None:
    truth = np.array([0, 1, 1])
    batch = batch_of([0, 2], [1, 1])
    three = SimulatedAnnotators(truth, n_classes=2, error_rates=(0.0,) * 3)
    two = SimulatedAnnotators(truth, n_classes=2, error_rates=(0.0,) * 2)
    assert len(make_strategy("one", three).annotate(batch)) == 6
    assert set(make_strategy("two").annotate(batch).workers) == {"suggestion"}
    votes = make_strategy("three", two).annotate(batch)
    assert len(votes) == 6
    assert set(votes.workers) == {"suggestion", "person 1", "person 2"}
    assert MajorityVote().aggregate(votes, batch).labels.tolist() == [0, 1]
    with pytest.raises(InvalidInputError, match="needs people"):
        make_strategy("one")
    with pytest.raises(InvalidInputError, match="unknown strategy 'four'"):
        make_strategy("four")


def test_recorded_votes_and_items_without_any() -> None:
    crowd = RecordedVotes([(0, "a", 1), (0, "b", 1), (0, "c", 0), (3, "a", -1)])
    batch = batch_of([0, 1, 3], [0, 0, 0])
    decided = MajorityVote().aggregate(crowd.annotate(batch), batch)
    assert decided.labels.tolist() == [1, -1, -1]
    assert decided.support.tolist() == [pytest.approx(2 / 3), 0.0, 0.0]


def test_panel_joins_votes() -> None:
    batch = batch_of([1], [0])
    panel = Panel((Suggestion(), GroundTruth(np.array([1, 1])), CallableAnnotator(lambda b: [0] * len(b), "rule")))
    assert list(panel.annotate(batch)) == [(1, "suggestion", 0), (1, "truth", 1), (1, "rule", 0)]


@pytest.mark.parametrize("answer", [[0], [[0], [1]], ["x", "y"], [0.5, 0.5]])
def test_callables_that_answer_wrongly_are_refused(answer: list[object]) -> None:
    with pytest.raises(InvalidInputError, match="the annotator gave"):
        CallableAnnotator(lambda b: answer).annotate(batch_of([1, 2], [0, 0]))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("rates", [(), (1.5,), (-0.1, 0.2)])
def test_error_rates_are_probabilities(rates: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        SimulatedAnnotators(np.zeros(3, dtype=np.int64), n_classes=2, error_rates=rates)


def test_a_truth_that_is_too_short_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="item 7 was asked"):
        GroundTruth(np.array([0, 1])).annotate(batch_of([7], [0]))
    with pytest.raises(InvalidInputError, match="per_item=0"):
        RecordedVotes([], per_item=0)


def test_support_is_the_share_of_all_votes() -> None:
    batch = batch_of([4], [0])
    votes = Votes.of([("a", [4], [1]), ("b", [4], [1]), ("c", [4], [-1])])
    assert MajorityVote().aggregate(votes, batch).support[0] == pytest.approx(2 / 3)
