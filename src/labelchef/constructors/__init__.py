"""Who builds the model after labels change: every constructor behind one protocol, chosen by name."""

from collections.abc import Callable

from labelchef.constructors.newton import NewtonConstructor
from labelchef.constructors.protocol import Construction, Constructor
from labelchef.domain.errors import InvalidInputError

CONSTRUCTORS: dict[str, Callable[..., Constructor]] = {"newton": NewtonConstructor}
"""Name → factory, as accepted by `LabelCleaner(constructor=…)` and `labelchef clean --constructor`."""

__all__ = ["CONSTRUCTORS", "Construction", "Constructor", "NewtonConstructor", "make_constructor"]


def make_constructor(chosen: str | Constructor, *, tol: float = 1e-6) -> Constructor:
    """A constructor by name, or the one that was handed in.

    >>> make_constructor("newton").name
    'newton'
    """
    if not isinstance(chosen, str):
        if not hasattr(chosen, "construct"):
            raise InvalidInputError(f"constructor is {chosen!r}; expected a name or a Constructor", code="constructor")
        return chosen
    if chosen not in CONSTRUCTORS:
        expected = ", ".join(sorted(CONSTRUCTORS))
        raise InvalidInputError(f"unknown constructor {chosen!r}; expected one of: {expected}", code="constructor")
    return CONSTRUCTORS[chosen](tol=tol)
