"""Names for the array types in signatures, and arrays of class names."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]
Float64s: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def name_array(names: Sequence[Any]) -> NDArray[Any]:
    """Class names as an array, of their own type where they share one.

    >>> name_array(["a", "b"]).dtype.kind, name_array([1, 2]).dtype.kind, name_array([("a", 1), ("b", 2)]).shape
    ('U', 'i', (2,))
    """
    kinds = {type(name) for name in names}
    if len(kinds) == 1 and kinds <= {int, str, float, bool}:
        return np.array(names)
    array = np.empty(len(names), dtype=object)
    for k, name in enumerate(names):  # one by one: an assignment of all would take tuples apart
        array[k] = name
    return array
