"""Features at the boundary: whatever users hand in becomes a checked (n, d) array, for training and for prediction alike."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from labelchef.base.arrays import Floats
from labelchef.base.errors import InvalidInputError

_CHECK_ROWS = 4096
_LARGEST = 1e50
"""Features up to this, and none all below its inverse: float64 holds fourth powers of them, as in the curvature of a step."""


def as_features(X: Any, name: str = "X", *, columns: int | None = None, half: bool = False) -> Floats:
    """A dense (n, d) float32 or float64 array with contiguous rows; float arrays of that kind are not copied.

    With `half`, neither are those of float16.

    >>> as_features([[1, 2], [3, 4]]).dtype, as_features(np.ones((2, 2), dtype=np.float16)).dtype
    (dtype('float64'), dtype('float32'))
    """
    if hasattr(X, "tocsr") or hasattr(X, "todense"):
        raise InvalidInputError(
            f"{name} is a sparse matrix; expected dense features. Reduce it first, for example with "
            "sklearn.decomposition.TruncatedSVD(256).fit_transform(X), or call X.toarray() if it is small",
            code="features",
        )
    array = _as_numbers(X, name)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(
            f"{name} has shape {array.shape}; expected (samples, features) with at least one of each. Images and other arrays "
            "of more dimensions go through `labelchef init`, or through labelchef.data.encoders first",
            code="features",
        )
    if columns is not None and array.shape[1] != columns:
        raise InvalidInputError(
            f"{name} has {array.shape[1]} features; expected {columns}, as in the training set", code="features"
        )
    if array.dtype not in (np.float32, np.float64) and not (half and array.dtype == np.float16):
        array = array.astype(np.float32 if np.can_cast(array.dtype, np.float32) else np.float64)
    array = np.ascontiguousarray(array)
    largest = 0.0
    for start in range(0, len(array), _CHECK_ROWS):
        largest = max(largest, float(np.abs(array[start : start + _CHECK_ROWS]).max()))
        finite = np.isfinite(array[start : start + _CHECK_ROWS])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise InvalidInputError(
                f"{name}[{start + row}, {column}] is {array[start + row, column]}; expected finite numbers. "
                "Impute or drop missing values first",
                code="features",
            )
    check_scale(largest, name)
    return array


def check_scale(largest: float, name: str) -> None:
    """Refuse entries up to `largest` whose squares are no finite numbers, or all zero."""
    if largest > _LARGEST or 0 < largest < 1 / _LARGEST:
        raise InvalidInputError(
            f"{name} has entries up to {largest:.3g}, too {'large' if largest > 1 else 'small'} to be squared; expected a scale "
            "near 1. Scale them, for example with sklearn.preprocessing.StandardScaler",
            code="features",
        )


def feature_names_of(X: Any) -> list[str] | None:
    """The columns of a frame, if all of them are named by strings; None for anything else.

    >>> feature_names_of(np.ones((2, 2))) is None
    True
    """
    columns = columns_of(X)
    return [str(name) for name in columns] if columns and all(isinstance(name, str) for name in columns) else None


def columns_of(X: Any) -> list[Hashable]:
    """The names of the columns of a frame, whatever they are; none for anything else."""
    return list(getattr(X, "columns", ()))


def check_columns(
    X: Any, expected: Sequence[Hashable] | None, name: str = "X", like: str = "frame[list(X.columns)]"
) -> None:
    """Refuse a frame whose columns are not those of the training set in their order; `like` says how to select these.

    Names are compared where both frames have names that are strings. Other names, such as numbers, may be mere positions:
    they are refused only if they are the expected ones in another order.
    """
    came, wanted = columns_of(X), [*(expected or ())]
    differ = [k for k, (one, other) in enumerate(zip(came, wanted, strict=False)) if one != other]
    if len(came) != len(wanted) or not differ:
        return
    named = all(isinstance(one, str) for one in (*came, *wanted))
    if named or set(came) == set(wanted):
        raise InvalidInputError(
            f"column {differ[0]} of {name} is {came[differ[0]]!r}; expected {wanted[differ[0]]!r}, as in the training set. "
            f"Select the columns in the order of the training set: {like}",
            code="features",
        )


def _as_numbers(X: Any, name: str) -> np.ndarray[Any, Any]:
    """An array of real numbers, whatever X is; nullable columns of a frame become floats with NaN."""
    if np.ma.isMaskedArray(X) and np.ma.getmaskarray(X).any():
        raise InvalidInputError(f"{name} has masked entries; expected all of them. Fill them first", code="features")
    try:
        array = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
        if array.dtype == object and hasattr(X, "dtypes"):
            array = np.asarray(X.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} cannot be read as a table of real numbers; expected numeric features, rows of equal length. "
            "Encode text, categories and dates into numbers first; labelchef init NAME data.csv does it for files",
            code="features",
        )
    return array
