"""Trusted samples that train networks, and weak labels that come from a source model."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from labelchef import InvalidInputError
from labelchef.data.training_rows import draw_judges
from labelchef.networks import NetworkCleaner, TrainingSettings
from labelchef.networks.inputs import Blocks
from labelchef.networks.training import Examples
from labelchef.networks.trusted import Division
from tests.network_support import QUICK, Problem, net

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def problem() -> Problem:
    return Problem()


def seeded_net(classes: int = 3) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return net(classes)


def weights(cleaner: NetworkCleaner) -> NDArray[Any]:
    return np.concatenate([p.detach().numpy().ravel() for p in cleaner.network_.parameters()])


def hard_votes(y: NDArray[Any], right: float, seed: int, sources: int = 4) -> NDArray[Any]:
    """(n, J) votes: right with this probability, of any class otherwise; a fifth is missing."""
    rng = np.random.default_rng(seed)
    shape = (len(y), sources)
    votes = np.where(rng.random(shape) < right, y[:, None], rng.integers(0, 3, shape))
    return np.where(rng.random(shape) < 0.2, -1, votes)


@pytest.mark.parametrize(("constructor", "share"), [("fine_tune", 0.2), ("last_layer", 0.5)])
def test_trusted_samples_that_train_change_the_network_and_those_that_judge_do_not(
    constructor: str, share: float, problem: Problem
) -> None:
    network, y_val = seeded_net(), problem.y[160:200]
    parts = Division.training(y_val, draw_judges(y_val, 3, 0.4, 0), 3, share, 0)
    nobody = np.zeros(40, dtype=bool)
    ends = []
    for moved in (nobody, parts.judges, parts.trains):
        X_val = problem.X[160:200].copy()
        X_val[moved] += 1.0
        cleaner = NetworkCleaner(network, constructor=constructor, training=QUICK, holdout=0.4, device="cpu")
        cleaner.fit(problem.X[:160], problem.weak, X_val=X_val, y_val=y_val)
        ends.append(np.concatenate([p.detach().numpy().ravel() for p in cleaner._model.task.parameters()]))
    np.testing.assert_array_equal(ends[0], ends[1])
    assert not np.array_equal(ends[0], ends[2])


def test_samples_that_steer_stop_training_but_never_train(problem: Problem) -> None:
    """Without early stopping nothing reads them, so other ones give the same network."""
    y_val, ends = problem.y[160:200], []
    parts = Division.training(y_val, np.zeros(40, dtype=bool), 3, 0.2, 0)
    assert int(parts.steers.sum()) == 8
    all_epochs = TrainingSettings(epochs=3, batch_size=32, patience=None)
    for shift in (0.0, 5.0):
        X_val = problem.X[160:200].copy()
        X_val[parts.steers] += shift
        cleaner = NetworkCleaner(seeded_net(), training=all_epochs, device="cpu")
        cleaner.fit(problem.X[:160], problem.weak, X_val=X_val, y_val=y_val)
        ends.append(weights(cleaner))
    np.testing.assert_array_equal(ends[0], ends[1])


@pytest.mark.parametrize("constructor", ["retrain", "last_layer"])
def test_with_random_weak_labels_training_on_trusted_samples_is_better_than_steering_by_them(constructor: str) -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 900)
    X = (rng.normal(size=(900, 6)) + 2.0 * np.eye(3, 6)[y]).astype(np.float32)
    weak = rng.dirichlet(np.ones(3), 300)
    accuracy = {}
    for trusted in ("train", "steer"):
        cleaner = NetworkCleaner(
            seeded_net(), constructor=constructor, trusted=trusted, holdout=0.0, device="cpu",
            training=TrainingSettings(epochs=20, batch_size=32, learning_rate=0.01),
        )  # fmt: skip
        cleaner.fit(X[:300], weak, X_val=X[300:400], y_val=y[300:400])
        accuracy[trusted] = cleaner.score(X[400:], y[400:])
        if trusted == "train":
            assert cleaner.gamma_ < 0.8, "these labels are not worth it"
            assert cleaner.choice_ is not None
            assert {trial.gamma for trial in cleaner.choice_.trials} >= {0.1, 0.0}
    assert accuracy["train"] > accuracy["steer"] + 0.05
    assert accuracy["train"] > 0.75, "the best possible is about 0.86"


@pytest.mark.parametrize("constructor", ["fine_tune", "retrain", "last_layer"])
def test_trusted_rows_are_never_asked_nor_shown(constructor: str, problem: Problem) -> None:
    cleaner = NetworkCleaner(seeded_net(), constructor=constructor, training=QUICK, budget=None, device="cpu")
    problem.fit(cleaner)
    assert sorted(cleaner.query(1000).indices.tolist()) == list(range(160))
    for shown in (cleaner.labels_, cleaner.posterior_, cleaner.cleaned_, cleaner.scores()):
        assert len(shown) == 160
    np.testing.assert_allclose(cleaner.posterior_.sum(axis=1), 1.0)
    np.testing.assert_allclose(cleaner.labels_, problem.weak, rtol=1e-12)
    cleaner.update([2, 5], problem.y[[2, 5]])
    assert int(cleaner.cleaned_.sum()) == cleaner.rounds_[-1].cleaned == 2
    np.testing.assert_array_equal(cleaner.posterior_[[2, 5]], np.eye(3)[problem.y[[2, 5]]])
    assert cleaner.suggest([9, 0]).indices.tolist() == [9, 0]
    with pytest.raises(InvalidInputError, match="160"):
        cleaner.update([160], [0])


@pytest.mark.parametrize("name", ["infl", "expected_infl", "infl_d", "infl_y", "o2u", "random", "entropy"])
def test_every_selector_of_networks_chooses_where_trusted_samples_train(name: str, problem: Problem) -> None:
    cleaner = problem.fit(NetworkCleaner(seeded_net(), name, training=QUICK, device="cpu"))
    batch = cleaner.query(5)
    assert len(batch) == 5
    cleaner.update(batch.indices, problem.y[batch.indices])
    assert not set(cleaner.query(5).indices.tolist()) & set(batch.indices.tolist())


def test_influence_is_that_of_the_objective_that_is_trained(problem: Problem) -> None:
    """γ = 0: rows without weight are left out of F, and the influence of a label is still in units of all rows."""
    network = seeded_net().double()
    settings: dict[str, Any] = {"pretrained": True, "l2": 0.05, "device": "cpu"}
    cleaner = problem.fit(NetworkCleaner(network, "infl", gamma=0.0, **settings))
    model, session = cleaner._model, cleaner._session
    data = model.examples(session.labels.rows)
    assert len(data.X) == 32
    found = cleaner.query(1)
    solution = session.selector.direction.at(session.context(session.labels.askable)).solution  # type: ignore[attr-defined]
    i, c = int(found.indices[0]), int(found.suggested[0])
    out = -torch.log_softmax(network(torch.from_numpy(problem.X[i : i + 1]).double()), dim=1)[0, c]
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(out, list(network.parameters()))])
    change = (
        -float(gradient @ solution.v.double()) / 32
    )  # of the validation loss, if this row joins the 32 with weight 1
    assert found.influence[0] / len(model.inputs) == pytest.approx(change, rel=1e-6)


def test_votes_of_sources_teach_a_network(problem: Problem) -> None:
    """Two sources that are mostly right and three that are always wrong: counted like any other, the wrong ones win."""
    y = problem.y
    votes = np.concatenate([hard_votes(y, 0.8, 1, 2), np.tile((y[:, None] + 1) % 3, 3)], axis=1)
    trained = TrainingSettings(epochs=15, batch_size=32, learning_rate=0.02)
    right = {}
    for sources in ("auto", "shares", "none", "naive_bayes"):
        cleaner = NetworkCleaner(
            seeded_net(), constructor="retrain", sources=sources, gamma=0.8, training=trained, device="cpu"
        )
        cleaner.fit(
            problem.X[:160], votes=votes[:160], votes_val=votes[160:200], X_val=problem.X[160:200], y_val=y[160:200]
        )
        choice = cleaner.choice_
        assert choice is not None
        assert choice.model == {"auto": "joint"}.get(sources, sources)
        assert cleaner.gamma_ == (0.0 if sources == "none" else 0.8)
        assert cleaner.l2_ == 0.001
        right[sources] = cleaner.score(problem.X[200:], y[200:])
        facts = cleaner.sources_
        assert facts["name"].tolist() == [f"source {j + 1}" for j in range(5)]
        assert facts["muting"].isna().all(), "a network has no closed form of it"
        if sources == "auto":
            assert facts["use"].tolist() == ["as it votes"] * 2 + ["turned"] * 3
            believed = cleaner._session.labels.Y[:160].argmax(axis=1)
            assert (believed == y[:160]).mean() > 0.9
    assert right["auto"] > right["shares"]


def test_good_weak_labels_keep_their_weight(problem: Problem) -> None:
    problem.weak = 0.9 * np.eye(3)[problem.y[:160]] + 0.1 / 3
    cleaner = NetworkCleaner(seeded_net(), training=QUICK, holdout=0.0, device="cpu")
    cleaner.fit(problem.X[:160], problem.weak, X_val=problem.X[160:], y_val=problem.y[160:])
    assert cleaner.gamma_ == 0.8
    choice = cleaner.choice_
    assert choice is not None
    losses = [trial.loss for trial in choice.trials]
    assert losses[0] < losses[2]


def test_answers_teach_the_sources_and_a_taken_back_answer_is_forgotten(problem: Problem) -> None:
    votes = hard_votes(problem.y, 0.7, 1)
    given: dict[str, Any] = {"X_val": problem.X[160:200], "y_val": problem.y[160:200], "votes": votes[:160]}
    cleaner = NetworkCleaner(seeded_net(), constructor="retrain", training=QUICK, device="cpu")
    cleaner.fit(problem.X[:160], **given)
    first, before = cleaner._session.labels.Y.copy(), weights(cleaner)
    cleaner.update(np.arange(40), problem.y[:40])
    moved = cleaner._session.labels.Y
    assert not np.allclose(moved[40:160], first[40:160]), "labels of samples that nobody was asked about"
    cleaner.undo()
    np.testing.assert_array_equal(cleaner._session.labels.Y, first)
    np.testing.assert_array_equal(weights(cleaner), before)


def test_a_failed_round_restores_what_was_believed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = hard_votes(problem.y, 0.7, 1)[:160]
    cleaner = NetworkCleaner(seeded_net(), training=QUICK, device="cpu")
    cleaner.fit(problem.X[:160], votes=votes, X_val=problem.X[160:200], y_val=problem.y[160:200])
    believed, before = cleaner._session.labels.Y.copy(), weights(cleaner)
    with monkeypatch.context() as patched:
        patched.setattr(type(cleaner._session.constructor), "construct", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cleaner.update(np.arange(20), problem.y[:20])
    np.testing.assert_array_equal(cleaner._session.labels.Y, believed)
    np.testing.assert_array_equal(weights(cleaner), before)


@pytest.mark.parametrize("constructor", ["fine_tune", "last_layer"])
def test_a_pickled_cleaner_goes_on_with_its_sources(constructor: str, problem: Problem) -> None:
    votes = hard_votes(problem.y, 0.7, 1)[:160]
    cleaner = NetworkCleaner(seeded_net(), constructor=constructor, training=QUICK, device="cpu")
    cleaner.fit(problem.X[:160], votes=votes, X_val=problem.X[160:200], y_val=problem.y[160:200])
    other: NetworkCleaner = pickle.loads(pickle.dumps(cleaner))
    for one in (cleaner, other):
        batch = one.query()
        one.update(batch.indices, problem.y[batch.indices])
    np.testing.assert_array_equal(weights(cleaner), weights(other))
    np.testing.assert_array_equal(cleaner.query().indices, other.query().indices)
    np.testing.assert_array_equal(cleaner.posterior_, other.posterior_)


def test_half_of_the_trusted_samples_judge_a_whole_network_and_none_a_last_layer() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 320)
    X = (rng.normal(size=(320, 6)) + np.eye(3, 6)[y]).astype(np.float32)
    for constructor, judged, trains in (("fine_tune", 60, 48), ("last_layer", 60, 60)):
        cleaner = NetworkCleaner(seeded_net(), constructor=constructor, training=QUICK, device="cpu")
        cleaner.fit(X[:200], rng.dirichlet(np.ones(3), 200), X_val=X[200:], y_val=y[200:])
        assert cleaner._model.trusted is not None
        assert abs(len(cleaner._model.trusted[1]) - trains) <= 2
        found = cleaner.judged("validation")
        assert found is not None
        assert abs(len(found[0]) - judged) <= 2
        assert (cleaner.gain() is None) == (constructor == "last_layer")  # there they train, and show a level only


def test_without_judges_a_whole_network_claims_no_gain(problem: Problem) -> None:
    cleaner = problem.fit(NetworkCleaner(seeded_net(), training=QUICK, device="cpu"))
    assert cleaner.gain() is None
    assert cleaner.gain(split="test") is not None


def test_an_audit_judges_a_network_before_the_answers(problem: Problem) -> None:
    cleaner = NetworkCleaner(seeded_net(), training=QUICK, audit=0.5, budget=20, device="cpu")
    problem.fit(cleaner)
    predicted = cleaner.predict_proba(problem.X[:160]).argmax(axis=1)
    batch = cleaner.query()
    assert len(batch.diagnostics.audited) > 0
    assert all(predicted[item] == said for item, said in batch.diagnostics.audited)


def test_the_papers_preset_steers_by_the_best_case_with_nothing_held_out(problem: Problem) -> None:
    cleaner = problem.fit(NetworkCleaner(seeded_net(), preset="paper", training=QUICK, device="cpu"))
    plain = NetworkCleaner(
        seeded_net(), "infl", trusted="steer", gamma=0.8, l2=0.001, holdout=0.0, training=QUICK, device="cpu"
    )
    problem.fit(plain)
    assert cleaner._model.trusted is None
    assert cleaner.choice_ is None
    assert cleaner.sources_.empty
    np.testing.assert_array_equal(weights(cleaner), weights(plain))
    np.testing.assert_array_equal(cleaner.query().indices, plain.query().indices)


def test_trusted_samples_are_divided_by_class() -> None:
    y = np.repeat([0, 1, 2], [30, 9, 1])
    parts = Division.training(y, np.zeros(40, dtype=bool), 3, 0.2, 0)
    assert ((parts.trains.astype(int) + parts.steers + parts.judges) == 1).all()
    assert np.bincount(y[parts.steers], minlength=3).tolist() == [6, 2, 0]
    two = Division.training(np.array([0, 0, 1]), np.zeros(3, dtype=bool), 2, 0.2, 0)
    assert two.steers.sum() == 1
    assert set(np.array([0, 0, 1])[two.trains].tolist()) == {0, 1}
    with pytest.raises(InvalidInputError, match="trusted='steer'"):
        Division.training(np.array([0, 1]), np.zeros(2, dtype=bool), 2, 0.2, 0)


def test_two_arrays_are_read_as_one(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(5, 2, 3)).astype(np.float32), rng.normal(size=(4, 2, 3))
    np.save(tmp_path / "first.npy", first)
    rows = np.array([8, 0, 4, 5, 2])
    blocks = Blocks(np.load(tmp_path / "first.npy", mmap_mode="r"), second, rows)
    whole = np.concatenate([first, second])[rows]
    assert len(blocks) == 5
    assert blocks.dtype == whole.dtype
    np.testing.assert_array_equal(blocks[1:4], whole[1:4])
    np.testing.assert_array_equal(blocks[np.array([3, 3, 0])], whole[[3, 3, 0]])
    few = Examples(blocks, np.full((5, 2), 0.5), np.ones(5))
    assert few.repeated(5) is few
    assert len(few.repeated(12).X) == 15
