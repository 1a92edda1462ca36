"""Selectors choose the samples to ask next. All implement one protocol and have a name."""

from collections.abc import Callable

from labelchef.selectors.active_lab import ActiveLabSelector
from labelchef.selectors.cleanlab_quality import CleanlabQualitySelector
from labelchef.selectors.direction import InfluenceSelector
from labelchef.selectors.expected import ExpectedInflSelector
from labelchef.selectors.infl import IncremInflSelector, InflSelector
from labelchef.selectors.look_ahead import LookAheadSelector
from labelchef.selectors.protocol import Examples, SelectionContext, Selector
from labelchef.selectors.ranking import Ranking, RankingSelector
from labelchef.selectors.uncertainty import EntropySelector, LeastConfidenceSelector, MarginSelector, RandomSelector

SELECTORS: dict[str, Callable[[], Selector]] = {
    "expected_infl": ExpectedInflSelector,
    "increm_infl": IncremInflSelector,
    "infl": InflSelector,
    "random": RandomSelector,
    "least_confidence": LeastConfidenceSelector,
    "entropy": EntropySelector,
    "margin": MarginSelector,
    "cleanlab_quality": CleanlabQualitySelector,
    "active_lab": ActiveLabSelector,
}
"""Name → factory, as the page lists them. `labelchef.baselines.BASELINES` holds further ones that have a name."""

__all__ = [
    "SELECTORS",
    "ActiveLabSelector",
    "CleanlabQualitySelector",
    "EntropySelector",
    "Examples",
    "ExpectedInflSelector",
    "IncremInflSelector",
    "InflSelector",
    "InfluenceSelector",
    "LeastConfidenceSelector",
    "LookAheadSelector",
    "MarginSelector",
    "RandomSelector",
    "Ranking",
    "RankingSelector",
    "SelectionContext",
    "Selector",
]
