"""Who decides what to ask next: every selector behind one protocol, chosen by name."""

from collections.abc import Callable

from labelchef.domain.errors import InvalidInputError
from labelchef.selectors.active_lab import ActiveLabSelector
from labelchef.selectors.cleanlab_quality import CleanlabQualitySelector
from labelchef.selectors.direction import InfluenceSelector
from labelchef.selectors.duti import DutiSelector
from labelchef.selectors.expected import ExpectedInflSelector
from labelchef.selectors.infl import IncremInflSelector, InflSelector
from labelchef.selectors.infl_d import InflDSelector
from labelchef.selectors.infl_y import InflYSelector
from labelchef.selectors.look_ahead import LookAheadSelector
from labelchef.selectors.o2u import O2USelector
from labelchef.selectors.protocol import Examples, SelectionContext, Selector
from labelchef.selectors.tars import TarsSelector
from labelchef.selectors.theorem1 import Theorem1Selector
from labelchef.selectors.uncertainty import EntropySelector, LeastConfidenceSelector, MarginSelector, RandomSelector

SELECTORS: dict[str, Callable[[], Selector]] = {
    "increm_infl": IncremInflSelector,
    "infl": InflSelector,
    "expected_infl": ExpectedInflSelector,
    "increm_infl_theorem1": Theorem1Selector,
    "infl_d": InflDSelector,
    "infl_y": InflYSelector,
    "duti": DutiSelector,
    "tars": TarsSelector,
    "random": RandomSelector,
    "least_confidence": LeastConfidenceSelector,
    "entropy": EntropySelector,
    "margin": MarginSelector,
    "o2u": O2USelector,
    "cleanlab_quality": CleanlabQualitySelector,
    "active_lab": ActiveLabSelector,
}
"""Name → factory, as accepted by `LabelCleaner(selector=…)` and `labelchef clean --selector`."""

__all__ = [
    "SELECTORS",
    "ActiveLabSelector",
    "CleanlabQualitySelector",
    "DutiSelector",
    "EntropySelector",
    "Examples",
    "ExpectedInflSelector",
    "IncremInflSelector",
    "InflDSelector",
    "InflSelector",
    "InflYSelector",
    "LeastConfidenceSelector",
    "LookAheadSelector",
    "MarginSelector",
    "O2USelector",
    "RandomSelector",
    "SelectionContext",
    "Selector",
    "TarsSelector",
    "Theorem1Selector",
    "hint_of",
    "make_selector",
    "plain_influence",
    "require_suggestions",
]


def make_selector(chosen: str | Selector, *, look_ahead: bool = False) -> Selector:
    """A selector by name, or the one that was handed in; with look-ahead laid over it if asked for and possible.

    >>> make_selector("infl").name, make_selector("increm_infl", look_ahead=True).name
    ('infl', 'increm_infl+look_ahead')
    """
    if isinstance(chosen, str):
        if chosen not in SELECTORS:
            raise InvalidInputError(
                f"unknown selector {chosen!r}; expected one of: {', '.join(sorted(SELECTORS))}", code="selector"
            )
        chosen = SELECTORS[chosen]()
    if not hasattr(chosen, "select"):
        raise InvalidInputError(f"selector is {chosen!r}; expected a name or a Selector", code="selector")
    if look_ahead and isinstance(chosen, InfluenceSelector) and chosen.looks_ahead:
        return LookAheadSelector(chosen)
    return chosen


def plain_influence(selector: Selector) -> InfluenceSelector:
    """What scores every sample for itself in the measure of a selector; INFL where it has another.

    >>> plain_influence(make_selector("expected_infl", look_ahead=True)).name, plain_influence(make_selector("margin")).name
    ('expected_infl', 'infl')
    """
    base = selector.base if isinstance(selector, LookAheadSelector) else selector
    return ExpectedInflSelector() if isinstance(base, ExpectedInflSelector) else InflSelector()


def require_suggestions(selector: Selector) -> None:
    """Refuse to let the suggestion vote where there is none.

    >>> require_suggestions(make_selector("random"))
    Traceback (most recent call last):
    labelchef.domain.errors.InvalidInputError: selector 'random' suggests no labels, ...
    """
    if not selector.suggests:
        raise InvalidInputError(
            f"selector {selector.name!r} suggests no labels, so the suggestion cannot vote; expected people alone "
            "(strategy 'one', suggestion_votes off), or a selector that suggests, such as 'increm_infl'",
            code="suggestion",
        )


def hint_of(name: str) -> str:
    """What a selector goes by: the first sentence of its description.

    >>> hint_of("random")
    'Chance.'
    """
    description = " ".join((SELECTORS[name].__doc__ or "").split())
    return description.split(". ")[0].removesuffix(".") + "."
