"""The Python API, and what it refuses."""

import operator
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn.exceptions
from sklearn.base import clone

import labelchef
from labelchef import InvalidInputError, LabelchefError, LabelCleaner, MissingClassWarning
from labelchef.base.errors import NotFittedError
from labelchef.believe.learning import ROWS
from labelchef.chef.selectors import InflSelector
from labelchef.loop.annotators import GroundTruth, RecordedVotes, SimulatedAnnotators, Suggestion
from tests.oracles import STEERED, cleaner_of, with_known


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 200)
    X = rng.normal(size=(200, 4)) + y[:, None]
    return {
        "X": X[:120],
        "Y_weak": rng.dirichlet(np.ones(2), 120),
        "X_val": X[120:],
        "y_val": y[120:],
        "y": y[:120],
    }


def fit(data: dict[str, Any], settings: dict[str, Any] | None = None, **changes: Any) -> LabelCleaner:
    given = {k: v for k, v in {**data, **changes}.items() if k != "y"}
    return cleaner_of(**(settings or {})).fit(given.pop("X"), given.pop("Y_weak"), **with_known(given))


def test_the_documented_session(data: dict[str, Any]) -> None:
    cleaner = LabelCleaner(
        selector="infl", constructor="newton", gamma=0.8, l2=0.01, budget=100, batch_size=10, random_state=0,
        trusted="steer",
    )  # fmt: skip
    assert cleaner.fit(data["X"], data["Y_weak"], X_val=data["X_val"], y_val=data["y_val"]) is cleaner
    batch = cleaner.query()
    assert len(batch.indices) == len(batch.suggested) == len(batch.influence) == 10
    assert (np.diff(batch.influence) >= 0).all()
    assert len(cleaner.query(batch_size=50)) == 50
    before = cleaner._session.rounds[-1].validation.loss
    cleaner.update(batch.indices, batch.suggested)
    after = cleaner._session.rounds[-1].validation.loss
    assert after < before
    assert 120 * (after - before) == pytest.approx(batch.influence.sum(), rel=0.5)
    result = cleaner.run(lambda b: data["y"][b.indices])
    assert result.history["spent"].iloc[-1] == 100
    assert cleaner.predict_proba(data["X_val"]).shape == (80, 2)
    np.testing.assert_allclose(cleaner.predict_proba(data["X_val"]).sum(axis=1), 1.0)
    assert cleaner.score(data["X_val"], data["y_val"]) == np.mean(cleaner.predict(data["X_val"]) == data["y_val"])
    assert cleaner.W_.shape == (5, 2)
    assert cleaner.labels_.shape == (120, 2)
    assert cleaner.cleaned_.sum() == 100
    assert cleaner.classes_.tolist() == [0, 1]


def test_the_model_is_the_optimum_after_every_update(data: dict[str, Any]) -> None:
    cleaner = fit(data, {**STEERED, "tol": 1e-5, "gamma": 0.8, "l2": 0.01})
    cleaner.update([3, 4, 5], [0, 1, 0]).update([4], [-1])
    X = np.hstack([data["X"], np.ones((120, 1))])
    P = cleaner.predict_proba(data["X"])
    weight = np.where(cleaner.cleaned_, 1.0, 0.8)[:, None]
    gradient = X.T @ (weight * (P - cleaner.labels_)) / 120 + 0.01 * cleaner.W_
    assert np.linalg.norm(gradient) < 1e-7
    np.testing.assert_allclose(cleaner.labels_[4], data["Y_weak"][4])
    assert cleaner.cleaned_.nonzero()[0].tolist() == [3, 5]


@pytest.mark.parametrize("kind", ["float64", "float32", "list", "pandas", "polars", "fortran", "memmap"])
def test_kinds_of_input_agree(data: dict[str, Any], kind: str, tmp_path: Any) -> None:
    X, Y = data["X"].astype(np.float32), data["Y_weak"]
    expected = fit(data, X=X).query().indices
    match kind:
        case "float64":
            X = X.astype(np.float64)
        case "list":
            X, Y = X.tolist(), Y.tolist()
        case "pandas":
            X, Y = pd.DataFrame(X), pd.DataFrame(Y, columns=[0, 1])
        case "polars":
            X = pl.DataFrame(X)
            Y = pl.DataFrame(Y, schema=["no", "yes"])
        case "fortran":
            X = np.asfortranarray(X)
        case "memmap":
            np.save(tmp_path / "x.npy", X)
            X = np.load(tmp_path / "x.npy", mmap_mode="r")
    y_val = np.array(["no", "yes"])[data["y_val"]] if kind == "polars" else data["y_val"]
    np.testing.assert_array_equal(fit(data, X=X, Y_weak=Y, y_val=y_val).query().indices, expected)


def test_inputs_are_neither_copied_nor_written(data: dict[str, Any]) -> None:
    X, Y = data["X"].astype(np.float32), data["Y_weak"].copy()
    X.flags.writeable = Y.flags.writeable = False
    cleaner = fit(data, X=X, Y_weak=Y)
    cleaner.run(lambda b: data["y"][b.indices])
    assert np.shares_memory(cleaner._session.objective.engine._blocks[0][1], X)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(Y, data["Y_weak"])


@pytest.mark.parametrize("names", [["ham", "spam"], [3, 7], [(0, "a"), (1, "b")], [None, "x"], [True, False]])
def test_class_names_of_any_hashable_type(data: dict[str, Any], names: list[Any]) -> None:
    y_val = [names[c] for c in data["y_val"]]
    cleaner = fit(data, y_val=y_val, classes=names)
    assert list(cleaner.classes_) == names
    assert cleaner.score(data["X_val"], y_val) == fit(data).score(data["X_val"], data["y_val"])
    assert list(cleaner.predict(data["X_val"][:5])) == [names[c] for c in fit(data).predict(data["X_val"][:5])]
    batch = cleaner.query()
    cleaner.update(batch.indices, batch.suggested)  # class ids, whatever the names
    np.testing.assert_array_equal(cleaner.labels_[batch.indices].argmax(axis=1), batch.suggested)


def test_names_in_frames_updates_and_clean_labels(data: dict[str, Any]) -> None:
    Y = pd.DataFrame(data["Y_weak"], columns=["ham", "spam"])
    names = np.array(["ham", "spam"])
    y_clean = pd.Series(names[data["y"]]).where(np.arange(120) < 20, None)
    cleaner = fit(data, Y_weak=Y, y_val=pd.Series(names[data["y_val"]]), y_clean=y_clean)
    assert cleaner.cleaned_.sum() == 20
    cleaner.update([100, 101, 102], ["spam", "ham", -1])
    assert cleaner.labels_[100].tolist() == [0.0, 1.0]
    result = cleaner.run(lambda b: names[data["y"][b.indices]])
    assert result.history["spent"].iloc[-1] == 100
    assert result.history["resolved"].sum() == 99  # all but the one left unresolved by hand


def test_float32_and_float64_features_choose_the_same(data: dict[str, Any]) -> None:
    X = data["X"].astype(np.float32)
    one, two = (fit(data, X=X.astype(kind)).query(40) for kind in (np.float32, np.float64))
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_allclose(one.influence, two.influence, rtol=1e-5)


def test_a_batch_larger_than_what_is_left(data: dict[str, Any]) -> None:
    cleaner = fit(data)
    cleaner.update(range(115), data["y"][:115])
    assert sorted(cleaner.query(batch_size=1000).indices.tolist()) == [115, 116, 117, 118, 119]


def test_a_class_missing_from_validation_warns(data: dict[str, Any]) -> None:
    one = data["y_val"] == 1
    with pytest.warns(MissingClassWarning, match="no sample of 0"):
        fit(data, X_val=data["X_val"][one], y_val=data["y_val"][one])


def test_it_is_a_scikit_learn_estimator(data: dict[str, Any]) -> None:
    cleaner = LabelCleaner(gamma=0.5, budget=7)
    copy = clone(cleaner)
    assert copy.get_params()["gamma"] == 0.5
    assert "gamma=0.5" in repr(copy)
    fitted = fit(data)
    revived = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(revived.query().indices, fitted.query().indices)


def test_settings_can_change_between_runs(data: dict[str, Any]) -> None:
    cleaner = fit(data, {"budget": 10})
    cleaner.run(lambda b: data["y"][b.indices])
    cleaner.set_params(budget=30, batch_size=20)
    assert cleaner.run(lambda b: data["y"][b.indices]).history["spent"].tolist() == [0, 10, 30]


def test_an_update_of_nothing_changes_nothing(data: dict[str, Any]) -> None:
    cleaner = fit(data)
    cleaner.update([], [])
    assert len(cleaner.history_) == 1


def bad_rows(data: dict[str, Any], row: list[float]) -> dict[str, Any]:
    Y = data["Y_weak"].copy()
    Y[7] = row
    return {"Y_weak": Y}


def bad_feature(data: dict[str, Any], value: float, key: str = "X") -> dict[str, Any]:
    X = data[key].copy()
    X[3, 1] = value
    return {key: X}


REFUSED: dict[str, tuple[Any, str]] = {
    "one-dimensional X": (lambda d: {"X": d["X"][:, 0]}, r"shape \(120,\)"),
    "no features": (lambda d: {"X": d["X"][:, :0]}, r"shape \(120, 0\)"),
    "no samples": (lambda d: {"X": d["X"][:0]}, r"shape \(0, 4\)"),
    "NaN": (lambda d: bad_feature(d, np.nan), r"X\[3, 1\] is nan"),
    "infinity": (lambda d: bad_feature(d, np.inf), r"X\[3, 1\] is inf"),
    "NaN in validation": (lambda d: bad_feature(d, np.nan, "X_val"), r"X_val\[3, 1\] is nan"),
    "text": (lambda d: {"X": np.full((120, 4), "a")}, "cannot be read as a table of real numbers"),
    "complex": (lambda d: {"X": d["X"] + 1j}, "real numbers"),
    "sparse": (lambda d: {"X": scipy.sparse.csr_matrix(d["X"])}, "TruncatedSVD"),
    "rows of Y": (lambda d: {"Y_weak": d["Y_weak"][:-1]}, "119 rows; expected 120"),
    "hard labels": (lambda d: {"Y_weak": d["y"]}, "votes=labels"),
    "one class": (lambda d: {"Y_weak": np.ones((120, 1))}, "two classes or more"),
    "off the simplex": (lambda d: bad_rows(d, [0.7, 0.7]), r"sums to 1.4 \(1 such rows\)"),
    "negative": (lambda d: bad_rows(d, [-0.2, 1.2]), "non-negative"),
    "NaN label": (lambda d: bad_rows(d, [np.nan, 1.0]), "finite probabilities"),
    "Y of text": (lambda d: {"Y_weak": [["a", "b"]] * 120}, "cannot be read as numbers"),
    "empty validation": (lambda d: {"X_val": d["X_val"][:0], "y_val": []}, "X_val is empty"),
    "no validation": (lambda d: {"X_val": None}, "belong together"),
    "half a test": (lambda d: {"X_test": d["X_val"]}, "belong together"),
    "validation width": (lambda d: {"X_val": d["X_val"][:, :3]}, "3 features; expected 4"),
    "validation length": (lambda d: {"y_val": d["y_val"][:-1]}, "79 entries; expected 80"),
    "unknown class": (lambda d: {"y_val": [*d["y_val"][:-1], 2]}, r"y_val\[79\] is 2; expected one of the classes 0"),
    "one-hot validation": (lambda d: {"y_val": np.eye(2)[d["y_val"]]}, "argmax"),
    "clean length": (lambda d: {"y_clean": [0, 1]}, "2 entries; expected 120"),
    "clean class": (lambda d: {"y_clean": [5] * 120}, r"y_clean\[0\] is 5"),
    "class names": (lambda d: {"classes": ["a"]}, "1 class names for 2 columns"),
    "a class named -1": (lambda d: {"classes": [-1, 1]}, "stands for 'no label'"),
    "unhashable names": (lambda d: {"classes": [[1], [2]]}, "hashable"),
    "classes is a number": (lambda d: {"classes": 5}, "classes is 5"),
    "ragged": (lambda d: {"X": [[1.0], [1.0, 2.0]]}, "rows of equal length"),
    "masked": (lambda d: {"X": np.ma.masked_less(d["X"], 0)}, "masked"),
    "sparse validation": (lambda d: {"X_val": scipy.sparse.csr_array(d["X_val"])}, "X_val is a sparse matrix"),
    "validation is a number": (lambda d: {"X_val": 3.0}, "X_val has shape"),
    "labels are a number": (lambda d: {"y_val": 3}, "y_val is 3; expected a list"),
    "clean is a number": (lambda d: {"y_clean": -1}, "y_clean is -1"),
    "repeated names": (lambda d: {"classes": ["a", "a"]}, "repeat"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_bad_data_is_refused(data: dict[str, Any], what: str) -> None:
    changes, message = REFUSED[what]
    with pytest.raises(InvalidInputError, match=message) as caught:
        fit(data, **changes(data))
    assert isinstance(caught.value, ValueError)
    assert caught.value.code != "error"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"budget": 0}, "budget is 0"),
        ({"budget": -3}, "budget is -3"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"gamma": -0.1}, "gamma is -0.1"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"l2": 0.0}, "l2 is 0.0; expected 'auto' or a number above 0"),
        ({"l2": "much"}, "l2 is 'much'"),
        ({"selector": "magic"}, "unknown selector 'magic'; expected one of: .*increm_infl, "),
        ({"constructor": "magic"}, "constructor is 'magic'; expected one of: newton, retrain, deltagrad_l"),
        ({"target": 0.9, "target_metric": "auc"}, "target_metric is 'auc'; expected one of: accuracy"),
        ({"target": "high"}, "target is 'high'"),
        ({"target_metric": "auc"}, "target_metric is 'auc'; expected one of: accuracy"),
        ({"random_state": -1}, "random_state is -1"),
        ({"random_state": "a"}, "random_state is 'a'"),
        ({"selector": 5}, "selector is 5"),
        ({"constructor": None}, "constructor is None"),
        ({"stop": "soon"}, "stop is 'soon'"),
    ],
)
def test_bad_settings_are_refused(data: dict[str, Any], setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        fit(data, setting)


@pytest.mark.parametrize(
    ("indices", "labels", "message"),
    [
        ([120], [0], "sample 120 does not exist"),
        ([-1], [0], "sample -1 does not exist"),
        ([1, 1], [0, 0], "repeat"),
        ([1.5], [0], "expected a list of sample numbers"),
        ([1, 2], [0], "1 labels for 2 samples"),
        ([1], [2], "class id from 0 to 1"),
        ([1], [-2], "class id from 0 to 1"),
        ([1], ["spam"], "'spam'; expected one of the classes"),
        ([1], [[0]], "no single label"),
        ([[1], [2, 3]], [0, 1], "expected a list of sample numbers"),
        ([1], 1, "labels is 1; expected a list"),
    ],
)
def test_bad_updates_are_refused_and_change_nothing(
    data: dict[str, Any], indices: list[Any], labels: list[Any], message: str
) -> None:
    cleaner = fit(data)
    W = cleaner.W_
    with pytest.raises(InvalidInputError, match=message):
        cleaner.update(indices, labels)
    np.testing.assert_array_equal(cleaner.W_, W)
    assert not cleaner.cleaned_.any()


def test_bad_queries_and_predictions_are_refused(data: dict[str, Any]) -> None:
    cleaner = fit(data)
    with pytest.raises(InvalidInputError, match="batch_size is 0"):
        cleaner.query(0)
    with pytest.raises(InvalidInputError, match="3 features; expected 4"):
        cleaner.predict_proba(data["X"][:, :3])
    y = [2 if k < 3 else int(c) for k, c in enumerate(data["y_val"])]
    with pytest.raises(InvalidInputError, match="'f1' with 3 classes"):
        fit(data, {"target_metric": "f1"}, Y_weak=np.full((120, 3), 1 / 3), y_val=y)
    for annotator in (5, None, Suggestion):
        with pytest.raises(InvalidInputError, match="annotator is"):
            cleaner.run(annotator)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="is None; expected a list"):
        cleaner.run(lambda b: None)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("name", ["query", "W_", "labels_", "cleaned_", "history_", "rounds_"])
def test_before_fit_there_is_a_clear_error(name: str) -> None:
    with pytest.raises(LabelchefError, match=r"call fit\(X, Y_weak") as caught:
        operator.methodcaller(name)(LabelCleaner())
    assert isinstance(caught.value, ValueError | AttributeError)


@pytest.mark.parametrize(("name", "arguments"), [("predict", 1), ("predict_proba", 1), ("score", 2)])
def test_before_fit_nothing_is_predicted(name: str, arguments: int) -> None:
    with pytest.raises(NotFittedError, match=r"call fit\(X, Y_weak") as caught:
        operator.methodcaller(name, *[np.eye(3)] * arguments)(LabelCleaner())
    assert isinstance(caught.value, sklearn.exceptions.NotFittedError)


def test_the_package_lists_what_it_has() -> None:
    listed = subprocess.run(  # in a new process, which has imported nothing of it yet
        [sys.executable, "-c", "import labelchef; print(*dir(labelchef))"], capture_output=True, text=True, check=True
    )
    assert set(labelchef.__all__) <= set(listed.stdout.split())
    for name in labelchef.__all__:
        assert getattr(labelchef, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        labelchef.nothing  # noqa: B018


def test_a_joblib_round_trip_keeps_labels_and_model_together(data: dict[str, Any], tmp_path: Any) -> None:
    cleaner = fit(data)
    joblib.dump(cleaner, tmp_path / "cleaner.joblib")
    revived = joblib.load(tmp_path / "cleaner.joblib")
    np.testing.assert_array_equal(revived.judged()[1].losses, cleaner.judged()[1].losses)  # type: ignore[index]
    items = np.arange(50)
    np.testing.assert_allclose(
        revived.update(items, data["y"][:50]).W_, cleaner.update(items, data["y"][:50]).W_, atol=1e-9
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_can_go_on(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(3000, 4)), rng.integers(0, 2, 3000)
    cleaner = LabelCleaner().fit(X, np.full((3000, 2), 0.5), X_val=X[:99], y_val=y[:99])
    expected = cleaner.query().indices
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if np.array_equal(cleaner.query().indices, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "annotator",
    [
        RecordedVotes([(i, "a", -2) for i in range(120)]),
        RecordedVotes([(i, "a", 7) for i in range(120)]),
        GroundTruth(np.full(120, 5)),
        GroundTruth(np.full(120, 0.5)),
        GroundTruth([[0]] * 120),
    ],
)
def test_votes_out_of_range_are_refused_and_change_nothing(data: dict[str, Any], annotator: Any) -> None:
    cleaner = fit(data)
    with pytest.raises(InvalidInputError, match="expected"):
        cleaner.run(annotator)
    assert not cleaner.cleaned_.any()


def test_truth_goes_by_position(data: dict[str, Any]) -> None:
    shuffled = pd.Series(data["y"], index=np.random.default_rng(0).permutation(120))
    one, two = (fit(data, {"budget": 20}) for _ in range(2))
    one.run(GroundTruth(shuffled))
    two.run(GroundTruth(data["y"].tolist()))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    with pytest.raises(InvalidInputError, match="n_classes=1"):
        SimulatedAnnotators([0, 0], n_classes=1)
    with pytest.raises(InvalidInputError, match="seed=-1"):
        SimulatedAnnotators([0, 0], n_classes=2, seed=-1)


def test_answers_as_floats_and_truth_values_are_ids(data: dict[str, Any]) -> None:
    cleaner = fit(data, y_val=data["y_val"] + 1, classes=[1, 2])
    cleaner.update([0, 1, 2, 3], [1, 1.0, True, np.nan])
    np.testing.assert_array_equal(cleaner.labels_[:3, 1], 1.0)
    assert not cleaner.cleaned_[3]


def test_missing_values_of_frames(data: dict[str, Any]) -> None:
    y_clean = pd.Series(data["y"], dtype="Int64").where(np.arange(120) < 30)
    assert fit(data, y_clean=y_clean).cleaned_.sum() == 30
    cleaner = fit(data)
    cleaner.update([0, 1], pd.Series([1, pd.NA], dtype="Int64"))
    assert cleaner.cleaned_.sum() == 1
    frame = pd.DataFrame(data["X"]).astype("Float64")
    np.testing.assert_array_equal(fit(data, X=frame).query().indices, fit(data).query().indices)


def test_numbers_keep_their_precision(data: dict[str, Any]) -> None:
    assert labelchef.loop.cleaner.as_features(np.full((2, 2), 2**24 + 1)).max() == 2**24 + 1  # type: ignore[attr-defined]


def test_settings_of_the_fit_stay_with_the_model(data: dict[str, Any]) -> None:
    selector = InflSelector()
    cleaner = fit(data, {"selector": selector})
    cleaner.query()
    assert vars(selector) == vars(InflSelector())  # the user's object is not written to
    before = cleaner.predict_proba(data["X_val"])
    cleaner.set_params(target_metric="accuracy")
    np.testing.assert_array_equal(cleaner.predict_proba(data["X_val"]), before)


def test_scores_and_suggestions_do_not_change_what_the_constructor_is_given(data: dict[str, Any]) -> None:
    cleaner = fit(data, {"selector": "increm_infl"})
    cleaner.query()
    carried = cleaner._session._carried
    assert carried is not None
    cleaner.scores()
    cleaner.suggest([0, 1])
    assert cleaner._session._carried is carried


def test_an_update_in_another_order_keeps_each_suggestion(data: dict[str, Any]) -> None:
    cleaner = fit(data)
    batch = cleaner.query()
    cleaner.update(batch.indices[::-1], data["y"][batch.indices[::-1]])
    record = cleaner.rounds_[-1]
    np.testing.assert_array_equal(record.batch.suggested, batch.suggested[::-1])
    np.testing.assert_array_equal(record.batch.influence, batch.influence[::-1])
    assert record.seconds["select"] > 0


@pytest.mark.parametrize("selector", ["increm_infl", "expected_infl", "margin"])
def test_scores_of_every_sample(data: dict[str, Any], selector: str) -> None:
    cleaner = fit(data, {"look_ahead": False, "selector": selector})
    cleaner.update([5], [0])
    scores = cleaner.scores()
    assert np.isnan(scores).nonzero()[0].tolist() == [5]
    batch = cleaner.query(20)
    if selector == "expected_infl":  # which ranks by it, less its spread
        np.testing.assert_allclose(scores[batch.indices], batch.influence)
    elif selector == "increm_infl":
        np.testing.assert_array_equal(np.argsort(scores)[:20], batch.indices)
    else:
        np.testing.assert_array_equal(scores, fit(data, {"selector": "infl"}).update([5], [0]).scores())


def test_memory_grows_by_a_fraction_of_the_features(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(40_000, 256)).astype(np.float32), rng.integers(0, 2, 40_000)
    weak = rng.dirichlet([1, 1], 40_000)
    LabelCleaner().fit(X[:500], weak[:500], X_val=X[:99], y_val=y[:99]).query()  # compiles what is to be compiled
    peaks = []
    for n in (20_000, 40_000):
        tracemalloc.start()
        cleaner = LabelCleaner(gamma=0.8, l2=0.01).fit(X[:n], weak[:n], X_val=X[:500], y_val=y[:500])
        for _ in range(2):
            batch = cleaner.query()
            cleaner.update(batch.indices, y[batch.indices])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] <= 0.25 * X[20_000:].nbytes
    assert (
        peaks[0] <= 8 * 257**2 + 9 * 8 * (ROWS + 500) * 256 + 0.25 * X[:20_000].nbytes
    )  # the choice is made on few samples, and so is the judging


@pytest.mark.parametrize("constructor", ["newton", "retrain", "deltagrad_l"])
def test_the_final_model_does_not_depend_on_the_rounds(data: dict[str, Any], constructor: str) -> None:
    settings = {"gamma": 0.8, "l2": 0.01, "budget": 30, "constructor": constructor}
    cleaner = fit(data, settings)
    result = cleaner.run(GroundTruth(data["y"]))
    items = np.flatnonzero(cleaner.cleaned_)
    other = fit(data, settings)
    other.update(items[::-1][:20], 1 - data["y"][items[::-1][:20]]).undo()
    for item in items[::-1]:
        other.update([item], [data["y"][item]])
    for model in (cleaner.finish(), other.finish()):
        np.testing.assert_allclose(model.coef, result.model.coef, rtol=1e-10)
        np.testing.assert_allclose(model.intercept, result.model.intercept, rtol=1e-10)
    fresh = fit(data, settings, y_clean=np.where(cleaner.cleaned_, data["y"], -1))
    np.testing.assert_allclose(result.model.coef, fresh.finish().coef, rtol=1e-10)  # the rule is that of the campaign
    assert cleaner.ruling_ is not None
    assert result.model.temperature == cleaner.ruling_.temperature


def test_the_final_model_is_the_optimum(data: dict[str, Any]) -> None:
    cleaner = fit(data, {**STEERED, "tol": 1e-5, "gamma": 0.8, "l2": 0.01, "budget": 30})
    model = cleaner.run(GroundTruth(data["y"])).model
    W = np.vstack([model.coef, model.intercept])
    weight = np.where(cleaner.cleaned_, 1.0, 0.8)[:, None]
    residual = weight * (model.predict_proba(data["X"]) - cleaner.labels_)
    gradient = np.hstack([data["X"], np.ones((120, 1))]).T @ residual / 120 + 0.01 * W
    assert np.linalg.norm(gradient) / 0.01 <= 1e-5 * (1 + np.linalg.norm(W))
    assert model.n_features_in_ == 4


def test_labelling_goes_on_after_the_final_model(data: dict[str, Any]) -> None:
    plain, asked = fit(data), fit(data)
    for _ in range(3):
        model = asked.finish()
        batches = [cleaner.query() for cleaner in (plain, asked)]
        np.testing.assert_array_equal(batches[0].indices, batches[1].indices)
        np.testing.assert_allclose(batches[0].influence, batches[1].influence, rtol=1e-10)
        for cleaner in (plain, asked):
            cleaner.update(batches[0].indices, data["y"][batches[0].indices])
    np.testing.assert_allclose(plain.W_, asked.W_, rtol=1e-10)
    assert (model.coef != asked.finish().coef).any()


def test_the_final_model_has_names_and_no_data(data: dict[str, Any]) -> None:
    frames = {name: pd.DataFrame(data[name], columns=list("abcd")) for name in ("X", "X_val")}
    weak = pd.DataFrame(data["Y_weak"], columns=["ham", "spam"])
    cleaner = fit({**data, **frames}, {"budget": 10}, Y_weak=weak, y_val=np.array(["ham", "spam"])[data["y_val"]])
    model = cleaner.run(Suggestion()).model
    assert model.classes_.tolist() == ["ham", "spam"]
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.predict(frames["X_val"]).tolist() == cleaner.predict(frames["X_val"]).tolist()
    assert len(pickle.dumps(model)) < 2000  # X alone is 3 840 bytes
    with pytest.raises(LabelchefError, match="no model yet"):
        LabelCleaner().finish()
