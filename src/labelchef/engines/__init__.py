"""Where a sweep over the features runs. `Engine` is the contract, `MemoryEngine` the one for arrays."""

from labelchef.engines.memory import MemoryEngine
from labelchef.engines.protocol import Engine, RowLabels, Screen, Shortlist, SweepSums

__all__ = ["Engine", "MemoryEngine", "RowLabels", "Screen", "Shortlist", "SweepSums"]
