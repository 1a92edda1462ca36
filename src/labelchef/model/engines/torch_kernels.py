"""Row formulas of an engine with tensors, in plain PyTorch: for any device, and the reference for `triton_kernels`.

Row arrays are stored column by column, which a device reads best. With k = C − 1 contrasts:

    X (n, d) as stored · K (q, d) · A, Z, S (k, n) · Y (C, n) · weight (n,) · R (m, n)       all but X float64

    products        F (q, n) = K Xᵀ
    row sums        G (m, d) = R X
    coefficients    R = w (P − Y), then w (P ∘ Z − P (P·Z)); and the loss Σ w ℓ
    scores          min_c I(i, c) and the class that attains it, the lowest on ties
    expected        Σ_c Q I(i, c), its spread, and argmax_c Q, Q = softmax(A − η S)
"""

from typing import Any

import torch

_BLOCK_BYTES = 256 << 20  # of rows widened to float64 at a time
_ROUND_UP = 1.0 + 1e-12


def row_blocks(X: Any) -> Any:
    """X in pieces that are small enough to be widened to float64."""
    return X.split(max(1, _BLOCK_BYTES // (8 * max(1, X.shape[1]))))


def products(X: Any, K: Any) -> Any:
    """K Xᵀ, (q, n)."""
    return torch.cat([K @ block.double().T for block in row_blocks(X)], dim=1)


def row_sums(X: Any, R: Any) -> Any:
    """R X, (m, d)."""
    total, start = torch.zeros((R.shape[0], X.shape[1]), dtype=torch.float64, device=X.device), 0
    for block in row_blocks(X):
        total += R[:, start : start + len(block)] @ block.double()
        start += len(block)
    return total


def _softmax(A: Any) -> tuple[Any, Any]:
    """P (k, n) of all classes but class 0, and log Σ exp (n,)."""
    top = torch.clamp(A.amax(dim=0), min=0.0)
    E = torch.exp(A - top)
    total = E.sum(dim=0) + torch.exp(-top)
    return E / total, top + torch.log(total)


def coefficients(A: Any, Z: Any, Y: Any, weight: Any, *, gradient: bool, product: bool) -> tuple[Any, Any]:
    """R (k or 2k, n), gradient first, and the loss as a tensor of one number."""
    P, log_total = _softmax(A)
    loss = weight @ (log_total - (Y[1:] * A).sum(dim=0))
    parts = [weight * (P - Y[1:])] if gradient else []
    if product:
        parts.append(weight * P * (Z - (P * Z).sum(dim=0)))
    return torch.cat(parts), loss


def scores(A: Any, S: Any, Y: Any, weight: Any) -> tuple[Any, Any]:
    """Smallest influence and its class, (n,) each."""
    P, _ = _softmax(A)
    mean = ((weight * Y[1:] + (1.0 - weight) * P) * S).sum(dim=0)
    low, label = torch.cat([torch.zeros_like(S[:1]), S]).min(dim=0)
    return low - mean, label


def expected(A: Any, S: Any, Y: Any, weight: Any, eta: float) -> tuple[Any, Any, Any]:
    """Mean and spread of I(i, c) over the answers softmax(A − eta S), and the likeliest one; see `kernels.expect_rows`."""
    P, (Q, _) = _softmax(A)[0], _softmax(A - eta * S)
    mean = (Q * S).sum(dim=0)
    spread = torch.sqrt(torch.clamp((Q * S * S).sum(dim=0) - mean * mean, min=0.0))
    before = ((weight * Y[1:] + (1.0 - weight) * P) * S).sum(dim=0)
    return mean - before, spread, torch.cat([torch.zeros_like(S[:1]), A - eta * S]).argmax(dim=0)


def within_reach(S: Any, Y: Any, weight: Any, reach: float) -> Any:
    """Which rows can have a score of −reach or less, (n,); see `kernels.collect_reach`."""
    low, high = torch.clamp(S.amin(dim=0), max=0.0), torch.clamp(S.amax(dim=0), min=0.0)
    spread = (high - low) * _ROUND_UP
    mean = ((S - low) * Y[1:]).sum(dim=0) - Y[0] * low
    return (weight * mean + (1.0 - weight) * spread) * _ROUND_UP >= reach
