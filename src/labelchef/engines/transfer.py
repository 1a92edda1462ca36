"""Copies of features to a device."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from labelchef.domain.errors import InvalidInputError

_CHECK_ROWS = 1 << 16


def as_tensor(X: Any) -> Any:
    """A tensor that shares the memory of an array. PyTorch's warning about read-only arrays is off: nothing writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(X))


def small_tensor(array: Any) -> Any:
    """A tensor of a small array, on the host; one that is read-only is copied."""
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def check_range(X: Any, dtype: torch.dtype) -> None:
    """Raise an error for features outside the range of `dtype`."""
    most = torch.finfo(dtype).max
    for start in range(0, len(X), _CHECK_ROWS):
        block = X[start : start + _CHECK_ROWS]
        if float(torch.linalg.vector_norm(block, float("inf"))) > most:
            row, column = (int(place) for place in torch.nonzero(block.abs() > most)[0])
            name = str(dtype).removeprefix("torch.")
            raise InvalidInputError(
                f"X[{start + row}, {column}] is {float(block[row, column]):g}, outside the range of {name} (up to {most:g}); "
                "expected features within that range. Scale them, or take a wider feature_dtype",
                code="feature_dtype",
            )


def passing(X: Any, cuts: list[slice], device: torch.device, dtype: torch.dtype) -> Iterator[tuple[slice, Any]]:
    """Blocks of X on the device, copied through two buffers: the host fills one while the device uses the other."""
    if device.type != "cuda":
        for rows in cuts:
            yield rows, X[rows].to(device, dtype)
        return
    copying, working = torch.cuda.Stream(device), torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]
    longest = max(len(range(*rows.indices(len(X)))) for rows in cuts)
    pinned = [torch.empty((longest, X.shape[1]), dtype=dtype, pin_memory=True) for _ in range(2)]
    there = [torch.empty((longest, X.shape[1]), dtype=dtype, device=device) for _ in range(2)]
    copying.wait_stream(working)  # queued work may still read that memory
    copied, used = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))  # type: ignore[no-untyped-call]
    for turn in range(len(cuts) + 1):
        if turn < len(cuts):
            slot, part = turn % 2, X[cuts[turn]]
            copied[slot].synchronize()  # the pinned buffer was copied to the device
            pinned[slot][: len(part)].copy_(part)
            with torch.cuda.stream(copying):
                copying.wait_event(used[slot])
                there[slot][: len(part)].copy_(pinned[slot][: len(part)], non_blocking=True)
                copied[slot].record(copying)
        if turn > 0:
            slot, rows = (turn - 1) % 2, cuts[turn - 1]
            working.wait_event(copied[slot])
            yield rows, there[slot][: len(range(*rows.indices(len(X))))]
            used[slot].record(working)
