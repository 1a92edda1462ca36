"""Methods from the literature, for comparison with INFL: DUTI, TARS, O2U, INFL-D, INFL-Y and the paper's own pruning.

They implement the same protocol as `labelchef.selectors` and are chosen by name in the same way, see
`labelchef.campaign.choice`. See docs/method.md for their sources.
"""

from collections.abc import Callable

from labelchef.baselines.duti import DutiSelector
from labelchef.baselines.influence import InflDSelector, InflYSelector, Theorem1Selector
from labelchef.baselines.o2u import O2USelector
from labelchef.baselines.tars import TarsSelector
from labelchef.selectors import Selector

BASELINES: dict[str, Callable[[], Selector]] = {
    "increm_infl_theorem1": Theorem1Selector,
    "infl_d": InflDSelector,
    "infl_y": InflYSelector,
    "duti": DutiSelector,
    "tars": TarsSelector,
    "o2u": O2USelector,
}
"""Name → factory. Accepted wherever a selector is chosen by name, but not listed on the page."""

__all__ = [
    "BASELINES",
    "DutiSelector",
    "InflDSelector",
    "InflYSelector",
    "O2USelector",
    "TarsSelector",
    "Theorem1Selector",
]
