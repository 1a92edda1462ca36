"""Sweeps over features on a device, or copied to it in blocks: PyTorch, and Triton where there is a GPU.

X is stored as given, or in a shorter type (`dtype`). All arithmetic is float64, as in `MemoryEngine`, so the two differ by
the order of their sums only. Arrays with a row for each row of X stay on the device, stored column by column. A sweep copies
W, V and the sums, some (D, C) matrices. Labels are copied once, then only rows that changed.

Where X does not fit, it stays in the host's memory (or file) and is copied through two buffers on the device: the next
block is copied while this one is used.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.model.engines import torch_kernels
from labelchef.model.engines.mirrors import LabelMirrors, SecantMirror, as_tensor, check_range, passing, small_tensor
from labelchef.model.engines.protocol import Engine, Pair, RowLabels
from labelchef.model.engines.recording import Recorder

_ROOM = 0.6  # of the free memory of a device, for X; the rest is for row arrays and the factor
_STREAM_BYTES = 1 << 28  # of a block of X that is copied to the device
_SMALL_BYTES = 32 << 20  # of X, up to which a sweep takes longer to launch than to run


class TorchEngine(Engine):
    """The engine for features on a device. `resident` says whether X is kept there; None: if it fits.

    The rows of `more`, if there are any, come after those of X; where X is not kept on the device, both are copied into one
    array on the host.

    >>> engine = TorchEngine(np.eye(3, 2, dtype=np.float32), bias=True, device="cpu")
    >>> engine.n_rows, engine.n_columns, engine.rows(np.array([1])).tolist()
    (3, 3, [[0.0, 1.0, 1.0]])
    """

    xp = torch

    def __init__(
        self,
        X: Any,
        *,
        bias: bool,
        device: str = "cuda",
        dtype: str | None = None,
        resident: bool | None = None,
        more: Any = None,
    ) -> None:
        self._device = torch.device(device)
        parts = [one if isinstance(one, torch.Tensor) else as_tensor(one) for one in (X, more) if one is not None]
        given = parts[0]
        self._dtype = given.dtype if dtype is None else getattr(torch, dtype)
        rows = sum(len(part) for part in parts)
        super().__init__((rows, given.shape[1]), self._dtype.itemsize, bias=bias)
        free = torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else float("inf")
        self.resident = self.n_rows * self.row_bytes <= _ROOM * free if resident is None else resident
        self._small = self.resident and self.n_rows * self.row_bytes <= _SMALL_BYTES
        if torch.finfo(self._dtype).max < torch.finfo(given.dtype).max:
            check_range(given, self._dtype)
        self._X = given
        if self.resident and len(parts) == 1:
            self._X = given.to(self._device, self._dtype).contiguous()
        elif len(parts) > 1:
            where, kind = (self._device, self._dtype) if self.resident else (given.device, given.dtype)
            self._X = torch.empty((rows, given.shape[1]), dtype=kind, device=where)
            torch.cat([part.to(where, kind) for part in parts], out=self._X)
        self._kernels = _kernels(self._device)
        self._labels = LabelMirrors(self._device)
        self._secant = SecantMirror()
        self._recorder = Recorder(self._device)
        self._eligible: tuple[Bools, Any] | None = None

    def place(self, array: Float64s) -> Any:
        """See `Engine.place`."""
        return small_tensor(array).to(self._device)

    def host(self, array: Any) -> Any:
        """See `Engine.host`."""
        return array.cpu().numpy()

    def placed(self, labels: RowLabels) -> RowLabels:
        """See `Engine.placed`."""
        return self._labels.of(labels)

    def zeros(self, columns: int) -> Any:
        """See `Engine.zeros`."""
        return torch.zeros((columns, self.n_rows), dtype=torch.float64, device=self._device).T

    def _sweep(
        self, labels: RowLabels, K: Float64s, wanted: tuple[bool, ...], logits: Any
    ) -> tuple[Any, Any, Float64s, float]:
        k = labels.Y.shape[1] - 1
        F, sums = self._recorded(labels, self.place(K), wanted, logits)
        found = np.zeros(1) if sums is None else self.host(sums)  # all sums are copied at once
        A, Z = F[:k].T if logits is None else logits, F[len(K) - k :].T if wanted[1] else None
        return A, Z, found[:-1].reshape(-1, self.n_columns), float(found[-1])

    def gradient_at(self, labels: RowLabels, W: Any) -> Any:
        """See `Engine.gradient_at`."""
        self.sweeps += 1.0
        _, sums = self._recorded(self.placed(labels), W, (True, False, True, False), None)
        return sums[:-1].reshape(-1, self.n_columns)

    def _recorded(self, here: RowLabels, K: Any, wanted: tuple[bool, ...], logits: Any) -> Any:
        """`_pass`, by a recording where X is small; the next pass then overwrites the sums."""

        def work(K: Any) -> tuple[Any, Any]:
            return self._pass(here, K, wanted, logits)

        if not self._small or logits is not None:
            return work(K)
        F, sums = self._recorder.run(wanted, (here.Y, here.weight), work, K)
        return F.clone(), sums

    def _pass(self, here: RowLabels, K: Any, wanted: tuple[bool, ...], logits: Any) -> tuple[Any, Any]:
        """Products with the rows of K (q, N), and one line of sums: gradient, Hessian product, loss."""
        has_W, has_V, gradient, product = wanted
        k = here.Y.shape[1] - 1
        forward, sums = [], []
        for rows, X in self._blocks():
            F: Any = self._products(X, K) if len(K) else None
            forward.append(F)
            if gradient or product:
                A = F[:k] if has_W else logits.T[:, rows]
                Z = F[len(K) - k :] if has_V else None
                R, loss = self._kernels.coefficients(
                    A, Z, here.Y.T[:, rows], here.weight[rows], gradient=gradient, product=product
                )
                sums.append(torch.cat([self._sums(X, R).flatten(), loss.reshape(1)]))
        total = None if not sums else sums[0] if len(sums) == 1 else torch.stack(sums).sum(dim=0)
        return forward[0] if len(forward) == 1 or not len(K) else torch.cat(forward, dim=1), total

    def _products(self, X: Any, K: Any) -> Any:
        d = X.shape[1]
        return self._kernels.products(X, K[:, :d].contiguous()).add_(K[:, d:].sum(dim=1, keepdim=True))

    def _sums(self, X: Any, R: Any) -> Any:
        found = self._kernels.row_sums(X, R)
        return torch.cat([found, R.sum(dim=1, keepdim=True)], dim=1) if self._bias else found

    def gradient_of_rows(self, indices: Ints, labels: RowLabels, W: Float64s) -> Float64s:
        """See `Engine.gradient_of_rows`."""
        here, at = self.placed(labels), small_tensor(indices).to(self._device)
        X = self._rows(indices)
        A = self._products(X, self.place(W))
        R, _ = self._kernels.coefficients(A, None, here.Y.T[:, at], here.weight[at], gradient=True, product=False)
        self.sweeps += len(indices) / max(1, self.n_rows)
        return np.asarray(self.host(self._sums(X, R)))

    def _rows(self, indices: Ints) -> Any:
        """Rows of X on the device, in the stored type."""
        at = small_tensor(indices).to(self._X.device)
        return self._X[at].to(self._device, self._dtype)

    def _features(self, indices: Ints) -> Float64s:
        return np.asarray(self._rows(indices).double().cpu().numpy())

    def gram(self, row_weight: Any, step: int = 1) -> Any:
        """See `Engine.gram`: float64 on the matrix units, which are no slower than float32 without them."""
        total = torch.zeros((self.n_columns, self.n_columns), dtype=torch.float64, device=self._device)
        root, done = torch.sqrt(row_weight[::step])[:, None], 0
        for block in self._wide_blocks(step):
            B = torch.cat([block, torch.ones_like(block[:, :1])], dim=1) if self._bias else block
            B = B * root[done : done + len(B)]
            total += B.T @ B
            done += len(B)
        self.sweeps += 1.0 / step
        return total

    def row_squares(self) -> Any:
        """See `Engine.row_squares`."""
        self.sweeps += 1.0
        return torch.cat([(block * block).sum(dim=1) + float(self._bias) for block in self._wide_blocks()])

    def _wide_blocks(self, step: int = 1) -> Iterator[Any]:
        """Every `step`-th row in order, in pieces of float64."""
        for _, X in self._blocks(step):
            for block in torch_kernels.row_blocks(X):
                yield block.double()

    def eigh(self, G: Any) -> tuple[Float64s, Any]:
        """See `Engine.eigh`."""
        g, E = torch.linalg.eigh(G)
        return self.host(g), E.contiguous()

    def secant_solve(self, solve: Callable[[Any], Any], pairs: tuple[Pair, ...], R: Any) -> Any:
        """See `Engine.secant_solve`: the compact form of the recursion, four products with all pairs at once."""
        if not pairs:
            return solve(R)
        S, B, inverse, bends = self._secant.of(pairs, self.place)

        def work(R: Any) -> tuple[Any]:
            alpha = inverse @ (S @ R.reshape(-1))
            T = solve(R - (alpha @ B).reshape(R.shape))
            c = inverse.T @ (bends * alpha - B @ T.reshape(-1))
            return (T + (c @ S).reshape(R.shape),)

        (found,) = self._recorder.run(solve, (S,), work, R)
        return found

    def within_reach(self, products: Any, labels: RowLabels, eligible: Bools, reach: float) -> Ints | None:
        """See `Engine.within_reach`."""
        here = self.placed(labels)
        inside = torch_kernels.within_reach(products.T, here.Y.T, here.weight, reach) & self._mask(eligible)
        (rows,) = torch.where(inside)
        return None if len(rows) > max(64, self.n_rows // 4) else np.asarray(self.host(rows))

    def _mask(self, eligible: Bools) -> Any:
        """The eligible rows, on the device; kept, because a round needs them several times."""
        if self._eligible is None or self._eligible[0] is not eligible:
            self._eligible = (eligible, small_tensor(eligible).to(self._device, copy=True))
        return self._eligible[1]

    def scores_of(self, indices: Ints, logits: Any, products: Any, labels: RowLabels) -> tuple[Float64s, Ints]:
        """See `Engine.scores_of`."""
        here, at = self.placed(labels), small_tensor(indices).to(self._device)
        best, label = torch_kernels.scores(logits.T[:, at], products.T[:, at], here.Y.T[:, at], here.weight[at])
        return self.host(best), self.host(label)

    def scores(self, logits: Any, products: Any, labels: RowLabels, eligible: Bools) -> tuple[Any, Any]:
        """See `Engine.scores`."""
        here, mask = self.placed(labels), self._mask(eligible)
        best, label = torch_kernels.scores(logits.T, products.T, here.Y.T, here.weight)
        return torch.where(mask, best, float("inf")), torch.where(mask, label, 0)

    def expected_scores(
        self, logits: Any, products: Any, labels: RowLabels, eligible: Bools, eta: float, optimism: float
    ) -> tuple[Any, Any, Any]:
        """See `Engine.expected_scores`."""
        here, mask = self.placed(labels), self._mask(eligible)
        mean, spread, label = self._kernels.expected(logits.T, products.T, here.Y.T, here.weight, eta)
        worth = torch.where(mask, mean - optimism * spread, float("inf"))
        return worth, torch.where(mask, mean, float("inf")), torch.where(mask, label, 0)

    def _smallest(self, scores: Any, count: int) -> Any:
        return torch.topk(scores, count, largest=False).values.max()

    def _blocks(self, step: int = 1) -> Iterator[tuple[slice, Any]]:
        """(which rows, those rows on the device), in order; the rows are every `step`-th."""
        if self.resident:
            yield slice(0, None, step), self._X[::step]
            return
        size = step * max(1, _STREAM_BYTES // max(1, self.row_bytes))
        cuts = [slice(start, min(start + size, self.n_rows), step) for start in range(0, self.n_rows, size)]
        yield from passing(self._X, cuts, self._device, self._dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        """Features on the host, and the settings; everything else is made again."""
        kind = str(self._dtype).removeprefix("torch.")
        make = partial(TorchEngine, bias=self._bias, device=str(self._device), dtype=kind, resident=self.resident)
        return make, (self._X.cpu(),)


def _kernels(device: torch.device) -> Any:
    """Compiled kernels where there is a GPU and its compiler, else plain PyTorch."""
    if device.type == "cuda":
        with suppress(ImportError):
            from labelchef.model.engines import triton_kernels

            return triton_kernels
    return torch_kernels
