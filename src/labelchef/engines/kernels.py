"""Compiled row kernels: everything that one pass over X can compute, in one pass.

Shapes, with k = C − 1 contrast columns (class c against class 0, see `core.contrasts`):

    X        (N, d)      float32 or float64, rows contiguous; the bias column is not stored, D = d + bias
    K        (q, D)      float64, the columns to multiply X with, transposed
    A        (N, k)      float64 logits; class 0 has logit 0
    Z        (N, k)      float64 products X·T of some direction T
    Y        (N, C)      float64 labels on the simplex
    weight   (N,)        float64
    R        (block, m)  float64 row coefficients of the backward product Σ_i R[i] ⊗ x_i

A block of rows is multiplied forward, turned into row coefficients and multiplied backward while it is in the cache, so
X is read from memory once. Arithmetic is float64 for any type of X: a sweep waits for memory, so the wider arithmetic
costs little, and gradients can then be reduced to 1e-12.

The functions release the GIL. They are run in parallel by threads, not by numba's own parallel layers, so that they can
be called from any thread of any program. The order of summation depends on shapes only, never on the number of threads.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from labelchef.domain.arrays import Float64s, Floats, Ints

BLOCK = 64  # a multiple of the four rows of a tile
"""Rows multiplied forward and backward before the next are read: 64 × 2 048 float32 fill half of an L2 cache."""

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # let dot products use SIMD lanes; NaN and inf stay exact


class Features(NamedTuple):
    """X, and whether a column of ones follows its columns."""

    X: Floats
    bias: bool


class Labels(NamedTuple):
    """Labels and weights of all rows."""

    Y: Float64s
    weight: Float64s


class RowValues(NamedTuple):
    """Logits and products of all rows."""

    A: Float64s
    Z: Float64s


class Wanted(NamedTuple):
    """What a sweep computes: A from parameters, Z from a direction, the gradient, the Hessian product."""

    A: bool
    Z: bool
    gradient: bool
    product: bool


class Expected(NamedTuple):
    """Where `expect_rows` writes."""

    worth: Float64s
    influence: Float64s
    label: Ints


@njit(nogil=True, cache=True, fastmath=_FAST)
def _forward_tile(x0, x1, x2, x3, K, F, r):
    """F[r … r + 3, c] = x · K[c], two columns at a time."""
    d = x0.shape[0]
    q = K.shape[0]
    c = 0
    while c + 2 <= q:
        u, v = K[c], K[c + 1]
        u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = 0.0
        for j in range(d):
            a, b = u[j], v[j]
            u0 += x0[j] * a
            u1 += x1[j] * a
            u2 += x2[j] * a
            u3 += x3[j] * a
            v0 += x0[j] * b
            v1 += x1[j] * b
            v2 += x2[j] * b
            v3 += x3[j] * b
        F[r, c], F[r + 1, c], F[r + 2, c], F[r + 3, c] = u0, u1, u2, u3
        F[r, c + 1], F[r + 1, c + 1], F[r + 2, c + 1], F[r + 3, c + 1] = v0, v1, v2, v3
        c += 2
    if c < q:
        u = K[c]
        u0 = u1 = u2 = u3 = 0.0
        for j in range(d):
            a = u[j]
            u0 += x0[j] * a
            u1 += x1[j] * a
            u2 += x2[j] * a
            u3 += x3[j] * a
        F[r, c], F[r + 1, c], F[r + 2, c], F[r + 3, c] = u0, u1, u2, u3


@njit(nogil=True, cache=True, fastmath=_FAST)
def _backward_tile(x0, x1, x2, x3, R, r, G):
    """G[c] += Σ R[r … r + 3, c] x."""
    d = x0.shape[0]
    for c in range(G.shape[0]):
        g = G[c]
        r0, r1, r2, r3 = R[r, c], R[r + 1, c], R[r + 2, c], R[r + 3, c]
        for j in range(d):
            g[j] += (r0 * x0[j] + r1 * x1[j]) + (r2 * x2[j] + r3 * x3[j])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _backward_row(x, R, r, G):
    """G[c] += R[r, c] x."""
    for c in range(G.shape[0]):
        g = G[c]
        r0 = R[r, c]
        for j in range(x.shape[0]):
            g[j] += r0 * x[j]


@njit(nogil=True, cache=True)
def _bias_forward(K, n, F):
    """Add the part of the products that belongs to the bias column."""
    d = K.shape[1] - 1
    for r in range(n):
        for c in range(K.shape[0]):
            F[r, c] += K[c, d]


@njit(nogil=True, cache=True)
def _bias_backward(R, n, G):
    """Add the part of the row sums that belongs to the bias column."""
    d = G.shape[1] - 1
    for r in range(n):
        for c in range(G.shape[0]):
            G[c, d] += R[r, c]


@njit(nogil=True, cache=True)
def _forward(X, bias, lo, hi, K, F):
    """F[i − lo, c] = x_i · K[c] for rows lo ≤ i < hi, in tiles of four rows by two columns.

    The last tile repeats the last row, so that all rows are computed by the same code: equal rows get equal products,
    bit by bit, their scores are equal, and the lower index comes first. F has room for a whole tile.
    """
    last = hi - 1
    for i in range(lo, hi, 4):
        _forward_tile(X[i], X[min(i + 1, last)], X[min(i + 2, last)], X[min(i + 3, last)], K, F, i - lo)
    if bias:
        _bias_forward(K, hi - lo, F)


@njit(nogil=True, cache=True)
def _backward(X, bias, lo, hi, R, G):
    """G[c] += Σ_i R[i − lo, c] x_i for rows lo ≤ i < hi, four rows at a time."""
    i = lo
    while i + 4 <= hi:
        _backward_tile(X[i], X[i + 1], X[i + 2], X[i + 3], R, i - lo, G)
        i += 4
    while i < hi:
        _backward_row(X[i], R, i - lo, G)
        i += 1
    if bias:
        _bias_backward(R, hi - lo, G)


@njit(nogil=True, cache=True)
def _softmax_row(a, p):
    """p = softmax([0, a]); returns log Σ exp, which is the loss of class 0."""
    top = 0.0
    for c in range(a.shape[0]):
        top = max(top, a[c])
    p[0] = np.exp(-top)
    total = p[0]
    for c in range(a.shape[0]):
        p[c + 1] = np.exp(a[c] - top)
        total += p[c + 1]
    for c in range(p.shape[0]):
        p[c] /= total
    return top + np.log(total)


@njit(nogil=True, cache=True)
def sweep_rows(features, labels, wanted, K, values, lo, hi, sums):
    """One pass over rows lo ≤ i < hi; returns Σ weight · loss.

    With `wanted.A` the first k rows of K are parameters and A is written, else A is read; with `wanted.Z` the next k
    rows are a direction and Z is written. `sums` receives, k rows each and in this order, the
    gradient Σ w (P − Y) ⊗ x (if `wanted.gradient`) and the Hessian product Σ w (P ∘ Z − P (P·Z)) ⊗ x (if
    `wanted.product`, which needs Z).
    """
    X, bias = features.X, features.bias
    Y, weight = labels.Y, labels.weight
    A, Z = values.A, values.Z
    k = A.shape[1]
    m = sums.shape[0]
    F = np.empty((BLOCK, max(1, K.shape[0])))
    R = np.empty((BLOCK, max(1, m)))
    p = np.empty(k + 1)
    sums[:] = 0.0
    loss = 0.0
    for start in range(lo, hi, BLOCK):
        stop = min(start + BLOCK, hi)
        if K.shape[0] > 0:
            _forward(X, bias, start, stop, K, F)
        for i in range(start, stop):
            r = i - start
            at = 0
            if wanted.A:
                for c in range(k):
                    A[i, c] = F[r, c]
                at = k
            if wanted.Z:
                for c in range(k):
                    Z[i, c] = F[r, at + c]
            if not (wanted.gradient or wanted.product):
                continue
            w = weight[i]
            log_total = _softmax_row(A[i], p)
            fit = 0.0
            for c in range(k):
                fit += Y[i, c + 1] * A[i, c]
            loss += w * (log_total - fit)
            at = 0
            if wanted.gradient:
                for c in range(k):
                    R[r, c] = w * (p[c + 1] - Y[i, c + 1])
                at = k
            if wanted.product:
                mean = 0.0
                for c in range(k):
                    mean += p[c + 1] * Z[i, c]
                for c in range(k):
                    R[r, at + c] = w * p[c + 1] * (Z[i, c] - mean)
        if m > 0:
            _backward(X, bias, start, stop, R, sums)
    return loss


@njit(nogil=True, cache=True)
def _gradient_of_piece(features, labels, K, rows, lo, hi, sums):
    """sums = Σ w (P − Y) ⊗ x over the rows `rows[lo … hi − 1]`, each read once, without a copy."""
    X, bias = features.X, features.bias
    Y, weight = labels.Y, labels.weight
    k = K.shape[0]
    F = np.empty((BLOCK, k))
    R = np.empty((BLOCK, k))
    p = np.empty(k + 1)
    sums[:] = 0.0
    for start in range(lo, hi, BLOCK):
        stop = min(start + BLOCK, hi)
        last = stop - 1
        for i in range(start, stop, 4):
            _forward_tile(
                X[rows[i]],
                X[rows[min(i + 1, last)]],
                X[rows[min(i + 2, last)]],
                X[rows[min(i + 3, last)]],
                K,
                F,
                i - start,
            )
        if bias:
            _bias_forward(K, stop - start, F)
        for i in range(start, stop):
            at, r = rows[i], i - start
            _softmax_row(F[r], p)
            for c in range(k):
                R[r, c] = weight[at] * (p[c + 1] - Y[at, c + 1])
        i = start
        while i + 4 <= stop:
            _backward_tile(X[rows[i]], X[rows[i + 1]], X[rows[i + 2]], X[rows[i + 3]], R, i - start, sums)
            i += 4
        while i < stop:
            _backward_row(X[rows[i]], R, i - start, sums)
            i += 1
        if bias:
            _bias_backward(R, stop - start, sums)


@njit(nogil=True, cache=True)
def gradient_of_rows(features, labels, K, rows, first, every, partial):
    """The sums of every `every`-th piece of `rows`, from piece `first` on; there is one piece for each sum in `partial`."""
    pieces, n = partial.shape[0], len(rows)
    for piece in range(first, pieces, every):
        lo, hi = n * piece // pieces, n * (piece + 1) // pieces
        _gradient_of_piece(features, labels, K, rows, lo, hi, partial[piece])


@njit(nogil=True, cache=True)
def score_rows(lo, hi, values, labels, eligible, best, label):
    """best[i] = min_c I(i, c), label[i] = argmin_c I(i, c), the lowest class on ties; +inf where not eligible.

    I(i, c) = S[i, c] − (w Y[i] + (1 − w) P[i]) · S[i] with S the products, w the present weight and S[i, 0] = 0.
    """
    A, S = values.A, values.Z
    Y, weight = labels.Y, labels.weight
    k = A.shape[1]
    p = np.empty(k + 1)
    for i in range(lo, hi):
        if not eligible[i]:
            best[i] = np.inf
            label[i] = 0
            continue
        _softmax_row(A[i], p)
        w = weight[i]
        mean = 0.0
        low = 0.0
        where = 0
        for c in range(k):
            s = S[i, c]
            mean += (w * Y[i, c + 1] + (1.0 - w) * p[c + 1]) * s
            if s < low:
                low = s
                where = c + 1
        best[i] = low - mean
        label[i] = where


@njit(nogil=True, cache=True)
def expect_rows(lo, hi, values, labels, eligible, eta, optimism, found):
    """Mean and spread of I(i, c) over the answers Q[i] = softmax(A[i] − eta S[i]), with S the products.

    influence[i] = Σ_c Q[i, c] I(i, c), which is (Q[i] − w Y[i] − (1 − w) P[i]) · S[i] since Σ Q = 1;
    worth[i] = influence[i] − optimism · sd of S[i, c] under Q[i], +inf where not eligible;
    label[i] = argmax_c Q[i, c], the lowest on ties.
    """
    A, S = values.A, values.Z
    Y, weight = labels.Y, labels.weight
    worth, influence, label = found.worth, found.influence, found.label
    k = A.shape[1]
    p, q, a = np.empty(k + 1), np.empty(k + 1), np.empty(k)
    for i in range(lo, hi):
        if not eligible[i]:
            worth[i] = np.inf
            influence[i] = np.inf
            label[i] = 0
            continue
        for c in range(k):
            a[c] = A[i, c] - eta * S[i, c]
        _softmax_row(A[i], p)
        _softmax_row(a, q)
        w = weight[i]
        before = mean = square = 0.0
        where = 0
        for c in range(k):
            s = S[i, c]
            before += (w * Y[i, c + 1] + (1.0 - w) * p[c + 1]) * s
            mean += q[c + 1] * s
            square += q[c + 1] * s * s
            if q[c + 1] > q[where]:
                where = c + 1
        influence[i] = mean - before
        worth[i] = mean - before - optimism * np.sqrt(max(square - mean * mean, 0.0))
        label[i] = where


@njit(nogil=True, cache=True)
def collect_reach(lo, hi, S, labels, eligible, reach, found):
    """Write the rows whose score can be −reach or less to `found`; returns how many, or −1 if there is no room.

    score = −Σ_c q_c d_c with d = S − min S ≥ 0 and q = wY + (1 − w)P, so −score ≤ w Y·d + (1 − w) max d ≤ max d: the
    spread of S[i] rules out most rows, the label most of the others.
    """
    Y, weight = labels.Y, labels.weight
    count = 0
    for i in range(lo, hi):
        low = high = 0.0
        for c in range(S.shape[1]):
            low = min(low, S[i, c])
            high = max(high, S[i, c])
        spread = (high - low) * (1.0 + 1e-12)
        if spread < reach or not eligible[i]:
            continue
        mean = -Y[i, 0] * low
        for c in range(S.shape[1]):
            mean += Y[i, c + 1] * (S[i, c] - low)
        if (weight[i] * mean + (1.0 - weight[i]) * spread) * (1.0 + 1e-12) < reach:
            continue
        if count == found.shape[0]:
            return -1
        found[count] = i
        count += 1
    return count
