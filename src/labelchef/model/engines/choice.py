"""The choice of the engine: by name, or by the size of the data, their place, and what is there: a cluster, a GPU."""

import ctypes
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelchef.base.cluster_address import cluster_address, required
from labelchef.base.errors import InvalidInputError
from labelchef.base.limits import free_memory
from labelchef.model.engines.memory import MemoryEngine
from labelchef.model.engines.protocol import Engine
from labelchef.model.features.contract import ArrayFeatures, Features, widen
from labelchef.model.features.npy import RawFeatures, behind_map

WORTH_A_DEVICE = 1 << 25
"""Numbers in X from which 'auto' takes a GPU: 128 MiB in float32."""

WORTH_A_CLUSTER = 1 << 28
"""Numbers in X from which 'auto' takes the cluster of this machine, if there is one: 1 GiB in float32."""

MEMORY_SHARE = 0.5
"""Of the memory that is free, above which 'auto' streams an X that is in files."""

FEATURE_TYPES = ("float64", "float32", "float16", "bfloat16")
"""In which a GPU may store the features."""

_DEVICE_SHARE = 0.6  # of the memory that is free on a device; the rest is for row arrays and the factor


DISK = "disk"
"""The engine that streams X from its files."""


@dataclass(frozen=True)
class Placement:
    """Where features are: in the memory engine (no device), on a device as `dtype`, streamed from files, or on a cluster."""

    device: str | None = None
    dtype: str | None = None
    streamed: bool = False
    cluster: str | None = None
    """The address of the cluster."""

    def training(self, X: Any, *, bias: bool, more: Any = None) -> Engine:
        """The engine of the training set: the rows of X, an array or `Features`, then those of `more`, if there are any."""
        if self.cluster is not None:
            from labelchef.model.engines.cluster import ClusterEngine

            return ClusterEngine(in_files(X) or X, bias=bias, cluster=self.cluster, more=more, feature_dtype=self.dtype)
        if self.streamed:
            from labelchef.model.engines.streaming import StreamingEngine

            return StreamingEngine(in_files(X) or ArrayFeatures(X), bias=bias, more=more)
        if self.device is None:
            return MemoryEngine(X.loaded() if isinstance(X, Features) else X, bias=bias, more=more)
        from labelchef.model.engines.torch_engine import TorchEngine

        return TorchEngine(_host_array(X), bias=bias, device=self.device, dtype=self.dtype, more=more)

    def split(self, X: Any, *, bias: bool) -> Engine:
        """The engine of a validation or test set: on the same device, in its own type, or in memory."""
        return Placement(self.device).training(X, bias=bias)


def in_files(X: Any) -> Features | None:
    """X as features that are read from files; None for an array in memory."""
    if isinstance(X, Features):
        return None if X.in_memory else X
    return behind_map(X)


def _host_array(X: Any) -> Any:
    """An array or a memory map, for a device."""
    if isinstance(X, RawFeatures):
        return X.mapped()
    if not isinstance(X, Features):
        return X
    return widen(X.loaded().array)


def check_engine(engine: str, feature_dtype: str | None, cluster: str | None = None) -> str | None:
    """Refuse what cannot work with any X; gives the address of the cluster that is known here."""
    address = cluster_address(cluster)
    if engine == "dask":
        required(address)
    if feature_dtype is not None and (engine in ("memory", DISK) or feature_dtype not in FEATURE_TYPES):
        raise InvalidInputError(
            f"feature_dtype is {feature_dtype!r} with engine {engine!r}; expected one of: {', '.join(FEATURE_TYPES)}, with an "
            "engine that copies X ('auto', 'cuda' or 'dask'), or None. Convert X yourself for the others",
            code="feature_dtype",
        )
    return address


def choose_placement(engine: str, feature_dtype: str | None, X: Any, cluster: str | None = None) -> Placement:
    """The placement for X, an array or `Features`, by the setting `engine` and the type in which a GPU stores it.

    `cluster` is the address of a cluster, if one is given; else that of this machine counts (`LABELCHEF_CLUSTER`).

    >>> import numpy as np
    >>> choose_placement("auto", None, np.zeros((10, 100)))
    Placement(device=None, dtype=None, streamed=False, cluster=None)
    """
    address = check_engine(engine, feature_dtype, cluster)
    if engine == "dask" or (engine == "auto" and address is not None and (cluster or X.size >= WORTH_A_CLUSTER)):
        return Placement(dtype=feature_dtype, cluster=required(address))
    if engine in ("memory", DISK):
        return Placement(streamed=engine == DISK)
    streamed = engine == "auto" and X.nbytes > MEMORY_SHARE * free_memory() and in_files(X) is not None
    if engine == "auto" and X.size < WORTH_A_DEVICE:  # before torch is imported, which takes seconds
        return Placement(streamed=streamed)
    device, missing = cuda_device()
    if device is None and engine == "cuda":
        raise InvalidInputError(f"engine is 'cuda' and {missing}; expected a GPU, or engine='auto'", code="engine")
    if device is None or (streamed and X.nbytes > device_memory(device)):
        return Placement(streamed=streamed)
    return Placement(device, feature_dtype)


def device_memory(device: str) -> float:
    """Bytes that are free for X on a device."""
    import torch

    return _DEVICE_SHARE * float(torch.cuda.mem_get_info(device)[0])


def cuda_device() -> tuple[str | None, str]:
    """The device to use, or None and the reason."""
    if importlib.util.find_spec("torch") is None:
        return None, "PyTorch is not installed (pip install 'labelchef[torch]')"
    if sys.platform == "linux" and not _has_driver():  # before torch is imported, which takes seconds
        return None, "there is no driver of a GPU here (libcuda.so.1 or /dev/kfd)"
    import torch

    return ("cuda", "") if torch.cuda.is_available() else (None, "PyTorch sees no CUDA device here")


def _has_driver() -> bool:
    """Whether the driver that PyTorch would look for is installed: that of NVIDIA, or that of AMD."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/dev/kfd").exists()
    return True
