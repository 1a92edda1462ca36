"""The engine of a part, on the worker that holds it: in memory, streamed from its files, or on the GPU of the worker."""

from labelchef.base.limits import free_memory
from labelchef.model.engines.choice import DISK, MEMORY_SHARE, choose_placement
from labelchef.model.engines.host import HostEngine
from labelchef.model.engines.protocol import Engine
from labelchef.model.features import Features

_PIECE_BYTES = 4 << 20


def local_engine(features: Features, engine: str, feature_dtype: str | None, *, bias: bool, together: float) -> Engine:
    """The engine for a part, by the settings as they are on one machine; `together` are the bytes of all parts here."""
    placement = choose_placement(engine, feature_dtype, features)
    if engine == "auto" and placement.device is None and not features.in_memory:
        streamed = together > MEMORY_SHARE * free_memory()
        placement = choose_placement(DISK if streamed else "memory", None, features)
    found = placement.training(features, bias=bias)
    if isinstance(found, HostEngine):  # X has many parts already: more pieces would only be more calls
        found.most_pieces = min(HostEngine.most_pieces, max(1, features.nbytes // _PIECE_BYTES))
    return found
