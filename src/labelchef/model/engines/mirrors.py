"""Copies of host data on the device of an engine: features, and labels and pairs of which only what changed is copied again."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.model.engines.protocol import Pair, RowLabels

_CHECK_ROWS = 1 << 16
_PLACES = 64  # for pairs, added at a time; enough for all pairs that are kept, so that recordings stay valid
_LABEL_SETS = 2  # the true labels, and those that look-ahead assumes


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


@dataclass
class _Mirror:
    host: RowLabels
    here: RowLabels
    seen: int


class LabelMirrors:
    """Labels on the device. A label set is copied when first seen; later only its `changes` are."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mirrors: list[_Mirror] = []

    def of(self, labels: RowLabels) -> RowLabels:
        """The labels as they are now; Y (N, C) is stored column by column."""
        if isinstance(labels.Y, torch.Tensor):
            return labels
        mirror = next((m for m in self._mirrors if m.host.Y is labels.Y and m.host.weight is labels.weight), None)
        if mirror is None:
            Y = small_tensor(labels.Y.T).to(self._device, copy=True)
            weight = small_tensor(labels.weight).to(self._device, copy=True)
            mirror = _Mirror(labels, RowLabels(Y.T, weight), len(labels.changes))
        elif mirror.seen < len(labels.changes):
            rows = labels.changed_since(mirror.seen)
            at = small_tensor(rows).to(self._device)
            mirror.here.Y[at] = small_tensor(labels.Y[rows]).to(self._device)
            mirror.here.weight[at] = small_tensor(labels.weight[rows]).to(self._device)
            mirror.seen = len(labels.changes)
        others = [m for m in self._mirrors if m is not mirror]
        self._mirrors = [mirror, *others][:_LABEL_SETS]  # the one that was used least recently is dropped
        return mirror.here


class SecantMirror:
    """The pairs of L-BFGS on the device, in the compact form of Byrd, Nocedal and Schnabel.

    With steps S and bends B as rows, (m, D·C) each, U = triu(S Bᵀ) and its diagonal s_i·b_i, the two loops of the recursion are

        α = U⁻¹ S R       T = M⁻¹ (R − Bᵀ α)       c = U⁻ᵀ (diag(U) α − B T)       H⁻¹ R ≈ T + Sᵀ c

    Pairs are added and dropped at every step, so the tensors have spare rows of zeros, which change no result. Their
    shapes and addresses stay the same, so recordings that use them stay valid.
    """

    def __init__(self) -> None:
        self._pairs: tuple[Pair, ...] = ()
        self._made: tuple[Any, ...] = ()

    def of(self, pairs: tuple[Pair, ...], place: Callable[[Float64s], Any]) -> tuple[Any, ...]:
        """S, B, U⁻¹ and the diagonal of U; only new pairs are copied to the device."""
        if not self._made or pairs is not self._pairs:
            old = {id(pair): n for n, pair in enumerate(self._pairs)}
            new = [pair for pair in pairs if id(pair) not in old]
            place_of = {**old, **{id(pair): len(old) + n for n, pair in enumerate(new)}}
            order = [place_of[id(pair)] for pair in pairs]
            S, B = (self._joined(part, new, place, order) for part in (0, 1))
            U = torch.triu(S @ B.T)
            U.diagonal()[len(pairs) :] = 1.0
            eye = torch.eye(len(U), dtype=U.dtype, device=U.device)
            made = S, B, torch.linalg.solve_triangular(U, eye, upper=True), U.diagonal().clone()
            if self._made and self._made[0].shape == S.shape:
                for there, value in zip(self._made, made, strict=True):
                    there.copy_(value)
            else:
                self._made = made
            self._pairs = pairs
        return self._made

    def _joined(self, part: int, new: list[Pair], place: Callable[[Float64s], Any], order: list[int]) -> Any:
        """The rows that are there and the new ones, in order; then zeros, up to the next multiple of `_PLACES`."""
        kept = [self._made[part][: len(self._pairs)]] if self._pairs else []
        added = [place(np.stack([np.ravel(pair[part]) for pair in new]))] if new else []
        rows = torch.cat([*kept, *added])[order]
        return torch.cat([rows, torch.zeros_like(rows[:1]).expand(-len(rows) % _PLACES, -1)])
