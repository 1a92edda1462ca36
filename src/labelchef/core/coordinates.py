"""Parameters without the direction that does not change softmax, in coordinates that keep lengths.

Gradients of the loss sum to zero over classes, and descent that starts at zero never leaves that subspace. So

    W = (Q Z)ᵀ,   Q (C, k) with QᵀQ = I and Qᵀ1 = 0 (Helmert),   Z (k, D),   k = C − 1

loses nothing, and ⟨W, W'⟩ = ⟨Z, Z'⟩: quasi-Newton algebra on Z is the algebra on W. With B (k, k), B[c] = Q[c + 1] − Q[0]:

    contrasts of W, as a sweep takes them            K = B Z
    a gradient as a sweep returns it, G̃ (k, D)       dF/dZ = Bᵀ G̃
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import helmert

from labelchef.domain.arrays import Float64s


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

    def contrasts(self, Z: Float64s) -> Float64s:
        """Z → K (k, D)."""
        return self.B @ Z

    def gradient(self, G: Float64s) -> Float64s:
        """G̃ (k, D) → dF/dZ."""
        return self.B.T @ G
