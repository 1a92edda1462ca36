"""Numbers in settings, refused before anything is trained."""

import math
from numbers import Integral, Real
from typing import Any

from labelchef.domain.errors import InvalidInputError


def check_counts(settings: Any, code: str, names: tuple[str, ...], *, optional: tuple[str, ...] = ()) -> None:
    """Whole numbers of at least 1; those that are optional may be None."""
    for name in (*names, *optional):
        value = getattr(settings, name)
        if name in optional and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InvalidInputError(f"{name} is {value!r}; expected a whole number of at least 1", code=code)


def check_range(
    settings: Any, code: str, name: str, *, least: float = -math.inf, above: float = -math.inf, below: float = math.inf
) -> None:
    """A number within bounds; infinite ones and NaN are not."""
    value = getattr(settings, name)
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not (above < float(value) < below and float(value) >= least)
    ):
        low = f"≥ {least:g}" if least > -math.inf else f"> {above:g}"
        high = f" and < {below:g}" if below < math.inf else ""
        raise InvalidInputError(f"{name} is {value!r}; expected a number {low}{high}", code=code)
