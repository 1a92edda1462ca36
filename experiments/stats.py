"""What tables are made of: intervals over seeds, ranks, labels needed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from scipy.stats import t as student

from labelchef.judge.gain import labels_to_reach as labels_to_reach


@dataclass(frozen=True)
class Estimate:
    """A mean, and half the width of its 95 % interval (NaN for a single value)."""

    mean: float
    half: float
    n: int

    def text(self, digits: int = 3, sign: bool = False, best: float | None = None) -> str:
        """As tables show it; in bold if it is the best.

        >>> Estimate(0.91234, 0.0042, 10).text(), Estimate(0.5, float("nan"), 1).text(2), Estimate(0.1, 0.02, 3).text(2, True)
        ('0.912 ± 0.004', '0.50', '+0.10 ± 0.02')
        """
        if self.n == 0:
            return "–"
        mean = f"{self.mean:{'+' if sign else ''}.{digits}f}"
        shown = mean if np.isnan(self.half) else f"{mean} ± {self.half:.{digits}f}"
        return f"**{shown}**" if best is not None and abs(best - self.mean) < 1e-9 else shown


def estimate(values: Any) -> Estimate:
    """Mean with Student's interval.

    >>> estimate([1.0, 2.0, 3.0]).text(2)
    '2.00 ± 2.48'
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    if n == 0:
        return Estimate(float("nan"), float("nan"), 0)
    half = float(student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Estimate(float(values.mean()), half, n)


def mean_ranks(frame: pd.DataFrame, value: str) -> pd.DataFrame:
    """Mean rank over data sets of every method: columns method, and one row a seed for each.

    Within a data set and seed methods are ranked by `value`, the largest first, ties sharing their mean rank; ranks are
    then averaged over the data sets. Data sets and seeds that lack a method are left out for all.
    """
    table = frame.pivot_table(index=["seed", "data"], columns="method", values=value).dropna()
    ranks = pd.DataFrame(rankdata(-table.to_numpy(), axis=1), index=table.index, columns=table.columns)
    return ranks.groupby(level="seed").mean()
