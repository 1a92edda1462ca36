"""The classifier to take home: what it predicts, where it works, how it is stored."""

import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from scipy.special import log_softmax, softmax
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

import labelchef
from labelchef import InvalidInputError, LinearClassifier, MissingExtraError, load_model

NAMES: dict[str, list[Any]] = {
    "strings": ["spam", "ham", "écrit"],
    "integers": [7, 3, 11],
    "floats": [0.5, 1.5, 2.5],
    "mixed": ["a", 2, True],
}


def model(d: int = 5, classes: Sequence[Any] = ("spam", "ham", "écrit"), **given: Any) -> LinearClassifier:
    rng = np.random.default_rng(3)
    return LinearClassifier(rng.normal(size=(d, len(classes))), rng.normal(size=len(classes)), list(classes), **given)


def rows(n: int = 200, d: int = 5) -> Any:
    return np.random.default_rng(4).normal(size=(n, d)).astype(np.float32)


def test_the_formulas() -> None:
    offsets = np.array([0.0, 1.5, -0.5])
    made, X = model(temperature=2.5, offsets=offsets), rows()
    A = (X.astype(np.float64) @ made.coef + made.intercept) / 2.5
    np.testing.assert_allclose(made.decision_function(X), A, rtol=1e-12)
    np.testing.assert_allclose(made.predict_proba(X), softmax(A, axis=1), rtol=1e-12)
    np.testing.assert_allclose(made.predict_log_proba(X), log_softmax(A, axis=1), rtol=1e-12)
    decided = made.classes_[(np.log(softmax(A, axis=1)) + offsets).argmax(axis=1)]
    assert made.predict(X).tolist() == decided.tolist()
    plain = clone(made).set_params(offsets=None)
    np.testing.assert_array_equal(plain.predict_proba(X), made.predict_proba(X))
    assert (plain.predict(X) != made.predict(X)).any()
    assert plain.predict(X).tolist() == made.classes_[A.argmax(axis=1)].tolist()
    assert made.score(X, decided) == 1.0


def test_it_agrees_with_scikit_learn() -> None:
    X = rows(300, 4)
    for y in (np.where(X[:, 0] > 0, "yes", "no"), np.digitize(X[:, 1], [-0.5, 0.5])):
        theirs = LogisticRegression().fit(X, y)
        coef, intercept = theirs.coef_.T.astype(np.float64), theirs.intercept_.astype(np.float64)
        if len(theirs.classes_) == 2:
            coef, intercept = np.hstack([0 * coef, coef]), np.append(0.0, intercept)
        ours = LinearClassifier(coef, intercept, theirs.classes_)
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)
        np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
        assert (ours.predict(X) == theirs.predict(X)).all()
        assert ours.classes_.dtype == theirs.classes_.dtype


def test_extreme_logits_stay_finite() -> None:
    made = LinearClassifier(np.array([[0.0, 2000.0]]), np.zeros(2), ["a", "b"])
    assert made.predict_proba([[1.0]]).tolist() == [[0.0, 1.0]]
    assert made.predict_log_proba([[1.0]]).tolist() == [[-2000.0, 0.0]]


def test_many_rows_are_predicted_in_parts() -> None:
    X = rows(20_000)
    P = model().predict_proba(X)
    np.testing.assert_allclose(P[[0, 9000, 19_999]], model().predict_proba(X[[0, 9000, 19_999]]), rtol=1e-12)


FIT = "fit changes nothing, so it refuses nothing and learns nothing from the data of the check"
TRAINED = "there is no state before fit: the model is trained already"
OURS = "refused, in the words that all of labelchef uses"
NOT_FOR_A_TRAINED_MODEL = {
    "check_estimators_unfitted": TRAINED,
    "check_fit_check_is_fitted": TRAINED,
    "check_n_features_in": TRAINED,
    "check_classifiers_classes": FIT,
    "check_classifiers_one_label": FIT,
    "check_classifiers_regression_target": FIT,
    "check_classifiers_train": FIT,
    "check_complex_data": FIT,
    "check_estimator_sparse_tag": FIT,
    "check_estimators_empty_data_messages": FIT,
    "check_estimators_nan_inf": FIT,
    "check_fit1d": FIT,
    "check_supervised_y_2d": FIT,
    "check_supervised_y_no_nan": FIT,
    "check_fit2d_predict1d": OURS,
    "check_n_features_in_after_fitting": OURS,
    "check_dtype_object": OURS,
}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks() -> None:
    """Each check brings data of its own shape and fits them; a model of that shape has to pass it."""
    passed: set[str] = set()
    failed: dict[str, Any] = {}
    for width, n_classes in ((2, 2), (3, 3), (5, 3)):
        for result in check_estimator(model(width, range(n_classes)), on_fail=None, on_skip=None):
            name, status = result["check_name"], result["status"]
            if status == "passed":
                passed.add(name)
            elif status == "failed":
                failed[name] = result["exception"]
    never = {name: error for name, error in failed.items() if name not in passed}
    assert set(never) == set(NOT_FOR_A_TRAINED_MODEL), never
    assert len(passed) > 30


def test_it_works_where_scikit_learn_takes_a_fitted_classifier() -> None:
    X = rows()
    made = model(classes=["a", "b"])
    y = made.predict(X)
    check_is_fitted(made)
    assert is_classifier(made)
    assert made.fit(X, y) is made
    assert get_scorer("roc_auc")(made, X, y) == 1.0
    assert get_scorer("neg_log_loss")(made, X, y) > np.log(0.5)
    assert make_pipeline(StandardScaler(with_mean=False, with_std=False).fit(X), made).score(X, y) == 1.0
    calibrated = CalibratedClassifierCV(FrozenEstimator(made), cv=2).fit(X, y)
    assert calibrated.score(X, y) > 0.9
    same = clone(made)
    assert same is not made
    assert same.coef is not made.coef
    np.testing.assert_array_equal(same.predict_proba(X), made.predict_proba(X))


@pytest.mark.parametrize("kind", ["float32", "float16", "integers", "list", "fortran", "pandas", "polars"])
def test_features_of_any_kind(kind: str) -> None:
    X = np.round(rows() * 4)
    makers: dict[str, Any] = {
        "float32": X,
        "float16": X.astype(np.float16),
        "integers": X.astype(np.int32),
        "list": X.tolist(),
        "fortran": np.asfortranarray(X),
        "pandas": pd.DataFrame(X, columns=list("abcde")),
        "polars": pl.DataFrame({name: X[:, k] for k, name in enumerate("abcde")}),
    }
    made = model(feature_names=list("abcde"))
    np.testing.assert_allclose(made.predict_proba(makers[kind]), made.predict_proba(X), rtol=1e-12)


def test_the_names_of_features_are_compared() -> None:
    frame, made = pd.DataFrame(rows(), columns=list("abcde")), model(feature_names=list("abcde"))
    assert made.feature_names_in_.tolist() == list("abcde")
    assert not hasattr(model(), "feature_names_in_")
    with pytest.raises(InvalidInputError, match="column 0 of X is 'e'; expected 'a'"):
        made.predict(frame[list("edcba")])
    assert made.predict(frame[list("edcba")][made.feature_names_in_]).tolist() == made.predict(frame).tolist()
    assert len(model().predict(frame)) == len(frame)


WITH_NAN = rows()
WITH_NAN[7, 2] = np.nan
BAD: dict[str, tuple[Any, str]] = {
    "columns": (rows(d=4), "X has 4 features; expected 5"),
    "nan": (WITH_NAN, r"X\[7, 2\] is nan; expected finite numbers"),
    "infinite": (np.full((1, 5), np.inf), r"X\[0, 0\] is inf"),
    "one row": (np.ones(5), r"X has shape \(5,\); expected \(samples, features\)"),
    "empty": (np.ones((0, 5)), r"X has shape \(0, 5\)"),
    "text": ([["a"] * 5], "expected numeric features"),
    "sparse": (scipy.sparse.eye_array(5).tocsr(), "X is a sparse matrix"),
    "complex": (np.ones((1, 5)) * 1j, "expected numeric features"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "decision_function"])
def test_features_it_refuses(case: str, method: str) -> None:
    X, said = BAD[case]
    with pytest.raises(InvalidInputError, match=said) as caught:
        getattr(model(), method)(X)
    assert caught.value.code == "features"


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "coef": ({"coef": np.ones(5)}, r"coef has shape \(5,\); expected \(features, classes\)", "coef"),
    "coef nan": ({"coef": np.full((5, 3), np.nan)}, "expected finite numbers", "coef"),
    "one class": ({"coef": np.ones((5, 1))}, "two classes or more", "coef"),
    "intercept": ({"intercept": np.ones(2)}, r"intercept has shape \(2,\); expected \(3,\)", "intercept"),
    "offsets": ({"offsets": np.ones((3, 1))}, r"offsets has shape \(3, 1\); expected \(3,\)", "offsets"),
    "offsets infinite": ({"offsets": [0, 0, -np.inf]}, "expected finite numbers", "offsets"),
    "offsets text": ({"offsets": "none"}, "expected finite numbers", "offsets"),
    "classes": ({"classes": ["a", "b"]}, "expected 3 distinct names", "classes"),
    "classes repeat": ({"classes": ["a", "b", "a"]}, "expected 3 distinct names", "classes"),
    "temperature": ({"temperature": 0.0}, "temperature is 0.0; expected a number above 0", "temperature"),
    "feature names": ({"feature_names": ["a"]}, "1 feature names; expected 5", "feature_names"),
}


@pytest.mark.parametrize("case", WRONG)
def test_parameters_it_refuses(case: str, tmp_path: Path) -> None:
    change, said, code = WRONG[case]
    wrong = model().set_params(**change)
    for method, given in (("predict", rows()), ("save", tmp_path / "m.npz"), ("to_onnx", tmp_path / "m.onnx")):
        with pytest.raises(InvalidInputError, match=said) as caught:
            getattr(wrong, method)(given)
        assert caught.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_parameters_are_copied_and_checked() -> None:
    W = np.random.default_rng(0).normal(size=(6, 3))
    made, bare = LinearClassifier.of(W, [1, 2, 3], bias=True), LinearClassifier.of(W, [1, 2, 3], bias=False)
    assert (made.n_features_in_, bare.n_features_in_) == (5, 6)
    np.testing.assert_array_equal(made.intercept, W[-1])
    np.testing.assert_array_equal(bare.intercept, np.zeros(3))
    W[:] = 0.0
    assert (made.coef != 0).all()
    assert (bare.coef != 0).all()
    with pytest.raises(InvalidInputError, match="distinct"):
        LinearClassifier.of(W, [1, 2], bias=True)


@pytest.mark.parametrize("names", NAMES)
def test_files_and_pickles_give_the_same_model(names: str, tmp_path: Path) -> None:
    made = model(
        classes=NAMES[names],
        temperature=1.7,
        offsets=np.array([0.0, 0.3, -2.0]),
        feature_names=["a", "b", "c", "d", "é"],
    )
    assert made.save(tmp_path / "model.npz", settings={"gamma": 0.8}) == tmp_path / "model.npz"
    X = rows()
    for same in (
        load_model(tmp_path / "model.npz"),
        load_model(str(tmp_path / "model.npz")),
        pickle.loads(pickle.dumps(made)),
    ):
        assert type(same) is LinearClassifier
        np.testing.assert_array_equal(same.predict_proba(X), made.predict_proba(X))
        assert same.predict(X).tolist() == made.predict(X).tolist()
        assert [(type(name), name) for name in same.classes_.tolist()] == [(type(n), n) for n in NAMES[names]]
        assert same.classes_.dtype == made.classes_.dtype
        assert (same.temperature, same.feature_names_in_.tolist()) == (1.7, ["a", "b", "c", "d", "é"])
    with np.load(tmp_path / "model.npz", allow_pickle=False) as archive:
        assert json.loads(str(archive["meta"]))["settings"] == {"gamma": 0.8}


def test_names_that_a_file_cannot_keep_are_refused(tmp_path: Path) -> None:
    made = model(classes=[("a", 1), ("b", 2), ("c", 3)])
    assert made.predict(rows(1))[0] in [("a", 1), ("b", 2), ("c", 3)]
    with pytest.raises(InvalidInputError, match=r"a class is named \('a', 1\), of type tuple"):
        made.save(tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bias", [True, False])
def test_files_of_the_version_before_are_read(bias: bool, tmp_path: Path) -> None:
    W = np.random.default_rng(0).normal(size=(6, 2))
    meta = json.dumps({"classes": ["ham", "spam"], "settings": {"fit_intercept": bias}})
    np.savez(tmp_path / "old.npz", W=W, meta=np.array(meta))
    X = rows(d=5 if bias else 6).astype(np.float64)
    A = X @ W[:-1] + W[-1] if bias else X @ W
    np.testing.assert_allclose(load_model(tmp_path / "old.npz").predict_proba(X), softmax(A, axis=1), rtol=1e-12)


class Trap:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_files_that_are_no_model(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    with pytest.raises(InvalidInputError, match="there is no file"):
        load_model(path)
    model().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(InvalidInputError, match="no labelchef model"):
        load_model(path)
    np.savez(path, coef=np.ones((2, 2)))
    with pytest.raises(InvalidInputError, match="no labelchef model"):
        load_model(path)
    np.savez(path, meta=np.array([Trap(tmp_path / "trapped")], dtype=object))
    with pytest.raises(InvalidInputError, match="no labelchef model"):
        load_model(path)
    assert not (tmp_path / "trapped").exists()
    np.savez(path, meta=np.array(json.dumps({"format": 3})))
    with pytest.raises(InvalidInputError, match="has format 3; this version of labelchef reads up to 2"):
        load_model(path)
    facts = {"format": 2, "classes": ["a", "b"], "feature_names": None}
    arrays: dict[str, Any] = {"intercept": np.zeros(2), "offsets": np.zeros(2), "temperature": np.float64(1.0)}
    np.savez(path, meta=np.array(json.dumps(facts)), coef=np.ones((4, 3)), **arrays)
    with pytest.raises(InvalidInputError, match="damaged labelchef model: intercept has shape"):
        load_model(path)
    np.savez(path, meta=np.array(json.dumps(facts)), **arrays)
    with pytest.raises(InvalidInputError, match="damaged labelchef model"):
        load_model(path)


def onnx_outputs(path: Path, X: Any) -> dict[str, Any]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [(given.name, given.type) for given in session.get_inputs()] == [("X", "tensor(float)")]
    names = [made.name for made in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


@pytest.mark.parametrize("names", ["strings", "integers"])
@pytest.mark.parametrize("double", [True, False])
def test_onnx_agrees(names: str, double: bool, tmp_path: Path) -> None:
    made = model(classes=NAMES[names], temperature=0.6, offsets=np.array([0.0, 0.8, -0.4]))
    assert made.to_onnx(tmp_path / "model.onnx", double=double) == tmp_path / "model.onnx"
    X = rows(500)
    found = onnx_outputs(tmp_path / "model.onnx", X)
    assert found["probabilities"].dtype == np.float32
    np.testing.assert_allclose(found["probabilities"], made.predict_proba(X), atol=1e-6, rtol=0)
    assert found["label"].tolist() == made.predict(X).tolist()
    assert found["label"].tolist() != clone(made).set_params(offsets=None).predict(X).tolist()
    assert onnx_outputs(tmp_path / "model.onnx", X[:1])["label"].tolist() == made.predict(X[:1]).tolist()


def test_onnx_agrees_on_features_of_any_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = (1e4 + rng.normal(size=(300, 768))).astype(np.float32)
    coef = rng.normal(size=(768, 10)) / 10
    made = LinearClassifier(coef, -1e4 * coef.sum(axis=0), [f"class {c}" for c in range(10)])
    found = onnx_outputs(made.to_onnx(tmp_path / "model.onnx"), X)
    np.testing.assert_allclose(found["probabilities"], made.predict_proba(X), atol=1e-6, rtol=0)
    assert found["label"].tolist() == made.predict(X).tolist()


@pytest.mark.parametrize("names", ["floats", "mixed"])
def test_onnx_refuses_names_it_cannot_hold(names: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected all strings or all whole numbers") as caught:
        model(classes=NAMES[names]).to_onnx(tmp_path / "m.onnx")
    assert caught.value.code == "classes"


def test_onnx_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'labelchef\[onnx\]'") as caught:
        model().to_onnx(tmp_path / "m.onnx")
    assert caught.value.code == "onnx"


def test_it_is_part_of_the_package() -> None:
    assert labelchef.load_model is load_model
    assert {"LinearClassifier", "load_model"} <= set(labelchef.__all__)
