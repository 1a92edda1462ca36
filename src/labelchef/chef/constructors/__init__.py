"""Constructors build the model after labels change: all have one protocol and are chosen by name."""

from labelchef.base.errors import InvalidInputError
from labelchef.chef.constructors.deltagrad import DeltaGradLConstructor
from labelchef.chef.constructors.descent import DescentSettings, RetrainConstructor
from labelchef.chef.constructors.newton import NewtonConstructor
from labelchef.chef.constructors.protocol import Construction, Constructor

CONSTRUCTORS = ("newton", "retrain", "deltagrad_l")
"""Names accepted by `LabelCleaner(constructor=…)` and `labelchef clean --constructor`."""

__all__ = [
    "CONSTRUCTORS",
    "Construction",
    "Constructor",
    "DeltaGradLConstructor",
    "DescentSettings",
    "NewtonConstructor",
    "RetrainConstructor",
    "make_constructor",
]


def make_constructor(
    chosen: str | Constructor, *, tol: float = 1e-5, proven: bool = True, descent: DescentSettings | None = None
) -> Constructor:
    """A constructor by name, or the given one.

    `tol` and `proven` are for 'newton', `descent` for 'retrain' and 'deltagrad_l'.

    >>> make_constructor("newton").name, make_constructor("deltagrad_l").name
    ('newton', 'deltagrad_l')
    """
    if not isinstance(chosen, str):
        if isinstance(chosen, type) or not hasattr(chosen, "construct"):
            raise InvalidInputError(
                f"constructor is {chosen!r}; expected a name or a Constructor (an instance)", code="constructor"
            )
        return chosen
    if chosen not in CONSTRUCTORS:
        expected = ", ".join(sorted(CONSTRUCTORS))
        raise InvalidInputError(f"unknown constructor {chosen!r}; expected one of: {expected}", code="constructor")
    if chosen == "newton":
        return NewtonConstructor(tol=tol, proven=proven)
    return (RetrainConstructor if chosen == "retrain" else DeltaGradLConstructor)(descent or DescentSettings())
