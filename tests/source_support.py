"""A small campaign whose weak labels come from sources: a good one, one that is wrong nearly always, and many of one vote."""

from typing import Any

import numpy as np
import pandas as pd

from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from tests.store_support import CLASSES, small_data, truth_of

GOOD, WRONG, FORMULA = "lexicon", "always wrong", "=coin()"


def voted(n: int, seed: int = 0, rare: int = 0) -> pd.DataFrame:
    """Votes of the sources on samples of the classes truth_of(n); `rare` further sources vote on two samples each."""
    rng, y, C = np.random.default_rng([seed, 5]), truth_of(n, seed), len(CLASSES)
    right = {GOOD: 0.9, WRONG: 0.03, FORMULA: 1 / C}
    votes: dict[str, list[str | None]] = {}
    for name, share in right.items():
        said = np.where(rng.random(n) < share, y, (y + rng.integers(1, C, n)) % C)
        votes[name] = [CLASSES[k] if speaks else None for k, speaks in zip(said, rng.random(n) < 0.8, strict=True)]
    for k in range(rare):
        votes[f"worker {k}"] = [CLASSES[y[i]] if i in (k, k + 1) else None for i in range(n)]
    return pd.DataFrame(votes)


def sourced_data(n_train: int = 60, n_val: int = 30, **options: Any) -> CampaignData:
    """The samples of `small_data`, with votes of sources in the place of weak labels."""
    plain = small_data(n_train, n_val)
    votes = voted(n_train + n_val, **options)
    return CampaignData.of(
        plain.X, None, votes=votes[:n_train], votes_val=votes[n_train:].reset_index(drop=True), X_val=plain.validation[0],
        y_val=[CLASSES[k] for k in plain.validation[1]], classes=CLASSES,
        contents=Contents(pd.DataFrame({"text": [f"text {k}" for k in range(n_train)]})),
    )  # fmt: skip
