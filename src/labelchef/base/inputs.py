"""The boundary: whatever users hand in becomes checked arrays here, once.

Every refusal says what came, what was expected and what to do.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints, name_array
from labelchef.base.errors import InvalidInputError, MissingClassWarning, warn_caller
from labelchef.base.records import UNRESOLVED

SIMPLEX = 1e-4
"""Room for labels that were rounded on their way through a file."""

_LABELS = ". Labels that may be wrong are votes: fit(X, votes=labels, …)"


def as_weak_labels(Y: Any, n_rows: int) -> Float64s:
    """Probabilities (n, C), rows on the simplex; rows that sum to 1 but for rounding are rescaled.

    >>> as_weak_labels([[0.25, 0.75]], 1).tolist()
    [[0.25, 0.75]]
    """
    name = "Y_weak"
    try:
        array = np.asarray(Y.to_numpy() if hasattr(Y, "to_numpy") else Y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} cannot be read as numbers ({error}); expected one probability for each sample and class{_LABELS}",
            code="weak_labels",
        ) from None
    if array.ndim != 2 or array.shape[1] < 2 or len(array) == 0:
        raise InvalidInputError(
            f"{name} has shape {array.shape}; expected (samples, classes) with two classes or more{_LABELS}",
            code="weak_labels",
        )
    if len(array) != n_rows:
        raise InvalidInputError(f"{name} has {len(array)} rows; expected {n_rows}, as X has", code="weak_labels")
    with np.errstate(invalid="ignore"):
        total = array.sum(axis=1)
    bad = np.flatnonzero(~((array >= -SIMPLEX).all(axis=1) & (np.abs(total - 1.0) <= SIMPLEX)))  # NaN is bad too
    if bad.size:
        raise InvalidInputError(
            f"{name}[{bad[0]}] is {array[bad[0]].tolist()}, which sums to {total[bad[0]]:.6g} ({bad.size} such rows); "
            "expected non-negative, finite probabilities that sum to 1. Where no source spoke, use equal probabilities",
            code="weak_labels",
        )
    array = np.maximum(array, 0.0)
    return np.asarray(array / array.sum(axis=1, keepdims=True))


class ClassNames:
    """Class names of any hashable type, in the order of the columns of the weak labels.

    >>> names = ClassNames(["ham", "spam"])
    >>> names.encode(["spam", "ham"], "y_val").tolist()
    [1, 0]
    """

    def __init__(self, names: Iterable[Hashable]) -> None:
        self.names: list[Hashable] = [plain(name) for name in names]
        try:
            self._ids = {name: k for k, name in enumerate(self.names)}
        except TypeError:
            raise InvalidInputError(
                f"class names {self.names} cannot be told apart; expected hashable names", code="classes"
            ) from None
        if UNRESOLVED in self._ids:
            raise InvalidInputError(
                f"a class is named {UNRESOLVED}, which stands for 'no label'; give the classes other names",
                code="classes",
            )
        if len(self._ids) != len(self.names):
            raise InvalidInputError(f"class names {self.names} repeat; expected distinct names", code="classes")

    @classmethod
    def of(cls, classes: Sequence[Hashable] | None, Y_weak: Any, n_classes: int) -> "ClassNames":
        """The given names, else the columns of a frame, else 0 … C−1."""
        classes = as_list(getattr(Y_weak, "columns", range(n_classes)) if classes is None else classes, "classes")
        if len(classes) != n_classes:
            raise InvalidInputError(
                f"{len(classes)} class names for {n_classes} columns of weak labels; expected one a column",
                code="classes",
            )
        return cls(classes)

    def __len__(self) -> int:
        return len(self.names)

    def as_array(self) -> np.ndarray[Any, Any]:
        """The names as an array, of their own type where they share one."""
        return name_array(self.names)

    def encode(self, labels: Any, name: str, *, allow_missing: bool = False) -> Ints:
        """Names → class ids. With `allow_missing`, −1, None and NaN mean 'no label'."""
        ids = [self._id(v, f"{name}[{k}]", allow_missing) for k, v in enumerate(as_list(labels, name))]
        return np.array(ids, dtype=np.int64)

    def encode_votes(self, labels: Any, name: str) -> Ints:
        """Class ids (whole numbers) or names → class ids; −1 stays −1: the form in which people's answers come."""
        ids = [self.vote(plain(value), f"{name}[{k}]") for k, value in enumerate(as_list(labels, name))]
        return np.array(ids, dtype=np.int64)

    def vote(self, value: Any, where: str) -> int:
        """One answer as a class id.

        Whole numbers are ids, also as floats (a column with gaps); truth values too, unless they name classes.
        """
        names_a_class = isinstance(value, bool) and any(isinstance(name, bool) for name in self.names)
        if names_a_class or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
            return self._id(value, where, True)
        if not UNRESOLVED <= value < len(self.names):
            raise InvalidInputError(
                f"{where} is {value}; expected a class id from 0 to {len(self.names) - 1}, "
                f"or {UNRESOLVED} for unresolved",
                code="labels",
            )
        return int(value)

    def _id(self, value: Any, where: str, allow_missing: bool) -> int:
        found = plain(value)
        try:
            known = self._ids.get(found)
        except TypeError:
            raise InvalidInputError(
                f"{where} is {found!r}, which is no single label; expected one class name a sample", code="labels"
            ) from None
        if known is not None:
            return known
        if allow_missing and is_missing(found):
            return UNRESOLVED
        shown = ", ".join(repr(name) for name in self.names[:20])
        hint = f", or {UNRESOLVED} where there is none" if allow_missing else ""
        raise InvalidInputError(f"{where} is {found!r}; expected one of the classes {shown}{hint}", code="labels")


def as_evaluation_labels(y: Any, classes: ClassNames, n_rows: int, name: str, *, must_cover: bool = False) -> Ints:
    """Labels of an evaluation split as class ids; with `must_cover`, a class that never occurs there warns."""
    if getattr(y, "ndim", 1) != 1:
        raise InvalidInputError(
            f"{name} has shape {y.shape}; expected one class name a sample. "
            "For one-hot labels pass their argmax(axis=1)",
            code="labels",
        )
    ids = classes.encode(y, name)
    if len(ids) != n_rows:
        raise InvalidInputError(f"{name} has {len(ids)} entries; expected {n_rows}, as its features", code="labels")
    missing = sorted(set(range(len(classes))) - set(ids.tolist()))
    if must_cover and missing:
        absent = ", ".join(repr(classes.names[c]) for c in missing[:10])
        warn_caller(
            f"{name} has no sample of {absent}: cleaning cannot be steered towards what is never validated. "
            "Add at least a few samples of each class",
            MissingClassWarning,
        )
    return ids


def as_indices(indices: Any, n_rows: int) -> Ints:
    """Distinct sample numbers within the training set."""
    try:
        array = np.asarray(as_list(indices, "indices"))
    except ValueError:
        array = np.empty((0, 0), dtype=object)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidInputError(
            f"indices have shape {array.shape} and type {array.dtype}; expected a list of sample numbers",
            code="indices",
        )
    outside = array[(array < 0) | (array >= n_rows)]
    if outside.size:
        raise InvalidInputError(
            f"sample {int(outside[0])} does not exist; expected numbers from 0 to {n_rows - 1}", code="indices"
        )
    if len(np.unique(array)) != len(array):
        raise InvalidInputError("indices repeat; expected each sample once an update", code="indices")
    return array.astype(np.int64)


def as_mask(values: Any, n_rows: int, name: str) -> Bools | None:
    """Yes or no for each training sample; None for none given.

    >>> as_mask([True, False], 2, "askable").tolist(), as_mask(None, 2, "askable")
    ([True, False], None)
    """
    if values is None:
        return None
    array = np.asarray(as_list(values, name))
    if array.shape != (n_rows,) or array.dtype != np.bool_:
        raise InvalidInputError(
            f"{name} has shape {array.shape} and type {array.dtype}; expected true or false for each of {n_rows} samples",
            code=name,
        )
    return array


def plain(value: Any) -> Any:
    """NumPy scalars as Python ones, so that 1, np.int64(1) and '1' compare as users expect."""
    return value.item() if isinstance(value, np.generic) else value


def as_list(values: Any, name: str) -> list[Any]:
    """The entries of a list, an array or a column."""
    for method in ("tolist", "to_list"):
        if hasattr(values, method):
            values = getattr(values, method)()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{name} is {values!r}; expected a list, one entry each", code="labels")
    return list(values)


def is_missing(value: Any) -> bool:
    """Whether a label stands for none: −1, None, NaN or a frame library's NA."""
    if value is None:
        return True
    same = value == value  # neither NaN nor a frame library's NA equals itself
    return value == UNRESOLVED if isinstance(same, bool) and same else True
