"""Snuba: heuristics that are written automatically from the trusted rows.

P. Varma, C. Ré: Snuba: Automating Weak Supervision to Label Training Data. PVLDB 12(3):223-236, 2018. Own implementation.

m trusted rows have a class y (m,), n training rows have none; both have p *primitives* (`Primitives`): presence of words, columns
of a table, columns of an encoded block. C classes. Three parts repeat until one of them ends the run:

**Synthesiser.** For every class c and every subset of at most D primitives a small model is fitted on the trusted rows that
are still in doubt (all of them at first): a decision tree of depth |subset| (a stump for D = 1, in closed form), logistic
regression, or nearest neighbours. It gives P(y = c | x), and the heuristic votes

    h(x) = c                    if P(y = c | x) ≥ 1/2 + β
           the other class      if P(y = c | x) ≤ 1/2 − β,  two classes only
           nothing              else

β of 0, 0.05, …, 0.45 is the one with the best F1 on these rows; rows without a vote count as missed in the recall. More than
two classes are one against the rest, and "not c" is no vote. *Another choice than the paper's:* the absence of a word is no
vote, so heuristics over words are rules that people can read ("subscribe" → spam); `absent_votes` gives the paper's form. A row
that lacks a value of the subset (NaN) gets no vote.

**Pruner.** The candidate with the largest  w F1 + (1 − w) (1 − Jaccard)  is committed. F1 is over all trusted rows, Jaccard
that of the training rows which the candidate votes on and those which the committed heuristics vote on; w = 1/2. F1 alone takes
frequent words that mean nothing, so (not in the paper) a candidate must be better on trusted rows than the class shares f,

    P(Binomial(n_h, Σ_v n_hv f(v) / n_h) ≥ k_h) ≤ doubt,     n_h votes of it on trusted rows, n_hv of them for v, k_h right.

**Verifier.** A label aggregator learns the accuracies α (M,) of the M committed heuristics from their votes λ on training rows:

    P(λ_ij | y_i = c) ∝ α_j if λ_ij = c, else (1 − α_j)/(C − 1);    q_i(c) ∝ Π_{j votes} P(λ_ij | c)
    J(α) = Σ_i log (1/C) Σ_c Π_j P(λ_ij | c) + Σ_j [a log α_j + b log(1 − α_j)],    α_j = (Σ_i q_i(λ_ij) + a) / (n_j + a + b)

with a = 7 and b = 3 votes cast before, and α_j kept in 1/2 to 0.98 (heuristics are better than a coin: the assumption of data
programming); an alternation never lowers J. All classes are equally probable before the votes: a
heuristic that is alone on its rows then keeps its accuracy, where other shares would drive it to 0 or 1. Trusted rows with
max_c q_i(c) ≤ 1/2 + ν are in doubt, ν = 1/2 − (M + 1)^(−3/2), and the synthesiser goes on with them. For two classes this is the
paper's |q − 1/2| ≤ ν.

**The end** (`Ending`): no trusted row is in doubt; no candidate is better than chance; `most` heuristics are there; or the
accuracies that the aggregator learned are too far from those on trusted rows, α̂ = (right + a)/(cast + a + b), for the
guarantee of the paper's Proposition 1,

    max_j |α̂_j − α_j| > ε,    ε = γ − sqrt(log(2 M² / δ) / (2 N)),    N: fewest training rows that a heuristic votes on.

Then the heuristic that broke it is taken back. γ = 0.75 is loose: words have few votes, and with a small γ none gets through.

**Votes on trusted rows.** Heuristics were fitted to the trusted rows and chosen by them, so their own votes there look better
than they are: of 500 words without any meaning, the best looks good on 100 rows. `write_heuristics` therefore runs everything
again without each of K folds (synthesis, choice of primitives and β, pruning, verification). The votes of the source "the r-th
heuristic for class c" on fold k are those of the r-th heuristic for class c in the run without fold k; it is silent
where that run has none. So the votes on trusted rows say how good the r-th heuristic of this *procedure* is. They
do not say it of this very word, and coverage may differ between runs. What stays: votes on *training* rows come from all trusted
rows. A cross-validation over trusted rows that learns from these votes sees a little of its held-out labels, so it may
value Snuba too much. `docs/automatic-sources.md` shows how much.

Bounds: candidates of more than one primitive are made from the `widest` primitives that are best alone; Jaccard is taken over
at most `scored_rows` training rows, drawn once.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import Progress, no_progress

BETAS = np.arange(0, 10) * 0.05
KINDS = ("tree", "logistic", "neighbours")
NO_VOTE = -1

_BEFORE_RIGHT, _BEFORE_WRONG = 7.0, 3.0
_ACCURACIES = 0.5, 0.98
_CUTS = 15
_FIRST = 3


@dataclass(frozen=True)
class Primitives:
    """What heuristics look at, on the trusted and the training rows."""

    names: tuple[str, ...]
    """(p,)"""
    trusted: NDArray[Any]
    """(m, p) numbers, NaN where a value is missing."""
    train: NDArray[Any]
    """(n, p)"""
    presence: Bools
    """(p,) columns of 0 and 1 that say whether something is there, such as a word."""

    def __post_init__(self) -> None:
        p = len(self.names)
        if self.presence.shape != (p,):
            raise InvalidInputError(
                f"presence has shape {self.presence.shape}; expected ({p},), one for each name", code="primitives"
            )
        for what, array in (("trusted", self.trusted), ("train", self.train)):
            if array.ndim != 2 or array.shape[1] != p:
                raise InvalidInputError(
                    f"primitives of the {what} rows have shape {array.shape}; expected (rows, {p}), a column for each name",
                    code="primitives",
                )
            if array.dtype.kind == "f" and np.isinf(array).any():
                raise InvalidInputError(
                    f"primitives of the {what} rows have infinite values; expected numbers, or NaN where one is missing",
                    code="primitives",
                )

    def without(self, rows: Bools) -> "Primitives":
        """The same with the trusted rows of a mask left out."""
        return Primitives(self.names, self.trusted[~rows], self.train, self.presence)


@dataclass(frozen=True)
class SnubaOptions:
    """How heuristics are made; the letters are those of the module's header."""

    kinds: tuple[str, ...] = ("tree",)
    """Of `KINDS`."""
    largest: int = 1
    """D: most primitives of a heuristic."""
    weight: float = 0.5
    """w"""
    most: int = 25
    """Most heuristics."""
    gamma: float = 0.75
    delta: float = 0.1
    least_trusted: int = 3
    """A heuristic votes on at least so many trusted rows."""
    least_coverage: float = 0.01
    """… and on this share of the training rows."""
    doubt: float = 0.1
    """Largest probability that a heuristic is as good by chance; 1 for the paper's form."""
    widest: int = 30
    scored_rows: int = 5000
    folds: int = 5
    """K; 0 withholds the votes on trusted rows."""
    absent_votes: bool = False
    """Whether the absence of a word may be a vote."""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise InvalidInputError(f"kinds is {self.kinds}; expected some of: {', '.join(KINDS)}", code="kinds")
        if self.largest < 1 or self.most < 1 or self.folds < 0 or self.folds == 1 or not 0 <= self.weight <= 1:
            raise InvalidInputError(
                f"largest is {self.largest}, most {self.most}, folds {self.folds}, weight {self.weight}; "
                "expected largest and most from 1, folds 0 or from 2, weight in 0 to 1",
                code="snuba_options",
            )


class Ending(StrEnum):
    """Why a run ended."""

    SURE = "no trusted row is in doubt"
    NO_CANDIDATE = "no candidate is better than chance"
    MOST = "the largest number of heuristics is reached"
    DISAGREEMENT = "accuracies learned from training rows and seen on trusted rows differ too much"


class SmallModel(Protocol):
    """Gives P(y = c | x) from a few primitives."""

    def probability(self, values: Float64s) -> Float64s:
        """(n,) for the columns (n, d) of its primitives, without missing values."""
        ...


@dataclass(frozen=True)
class Stump:
    """A decision tree of depth 1."""

    cut: float
    below: float
    """P(y = c) where the value is at most `cut`."""
    above: float

    def probability(self, values: Float64s) -> Float64s:
        """(n,)"""
        return np.where(values[:, 0] > self.cut, self.above, self.below)


@dataclass(frozen=True)
class Estimator:
    """A model of scikit-learn."""

    fitted: Any

    def probability(self, values: Float64s) -> Float64s:
        """(n,)"""
        return np.asarray(self.fitted.predict_proba(values)[:, 1], dtype=np.float64)


@dataclass(frozen=True)
class Heuristic:
    """A small model with its threshold: votes for a class, or says nothing."""

    kind: str
    columns: tuple[int, ...]
    names: tuple[str, ...]
    positive: int
    negative: int | None
    """The class it votes for where P is small; None: no vote there."""
    model: SmallModel
    beta: float
    silent_absence: bool
    """Whether rows without any of the words get no vote."""
    f1: float = 0.0
    """On the trusted rows it was made from: too good, see the header."""

    def vote(self, primitives: NDArray[Any]) -> Ints:
        """(n,) class ids for rows of primitives (n, p), −1 for no vote."""
        P, speaks = _probability(self.model, primitives[:, list(self.columns)], self.silent_absence)
        positive, negative = _sides(P, np.float64(self.beta))
        votes = np.where(positive, self.positive, NO_VOTE)
        if self.negative is not None:
            votes = np.where(negative, self.negative, votes)
        return np.asarray(np.where(speaks, votes, NO_VOTE), dtype=np.int64)

    @property
    def key(self) -> tuple[str, tuple[int, ...], int]:
        """What tells candidates of a run apart."""
        return self.kind, self.columns, self.positive

    def text(self, classes: Sequence[str]) -> str:
        """In words, for the name of a source."""
        what = " + ".join(self.names)
        if isinstance(self.model, Stump) and not self.silent_absence:
            what = f"{what} {'>' if self.model.above > self.model.below else '≤'} {self.model.cut:.4g}"
        otherwise = "" if self.negative is None else f", else {classes[self.negative]}"
        return f"{what} → {classes[self.positive]}{otherwise}"


@dataclass(frozen=True)
class Aggregate:
    """What the label aggregator learned."""

    n_classes: int
    accuracy: Float64s
    """(M,) α"""
    objective: tuple[float, ...]
    """J after each alternation: it never falls."""

    def beliefs(self, votes: Ints) -> Float64s:
        """(n, C) for votes (n, M); all classes alike where nothing votes."""
        return _posterior(votes, self.accuracy, self.n_classes)[0]


@dataclass(frozen=True)
class Run:
    """One run of Snuba: heuristics in the order in which they were committed."""

    heuristics: tuple[Heuristic, ...]
    aggregate: Aggregate
    ending: Ending
    in_doubt: tuple[int, ...]
    """Trusted rows in doubt after each iteration."""

    def votes(self, primitives: NDArray[Any]) -> Ints:
        """(n, M)"""
        if not self.heuristics:
            return np.full((len(primitives), 0), NO_VOTE, dtype=np.int64)
        return np.column_stack([one.vote(primitives) for one in self.heuristics])

    def slots(self) -> tuple[tuple[int, int], ...]:
        """(M,) class c and rank r of each: the r-th heuristic for class c."""
        seen: dict[int, int] = {}
        found = []
        for one in self.heuristics:
            rank = seen.get(one.positive, 0)
            seen[one.positive] = rank + 1
            found.append((one.positive, rank))
        return tuple(found)


@dataclass(frozen=True)
class Written:
    """Heuristics with their votes."""

    run: Run
    names: tuple[str, ...]
    """(M,) of the sources."""
    train: Ints
    """(n, M)"""
    trusted: Ints
    """(m, M), cross-fitted; no votes where they are withheld."""
    train_beliefs: Float64s
    """(n, C) by the aggregator; NaN in rows without a vote."""
    trusted_beliefs: Float64s
    """(m, C), cross-fitted: each fold by the aggregator of the run without it; NaN in rows without a vote."""


def write_heuristics(
    primitives: Primitives,
    y: Ints,
    classes: Sequence[str],
    options: SnubaOptions | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Written:
    """Heuristics from trusted classes y (m,), with votes on both kinds of rows."""
    options = options or SnubaOptions()
    m, C = len(primitives.trusted), len(classes)
    _check(y, m, C)
    steps = options.folds + 1
    progress("writing heuristics", 0, steps)
    run = synthesise(primitives, y, C, options, seed)
    train = run.votes(primitives.train)
    trusted = np.full((m, len(run.heuristics)), NO_VOTE, dtype=np.int64)
    trusted_beliefs = np.full((m, C), np.nan)
    fold_of = folds(y, options.folds, seed) if options.folds else np.full(m, NO_VOTE)
    for k in range(options.folds):
        progress("writing heuristics", k + 1, steps)
        held = fold_of == k
        if not held.any() or held.all():
            continue
        other = synthesise(primitives.without(held), y[~held], C, options, seed)
        said = other.votes(primitives.trusted[held])
        places = {slot: j for j, slot in enumerate(other.slots())}
        for j, slot in enumerate(run.slots()):
            if slot in places:
                trusted[held, j] = said[:, places[slot]]
        trusted_beliefs[held] = _spoken(other.aggregate.beliefs(said), said)
    progress("writing heuristics", steps, steps)
    names = tuple(f"snuba {j + 1}: {one.text(classes)}" for j, one in enumerate(run.heuristics))
    return Written(run, names, train, trusted, _spoken(run.aggregate.beliefs(train), train), trusted_beliefs)


def synthesise(primitives: Primitives, y: Ints, n_classes: int, options: SnubaOptions, seed: int) -> Run:
    """One run from all trusted rows."""
    return _Synthesis(primitives, y, n_classes, options, np.random.default_rng([seed, 31])).run()


def folds(y: Ints, k: int, seed: int) -> Ints:
    """(m,) the fold 0 … k−1 of every row; rows of one class are spread evenly over the folds.

    >>> folds(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0).tolist()
    [0, 0, 1, 1, 1, 0]
    """
    rng = np.random.default_rng([seed, 32])
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    found = np.empty(len(y), dtype=np.int64)
    found[order] = np.arange(len(y)) % k
    return found


def aggregate(votes: Ints, n_classes: int, alternations: int = 100, tolerance: float = 1e-7) -> Aggregate:
    """Learn accuracies from votes (n, M), −1 for none."""
    voted = votes != NO_VOTE
    cast = voted.sum(axis=0)
    accuracy = np.full(votes.shape[1], _BEFORE_RIGHT / (_BEFORE_RIGHT + _BEFORE_WRONG))
    objective: list[float] = []
    for _ in range(alternations):
        Q, evidence = _posterior(votes, accuracy, n_classes)
        before = _BEFORE_RIGHT * np.log(accuracy) + _BEFORE_WRONG * np.log1p(-accuracy)
        objective.append(float(evidence + before.sum()))
        if len(objective) > 1 and objective[-1] - objective[-2] <= tolerance * abs(objective[-1]):
            break
        right = np.where(voted, np.take_along_axis(Q, np.maximum(votes, 0), axis=1), 0.0).sum(axis=0)
        accuracy = np.clip((right + _BEFORE_RIGHT) / (cast + _BEFORE_RIGHT + _BEFORE_WRONG), *_ACCURACIES)
    return Aggregate(n_classes, accuracy, tuple(objective))


def _posterior(votes: Ints, accuracy: Float64s, n_classes: int) -> tuple[Float64s, float]:
    """Beliefs (n, C), and Σ_i log (1/C) Σ_c Π_j P(λ_ij | c)."""
    C = n_classes
    right, wrong = np.log(accuracy), np.log((1 - accuracy) / (C - 1))
    voted = votes != NO_VOTE
    logits = np.repeat((voted @ wrong - np.log(C))[:, None], C, axis=1)
    for c in range(C):
        logits[:, c] += (votes == c) @ (right - wrong)
    top = logits.max(axis=1, keepdims=True)
    scaled = np.exp(logits - top)
    total = scaled.sum(axis=1, keepdims=True)
    return scaled / total, float((np.log(total) + top).sum())


def _spoken(beliefs: Float64s, votes: Ints) -> Float64s:
    """Beliefs, NaN in rows without a vote."""
    return np.where((votes != NO_VOTE).any(axis=1)[:, None], beliefs, np.nan)


@dataclass(frozen=True)
class _Group:
    """Primitives that candidates are made of."""

    columns: Ints
    presence: bool
    """All of them are 0 or 1."""
    silent_absence: bool


@dataclass
class _Pool:
    """Candidates of one kind and class: q models with their probabilities, rows by candidate."""

    kind: str
    positive: int
    negative: int | None
    columns: Sequence[tuple[int, ...]]
    models: Sequence[SmallModel]
    silent_absence: bool
    """Whether rows without any of the words get no vote."""
    trusted: Float64s
    """(m, q) P; NaN: no vote."""
    train: Float64s
    """(n', q)"""


@dataclass
class _Synthesis:
    primitives: Primitives
    y: Ints
    n_classes: int
    options: SnubaOptions
    rng: np.random.Generator
    committed: list[Heuristic] = field(default_factory=list)
    in_doubt: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.primitives.train)
        size = min(n, self.options.scored_rows)
        rows = np.sort(self.rng.permutation(n)[:size])
        self.scored = self.primitives.train[rows]
        self.shares = np.bincount(self.y, minlength=self.n_classes) / len(self.y)
        self.covered = np.zeros(size, dtype=bool)

    def run(self) -> Run:
        rows = np.ones(len(self.y), dtype=bool)
        learned = aggregate(np.full((0, 0), NO_VOTE, dtype=np.int64), self.n_classes)
        while True:
            before = len(self.committed)
            self._commit(rows, first=before == 0)
            if len(self.committed) == before:
                return self._ended(learned, Ending.NO_CANDIDATE)
            votes = self._votes(self.primitives.train)
            found = aggregate(votes, self.n_classes)
            said = self._votes(self.primitives.trusted)
            if before and self._disagree(found.accuracy, said, votes):
                del self.committed[before:]
                return self._ended(learned, Ending.DISAGREEMENT)
            learned = found
            rows = found.beliefs(said).max(axis=1) <= 0.5 + self._doubt()
            self.in_doubt.append(int(rows.sum()))
            if not rows.any():
                return self._ended(learned, Ending.SURE)
            if len(self.committed) >= self.options.most:
                return self._ended(learned, Ending.MOST)

    def _ended(self, learned: Aggregate, why: Ending) -> Run:
        return Run(tuple(self.committed), learned, why, tuple(self.in_doubt))

    def _votes(self, rows: NDArray[Any]) -> Ints:
        return np.column_stack([one.vote(rows) for one in self.committed])

    def _doubt(self) -> float:
        """ν"""
        return 0.5 - math.pow(len(self.committed) + 1, -1.5)

    def _disagree(self, accuracy: Float64s, said: Ints, votes: Ints) -> bool:
        """Whether learned and seen accuracies differ by more than ε."""
        cast = (said != NO_VOTE).sum(axis=0)
        right = (said == self.y[:, None]).sum(axis=0)
        seen = (right + _BEFORE_RIGHT) / (cast + _BEFORE_RIGHT + _BEFORE_WRONG)
        fewest, M = int((votes != NO_VOTE).sum(axis=0).min()), votes.shape[1]
        noise = np.sqrt(np.log(2 * M**2 / self.options.delta) / (2 * max(1, fewest)))
        error = float(np.abs(seen - accuracy).max())
        return error > self.options.gamma - float(noise)

    # synthesiser

    def _commit(self, rows: Bools, *, first: bool) -> None:
        """Commit the best candidates that trusted rows in doubt give: one; at first one a class, and at least three."""
        pools = [pool for pool in self._pools(rows) if pool.columns]
        candidates = [(pool, self._thresholds(pool, rows)) for pool in pools]
        wanted = [pool.positive for pool, _ in candidates] if first else []
        for c in dict.fromkeys(wanted):
            self._take([pair for pair in candidates if pair[0].positive == c])
        goal = max(_FIRST, len(self.committed)) if first else len(self.committed) + 1
        while len(self.committed) < min(goal, self.options.most) and self._take(candidates):
            pass
        del self.committed[self.options.most :]

    def _pools(self, rows: Bools) -> Iterator[_Pool]:
        """Candidates by class and kind; primitives of presence and others are not mixed."""
        for presence in (True, False):
            columns = np.flatnonzero(self.primitives.presence == presence)
            group = _Group(columns, presence, presence and not self.options.absent_votes)
            two_sided = self.n_classes == 2 and not group.silent_absence
            for c in [1] if two_sided else range(self.n_classes):
                target = self.y[rows] == c
                if len(group.columns) == 0 or target.sum() < 2 or target.all():
                    continue
                negative = 0 if two_sided else None
                if "tree" in self.options.kinds:
                    yield self._stumps(rows, c, negative, group)
                wider = [kind for kind in self.options.kinds if kind != "tree" or self.options.largest > 1]
                if wider:
                    yield from self._wider(rows, c, negative, wider, group)

    def _stumps(self, rows: Bools, c: int, negative: int | None, group: _Group) -> _Pool:
        """Every primitive by itself, cut where the two sides are purest (Gini); leaves (k + 1)/(n + 2)."""
        values = self.primitives.trusted[rows][:, group.columns].astype(np.float64)
        target = self.y[rows] == c
        if group.presence:
            found = _presence_stumps(values, target)
        else:
            here = ~np.isnan(values)
            found = [_best_stump(values[here[:, j], j], target[here[:, j]]) for j in range(values.shape[1])]
        columns = [(int(j),) for j, stump in zip(group.columns, found, strict=True) if stump is not None]
        models = [stump for stump in found if stump is not None]
        return self._pool("tree", c, negative, columns, models, group.silent_absence)

    def _wider(self, rows: Bools, c: int, negative: int | None, kinds: list[str], group: _Group) -> Iterator[_Pool]:
        """Subsets of the primitives that are best alone, by scikit-learn."""
        alone = self._stumps(rows, c, negative, group)
        f1 = self._thresholds(alone, rows)[1]
        best = np.argsort(-f1, kind="stable")[: self.options.widest]
        singles = sorted(alone.columns[q][0] for q in best)
        P, target = self.primitives.trusted, self.y == c
        for kind in kinds:
            columns, models = [], []
            for size in range(2 if kind == "tree" else 1, self.options.largest + 1):
                for chosen in itertools.combinations(singles, size):
                    values = P[:, list(chosen)].astype(np.float64)
                    usable = rows & ~np.isnan(values).any(axis=1)
                    inside = target[usable]
                    if inside.sum() < 2 or (~inside).sum() < 2:
                        continue
                    columns.append(chosen)
                    models.append(Estimator(_estimator(kind, size, len(inside)).fit(values[usable], inside)))
            yield self._pool(kind, c, negative, columns, models, group.silent_absence)

    def _pool(
        self,
        kind: str,
        c: int,
        negative: int | None,
        columns: Sequence[tuple[int, ...]],
        models: Sequence[SmallModel],
        silent_absence: bool,
    ) -> _Pool:
        trusted, train = (
            _probabilities(models, columns, rows, silent_absence) for rows in (self.primitives.trusted, self.scored)
        )
        return _Pool(kind, c, negative, columns, models, silent_absence, trusted, train)

    def _thresholds(self, pool: _Pool, rows: Bools) -> tuple[Float64s, Float64s]:
        """β (q,) with the best F1 (q,) on the rows; of equal ones the smallest."""
        found = np.stack([self._f1(pool, np.full(len(pool.columns), beta), rows) for beta in BETAS])
        best = found.argmax(axis=0)
        return BETAS[best], found.max(axis=0)

    def _f1(self, pool: _Pool, beta: Float64s, rows: Bools) -> Float64s:
        """(q,): of the class, or of two classes weighted by their shares."""
        P, target = pool.trusted[rows], (self.y[rows] == pool.positive)[:, None]
        positive, negative = _sides(P, beta)
        f1 = 2 * (positive & target).sum(axis=0) / np.maximum(positive.sum(axis=0) + target.sum(), 1)
        if pool.negative is None:
            return np.asarray(f1)
        other = 2 * (negative & ~target).sum(axis=0) / np.maximum(negative.sum(axis=0) + (~target).sum(), 1)
        share = float(target.mean())
        return np.asarray(share * f1 + (1 - share) * other)

    # pruner

    def _take(self, candidates: list[tuple[_Pool, tuple[Float64s, Float64s]]]) -> bool:
        """Commit the best of the candidates, if any is better than chance; whether one was."""
        top: tuple[float, _Pool, int, float, float] | None = None
        known = {one.key for one in self.committed}
        everything = np.ones(len(self.y), dtype=bool)
        for pool, (beta, _) in candidates:
            if not pool.columns:
                continue
            f1 = self._f1(pool, beta, everything)
            positive, negative = _sides(pool.train, beta)
            votes = positive | negative if pool.negative is not None else positive
            either = (votes | self.covered[:, None]).sum(axis=0)
            jaccard = (votes & self.covered[:, None]).sum(axis=0) / np.maximum(either, 1)
            score = self.options.weight * f1 + (1 - self.options.weight) * (1 - jaccard)
            score[~self._usable(pool, beta, votes)] = -np.inf
            for q, chosen in enumerate(pool.columns):
                if (pool.kind, chosen, pool.positive) in known:
                    score[q] = -np.inf
            q = int(score.argmax())
            if score[q] > -np.inf and (top is None or score[q] > top[0]):
                top = float(score[q]), pool, q, float(beta[q]), float(f1[q])
        if top is None:
            return False
        _, pool, q, beta_q, f1_q = top
        names = tuple(self.primitives.names[j] for j in pool.columns[q])
        heuristic = Heuristic(
            pool.kind, pool.columns[q], names, pool.positive, pool.negative, pool.models[q], beta_q,
            pool.silent_absence, f1_q,
        )  # fmt: skip
        self.committed.append(heuristic)
        self.covered |= heuristic.vote(self.scored) != NO_VOTE
        return True

    def _usable(self, pool: _Pool, beta: Float64s, votes: Bools) -> Bools:
        """(q,): enough votes, and those on trusted rows right more often than by chance."""
        target = (self.y == pool.positive)[:, None]
        positive, negative = _sides(pool.trusted, beta)
        if pool.negative is None:
            negative = np.zeros_like(positive)
        cast = (positive | negative).sum(axis=0)
        right = ((positive & target) | (negative & ~target)).sum(axis=0)
        enough = (cast >= self.options.least_trusted) & (votes.mean(axis=0) >= self.options.least_coverage)
        against = 0.0 if pool.negative is None else self.shares[pool.negative]
        chance = (positive.sum(axis=0) * self.shares[pool.positive] + negative.sum(axis=0) * against) / np.maximum(
            cast, 1
        )
        return np.asarray(enough & (binom.sf(right - 1, cast, chance) <= self.options.doubt))


def _sides(P: Float64s, beta: "Float64s | np.float64") -> tuple[Bools, Bools]:
    """Where probabilities (n, q) or (n,) are votes for the class, and against it."""
    above = P - 0.5
    return above >= beta, (-above >= beta) & (above < 0)  # NaN is neither


def _probability(model: SmallModel, values: NDArray[Any], silent_absence: bool) -> tuple[Float64s, Bools]:
    """P (n,), and whether the model may speak of the row: no value is missing, and some word is there."""
    values = np.asarray(values, dtype=np.float64)
    speaks = ~np.isnan(values).any(axis=1)
    if silent_absence:
        speaks &= values.any(axis=1)
    return model.probability(np.nan_to_num(values)), speaks


def _probabilities(
    models: Sequence[SmallModel], columns: Sequence[tuple[int, ...]], rows: NDArray[Any], silent_absence: bool
) -> Float64s:
    """(n, q) P of every model, NaN where it may not speak."""
    stumps = [model for model in models if isinstance(model, Stump)]
    if len(stumps) == len(models):  # all at once
        values = rows[:, [chosen[0] for chosen in columns]].astype(np.float64)
        cuts, below, above = (np.array([getattr(one, name) for one in stumps]) for name in ("cut", "below", "above"))
        silent = np.isnan(values) | (values == 0) if silent_absence else np.isnan(values)
        return np.where(silent, np.nan, np.where(values > cuts, above, below))
    table = np.full((len(rows), len(columns)), np.nan)
    for q, (chosen, model) in enumerate(zip(columns, models, strict=True)):
        P, speaks = _probability(model, rows[:, list(chosen)], silent_absence)
        table[speaks, q] = P[speaks]
    return table


def _presence_stumps(values: Float64s, target: Bools) -> list[Stump | None]:
    """The stumps of all columns (m, q) of 0 and 1; None where a column is constant."""
    m, k = len(values), float(target.sum())
    n_above, k_above = values.sum(axis=0), target.astype(np.float64) @ values
    below, above = (k - k_above + 1) / (m - n_above + 2), (k_above + 1) / (n_above + 2)
    usable = (n_above > 0) & (n_above < m)
    return [Stump(0.5, float(b), float(a)) if use else None for b, a, use in zip(below, above, usable, strict=True)]


def _best_stump(values: Float64s, target: Bools) -> Stump | None:
    """The cut with the least Gini impurity; None where the values do not differ."""
    known = np.unique(values)
    if len(known) > _CUTS + 1:
        known = np.unique(np.quantile(values, np.linspace(0, 1, _CUTS + 2)))
    cuts = (known[1:] + known[:-1]) / 2
    above = values[:, None] > cuts
    n_above = above.sum(axis=0)
    usable = (n_above > 0) & (n_above < len(values))
    if not usable.any():
        return None
    k_above = (above & target[:, None]).sum(axis=0)
    n_below, k_below = len(values) - n_above, target.sum() - k_above
    with np.errstate(invalid="ignore", divide="ignore"):
        impurity = k_above * (1 - k_above / n_above) + k_below * (1 - k_below / n_below)
    b = int(np.where(usable, impurity, np.inf).argmin())
    return Stump(float(cuts[b]), float((k_below[b] + 1) / (n_below[b] + 2)), float((k_above[b] + 1) / (n_above[b] + 2)))


def _estimator(kind: str, size: int, rows: int) -> Any:
    if kind == "tree":
        return DecisionTreeClassifier(max_depth=size, min_samples_leaf=2, random_state=0)
    if kind == "logistic":
        return LogisticRegression(C=10.0, max_iter=200)
    return KNeighborsClassifier(min(5, rows))


def _check(y: Ints, m: int, n_classes: int) -> None:
    if n_classes < 2:
        raise InvalidInputError(f"{n_classes} classes; expected at least two", code="classes")
    if m < 4 or y.shape != (m,):
        raise InvalidInputError(
            f"{m} trusted rows with {len(y)} labels; Snuba expected at least 4 rows with a label each (--trusted)",
            code="trusted",
        )
    if y.min() < 0 or y.max() >= n_classes:
        raise InvalidInputError(
            f"trusted class ids are {y.min()} to {y.max()}; expected 0 to {n_classes - 1}", code="trusted"
        )
    if len(np.unique(y)) < 2:
        raise InvalidInputError(
            "all trusted rows have the same class; expected at least two classes among them (--trusted)", code="trusted"
        )
