"""Classes against class 0: the form that sweeps use.

Softmax does not change when one number is added to all logits of a row, and neither does the influence when one
number is added to all entries of S[i] (its coefficients sum to zero). So a sweep computes k = C − 1 columns,

    M̃[c] = M[:, c] − M[:, 0],  c = 1 … C−1                     (D, C) → (k, D)

and a sum of row coefficients that themselves sum to zero over classes comes back as

    G[:, c] = G̃[c],  G[:, 0] = −Σ_c G̃[c]                        (k, D) → (D, C)

For two classes that halves the work of every sweep, and every formula is the same for all C.
"""

from typing import Any

import numpy as np

from labelchef.domain.arrays import Float64s


def contrast(M: Float64s) -> Float64s:
    """(D, C) → (k, D): columns against class 0, transposed and contiguous.

    >>> contrast(np.array([[1.0, 3.0, 6.0]])).tolist()
    [[2.0], [5.0]]
    """
    return np.ascontiguousarray((M[:, 1:] - M[:, :1]).T)


def expand(G: Any, xp: Any = np) -> Any:
    """(k, D) → (D, C): the column of class 0 is minus the sum of the others, with the functions of `xp`.

    >>> expand(np.array([[2.0], [5.0]])).tolist()
    [[-7.0, 2.0, 5.0]]
    """
    return xp.vstack([-G.sum(axis=0, keepdims=True), G]).T


def with_reference(A: Any, xp: Any = np) -> Any:
    """(n, k) → (n, C): row values with the zero of class 0 put back, with the functions of `xp`.

    >>> with_reference(np.array([[2.0, 5.0]])).tolist()
    [[0.0, 2.0, 5.0]]
    """
    return xp.hstack([xp.zeros_like(A[:, :1]), A])
