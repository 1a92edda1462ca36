"""Methods from the literature, for comparison with INFL: DUTI, TARS, O2U, INFL-D, INFL-Y and the paper's own pruning.

They implement the same protocol as `labelchef.chef.selectors` and are chosen by name in the same way, see
`labelchef.chef.choice`. See docs/method.md for their sources.
"""

from collections.abc import Callable

from labelchef.chef.baselines.duti import DutiSelector
from labelchef.chef.baselines.influence import InflDSelector, InflYSelector, Theorem1Selector
from labelchef.chef.baselines.o2u import O2USelector
from labelchef.chef.baselines.tars import TarsSelector
from labelchef.chef.selectors import Selector

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
