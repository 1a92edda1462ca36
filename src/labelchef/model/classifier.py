"""`LinearClassifier`: the model to take home. It holds parameters and class names, and nothing of the training data.

    A = (X coef + intercept) / T                       scaled logits                    `decision_function`
    P[i] = softmax(A[i])                               probabilities                    `predict_proba`
    ŷ_i = classes[ argmax_c (log P[i, c] + o_c) ]      the lowest c if equal            `predict`

Shapes: X (n, d); coef (d, C); intercept, o (C,); A, P (n, C). T > 0 is the temperature: above 1 it moves probabilities
towards each other and changes no order. The offsets o are a decision rule: they change `predict` and nothing else. log P and A
differ by one number in each row, so `predict` adds o to A.

**model.npz** holds arrays without pickle: `coef`, `intercept`, `offsets`, `temperature`, and `meta`, a text in JSON:

    {"format": 2, "classes": […], "feature_names": […] or null, "settings": {…}}

JSON keeps the types of class names that are strings, whole numbers, floats or truth values; others are refused. Files of
labelchef 0.1 hold W (D, C), with the intercept in the last row where `settings["fit_intercept"]` says so, and no format; they
are read too.

**model.onnx**: input `X` float32 (n, d); outputs `label` (n,), strings or int64, and `probabilities` float32 (n, C). The graph is
Cast, MatMul, Add, then Softmax and Cast for the probabilities, and Add, ArgMax, Gather for the labels. T is divided
into coef and intercept. The graph does not check its input: of NaN it makes NaN.
"""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from labelchef.base.arrays import Float64s, name_array
from labelchef.base.errors import InvalidInputError, MissingExtraError, TooLargeError
from labelchef.base.features import as_features, check_columns
from labelchef.base.files import whole_file
from labelchef.base.npy import read_npz
from labelchef.base.numbers import check_number
from labelchef.model.features import Features
from labelchef.model.softmax import probabilities

FORMAT = 2
"""Of model.npz; that of labelchef 0.1 was not numbered."""

_ROWS = 8192  # converted to float64 at a time
_OPSET, _IR = 17, 8  # of ONNX; runtimes since 2022 read these


@dataclass(eq=False, repr=False)
class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Softmax regression that is trained already; works where scikit-learn takes a fitted classifier, and can be pickled.

    Parameters
    ----------
    coef : (d, C) parameters
    intercept : (C,)
    classes : (C,) class names, in the order of the columns of `coef`
    temperature : T > 0; the logits are divided by it
    offsets : (C,) what `predict`, and nothing else, adds to the log-probabilities; None for zeros
    feature_names : (d,) names of the features, None if they have none; a frame must then have these columns in this order

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn; the classes are in the order of the columns of the weak
        labels, which may not be sorted. Metrics of scikit-learn that take probabilities without class names expect them sorted

    Examples
    --------
    >>> model = LinearClassifier(np.array([[0.0, 2.0]]), np.array([0.0, -1.0]), ["ham", "spam"])
    >>> model.predict([[0.0], [1.0]]).tolist()
    ['ham', 'spam']
    >>> model.set_params(offsets=np.array([2.0, 0.0])).predict([[0.0], [1.0]]).tolist()
    ['ham', 'ham']
    """

    coef: Any
    intercept: Any
    classes: Any
    temperature: float = 1.0
    offsets: Any = None
    feature_names: Sequence[str] | None = None

    @classmethod
    def of(cls, W: Float64s, classes: Any, *, bias: bool, **given: Any) -> Self:
        """From parameters W (D, C), which are copied; with `bias`, the last row is the intercept. Everything is checked."""
        intercept = W[-1].copy() if bias else np.zeros(W.shape[1])
        model = cls((W[:-1] if bias else W).copy(), intercept, classes, **given)
        model._checked()
        return model

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002 (scikit-learn passes them)
        """Changes nothing, as with scikit-learn's `FrozenEstimator`: the model is trained already."""
        return self

    def decision_function(self, X: Any) -> Float64s:
        """Scaled logits (n, C), without offsets; with two classes those of the second less those of the first, (n,)."""
        A = self._scaled_logits(X)
        return A[:, 1] - A[:, 0] if A.shape[1] == 2 else A

    def predict_proba(self, X: Any) -> Float64s:
        """Class probabilities (n, C)."""
        return np.asarray(probabilities(self._scaled_logits(X)))

    def predict_log_proba(self, X: Any) -> Float64s:
        """Logarithms of the class probabilities (n, C), finite where a probability is rounded to zero."""
        A = self._scaled_logits(X)
        return np.asarray(A - np.logaddexp.reduce(A, axis=1, keepdims=True))

    def predict(self, X: Any) -> "np.ndarray[Any, Any]":
        """Class names (n,), by the decision rule."""
        best = (self._scaled_logits(X) + self._checked()[2]).argmax(axis=1)
        return np.asarray(self.classes_[best])

    @property
    def classes_(self) -> "np.ndarray[Any, Any]":
        """(C,) class names, as an array of their own type where they share one."""
        return name_array(plain_names(self.classes))

    @property
    def n_features_in_(self) -> int:
        """d."""
        return int(np.shape(self.coef)[0])

    @property
    def feature_names_in_(self) -> "np.ndarray[Any, Any]":
        """(d,) names of the features; no such attribute where they have none."""
        if self.feature_names is None:
            raise AttributeError("this model was trained on features without names")
        return np.array(list(self.feature_names), dtype=object)

    def save(
        self,
        path: str | Path,
        *,
        settings: Mapping[str, Any] | None = None,
        more: Mapping[str, "np.ndarray[Any, Any]"] | None = None,
    ) -> Path:
        """Write model.npz, whole and without pickle. `settings` are kept in the file for whoever asks how it was made.

        `more` are arrays that the file holds beside the model, such as its encoder (`labelchef.data.encoded`).
        """
        coef, intercept, offsets = self._checked()
        names = self.classes_.tolist()
        other = [name for name in names if type(name) not in (str, int, float, bool)]
        if other:
            raise InvalidInputError(
                f"a class is named {other[0]!r}, of type {type(other[0]).__name__}, which a file cannot keep; expected "
                "strings, numbers or truth values. Give the classes such names",
                code="classes",
            )
        meta = {
            "format": FORMAT,
            "classes": names,
            "feature_names": None if self.feature_names is None else [str(name) for name in self.feature_names],
            "settings": dict(settings or {}),
        }
        path = Path(path)
        with whole_file(path) as stream:
            held: dict[str, Any] = {
                "coef": coef,
                "intercept": intercept,
                "offsets": offsets,
                "temperature": np.float64(self.temperature),
                "meta": np.array(json.dumps(meta, ensure_ascii=False, default=str)),
                **(more or {}),
            }
            np.savez(stream, **held)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote, or the model.npz of labelchef 0.1. Nothing in the file is executed."""
        path = Path(path)
        return cls.of_archive(read_archive(path), path)

    @classmethod
    def of_archive(cls, archive: "ModelArchive", path: Path) -> Self:
        """From what a model.npz holds; `path` is named in errors."""
        arrays, meta = archive.arrays, archive.meta
        try:
            names = name_array(meta["classes"])
            if archive.format == 1:
                return cls.of(arrays["W"], names, bias=bool(meta["settings"].get("fit_intercept", True)))
            model = cls(
                arrays["coef"], arrays["intercept"], names, float(arrays["temperature"]), arrays["offsets"],
                meta["feature_names"],
            )  # fmt: skip
            model._checked()
        except Exception as error:
            raise InvalidInputError(
                f"{path} is a damaged labelchef model: {str(error) or type(error).__name__}. Restore it from a copy",
                code="file",
            ) from None
        return model

    def to_onnx(self, path: str | Path, *, double: bool = True) -> Path:
        """Write model.onnx (extra `labelchef[onnx]`); class names must be all strings or all whole numbers.

        The graph computes in float64, so that it agrees with `predict_proba` whatever the scale of the features. `double=False`
        makes one in float32 throughout, for runtimes that have nothing else.
        """
        require_onnx()
        from onnx import TensorProto, checker, helper, numpy_helper  # here, because the import takes a while

        coef, intercept, offsets = self._checked()
        names = plain_names(self.classes)
        kinds = {type(name) for name in names}
        if kinds not in ({str}, {int}):
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InvalidInputError(
                f"class names are of type {found}; expected all strings or all whole numbers, the types of labels that "
                "the ONNX file can hold. Give the classes such names",
                code="classes",
            )
        kind = np.float64 if double else np.float32
        own = TensorProto.DOUBLE if double else TensorProto.FLOAT
        labels = np.array(names, dtype=object if kinds == {str} else np.int64)
        constants = {
            "coef": (coef / self.temperature).astype(kind),
            "intercept": (intercept / self.temperature).astype(kind),
            "offsets": offsets.astype(kind),
            "classes": labels,
        }
        nodes = [
            helper.make_node("Cast", ["X"], ["rows"], to=own),
            helper.make_node("MatMul", ["rows", "coef"], ["products"]),
            helper.make_node("Add", ["products", "intercept"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["softmax"], axis=1),
            helper.make_node("Cast", ["softmax"], ["probabilities"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["logits", "offsets"], ["decision"]),
            helper.make_node("ArgMax", ["decision"], ["best"], axis=1, keepdims=0),
            helper.make_node("Gather", ["classes", "best"], ["label"], axis=0),
        ]
        label_kind = TensorProto.STRING if kinds == {str} else TensorProto.INT64
        graph = helper.make_graph(
            nodes,
            "labelchef",
            [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", len(coef)])],
            [
                helper.make_tensor_value_info("label", label_kind, ["n"]),
                helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(names)]),
            ],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        opset = [helper.make_opsetid("", _OPSET)]
        made = helper.make_model(graph, producer_name="labelchef", ir_version=_IR, opset_imports=opset)
        checker.check_model(made, full_check=True)
        path = Path(path)
        with whole_file(path) as stream:
            stream.write(made.SerializeToString())
        return path

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _scaled_logits(self, X: Any) -> Float64s:
        coef, intercept, _ = self._checked()
        check_columns(X, self.feature_names, like="frame[list(model.feature_names_in_)]")
        rows = X if isinstance(X, Features) else as_features(X, columns=len(coef), half=True)
        if rows.shape[1] != len(coef):
            raise InvalidInputError(
                f"X has {rows.shape[1]} features; expected {len(coef)}, as in the training set",
                code="features",
            )
        A = np.empty((len(rows), len(intercept)))
        for start in range(0, len(rows), _ROWS):
            A[start : start + _ROWS] = rows[start : start + _ROWS].astype(np.float64) @ coef
        return np.asarray((A + intercept) / self.temperature)

    def _checked(self) -> tuple[Float64s, Float64s, Float64s]:
        """coef, intercept and offsets in float64; here, because scikit-learn's constructors check nothing."""
        coef = _numbers(self.coef, "coef")
        if coef.ndim != 2 or coef.shape[0] < 1 or coef.shape[1] < 2:
            raise InvalidInputError(
                f"coef has shape {coef.shape}; expected (features, classes), two classes or more", code="coef"
            )
        size = coef.shape[1]
        intercept = _numbers(self.intercept, "intercept")
        offsets = np.zeros(size) if self.offsets is None else _numbers(self.offsets, "offsets")
        for name, found in (("intercept", intercept), ("offsets", offsets)):
            if found.shape != (size,):
                raise InvalidInputError(f"{name} has shape {found.shape}; expected ({size},), one a class", code=name)
        names = plain_names(self.classes)
        if len(names) != size or len(set(names)) != size:
            raise InvalidInputError(
                f"classes are {names}; expected {size} distinct names, one a column of coef", code="classes"
            )
        check_number(self.temperature, "temperature", above=0.0)
        if self.feature_names is not None and len(self.feature_names) != len(coef):
            raise InvalidInputError(
                f"{len(self.feature_names)} feature names; expected {len(coef)}, one a row of coef",
                code="feature_names",
            )
        return coef, intercept, offsets


@dataclass(frozen=True)
class ModelArchive:
    """What a model.npz holds, not yet checked."""

    format: int
    arrays: Mapping[str, "np.ndarray[Any, Any]"]
    meta: Mapping[str, Any]


def read_archive(path: Path) -> ModelArchive:
    """The arrays and facts in a model.npz. Nothing in the file is executed."""
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}; expected a model.npz of labelchef", code="file")
    try:
        arrays = read_npz(path)
        meta = json.loads(str(arrays.pop("meta")))
        version = meta.get("format", 1)
    except TooLargeError:
        raise
    except Exception as error:  # every way in which a file can fail to be a model
        raise InvalidInputError(
            f"{path} is no labelchef model ({type(error).__name__}); expected a model.npz that labelchef wrote",
            code="file",
        ) from None
    if version not in (1, FORMAT):
        raise InvalidInputError(
            f"{path} has format {version}; this version of labelchef reads up to {FORMAT}. Read it with a later version",
            code="file",
        )
    return ModelArchive(version, arrays, meta)


def require_onnx() -> None:
    """Say early what is missing, before any work is done."""
    if not has_onnx():
        raise MissingExtraError("ONNX files need onnx; pip install 'labelchef[onnx]'", code="onnx")


def has_onnx() -> bool:
    """Whether the extra is installed, without importing it."""
    return importlib.util.find_spec("onnx") is not None


def plain_names(classes: Any) -> list[Any]:
    """A list of Python's own types."""
    given = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
    return [name.item() if isinstance(name, np.generic) else name for name in given]


def _numbers(values: Any, name: str) -> Float64s:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} is {values!r}; expected finite numbers", code=name)
    return array
