"""Real data sets with labelling functions: a folder each, with embeddings, a vote matrix and true labels."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.io.weak import vote_shares

SETS = {
    "youtube_wrench": ("comments", "label", 2),
    "trec_rules": ("questions", "label", 6),
    "airline_twitter": ("tweets", "agg_label", 3),
}


@dataclass(frozen=True)
class RealData:
    X: NDArray[np.float32]
    Y_weak: NDArray[np.float64]
    y: NDArray[np.int64]
    X_val: NDArray[np.float32]
    y_val: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    n_classes: int


def load(folder: Path, name: str) -> RealData:
    stem, label, n_classes = SETS[name]
    table = pd.read_parquet(folder / name / f"{stem}.parquet", columns=[label, "split"])
    X = np.load(folder / name / f"{stem}_minilm_f16.npy").astype(np.float32)
    votes = np.load(folder / name / "lf_matrix.npz")["L"].astype(np.int64)
    y = table[label].to_numpy(dtype=np.int64)
    train, val, test = (table["split"].str.startswith(s).to_numpy() for s in ("train", "val", "test"))
    weak = vote_shares(votes[train], n_classes)
    return RealData(X[train], weak, y[train], X[val], y[val], X[test], y[test], n_classes)
