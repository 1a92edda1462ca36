"""Checks of numbers; the message says what came and what was expected."""

import math
from typing import Any

import numpy as np

from labelchef.base.errors import InvalidInputError


def check_whole(value: Any, name: str, least: int = 1, *, code: str | None = None) -> None:
    """A whole number of at least `least`; NumPy's integers are allowed.

    >>> check_whole(np.int64(3), "epochs")
    >>> check_whole(2.5, "epochs")
    Traceback (most recent call last):
    labelchef.base.errors.InvalidInputError: epochs is 2.5; expected a whole number of at least 1
    """
    check_number(value, name, kind=int, code=code, least=least)


def check_number(
    value: Any, name: str, *, kind: type = float, instead: str = "", code: str | None = None, **bounds: float
) -> None:
    """A finite number within bounds: least, most, above, below. `instead` names another allowed value, for the message.

    >>> check_number(0.5, "damping", least=0.0)
    >>> check_number(0.0, "tol", above=0.0, below=1.0)
    Traceback (most recent call last):
    labelchef.base.errors.InvalidInputError: tol is 0.0; expected a number above 0 and below 1
    """
    if as_number(value, kind, **bounds) is None:
        why = f"{name} is {value!r}; expected {allowed_numbers(kind, **bounds)}{instead}"
        raise InvalidInputError(why, code=code or name)


def as_number(
    value: Any,
    kind: type,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> int | float | None:
    """The value as `kind`, int or float; None if it is no finite number of that kind within the bounds."""
    types = int | np.integer if kind is int else int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, types) or not math.isfinite(value):
        return None
    return kind(value) if least <= value <= most and above < value < below else None


def allowed_numbers(kind: type, **bounds: float) -> str:
    """The numbers within bounds, in words; bounds from 2⁵³ on go without saying."""
    number = "a whole number" if kind is int else "a number"
    said = {name: f"{bound:g}" for name, bound in bounds.items() if abs(bound) < 2**53}
    if "least" in said and "most" in said:
        return f"{number} from {said['least']} to {said['most']}"
    words = {"least": "of at least", "most": "of at most", "above": "above", "below": "below"}
    parts = [f"{word} {said[name]}" for name, word in words.items() if name in said]
    return f"{number} {' and '.join(parts)}" if parts else number
