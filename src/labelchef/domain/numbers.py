"""Checks of numbers in settings; the message says what came and what was expected."""

import math
from typing import Any

import numpy as np

from labelchef.domain.errors import InvalidInputError


def check_whole(value: Any, name: str, least: int = 1, *, code: str | None = None) -> None:
    """A whole number of at least `least`; NumPy's integers are allowed.

    >>> check_whole(np.int64(3), "epochs")
    >>> check_whole(2.5, "epochs")
    Traceback (most recent call last):
    labelchef.domain.errors.InvalidInputError: epochs is 2.5; expected a whole number of at least 1
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInputError(f"{name} is {value!r}; expected a whole number of at least {least}", code=code or name)


def check_number(
    value: Any,
    name: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    instead: str = "",
    code: str | None = None,
) -> None:
    """A finite number within bounds: at least, at most, above, below. `instead` names another allowed value, for the message.

    >>> check_number(0.5, "damping", least=0.0)
    >>> check_number(0.0, "tol", above=0.0, below=1.0)
    Traceback (most recent call last):
    labelchef.domain.errors.InvalidInputError: tol is 0.0; expected a number above 0 and below 1
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if real and math.isfinite(value) and least <= value <= most and above < value < below:
        return
    raise InvalidInputError(
        f"{name} is {value!r}; expected {_bounds(least, most, above, below)}{instead}", code=code or name
    )


def _bounds(least: float, most: float, above: float, below: float) -> str:
    if math.isfinite(least) and math.isfinite(most):
        return f"a number from {least:g} to {most:g}"
    words = {"of at least": least, "of at most": most, "above": above, "below": below}
    said = [f"{word} {bound:g}" for word, bound in words.items() if math.isfinite(bound)]
    return f"a number {' and '.join(said)}" if said else "a finite number"
