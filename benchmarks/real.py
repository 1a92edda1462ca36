"""Real data sets with embeddings, read from the folder LABELCHEF_DATA; a training problem for every seed.

Weak labels are what the set has: labelling functions, crowd votes; where it has neither, random ones, as in the paper.
Validation is drawn from the trusted part, the rest of it is test.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.shapes import Data
from labelchef.believe import vote_shares


@dataclass(frozen=True)
class Pool:
    """A data set before it is split: votes (n, sources) with −1 for none, or None; `trusted` marks the evaluation part."""

    X: NDArray[np.float32]
    votes: NDArray[np.int64] | None
    y: NDArray[np.int64]
    trusted: NDArray[np.bool_]
    n_classes: int
    n_val: int = 300


def data_folder() -> Path | None:
    """Where the data sets lie, if anywhere."""
    folder = Path(os.environ.get("LABELCHEF_DATA") or "no-such-folder")
    return folder if folder.is_dir() else None


def _labelling_functions(folder: Path, stem: str, label: str, n_classes: int) -> Pool:
    table = pd.read_parquet(folder / f"{stem}.parquet", columns=[label, "split"])
    votes = np.load(folder / "lf_matrix.npz")["L"].astype(np.int64)
    X = np.load(folder / f"{stem}_minilm_f16.npy").astype(np.float32)
    y = table[label].to_numpy(dtype=np.int64)
    trusted = ~table["split"].str.startswith("train").to_numpy()
    return Pool(X, votes, y, trusted, n_classes, n_val=min(300, int(trusted.sum()) // 2))


def crowd_matrix(votes: pd.DataFrame, n: int, *, keep: int, skip: int = 0, empty: int = -1) -> NDArray[np.int64]:
    """Votes (columns item, vote) as a table (n, keep): the first `keep` of each item after `skip`; `empty` for none."""
    table = np.full((n, keep), empty, dtype=np.int64)
    place = votes.groupby("item").cumcount().to_numpy() - skip
    inside = (place >= 0) & (place < keep)
    table[votes["item"].to_numpy()[inside], place[inside]] = votes["vote"].to_numpy()[inside]
    return table


def _cifar10n(folder: Path) -> Pool:
    labels = np.load(folder / "labels.npz")
    X = np.load(folder / "efflite0_128px_pca192_f16.npy").astype(np.float32)
    votes = np.full((60_000, 3), -1, dtype=np.int64)
    votes[:50_000] = labels["votes"]
    return Pool(X, votes, labels["clean"].astype(np.int64), np.arange(60_000) >= 50_000, 10)


def _sentiment(folder: Path) -> Pool:
    table = pd.read_parquet(folder / "sentences.parquet", columns=["label", "split"])
    votes = pd.read_parquet(folder / "votes.parquet")
    X = np.load(folder / "sentences_minilm_f16.npy").astype(np.float32)
    return Pool(
        X,
        crowd_matrix(votes, len(table), keep=1),
        table["label"].to_numpy(dtype=np.int64),
        (table["split"] == "test").to_numpy(),
        2,
    )


def _facts(folder: Path) -> Pool:
    table = pd.read_parquet(folder / "facts.parquet", columns=["mv"])
    votes = pd.read_parquet(folder / "votes.parquet")
    X = np.load(folder / "facts_minilm_f16.npy").astype(np.float32)
    matrix = crowd_matrix(votes[votes["vote"] < 2], len(table), keep=1)
    known = (table["mv"] >= 0).to_numpy()
    trusted = np.random.default_rng(2021).random(int(known.sum())) < 0.3
    return Pool(X[known], matrix[known], table["mv"].to_numpy(dtype=np.int64)[known], trusted, 2)


def _vader(folder: Path) -> Pool:
    table = pd.read_parquet(folder / "tweets.parquet", columns=["label"])
    X = np.load(folder / "tweets_minilm_f16.npy").astype(np.float32)
    y = table["label"].to_numpy().astype(np.int64)
    return Pool(X, None, y, np.random.default_rng(2021).random(len(y)) < 0.3, 2)


SETS: dict[str, Callable[[Path], Pool]] = {
    "youtube_wrench": lambda f: _labelling_functions(f, "comments", "label", 2),
    "trec_rules": lambda f: _labelling_functions(f, "questions", "label", 6),
    "airline_twitter": lambda f: _labelling_functions(f, "tweets", "agg_label", 3),
    "cifar10n": _cifar10n,
    "sentiment_polarity_mturk": _sentiment,
    "fact_google_relations": _facts,
    "vader_icwsm14": _vader,
}
"""Name of the folder → reader."""


def load(folder: Path, name: str) -> Pool:
    """Read a data set."""
    return SETS[name](folder / name)


@dataclass(frozen=True)
class Rows:
    """Rows of a pool, each once: trained on, validated on, tested on."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def rows(pool: Pool, rng: np.random.Generator, *, n_train: int | None = None, n_val: int | None = None) -> Rows:
    """A random split: of the trusted samples, `n_val` (the pool's own number, if None) validate and the rest tests."""
    train, held = rng.permutation(np.flatnonzero(~pool.trusted)), rng.permutation(np.flatnonzero(pool.trusted))
    n_val = pool.n_val if n_val is None else n_val
    return Rows(np.sort(train[:n_train]), held[:n_val], held[n_val:])


def split(pool: Pool, seed: int, n_train: int | None = None, n_val: int | None = None) -> Data:
    """A training problem: trusted samples go to validation and test, the others are trained on."""
    rng = np.random.default_rng([seed, 77])
    return problem(pool, rows(pool, rng, n_train=n_train, n_val=n_val), rng)


def problem(pool: Pool, chosen: Rows, rng: np.random.Generator) -> Data:
    """The rows with their weak labels: shares of the votes, or drawn at random where there are none."""
    if pool.votes is None:
        weak: NDArray[Any] = rng.dirichlet(np.ones(pool.n_classes), len(chosen.train))
    else:
        weak = vote_shares(pool.votes[chosen.train], pool.n_classes)
    X, y = pool.X, pool.y
    return Data(X[chosen.train], weak, y[chosen.train], X[chosen.val], y[chosen.val], X[chosen.test], y[chosen.test])
