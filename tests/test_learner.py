"""The learner's contracts: what it is trained on, on what its beliefs depend, and when it chooses anew."""

import copy
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from labelchef import Known, LabelCleaner
from labelchef.base.learning import NO_SOURCES, Choice
from labelchef.base.records import Batch, Decisions, Votes
from labelchef.base.settings import Settings
from labelchef.believe import SourceVotes
from labelchef.believe import learner as learner_module
from labelchef.believe.evidence import Evidence
from labelchef.believe.learning import Sample, choose
from labelchef.believe.models import MODELS, make_source_model
from labelchef.chef.constructors import DescentSettings, make_constructor
from labelchef.data.campaign_data import CampaignData
from labelchef.loop import steps
from labelchef.loop.annotators import GroundTruth
from labelchef.loop.ledger import MemoryLedger
from labelchef.loop.rebuild import rebuild, replay
from labelchef.loop.session import Session
from labelchef.loop.start import new_session
from tests.oracles import Array, Problem, cleaner_of

N, N_VAL, J = 150, 50, 4


def drawn(C: int = 2, seed: int = 0, *, n: int = N, n_val: int = N_VAL, right: float = 0.75) -> dict[str, Any]:
    """Blobs; J sources that are right with probability `right`, and silent on three samples of ten."""
    rng, n_train, n = np.random.default_rng([C, seed]), n, n + n_val
    y = rng.integers(0, C, n)
    X = rng.normal(size=(n, 5)) + 1.2 * rng.normal(size=(C, 5))[y]
    other = (y[:, None] + rng.integers(1, C, (n, J))) % C
    votes = np.where(rng.random((n, J)) < right, y[:, None], other)
    votes[rng.random((n, J)) < 0.3] = -1
    return {
        "X": X[:n_train], "votes": votes[:n_train], "y": y[:n_train],
        "X_val": X[n_train:], "y_val": y[n_train:], "votes_val": votes[n_train:],
    }  # fmt: skip


def fitted(data: dict[str, Any], *, y_clean: Any = None, **settings: Any) -> LabelCleaner:
    given = {name: value for name, value in data.items() if name != "y"}
    classes = range(int(data["y_val"].max()) + 1)
    return cleaner_of(**{"tol": 1e-9, **settings}).fit(**given, known=Known(y_clean=y_clean), classes=classes)


def session_of(cleaner: LabelCleaner) -> Session:
    return cleaner._session


def chosen(cleaner: LabelCleaner) -> Choice:
    assert cleaner.choice_ is not None
    return cleaner.choice_


def one_hot(ids: Any, C: int) -> Array:
    return np.asarray(np.eye(C)[ids])


def oracle(data: dict[str, Any], cleaner: LabelCleaner, clean: Any, *, by_scipy: bool = False) -> tuple[Array, Array]:
    """W and the weights of all rows, by dense algebra from the choice and the clean labels (N,) alone; −1 is not clean."""
    choice, C = chosen(cleaner), len(cleaner.classes_)
    X = np.concatenate([data["X"], data["X_val"]])
    Z = np.hstack([X, np.ones((len(X), 1))])
    ids = np.concatenate([clean, data["y_val"]])
    known = ids >= 0
    Y, weight = one_hot(np.maximum(ids, 0), C), known.astype(float)
    if choice.model != NO_SOURCES:
        none = np.zeros((1, Z.shape[1]))
        alone = Problem(Z[known], Y[known], np.ones(known.sum()), choice.clean_strength / known.sum(), none, none)
        log_p = log_softmax(choice.temperature * (Z @ alone.optimum()), axis=1)
        val = np.full((len(data["y_val"]), J), -1) if data.get("votes_val") is None else data["votes_val"]
        votes = SourceVotes.hard(np.concatenate([data["votes"], val]), C)
        belief = make_source_model(choice.model).believe(Evidence(votes, log_p, ids, votes.shares()))
        Y[~known] = belief.Q[~known]
        weight[~known] = np.where(belief.spoken[~known], choice.gamma, 0.0)
    problem = Problem(Z, Y, weight, choice.strength / len(Z), Z[:1], Y[:1])
    return problem.optimum_by_scipy() if by_scipy else problem.optimum(), weight


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("sources", [*sorted(MODELS), "none", "auto"])
def test_the_model_is_the_optimum_over_beliefs_and_clean_labels(C: int, sources: str) -> None:
    data = drawn(C)
    settings: dict[str, Any] = {} if sources in ("none", "auto") else {"gamma": 0.3}
    cleaner = fitted(data, sources=sources, **settings)
    if sources != "auto":
        assert chosen(cleaner).model == sources
    clean = np.full(N, -1)
    W, weight = oracle(data, cleaner, clean, by_scipy=True)
    np.testing.assert_allclose(cleaner.W_, W, atol=2e-4)
    np.testing.assert_allclose(session_of(cleaner).labels.weight, weight)
    assert (weight[N:] == 1.0).all()  # trusted samples train
    cleaner.update(range(20), data["y"][:20]).update([3], [-1])
    clean[:20] = data["y"][:20]
    clean[3] = -1
    np.testing.assert_allclose(cleaner.W_, oracle(data, cleaner, clean)[0], atol=2e-4)
    np.testing.assert_array_equal(cleaner.cleaned_, clean >= 0)


@pytest.mark.parametrize("gamma", [0.0, 0.45])
def test_given_strengths_are_used(gamma: float) -> None:
    data = drawn()
    cleaner = fitted(data, gamma=gamma, l2=0.03)
    assert cleaner.gamma_ == gamma
    assert cleaner.l2_ == pytest.approx(0.03)
    np.testing.assert_allclose(cleaner.W_, oracle(data, cleaner, np.full(N, -1))[0], atol=2e-4)


def test_trusted_samples_are_neither_asked_nor_shown() -> None:
    data = drawn()
    cleaner = fitted(data, selector="expected_infl", look_ahead=False)
    batch = cleaner.query(N)
    assert sorted(batch.indices.tolist()) == list(range(N))
    for rows in (cleaner.scores(), cleaner.labels_, cleaner.posterior_, cleaner.cleaned_):
        assert len(rows) == N
    np.testing.assert_allclose(cleaner.labels_, SourceVotes.hard(data["votes"], 2).shares())
    record = cleaner.update(batch.indices[:4], data["y"][batch.indices[:4]]).rounds_[-1]
    assert record.cleaned == cleaner.cleaned_.sum() == 4
    shown = SourceVotes.hard(data["votes"], 2).shares()[batch.indices[:4]].argmax(axis=1)
    np.testing.assert_array_equal(record.changed, batch.indices[:4][shown != data["y"][batch.indices[:4]]])
    total = batch.by_answer[np.arange(4), data["y"][batch.indices[:4]]].sum()
    assert record.predicted_change == pytest.approx(total / (N + N_VAL))  # the objective is a mean over all rows


@pytest.mark.parametrize("constructor", ["newton", "retrain", "deltagrad_l"])
def test_the_path_does_not_matter(constructor: str) -> None:
    data = drawn(3)
    made = make_constructor(constructor, tol=1e-9, proven=False, descent=DescentSettings(epochs=60))
    at_once, by_and_by = (fitted(data, constructor=made) for _ in range(2))
    items, y = np.arange(0, 40, 2), data["y"]  # with 20 more of 50 the choice stays
    at_once.update(items, y[items])
    by_and_by.update(items[::-1][:5], (y[items[::-1][:5]] + 1) % 3)  # corrected later
    by_and_by.update([140], [0])
    for part in (items[12:], items[:7], items[7:12]):
        by_and_by.update(part, y[part])
    by_and_by.update([140], [-1])
    assert chosen(at_once) == chosen(by_and_by)
    np.testing.assert_array_equal(at_once.labels_, by_and_by.labels_)
    one, two = session_of(at_once), session_of(by_and_by)
    np.testing.assert_allclose(one.labels.Y, two.labels.Y, atol=1e-9)  # the beliefs too
    np.testing.assert_array_equal(one.labels.weight, two.labels.weight)
    atol = 1e-6 if constructor == "newton" else 0.02 if constructor == "deltagrad_l" else 1e-9
    np.testing.assert_allclose(at_once.W_, by_and_by.W_, atol=atol)


def test_undo_restores_labels_beliefs_and_model() -> None:
    data = drawn(3)
    cleaner = fitted(data)
    cleaner.update(range(10), data["y"][:10])
    W, Q, labels = cleaner.W_, cleaner.posterior_, session_of(cleaner).labels.Y.copy()
    cleaner.update(range(5, 15), np.zeros(10, dtype=int)).undo()
    np.testing.assert_allclose(cleaner.W_, W, atol=1e-6)
    np.testing.assert_allclose(cleaner.posterior_, Q, atol=1e-6)
    np.testing.assert_allclose(session_of(cleaner).labels.Y, labels, atol=1e-9)
    cleaner.undo()
    np.testing.assert_allclose(cleaner.W_, fitted(data).W_, atol=1e-6)


def campaign(data: dict[str, Any]) -> CampaignData:
    given = {name: value for name, value in data.items() if name not in ("y", "X")}
    return CampaignData.of(data["X"], **given, classes=range(int(data["y_val"].max()) + 1))


def answer(session: Session, batch: Batch, y: Any) -> None:
    ids = y[batch.indices]
    session.decide(batch, Votes.of([("ann", batch.indices, ids)]), Decisions.sure(batch.indices, ids))


def test_a_restart_at_any_round_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 16 with 50 trusted samples: the choice is made anew after the second one, and used in the third."""
    monkeypatch.setattr(Settings, "tol", 1e-9)
    data, settings = drawn(3), Settings(batch_size=16)
    whole = new_session(campaign(data), settings)
    whole.start()
    for _ in range(5):
        answer(whole, whole.select(16), data["y"])
    choices = [record.choice for record in whole.rounds]
    assert choices[1] == choices[0] != choices[3]
    assert choices[2] == choices[0]
    assert choices[3] is not None
    assert choices[3].n_clean == N_VAL + 32
    for cut in range(6):
        again = rebuild(campaign(data), settings, whole.rounds[1 : cut + 1])
        for record in whole.rounds[cut + 1 :]:
            batch = again.select(16)
            np.testing.assert_array_equal(batch.indices, record.batch.indices)
            answer(again, batch, data["y"])
        assert [record.choice for record in again.rounds] == choices
        np.testing.assert_allclose(again.parameters, whole.parameters, atol=1e-6)
        np.testing.assert_allclose(again.labels.Y, whole.labels.Y, atol=1e-6)
        found, expected = again.rounds[-1], whole.rounds[-1]
        assert found.validation.as_dict() == pytest.approx(expected.validation.as_dict(), abs=1e-6)
        assert found.ruling is not None
        assert expected.ruling is not None
        assert found.ruling.tau == expected.ruling.tau
        assert found.ruling.temperature == pytest.approx(expected.ruling.temperature, rel=1e-4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cleaner: pickle.loads(pickle.dumps(cleaner))])
def test_copies_go_on_alike(copied: Any) -> None:
    data = drawn()
    cleaner = fitted(data)
    cleaner.update(range(30), data["y"][:30])  # a choice is being computed now
    other = copied(cleaner)
    for one in (cleaner, other):
        batch = one.query()
        one.update(batch.indices, data["y"][batch.indices])
    assert chosen(cleaner) == chosen(other)
    assert chosen(cleaner).n_clean == N_VAL + 30
    np.testing.assert_array_equal(cleaner.W_, other.W_)
    assert cleaner.figures() == other.figures()


def slowed(monkeypatch: pytest.MonkeyPatch, wait: Any) -> None:
    def later(sample: Sample, **given: Any) -> Choice:
        if threading.current_thread() is not threading.main_thread():
            wait()
        return choose(sample, **given)

    monkeypatch.setattr(learner_module, "choose", later)


def test_a_choice_in_the_background_blocks_no_round_and_counts_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    data, go = drawn(), threading.Event()
    with monkeypatch.context() as patch:
        slowed(patch, lambda: go.wait(60))
        cleaner = fitted(data)
        first = chosen(cleaner)
        cleaner.update(range(20), data["y"][:20])
        cleaner.update(range(20, 30), data["y"][20:30])  # returns though the choice is not made
        assert chosen(cleaner) is first
        cleaner.query()
        go.set()
        cleaner.update([40], [0])
    assert chosen(cleaner).n_clean == N_VAL + 30
    assert cleaner.rounds_[2].choice is first
    assert cleaner.rounds_[3].choice is chosen(cleaner)


def test_many_answers_at_once_have_a_choice_before_a_figure_is_shown() -> None:
    data = drawn()
    settings = Settings(batch_size=40, budget=80)
    session = new_session(campaign(data), settings)
    session.start()
    ledger = MemoryLedger(settings, session.rounds)
    steps.run(ledger, session, GroundTruth(data["y"]))
    assert [record.choice.n_clean for record in session.rounds if record.choice] == [50, 90, 90]
    assert all(one.agrees for one in replay(campaign(data), settings, list(ledger.past())))
    again = rebuild(campaign(data), settings, session.rounds[1:], first=session.rounds[0])
    assert again.learner is not None
    assert again.learner.choice == session.rounds[-1].choice
    np.testing.assert_allclose(again.parameters, session.parameters, atol=1e-2)


def test_rounds_that_waited_for_their_choice_are_replayed_so() -> None:
    data, settings = drawn(), Settings(batch_size=40, budget=80)
    session = new_session(campaign(data), settings)
    session.start()
    assert session.learner is not None
    session.learner.leaps = False  # as in version 0.2
    ledger = MemoryLedger(settings, session.rounds)
    steps.run(ledger, session, GroundTruth(data["y"]))
    assert [record.choice.n_clean for record in session.rounds if record.choice] == [50, 50, 90]
    assert all(one.agrees for one in replay(campaign(data), settings, list(ledger.past())))


def test_the_time_a_choice_takes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data, runs = drawn(3), []
    for seconds in (0.0, 0.2):
        with monkeypatch.context() as patch:
            slowed(patch, lambda s=seconds: time.sleep(s))
            runs.append(fitted(data, budget=90, batch_size=15))
            runs[-1].run(GroundTruth(data["y"]))
    assert len({record.choice for record in runs[0].rounds_}) > 2
    for one, two in zip(runs[0].rounds_, runs[1].rounds_, strict=True):
        assert one.choice == two.choice
        np.testing.assert_array_equal(one.batch.indices, two.batch.indices)
    np.testing.assert_array_equal(runs[0].W_, runs[1].W_)


def test_a_replay_agrees() -> None:
    data, settings = drawn(), Settings(batch_size=16, budget=64)
    session = new_session(campaign(data), settings)
    session.start()
    ledger = MemoryLedger(settings, session.rounds)
    steps.run(ledger, session, GroundTruth(data["y"]))
    found = list(replay(campaign(data), settings, list(ledger.past())))
    assert len(found) == 5
    assert all(one.agrees for one in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("right", [0.0, 0.5], ids=["wrong", "random"])
def test_weak_labels_that_mislead_do_no_harm(right: float, seed: int) -> None:
    """1,000 votes, all wrong or drawn by chance, against 100 trusted samples."""
    data = drawn(2, seed, n=1000, right=right, n_val=100)
    alone, counted, free = (fitted(data, sources=sources, tol=1e-4) for sources in ("none", "shares", "auto"))
    accuracy = alone.score(data["X"], data["y"])
    for cleaner in (counted, free):
        assert cleaner.score(data["X"], data["y"]) > accuracy - 0.01
    if right == 0.0:
        assert free.score(data["X"], data["y"]) >= accuracy  # a source that is always wrong is informative


def test_sources_that_are_always_wrong_are_turned() -> None:
    data = drawn(2, 0, right=0.0, n_val=100)
    turned = fitted(data, sources="joint", gamma=0.3)
    assert (turned.posterior_.argmax(axis=1) == data["y"]).mean() > 0.9
    assert set(turned.sources_["use"]) == {"turned"}


def test_weak_labels_that_are_right_get_weight() -> None:
    data = drawn(2, 1, right=0.95)
    cleaner = fitted(data)
    assert cleaner.gamma_ > 0
    assert (cleaner.posterior_.argmax(axis=1) == data["y"]).mean() > 0.95


@pytest.mark.parametrize("sources", ["shares", "product", "dawid_skene"])
def test_votes_on_trusted_samples_may_be_missing(sources: str) -> None:
    """That nobody was shown them is not the same as that all sources were silent: see test_sources_shown."""
    data = {**drawn(3), "votes_val": None}
    cleaner = fitted(data, sources=sources)
    np.testing.assert_allclose(cleaner.W_, oracle(data, cleaner, np.full(N, -1))[0], atol=2e-4)


@pytest.mark.parametrize("sources", sorted(MODELS))
def test_samples_of_which_all_sources_are_silent(sources: str) -> None:
    data = drawn(2, 3)
    data["votes"][:40] = -1
    cleaner = fitted(data, sources=sources, gamma=0.3)
    assert np.isfinite(cleaner.W_).all()
    np.testing.assert_allclose(cleaner.labels_[:40], 0.5)
    weight = session_of(cleaner).labels.weight[:40]
    assert set(weight.tolist()) == ({0.3} if sources in ("joint", "product") else {0.0})
    if sources in ("shares", "naive_bayes", "dawid_skene"):  # as if they were not there, but for the mean over rows
        W, _ = oracle(data, cleaner, np.full(N, -1))
        np.testing.assert_allclose(cleaner.W_, W, atol=2e-4)
    batch = cleaner.query(N)
    assert np.isin(np.arange(40), batch.indices).all()  # they can be asked


def test_clean_labels_that_are_given_are_as_good_as_answers() -> None:
    data, clean = drawn(3), np.full(N, -1)
    clean[::5] = data["y"][::5]
    given = fitted(data, y_clean=clean, gamma=0.3, l2=0.02, sources="joint")
    assert chosen(given).n_clean == N_VAL + 30
    W, weight = oracle(data, given, clean)
    np.testing.assert_allclose(given.W_, W, atol=2e-4)
    assert (weight[:N:5] == 1.0).all()
    assert not np.isin(given.query(N).indices, np.arange(0, N, 5)).any()
    answered = fitted(data, gamma=0.3, l2=0.02, sources="joint")
    answered.update(np.arange(0, N, 5), data["y"][::5])
    np.testing.assert_array_equal(answered.labels_, given.labels_)
    assert (answered.posterior_.argmax(axis=1) == given.posterior_.argmax(axis=1)).mean() > 0.97


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_in_two_files(tmp_path: Path, dtype: Any) -> None:
    data = drawn(3)
    there = {**data}
    for name in ("X", "X_val"):
        there[name] = data[name].astype(dtype)
        np.save(tmp_path / f"{name}.npy", there[name])
    mapped = {**there, **{name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("X", "X_val")}}
    one, two = fitted(there, budget=30), fitted(mapped, budget=30)
    engine: Any = session_of(two).objective.engine
    assert engine.n_rows == N + N_VAL
    assert np.shares_memory(engine._blocks[0][1], mapped["X"])
    assert np.shares_memory(engine._blocks[-1][1], mapped["X_val"])
    for cleaner in (one, two):
        cleaner.run(GroundTruth(data["y"]))
    np.testing.assert_array_equal(one.W_, two.W_)
    np.testing.assert_array_equal(one.posterior_, two.posterior_)
    assert one.figures() == two.figures()
