"""Columns that tell the label: a single column from which the labels of trusted rows follow with almost no error.

Such a column was mostly written together with the label (the reason for it, how sure people were), so it is not known of new
rows. n trusted rows; each is predicted from the others by this column alone,

    few values      the class of most other rows with the same value; a missing cell is a value
    numbers         the class of the row with the nearest number

and of n predictions e are wrong. The column tells the label if e ≤ n/50, the upper 95 % limit of the error, for which
P[Binomial(n, p) ≤ e] = 0.05, is at most 0.1, and naming the largest class is wrong more often than that.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import beta

from labelchef.data.intake.profiles import numbers_of

_WORST, _ERRORS = 0.1, 0.02


def enough(labels: Sequence[str]) -> bool:
    """Whether there are enough trusted rows, of more than one class, to find such a column."""
    n = len(labels)
    return n > 0 and _upper(0, n) <= _WORST and max(Counter(labels).values()) <= (1 - _WORST) * n


def rows_told(cells: Sequence[Any], labels: Sequence[str]) -> int | None:
    """The number of rows whose label follows from a column; None for a column that does not tell the label.

    >>> rows_told(["", "late"] * 20, ["good", "bad"] * 20), rows_told(["", "late"] * 20, ["good", "bad", "bad", "good"] * 10)
    (40, None)
    """
    n = len(labels)
    if not enough(labels):
        return None
    missing = [cell is None or cell != cell or cell == "" for cell in cells]
    values = ["" if gone else str(cell) for cell, gone in zip(cells, missing, strict=True)]
    wrong = _wrong_by_value(values, labels)
    if len(set(values)) > n / 4:
        numbers = numbers_of(cells)
        if not np.isnan(numbers).any():
            wrong = min(wrong, _wrong_by_neighbour(numbers, labels))
    return n - wrong if wrong <= _ERRORS * n and _upper(wrong, n) <= _WORST else None


def _upper(wrong: int, n: int) -> float:
    return float(beta.ppf(0.95, wrong + 1, n - wrong)) if wrong < n else 1.0


def _wrong_by_value(values: Sequence[str], labels: Sequence[str]) -> int:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for value, label in zip(values, labels, strict=True):
        counts[value][label] += 1
    wrong = 0
    for held in counts.values():
        for label, count in held.items():  # of the others with this value, most must have the same label
            rivals = max((other for name, other in held.items() if name != label), default=0)
            wrong += count if count - 1 <= rivals else 0
    return wrong


def _wrong_by_neighbour(numbers: np.ndarray[Any, np.dtype[np.float64]], labels: Sequence[str]) -> int:
    order = np.argsort(numbers, kind="stable")
    gaps = np.append(np.append(np.inf, np.diff(numbers[order])), np.inf)
    named = [labels[k] for k in order.tolist()]
    nearest = [k - 1 if before <= after else k + 1 for k, (before, after) in enumerate(pairwise(gaps.tolist()))]
    return sum(named[k] != named[other] for k, other in enumerate(nearest))
