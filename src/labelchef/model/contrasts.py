"""Classes against class 0: the form that sweeps use.

Softmax does not change when one number is added to all logits of a row, and neither does the influence when one
number is added to all entries of S[i] (its coefficients sum to zero). So a sweep computes k = C − 1 columns,

    M̃[c] = M[:, c] − M[:, 0],  c = 1 … C−1                     (D, C) → (k, D)

and a sum of row coefficients that themselves sum to zero over classes comes back as

    G[:, c] = G̃[c],  G[:, 0] = −Σ_c G̃[c]                        (k, D) → (D, C)

For two classes that halves the work of every sweep, and every formula is the same for all C.

Descent uses coordinates that keep lengths and leave out the direction that does not change softmax. Gradients of the loss sum
to zero over classes, and descent that starts at zero never leaves that subspace. So

    W = (Q Z)ᵀ,   Q (C, k) with QᵀQ = I and Qᵀ1 = 0 (Helmert),   Z (k, D),   k = C − 1

loses nothing, and ⟨W, W'⟩ = ⟨Z, Z'⟩: quasi-Newton algebra on Z is the algebra on W. With B (k, k), B[c] = Q[c + 1] − Q[0]:

    contrasts of W, as a sweep takes them            K = B Z
    a gradient as a sweep returns it, G̃ (k, D)       dF/dZ = Bᵀ G̃
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import helmert

from labelchef.base.arrays import Float64s


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


def with_reference(A: Any) -> Any:
    """(n, k) → (n, C): row values with the zero of class 0 put back.

    >>> with_reference(np.array([[2.0, 5.0]])).tolist()
    [[0.0, 2.0, 5.0]]
    """
    return np.hstack([np.zeros_like(A[:, :1]), A])


@dataclass(frozen=True)
class Coordinates:
    """The change between W (D, C) and Z (k, D).

    >>> at = Coordinates(3)
    >>> Z = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> W = at.parameters(Z)
    >>> bool(np.allclose(W.sum(axis=1), 0)), bool(np.isclose(np.vdot(W, W), np.vdot(Z, Z)))
    (True, True)
    """

    n_classes: int

    @cached_property
    def Q(self) -> Float64s:  # noqa: N802
        """(C, k), orthonormal columns that sum to zero."""
        return np.ascontiguousarray(helmert(self.n_classes).T)

    @cached_property
    def B(self) -> Float64s:  # noqa: N802
        """(k, k), classes against class 0."""
        return np.ascontiguousarray(self.Q[1:] - self.Q[:1])

    def parameters(self, Z: Float64s) -> Float64s:
        """Z (…, k, D) → W (…, D, C)."""
        return np.asarray(np.swapaxes(self.Q @ Z, -1, -2))
