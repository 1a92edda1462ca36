"""Selectors choose the samples to ask next. All implement one protocol and have a name."""

from collections.abc import Callable

from labelchef.chef.selectors.infl import ExpectedInflSelector, IncremInflSelector, InflSelector, InfluenceSelector
from labelchef.chef.selectors.look_ahead import LookAheadSelector
from labelchef.chef.selectors.protocol import Examples, SelectionContext, Selector
from labelchef.chef.selectors.ranking import EntropySelector, LeastConfidenceSelector, MarginSelector, RandomSelector

SELECTORS: dict[str, Callable[[], Selector]] = {
    "margin": MarginSelector,
    "expected_infl": ExpectedInflSelector,
    "increm_infl": IncremInflSelector,
    "infl": InflSelector,
    "random": RandomSelector,
    "least_confidence": LeastConfidenceSelector,
    "entropy": EntropySelector,
}
"""Name → factory, as the page lists them. `labelchef.chef.baselines.BASELINES` holds further ones that have a name."""

__all__ = [
    "SELECTORS",
    "Examples",
    "ExpectedInflSelector",
    "IncremInflSelector",
    "InflSelector",
    "InfluenceSelector",
    "LookAheadSelector",
    "MarginSelector",
    "SelectionContext",
    "Selector",
]
