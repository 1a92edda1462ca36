"""Snuba: heuristics that are written automatically from the trusted rows.

P. Varma, C. Ré: Snuba: Automating Weak Supervision to Label Training Data. PVLDB 12(3):223-236, 2018. Own implementation.

m trusted rows have a class y (m,), n training rows have none; both have p *primitives* (`Primitives`): presence of words, columns
of a table, columns of an encoded block. C classes. Three parts repeat until one of them ends the run:

**Synthesiser.** For every class c and every primitive x a decision stump is fitted on the trusted rows that are still in doubt
(all of them at first): the cut where the Gini impurity is least, and on each side P(y = c | x) = (k + 1)/(r + 2) for k rows of
class c among r. The heuristic votes

    h(x) = c                    if P(y = c | x) ≥ 1/2 + β
           the other class      if P(y = c | x) ≤ 1/2 − β,  two classes only
           nothing              else

β of 0, 0.05, …, 0.45 is the one with the best F1 on these rows; rows without a vote count as missed in the recall. More than
two classes are one against the rest, and "not c" is no vote. A row that lacks the value (NaN) gets no vote. *Other choices than
the paper's:* a heuristic has one primitive (D = 1), and the absence of a word is no vote, so that people can read the rules.

**Pruner.** The candidate with the largest  F1/2 + (1 − Jaccard)/2  is committed. F1 is over all trusted rows, Jaccard
that of the training rows which the candidate votes on and those which the committed heuristics vote on. F1 alone takes
frequent words that mean nothing, so (not in the paper) votes of a candidate on trusted rows must be better than chance
(`trusted`).

**Verifier.** A label aggregator learns the accuracies α (M,) of the M committed heuristics from their votes λ on training rows:

    P(λ_ij | y_i = c) ∝ α_j if λ_ij = c, else (1 − α_j)/(C − 1);    q_i(c) ∝ Π_{j votes} P(λ_ij | c)
    J(α) = Σ_i log (1/C) Σ_c Π_j P(λ_ij | c) + Σ_j [a log α_j + b log(1 − α_j)],    α_j = (Σ_i q_i(λ_ij) + a) / (n_j + a + b)

with a = 7 and b = 3 votes cast before, and α_j kept in 1/2 to 0.98; an alternation never lowers J. All classes are equally
probable before the votes: a heuristic that is alone on its rows then keeps its accuracy, where other shares would drive it to 0
or 1. Trusted rows with max_c q_i(c) ≤ 1/2 + ν are in doubt, ν = 1/2 − (M + 1)^(−3/2), and the synthesiser goes on with them

**The end.** No trusted row is in doubt; no candidate is better than chance; `MOST` heuristics are there; or the
accuracies that the aggregator learned are too far from those on trusted rows, α̂ = (right + a)/(cast + a + b), for the
guarantee of the paper's Proposition 1,

    max_j |α̂_j − α_j| > ε,    ε = γ − sqrt(log(2 M² / δ) / (2 N)),    N: fewest training rows that a heuristic votes on.

Then the heuristic that broke it is taken back. γ = 0.75 is loose: words have few votes, and with a small γ none gets through.

**Votes on trusted rows.** Heuristics were fitted to the trusted rows and chosen by them, so their own votes there look better
than they are: of 500 words without any meaning, the best looks good on 100 rows. `write_heuristics` therefore runs everything
again without each of the folds. The votes of the source "the r-th heuristic for class c" on fold k are those of the r-th
heuristic for class c in the run without fold k; it is silent where that run has none. So the votes on trusted rows say how good
the r-th heuristic of this *procedure* is, not this very word, and coverage may differ between runs. What stays: votes on
*training* rows come from all trusted rows. A cross-validation over trusted rows that learns from these votes sees a little of
its held-out labels, so it may value Snuba too much (`docs/automatic-sources.md`).

Bounds: Jaccard is taken over at most `SCORED_ROWS` training rows, drawn once; a stump has at most 16 cuts to choose from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.intake import Progress, no_progress
from labelchef.believe.automatic.trusted import beats_chance, held_out

NO_VOTE = -1
MOST = 25
"""Most heuristics."""
LEAST_TRUSTED, LEAST_COVERAGE = 3, 0.01
"""A heuristic votes on at least so many trusted rows, and on this share of the training rows."""
SCORED_ROWS = 5000
_INTEGERS, _NUMBERS = ("column", "positive", "negative"), ("cut", "below", "above", "beta")
HEURISTIC = np.dtype([("presence", "?"), *((name, "i8") for name in _INTEGERS), *((name, "f8") for name in _NUMBERS)])
"""A heuristic: its primitive, the class c that it votes for, the class where P is small (−1: no vote there); P(y = c) where the
value is at most `cut` and where it is above; β. Arrays of them are written H (M,)."""

_BETAS = np.arange(0, 10) * 0.05
_GAMMA, _DELTA = 0.75, 0.1
_BEFORE_RIGHT, _BEFORE_WRONG = 7.0, 3.0
_ACCURACIES = 0.5, 0.98
_ALTERNATIONS = 100
_CUTS = 16
_FIRST = 3


@dataclass(frozen=True)
class Primitives:
    """What heuristics look at, on the trusted and the training rows."""

    names: tuple[str, ...]
    """(p,)"""
    trusted: NDArray[Any]
    """(m, p) finite numbers, NaN where a value is missing."""
    train: NDArray[Any]
    """(n, p)"""
    presence: Bools
    """(p,) columns of 0 and 1 that say whether something is there, such as a word."""


@dataclass(frozen=True)
class Written:
    """Heuristics with their votes."""

    heuristics: NDArray[Any]
    """H (M,), in the order in which they were committed."""
    names: tuple[str, ...]
    """(M,) of the sources."""
    train: Ints
    """(n, M)"""
    trusted: Ints
    """(m, M), cross-fitted."""
    train_beliefs: Float64s
    """(n, C) by the aggregator; NaN in rows without a vote."""
    trusted_beliefs: Float64s
    """(m, C), cross-fitted: each fold by the aggregator of the run without it; NaN in rows without a vote."""


def write_heuristics(
    primitives: Primitives, y: Ints, classes: Sequence[str], seed: int = 0, progress: Progress = no_progress
) -> Written:
    """Heuristics from trusted classes y (m,), with votes on both kinds of rows."""
    m, C = len(y), len(classes)
    if m < 4 or len(np.unique(y)) < 2:
        raise InvalidInputError(
            f"{m} trusted rows of {len(np.unique(y))} classes; Snuba expected at least 4 rows and two classes (--trusted)",
            code="trusted",
        )
    parts = held_out(y, seed)
    progress("writing heuristics", 0, len(parts) + 1)
    H, accuracy = synthesise(primitives, y, C, seed)
    train = vote(H, primitives.train)
    trusted = np.full((m, len(H)), NO_VOTE, dtype=np.int64)
    trusted_beliefs = np.full((m, C), np.nan)
    for k, held in enumerate(parts):
        progress("writing heuristics", k + 1, len(parts) + 1)
        others, learned = synthesise(replace(primitives, trusted=primitives.trusted[~held]), y[~held], C, seed)
        said = vote(others, primitives.trusted[held])
        places = {slot: j for j, slot in enumerate(_slots(others))}
        for j, slot in enumerate(_slots(H)):
            if slot in places:
                trusted[held, j] = said[:, places[slot]]
        trusted_beliefs[held] = _spoken(said, learned, C)
    progress("writing heuristics", len(parts) + 1, len(parts) + 1)
    names = tuple(f"snuba {j + 1}: {_text(one, primitives, classes)}" for j, one in enumerate(H))
    return Written(H, names, train, trusted, _spoken(train, accuracy, C), trusted_beliefs)


def synthesise(primitives: Primitives, y: Ints, n_classes: int, seed: int) -> tuple[NDArray[Any], Float64s]:
    """One run from all these trusted rows: H (M,), in the order in which they were committed, and their accuracies α (M,)."""
    return _Synthesis(primitives, y, n_classes, seed).run()


def vote(H: NDArray[Any], primitives: NDArray[Any]) -> Ints:
    """(n, M) class ids for rows of primitives (n, p), −1 for no vote."""
    return _said(H, _probability(H, primitives), H["beta"])


def aggregate(votes: Ints, n_classes: int) -> tuple[Float64s, list[float]]:
    """α (M,) from votes (n, M), −1 for none, and J after each alternation: it never falls."""
    voted = votes != NO_VOTE
    accuracy = np.full(votes.shape[1], _BEFORE_RIGHT / (_BEFORE_RIGHT + _BEFORE_WRONG))
    objective: list[float] = []
    for _ in range(_ALTERNATIONS):
        Q, evidence = posterior(votes, accuracy, n_classes)
        before = _BEFORE_RIGHT * np.log(accuracy) + _BEFORE_WRONG * np.log1p(-accuracy)
        objective.append(float(evidence + before.sum()))
        if len(objective) > 1 and objective[-1] - objective[-2] <= 1e-7 * abs(objective[-1]):
            break
        right = np.where(voted, np.take_along_axis(Q, np.maximum(votes, 0), axis=1), 0.0).sum(axis=0)
        accuracy = np.clip(_accuracy(right, voted.sum(axis=0)), *_ACCURACIES)
    return accuracy, objective


def _accuracy(right: NDArray[Any], cast: NDArray[Any]) -> Float64s:
    """(M,) (right + a) / (cast + a + b)"""
    return np.asarray((right + _BEFORE_RIGHT) / (cast + _BEFORE_RIGHT + _BEFORE_WRONG))


def posterior(votes: Ints, accuracy: Float64s, n_classes: int) -> tuple[Float64s, float]:
    """q (n, C), all classes alike where nothing votes, and Σ_i log (1/C) Σ_c Π_j P(λ_ij | c)."""
    C = n_classes
    right, wrong = np.log(accuracy), np.log((1 - accuracy) / (C - 1))
    logits = np.repeat(((votes != NO_VOTE) @ wrong - np.log(C))[:, None], C, axis=1)
    for c in range(C):
        logits[:, c] += (votes == c) @ (right - wrong)
    total = logsumexp(logits, axis=1, keepdims=True)
    return np.exp(logits - total), float(total.sum())


def _spoken(votes: Ints, accuracy: Float64s, n_classes: int) -> Float64s:
    """q (n, C); NaN in rows without a vote."""
    return np.where((votes != NO_VOTE).any(axis=1)[:, None], posterior(votes, accuracy, n_classes)[0], np.nan)


class _Synthesis:
    """The three parts, repeated."""

    def __init__(self, primitives: Primitives, y: Ints, n_classes: int, seed: int) -> None:
        n = len(primitives.train)
        self.primitives, self.y, self.n_classes = primitives, y, n_classes
        self.scored = primitives.train[np.sort(np.random.default_rng([seed, 31]).permutation(n)[:SCORED_ROWS])]
        self.shares = np.bincount(y, minlength=n_classes) / len(y)
        self.committed = np.empty(0, HEURISTIC)

    def run(self) -> tuple[NDArray[Any], Float64s]:
        rows = np.ones(len(self.y), dtype=bool)
        learned = np.empty(0)
        while rows.any() and len(self.committed) < MOST:
            before = self.committed
            self._commit(rows)
            if len(self.committed) == len(before):
                break
            votes, said = (vote(self.committed, part) for part in (self.primitives.train, self.primitives.trusted))
            found, _ = aggregate(votes, self.n_classes)
            if len(before) and self._disagree(found, said, votes):
                self.committed = before
                break
            learned = found
            doubt = 0.5 - math.pow(len(self.committed) + 1, -1.5)
            rows = posterior(said, learned, self.n_classes)[0].max(axis=1) <= 0.5 + doubt
        return self.committed, learned

    def _disagree(self, accuracy: Float64s, said: Ints, votes: Ints) -> bool:
        """Whether learned and seen accuracies differ by more than ε."""
        seen = _accuracy((said == self.y[:, None]).sum(axis=0), (said != NO_VOTE).sum(axis=0))
        fewest, M = int((votes != NO_VOTE).sum(axis=0).min()), votes.shape[1]
        noise = math.sqrt(math.log(2 * M**2 / _DELTA) / (2 * max(1, fewest)))
        return float(np.abs(seen - accuracy).max()) > _GAMMA - noise

    def _candidates(self, rows: Bools) -> NDArray[Any]:
        """H (q,): the synthesiser. The stumps of every primitive and class, with the β of best F1."""
        found = []
        for presence in (True, False):
            columns = np.flatnonzero(self.primitives.presence == presence)
            values = self.primitives.trusted[rows][:, columns].astype(np.float64)
            cuts = np.full((1, len(columns)), 0.5) if presence else _cuts(values)
            wanted, other = ([1], 0) if self.n_classes == 2 and not presence else (range(self.n_classes), NO_VOTE)
            for c in wanted:
                target = self.y[rows] == c
                if 2 <= target.sum() < len(target):
                    H = _stumps(values, target, cuts)
                    H["column"], H["presence"], H["positive"], H["negative"] = columns, presence, c, other
                    found.append(H[~np.isnan(H["cut"])])
        H = np.concatenate([np.empty(0, HEURISTIC), *found])
        number = ~H["presence"]  # a word votes on the same rows with every β or with none: 0 is best
        P = _probability(H[number], self.primitives.trusted[rows])
        f1 = np.stack([_f1(H[number], _said(H[number], P, beta), self.y[rows]) for beta in _BETAS])
        H["beta"][number] = _BETAS[f1.argmax(axis=0)]  # of equal ones the smallest
        return H

    def _commit(self, rows: Bools) -> None:
        """The pruner: commit the best candidate; at first one a class, and at least three."""
        H = self._candidates(rows)
        said = vote(H, self.primitives.trusted)
        cast, right = (said != NO_VOTE).sum(axis=0), (said == self.y[:, None]).sum(axis=0)
        chance = np.append(self.shares, 0.0)[said].sum(axis=0) / np.maximum(cast, 1)
        usable = (cast >= LEAST_TRUSTED) & beats_chance(right, cast, chance)
        H, f1 = H[usable], _f1(H[usable], said[:, usable], self.y)
        spoken = vote(H, self.scored) != NO_VOTE
        f1[spoken.mean(axis=0) < LEAST_COVERAGE] = -np.inf
        if len(self.committed):
            self._take(H, f1, spoken)
            return
        for c in np.unique(H["positive"]):
            self._take(H, np.where(H["positive"] == c, f1, -np.inf), spoken)
        while len(self.committed) < _FIRST and self._take(H, f1, spoken):
            pass
        self.committed = self.committed[:MOST]

    def _take(self, H: NDArray[Any], f1: Float64s, spoken: Bools) -> bool:
        """Whether a candidate was committed: a new one with the best F1 (q,) and new coverage; none if all of F1 are −∞."""
        key, known = (one["column"] * self.n_classes + one["positive"] for one in (H, self.committed))
        covered = (vote(self.committed, self.scored) != NO_VOTE).any(axis=1)[:, None]
        jaccard = (spoken & covered).sum(axis=0) / np.maximum((spoken | covered).sum(axis=0), 1)
        score = np.where(np.isin(key, known), -np.inf, 0.5 * f1 + 0.5 * (1 - jaccard))
        if score.max(initial=-np.inf) == -np.inf:
            return False
        self.committed = np.append(self.committed, H[score.argmax()])
        return True


def _slots(H: NDArray[Any]) -> list[tuple[int, int]]:
    """(M,) class c and rank r of each: the r-th heuristic for class c."""
    positive = H["positive"].tolist()
    return [(c, positive[:j].count(c)) for j, c in enumerate(positive)]


def _probability(H: NDArray[Any], rows: NDArray[Any]) -> Float64s:
    """(n, M) P, NaN where there is none: a value is missing, or a word is absent."""
    values = rows[:, H["column"]].astype(np.float64)
    silent = np.isnan(values) | (H["presence"] & (values == 0))
    return np.where(silent, np.nan, np.where(values > H["cut"], H["above"], H["below"]))


def _said(H: NDArray[Any], P: Float64s, beta: "Float64s | float") -> Ints:
    """Votes (n, M) where probabilities are far enough from 1/2."""
    above = P - 0.5
    other = np.where((-above >= beta) & (above < 0), H["negative"], NO_VOTE)
    return np.where(above >= beta, H["positive"], other)  # NaN is neither


def _f1(H: NDArray[Any], votes: Ints, y: Ints) -> Float64s:
    """(M,) F1 of votes (m, M) on rows of classes y (m,): for the class, or for both, weighted by their shares."""
    target = y[:, None] == H["positive"]
    f1, other = (
        2 * (said & here).sum(axis=0) / np.maximum(said.sum(axis=0) + here.sum(axis=0), 1)
        for said, here in ((votes == H["positive"], target), (votes == H["negative"], ~target))
    )
    share = np.where(H["negative"] == NO_VOTE, 1.0, target.mean(axis=0))
    return np.asarray(share * f1 + (1 - share) * other)


def _cuts(values: Float64s) -> Float64s:
    """(16, q) where columns of values (r, q) may be cut, between values or quantiles that differ; NaN where there are fewer."""
    found = np.full((_CUTS, values.shape[1]), np.nan)
    for q, column in enumerate(values.T):
        known = np.unique(column[~np.isnan(column)])
        if len(known) > _CUTS:
            known = np.unique(np.nanquantile(column, np.linspace(0, 1, _CUTS + 1)))
        found[: max(len(known) - 1, 0), q] = (known[1:] + known[:-1]) / 2
    return found


def _stumps(values: Float64s, target: Bools, cuts: Float64s) -> NDArray[Any]:
    """H (q,): the purest stumps on columns of values (r, q), for the class of rows in `target` (r,); NaN without any cut."""
    here, among = ~np.isnan(values), target[:, None]
    best, H = np.full(values.shape[1], np.inf), np.zeros(values.shape[1], HEURISTIC)
    H["cut"] = np.nan
    for cut in cuts:
        above = values > cut
        n_above, k_above = above.sum(axis=0), (above & among).sum(axis=0)
        n_below, k_below = here.sum(axis=0) - n_above, (here & among).sum(axis=0) - k_above
        impurity = k_above * (1 - k_above / np.maximum(n_above, 1)) + k_below * (1 - k_below / np.maximum(n_below, 1))
        better = (n_above > 0) & (n_below > 0) & (impurity < best)
        best = np.where(better, impurity, best)
        H["cut"] = np.where(better, cut, H["cut"])
        H["below"] = np.where(better, (k_below + 1) / (n_below + 2), H["below"])
        H["above"] = np.where(better, (k_above + 1) / (n_above + 2), H["above"])
    return H


def _text(one: Any, primitives: Primitives, classes: Sequence[str]) -> str:
    """A heuristic in words, for the name of a source."""
    where = "" if one["presence"] else f" {'>' if one['above'] > one['below'] else '≤'} {one['cut']:.4g}"
    otherwise = "" if one["negative"] == NO_VOTE else f", else {classes[one['negative']]}"
    return f"{primitives.names[one['column']]}{where} → {classes[one['positive']]}{otherwise}"
