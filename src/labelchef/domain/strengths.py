"""The two strengths of the objective that can be chosen from the data: gamma, the weight of a weak sample, and l2."""

import math
from typing import Any

from labelchef.domain.errors import InvalidInputError

AUTO = "auto"
"""Chosen by cross-validation over the steering samples of validation."""


def as_gamma(value: Any) -> float | str:
    """'auto', or a weight from 0 to 1, also as text.

    >>> as_gamma("0.5"), as_gamma("auto")
    (0.5, 'auto')
    """
    number = _number(value)
    if number is None or (number != AUTO and not 0.0 <= float(number) <= 1.0):
        raise InvalidInputError(f"gamma is {value!r}; expected 'auto' or a number from 0 to 1", code="gamma")
    return number


def as_l2(value: Any) -> float | str:
    """'auto', or a strength above 0, also as text.

    >>> as_l2(1e-3), as_l2("auto")
    (0.001, 'auto')
    """
    number = _number(value)
    if number is None or (number != AUTO and not 0.0 < float(number) <= 1e300):
        raise InvalidInputError(f"l2 is {value!r}; expected 'auto' or a number above 0", code="l2")
    return number


def fixed(value: float | str) -> float | None:
    """The number, None for 'auto'.

    >>> fixed(0.5), fixed("auto")
    (0.5, None)
    """
    return None if value == AUTO else float(value)


def _number(value: Any) -> float | str | None:
    """The value as a finite number, or 'auto'; None if it is neither."""
    if isinstance(value, str) and value == AUTO:
        return AUTO
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
