"""The loop: what ends it, what it writes down, what an interrupt leaves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from labelchef import Known, LabelCleaner, StopReason
from labelchef.base.records import Batch
from labelchef.chef.choice import make_selector
from labelchef.chef.constructors import NewtonConstructor
from labelchef.judge.metrics import measured
from labelchef.loop.annotators import GroundTruth, RecordedVotes, SimulatedAnnotators, Suggestion
from labelchef.loop.stopping import MaxRounds, NoPredictedGain, Plateau, Progress, StoppingRule, TargetReached
from tests.oracles import STEERED


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 500)
    X = (rng.normal(size=(500, 6)) + 1.2 * np.eye(3, 6)[y]).astype(np.float32)
    weak = 0.8 * rng.dirichlet(np.ones(3), 300) + 0.2 * np.eye(3)[rng.integers(0, 3, 300)]
    return {
        "X": X[:300],
        "Y": weak,
        "y": y[:300],
        "Xv": X[300:400],
        "yv": y[300:400],
        "Xt": X[400:],
        "yt": y[400:],
    }


def fitted(data: dict[str, Any], **settings: Any) -> LabelCleaner:
    cleaner = LabelCleaner(**settings)
    return cleaner.fit(
        data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"], known=Known(X_test=data["Xt"], y_test=data["yt"])
    )


@pytest.mark.parametrize("settings", [{}, STEERED], ids=["train", "steer"])
def test_budget_ends_the_loop_and_the_model_gets_better(data: dict[str, Any], settings: dict[str, Any]) -> None:
    cleaner = fitted(data, budget=95, batch_size=10, **settings)
    result = cleaner.run(SimulatedAnnotators(data["y"], n_classes=3))
    assert result.stopped_because == StopReason.BUDGET
    assert str(result.stopped_because) == "budget spent"
    history = result.history
    assert history["spent"].tolist() == [*range(0, 91, 10), 95]
    assert history["asked"].iloc[-1] == 5
    if settings:
        assert history["test_f1_macro"].iloc[-1] > history["test_f1_macro"].iloc[0] + 0.05
        assert history["steer_loss"].is_monotonic_decreasing
    else:  # the trusted samples have taught it already
        assert history["test_f1_macro"].min() > 0.6
    asked = np.concatenate([r.batch.indices for r in result.rounds])
    assert len(np.unique(asked)) == 95
    assert cleaner.cleaned_[asked].sum() == history["cleaned"].iloc[-1]


def test_the_record_is_complete(data: dict[str, Any]) -> None:
    cleaner = fitted(data, budget=10)
    record = cleaner.run(SimulatedAnnotators(data["y"], n_classes=3)).rounds[1]
    assert len(record.batch) == len(record.decisions.items) == 10
    assert len(record.votes) == 30
    assert set(record.seconds) == {"select", "annotate", "aggregate", "construct", "evaluate"}
    before = data["Y"][record.decisions.items].argmax(axis=1)
    after = cleaner.labels_[record.decisions.items].argmax(axis=1)
    np.testing.assert_array_equal(record.changed, record.decisions.items[before != after])
    assert record.construction.converged
    exact = cleaner._session.from_scratch().point.W  # of the same labels, proven
    assert np.linalg.norm(cleaner.W_ - exact) < 2e-3 * (1.0 + np.linalg.norm(exact))


def test_predicted_and_realised_change_agree(data: dict[str, Any]) -> None:
    history = (
        fitted(data, budget=50, batch_size=1, gamma=1.0, l2=0.01, **{**STEERED, "selector": "increm_infl"})
        .run(Suggestion())
        .history.iloc[1:]
    )
    ratio = history["realised_change"].sum() / history["predicted_change"].sum()
    assert ratio == pytest.approx(1.0, abs=0.15)


def test_a_target_ends_the_loop_early(data: dict[str, Any]) -> None:
    result = fitted(data, budget=300, target=0.62, target_metric="accuracy").run(GroundTruth(data["y"]))
    values = result.history["val_accuracy"]
    assert result.stopped_because == StopReason.TARGET
    assert values.iloc[-1] >= 0.62
    assert (values.iloc[:-1] < 0.62).all()


def test_a_target_met_at_once_asks_nobody(data: dict[str, Any]) -> None:
    def nobody(batch: Batch) -> list[int]:
        raise AssertionError("asked")

    result = fitted(data, target=100.0, target_metric="loss").run(nobody)
    assert result.stopped_because == StopReason.TARGET
    assert len(result.history) == 1


def test_everything_cleaned(data: dict[str, Any]) -> None:
    cleaner = fitted(data, budget=None, batch_size=77)
    result = cleaner.run(GroundTruth(data["y"]))
    assert result.stopped_because == StopReason.NOTHING_LEFT
    assert cleaner.cleaned_.all()
    assert result.history["asked"].tolist() == [0, 77, 77, 77, 69]
    np.testing.assert_array_equal(cleaner.labels_, np.eye(3)[data["y"]])
    assert len(cleaner.query()) == 0


def test_unresolved_items_keep_their_label_and_come_back_last(data: dict[str, Any]) -> None:
    cleaner = fitted(data, budget=None, batch_size=100)
    unsure = set(range(0, 300, 10))
    asked: list[int] = []

    def people(batch: Batch) -> list[int]:
        asked.extend(batch.indices.tolist())
        return [-1 if i in unsure else int(data["y"][i]) for i in batch.indices.tolist()]

    result = cleaner.run(people)
    assert result.stopped_because == StopReason.NOTHING_LEFT
    assert set(asked[:300]) == set(range(300))  # everyone once …
    assert sorted(asked[300:]) == sorted(unsure)  # … before the unresolved once again, and then no more
    assert "30 stayed unresolved" in result.message
    still = sorted(unsure)
    np.testing.assert_allclose(cleaner.labels_[still], data["Y"][still])
    assert not cleaner.cleaned_[still].any()


def test_items_without_recorded_votes_stay_unresolved(data: dict[str, Any]) -> None:
    cleaner = fitted(data, budget=20)
    result = cleaner.run(RecordedVotes([]))
    assert result.stopped_because == StopReason.BUDGET
    assert result.history["resolved"].sum() == 0
    assert result.history["val_loss"].nunique() == 1


def test_given_clean_samples_are_not_asked(data: dict[str, Any]) -> None:
    y_clean = np.where(np.arange(300) < 250, data["y"], -1)
    cleaner = LabelCleaner(budget=None)
    cleaner.fit(data["X"], data["Y"], X_val=data["Xv"], y_val=data["yv"], known=Known(y_clean=y_clean))
    assert cleaner.cleaned_.sum() == 250
    result = cleaner.run(GroundTruth(data["y"]))
    assert result.rounds[0].cleaned == 250
    assert min(int(r.batch.indices.min(initial=999)) for r in result.rounds) >= 250


def test_rules_compose(data: dict[str, Any]) -> None:
    rule = MaxRounds(3) & (TargetReached("loss", 50.0) | Plateau("accuracy", patience=2))
    result = fitted(data, budget=300, stop=rule).run(GroundTruth(data["y"]))
    assert result.stopped_because == StopReason.RULE
    assert str(rule) in result.message
    assert len(result.history) == 4


class ScriptedRounds:
    """Rounds with chosen validation losses."""

    def __init__(self, data: dict[str, Any], losses: list[float]) -> None:
        record = fitted(data).rounds_[0]
        self.rounds = [
            replace(record, number=k, validation=replace(record.validation, loss=loss)) for k, loss in enumerate(losses)
        ]

    def stops(self, rule: StoppingRule) -> bool:
        return rule.met(Progress(self.rounds))


def test_plateau(data: dict[str, Any]) -> None:
    rule = Plateau("loss", patience=2)
    assert not ScriptedRounds(data, [1.0, 0.9]).stops(rule)
    assert not ScriptedRounds(data, [1.0, 1.1, 0.9]).stops(rule)
    assert ScriptedRounds(data, [1.0, 1.1, 1.0]).stops(rule)
    assert ScriptedRounds(data, [1.0, 0.99, 0.98]).stops(Plateau("loss", patience=2, min_delta=0.05))


def test_no_predicted_gain(data: dict[str, Any]) -> None:
    rule, rounds = NoPredictedGain(), ScriptedRounds(data, [1.0]).rounds
    good = Batch(np.array([0]), np.array([0]), np.array([-1.0]))
    assert not rule.met(Progress(rounds))
    assert not rule.met(Progress(rounds, good))
    assert rule.met(Progress(rounds, replace(good, influence=np.array([0.1]))))
    mixed = Batch(np.array([0, 1]), np.array([0, 0]), np.array([-0.1, 0.2]))
    assert not rule.met(Progress(rounds, mixed))
    result = fitted(data, budget=None, stop=rule).run(GroundTruth(data["y"]))
    assert result.stopped_because in (StopReason.RULE, StopReason.NOTHING_LEFT)


def test_an_interrupt_leaves_whole_rounds(data: dict[str, Any]) -> None:
    straight = fitted(data, budget=60).run(GroundTruth(data["y"]))
    cleaner = fitted(data, budget=60)
    calls = 0

    def people(batch: Batch) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return [int(c) for c in data["y"][batch.indices]]

    with pytest.raises(KeyboardInterrupt):
        cleaner.run(people)
    assert len(cleaner.history_) == 3
    resumed = cleaner.run(people)
    for one, two in zip(straight.rounds, resumed.rounds, strict=True):
        np.testing.assert_array_equal(one.batch.indices, two.batch.indices)


def test_an_interrupt_within_an_update_takes_the_labels_back(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaner = fitted(data)
    labels, cleaned, W = cleaner.labels_, cleaner.cleaned_, cleaner.W_

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("labelchef.chef.constructors.newton.minimise", stop)
        with pytest.raises(KeyboardInterrupt):
            cleaner.update([1, 2], [0, -1])
    np.testing.assert_array_equal(cleaner.labels_, labels)
    np.testing.assert_array_equal(cleaner.cleaned_, cleaned)
    np.testing.assert_array_equal(cleaner.W_, W)
    assert cleaner._session.labels.attempts.sum() == 0
    cleaner.update([1, 2], [0, -1])
    assert cleaner.cleaned_.sum() == 1


def test_the_same_seed_gives_the_same_campaign(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for threads in ("1", "3"):
        monkeypatch.setenv("LABELCHEF_THREADS", threads)
        runs.append(fitted(data, budget=50).run(SimulatedAnnotators(data["y"], n_classes=3, seed=4)))
    for one, two in zip(runs[0].rounds, runs[1].rounds, strict=True):
        np.testing.assert_array_equal(one.batch.indices, two.batch.indices)
        np.testing.assert_array_equal(one.decisions.labels, two.decisions.labels)


@pytest.mark.parametrize(
    "what", ["loop.judging.evaluate", "believe.learner.Learner.look_ahead", "loop.judging.CrossFitted.follow"]
)
def test_an_interrupt_at_the_end_of_an_update_leaves_no_trace(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    cleaner, straight = (fitted(data, constructor=NewtonConstructor(tol=1e-7, proven=False)) for _ in range(2))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    posterior, judged = cleaner.posterior_, cleaner.judged()
    with monkeypatch.context() as patch:
        patch.setattr(f"labelchef.{what}", stop)
        with pytest.raises(KeyboardInterrupt):
            cleaner.update(range(60), data["y"][:60])  # enough for the choice to be made anew
    assert not cleaner.cleaned_.any()
    assert len(cleaner.rounds_) == 1
    np.testing.assert_array_equal(cleaner.posterior_, posterior)
    assert judged is not None
    np.testing.assert_array_equal(cleaner.judged()[1].losses, judged[1].losses)  # type: ignore[index]
    for one in (cleaner, straight):
        one.update(range(60), data["y"][:60]).update([60], [0])
    assert cleaner.choice_ == straight.choice_
    np.testing.assert_allclose(cleaner.W_, straight.W_, atol=1e-4)
    np.testing.assert_array_equal(cleaner.query().indices, straight.query().indices)


def test_a_batch_is_filled_from_those_asked_in_vain(data: dict[str, Any]) -> None:
    cleaner = fitted(data)
    cleaner.update(range(270), data["y"][:270])
    cleaner.update(range(280, 300), [-1] * 20)
    batch = cleaner.query(15)
    assert sorted(batch.indices[:10].tolist()) == list(range(270, 280))
    assert len(batch) == 15
    assert batch.indices[10:].min() >= 280
    assert batch.diagnostics.seconds > 0


def test_corrections_cost_no_budget_and_no_attempts(data: dict[str, Any]) -> None:
    cleaner = fitted(data, budget=10)
    for label in (0, 1, 2, -1, 1, -1):
        cleaner.update([7], [label])
    assert cleaner.history_["spent"].iloc[-1] == 2  # asked twice: once at first, once after it was taken back
    assert 7 in cleaner.query(300).indices
    result = cleaner.run(GroundTruth(data["y"]))
    assert result.history["spent"].iloc[-1] == 10


def test_unresolved_is_no_agreement(data: dict[str, Any]) -> None:
    cleaner = fitted(data)
    cleaner.update([3, 4], [-1, 1])  # never asked: the suggestion is unknown, −1 too
    assert cleaner.history_["agreed_with_suggestion"].iloc[-1] == 0


def test_metrics_against_their_definitions() -> None:
    metrics = measured(np.array([1, 1, 0, 0, 0]), np.array([1, 0, 0, 0, 1]), 2, 0.5)
    assert metrics.accuracy == pytest.approx(3 / 5)
    assert metrics.f1 == pytest.approx(1 / 2)  # of class 1: precision 1/2, recall 1/2
    assert metrics.f1_macro == pytest.approx((1 / 2 + 2 / 3) / 2)
    apart = measured(np.array([2, 0]), np.array([0, 0]), 3, 0.5)  # one predicted as class 2, which does not occur
    assert apart.f1 is None
    assert apart.f1_macro == pytest.approx((2 / 3 + 0.0) / 2)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40),
    n_classes=st.sampled_from([2, 4]),
)
def test_metrics_are_those_of_scikit_learn(pairs: list[tuple[int, int]], n_classes: int) -> None:
    y, predicted = np.array(pairs).T % n_classes
    found = measured(predicted, y, n_classes, 0.5)
    assert found.f1_macro == pytest.approx(f1_score(y, predicted, average="macro", zero_division=0.0))
    assert found.accuracy == pytest.approx(accuracy_score(y, predicted))
    if n_classes == 2:
        assert found.f1 == pytest.approx(f1_score(y, predicted, zero_division=0.0))


@pytest.mark.parametrize("look_ahead", [False, True])
def test_a_warm_round_costs_fewer_sweeps_than_a_cold_one(data: dict[str, Any], look_ahead: bool) -> None:
    settings = {**STEERED, "selector": make_selector("expected_infl", look_ahead=look_ahead), "gamma": 0.8, "l2": 0.05}
    history = fitted(data, budget=100, **settings).run(GroundTruth(data["y"])).history
    first, later = history.iloc[1], history.iloc[3:]
    assert later["iterations"].median() < first["iterations"]
    assert later["iterations"].median() <= 2  # V has ridden along
    assert later["construct_sweeps"].median() <= history["construct_sweeps"].iloc[0] / 2
