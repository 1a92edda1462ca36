"""Baselines of active learning, noise detection and today's field, each against an independent way to the same."""

import importlib.metadata
import math
import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cleanlab.multiannotator import get_active_learning_scores
from cleanlab.rank import get_label_quality_scores
from experiments.cleanlab_selectors import (
    CLEANLAB_SELECTORS,
    ActiveLabSelector,
    CleanlabQualitySelector,
    annotations,
    deal_folds,
    out_of_fold,
)
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from labelchef import Known, LabelCleaner
from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.records import UNRESOLVED
from labelchef.chef.baselines import O2USelector
from labelchef.chef.choice import make_selector
from labelchef.chef.selectors import SELECTORS
from labelchef.chef.selectors.protocol import SelectionContext
from labelchef.data.exchange.cleanlab import quietly
from labelchef.loop.annotators import GroundTruth, Panel, SimulatedAnnotators, Suggestion
from labelchef.loop.stopping import NoPredictedGain, Progress
from tests.oracles import cleaner_of

Array = NDArray[np.float64]
UNCERTAIN = ("least_confidence", "entropy", "margin")
OURS = ("random", *UNCERTAIN, "o2u", "cleanlab_quality", "active_lab")
N, N_VAL = 120, 60


def chosen(selector: Any) -> Any:
    """What `LabelCleaner` takes for this name: a peer is an object."""
    return CLEANLAB_SELECTORS[selector]() if isinstance(selector, str) and selector in CLEANLAB_SELECTORS else selector


class World:
    """Blobs with a random weak label each; everything seeded."""

    def __init__(self, C: int = 3, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.C, n = C, N + N_VAL
        self.y = rng.integers(0, C, n)
        self.X = 1.5 * rng.normal(size=(C, 4))[self.y] + rng.normal(size=(n, 4))
        self.weak = rng.dirichlet(np.ones(C), N) + 0.7 * np.eye(C)[self.y[:N]]
        self.weak /= self.weak.sum(axis=1, keepdims=True)

    def cleaner(self, selector: Any, order: "NDArray[np.int64] | None" = None, **settings: Any) -> LabelCleaner:
        rows = np.arange(N) if order is None else order
        made = cleaner_of(
            selector=chosen(selector),
            **{"trusted": "steer", "tol": 1e-5, "gamma": 0.8, "l2": 0.02, "budget": None, **settings},
        )
        return made.fit(self.X[:N][rows], self.weak[rows], X_val=self.X[N:], y_val=self.y[N:])

    def with_votes(self, selector: Any, rounds: int = 3, **settings: Any) -> LabelCleaner:
        """After a few rounds by three people, one of whom is careless."""
        made = self.cleaner(selector, budget=8 * rounds, batch_size=8, **settings)
        made.run(SimulatedAnnotators(self.y[:N], n_classes=self.C, error_rates=(0.05, 0.1, 0.4), seed=1))
        return made


def context_of(cleaner: LabelCleaner) -> SelectionContext:
    session = cleaner._session
    return session.context(~session.labels.cleaned)


def never_asked(cleaner: LabelCleaner) -> "NDArray[np.int64]":
    """Samples of the first tier: those asked in vain come after them."""
    asked = [i for record in cleaner.rounds_ for i in record.decisions.items.tolist()]
    return np.setdiff1d(np.flatnonzero(~cleaner.cleaned_), asked)


def round_rng(cleaner: LabelCleaner) -> np.random.Generator:
    """What a round's random choices come from: the seed and its number."""
    return np.random.default_rng([0, len(cleaner.rounds_)])


def plain_score(name: str, p: list[float]) -> float:
    if name == "least_confidence":
        return max(p)
    if name == "entropy":
        return sum(q * math.log(q) for q in p if q > 0)
    first, second = sorted(p)[-1], sorted(p)[-2]
    return first - second


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("name", UNCERTAIN)
def test_uncertainty_is_what_a_plain_loop_says(name: str, C: int) -> None:
    world = World(C)
    cleaner = world.with_votes(name, rounds=1)
    P = cleaner.predict_proba(world.X[:N])
    expected = sorted(never_asked(cleaner).tolist(), key=lambda i: plain_score(name, P[i].tolist()))
    batch = cleaner.query(30)
    assert batch.indices.tolist() == expected[:30]
    np.testing.assert_array_equal(batch.suggested, P[batch.indices].argmax(axis=1))
    assert np.isnan(batch.influence).all()


@pytest.mark.parametrize("name", UNCERTAIN)
def test_uncertainty_does_not_care_for_the_order_of_the_rows(name: str) -> None:
    world, order = World(3), np.random.default_rng(5).permutation(N)
    plain, mixed = world.cleaner(name, tol=1e-8).query(20), world.cleaner(name, order, tol=1e-8).query(20)
    assert order[mixed.indices].tolist() == plain.indices.tolist()


def test_chance_reaches_every_sample_alike_and_another_one_every_round() -> None:
    world = World(2)
    context, counts = context_of(world.cleaner("random")), np.zeros(N)
    for seed in range(300):
        drawn = replace(context, rng=np.random.default_rng(seed))
        counts[SELECTORS["random"]().select(drawn, 12).indices] += 1
    assert abs(counts - 30).max() < 6 * math.sqrt(30 * 0.9)
    cleaner = world.cleaner("random")
    first = cleaner.query(10)
    second = cleaner.update(first.indices, world.y[first.indices]).query(10)
    fresh = [i for i in np.argsort(np.random.default_rng([0, 2]).random(N)).tolist() if i not in set(first.indices)]
    assert second.indices.tolist() == fresh[:10]


@pytest.mark.parametrize("name", OURS)
def test_the_same_again_and_only_what_is_left(name: str) -> None:
    world = World(3)
    one, two = world.with_votes(name), world.with_votes(name)
    batch = one.query(25)
    np.testing.assert_array_equal(batch.indices, two.query(25).indices)
    assert one.query(25) is batch
    assert one.query(10).indices.tolist() == batch.indices[:10].tolist()
    assert len(set(batch.indices.tolist())) == 25
    assert not one.cleaned_[batch.indices].any()
    assert (batch.suggested != UNRESOLVED).all() == one.suggests_
    everything = one.query(10 * N)
    assert sorted(everything.indices.tolist()) == np.flatnonzero(~one.cleaned_).tolist()


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_ends_of_gamma_and_every_constructor_of_choice(name: str, gamma: float) -> None:
    world = World(2)
    cleaner = world.cleaner(name, gamma=gamma, constructor="retrain" if gamma else "newton")
    for _ in range(3):
        batch = cleaner.query(7)
        assert len(set(batch.indices.tolist())) == 7
        cleaner.update(batch.indices, world.y[batch.indices])


def o2u_by_hand(world: World, cleaner: LabelCleaner, selector: O2USelector) -> Array:
    """The descent in full coordinates, a row at a time where that is affordable."""
    rng, W, Y = round_rng(cleaner), cleaner.W_.copy(), cleaner.labels_
    X = np.hstack([world.X[:N], np.ones((N, 1))])
    r = np.where(cleaner.cleaned_, 1.0, 0.8)
    sample = X[rng.permutation(N)[:256]]
    top = 1.0 / (np.linalg.norm(sample, 2) ** 2 / len(sample) / 2 + 0.02)
    total = np.zeros(N)
    for _ in range(selector.cycles):
        for e in range(selector.epochs):
            rate = top - e / (selector.epochs - 1) * (top - top / 100)
            order = rng.permutation(N)
            for start in range(0, N, selector.minibatch):
                B = order[start : start + selector.minibatch]
                gradient = np.zeros_like(W)
                for i in B:
                    gradient += r[i] * np.outer(X[i], softmax(X[i] @ W) - Y[i])
                W = W - rate * (gradient / len(B) + 0.02 * W)
            total += -(Y * log_softmax(X @ W, axis=1)).sum(axis=1)
    return -total / (selector.cycles * selector.epochs)


@pytest.mark.parametrize("C", [2, 3])
def test_o2u_is_the_descent_of_its_equations(C: int) -> None:
    world, selector = World(C), O2USelector(cycles=2, epochs=3, minibatch=32)
    cleaner = world.with_votes(selector, rounds=1)
    scores = selector.rank(context_of(cleaner)).scores
    np.testing.assert_allclose(scores, o2u_by_hand(world, cleaner, selector), rtol=1e-9)


@pytest.mark.parametrize("soft", [0.0, 0.3])
def test_o2u_finds_the_noise_it_must(soft: float) -> None:
    rng, n, C = np.random.default_rng(0), 600, 3
    y = rng.integers(0, C, n + 60)
    X = 4.0 * np.eye(C, 6)[y] + rng.normal(size=(n + 60, 6))
    flipped = rng.permutation(n)[: n // 10]
    given = y[:n].copy()
    given[flipped] = (given[flipped] + rng.integers(1, C, len(flipped))) % C
    weak = (1 - soft) * np.eye(C)[given] + soft / C
    cleaner = LabelCleaner(selector="o2u", l2=0.01, trusted="steer").fit(X[:n], weak, X_val=X[n:], y_val=y[n:])
    found = np.isin(cleaner.query(len(flipped)).indices, flipped).mean()
    losses = -(weak * log_softmax(np.zeros((n, C)), axis=1)).sum(axis=1)  # at W = 0 every sample has the loss log C
    untrained = np.isin(np.argsort(-losses, kind="stable")[: len(flipped)], flipped).mean()
    assert untrained < 0.25
    assert found > 0.95


def sklearn_out_of_fold(world: World, cleaner: LabelCleaner, count: int) -> Array:
    """Fold models by scikit-learn: a soft label is a row a class, weighted; the bias is a column, regularised as ours is."""
    Y, r = cleaner.labels_, np.where(cleaner.cleaned_, 1.0, 0.8)
    X, C = np.hstack([world.X[:N], np.ones((N, 1))]), world.C
    folds, P = deal_folds(Y.argmax(axis=1), count, round_rng(cleaner)), np.empty_like(Y)
    for fold in range(count):
        train = np.flatnonzero(folds != fold)
        strength = (2.0 if C == 2 else 1.0) / (0.02 * len(train))  # two classes: one vector w, ‖W‖² = ‖w‖²/2
        model = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10, max_iter=10_000)
        model.fit(
            np.repeat(X[train], C, axis=0), np.tile(np.arange(C), len(train)), (r[train, None] * Y[train]).ravel()
        )
        P[folds == fold] = model.predict_proba(X[folds == fold])
    return P


@pytest.mark.parametrize("C", [2, 3])
def test_out_of_fold_is_what_scikit_learn_fits(C: int) -> None:
    world = World(C)
    cleaner = world.with_votes("random")
    ours = out_of_fold(context_of(cleaner), 4)
    np.testing.assert_allclose(ours, sklearn_out_of_fold(world, cleaner, 4), atol=2e-5)
    assert np.abs(ours - context_of(cleaner).probabilities).max() > 1e-3  # the model itself has seen the labels


def test_out_of_fold_has_not_seen_the_label() -> None:
    """A label that changes without changing sides moves everyone's probabilities but its own."""
    world = World(3)
    before = out_of_fold(context_of(world.cleaner("random")), 5)
    i, c = 17, int(world.weak[17].argmax())
    world.weak[i] = 0.98 * np.eye(3)[c] + 0.02 / 3
    after = out_of_fold(context_of(world.cleaner("random")), 5)
    np.testing.assert_allclose(after[i], before[i], atol=1e-5)
    assert np.abs(after - before).max() > 1e-4


def test_folds_are_dealt_evenly_and_by_class() -> None:
    rng = np.random.default_rng(3)
    classes = rng.choice(4, size=203, p=[0.6, 0.3, 0.08, 0.02])
    folds = deal_folds(classes, 5, rng)
    assert np.ptp(np.bincount(folds, minlength=5)) <= 1
    for c in range(4):
        assert np.ptp(np.bincount(folds[classes == c], minlength=5)) <= 1
    assert deal_folds(np.array([1, 0]), 5, rng).max() == 1  # fewer samples than folds


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("method", ["self_confidence", "normalized_margin", "confidence_weighted_entropy"])
def test_cleanlab_quality_is_the_library_on_those_probabilities(method: str, C: int) -> None:
    world = World(C)
    cleaner = world.with_votes(CleanlabQualitySelector(method=method))
    P = sklearn_out_of_fold(world, cleaner, 5)
    given = np.array([int(np.argmax(row)) for row in cleaner.labels_])
    expected = get_label_quality_scores(given, P, method=method)
    ranking = CleanlabQualitySelector(method=method).rank(context_of(cleaner))
    np.testing.assert_allclose(ranking.scores, expected, atol=1e-4)
    batch = cleaner.query(10)
    left = never_asked(cleaner)
    assert batch.indices.tolist() == left[np.argsort(expected[left])][:10].tolist()
    assert batch.suggested.tolist() == P[batch.indices].argmax(axis=1).tolist()
    assert np.isnan(batch.influence).all()


def labels_by_hand(world: World, cleaner: LabelCleaner) -> Array:
    """What everyone said, collected a vote at a time: the weak label, then people by name."""
    people = ["person 1", "person 2", "person 3"]
    table = np.full((N, 4), np.nan)
    table[:, 0] = world.weak.argmax(axis=1)
    for record in cleaner.rounds_:
        for item, who, label in record.votes:
            table[item, 1 + people.index(who)] = label
    return table


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_active_lab_is_the_library_on_those_probabilities_and_votes(C: int, rounds: int) -> None:
    world = World(C)
    cleaner = world.with_votes("active_lab", rounds) if rounds else world.cleaner("active_lab")
    P, table = sklearn_out_of_fold(world, cleaner, 5), labels_by_hand(world, cleaner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = get_active_learning_scores(table[:, ~np.isnan(table).all(axis=0)], P)[0]
    scores = ActiveLabSelector().rank(context_of(cleaner)).scores
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    left = never_asked(cleaner)
    assert cleaner.query(10).indices.tolist() == left[np.argsort(scores[left], kind="stable")][:10].tolist()


def test_annotators_of_active_lab() -> None:
    """Who counts as one: the weak label unless it is undecided, people, and clean labels that nobody voted on."""
    world = World(2)
    world.weak[:5] = 0.5
    known = np.full(N, -1)
    known[7] = 1
    cleaner = LabelCleaner(selector=ActiveLabSelector(), trusted="steer").fit(
        world.X[:N], world.weak, X_val=world.X[N:], y_val=world.y[N:], known=Known(y_clean=known)
    )
    table = annotations(context_of(cleaner))
    assert np.isnan(table[:5]).all()
    assert table[7, 1] == 1
    assert np.isfinite(ActiveLabSelector().rank(context_of(cleaner)).scores).all()
    cleaner.update([0, 1, 2], [1, -1, 0]).update([0], [0])
    table = annotations(context_of(cleaner))
    assert table[[0, 2], 2].tolist() == [0.0, 0.0]  # the last word counts
    assert np.isnan(table[1]).all()
    cleaner.undo()
    table = annotations(context_of(cleaner))
    assert np.isnan(table[0, 2])  # what was taken back is no vote
    assert table[0, 1] == 1  # and the label it went back to is a clean one


def test_active_lab_leaves_the_suggestion_out() -> None:
    world = World(2)
    cleaner = world.cleaner("cleanlab_quality", budget=8)
    cleaner.run(Panel((Suggestion(), GroundTruth(world.y[:N]))))
    assert annotations(context_of(cleaner)).shape[1] == 2


def test_the_library_says_nothing_on_our_streams(capfd: pytest.CaptureFixture[str]) -> None:
    """It prints its advice; what other threads print goes through."""
    world = World(4)
    world.weak[:, 3] = 0.0
    world.weak /= world.weak.sum(axis=1, keepdims=True)
    world.weak[0] = np.eye(4)[3]
    cleaner = world.cleaner("active_lab").update([0, 1, 2], [0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        get_active_learning_scores(annotations(context_of(cleaner)), context_of(cleaner).probabilities)
    assert "CAUTION" in capfd.readouterr().out
    cleaner.query(5)
    assert capfd.readouterr() == ("", "")
    with quietly():
        other = threading.Thread(target=print, args=("from elsewhere",))
        other.start()
        other.join()
        print("from the library")
    assert capfd.readouterr().out == "from elsewhere\n"


def test_ties_are_broken_without_a_coin() -> None:
    """With gamma 0 all probabilities are equal until someone votes; the library would draw lots, unseeded."""
    world = World(2)
    batches = []
    for seed in range(2):
        np.random.seed(seed)  # noqa: NPY002 (the coin of the library)
        cleaner = world.cleaner("active_lab", gamma=0.0)
        cleaner.update([0, 1], [1 - int(world.weak[0].argmax()), 1 - int(world.weak[1].argmax())])
        batches.append(cleaner.query(20).indices.tolist())
    assert batches[0] == batches[1]


@pytest.mark.parametrize("name", ["cleanlab_quality", "active_lab"])
def test_an_old_cleanlab_is_refused_by_name_and_licence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2.7.1", "1.0", "2.7"):
        monkeypatch.setattr(importlib.metadata, "version", lambda _, found=version: found)
        with pytest.raises(MissingExtraError, match=rf"2\.8 or later and found {version}.*AGPL.*labelchef\[cleanlab\]"):
            CLEANLAB_SELECTORS[name]()
    for version in ("2.8.0", "2.10", "3.0rc1"):
        monkeypatch.setattr(importlib.metadata, "version", lambda _, found=version: found)
        assert CLEANLAB_SELECTORS[name]().name == name

    def missing(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(MissingExtraError, match=r"needs cleanlab; pip install 'labelchef\[cleanlab\]'"):
        CLEANLAB_SELECTORS[name]()


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: CleanlabQualitySelector(method="best"), "method"),
        (lambda: CleanlabQualitySelector(folds=1), "folds"),
        (lambda: ActiveLabSelector(folds=0), "folds"),
        (lambda: O2USelector(epochs=1), "epochs"),
        (lambda: O2USelector(cycles=0), "cycles"),
    ],
)
def test_settings_that_cannot_be_are_refused(make: Any, code: str) -> None:
    with pytest.raises(InvalidInputError, match="expected") as refused:
        make()
    assert refused.value.code == code


@pytest.mark.parametrize("name", [n for n in OURS if n not in ("cleanlab_quality", *UNCERTAIN)])
def test_without_a_suggestion_the_suggestion_does_not_vote(name: str) -> None:
    world = World(2)
    cleaner = world.cleaner(name)
    for who in (Suggestion(), Panel((Suggestion(), GroundTruth(world.y[:N])))):
        with pytest.raises(InvalidInputError, match=r"suggests no labels.*expected people alone") as refused:
            cleaner.run(who)
        assert refused.value.code == "suggestion"
    assert len(cleaner.rounds_) == 1


def test_look_ahead_is_laid_over_influence_only() -> None:
    for name in OURS:
        assert make_selector(chosen(name), look_ahead=True).name == name


def test_a_rule_on_predicted_gain_waits_where_nothing_is_predicted() -> None:
    world = World(2)
    cleaner = world.cleaner("random", stop=NoPredictedGain(), budget=20, batch_size=10)
    assert not NoPredictedGain().met(Progress(cleaner.rounds_, cleaner.query()))
    assert str(cleaner.run(GroundTruth(world.y[:N])).stopped_because) == "budget spent"


@pytest.mark.parametrize("name", ["margin", "least_confidence", "entropy", "cleanlab_quality", "o2u"])
def test_where_all_are_alike_the_first_rows_are_no_favourites(name: str) -> None:
    """With γ = 0 and nothing clean the model knows nothing: chance chooses, from the seed, and nothing is suggested."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 160)
    X = rng.normal(size=(160, 3)) + y[:, None]
    weak = np.eye(2)[y[:100]]

    def asked(seed: int) -> Any:
        made = LabelCleaner(selector=chosen(name), trusted="steer", gamma=0.0, l2=0.02, random_state=seed, holdout=0.0)
        return made.fit(X[:100], weak, X_val=X[100:], y_val=y[100:]).query(8)

    batches = [asked(seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(batches[0].indices, batches[1].indices)
    assert set(batches[0].indices.tolist()) != set(batches[2].indices.tolist())
    assert set(batches[0].indices.tolist()) != set(range(8))
    if name not in UNCERTAIN:
        assert set(batches[0].suggested.tolist()) == {-1}
