"""Compiled passes over the votes of sources; T (n, J·C) is a sparse table by rows (`indptr`, `columns`, `weights`).

The functions release the GIL and take a range of rows, so that threads can share a pass.
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def believe_rows(indptr, columns, weights, prior, L, clean, Q, lo, hi):
    """Q[i] ∝ exp(prior[i] + Σ_e weights[e] L[columns[e]]) over the votes e of row i; one-hot where `clean[i]` ≥ 0.

    Returns Σ_i log Σ_c exp(…) over the rows that are not clean, plus Σ_e weights[e] L[columns[e], clean[i]] over those that are:
    the two parts of the log-likelihood, in that order.
    """
    C = prior.shape[1]
    a = np.empty(C)
    weak = known = 0.0
    for i in range(lo, hi):
        label = clean[i]
        if label >= 0:
            for c in range(C):
                Q[i, c] = 0.0
            Q[i, label] = 1.0
            for e in range(indptr[i], indptr[i + 1]):
                known += weights[e] * L[columns[e], label]
            continue
        for c in range(C):
            a[c] = prior[i, c]
        for e in range(indptr[i], indptr[i + 1]):
            w, row = weights[e], columns[e]
            for c in range(C):
                a[c] += w * L[row, c]
        top = a[0]
        for c in range(1, C):
            top = max(top, a[c])
        total = 0.0
        for c in range(C):
            Q[i, c] = np.exp(a[c] - top)
            total += Q[i, c]
        for c in range(C):
            Q[i, c] /= total
        weak += top + np.log(total)
    return weak, known


@njit(nogil=True, cache=True)
def count_rows(indptr, columns, weights, row_weight, Q, counts, lo, hi):
    """counts[columns[e]] += row_weight[i] · weights[e] · Q[i] over the votes e of rows lo ≤ i < hi."""
    for i in range(lo, hi):
        for e in range(indptr[i], indptr[i + 1]):
            w, row = row_weight[i] * weights[e], columns[e]
            for c in range(Q.shape[1]):
                counts[row, c] += w * Q[i, c]
