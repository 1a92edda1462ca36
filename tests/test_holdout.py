"""Validation in two parts: selection never sees the one that judges, and what is read and reported is read there."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, log_loss

from labelchef import Gain, InvalidInputError, JudgeWarning, Known, LabelCleaner, StopReason
from labelchef.base.arrays import Bools, Ints
from labelchef.base.records import Metrics
from labelchef.chef.choice import ALL_SELECTORS
from labelchef.chef.constructors import CONSTRUCTORS, DescentSettings, RetrainConstructor
from labelchef.data.training_rows import draw_judges, holdout_size, share_size
from labelchef.judge.gain import Judged, gains
from labelchef.loop.annotators import GroundTruth, Suggestion
from labelchef.loop.stopping import MaxRounds, NoPredictedGain, Plateau, StoppingRule, TargetReached
from tests.oracles import STEERED
from tests.profiles import examples

N, C = 90, 3


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    y = rng.integers(0, C, 900)
    X = rng.normal(size=(900, 5)) + 1.3 * np.eye(C, 5)[y]
    weak = 0.7 * rng.dirichlet(np.ones(C), N) + 0.3 * np.eye(C)[y[:N]]
    return {"X": X[:N], "weak": weak, "y": y[:N], "Xv": X[N:250], "yv": y[N:250], "Xt": X[250:], "yt": y[250:]}


def cleaner(data: dict[str, Any], judges: "tuple[Any, Any]" = (None, None), **parameters: Any) -> LabelCleaner:
    made = LabelCleaner(**{"batch_size": 4, "budget": 12, **parameters})
    return made.fit(
        data["X"], data["weak"], X_val=data["Xv"], y_val=data["yv"],
        known=Known(X_judge=judges[0], y_judge=judges[1], X_test=data["Xt"], y_test=data["yt"]),
    )  # fmt: skip


def steered(data: dict[str, Any], judges: "tuple[Any, Any]" = (None, None), **parameters: Any) -> LabelCleaner:
    """Trusted samples steer only: 'auto' holds half of them out."""
    return cleaner(data, judges, **{**STEERED, **parameters})


def same(one: LabelCleaner, two: LabelCleaner) -> None:
    for a, b in zip(one.rounds_, two.rounds_, strict=True):
        np.testing.assert_array_equal(a.batch.indices, b.batch.indices)
        np.testing.assert_array_equal(a.batch.suggested, b.batch.suggested)
        np.testing.assert_array_equal(a.batch.influence, b.batch.influence)
        assert a.steering == b.steering
    np.testing.assert_array_equal(one.W_, two.W_)


@settings(max_examples=examples(0.4))
@given(
    seed=st.integers(0, 2**31),
    count=st.integers(1, 40),
    scale=st.sampled_from([0.0, 1.0, 1e3]),
    constructor=st.sampled_from(sorted(CONSTRUCTORS)),
    make=st.sampled_from([cleaner, steered]),
)
def test_judges_change_neither_selections_nor_models(
    data: dict[str, Any], seed: int, count: int, scale: float, constructor: str, make: Callable[..., LabelCleaner]
) -> None:
    rng = np.random.default_rng(seed)
    judges = (scale * rng.normal(size=(count, 5)), rng.integers(0, C, count))
    judged = make(data, judges, constructor=constructor)
    alone = make(data, holdout=0, constructor=constructor)
    for one in (judged, alone):
        one.run(GroundTruth(data["y"]))
    same(judged, alone)


@pytest.mark.parametrize("selector", sorted(ALL_SELECTORS))
def test_no_selector_sees_the_judges(data: dict[str, Any], selector: str) -> None:
    """As good as one that was never given them, whatever reaches it by way of the rounds."""
    judged = cleaner(data, (-9.0 * data["Xt"][:40], data["yt"][:40]), selector=selector)
    alone = cleaner(data, holdout=0, selector=selector)
    for one in (judged, alone):
        one.run(GroundTruth(data["y"]))
    same(judged, alone)


@settings(max_examples=examples(0.25))
@given(
    how=st.sampled_from([(steered, "auto"), (steered, 0.2), (steered, 0.9), (cleaner, 0.2), (cleaner, 0.5)]),
    seed=st.integers(0, 1000),
)
def test_what_is_held_out_is_as_if_it_were_not_there(
    data: dict[str, Any], how: "tuple[Callable[..., LabelCleaner], float | str]", seed: int
) -> None:
    make, holdout = how
    judges = draw_judges(data["yv"], C, holdout, seed)
    assert judges.any()
    whole = make(data, holdout=holdout, random_state=seed)
    rest = {**data, "Xv": data["Xv"][~judges], "yv": data["yv"][~judges]}
    part = make(rest, holdout=0, random_state=seed)
    for one in (whole, part):
        one.run(Suggestion())
    same(whole, part)
    own = make(rest, (data["Xv"][judges], data["yv"][judges]), random_state=seed)
    assert own.rounds_[0].validation == whole.rounds_[0].validation


def test_early_stopping_of_a_descent_reads_what_steers(data: dict[str, Any]) -> None:
    """Judges that like the model of zeros (epoch 0) best: another epoch is chosen."""
    constructor = RetrainConstructor(DescentSettings(epochs=30))
    contrary = cleaner(data, (data["Xt"][:200], (data["yt"][:200] + 1) % C), constructor=constructor)
    session = contrary._session
    assert session.judging is not None
    assert session.construction.diagnostics.epoch > 0
    zeros = np.zeros((1, *contrary.W_.shape))
    assert session.judging.losses(zeros)[0] < contrary.rounds_[0].validation.loss


@given(
    per_class=st.lists(st.integers(0, 400), min_size=2, max_size=8).filter(lambda n: sum(n) > 0),
    share=st.floats(0.0, 0.999),
    seed=st.integers(0, 100),
)
def test_the_draw_is_by_class_and_by_seed(per_class: list[int], share: float, seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(per_class)), per_class))
    judges = draw_judges(y, len(per_class), share, seed)
    counts, all_counts = np.bincount(y[judges], minlength=len(per_class)), np.array(per_class)
    assert (counts <= np.maximum(all_counts - 1, 0)).all()  # each class that occurs keeps one that steers
    assert (np.abs(counts - share * all_counts) <= 1 + 1e-6).all()
    np.testing.assert_array_equal(judges, draw_judges(y, len(per_class), share, seed))


def test_other_seeds_draw_others() -> None:
    y = np.repeat([0, 1], 100)
    drawn = {draw_judges(y, 2, 0.5, seed).tobytes() for seed in range(20)}
    assert len(drawn) == 20


@given(per_class=st.lists(st.integers(0, 400), min_size=2, max_size=8))
def test_the_automatic_share(per_class: list[int]) -> None:
    all_counts = np.array(per_class)
    sizes = holdout_size(all_counts)
    left = all_counts - sizes
    if all_counts.sum() < 100:
        assert not sizes.any()
    else:
        assert left.sum() >= 50
        assert (left >= np.minimum(all_counts, 5)).all()
        assert (sizes <= all_counts // 2).all()
        common = all_counts >= 10
        assert (sizes[common] == all_counts[common] // 2).all()


def test_share_size_by_hand() -> None:
    assert share_size(np.array([3, 3, 3]), 0.5).tolist() == [2, 1, 1]  # 4 of 9; ties go by class
    assert share_size(np.array([1, 1]), 0.9).tolist() == [0, 0]
    assert share_size(np.array([2, 100]), 0.99).tolist() == [1, 99]


def judges_of(made: LabelCleaner) -> int:
    judging = made._session.judging
    return 0 if judging is None else len(judging.examples.y)


def test_records_and_history_tell_both_parts(data: dict[str, Any]) -> None:
    made = steered(data)
    history = made.run(GroundTruth(data["y"])).history
    judges = draw_judges(data["yv"], C, "auto", 0)
    assert judges_of(made) == judges.sum() == 80 - (np.bincount(data["yv"]) % 2).sum() // 2
    for part, key in ((judges, "val"), (~judges, "steer")):
        X, y = data["Xv"][part], data["yv"][part]
        P = made.predict_proba(X)
        assert history[f"{key}_accuracy"].iloc[-1] == pytest.approx(accuracy_score(y, P.argmax(axis=1)))
        assert history[f"{key}_loss"].iloc[-1] == pytest.approx(log_loss(y, P))
        assert history[f"{key}_f1_macro"].iloc[-1] == pytest.approx(f1_score(y, P.argmax(axis=1), average="macro"))
    np.testing.assert_allclose(history["realised_change"].iloc[1:], np.diff(history["steer_loss"]))
    assert not np.allclose(np.diff(history["val_loss"]), np.diff(history["steer_loss"]))


def test_without_judges_both_parts_are_one(data: dict[str, Any]) -> None:
    made = steered(data, holdout=0)
    assert judges_of(made) == 0
    assert made.rounds_[0].validation == made.rounds_[0].steering
    assert made.gain() is None


@pytest.mark.parametrize("holdout", ["auto", 0])
def test_trusted_samples_that_train_are_judged_by_models_without_them(
    data: dict[str, Any], holdout: float | str
) -> None:
    made = cleaner(data, holdout=holdout)
    made.run(GroundTruth(data["y"]))
    assert judges_of(made) == 0
    record = made.rounds_[-1]
    assert record.validation == record.steering
    figures = made.figures()
    assert figures is not None
    assert figures["loss"].value == record.validation.loss
    assert (figures["loss"].samples, figures["loss"].cross_fitted) == (len(data["yv"]), True)
    assert made.gain() is None  # what the first model owes to these samples by chance cannot be told from them
    seen = log_loss(data["yv"], made.predict_proba(data["Xv"]))  # by the model that was trained on them
    assert seen < record.validation.loss


def test_a_share_is_held_out_of_trusted_samples_that_train_if_asked_for(data: dict[str, Any]) -> None:
    made = cleaner(data, holdout=0.25)
    judges = draw_judges(data["yv"], C, 0.25, 0)
    assert judges_of(made) == judges.sum() == 40
    P = made.predict_proba(data["Xv"][judges])
    assert made.rounds_[0].validation.loss == pytest.approx(log_loss(data["yv"][judges], P))


def test_a_target_reads_the_judges(data: dict[str, Any]) -> None:
    """Judges with other labels: the steering part is far beyond the target, theirs never reaches it."""
    wrong = (data["Xt"][:200], (data["yt"][:200] + 1) % C)
    stuck = cleaner(data, wrong, target=0.6, target_metric="accuracy").run(GroundTruth(data["y"]))
    assert stuck.stopped_because == StopReason.BUDGET
    assert stuck.history["steer_accuracy"].min() > 0.6 > stuck.history["val_accuracy"].max()
    easy = (10 * np.eye(C, 5)[[0, 1, 2] * 20], np.array([0, 1, 2] * 20))
    done = cleaner(data, easy, target=0.99, target_metric="accuracy").run(GroundTruth(data["y"]))
    assert done.stopped_because == StopReason.TARGET
    assert done.history["steer_accuracy"].iloc[-1] < 0.99


def test_a_plateau_is_the_judges_too(data: dict[str, Any]) -> None:
    wrong = (data["Xt"][:200], (data["yt"][:200] + 1) % C)  # the better the model, the worse they find it
    result = steered(data, wrong, budget=90, stop=Plateau("loss", patience=2)).run(GroundTruth(data["y"]))
    assert result.stopped_because == StopReason.RULE
    assert result.history["steer_loss"].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("rule", "reads"),
    [
        (MaxRounds(3), False),
        (NoPredictedGain(), False),
        (TargetReached("loss", 1.0), True),
        (MaxRounds(3) | Plateau("loss"), True),
        (MaxRounds(3) & NoPredictedGain(), False),
    ],
    ids=str,
)
def test_rules_that_read_metrics_warn_where_nothing_judges(
    data: dict[str, Any], rule: StoppingRule, reads: bool
) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steered(data, holdout=0, stop=rule)
        assert [w.category for w in said] == [JudgeWarning] * reads
        cleaner(data, holdout=0, stop=rule)  # leave-one-out judges
        assert len(said) == reads
        cleaner({**data, "Xv": data["Xv"][:40], "yv": data["yv"][:40]}, stop=rule)
    assert [str(w.message)[:18] for w in said[int(reads) :]] == ["too small to judge"] * reads


def test_warnings_name_the_case_once(data: dict[str, Any]) -> None:
    few = {**data, "Xv": data["Xv"][:60], "yv": data["yv"][:60]}
    with pytest.warns(JudgeWarning, match="nothing judges: all 60 validation samples steer") as said:
        made = steered(few)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert judges_of(made) == 0
    with pytest.warns(JudgeWarning, match="nothing judges: holdout is 0, so the target"):
        steered(data, holdout=0, target=0.9)
    with pytest.warns(JudgeWarning, match="too small to judge: 30 validation samples are held out"):
        steered(few, holdout=0.5)
    rare = {**data, "yv": np.where(np.arange(160) < 6, 2, data["yv"] % 2)}
    with pytest.warns(JudgeWarning, match="1 of the rarest class"):
        steered(rare)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = steered(data)
        made.run(GroundTruth(data["y"]))
        steered(data, holdout=0)
        steered(data, (data["Xt"], data["yt"]), target=0.9)
        cleaner(few)
        cleaner(few, target=0.9)


def test_one_class_and_one_sample_are_taken(data: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="no sample of 1, 2"):
        made = steered({**data, "yv": np.zeros(160, dtype=int)})
    gain = made.gain("f1_macro")
    assert gain is not None
    assert gain.samples == 80
    assert gain.doubt == "0 of a class"
    lone = steered(data, (data["Xt"][:1], data["yt"][:1]))
    lone.run(GroundTruth(data["y"]))
    for one in (lone.gains() or {}).values():
        assert np.isfinite([one.before, one.after, one.low, one.high]).all()
        assert one.doubt == "1 samples"


@pytest.mark.parametrize("holdout", [1.0, -0.1, float("nan"), "half", None, True, [0.5], np.array([0.1, 0.2])])
def test_other_shares_are_refused(data: dict[str, Any], holdout: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"holdout is .*; expected 'auto' or a number of at least 0 and below 1"
    ) as error:
        cleaner(data, holdout=holdout)
    assert error.value.code == "holdout"


def test_judges_are_checked_like_the_other_splits(data: dict[str, Any]) -> None:
    X, y = data["Xt"][:60], data["yt"][:60]
    with pytest.raises(InvalidInputError, match="X_judge and y_judge belong together"):
        cleaner(data, (X, None))
    with pytest.raises(InvalidInputError, match="X_judge is empty"):
        cleaner(data, (X[:0], y[:0]))
    with pytest.raises(InvalidInputError, match=r"y_judge\[0\] is 7"):
        cleaner(data, (X, np.full(60, 7)))
    with pytest.raises(InvalidInputError, match="X_judge"):
        cleaner(data, (np.full((60, 5), np.nan), y))


def judged(y: Ints, predicted: Ints, losses: "np.ndarray[Any, Any] | None" = None) -> Judged:
    macro = float(f1_score(y, predicted, average="macro", zero_division=0.0))
    metrics = Metrics(0.0, float(np.mean(y == predicted)), macro)
    return Judged(metrics, predicted, np.zeros(len(y)) if losses is None else losses)


def resampled(y: Ints, a: Ints, b: Ints, rng: np.random.Generator, draws: int = 2000) -> "list[float]":
    """The bootstrap as the books have it: rows drawn with replacement, F1 by scikit-learn."""
    found = []
    for _ in range(draws):
        rows = rng.integers(0, len(y), len(y))
        one, two = (float(f1_score(y[rows], p[rows], average="macro", zero_division=0.0)) for p in (a, b))
        found.append(two - one)
    low, high = np.percentile(found, [2.5, 97.5])
    return [float(low), float(high)]


def test_the_interval_is_that_of_resampled_rows(rng: np.random.Generator) -> None:
    y = rng.integers(0, 3, 300)
    a = np.where(rng.random(300) < 0.7, y, rng.integers(0, 3, 300))
    b = np.where(rng.random(300) < 0.5, a, np.where(rng.random(300) < 0.9, y, rng.integers(0, 3, 300)))
    found = gains(y, judged(y, a), judged(y, b), 3, seed=1)["f1_macro"]
    np.testing.assert_allclose([found.low, found.high], resampled(y, a, b, rng, 1000), atol=0.012)
    assert found.low < found.change < found.high
    unpaired = 2 * 1.96 * np.sqrt(2 * 0.2 / 300)
    assert found.high - found.low < unpaired  # what both models get wrong cancels


@pytest.mark.parametrize(
    ("n", "better", "worse"), [(60, 0.2, 0.1), (150, 0.15, 0.02), (150, 0.01, 0.01), (400, 0.05, 0.05)]
)
def test_the_interval_holds_the_truth_as_often_as_it_says(n: int, better: float, worse: float) -> None:
    """Samples of a population whose true gain is known; macro-F1 there follows from its cell probabilities."""
    rng = np.random.default_rng(n)
    cells, p = population(np.array([0.5, 0.3, 0.2]), better, worse)
    truth = {"accuracy": p @ (cells[:, 0] == cells[:, 2]) - p @ (cells[:, 0] == cells[:, 1])}
    truth["f1_macro"] = exact_f1(cells, p, 2) - exact_f1(cells, p, 1)
    runs, held = 400, dict.fromkeys(truth, 0)
    for k in range(runs):
        y, a, b = cells[rng.choice(len(p), n, p=p)].T
        found = gains(y, judged(y, a), judged(y, b), 3, seed=k)
        for name in truth:
            held[name] += found[name].low <= truth[name] <= found[name].high
    for name, count in held.items():
        assert count / runs >= 0.915, name
        assert count / runs <= 0.985 or better + worse < 0.05, name


def population(share: "np.ndarray[Any, Any]", better: float, worse: float) -> "tuple[Ints, np.ndarray[Any, Any]]":
    """Triples (y, a, b) and their probabilities: a quarter wrong in both models, some better, some worse."""
    cells, p = [], []
    for y, weight in enumerate(share):
        wrong = (y + 1) % len(share)
        for a, b, mass in ((y, y, 0.75 - better - worse), (wrong, wrong, 0.25), (wrong, y, better), (y, wrong, worse)):
            cells.append((y, a, b))
            p.append(weight * mass)
    return np.array(cells), np.array(p)


def exact_f1(cells: Ints, p: "np.ndarray[Any, Any]", column: int) -> float:
    y, predicted = cells[:, 0], cells[:, column]
    scores = []
    for c in range(3):
        hit, true, named = (p @ m for m in ((y == c) & (predicted == c), y == c, predicted == c))
        scores.append(2 * hit / (true + named))
    return float(np.mean(scores))


def test_equal_models_are_not_proven_equal_by_few_samples() -> None:
    def width(n: int) -> float:
        y = np.arange(n) % 2
        found = gains(y, judged(y, y), judged(y, y), 2, seed=0)["accuracy"]
        assert found.low < 0.0 < found.high
        return found.high - found.low

    assert width(20) > 0.05
    assert width(2000) < 0.005


def test_the_loss_has_the_interval_of_a_mean(rng: np.random.Generator) -> None:
    from scipy.stats import ttest_1samp

    y = rng.integers(0, 2, 80)
    change = rng.normal(-0.1, 0.3, 80)
    found = gains(y, judged(y, y), judged(y, y, change), 2, seed=0)["loss"]
    expected = ttest_1samp(change, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high])


def test_a_gain_is_seeded_and_reported_by_split(data: dict[str, Any]) -> None:
    one, two = cleaner(data, holdout=0.25), cleaner(data, holdout=0.25)
    for made in (one, two):
        made.run(GroundTruth(data["y"]))
    assert one.gains() == two.gains()
    test = one.gain(split="test")
    assert test is not None
    assert test.samples == len(data["yt"])
    history = one.history_
    assert test.change == pytest.approx(history["test_f1_macro"].iloc[-1] - history["test_f1_macro"].iloc[0])
    assert test.low < test.change < test.high
    loss = one.gain("loss")
    assert loss is not None
    assert loss.change == pytest.approx(history["val_loss"].iloc[-1] - history["val_loss"].iloc[0])
    assert loss.low < loss.change < loss.high
    with pytest.raises(InvalidInputError, match="unknown metric 'auc'"):
        one.gain("auc")
    with pytest.raises(InvalidInputError, match="split is 'train'"):
        one.gain(split="train")


@pytest.mark.parametrize(
    ("gain", "doubt"),
    [
        (Gain("f1_macro", 0.5, 0.6, 0.05, 0.15, 200, 20), None),
        (Gain("f1_macro", 0.5, 0.6, 0.05, 0.15, 49, 20), "49 samples"),
        (Gain("f1_macro", 0.5, 0.6, 0.05, 0.15, 200, 4), "4 of a class"),
        (Gain("accuracy", 0.5, 0.6, 0.05, 0.15, 200, 4), None),
        (Gain("accuracy", 0.5, 0.52, -0.04, 0.08, 200, 20), "±0.060"),
        (Gain("accuracy", 0.5, 0.7, 0.12, 0.28, 200, 20), None),  # wide, but no doubt that it is one
        (Gain("accuracy", 0.5, 0.51, -0.03, 0.05, 200, 20), None),  # narrow: as good as no gain
    ],
    ids=str,
)
def test_when_too_few_judge(gain: Gain, doubt: str | None) -> None:
    assert gain.doubt == doubt
    assert ("too small to judge" in str(gain)) == (doubt is not None)


def test_the_draw_is_before_everything_else(data: dict[str, Any]) -> None:
    """Who judges depends on labels and seed alone: not on features, weak labels, selector or constructor."""

    def judges(**parameters: Any) -> Bools:
        made = steered(data, **parameters)
        assert made._session.judging is not None
        X = made._session.judging.examples.X[:, :5]
        return np.isin(data["Xv"][:, 0], X[:, 0])

    expected = draw_judges(data["yv"], C, "auto", 7)
    for parameters in ({}, {"selector": "entropy"}, {"constructor": "retrain"}, {"gamma": 0.1, "l2": 1.0}):
        np.testing.assert_array_equal(judges(random_state=7, **parameters), expected)
