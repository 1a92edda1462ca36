"""The functions of `torch_kernels`, compiled by Triton for a GPU: X is read in its stored type, arithmetic is float64.

Products and row sums are limited by memory: X is widened in registers, and the float64 matrix units are fast enough (for
one or two columns plain multiplication is too, and needs no padding). Row sums are computed for fixed shares of the rows,
each with a result of its own, and then added: the order of summation depends on shapes only.

The compiler's float64 matrix products do not accept values that were loaded as a half type (Triton 3.6: "fp64 don't support
largeK MMA"): it traces a product back to the type that was loaded. So `_wide` widens half types in inline assembly that is
declared impure, which the compiler does not trace through.
"""

from typing import Any

import torch
import triton
import triton.language as tl

_MOST_COLUMNS = 64  # of K or R at a time; more need another pass
_THIN = 2  # columns up to which plain multiplication is used
_SHARES = 528  # of the rows; four for each multiprocessor of a large GPU


@triton.jit
def _wide(x):
    if x.dtype == tl.float16:
        x = tl.inline_asm_elementwise("cvt.f32.f16 $0, $1;", "=f,h", [x], dtype=tl.float32, is_pure=False, pack=1)
    elif x.dtype == tl.bfloat16:
        # a bfloat16 is the upper half of a float32
        x = tl.inline_asm_elementwise(
            "cvt.u32.u16 $0, $1; shl.b32 $0, $0, 16;", "=r,h", [x], dtype=tl.int32, is_pure=False, pack=1
        )
        x = x.to(tl.float32, bitcast=True)
    return x.to(tl.float64)


@triton.jit
def _products(X, K, F, n, d, stride, q: tl.constexpr, Q: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    columns, lanes = tl.arange(0, Q), tl.arange(0, BD)
    live = rows < n
    total = tl.zeros((BN, Q), dtype=tl.float64)
    for start in range(0, d, BD):
        at = start + lanes
        inside = live[:, None] & (at < d)[None, :]
        x = _wide(tl.load(X + rows[:, None] * stride + at[None, :], mask=inside, other=0.0))
        k = tl.load(K + columns[None, :] * d + at[:, None], mask=(columns < q)[None, :] & (at < d)[:, None], other=0.0)
        total = tl.dot(x, k, total, out_dtype=tl.float64)
    tl.store(F + columns.to(tl.int64)[None, :] * n + rows[:, None], total, mask=live[:, None] & (columns < q)[None, :])


@triton.jit
def _products_thin(X, K, F, n, d, stride, q: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    lanes = tl.arange(0, BD)
    live = rows < n
    first = tl.zeros((BN, BD), dtype=tl.float64)
    second = tl.zeros((BN, BD), dtype=tl.float64)
    for start in range(0, d, BD):
        at = start + lanes
        inside = live[:, None] & (at < d)[None, :]
        x = tl.load(X + rows[:, None] * stride + at[None, :], mask=inside, other=0.0).to(tl.float64)
        first += x * tl.load(K + at, mask=at < d, other=0.0)[None, :]
        if q == 2:
            second += x * tl.load(K + d + at, mask=at < d, other=0.0)[None, :]
    tl.store(F + rows, tl.sum(first, axis=1), mask=live)
    if q == 2:
        tl.store(F + n + rows, tl.sum(second, axis=1), mask=live)


@triton.jit
def _sums(X, R, G, n, d, stride, share, m: tl.constexpr, M: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    part = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BD + tl.arange(0, BD)
    columns = tl.arange(0, M)
    stop = tl.minimum((part + 1) * share, n)
    total = tl.zeros((M, BD), dtype=tl.float64)
    for start in range(part * share, stop, BN):
        rows = start + tl.arange(0, BN)
        live = rows < stop
        inside = live[:, None] & (at < d)[None, :]
        x = _wide(tl.load(X + rows[:, None] * stride + at[None, :], mask=inside, other=0.0))
        r = tl.load(
            R + columns.to(tl.int64)[:, None] * n + rows[None, :],
            mask=live[None, :] & (columns < m)[:, None],
            other=0.0,
        )
        total = tl.dot(r, x, total, out_dtype=tl.float64)
    kept = (columns < m)[:, None] & (at < d)[None, :]
    tl.store(G + part * m * d + columns[:, None] * d + at[None, :], total, mask=kept)


@triton.jit
def _sums_thin(X, R, G, n, d, stride, share, m: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    part = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BD + tl.arange(0, BD)
    stop = tl.minimum((part + 1) * share, n)
    first = tl.zeros((BN, BD), dtype=tl.float64)
    second = tl.zeros((BN, BD), dtype=tl.float64)
    for start in range(part * share, stop, BN):
        rows = start + tl.arange(0, BN)
        live = rows < stop
        inside = live[:, None] & (at < d)[None, :]
        x = tl.load(X + rows[:, None] * stride + at[None, :], mask=inside, other=0.0).to(tl.float64)
        first += x * tl.load(R + rows, mask=live, other=0.0)[:, None]
        if m == 2:
            second += x * tl.load(R + n + rows, mask=live, other=0.0)[:, None]
    tl.store(G + part * m * d + at, tl.sum(first, axis=0), mask=at < d)
    if m == 2:
        tl.store(G + part * m * d + d + at, tl.sum(second, axis=0), mask=at < d)


@triton.jit
def _softmax(logit, inside):
    top = tl.maximum(tl.max(logit, axis=0), 0.0)
    e = tl.where(inside, tl.exp(logit - top[None, :]), 0.0)
    total = tl.sum(e, axis=0) + tl.exp(-top)
    return e / total[None, :], top + tl.log(total)


@triton.jit
def _coefficients(
    A, Z, Y, weight, R, losses, n, a, z, y,
    k: tl.constexpr, K: tl.constexpr, gradient: tl.constexpr, product: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    column = tl.arange(0, K)[:, None].to(tl.int64)
    live = rows < n
    inside = (column < k) & live[None, :]
    logit = tl.load(A + column * a + rows[None, :], mask=inside, other=0.0)
    label = tl.load(Y + (column + 1) * y + rows[None, :], mask=inside, other=0.0)
    w = tl.load(weight + rows, mask=live, other=0.0)
    p, log_total = _softmax(logit, inside)
    loss = w * (log_total - tl.sum(label * logit, axis=0))
    tl.store(losses + tl.program_id(0), tl.sum(tl.where(live, loss, 0.0), axis=0))
    if gradient:
        tl.store(R + column * n + rows[None, :], w[None, :] * (p - label), mask=inside)
    if product:
        s = tl.load(Z + column * z + rows[None, :], mask=inside, other=0.0)
        mean = tl.sum(p * s, axis=0)
        at = column + k if gradient else column
        tl.store(R + at * n + rows[None, :], w[None, :] * p * (s - mean[None, :]), mask=inside)


@triton.jit
def _expected(
    A, S, Y, weight, means, spreads, labels, n, a, s, y, eta,
    k: tl.constexpr, K: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    column = tl.arange(0, K)[:, None].to(tl.int64)
    live = rows < n
    inside = (column < k) & live[None, :]
    logit = tl.load(A + column * a + rows[None, :], mask=inside, other=-float("inf"))
    slope = tl.load(S + column * s + rows[None, :], mask=inside, other=0.0)
    label = tl.load(Y + (column + 1) * y + rows[None, :], mask=inside, other=0.0)
    w = tl.load(weight + rows, mask=live, other=0.0)[None, :]
    moved = logit - tl.load(eta) * slope
    p, _ = _softmax(logit, inside)
    q, _ = _softmax(moved, inside)
    mean = tl.sum(q * slope, axis=0)
    spread = tl.sum(q * slope * slope, axis=0) - mean * mean
    before = tl.sum((w * label + (1.0 - w) * p) * slope, axis=0)
    tl.store(means + rows, mean - before, mask=live)
    tl.store(spreads + rows, tl.sqrt(tl.maximum(spread, 0.0)), mask=live)
    likeliest = tl.argmax(moved, axis=0).to(tl.int64) + 1
    tl.store(labels + rows, tl.where(tl.max(moved, axis=0) > 0.0, likeliest, 0), mask=live)


def products(X: Any, K: Any) -> Any:
    """See `torch_kernels.products`."""
    (n, d), q = X.shape, K.shape[0]
    if q > _MOST_COLUMNS:
        return torch.cat([products(X, part) for part in K.split(_MOST_COLUMNS)])
    found = torch.empty((q, n), dtype=torch.float64, device=X.device)
    K = K.contiguous()
    if q <= _THIN:
        _products_thin[(triton.cdiv(n, 16),)](X, K, found, n, d, X.stride(0), q, BN=16, BD=128, num_warps=4)
    else:
        _products[(triton.cdiv(n, 64),)](
            X, K, found, n, d, X.stride(0), q, _padded(q), BN=64, BD=32, num_warps=4, num_stages=3
        )
    return found


def row_sums(X: Any, R: Any) -> Any:
    """See `torch_kernels.row_sums`."""
    (n, d), m = X.shape, R.shape[0]
    if m > _MOST_COLUMNS:
        return torch.cat([row_sums(X, part) for part in R.split(_MOST_COLUMNS)])
    share = triton.cdiv(triton.cdiv(n, _SHARES), 32) * 32
    shares = triton.cdiv(n, share)
    found = torch.empty((shares, m, d), dtype=torch.float64, device=X.device)
    R, grid = R.contiguous(), (triton.cdiv(d, 128), shares)
    if m <= _THIN:
        _sums_thin[grid](X, R, found, n, d, X.stride(0), share, m, BN=16, BD=128, num_warps=8)
    else:
        _sums[grid](X, R, found, n, d, X.stride(0), share, m, _padded(m), BN=32, BD=128, num_warps=4, num_stages=3)
    return found.sum(dim=0)


def coefficients(A: Any, Z: Any, Y: Any, weight: Any, *, gradient: bool, product: bool) -> tuple[Any, Any]:
    """See `torch_kernels.coefficients`."""
    k, n = A.shape
    A, Y, Z = (M if M.stride(1) == 1 else M.contiguous() for M in (A, Y, A if Z is None else Z))
    R = torch.empty((k * (int(gradient) + int(product)), n), dtype=torch.float64, device=A.device)
    block = 128
    losses = torch.empty(triton.cdiv(n, block), dtype=torch.float64, device=A.device)
    _coefficients[(len(losses),)](
        A, Z, Y, weight, R, losses, n, A.stride(0), Z.stride(0), Y.stride(0),
        k, 1 << (k - 1).bit_length(), gradient, product, BN=block, num_warps=4,
    )  # fmt: skip
    return R, losses.sum()


def expected(A: Any, S: Any, Y: Any, weight: Any, eta: float) -> tuple[Any, Any, Any]:
    """See `torch_kernels.expected`."""
    k, n = A.shape
    A, S, Y = (M if M.stride(1) == 1 else M.contiguous() for M in (A, S, Y))
    mean, spread = (torch.empty(n, dtype=torch.float64, device=A.device) for _ in range(2))
    label, block = torch.empty(n, dtype=torch.int64, device=A.device), 128
    step = torch.full((1,), eta, dtype=torch.float64, device=A.device)  # a number would be passed in float32
    _expected[(triton.cdiv(n, block),)](
        A, S, Y, weight, mean, spread, label, n, A.stride(0), S.stride(0), Y.stride(0), step,
        k, 1 << (k - 1).bit_length(), BN=block, num_warps=4,
    )  # fmt: skip
    return mean, spread, label


def _padded(columns: int) -> int:
    """The matrix units need at least 16 columns."""
    return max(16, 1 << (columns - 1).bit_length())
