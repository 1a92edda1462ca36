"""The data sets of the experiments: real features, weak labels, and people who answer.

Weak labels are what a set has, labelling functions or one crowd worker's vote, else random, as the paper's are for its
image sets. People are votes of the crowd that the weak labels have not used; where there are none, simulated
annotators who err on 5 % of the items, each for themselves. `draw` gives such a problem.

`sourced` gives the problem of the scoreboard instead: the votes of every source by themselves, trusted samples of a wanted
number, and a test part that is the same for all numbers of trusted samples. There answers are the reference labels.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks import real
from benchmarks.shapes import Data
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from labelchef.base.records import UNRESOLVED
from labelchef.base.settings import voters_of
from labelchef.loop.annotators import Annotator, CallableAnnotator, RecordedVotes, SimulatedAnnotators, make_strategy

ERROR_RATE = 0.05
NO_VOTE = -2
"""In a table of answers: nobody was asked. −1 is the answer 'ambiguous'."""
PEOPLE = 3
COMPONENTS = 64
MOST_TRUSTED = 300
"""Samples of the trusted part that `sourced` keeps for training: the test part begins after them, whatever is asked for."""
LEAST_TEST = 150
"""So many samples of the trusted part are tested on at least; where that leaves too few, training samples are trusted too."""


@dataclass(frozen=True)
class Source:
    """A data set and how it is read.

    `l2` is for the paper's experiments: of 1e-4 … 1e-1, the best for the validation macro-F1 before any cleaning (three
    seeds). Random weak labels tell nothing there, so those sets have 0.001 (rows of unit length) or 0.01.
    """

    folder: str
    read: Callable[[Path], real.Pool]
    l2: float
    weak: str
    people: str
    answers: Callable[[Path, real.Pool], NDArray[np.int64]] | None = None
    """Votes (n, people) of the whole pool; None for simulated people."""


@dataclass(frozen=True)
class Problem:
    """A training problem and the answers (N, people) of its people, None where they are simulated."""

    data: Data
    answers: NDArray[np.int64] | None

    @property
    def n_classes(self) -> int:
        """Classes."""
        return int(self.data.Y_weak.shape[1])

    def annotator(self, strategy: str, seed: int) -> Annotator:
        """Who votes under one of the paper's strategies; 'two' asks nobody. 'none': nobody has an answer."""
        if strategy == "none":
            return CallableAnnotator(lambda batch: np.full(len(batch), UNRESOLVED))
        n_people, _ = voters_of(strategy)
        return make_strategy(strategy, self._people(n_people, seed) if n_people else None)

    def _people(self, n_people: int, seed: int) -> Annotator:
        if self.answers is None:
            rates = (ERROR_RATE,) * n_people
            return SimulatedAnnotators(self.data.y, n_classes=self.n_classes, error_rates=rates, seed=seed)
        asked = self.answers[:, :n_people]
        items, people = np.nonzero(asked != NO_VOTE)
        votes = zip(items.tolist(), people.tolist(), asked[items, people].tolist(), strict=True)
        return RecordedVotes([(item, f"person {person + 1}", label) for item, person, label in votes])


def _pneumonia(folder: Path) -> real.Pool:
    """Chest X-rays of 28 × 28 pixels; the leading principal components of the training images."""
    images = np.load(folder / "pneumoniamnist.npz")
    parts = ("train", "val", "test")
    X = np.concatenate([images[f"{part}_images"] for part in parts]).reshape(-1, 28 * 28).astype(np.float64) / 255
    y = np.concatenate([images[f"{part}_labels"] for part in parts]).astype(np.int64)
    n_train = len(images["train_labels"])
    X -= X[:n_train].mean(axis=0)
    _, axes = np.linalg.eigh(X[:n_train].T @ X[:n_train])
    # eigh fixes an axis up to its sign; the model does not mind, but a file of results should not either
    axes = axes[:, ::-1][:, :COMPONENTS]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(COMPONENTS)])
    return real.Pool((X @ axes).astype(np.float32), None, y, np.arange(len(y)) >= n_train, 2)


def _digits(_: Path) -> real.Pool:
    bunch = load_digits()
    trusted = np.random.default_rng(2021).random(len(bunch.target)) < 0.4
    return real.Pool((bunch.data / 16).astype(np.float32), None, bunch.target.astype(np.int64), trusted, 10)


def _one_vote(folder: Path) -> real.Pool:
    pool = real.SETS["cifar10n"](folder)
    assert pool.votes is not None
    return replace(pool, votes=pool.votes[:, :1])


def _cifar_answers(folder: Path, pool: real.Pool) -> NDArray[np.int64]:
    votes = real.SETS["cifar10n"](folder).votes
    assert votes is not None
    rng = np.random.default_rng(2021)
    errs, other = rng.random(len(pool.y)) < ERROR_RATE, rng.integers(1, 10, len(pool.y))
    third = np.where(errs, (pool.y + other) % 10, pool.y)
    return np.column_stack([np.where(votes[:, 1:] < 0, NO_VOTE, votes[:, 1:]), third])


def _sentiment_answers(folder: Path, pool: real.Pool) -> NDArray[np.int64]:
    votes = pd.read_parquet(folder / "votes.parquet")
    return real.crowd_matrix(votes, len(pool.y), keep=PEOPLE, skip=1, empty=NO_VOTE)


def _fact_answers(folder: Path, pool: real.Pool) -> NDArray[np.int64]:
    known = (pd.read_parquet(folder / "facts.parquet", columns=["mv"])["mv"] >= 0).to_numpy()
    votes = pd.read_parquet(folder / "votes.parquet")
    first = votes.index[votes["vote"] < 2][~votes.loc[votes["vote"] < 2, "item"].duplicated()]
    others = votes.drop(index=first)  # the first vote that is no skip is the weak label
    others = others.assign(vote=others["vote"].where(others["vote"] < 2, -1))
    answers = real.crowd_matrix(others, len(known), keep=PEOPLE, empty=NO_VOTE)[known]
    assert len(answers) == len(pool.y)
    return answers


def _airline_answers(folder: Path, pool: real.Pool) -> NDArray[np.int64]:
    table = pd.read_parquet(folder / "tweets.parquet", columns=["vote_0", "vote_1", "vote_2"])
    votes = table.to_numpy(dtype=np.int64)
    votes = np.random.default_rng(2021).permuted(np.where(votes < 0, NO_VOTE, votes), axis=1)
    assert len(votes) == len(pool.y)
    # those asked come first, so that a strategy with two people has two where two are known
    return np.asarray(np.take_along_axis(votes, np.argsort(votes == NO_VOTE, axis=1, kind="stable"), axis=1))


def _vader_answers(folder: Path, pool: real.Pool) -> NDArray[np.int64]:
    rng = np.random.default_rng(2021)
    ratings = pd.read_parquet(folder / "tweets.parquet", columns=["ratings"])["ratings"]
    drawn = np.array([rng.choice(np.asarray(given), PEOPLE, replace=False) for given in ratings])
    assert len(drawn) == len(pool.y)
    return np.where(drawn == 0, -1, (drawn > 0).astype(np.int64))


_SIMULATED = "three simulated, 5 % errors each"
SOURCES = {
    "youtube_wrench": Source(
        "youtube_wrench", real.SETS["youtube_wrench"], 1e-3, "10 labelling functions", _SIMULATED
    ),
    "trec_rules": Source("trec_rules", real.SETS["trec_rules"], 1e-4, "68 rules", _SIMULATED),
    "airline_twitter": Source(
        "airline_twitter", real.SETS["airline_twitter"], 1e-3, "24 labelling functions",
        "the crowd's three judgments, those that are known; the reference is their aggregate", _airline_answers,
    ),
    "cifar10n": Source(
        "cifar10n", _one_vote, 1e-2, "one crowd vote", "two other crowd votes, and one simulated person, 5 % errors",
        _cifar_answers,
    ),
    "sentiment_polarity_mturk": Source(
        "sentiment_polarity_mturk", real.SETS["sentiment_polarity_mturk"], 1e-3, "one crowd vote",
        "three other crowd votes", _sentiment_answers,
    ),
    "fact_google_relations": Source(
        "fact_google_relations", real.SETS["fact_google_relations"], 1e-4, "one crowd vote",
        "three other crowd votes, a skip being 'ambiguous'; the reference is the majority of all five", _fact_answers,
    ),
    "vader_icwsm14": Source(
        "vader_icwsm14", real.SETS["vader_icwsm14"], 1e-3, "random", "three of its raters, a rating of 0 being 'ambiguous'",
        _vader_answers,
    ),
    "pneumonia": Source("medmnist", _pneumonia, 1e-2, "random", _SIMULATED),
    "digits": Source("", _digits, 1e-2, "random", _SIMULATED),
}  # fmt: skip
"""Name → how it is read. `digits` is part of scikit-learn: it stands in where there is no folder of data."""

REAL = tuple(name for name in SOURCES if name != "digits")


def sets_here() -> tuple[str, ...]:
    """The real sets that are in LABELCHEF_DATA, else the digits."""
    folder = real.data_folder()
    found = () if folder is None else tuple(name for name in REAL if (folder / SOURCES[name].folder).is_dir())
    return found or ("digits",)


@functools.cache
def _loaded(name: str, folder: Path) -> tuple[real.Pool, NDArray[np.int64] | None]:
    source = SOURCES[name]
    pool = source.read(folder / source.folder)
    return pool, None if source.answers is None else source.answers(folder / source.folder, pool)


def draw(
    name: str,
    seed: int,
    *,
    n_train: int,
    n_test: int,
    n_val: int | None = None,
    rounded: bool = False,
    standardised: bool = False,
) -> Problem:
    """The problem of a seed; every set is read once a process.

    `rounded` makes weak labels one-hot, `standardised` gives every feature mean 0 and variance 1 in training.
    """
    pool, answers = _loaded(name, Path(os.environ.get("LABELCHEF_DATA") or "."))
    drawn = drawn_from(pool, answers, seed, n_train=n_train, n_test=n_test, n_val=n_val)
    data = drawn.data
    if rounded:
        data = replace(data, Y_weak=np.eye(pool.n_classes)[data.Y_weak.argmax(axis=1)])
    if standardised:
        mean, spread = data.X.mean(axis=0), data.X.std(axis=0) + 1e-8
        data = replace(data, **{part: (getattr(data, part) - mean) / spread for part in ("X", "X_val", "X_test")})
    return replace(drawn, data=data)


def drawn_from(
    pool: real.Pool,
    answers: NDArray[np.int64] | None,
    seed: int,
    *,
    n_train: int,
    n_test: int,
    n_val: int | None = None,
) -> Problem:
    """The problem of a seed, from a whole set."""
    rng = np.random.default_rng([seed, 77])
    chosen = real.rows(pool, rng, n_train=n_train, n_val=n_val)
    chosen = replace(chosen, test=chosen.test[:n_test])
    return Problem(real.problem(pool, chosen, rng), None if answers is None else answers[chosen.train])


@dataclass(frozen=True)
class Sourced:
    """A problem with sources: votes are class ids, −1 where a source says nothing.

    Shapes: X (N, D), votes (N, J), y (N,); X_val (n_trusted, D), votes_val (n_trusted, J) or None where the sources cannot
    vote there, y_val (n_trusted,); X_test, y_test.
    """

    X: NDArray[np.float32]
    votes: NDArray[np.int64]
    y: NDArray[np.int64]
    X_val: NDArray[np.float32]
    votes_val: NDArray[np.int64] | None
    y_val: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    n_classes: int


def _census(folder: Path) -> real.Pool:
    """A table of people; every column with mean 0 and variance 1 over the training part."""
    table = np.load(folder / "census.npz")
    train = table["split"] == 0
    X = table["X"].astype(np.float64)
    X = (X - X[train].mean(axis=0)) / np.maximum(X[train].std(axis=0), 1e-3)
    return real.Pool(X.astype(np.float32), table["L"].astype(np.int64), table["y"].astype(np.int64), ~train, 2)


def _all_votes(folder: Path) -> real.Pool:
    """CIFAR-10N with its three votes of each image; they are anonymous, so each column is taken for a source."""
    return real.SETS["cifar10n"](folder)


def _named(votes: pd.DataFrame, worker: str, n: int) -> NDArray[np.int64]:
    """The first vote of every item, in the column of the worker who gave it: (n, workers)."""
    first = votes.drop_duplicates("item")
    workers = np.unique(first[worker])
    table = np.full((n, len(workers)), -1, dtype=np.int64)
    table[first["item"].to_numpy(), np.searchsorted(workers, first[worker])] = first["vote"]
    return table


def _sentiment_workers(folder: Path) -> real.Pool:
    pool = real.SETS["sentiment_polarity_mturk"](folder)
    return replace(pool, votes=_named(pd.read_parquet(folder / "votes.parquet"), "annotator", len(pool.y)))


def _fact_raters(folder: Path) -> real.Pool:
    pool = real.SETS["fact_google_relations"](folder)
    known = (pd.read_parquet(folder / "facts.parquet", columns=["mv"])["mv"] >= 0).to_numpy()
    votes = pd.read_parquet(folder / "votes.parquet")
    return replace(pool, votes=_named(votes[votes["vote"] < 2], "rater", len(known))[known])


def _digit_sources(folder: Path) -> real.Pool:
    """Five simulated sources: right on 85, 75, 65, 55 and 10 % of what they vote on, which is half of the samples."""
    pool = _digits(folder)
    rng = np.random.default_rng(2021)
    columns = []
    for accuracy in (0.85, 0.75, 0.65, 0.55, 0.1):
        wrong = (pool.y + rng.integers(1, 10, len(pool.y))) % 10
        said = np.where(rng.random(len(pool.y)) < accuracy, pool.y, wrong)
        columns.append(np.where(rng.random(len(pool.y)) < 0.5, said, -1))
    return replace(pool, votes=np.column_stack(columns))


@dataclass(frozen=True)
class Sources:
    """A set of the scoreboard: how it is read, its sources in words, and whether they vote on trusted samples too."""

    folder: str
    read: Callable[[Path], real.Pool]
    text: str
    everywhere: bool


SOURCED = {
    "youtube_wrench": Sources("youtube_wrench", real.SETS["youtube_wrench"], "10 labelling functions", True),
    "trec_rules": Sources("trec_rules", real.SETS["trec_rules"], "68 rules", True),
    "airline_twitter": Sources("airline_twitter", real.SETS["airline_twitter"], "24 labelling functions", True),
    "census": Sources("census", _census, "83 labelling functions", True),
    "cifar10n": Sources("cifar10n", _all_votes, "3 crowd votes on every sample", False),
    "sentiment_polarity_mturk": Sources(
        "sentiment_polarity_mturk", _sentiment_workers, "29 crowd workers, one vote on every sample", False
    ),
    "fact_google_relations": Sources(
        "fact_google_relations", _fact_raters, "57 raters, one vote on every sample", False
    ),
    "vader_icwsm14": Sources("vader_icwsm14", real.SETS["vader_icwsm14"], "one that votes at random", False),
    "pneumonia": Sources("medmnist", _pneumonia, "one that votes at random", False),
    "digits": Sources("", _digit_sources, "5 simulated", True),
}
"""Name → set of the scoreboard; `digits` stands in where there is no folder of data."""


def sourced_here() -> tuple[str, ...]:
    """The sets of the scoreboard that are in LABELCHEF_DATA, else the digits."""
    folder = real.data_folder()
    names = [name for name in SOURCED if name != "digits"]
    found = () if folder is None else tuple(name for name in names if (folder / SOURCED[name].folder).is_dir())
    return found or ("digits",)


@functools.cache
def _pool_of(name: str, folder: Path) -> real.Pool:
    return SOURCED[name].read(folder / SOURCED[name].folder)


def sourced(name: str, seed: int, n_trusted: int, *, n_train: int = 8000, n_test: int = 5000) -> Sourced:
    """The scoreboard's problem of a seed: at most `n_train` training and `n_test` test samples."""
    pool = _pool_of(name, Path(os.environ.get("LABELCHEF_DATA") or "."))
    rng = np.random.default_rng([seed, 78])
    rows = sourced_rows(pool, rng, n_trusted)
    train, trusted, test = np.sort(rows.train[:n_train]), rows.val, rows.test[:n_test]
    if pool.votes is None:
        votes, votes_val = rng.integers(0, pool.n_classes, (len(train), 1)), None
    else:
        votes = pool.votes[train]
        votes_val = pool.votes[trusted] if SOURCED[name].everywhere else None
    X, y = pool.X, pool.y
    return Sourced(X[train], votes, y[train], X[trusted], votes_val, y[trusted], X[test], y[test], pool.n_classes)


def sourced_rows(pool: real.Pool, rng: np.random.Generator, n_trusted: int) -> real.Rows:
    """A random split with `n_trusted` trusted samples, which have every class.

    Of random orders the first is taken whose leading 30 (or `n_trusted`, if that is less) have every class. A larger number
    of trusted samples contains the smaller ones, and training and test part do not depend on it.
    """
    if not 0 < n_trusted <= MOST_TRUSTED:
        raise ValueError(f"n_trusted is {n_trusted}; expected 1 to {MOST_TRUSTED}")
    train, held = rng.permutation(np.flatnonzero(~pool.trusted)), rng.permutation(np.flatnonzero(pool.trusted))
    held = _with_every_class(held, pool.y, pool.n_classes, min(n_trusted, 30), rng)
    own = min(MOST_TRUSTED, len(held) - LEAST_TEST)
    trusted = np.concatenate([held[:own], train[: MOST_TRUSTED - own]])
    return real.Rows(train[MOST_TRUSTED - own :], trusted[:n_trusted], held[own:])


def _with_every_class(
    rows: NDArray[np.int64], y: NDArray[np.int64], n_classes: int, first: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The rows in a random order whose `first` ones have every class."""
    if first < n_classes or len(np.unique(y[rows])) < n_classes:
        raise ValueError(f"{first} of {len(rows)} samples; expected at least one of each of the {n_classes} classes")
    while len(np.unique(y[rows[:first]])) < n_classes:
        rows = rng.permutation(rows)
    return rows
