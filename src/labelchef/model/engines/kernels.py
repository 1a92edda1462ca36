"""Compiled row kernels: everything that one pass over X can compute, in one pass.

Shapes, with k = C − 1 contrast columns (class c against class 0, see `model.contrasts`):

    X        (N, d)      float32 or float64, rows contiguous; the bias column is not stored, D = d + bias.
                         Or float16, given as its bits in uint16, with `half` True, which is None for others
    K        (q, D)      float64 or float32, the columns to multiply X with, transposed
    A        (N, k)      float64 logits; class 0 has logit 0
    Z        (N, k)      float64 products X·T of some direction T
    Y        (N, C)      float64 labels on the simplex
    weight   (N,)        float64
    R        (block, m)  row coefficients of the backward product Σ_i R[i] ⊗ x_i, of the type of K

A block of rows is multiplied forward, turned into row coefficients and multiplied backward while it is in the cache, so
X is read from memory once. With K in float64, arithmetic is float64 for any type of X, and gradients can be reduced to 1e-12.
For two classes that costs little, since a sweep waits for memory; for ten it is half of the time. With X and K in float32,
products and the sums of a block are float32, softmax and the sums over blocks float64: a relative error of about 1e-7.
float16 is widened to float32, a block at a time, into memory that stays in the cache; what follows is the same.

The functions release the GIL. They are run in parallel by threads, not by numba's own parallel layers, so that they can
be called from any thread of any program. The order of summation depends on shapes only, never on the number of threads.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

BLOCK = 64  # a multiple of the four rows of a tile
"""Rows multiplied forward and backward before the next are read: 64 × 2 048 float32 fill half of an L2 cache."""

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # let dot products use SIMD lanes; NaN and inf stay exact


@njit(nogil=True, cache=True, fastmath=_FAST)
def _forward_tile(x0, x1, x2, x3, K, F, r):
    """F[r … r + 3, c] = x · K[c], four columns at a time, then two, then one."""
    d = x0.shape[0]
    q = K.shape[0]
    zero = K.dtype.type(0)
    c = 0
    while c + 4 <= q:
        u, v, w, z = K[c], K[c + 1], K[c + 2], K[c + 3]
        u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = w0 = w1 = w2 = w3 = z0 = z1 = z2 = z3 = zero
        for j in range(d):
            a, b, e, f = u[j], v[j], w[j], z[j]
            p0, p1, p2, p3 = x0[j], x1[j], x2[j], x3[j]
            u0 += p0 * a
            u1 += p1 * a
            u2 += p2 * a
            u3 += p3 * a
            v0 += p0 * b
            v1 += p1 * b
            v2 += p2 * b
            v3 += p3 * b
            w0 += p0 * e
            w1 += p1 * e
            w2 += p2 * e
            w3 += p3 * e
            z0 += p0 * f
            z1 += p1 * f
            z2 += p2 * f
            z3 += p3 * f
        F[r, c], F[r + 1, c], F[r + 2, c], F[r + 3, c] = u0, u1, u2, u3
        F[r, c + 1], F[r + 1, c + 1], F[r + 2, c + 1], F[r + 3, c + 1] = v0, v1, v2, v3
        F[r, c + 2], F[r + 1, c + 2], F[r + 2, c + 2], F[r + 3, c + 2] = w0, w1, w2, w3
        F[r, c + 3], F[r + 1, c + 3], F[r + 2, c + 3], F[r + 3, c + 3] = z0, z1, z2, z3
        c += 4
    while c + 2 <= q:
        u, v = K[c], K[c + 1]
        u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = zero
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
        u0 = u1 = u2 = u3 = zero
        for j in range(d):
            a = u[j]
            u0 += x0[j] * a
            u1 += x1[j] * a
            u2 += x2[j] * a
            u3 += x3[j] * a
        F[r, c], F[r + 1, c], F[r + 2, c], F[r + 3, c] = u0, u1, u2, u3


@njit(nogil=True, cache=True, fastmath=_FAST)
def _backward_tile(x0, x1, x2, x3, R, r, G):
    """G[c] += Σ R[r … r + 3, c] x, three columns at a time, then one."""
    d, k = x0.shape[0], G.shape[0]
    c = 0
    while c + 3 <= k:
        g, h, i = G[c], G[c + 1], G[c + 2]
        g0, g1, g2, g3 = R[r, c], R[r + 1, c], R[r + 2, c], R[r + 3, c]
        h0, h1, h2, h3 = R[r, c + 1], R[r + 1, c + 1], R[r + 2, c + 1], R[r + 3, c + 1]
        i0, i1, i2, i3 = R[r, c + 2], R[r + 1, c + 2], R[r + 2, c + 2], R[r + 3, c + 2]
        for j in range(d):
            p0, p1, p2, p3 = x0[j], x1[j], x2[j], x3[j]
            g[j] += (g0 * p0 + g1 * p1) + (g2 * p2 + g3 * p3)
            h[j] += (h0 * p0 + h1 * p1) + (h2 * p2 + h3 * p3)
            i[j] += (i0 * p0 + i1 * p1) + (i2 * p2 + i3 * p3)
        c += 3
    while c < k:
        g = G[c]
        g0, g1, g2, g3 = R[r, c], R[r + 1, c], R[r + 2, c], R[r + 3, c]
        for j in range(d):
            g[j] += (g0 * x0[j] + g1 * x1[j]) + (g2 * x2[j] + g3 * x3[j])
        c += 1


@njit(nogil=True, cache=True)
def _row(X, rows, i):
    """The i-th of some rows of X; of all rows where `rows` is None."""
    return X[i] if rows is None else X[rows[i]]


@njit(nogil=True, cache=True)
def _forward(X, rows, lo, hi, K, F):
    """F[i − lo, c] = x_i · K[c] for lo ≤ i < hi, in tiles of four rows by four columns.

    The last tile repeats the last row, so that all rows are computed by the same code: equal rows get equal products,
    bit by bit, their scores are equal, and the lower index comes first. F has room for a whole tile.
    """
    for i in range(lo, hi, 4):
        a, b, c = min(i + 1, hi - 1), min(i + 2, hi - 1), min(i + 3, hi - 1)
        _forward_tile(_row(X, rows, i), _row(X, rows, a), _row(X, rows, b), _row(X, rows, c), K, F, i - lo)
    if K.shape[1] > X.shape[1]:  # the bias column
        for r in range(hi - lo):
            for c in range(K.shape[0]):
                F[r, c] += K[c, X.shape[1]]


@njit(nogil=True, cache=True)
def _backward(X, rows, lo, hi, R, G):
    """G[c] += Σ_i R[i − lo, c] x_i for lo ≤ i < hi, four rows at a time; R gets zeros to fill the last tile."""
    R[hi - lo :] = 0.0
    for i in range(lo, hi, 4):
        a, b, c = min(i + 1, hi - 1), min(i + 2, hi - 1), min(i + 3, hi - 1)
        _backward_tile(_row(X, rows, i), _row(X, rows, a), _row(X, rows, b), _row(X, rows, c), R, i - lo, G)
    if G.shape[1] > X.shape[1]:  # the bias column
        for r in range(hi - lo):
            for c in range(G.shape[0]):
                G[c, X.shape[1]] += R[r, c]


def _bits_as_float32(typingctx, bits):  # noqa: ARG001
    """The float32 that has these 32 bits."""

    def made(context, builder, signature, arguments):  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), made


_as_float32: Any = intrinsic(_bits_as_float32)


@njit(nogil=True, cache=True)
def _half(bits):
    """The number that 16 bits of a float16 stand for, exactly, also below the normal numbers, infinite or not a number.

    The exponent is moved to its place in float32 and gets another offset, 127 − 15. One of all ones (infinite, not a number)
    stays so. Zero in it stands for a multiple of 2⁻²⁴: the smallest normal number is added to the bits and taken off again.
    """
    h = np.uint32(bits)
    m = np.uint32(h & np.uint32(0x7FFF)) << np.uint32(13)
    exponent = np.uint32(m & np.uint32(0x0F800000))
    offset = np.uint32(0x70000000) if exponent == np.uint32(0x0F800000) else np.uint32(0x38000000)
    small = _as_float32(np.uint32(m + np.uint32(0x38800000))) - _as_float32(np.uint32(0x38800000))
    number = small if exponent == np.uint32(0) else _as_float32(np.uint32(m + offset))
    return -number if h & np.uint32(0x8000) else number


@njit(nogil=True, cache=True)
def _widen(X, rows, lo, hi, wide):
    """wide[i − lo] = x_i in float32, for lo ≤ i < hi."""
    for i in range(lo, hi):
        x, to = _row(X, rows, i), wide[i - lo]
        for j in range(x.shape[0]):
            to[j] = _half(x[j])


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
def sweep_rows(X, half, K, A, Z, Y, weight, product, short, lo, hi, sums):
    """One pass over rows lo ≤ i < hi; returns Σ weight · loss.

    K has k rows of parameters, from which A is written, unless A is given; and k rows of a direction, from which Z is
    written, unless Z is empty. `sums` receives, k rows each and in this order, the gradient Σ w (P − Y) ⊗ x and, if
    `product`, the Hessian product Σ w (P ∘ Z − P (P·Z)) ⊗ x; it has no rows for what is not wanted. `short` is whether K is
    float32, else None: sums of a block are then float32 too.
    """
    k, m = A.shape[1], sums.shape[0]
    direction = Z.shape[0] > 0
    parameters = K.shape[0] > (k if direction else 0)
    gradient = m > (k if product else 0)
    F, R = np.empty((BLOCK, max(1, K.shape[0])), K.dtype), np.empty((BLOCK, max(1, m)), K.dtype)
    p = np.empty(k + 1)
    sums[:] = 0.0
    part = np.empty((0, 0) if short is None else sums.shape, K.dtype)
    wide = np.empty((0 if half is None else BLOCK, X.shape[1]), np.float32)
    loss = 0.0
    for start in range(lo, hi, BLOCK):
        stop = min(start + BLOCK, hi)
        if half is not None:
            _widen(X, None, start, stop, wide)
        if K.shape[0] > 0 and half is None:
            _forward(X, None, start, stop, K, F)
        elif K.shape[0] > 0:
            _forward(wide, None, 0, stop - start, K, F)
        for i in range(start, stop):
            r = i - start
            if parameters:
                for c in range(k):
                    A[i, c] = F[r, c]
            if direction:
                for c in range(k):
                    Z[i, c] = F[r, K.shape[0] - k + c]
            if m == 0:
                continue
            w = weight[i]
            log_total = _softmax_row(A[i], p)
            fit = 0.0
            for c in range(k):
                fit += Y[i, c + 1] * A[i, c]
            loss += w * (log_total - fit)
            if gradient:
                for c in range(k):
                    R[r, c] = w * (p[c + 1] - Y[i, c + 1])
            if product:
                mean = 0.0
                for c in range(k):
                    mean += p[c + 1] * Z[i, c]
                for c in range(k):
                    R[r, m - k + c] = w * p[c + 1] * (Z[i, c] - mean)
        if m > 0 and short is None:
            if half is None:
                _backward(X, None, start, stop, R, sums)
            else:
                _backward(wide, None, 0, stop - start, R, sums)
        elif m > 0:
            part[:] = 0.0
            if half is None:
                _backward(X, None, start, stop, R, part)
            else:
                _backward(wide, None, 0, stop - start, R, part)
            for c in range(m):
                for j in range(sums.shape[1]):
                    sums[c, j] += part[c, j]
    return loss


@njit(nogil=True, cache=True)
def gradient_of_rows(X, half, K, Y, weight, rows, partial, every, first):
    """Σ w (P − Y) ⊗ x over pieces of `rows`, each row read once, without a copy.

    There is one piece for each sum in `partial`; computed is every `every`-th of them, from `first` on.
    """
    k, pieces = K.shape[0], partial.shape[0]
    F, R = np.empty((BLOCK, k)), np.empty((BLOCK, k))
    p = np.empty(k + 1)
    wide = np.empty((0 if half is None else BLOCK, X.shape[1]), np.float32)
    for piece in range(first, pieces, every):
        partial[piece] = 0.0
        hi = len(rows) * (piece + 1) // pieces
        for start in range(len(rows) * piece // pieces, hi, BLOCK):
            stop = min(start + BLOCK, hi)
            if half is None:
                _forward(X, rows, start, stop, K, F)
            else:
                _widen(X, rows, start, stop, wide)
                _forward(wide, None, 0, stop - start, K, F)
            for i in range(start, stop):
                at, r = rows[i], i - start
                _softmax_row(F[r], p)
                for c in range(k):
                    R[r, c] = weight[at] * (p[c + 1] - Y[at, c + 1])
            if half is None:
                _backward(X, rows, start, stop, R, partial[piece])
            else:
                _backward(wide, None, 0, stop - start, R, partial[piece])


@njit(nogil=True, cache=True)
def widen_rows(X, lo, hi, wide):
    """wide[i − lo] = x_i in float32 for lo ≤ i < hi."""
    _widen(X, None, lo, hi, wide)


@njit(nogil=True, cache=True)
def score_rows(A, S, Y, weight, eligible, best, label, lo, hi):
    """best[i] = min_c I(i, c), label[i] = argmin_c I(i, c), the lowest class on ties; +inf where not eligible.

    I(i, c) = S[i, c] − (w Y[i] + (1 − w) P[i]) · S[i] with S the products, w the present weight and S[i, 0] = 0.
    """
    k = A.shape[1]
    p = np.empty(k + 1)
    for i in range(lo, hi):
        if not eligible[i]:
            best[i], label[i] = np.inf, 0
            continue
        _softmax_row(A[i], p)
        w = weight[i]
        mean = low = 0.0
        where = 0
        for c in range(k):
            s = S[i, c]
            mean += (w * Y[i, c + 1] + (1.0 - w) * p[c + 1]) * s
            if s < low:
                low = s
                where = c + 1
        best[i], label[i] = low - mean, where


@njit(nogil=True, cache=True)
def expect_rows(A, S, Y, weight, eligible, eta, optimism, worth, influence, label, lo, hi):
    """Mean and spread of I(i, c) over the answers Q[i] = softmax(A[i] − eta S[i]), with S the products.

    influence[i] = Σ_c Q[i, c] I(i, c), which is (Q[i] − w Y[i] − (1 − w) P[i]) · S[i] since Σ Q = 1;
    worth[i] = influence[i] − optimism · sd of S[i, c] under Q[i], +inf where not eligible;
    label[i] = argmax_c Q[i, c], the lowest on ties.
    """
    k = A.shape[1]
    p, q, a = np.empty(k + 1), np.empty(k + 1), np.empty(k)
    for i in range(lo, hi):
        if not eligible[i]:
            worth[i], influence[i], label[i] = np.inf, np.inf, 0
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
        spread = np.sqrt(max(square - mean * mean, 0.0))
        worth[i], influence[i], label[i] = mean - before - optimism * spread, mean - before, where


@njit(nogil=True, cache=True)
def collect_reach(S, Y, weight, eligible, reach, found, lo, hi):
    """Write the rows whose score can be −reach or less to `found`; returns how many, or −1 if there is no room.

    score = −Σ_c q_c d_c with d = S − min S ≥ 0 and q = wY + (1 − w)P, so −score ≤ w Y·d + (1 − w) max d ≤ max d: the
    spread of S[i] rules out most rows, the label most of the others.
    """
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
