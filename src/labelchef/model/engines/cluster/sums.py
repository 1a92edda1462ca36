"""Sums of large matrices that do not depend on who adds which.

Floating-point sums depend on their order. So that a worker can add the matrices of its parts and send one, each matrix G of a
part is rounded to a multiple of 2^(e − 48), 2^e above its largest entry, e a multiple of 4, and matrices of the same e are added
as whole numbers, which is exact:

    I_e = Σ_parts with this e  round(G · 2^(48 − e))   (int64: up to 2^15 parts),       Σ G = Σ_e I_e 2^(e − 48)   e ascending

The rounding is 2⁻⁴⁹ of the largest entry at least: of a Gram matrix in float32 that is nothing.
"""

from collections.abc import Iterable

import numpy as np

from labelchef.base.arrays import Float64s, Ints

Rounded = dict[int, Ints]
"""e → the sum of whole numbers."""

_DIGITS, _STEP = 48, 4


def rounded(G: Float64s, total: Rounded) -> Rounded:
    """Add a matrix to the sums; they are changed.

    >>> total = rounded(np.array([0.5, -3.0]), rounded(np.array([1.0, 2.0]), {}))
    >>> added([total]).tolist(), sorted(total)
    ([1.5, -1.0], [4])
    """
    largest = float(np.abs(G).max(initial=0.0))
    e = 0 if largest == 0.0 else -(-int(np.frexp(largest)[1]) // _STEP) * _STEP
    whole = np.rint(np.ldexp(G, _DIGITS - e)).astype(np.int64)
    total[e] = whole if e not in total else total[e] + whole
    return total


def added(totals: Iterable[Rounded]) -> Float64s:
    """The sum of what workers have added."""
    every: Rounded = {}
    for total in totals:
        for e, whole in total.items():
            every[e] = whole if e not in every else every[e] + whole
    return np.asarray(sum(np.ldexp(every[e].astype(np.float64), e - _DIGITS) for e in sorted(every)))
