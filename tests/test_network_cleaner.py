"""`NetworkCleaner` as users meet it: rounds, baselines, constructors, progress."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import nn

from labelchef import InvalidInputError, LabelCleaner
from labelchef.chef.choice import ALL_SELECTORS
from labelchef.chef.selectors import IncremInflSelector, MarginSelector
from labelchef.data.training_rows import draw_judges
from labelchef.loop.annotators import SimulatedAnnotators, make_strategy
from labelchef.loop.stopping import MaxRounds
from labelchef.networks import NETWORK_SELECTORS, FineTune, InfluenceSettings, LastLayer, NetworkCleaner
from labelchef.networks.constructors import NetworkTrainer
from labelchef.networks.selector import ON_PROBABILITIES
from tests.network_support import QUICK, Problem, net

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def problem() -> Problem:
    return Problem()


def weights(cleaner: NetworkCleaner) -> NDArray[Any]:
    return np.concatenate([p.detach().numpy().ravel() for p in cleaner.network_.parameters()])


@pytest.mark.parametrize("constructor", ["fine_tune", "retrain", "last_layer"])
def test_a_campaign_cleans_and_leaves_the_users_network_alone(constructor: str, problem: Problem) -> None:
    torch.manual_seed(0)
    network = net()
    before = [p.detach().clone() for p in network.parameters()]
    cleaner = NetworkCleaner(network, constructor=constructor, training=QUICK, budget=30, device="cpu")
    result = problem.fit(cleaner).run(lambda batch: problem.y[batch.indices])
    assert str(result.stopped_because) == "budget spent"
    history = result.history
    assert len(history) == 4
    assert history["test_accuracy"].iloc[-1] >= history["test_accuracy"].iloc[0]
    assert (cleaner.labels_[cleaner.cleaned_].argmax(axis=1) == problem.y[:160][cleaner.cleaned_]).all()
    assert int(cleaner.cleaned_.sum()) == 30
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    logits = cleaner.network_.eval()(torch.from_numpy(problem.X[200:])).detach()
    np.testing.assert_allclose(torch.softmax(logits, 1).numpy(), cleaner.predict_proba(problem.X[200:]), atol=1e-5)
    assert cleaner.score(problem.X[200:], problem.y[200:]) == pytest.approx(history["test_accuracy"].iloc[-1])


@pytest.mark.parametrize("selector", ["infl", "expected_infl"])
def test_a_network_predicts_the_change_of_each_answer(selector: str, problem: Problem) -> None:
    cleaner = problem.fit(NetworkCleaner(net(), selector, trusted="steer", training=QUICK, device="cpu"))
    batch = cleaner.query(6)
    low, high = batch.by_answer.min(axis=1), batch.by_answer.max(axis=1)
    if selector == "infl":
        np.testing.assert_allclose(batch.influence, low, rtol=1e-6)
    assert ((low <= batch.influence) & (batch.influence < high)).all()
    answers = problem.y[batch.indices]
    record = cleaner.update(batch.indices, answers).rounds_[-1]
    assert record.predicted_change == pytest.approx(batch.by_answer[np.arange(6), answers].sum() / 160)
    assert record.realised_change == record.steering.loss - cleaner.rounds_[0].steering.loss


@pytest.mark.parametrize("constructor", ["fine_tune", "retrain"])
def test_the_same_campaign_again_is_the_same(constructor: str, problem: Problem) -> None:
    network, ends = net(), []
    for _ in range(2):
        cleaner = NetworkCleaner(network, constructor=constructor, training=QUICK, budget=20, device="cpu")
        problem.fit(cleaner).run(lambda batch: problem.y[batch.indices])
        ends.append((weights(cleaner), cleaner.rounds_[-1].batch.indices))
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    np.testing.assert_array_equal(ends[0][1], ends[1][1])


def test_retrain_is_a_function_of_the_labels(problem: Problem) -> None:
    """Labels given one after the other, or at once, or to begin with: the same network."""
    network, y = net(), problem.y
    one = problem.fit(NetworkCleaner(network, constructor="retrain", training=QUICK, device="cpu"))
    one.update([4], [y[4]]).update([9], [y[9]])
    clean = np.full(160, -1)
    clean[[4, 9]] = y[[4, 9]]
    other = NetworkCleaner(network, constructor="retrain", training=QUICK, device="cpu")
    problem.fit(other, y_clean=clean)
    np.testing.assert_array_equal(weights(one), weights(other))
    one.undo().undo()
    np.testing.assert_array_equal(weights(one), weights(problem.fit(clone(other))))
    assert not one.cleaned_.any()


def test_fine_tuning_goes_on_from_the_last_weights(problem: Problem) -> None:
    still = FineTune(epochs=1, learning_rate=1e-12)
    cleaner = problem.fit(NetworkCleaner(net(), constructor=still, training=QUICK, device="cpu"))
    before = weights(cleaner)
    cleaner.update([0], [problem.y[0]])
    np.testing.assert_allclose(weights(cleaner), before, atol=1e-8)


def test_a_pretrained_network_is_taken_as_it_is(problem: Problem) -> None:
    network = net()
    cleaner = problem.fit(NetworkCleaner(network, trusted="steer", pretrained=True, device="cpu"))
    expected = torch.softmax(network(torch.from_numpy(problem.X[:160])), 1).detach().numpy()
    np.testing.assert_allclose(cleaner.predict_proba(problem.X[:160]), expected, atol=1e-6)
    loss = -np.log(cleaner.predict_proba(problem.X[160:200])[np.arange(40), problem.y[160:200]]).mean()
    assert cleaner.history_["val_loss"].iloc[0] == pytest.approx(loss, rel=1e-5)


def test_a_round_that_fails_leaves_no_trace(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaner = problem.fit(NetworkCleaner(net(), training=QUICK, device="cpu"))
    state, asked = weights(cleaner), cleaner.query().indices
    follow = NetworkTrainer.construct

    def fail(self: NetworkTrainer, *details: Any, **named: Any) -> Any:
        follow(self, *details, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(NetworkTrainer, "construct", fail)
        with pytest.raises(KeyboardInterrupt):
            cleaner.update(asked, problem.y[asked])
    np.testing.assert_array_equal(weights(cleaner), state)
    assert not cleaner.cleaned_.any()
    assert cleaner.query().indices.tolist() == asked.tolist()
    assert len(cleaner.history_) == 1
    metrics = cleaner.rounds_[0].test
    assert metrics is not None
    assert cleaner.score(problem.X[200:], problem.y[200:]) == pytest.approx(metrics.accuracy)


def test_strategies_stopping_rules_scores_and_suggestions(problem: Problem) -> None:
    two = SimulatedAnnotators(problem.y[:160], n_classes=3, error_rates=(0.0, 0.0))
    people = make_strategy("three", two)
    cleaner = NetworkCleaner(net(), "infl", training=QUICK, stop=MaxRounds(2), batch_size=5, budget=None, device="cpu")
    result = problem.fit(cleaner).run(people)
    assert str(result.stopped_because) == "stopping rule"
    assert {worker for _, worker, _ in cleaner.rounds_[1].votes} == {"suggestion", "person 1", "person 2"}
    scores, batch = cleaner.scores(), cleaner.query(7)
    assert np.isnan(scores[cleaner.cleaned_]).all()
    np.testing.assert_allclose(batch.influence, np.sort(scores[~np.isnan(scores)])[:7])
    some = cleaner.suggest([5, 3])
    assert some.indices.tolist() == [5, 3]
    assert batch.diagnostics.converged
    assert batch.diagnostics.residual <= 1e-3
    assert not hasattr(cleaner, "W_")


@pytest.mark.parametrize("name", ON_PROBABILITIES)
def test_baselines_see_the_networks_probabilities(name: str, problem: Problem) -> None:
    cleaner = problem.fit(NetworkCleaner(net(), selector=name, training=QUICK, device="cpu"))
    batch, P = cleaner.query(20), cleaner.predict_proba(problem.X[:160])
    ordered = np.sort(P, axis=1)
    by = {
        "least_confidence": ordered[:, -1],
        "entropy": (P * np.log(P)).sum(axis=1),
        "margin": ordered[:, -1] - ordered[:, -2],
    }
    if name in by:
        np.testing.assert_allclose(by[name][batch.indices], np.sort(by[name])[:20], atol=1e-9)
        assert batch.suggested.tolist() == cleaner.posterior_[batch.indices].argmax(axis=1).tolist()
    else:
        assert (batch.suggested == -1).all()
    cleaner.update(batch.indices, problem.y[batch.indices])
    assert not set(cleaner.query(20).indices.tolist()) & set(batch.indices.tolist())


def test_kin_of_infl_read_off_the_same_products(problem: Problem) -> None:
    """Against gradients of single samples, along the v that INFL used."""
    network = net().double()
    settings: dict[str, Any] = {"trusted": "steer", "pretrained": True, "l2": 0.01, "device": "cpu"}
    cleaners = {name: problem.fit(NetworkCleaner(network, name, **settings)) for name in ("infl_d", "infl_y")}
    batches = {name: cleaner.query(160) for name, cleaner in cleaners.items()}
    v = cleaners["infl_d"]._session.selector.direction._v  # type: ignore[attr-defined]
    deletion, slopes = np.empty(160), np.empty((160, 3))
    for i in range(160):
        out = torch.log_softmax(network(torch.from_numpy(problem.X[i : i + 1]).double()), dim=1)[0]
        rows = [torch.autograd.grad(-z, list(network.parameters()), retain_graph=True) for z in out]
        along = np.array([float(torch.cat([part.reshape(-1) for part in row]) @ v) for row in rows])
        deletion[i], slopes[i] = problem.weak[i] @ along, -along
    d, y = batches["infl_d"], batches["infl_y"]
    np.testing.assert_allclose(d.influence, 0.8 * np.sort(deletion), atol=1e-9)
    assert d.indices.tolist() == np.argsort(deletion, kind="stable").tolist()
    assert (d.suggested == -1).all()
    assert y.indices.tolist() == np.argsort(slopes.min(axis=1), kind="stable").tolist()
    assert y.suggested.tolist() == slopes[y.indices].argmin(axis=1).tolist()
    assert np.isnan(y.influence).all()


def test_o2u_finds_planted_noise_and_leaves_the_network_alone() -> None:
    problem = Problem(classes=2)
    problem.X[:, :2] += 3 * np.eye(2)[problem.y]
    given = problem.y[:160].copy()
    flipped = np.random.default_rng(1).choice(160, 16, replace=False)
    given[flipped] = 1 - given[flipped]
    problem.weak = np.eye(2)[given]
    cleaner = problem.fit(NetworkCleaner(net(2), "o2u", training=QUICK, device="cpu"))
    before = weights(cleaner)
    batch = cleaner.query(16)
    assert len(set(batch.indices.tolist()) & set(flipped.tolist())) >= 12, "by chance it would be two"
    np.testing.assert_array_equal(weights(cleaner), before)


def test_selectors_that_need_the_convex_model_are_refused_by_name(problem: Problem) -> None:
    for name in set(ALL_SELECTORS) - set(NETWORK_SELECTORS):
        with pytest.raises(InvalidInputError, match=f"{name}.*last_layer"):
            problem.fit(NetworkCleaner(net(), selector=name, training=QUICK, device="cpu"))
    with pytest.raises(InvalidInputError, match="increm_infl"):
        problem.fit(NetworkCleaner(net(), selector=IncremInflSelector(), pretrained=True, device="cpu"))
    with pytest.raises(InvalidInputError, match="cannot choose on a network"):
        problem.fit(NetworkCleaner(net(), selector="nonsense", pretrained=True, device="cpu"))
    own = problem.fit(NetworkCleaner(net(), selector=MarginSelector(), pretrained=True, device="cpu"))
    assert len(own.query(3)) == 3


@pytest.mark.parametrize("constructor", ["newton", "deltagrad_l"])
def test_the_last_layer_is_the_convex_pipeline_on_the_features_below_it(constructor: str, problem: Problem) -> None:
    following = LastLayer(constructor, look_ahead=False)
    cleaner = NetworkCleaner(
        net(), "increm_infl", following, trusted="steer", pretrained=True, gamma=0.8, l2=0.01, device="cpu"
    )
    problem.fit(cleaner)
    layers = list(cleaner.network.children())
    with torch.no_grad():
        F = torch.relu(layers[0](torch.from_numpy(problem.X))).numpy()
    convex = LabelCleaner(IncremInflSelector(), constructor, trusted="steer", gamma=0.8, l2=0.01)
    convex.fit(F[:160], problem.weak, X_val=F[160:200], y_val=problem.y[160:200])
    for _ in range(2):
        batch = convex.query()
        assert cleaner.query().indices.tolist() == batch.indices.tolist()
        convex.update(batch.indices, problem.y[batch.indices])
        cleaner.update(batch.indices, problem.y[batch.indices])
    np.testing.assert_allclose(cleaner.W_, convex.W_, atol=1e-6)
    np.testing.assert_allclose(cleaner.scores(), convex.scores(), atol=1e-6)


@pytest.mark.parametrize("trusted", ["train", "steer"])
@pytest.mark.parametrize("constructor", ["fine_tune", "last_layer"])
def test_samples_that_judge_reach_neither_training_nor_selection(constructor: str, trusted: str) -> None:
    problem, network = Problem(), net()
    y_val = problem.y[120:]
    campaigns = []
    for spoilt in (False, True):
        cleaner = NetworkCleaner(
            network, constructor=constructor, trusted=trusted, training=QUICK, holdout=0.5, device="cpu"
        )
        X_val = problem.X[120:].copy()
        X_val[draw_judges(y_val, 3, 0.5, 0)] += 100.0 * spoilt
        cleaner.fit(problem.X[:120], problem.weak[:120], X_val=X_val, y_val=y_val)
        asked = cleaner.query().indices
        cleaner.update(asked, problem.y[asked])
        campaigns.append(cleaner)
    one, two = campaigns
    np.testing.assert_array_equal(weights(one), weights(two))
    np.testing.assert_array_equal(one.query().indices, two.query().indices)
    assert one.history_["steer_loss"].tolist() == two.history_["steer_loss"].tolist()
    assert one.history_["val_loss"].iloc[-1] != two.history_["val_loss"].iloc[-1]


def test_the_gain_is_that_of_the_networks_predictions(problem: Problem) -> None:
    cleaner = NetworkCleaner(net(), training=QUICK, device="cpu", budget=40)
    problem.fit(cleaner, X_judge=problem.X[200:], y_judge=problem.y[200:])
    first = cleaner.predict_proba(problem.X[200:]).argmax(axis=1) == problem.y[200:]
    cleaner.run(lambda batch: problem.y[batch.indices])
    last = cleaner.predict_proba(problem.X[200:]).argmax(axis=1) == problem.y[200:]
    for split in ("validation", "test"):  # the same samples, here
        gain = cleaner.gain("accuracy", split=split)
        assert gain is not None
        assert gain.change == pytest.approx(last.mean() - first.mean())
        assert gain.low <= gain.change <= gain.high


def test_samples_nobody_can_answer_for_are_not_asked(problem: Problem) -> None:
    askable = np.arange(160) % 2 == 0
    cleaner = problem.fit(NetworkCleaner(net(), pretrained=True, device="cpu"), askable=askable)
    assert sorted(cleaner.query(160).indices.tolist()) == np.flatnonzero(askable).tolist()


def test_a_network_without_a_linear_end_has_no_last_layer(problem: Problem) -> None:
    ends = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3), nn.ReLU())
    with pytest.raises(InvalidInputError, match="does not make the logits"):
        problem.fit(NetworkCleaner(ends, constructor="last_layer", pretrained=True, device="cpu"))


def test_unresolved_samples_wait_and_class_names_are_kept() -> None:
    problem = Problem(classes=2)
    names = np.array(["ham", "spam"])
    cleaner = NetworkCleaner(net(2), training=QUICK, device="cpu", batch_size=4)
    problem.fit(cleaner, y_val=names[problem.y[160:200]], y_test=names[problem.y[200:]], classes=["ham", "spam"])
    first = cleaner.query()
    cleaner.update(first.indices, [-1] * 4)
    assert not set(cleaner.query().indices.tolist()) & set(first.indices.tolist())
    assert set(cleaner.predict(problem.X[:5])) <= {"ham", "spam"}


def test_it_pickles_and_goes_on(problem: Problem) -> None:
    cleaner = problem.fit(NetworkCleaner(net(), training=QUICK, device="cpu"))
    other: NetworkCleaner = pickle.loads(pickle.dumps(cleaner))
    for one in (cleaner, other):
        batch = one.query()
        one.update(batch.indices, problem.y[batch.indices])
    np.testing.assert_array_equal(weights(cleaner), weights(other))
    np.testing.assert_array_equal(cleaner.query().indices, other.query().indices)


def test_token_ids_pixels_and_memory_maps_reach_the_network(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    y, weak = rng.integers(0, 2, 30), rng.dirichlet([1, 1], 20)
    tokens = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(20, 2))
    ids = rng.integers(0, 50, (30, 5))
    pixels = nn.Sequential(nn.Flatten(), nn.Linear(9, 2))
    shades = rng.integers(0, 4, (30, 3, 3)).astype(np.uint8)
    np.save(tmp_path / "x.npy", shades)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for network, X in ((tokens, ids), (pixels, shades), (pixels, mapped), (pixels, torch.from_numpy(shades))):
        cleaner = NetworkCleaner(network, training=QUICK, device="cpu")
        cleaner.fit(X[:20], weak, X_val=X[20:], y_val=y[20:])
        assert len(cleaner.query(3)) == 3


def test_a_subset_for_the_curvature_ranks_much_the_same(problem: Problem) -> None:
    full = problem.fit(NetworkCleaner(net(), "expected_infl", trusted="steer", training=QUICK, device="cpu"))
    settings: dict[str, Any] = {"pretrained": True, "influence": InfluenceSettings(curvature_rows=80), "device": "cpu"}
    few = NetworkCleaner(full.network_, "expected_infl", trusted="steer", **settings)
    few = problem.fit(few)
    assert np.corrcoef(full.scores(), few.scores())[0, 1] > 0.95
    assert not np.array_equal(full.scores(), few.scores())


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_told_and_shown(
    problem: Problem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    told: list[int] = []
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    cleaner = NetworkCleaner(net(), "infl", training=QUICK, progress=True, device="cpu")
    problem.fit(cleaner, on_step=lambda epoch, loss, val: told.append(epoch))
    assert told == [1, 2, 3, 4]
    said = capsys.readouterr()
    assert said.out == "", "the bar goes to the standard error"
    assert ("on validation" in said.err) == terminal
    batch = cleaner.query()
    assert ("influence, iteration" in capsys.readouterr().err) == terminal
    cleaner.update(batch.indices, problem.y[batch.indices])
    said = capsys.readouterr()
    assert ("on validation" in said.err) == terminal
    assert terminal or said.err == ""


def test_without_torch_the_error_names_the_extra_and_the_rest_is_unhurt() -> None:
    code = """
import sys
class NoTorch:
    def find_spec(self, name, *rest):
        if name == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, NoTorch())
import labelchef.loop.cleaner
try:
    import labelchef.networks
except labelchef.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "labelchef[torch]" in done.stdout
    lazy = "import labelchef.cli.main, labelchef.loop.cleaner, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", lazy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("constructor", ["fine_tune", "retrain", "last_layer"])
def test_the_final_network_predicts_without_the_data(constructor: str, problem: Problem) -> None:
    cleaner = problem.fit(NetworkCleaner(net(), constructor=constructor, training=QUICK, budget=20, device="cpu"))
    model = cleaner.run(lambda batch: problem.y[batch.indices]).model
    X, y = problem.X[200:], problem.y[200:]
    for same in (model, pickle.loads(pickle.dumps(model)), clone(model), cleaner.finish()):
        atol = 1e-3 if constructor == "last_layer" else 1e-5  # that layer is fitted anew, to its tolerance
        np.testing.assert_allclose(same.predict_proba(X), cleaner.predict_proba(X), atol=atol)
        assert same.predict(X).tolist() == cleaner.predict(X).tolist()
        assert same.score(X, y) == cleaner.score(X, y)
        assert same.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-9)
    check_is_fitted(model)
    assert model.fit(X, y) is model
    before = model.predict_proba(X)
    cleaner.update(np.flatnonzero(~cleaner.cleaned_)[:40], np.zeros(40, dtype=int))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(InvalidInputError, match=r"a sample of X has shape \(5,\); expected \(6,\)"):
        model.predict(X[:, :5])


def test_the_final_last_layer_does_not_depend_on_the_rounds(problem: Problem) -> None:
    network = net()
    ends = []
    for items in (np.arange(20), np.arange(20)[::-1]):
        cleaner = NetworkCleaner(network, constructor="last_layer", training=QUICK, device="cpu", pretrained=True)
        problem.fit(cleaner)
        for item in items:
            cleaner.update([item], [problem.y[item]])
        ends.append(cleaner.finish().predict_proba(problem.X))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)
