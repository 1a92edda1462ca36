"""The compiled inner loop of DeltaGrad-L: what a step does besides looking at its mini-batch.

Everything is in the coordinates of `core.coordinates`, a parameter or gradient being k·D numbers.

    G, G_new        (T, k, D)   data gradients of every step, as cached and as replayed
    z, z_new        (k, D)      w_t and w'_t
    S, Y            (m, k·D)    the last pairs, oldest first: s = w' − w, y = ∇F(w'; B) − ∇F(w; B) on the same labels,
                                without L2, both divided by ‖s‖
    M, sigma        (2m, 2m)    B v = σ v − [Y; σS]ᵀ M [Y; σS] v, the compact form of L-BFGS:
                                M⁻¹ = [[−D, Lᵀ], [L, σ SSᵀ]], D = diag(s_i·y_i), L_ij = s_i·y_j for i > j, σ = s·y / s·s
    X               (b, D)      rows whose labels changed, the bias column written out
    at, which       (T + 1,), (n,)   which[at[t] … at[t + 1] − 1] are the changed rows in the batch of step t
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def add_correction(out, z, basis, X, old, new, which, lo, hi, size):
    """out += (1/|B_t|) Σ x ⊗ [r'(p − y') − r (p − y)] over the changed rows of a batch, p at z.

    `old` and `new` (b, C + 1) hold a label and, last, its weight.
    """
    k, D = z.shape
    p = np.empty(k + 1)
    product = np.empty(k)
    for place in range(lo, hi):
        i = which[place]
        x = X[i]
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
        r, r_new = old[i, k + 1], new[i, k + 1]
        for c in range(k + 1):
            p[c] = (r_new * (p[c] / total - new[i, c]) - r * (p[c] / total - old[i, c])) / size
        for a in range(k):
            coefficient = 0.0
            for c in range(k):
                coefficient += basis[c, a] * p[c + 1]
            for j in range(D):
                out[a, j] += coefficient * x[j]


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def bend(v, S, Y, M, sigma, out):
    """out = B v; returns (vᵀ B v, ‖v‖², ‖B v‖²)."""
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
    return np.linalg.inv(inverse), sigma


@njit(nogil=True, cache=True)
def learn(s, y, history, smoothness, rate, period, l2, tolerated, tolerated_worse, S, Y, M, sigma):
    """Take the pair in, if it bends as a batch can; returns the pairs, M, σ, and whether B mispredicted y too badly.

    An error ε of the gradient moves w' before it is next looked at, `period` steps later, by about

        ε (1 − (1 − η h)^T0) / h,   h = s·y / s·s + λ,

    which is η T0 ε for small steps and no more than ε / h for any: what bends also forgets. That may be the tolerated
    share of w' − w, less where zero would have been the better prediction.
    """
    size, length = np.linalg.norm(s), np.linalg.norm(y)
    if size == 0.0:
        return S, Y, M, sigma, False
    wrong = False
    if len(S) > 0:
        predicted = np.empty_like(s)
        bend(s, S, Y, M, sigma, predicted)
        error = np.linalg.norm(predicted - y)
        h = np.dot(s, y) / (size * size) + l2
        reach = rate * period
        if h > 0.0:
            reach = (1.0 - (1.0 - min(1.0, rate * h)) ** period) / h
        wrong = reach * error > (tolerated_worse if error > length else tolerated) * size
    if np.dot(s, y) > 1e-10 * size * length and length <= smoothness * size:
        old = max(0, len(S) + 1 - history)
        kept = len(S) - old
        S_new, Y_new = np.empty((kept + 1, len(s))), np.empty((kept + 1, len(s)))
        S_new[:kept], Y_new[:kept] = S[old:], Y[old:]
        S_new[kept], Y_new[kept] = s / size, y / size
        S, Y = S_new, Y_new
        M, sigma = _compact(S, Y)
    return S, Y, M, sigma, wrong


@njit(nogil=True, cache=True)
def descend(w, g, rate, l2):
    """w ← w − η (g + λ w), the one place where parameters move: what is replayed moves bit by bit as it was trained."""
    for j in range(len(w)):
        w[j] -= rate * (g[j] + l2 * w[j])


@njit(nogil=True, cache=True)
def explicit_step(t, g_new, G, G_new, z, z_new, rate, l2, basis, X, old, new, at, which, sizes, ends):
    """A step along the gradient `g_new` that was computed on the mini-batch; returns its pair (s, y)."""
    n, per_epoch = z.size, len(sizes)
    G_new[t] = g_new
    correction = np.zeros_like(z)
    add_correction(correction, z_new, basis, X, old, new, which, at[t], at[t + 1], sizes[t % per_epoch])
    s = (z_new - z).reshape(n)
    y = (g_new - correction - G[t]).reshape(n)
    descend(z.reshape(n), G[t].reshape(n), rate, l2)
    descend(z_new.reshape(n), G_new[t].reshape(n), rate, l2)
    if (t + 1) % per_epoch == 0:
        ends[(t + 1) // per_epoch] = z_new
    return s, y


@njit(nogil=True, cache=True)
def replay_steps(
    start, stop, S, Y, M, sigma, smoothness, G, G_new, z, z_new, rate, l2, basis, X, old, new, at, which, sizes, ends
):
    """Approximate steps from `start` up to `stop`; returns where it ended: earlier if a step must be explicit.

    A step must be explicit where B is unknown or bends v in a way no batch can: not upwards, or by more than the
    smoothness of the loss allows. `ends[e]` receives the parameters after e epochs.
    """
    k, D = z.shape
    n = k * D
    per_epoch = len(sizes)
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
        elif len(S) == 0:
            return t
        else:
            curvature, size, length = bend(v, S, Y, M, sigma, flat)
            if not (curvature > 0.0 and length <= smoothness * smoothness * size):
                return t
        add_correction(change, z_new, basis, X, old, new, which, at[t], at[t + 1], sizes[t % per_epoch])
        g, g_new = G[t].reshape(n), G_new[t].reshape(n)
        for j in range(n):
            g_new[j] = g[j] + flat[j]
        descend(w, g, rate, l2)
        descend(w_new, g_new, rate, l2)
        if (t + 1) % per_epoch == 0:
            ends[(t + 1) // per_epoch] = z_new
    return stop
