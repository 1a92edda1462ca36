"""Engines run the sweeps over the features. `Engine` is the contract, `MemoryEngine` the one for arrays.

`StreamingEngine`, for features in files that need not fit into memory, is in `streaming`.
`TorchEngine`, for a GPU, is in `torch_engine`: it imports PyTorch.
"""

from labelchef.model.engines.choice import choose_placement
from labelchef.model.engines.memory import MemoryEngine
from labelchef.model.engines.protocol import Engine, Pair, RowArray, RowLabels, Shortlist

__all__ = ["Engine", "MemoryEngine", "Pair", "RowArray", "RowLabels", "Shortlist", "choose_placement"]
