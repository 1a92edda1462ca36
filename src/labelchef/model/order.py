"""Which samples come first: the smallest scores, those that rounding cannot tell apart in a fixed order.

On another processor, with other threads or libraries a score differs in its last digits: by 1e-7 of the scale where a solver
makes some of its sweeps in single precision. Samples whose scores are equal in exact arithmetic (copies of each other, say) would
then come in any order. So with sorted scores s_1 ≤ s_2 ≤ …, neighbours that differ by no more than

    s_{k+1} − s_k ≤ ε · scale,        scale = max_i |s_i| over the finite scores, unless it is given

are tied, and tied samples come in order of their index. A group that reaches beyond the last place is cut at ε · scale after it.

Shapes: scores (N,), infinite where a sample cannot be chosen.
"""

from dataclasses import dataclass, field

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints

TIE = 1e-6
"""ε: a difference of scores that does not count, relative to their scale."""


@dataclass(frozen=True)
class Ties:
    """What is tied, and which samples come first among the tied ones: those of `first` in their order, then by index.

    A replay asks with the samples of the ledger as `first`: it gets them if the scores differ by no more than `tolerance`.
    """

    tolerance: float = TIE
    first: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def order(self, groups: Ints, rows: Ints) -> Ints:
        """Places of rows by group, then by preference, then by index.

        >>> Ties(first=np.array([9])).order(np.array([0, 1, 1]), np.array([4, 7, 9])).tolist()
        [0, 2, 1]
        """
        preference = np.full(len(rows), len(self.first))
        place = {int(row): n for n, row in enumerate(self.first)}
        if place:
            preference = np.array([place.get(row, len(place)) for row in rows.tolist()], dtype=np.int64)
        return np.lexsort((rows, preference, groups))

    def best(self, scores: Float64s, rows: Ints, among: Bools) -> int:
        """The place of the smallest score among some places; tied ones by preference and row.

        >>> Ties().best(np.array([-2.0, -2.0 - 1e-9, -1.0]), np.array([3, 5, 1]), np.array([True, True, True]))
        0
        """
        low = float(scores[among].min())
        tied = np.flatnonzero(among & (scores <= low + self.tolerance * abs(low)))
        return int(tied[self.order(np.zeros(len(tied), dtype=np.int64), rows[tied])[0]])

    def most_probable(self, P: Float64s) -> Ints:
        """(n,) the class of the largest probability of every row of P (n, C); of tied ones the first.

        >>> Ties().most_probable(np.array([[0.5 - 1e-9, 0.5 + 1e-9], [0.2, 0.8]])).tolist()
        [0, 1]
        """
        return np.asarray((P.max(axis=1, keepdims=True) - self.tolerance <= P).argmax(axis=1), dtype=np.int64)


BY_INDEX = Ties()
"""Tied samples by their index alone."""


def smallest(
    scores: Float64s, count: int, ties: Ties = BY_INDEX, *, scale: float | None = None, rows: Ints | None = None
) -> Ints:
    """Places of the `count` smallest finite scores in order; tied ones in order of `rows`, which are their places if not given.

    >>> smallest(np.array([3.0, 1.0, np.inf, 1.0 - 1e-9, 1.0]), 2).tolist()
    [1, 3]
    """
    found, _ = grouped(scores, count, ties, scale=scale, rows=rows)
    return found[:count]


def grouped(
    scores: Float64s, count: int, ties: Ties = BY_INDEX, *, scale: float | None = None, rows: Ints | None = None
) -> tuple[Ints, Ints]:
    """Places in order, and the number of the group each is in: the `count` smallest, and all that are tied with the last."""
    count = min(count, int(np.isfinite(scores).sum()))
    if count == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    slack = ties.tolerance * (magnitude(scores) if scale is None else scale)
    inside = np.flatnonzero(scores <= np.partition(scores, count - 1)[count - 1] + slack)
    inside = inside[np.argsort(scores[inside], kind="stable")]
    groups = np.concatenate([[0], np.cumsum(np.diff(scores[inside]) > slack)])
    order = ties.order(groups, inside if rows is None else rows[inside])
    kept = groups[order] <= groups[count - 1]
    return np.asarray(inside[order][kept], dtype=np.int64), np.asarray(groups[order][kept], dtype=np.int64)


def magnitude(scores: Float64s) -> float:
    """The largest absolute value of the finite scores; 0 if there are none.

    >>> magnitude(np.array([-3.0, 1.0, np.inf]))
    3.0
    """
    return float(np.abs(scores, where=np.isfinite(scores), out=np.zeros(len(scores))).max(initial=0.0))
