"""`NetworkCleaner` as users meet it: the contract, rounds, baselines, constructors, refusals."""

import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import nn

from labelchef import InvalidInputError, LabelchefError, LabelCleaner, MissingClassWarning
from labelchef.annotators import SimulatedAnnotators, make_strategy
from labelchef.networks import (
    NETWORK_SELECTORS,
    FineTune,
    InfluenceSettings,
    LastLayer,
    NetworkCleaner,
    TrainingSettings,
    adapt,
)
from labelchef.networks.constructors import NetworkTrainer
from labelchef.networks.selector import ON_PROBABILITIES
from labelchef.pipeline.holdout import draw_judges
from labelchef.pipeline.stopping import MaxRounds
from labelchef.selectors import SELECTORS, AnchoredSelector, MarginSelector

QUICK = TrainingSettings(epochs=4, batch_size=32, learning_rate=0.01)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(threads)


class Problem:
    def __init__(self, classes: int = 3) -> None:
        rng = np.random.default_rng(5)
        self.y = rng.integers(0, classes, 260)
        X = rng.normal(size=(260, 6)) + 1.5 * np.eye(classes, 6)[self.y]
        self.X = X.astype(np.float32)
        self.weak = 0.6 * rng.dirichlet(np.ones(classes), 160) + 0.4 / classes
        self.given: dict[str, Any] = {"X_val": self.X[160:200], "y_val": self.y[160:200]}
        self.test: dict[str, Any] = {"X_test": self.X[200:], "y_test": self.y[200:]}

    def fit(self, cleaner: NetworkCleaner, **more: Any) -> NetworkCleaner:
        return cleaner.fit(self.X[:160], self.weak, **{**self.given, **self.test, **more})


def net(classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, classes))


@pytest.fixture
def problem() -> Problem:
    return Problem()


def weights(cleaner: NetworkCleaner) -> NDArray[Any]:
    return np.concatenate([p.detach().numpy().ravel() for p in cleaner.network_.parameters()])


@pytest.mark.parametrize("constructor", ["fine_tune", "retrain", "last_layer"])
def test_a_campaign_cleans_and_leaves_the_users_network_alone(constructor: str, problem: Problem) -> None:
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
    cleaner = problem.fit(NetworkCleaner(network, pretrained=True, device="cpu"))
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
    assert (batch.suggested == -1).all()
    cleaner.update(batch.indices, problem.y[batch.indices])
    assert not set(cleaner.query(20).indices.tolist()) & set(batch.indices.tolist())


def test_kin_of_infl_read_off_the_same_products(problem: Problem) -> None:
    """Against gradients of single samples, along the v that INFL used."""
    network = net().double()
    settings: dict[str, Any] = {"pretrained": True, "l2": 0.01, "device": "cpu"}
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
    for name in set(SELECTORS) - set(NETWORK_SELECTORS):
        with pytest.raises(InvalidInputError, match=f"{name}.*last_layer"):
            problem.fit(NetworkCleaner(net(), selector=name, training=QUICK, device="cpu"))
    with pytest.raises(InvalidInputError, match="increm_infl"):
        problem.fit(NetworkCleaner(net(), selector=AnchoredSelector(), pretrained=True, device="cpu"))
    with pytest.raises(InvalidInputError, match="cannot choose on a network"):
        problem.fit(NetworkCleaner(net(), selector="nonsense", pretrained=True, device="cpu"))
    own = problem.fit(NetworkCleaner(net(), selector=MarginSelector(), pretrained=True, device="cpu"))
    assert len(own.query(3)) == 3


@pytest.mark.parametrize("constructor", ["newton", "deltagrad_l"])
def test_the_last_layer_is_the_convex_pipeline_on_the_features_below_it(constructor: str, problem: Problem) -> None:
    following = LastLayer(constructor, look_ahead=False)
    cleaner = NetworkCleaner(
        net(), selector="increm_infl", constructor=following, pretrained=True, l2=0.01, device="cpu"
    )
    problem.fit(cleaner)
    layers = list(cleaner.network.children())
    with torch.no_grad():
        F = torch.relu(layers[0](torch.from_numpy(problem.X))).numpy()
    convex = LabelCleaner("increm_infl", constructor, gamma=0.8, l2=0.01, look_ahead=False)
    convex.fit(F[:160], problem.weak, X_val=F[160:200], y_val=problem.y[160:200])
    for _ in range(2):
        batch = convex.query()
        assert cleaner.query().indices.tolist() == batch.indices.tolist()
        convex.update(batch.indices, problem.y[batch.indices])
        cleaner.update(batch.indices, problem.y[batch.indices])
    np.testing.assert_allclose(cleaner.W_, convex.W_, atol=1e-6)
    np.testing.assert_allclose(cleaner.scores(), convex.scores(), atol=1e-6)


@pytest.mark.parametrize("constructor", ["fine_tune", "last_layer"])
def test_samples_that_judge_reach_neither_training_nor_selection(constructor: str) -> None:
    problem, network = Problem(), net()
    y_val = problem.y[120:]
    campaigns = []
    for spoilt in (False, True):
        cleaner = NetworkCleaner(network, constructor=constructor, training=QUICK, holdout=0.5, device="cpu")
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
    full = problem.fit(NetworkCleaner(net(), training=QUICK, device="cpu"))
    few = NetworkCleaner(full.network_, pretrained=True, device="cpu", influence=InfluenceSettings(curvature_rows=80))
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
    cleaner = NetworkCleaner(net(), training=QUICK, progress=True, device="cpu")
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


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"X_val": None}, "belong together"),
        ({"X_val": np.zeros((40, 5))}, r"expected \(6,\)"),
        ({"X_val": np.full((40, 6), np.nan)}, "not finite"),
        ({"y_val": np.zeros(3, dtype=int)}, "3 entries"),
        ({"y_clean": np.zeros(3, dtype=int)}, "y_clean has 3"),
    ],
)
def test_bad_inputs_are_refused(given: dict[str, Any], match: str, problem: Problem) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingClassWarning)
        with pytest.raises(InvalidInputError, match=match):
            problem.fit(NetworkCleaner(net(), pretrained=True, device="cpu"), **given)


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: NetworkCleaner(net(), constructor="newton"), "expected one of: retrain, fine_tune, last_layer"),
        (lambda: NetworkCleaner(net(), device="toaster"), "device is 'toaster'"),
        (lambda: NetworkCleaner(net(4)), "4 outputs; expected 3"),
        (lambda: NetworkCleaner(nn.Sequential(net(), nn.Softmax(1))), "outputs='probabilities'"),
        (lambda: NetworkCleaner("net"), "expected a torch.nn.Module"),
        (lambda: NetworkCleaner(net(), gamma=2.0), "gamma is 2.0"),
        (lambda: NetworkCleaner(net(), gamma="auto"), "gamma is 'auto'.*expected numbers"),
        (lambda: NetworkCleaner(nn.Sequential(net(), nn.Unflatten(1, (3, 1)))), "returned shape"),
        (lambda: NetworkCleaner(nn.Linear(5, 3), device="cpu"), "cannot take a batch of X"),
        (lambda: NetworkCleaner(_Says(lambda x: (x, x))), "^the network returned tuple"),
        (lambda: NetworkCleaner(_Says(lambda x: x.mean(dim=2))), "cannot take a batch of X.*Dimension out of range"),
        (lambda: NetworkCleaner(nn.Sequential(nn.LazyLinear(3))), "lazy layers"),
        (lambda: NetworkCleaner(net(), parameters=iter(["2"])), "parameters is an iterator"),
        (lambda: NetworkCleaner(net(), outputs="probabilities"), "expected numbers from 0 to 1"),
        (lambda: NetworkCleaner(nn.utils.weight_norm(nn.Linear(6, 3))), "cannot be copied"),
        (lambda: NetworkCleaner(net(), training={"epochs": 3}), "training is dict"),  # type: ignore[arg-type]
        (lambda: NetworkCleaner(net(), device="meta"), "device is 'meta'"),
        (lambda: FineTune(epochs=0), "epochs is 0"),
        (lambda: FineTune(learning_rate=-1.0), "learning_rate is -1.0"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_bad_settings_are_refused(made: Any, match: str, problem: Problem) -> None:
    with pytest.raises(LabelchefError, match=match):
        problem.fit(made())


class _Says(nn.Module):
    """Returns what it is told to."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what, self.scale = what, nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> Any:
        return self.what(self.scale * x)


class _Contract(nn.Module):
    """A user's own: two methods."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x)))  # type: ignore[no-any-return]

    def influenced(self) -> list[str]:
        return ["head"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_can_be_adapted(problem: Problem) -> None:
    assert adapt(_Contract()).influenced() == ("module.head.weight", "module.head.bias")
    assert adapt(net(), ["0.weight", "2"]).influenced() == ("module.0.weight", "module.2.weight", "module.2.bias")
    frozen = net()
    for p in frozen[0].parameters():  # type: ignore[index]
        p.requires_grad_(False)
    assert adapt(frozen).influenced() == ("module.2.weight", "module.2.bias")
    for network in (_Contract(), frozen):
        cleaner = problem.fit(NetworkCleaner(network, training=QUICK, budget=10, device="cpu"))
        assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"
    for wrong, match in ((["nose"], "no trainable parameter is called 'nose'"), ("some", "'all', 'last'")):
        with pytest.raises(InvalidInputError, match=match):
            adapt(net(), wrong)
    with pytest.raises(InvalidInputError, match="no linear layer"):
        adapt(nn.Conv1d(1, 1, 1), "last")
    with pytest.raises(InvalidInputError, match="TorchScript"):
        adapt(torch.jit.trace(net(), torch.zeros(1, 6)))  # type: ignore[no-untyped-call]
    with pytest.raises(InvalidInputError, match="settled in a NetworkTask"):
        adapt(adapt(net()), "last")


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.head.weight = self.body.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))[:, :3]  # type: ignore[no-any-return]


def test_tied_parameters_are_found_by_each_of_their_names() -> None:
    for named in ("last", ["head"]):
        assert adapt(_Tied(), named).influenced() == ("module.body.weight", "module.head.bias")


def test_a_frozen_network_needs_a_last_layer_to_clean(problem: Problem) -> None:
    frozen = net().requires_grad_(False)
    with pytest.raises(InvalidInputError, match="no parameter to influence"):
        problem.fit(NetworkCleaner(frozen, pretrained=True, device="cpu"))
    cleaner = NetworkCleaner(frozen, pretrained=True, constructor="last_layer", budget=10, device="cpu")
    assert str(problem.fit(cleaner).run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"


def test_frozen_batch_norms_stay_as_they_are(problem: Problem) -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    network[1].requires_grad_(False)
    after = problem.fit(NetworkCleaner(network, training=QUICK, device="cpu")).network_.state_dict()
    moved = {name for name, value in network.state_dict().items() if not torch.equal(value, after[name])}
    assert {name for name in moved if name.startswith("1.")} == set()
    assert {"2.running_mean", "2.weight"} <= moved


def test_the_strengths_of_a_last_layer_may_be_left_to_the_data(problem: Problem) -> None:
    cleaner = NetworkCleaner(net(), constructor="last_layer", gamma="auto", l2="auto", training=QUICK, device="cpu")
    problem.fit(cleaner)
    assert cleaner.tuned_ is not None
    assert (cleaner.gamma_, cleaner.l2_) == (cleaner.tuned_.gamma, cleaner.tuned_.l2)


def test_the_network_handed_back_predicts(problem: Problem) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))
    for constructor in ("fine_tune", "last_layer"):
        cleaner = problem.fit(NetworkCleaner(network, constructor=constructor, training=QUICK, device="cpu"))
        with torch.no_grad():
            said = torch.softmax(cleaner.network_(torch.from_numpy(problem.X[:9])), dim=1)
        np.testing.assert_allclose(said.numpy(), cleaner.predict_proba(problem.X[:9]), atol=1e-5)


class _Computed(nn.Module):
    """A head whose weights are computed from others."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x)))  # type: ignore[no-any-return]


class _Square(nn.Module):
    """A head that shares its weights with the layer before it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
        self.head.weight = self.body.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x[:, :3])))  # type: ignore[no-any-return]


@pytest.mark.parametrize("network", [_Computed, _Square, lambda: nn.Linear(6, 3)])
def test_a_last_layer_takes_the_place_of_one_that_is_tied_or_computed(network: Any, problem: Problem) -> None:
    cleaner = NetworkCleaner(network(), constructor="last_layer", training=QUICK, device="cpu", budget=10)
    problem.fit(cleaner).run(lambda batch: problem.y[batch.indices])
    with torch.no_grad():
        said = torch.softmax(cleaner.network_(torch.from_numpy(problem.X[:9])), dim=1)
    np.testing.assert_allclose(said.numpy(), cleaner.predict_proba(problem.X[:9]), atol=1e-5)


def test_networks_in_half_precision_are_cleaned_too(problem: Problem) -> None:
    loose = InfluenceSettings(tol=0.05)  # products are rounded to eight bits
    cleaner = NetworkCleaner(net().bfloat16(), training=QUICK, influence=loose, budget=10, device="cpu")
    problem.fit(cleaner)
    assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"
    assert next(cleaner.network_.parameters()).dtype == torch.bfloat16


def test_numbers_that_are_not_finite_end_in_an_error(problem: Problem) -> None:
    broken = net()
    with torch.no_grad():
        broken[0].weight[0, 0] = torch.nan  # type: ignore[index]
    with pytest.raises(InvalidInputError, match="logits of sample 0 are not finite"):
        problem.fit(NetworkCleaner(broken, pretrained=True, device="cpu"))


def test_lightning_modules_are_accepted_as_they_are(problem: Problem) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about deprecations elsewhere
        lightning = pytest.importorskip("pytorch_lightning")

        class Lit(lightning.LightningModule):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.layers = net()

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.layers(x)  # type: ignore[no-any-return]

            def training_step(self, batch: Any, index: int) -> torch.Tensor:
                return nn.functional.cross_entropy(self(batch[0]), batch[1])

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.Adam(self.parameters(), 1e-2)

        weak = torch.from_numpy(problem.weak.argmax(axis=1))
        data = torch.utils.data.TensorDataset(torch.from_numpy(problem.X[:160]), weak)
        given = Lit()
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **quiet)
        trainer.fit(given, torch.utils.data.DataLoader(data, 32))
    assert adapt(given, "last").influenced() == ("module.layers.2.weight", "module.layers.2.bias")
    cleaner = problem.fit(NetworkCleaner(given, pretrained=True, training=QUICK, budget=10, device="cpu"))
    with torch.no_grad():
        said = torch.softmax(given.eval()(torch.from_numpy(problem.X[:9])), dim=1)
    np.testing.assert_allclose(cleaner.predict_proba(problem.X[:9]), said.numpy(), atol=1e-6)
    assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"


def test_one_output_and_probabilities_are_two_classes(rng: np.random.Generator) -> None:
    x = torch.from_numpy(rng.normal(size=(5, 6)).astype(np.float32))
    one = nn.Linear(6, 1)
    p = torch.sigmoid(one(x))[:, 0]
    for network, outputs in ((one, "logits"), (nn.Sequential(one, nn.Sigmoid()), "probabilities")):
        found = torch.softmax(adapt(network, outputs=outputs)(x), dim=1)  # type: ignore[arg-type]
        torch.testing.assert_close(found[:, 1], p)
    gated = nn.Sequential(one, nn.Sigmoid())
    for outputs in ("probabilities", "logits"):  # said outright, it is believed
        adapt(gated, outputs=outputs).check(x, 2)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="look like probabilities"):
        adapt(gated).check(x, 2)
    with pytest.raises(InvalidInputError, match="expected ids within its vocabulary"):
        adapt(nn.Sequential(nn.Embedding(5, 3), nn.Flatten()))(torch.full((2, 1), 9))
    rounded = torch.tensor([[0.283203125, 0.1298828125, 0.5859375]], dtype=torch.bfloat16)  # a softmax, in eight bits
    adapt(_Says(lambda x: rounded.expand(len(x), 3)), outputs="probabilities").check(x, 3)
    three = nn.Sequential(nn.Linear(6, 3), nn.Softmax(1))
    torch.testing.assert_close(torch.softmax(adapt(three, outputs="probabilities")(x), 1), three(x))


@pytest.mark.parametrize("criterion", ["nll", "cross_entropy"])
def test_skorch_nets_are_accepted_as_they_are(criterion: str, problem: Problem) -> None:
    from skorch import NeuralNetClassifier

    module = nn.Sequential(net(), nn.Softmax(1)) if criterion == "nll" else net()
    loss = nn.NLLLoss if criterion == "nll" else nn.CrossEntropyLoss
    given = NeuralNetClassifier(module, criterion=loss, max_epochs=2, train_split=None, verbose=0)
    with pytest.raises(InvalidInputError, match="initialize"):
        adapt(given)
    given.fit(problem.X[:160], problem.weak.argmax(axis=1))
    cleaner = problem.fit(NetworkCleaner(given, pretrained=True, training=QUICK, budget=10, device="cpu"))
    said = given.forward(problem.X[:9])
    said = said if criterion == "nll" else torch.softmax(said, dim=1)
    np.testing.assert_allclose(cleaner.predict_proba(problem.X[:9]), said.numpy(), atol=1e-6)
    assert str(cleaner.run(lambda batch: problem.y[batch.indices]).stopped_because) == "budget spent"


def test_without_torch_the_error_names_the_extra_and_the_rest_is_unhurt() -> None:
    code = """
import sys
class NoTorch:
    def find_spec(self, name, *rest):
        if name == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, NoTorch())
import labelchef.cleaner
try:
    import labelchef.networks
except labelchef.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "labelchef[torch]" in done.stdout
    lazy = "import labelchef.cli.main, labelchef.cleaner, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", lazy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
