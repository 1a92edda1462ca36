"""A selector by its name: `SELECTORS`, which the page lists, and `BASELINES`, which are there for comparison."""

from collections import ChainMap

from labelchef.base.errors import InvalidInputError
from labelchef.chef.baselines import BASELINES
from labelchef.chef.selectors import (
    SELECTORS,
    ExpectedInflSelector,
    InflSelector,
    InfluenceSelector,
    LookAheadSelector,
    Selector,
)

ALL_SELECTORS = ChainMap(SELECTORS, BASELINES)
"""Name → factory of everything that can be chosen by name."""

REMOVED = ("cleanlab_quality", "active_lab", "diverse_margin", "posterior_margin", "source_infl")
"""Selectors of version 0.2 that no measurement showed to gain more than 'margin' (docs/measurements.md)."""


def make_selector(chosen: str | Selector, *, look_ahead: bool = False) -> Selector:
    """The selector of this name, or the given one; with look-ahead, where it is asked for and the selector allows it.

    >>> make_selector("infl").name, make_selector("increm_infl", look_ahead=True).name
    ('infl', 'increm_infl+look_ahead')
    """
    if isinstance(chosen, str):
        if chosen in REMOVED:
            raise InvalidInputError(
                f"selector {chosen!r} was removed after version 0.2: no measurement showed it to gain more than 'margin'; "
                "expected another one, such as 'margin', the default. Change the setting 'selector' and resume: all answers stay",
                code="selector",
            )
        if chosen not in ALL_SELECTORS:
            raise InvalidInputError(
                f"unknown selector {chosen!r}; expected one of: {', '.join(sorted(SELECTORS))}; or, for comparison, one "
                f"of the baselines: {', '.join(sorted(BASELINES))}",
                code="selector",
            )
        chosen = ALL_SELECTORS[chosen]()
    if not hasattr(chosen, "select"):
        raise InvalidInputError(f"selector is {chosen!r}; expected a name or a Selector", code="selector")
    if look_ahead and isinstance(chosen, InfluenceSelector) and chosen.looks_ahead:
        return LookAheadSelector(chosen)
    return chosen


def plain_influence(selector: Selector) -> InfluenceSelector:
    """The selector that scores samples one by one: as `selector` does if it expects an answer, else by INFL.

    >>> plain_influence(make_selector("expected_infl", look_ahead=True)).name, plain_influence(make_selector("margin")).name
    ('expected_infl', 'infl')
    """
    base = selector.base if isinstance(selector, LookAheadSelector) else selector
    return ExpectedInflSelector() if isinstance(base, ExpectedInflSelector) else InflSelector()


def require_suggestions(selector: Selector) -> None:
    """Refuse a selector that suggests no labels, for a campaign in which the suggestion votes.

    >>> require_suggestions(make_selector("random"))
    Traceback (most recent call last):
    labelchef.base.errors.InvalidInputError: selector 'random' suggests no labels, ...
    """
    if not selector.suggests:
        raise InvalidInputError(
            f"selector {selector.name!r} suggests no labels, so the suggestion cannot vote; expected people alone "
            "(strategy 'one', suggestion_votes off), or a selector that suggests, such as 'increm_infl'",
            code="suggestion",
        )


def hint_of(name: str) -> str:
    """The first sentence of a selector's description.

    >>> hint_of("random")
    'Chance.'
    """
    description = " ".join((ALL_SELECTORS[name].__doc__ or "").split())
    return description.split(". ")[0].removesuffix(".") + "."
