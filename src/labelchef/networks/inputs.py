"""Inputs of networks at the boundary, and batches of them on a device.

Anything with a first axis of samples goes: images (N, channels, height, width), embeddings (N, d), token ids (N, length).
Floats, truth values and uint8 pixels reach the network in its own floating type, unscaled; other integers as int64 ids.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError

Inputs: TypeAlias = NDArray[Any]

_CHECK_ROWS = 1024


@dataclass(frozen=True)
class Blocks:
    """Some rows of two arrays of samples, as if these were one array; only the rows that are asked for are copied.

    >>> Blocks(np.zeros((3, 2)), np.ones((2, 2)), np.array([0, 2, 4]))[1:].tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    first: Inputs
    second: Inputs
    rows: Ints
    """Row numbers; those of `second` come after those of `first`."""

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type that holds the numbers of both."""
        return np.result_type(self.first.dtype, self.second.dtype)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: slice | Ints) -> Inputs:
        rows = self.rows[which]
        later = rows >= len(self.first)
        found = np.empty((len(rows), *self.first.shape[1:]), self.dtype)
        found[~later], found[later] = self.first[rows[~later]], self.second[rows[later] - len(self.first)]
        return found


Samples: TypeAlias = Inputs | Blocks


def as_inputs(X: Any, name: str = "X", like: Inputs | None = None) -> Inputs:
    """An array of samples, not copied where X is one (a memory map stays where it is).

    >>> as_inputs(torch.zeros(2, 1, 28, 28)).shape
    (2, 1, 28, 28)
    """
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    array = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
    if array.dtype.kind not in "fiub" or array.ndim < 2 or 0 in array.shape:
        raise InvalidInputError(
            f"{name} has shape {array.shape} and type {array.dtype}; expected numbers, samples along the first axis: "
            "images (samples, channels, height, width), embeddings or token ids (samples, length)",
            code="inputs",
        )
    if like is not None and array.shape[1:] != like.shape[1:]:
        raise InvalidInputError(
            f"a sample of {name} has shape {array.shape[1:]}; expected {like.shape[1:]}, as in the training set",
            code="inputs",
        )
    for start in range(0, len(array) if array.dtype.kind == "f" else 0, _CHECK_ROWS):
        finite = np.isfinite(array[start : start + _CHECK_ROWS])
        if not finite.all():
            row = start + int(np.argwhere(~finite)[0][0])
            raise InvalidInputError(
                f"{name}[{row}] has a number that is not finite; expected finite numbers. Impute or drop it first",
                code="inputs",
            )
    return array


def as_device(device: str | torch.device) -> torch.device:
    """'auto' is the first CUDA device if there is one, else the CPU."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).item()
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        raise InvalidInputError(
            f"device is {device!r}, which cannot be used ({error}); expected 'auto', 'cpu' or 'cuda'", code="device"
        ) from None
    return found


def batch_of(X: Samples, rows: slice | Ints, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """A few samples as a tensor where the network is."""
    part = torch.from_numpy(np.array(X[rows], order="C"))
    floating = X.dtype.kind == "f" or X.dtype in (np.uint8, np.bool_)
    return part.to(device=device, dtype=dtype if floating else torch.int64)


def batches(X: Samples, size: int, device: torch.device, dtype: torch.dtype) -> Iterator[tuple[slice, torch.Tensor]]:
    """All samples in order, the last batch as long as what is left."""
    for start in range(0, len(X), size):
        rows = slice(start, min(start + size, len(X)))
        yield rows, batch_of(X, rows, device, dtype)
