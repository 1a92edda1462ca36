"""Who decides what to ask next: every selector behind one protocol, chosen by name."""

from collections.abc import Callable

from labelchef.domain.errors import InvalidInputError
from labelchef.selectors.infl import InflSelector
from labelchef.selectors.protocol import SelectionContext, Selector

SELECTORS: dict[str, Callable[[], Selector]] = {"infl": InflSelector}
"""Name → factory, as accepted by `LabelCleaner(selector=…)` and `labelchef clean --selector`."""

__all__ = ["SELECTORS", "InflSelector", "SelectionContext", "Selector", "make_selector"]


def make_selector(chosen: str | Selector) -> Selector:
    """A selector by name, or the one that was handed in.

    >>> make_selector("infl").name
    'infl'
    """
    if not isinstance(chosen, str):
        return chosen
    if chosen not in SELECTORS:
        raise InvalidInputError(
            f"unknown selector {chosen!r}; expected one of: {', '.join(sorted(SELECTORS))}", code="selector"
        )
    return SELECTORS[chosen]()
