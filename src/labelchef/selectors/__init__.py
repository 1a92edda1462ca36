"""Selectors choose the samples to ask next. All implement one protocol and have a name."""

from collections.abc import Callable

from labelchef.selectors.infl import (
    ExpectedInflSelector,
    IncremInflSelector,
    InflSelector,
    InfluenceSelector,
)
from labelchef.selectors.look_ahead import LookAheadSelector
from labelchef.selectors.protocol import Examples, SelectionContext, Selector
from labelchef.selectors.ranking import (
    EntropySelector,
    LeastConfidenceSelector,
    MarginSelector,
    RandomSelector,
)

SELECTORS: dict[str, Callable[[], Selector]] = {
    "margin": MarginSelector,
    "expected_infl": ExpectedInflSelector,
    "increm_infl": IncremInflSelector,
    "infl": InflSelector,
    "random": RandomSelector,
    "least_confidence": LeastConfidenceSelector,
    "entropy": EntropySelector,
}
"""Name → factory, as the page lists them. `labelchef.baselines.BASELINES` holds further ones that have a name."""

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
