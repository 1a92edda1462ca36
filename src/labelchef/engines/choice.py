"""The choice of the engine: by name, or by the size of the data and whether there is a GPU."""

import ctypes
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelchef.domain.errors import InvalidInputError
from labelchef.engines.memory import MemoryEngine
from labelchef.engines.protocol import Engine

WORTH_A_DEVICE = 1 << 25
"""Numbers in X from which 'auto' takes a GPU: 128 MiB in float32."""


@dataclass(frozen=True)
class Placement:
    """Where features are stored: in the memory engine (no device), or on a device as `dtype`."""

    device: str | None = None
    dtype: str | None = None

    def training(self, X: Any, *, bias: bool, more: Any = None) -> Engine:
        """The engine of the training set: the rows of X, then those of `more`, if there are any."""
        if self.device is None:
            return MemoryEngine(X.astype(np.float32) if X.dtype == np.float16 else X, bias=bias, more=more)
        from labelchef.engines.torch_engine import TorchEngine

        return TorchEngine(X, bias=bias, device=self.device, dtype=self.dtype, more=more)

    def split(self, X: Any, *, bias: bool) -> Engine:
        """The engine of a validation or test set: on the same device, in its own type."""
        return Placement(self.device).training(X, bias=bias)


def choose_placement(engine: str, feature_dtype: str | None, size: int) -> Placement:
    """The placement for X of `size` numbers, by the settings `engine` and `feature_dtype`.

    >>> choose_placement("auto", None, 1000)
    Placement(device=None, dtype=None)
    """
    if engine == "memory":
        if feature_dtype is not None:
            raise InvalidInputError(
                f"feature_dtype is {feature_dtype!r} with engine 'memory', which does not copy X; expected None. "
                "Convert X yourself, or take engine='auto'",
                code="feature_dtype",
            )
        return Placement()
    if engine == "auto" and size < WORTH_A_DEVICE:  # before torch is imported, which takes seconds
        return Placement()
    device, missing = cuda_device()
    if device is None and engine == "cuda":
        raise InvalidInputError(f"engine is 'cuda' and {missing}; expected a GPU, or engine='auto'", code="engine")
    return Placement() if device is None else Placement(device, feature_dtype)


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
