"""The compiled inner loop of DeltaGrad-L: what a step does besides computing the gradient of its mini-batch.

Everything is in the coordinates of `model.contrasts`: a parameter or gradient is k·D numbers.

    B v = σ v − [Y; σS]ᵀ M [Y; σS] v                     the compact form of L-BFGS, with
    M⁻¹ = [[−D, Lᵀ], [L, σ SSᵀ]], D = diag(s_i·y_i), L_ij = s_i·y_j for i > j, σ = s·y / s·s
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from labelchef.base.arrays import Float64s, Floats, Ints


class Descents(NamedTuple):
    """The last descent and the new one, on the same mini-batches.

    G and G_new (T, k, D) are the data gradients of every step; z and z_new (k, D) the present parameters w_t and w'_t;
    `ends` (epochs + 1, k, D) receives w' after each epoch. `sizes` are the rows of each mini-batch of an epoch, `basis`
    (k, k) turns coordinates into contrasts.
    """

    G: Floats
    G_new: Floats
    z: Float64s
    z_new: Float64s
    ends: Float64s
    rate: float
    l2: float
    sizes: Ints
    basis: Float64s


class Changed(NamedTuple):
    """The rows X (b, D) whose labels changed, bias column included.

    `old` and `new` (b, C + 1) hold a label and, last, its weight. which[at[t] … at[t + 1] − 1] are the changed rows in
    the mini-batch of step t; `at` is (T + 1,).
    """

    X: Float64s
    old: Float64s
    new: Float64s
    at: Ints
    which: Ints


class QuasiHessian(NamedTuple):
    """B, made of the last pairs S and Y (m, k·D), oldest first, with M (2m, 2m) and σ.

    s = w' − w and y = ∇F(w'; B) − ∇F(w; B) on the same labels, without L2, both divided by ‖s‖.
    """

    S: Float64s
    Y: Float64s
    M: Float64s
    sigma: float


class Guard(NamedTuple):
    """Which pairs are accepted, and which error of a prediction is tolerated."""

    history: int
    smoothness: float
    rate: float
    period: int
    l2: float
    tolerated: float
    tolerated_worse: float


@njit(nogil=True, cache=True)
def add_correction(out, t, descents, changed):
    """out += (1/|B_t|) Σ x ⊗ [r'(p − y') − r (p − y)] over the changed rows of the batch of step t, p at w'_t."""
    z, basis, size = descents.z_new, descents.basis, descents.sizes[t % len(descents.sizes)]
    k, D = z.shape
    p = np.empty(k + 1)
    product = np.empty(k)
    for place in range(changed.at[t], changed.at[t + 1]):
        i = changed.which[place]
        x, old, new = changed.X[i], changed.old[i], changed.new[i]
        for a in range(k):
            total = 0.0
            for j in range(D):
                total += z[a, j] * x[j]
            product[a] = total
        top = 0.0
        p[0] = 0.0
        for c in range(k):
            total = 0.0
            for a in range(k):
                total += basis[c, a] * product[a]
            p[c + 1] = total
            top = max(top, total)
        total = 0.0
        for c in range(k + 1):
            p[c] = np.exp(p[c] - top)
            total += p[c]
        r, r_new = old[k + 1], new[k + 1]
        for c in range(k + 1):
            p[c] = (r_new * (p[c] / total - new[c]) - r * (p[c] / total - old[c])) / size
        for a in range(k):
            coefficient = 0.0
            for c in range(k):
                coefficient += basis[c, a] * p[c + 1]
            for j in range(D):
                out[a, j] += coefficient * x[j]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def bend(v, known, out):
    """out = B v; returns (vᵀ B v, ‖v‖², ‖B v‖²)."""
    S, Y, M, sigma = known.S, known.Y, known.M, known.sigma
    m, n = S.shape
    q = np.empty(2 * m)
    for a in range(m):
        y, s = Y[a], S[a]
        along_y = along_s = 0.0
        for j in range(n):
            along_y += y[j] * v[j]
            along_s += s[j] * v[j]
        q[a], q[m + a] = along_y, sigma * along_s
    p = np.zeros(2 * m)
    for a in range(2 * m):
        for c in range(2 * m):
            p[a] += M[a, c] * q[c]
    for j in range(n):
        out[j] = sigma * v[j]
    for a in range(m):
        y, s = Y[a], S[a]
        from_y, from_s = p[a], sigma * p[m + a]
        for j in range(n):
            out[j] -= from_y * y[j] + from_s * s[j]
    curvature = size = length = 0.0
    for j in range(n):
        curvature += v[j] * out[j]
        size += v[j] * v[j]
        length += out[j] * out[j]
    return curvature, size, length


@njit(nogil=True, cache=True)
def _compact(S, Y):
    """M and σ of the pairs."""
    m = len(S)
    inverse = np.zeros((2 * m, 2 * m))
    for a in range(m):
        for c in range(m):
            inverse[m + a, m + c] = np.dot(S[a], S[c])
            along = np.dot(S[a], Y[c])
            if a == c:
                inverse[a, a] = -along
            elif a > c:
                inverse[m + a, c] = inverse[c, m + a] = along
    sigma = -inverse[m - 1, m - 1]
    inverse[m:, m:] *= sigma
    return np.ascontiguousarray(np.linalg.inv(inverse)), sigma


@njit(nogil=True, cache=True)
def learn(s, y, guard, known):
    """Add a pair to B, if its curvature is possible for a batch; returns B, and whether B predicted y too badly.

    An error ε of the gradient moves w' by about

        ε (1 − (1 − η h)^T0) / h,   h = s·y / s·s + λ,

    until the next explicit step, `period` steps later. That is η T0 ε for small steps, and never more than ε / h. It may
    be the tolerated share of w' − w, a smaller one where a prediction of zero would have been better.
    """
    size, length = np.linalg.norm(s), np.linalg.norm(y)
    if size == 0.0:
        return known, False
    wrong = False
    if len(known.S) > 0:
        predicted = np.empty_like(s)
        bend(s, known, predicted)
        error = np.linalg.norm(predicted - y)
        h = np.dot(s, y) / (size * size) + guard.l2
        reach = guard.rate * guard.period
        if h > 0.0:
            reach = (1.0 - (1.0 - min(1.0, guard.rate * h)) ** guard.period) / h
        wrong = reach * error > (guard.tolerated_worse if error > length else guard.tolerated) * size
    if np.dot(s, y) > 1e-10 * size * length and length <= guard.smoothness * size:
        old = max(0, len(known.S) + 1 - guard.history)
        kept = len(known.S) - old
        S, Y = np.empty((kept + 1, len(s))), np.empty((kept + 1, len(s)))
        S[:kept], Y[:kept] = known.S[old:], known.Y[old:]
        S[kept], Y[kept] = s / size, y / size
        M, sigma = _compact(S, Y)
        return QuasiHessian(S, Y, M, sigma), wrong
    return known, wrong


@njit(nogil=True, cache=True)
def descend(w, g, rate, l2):
    """w ← w − η (g + λ w). Training and DeltaGrad-L both call this, so that equal gradients give equal bits."""
    for j in range(len(w)):
        w[j] -= rate * (g[j] + l2 * w[j])


@njit(nogil=True, cache=True)
def _advance(t, descents):
    """Step t of both descents, along G[t] and G_new[t]."""
    n, per_epoch = descents.z.size, len(descents.sizes)
    descend(descents.z.reshape(n), descents.G[t].reshape(n), descents.rate, descents.l2)
    descend(descents.z_new.reshape(n), descents.G_new[t].reshape(n), descents.rate, descents.l2)
    if (t + 1) % per_epoch == 0:
        descents.ends[(t + 1) // per_epoch] = descents.z_new


@njit(nogil=True, cache=True)
def explicit_step(t, g_new, descents, changed):
    """A step along the gradient `g_new` that was computed on the mini-batch; returns its pair (s, y)."""
    G, G_new, z, z_new = descents.G, descents.G_new, descents.z, descents.z_new
    n = z.size
    G_new[t] = g_new
    correction = np.zeros_like(z)
    add_correction(correction, t, descents, changed)
    s = (z_new - z).reshape(n)
    y = (g_new - correction - G[t]).reshape(n)
    _advance(t, descents)
    return s, y


@njit(nogil=True, cache=True)
def approximate_steps(start, stop, known, smoothness, descents, changed):
    """Approximate steps from `start` up to `stop`; returns where it ended: earlier if a step must be explicit.

    A step must be explicit where B is not known yet, or where its curvature along w' − w is impossible for a batch: not
    positive, or larger than the smoothness of the loss allows.
    """
    z, z_new = descents.z, descents.z_new
    k, D = z.shape
    n = k * D
    v = np.empty(n)
    change = np.empty((k, D))
    flat, w, w_new = change.reshape(n), z.reshape(n), z_new.reshape(n)
    for t in range(start, stop):
        moved = False
        for j in range(n):
            v[j] = w_new[j] - w[j]
            moved |= v[j] != 0.0
        if not moved:
            change[:] = 0.0
        elif len(known.S) == 0:
            return t
        else:
            curvature, size, length = bend(v, known, flat)
            if not (curvature > 0.0 and length <= smoothness * smoothness * size):
                return t
        add_correction(change, t, descents, changed)
        g, g_new = descents.G[t].reshape(n), descents.G_new[t].reshape(n)
        for j in range(n):
            g_new[j] = g[j] + flat[j]
        _advance(t, descents)
    return stop
