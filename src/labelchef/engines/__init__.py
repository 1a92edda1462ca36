"""Engines run the sweeps over the features. `Engine` is the protocol, `MemoryEngine` the one for arrays.

`TorchEngine`, for a GPU, is in `torch_engine`: it imports PyTorch.
"""

from labelchef.engines.choice import ENGINES, FEATURE_DTYPES, Placement, choose_placement
from labelchef.engines.memory import MemoryEngine
from labelchef.engines.protocol import Engine, Pair, RowArray, RowLabels, SweepSums

__all__ = [
    "ENGINES",
    "FEATURE_DTYPES",
    "Engine",
    "MemoryEngine",
    "Pair",
    "Placement",
    "RowArray",
    "RowLabels",
    "SweepSums",
    "choose_placement",
]
