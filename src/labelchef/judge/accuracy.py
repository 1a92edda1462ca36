"""How accurate each person is, with an interval: from hidden gold, lead decisions, audits, the model and the other people.

**From gold alone** (`exact`): k of n answers are right, independent of all else. The interval is that of Clopper and Pearson: of
the three usual ones its coverage alone is never below its level (experiments/results/people.md has Wilson and Jeffreys).

**From everything** (`estimate`): a person w errs with probability ε_w on an ordinary item, and names each other class alike. An
item is of one of three kinds, and nobody knows of which:

    share 1 − δ − h   ordinary, and the model's held-out prediction p_i holds
    share δ           ordinary, and the prediction means nothing
    share h           hard: the prediction means nothing, and everybody errs more: ε_w + τ (G − ε_w), G = (C − 1)/C is guessing

    L_i = Σ_c [(1 − δ − h) p_i(c) + δ/C] Π_w P(v_iw | c; ε_w)  +  h Σ_c 1/C Π_w P(v_iw | c; ε_w + τ (G − ε_w))

Items that were drawn by chance (the audit) and gold have the shares ρδ and ρh, ρ in (0, 1): those that were asked because a
selector was in doubt are harder. Of an item that a lead decided the class is known. Of gold, the errors are binomial. The
accuracy of w is that on the items that were asked: a_w = 1 − ε_w − h τ (G − ε_w).

Priors, weak ones: ε_w/G, δ, h, τ and ρ are logistic functions of normal variables (`_PRIOR`). The posterior is drawn by
importance sampling: around its maximum with the curvature there (a t distribution with 5 degrees of freedom), then once more
around what the first draws say. The interval holds the middle 98 % of the draws of a_w (three more than its level, for what the
three kinds of items leave out); it ends at 1 where "never errs" is no worse than the maximum by more than ½ χ²₁(95 %), since
draws never reach that end.

**What it cannot know.** Two people without gold, audit or decisions are told apart by the model alone; where the model is a coin,
nothing tells them apart (`tells_apart`), and the page says so. If people and model share errors that are not of the three
kinds, such as a rule that the guidelines have wrong, everybody looks better than they are: only gold shows that.

**The pull of the suggestion** (`pull`) is the difference of two shares, with the interval of Newcombe (his method 10, from two
intervals of Wilson). Rounds are compared within themselves. Votes on one item are no independent
votes, so n is divided by the design effect of items.

Shapes: m items, W people, J: classes that somebody named on an item and one column for all others, B draws of P parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.stats import chi2, norm

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.records import UNRESOLVED, Answers
from labelchef.judge.gain import LEVEL
from labelchef.judge.proportions import exact_bounds

FEWEST_GOLD = 10
"""With fewer answers on gold, no accuracy is told from gold."""
FEWEST_ANSWERS = 20
"""With fewer answers in all, no accuracy is told."""
WIDEST = 0.3
"""An interval of an accuracy that is wider is told as "too few"."""
FEWEST_BLIND = 40
"""With votes on fewer items that were drawn to be blind, no pull is told."""
WIDEST_PULL = 0.3
"""An interval of the pull that is wider is told as "too few blind votes"."""
FEWEST_DECIDED = 5
"""Items that a lead decided, of which the class is known: with fewer, and nothing else, people are not told apart."""
LEAST_MODEL = 0.05
"""By how much the model's best class must be more probable than by guessing, on average, to say something."""
MOST_ITEMS = 2000
"""The last ones that were answered are enough."""

_PRIOR = {"error": (-2.0, 2.5), "share": (-1.5, 1.5), "hard": (-2.0, 1.5), "harder": (0.5, 1.0), "drawn": (0.0, 1.5)}
_DRAWN_LEVEL = 0.98  # of the draws that an interval holds: with it, 95 % intervals of simulated campaigns hold
_NUISANCES = ("share", "hard", "harder", "drawn")
_DRAWS, _FREEDOM = 600, 5.0
_AT_ONCE = 4_000_000
_TINY = 1e-300


@dataclass(frozen=True)
class Interval:
    """A share with its interval."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """From end to end."""
        return self.high - self.low


def exact(right: int, answered: int, level: float = LEVEL) -> Interval:
    """Clopper and Pearson's interval of a share.

    >>> one = exact(20, 20)
    >>> one.value, round(one.low, 3), one.high
    (1.0, 0.832, 1.0)
    """
    low, high = exact_bounds(np.array(right), np.array(answered), level)
    return Interval(right / answered if answered else float("nan"), float(low), float(high))


def wilson(share: float, n: float, level: float = LEVEL) -> Interval:
    """Wilson's interval of a share of n, which need not be a whole number.

    >>> one = wilson(0.5, 100)
    >>> round(one.low, 3), round(one.high, 3)
    (0.404, 0.596)
    """
    z2 = float(norm.ppf((1.0 + level) / 2.0)) ** 2
    middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n)
    half = np.sqrt(z2 * (share * (1.0 - share) / n + z2 / (4.0 * n * n))) / (1.0 + z2 / n)
    return Interval(share, max(0.0, float(middle - half)), min(1.0, float(middle + half)))


@dataclass(frozen=True)
class PullEstimate:
    """How much more often people give the suggested label where they see it."""

    shown: int
    shown_share: float | None
    blind: int
    blind_items: int
    blind_share: float | None
    interval: Interval | None
    """None without votes of both kinds."""

    @property
    def told(self) -> bool:
        """Whether there are enough votes to say anything."""
        return self.blind_items >= FEWEST_BLIND and self.interval is not None and self.interval.width <= WIDEST_PULL


Follows = tuple[int, int, bool]
"""A vote: its round, its item, and whether the suggested label was given."""


def pull(shown: Sequence[Follows], blind: Sequence[Follows]) -> PullEstimate:
    """From the votes that saw the suggestion, and those that did not.

    The blind items of a round must be drawn by chance from its batch. Rounds differ, so the difference is taken within each, and
    the mean is weighted by n_s n_b / (n_s + n_b), which is large where both kinds have many votes.

    >>> pull([(1, k, k % 10 > 0) for k in range(200)], [(1, k, k % 10 > 0) for k in range(200, 212)]).told
    False
    """
    items = len({item for _, item, _ in blind})
    kinds = [_by_round(votes) for votes in (shown, blind)]
    both = sorted(set(kinds[0]) & set(kinds[1]))
    if not both:
        alone = [sum(f for *_, f in votes) / len(votes) if votes else None for votes in (shown, blind)]
        return PullEstimate(len(shown), alone[0], len(blind), items, alone[1], None)
    sizes = np.array([[len(kind[r]) for r in both] for kind in kinds], dtype=np.float64)
    weights = sizes[0] * sizes[1] / sizes.sum(axis=0)
    weights /= weights.sum()
    (one, n_one), (two, n_two) = (_within(kind, both, weights) for kind in kinds)
    first, second, value = wilson(one, n_one), wilson(two, n_two), one - two
    low = value - float(np.hypot(one - first.low, second.high - two))
    high = value + float(np.hypot(first.high - one, two - second.low))
    return PullEstimate(len(shown), one, len(blind), items, two, Interval(value, max(-1.0, low), min(1.0, high)))


def _by_round(votes: Sequence[Follows]) -> dict[int, list[tuple[int, bool]]]:
    found: dict[int, list[tuple[int, bool]]] = {}
    for turn, item, followed in votes:
        found.setdefault(turn, []).append((item, followed))
    return found


def _within(votes: dict[int, list[tuple[int, bool]]], rounds: Sequence[int], weights: Float64s) -> tuple[float, float]:
    """The weighted share, and the number of independent votes that would tell as much: votes on one item go together."""
    shares = [sum(f for _, f in votes[r]) / len(votes[r]) for r in rounds]
    share = float(weights @ np.array(shares))
    n = 1.0 / float((weights**2 / np.array([len(votes[r]) for r in rounds])).sum())
    surplus: dict[tuple[int, int], float] = {}
    total, noise = 0, 0.0
    for r, mean in zip(rounds, shares, strict=True):
        for item, followed in votes[r]:
            surplus[r, item] = surplus.get((r, item), 0.0) + followed - mean
            total += 1
        noise += len(votes[r]) * mean * (1.0 - mean)
    apart = total / len(surplus)  # votes an item
    effect = sum(x * x for x in surplus.values()) / noise if noise else apart
    return share, n / max(1.0, effect)


@dataclass(frozen=True)
class Seen:
    """What is known of m items that people answered, and of the answers of W people on gold."""

    said: Answers
    predicted: Float64s
    """(m, C) held-out predictions of the model; 1/C where there is none."""
    gold_right: Ints
    """(W,)"""
    gold_wrong: Ints
    """(W,)"""


def tells_apart(seen: Seen) -> bool:
    """Whether anything tells people apart: gold, decisions of a lead, a model that says something, or three people an item.

    Where two people differ and nothing else says who is right, any split of their differences into errors of the one and of the
    other fits.
    """
    gold = int((seen.gold_right + seen.gold_wrong).sum()) >= FEWEST_GOLD
    decided = int((seen.said.known != UNRESOLVED).sum()) >= FEWEST_DECIDED
    m, C = seen.predicted.shape
    model = m > 0 and float(seen.predicted.max(axis=1).mean()) - 1.0 / C >= LEAST_MODEL
    crowd = len(np.unique(seen.said.person)) > 2
    return gold or decided or model or crowd


def estimate(seen: Seen, seed: int = 0) -> list[Interval]:
    """The accuracy of each person on the items that were asked, with its interval."""
    posterior = _Posterior(_recent(seen))
    start = posterior.start()
    found = minimize(posterior.objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 100})
    best = found.x
    cov = _inverse(posterior.curvature(best))
    rng = np.random.default_rng([seed, 20])
    mean, draws, weights = best, best[None], np.ones(1)
    for spread, many in ((1.6, _DRAWS // 2), (1.2, _DRAWS)):
        draws, weights = posterior.draw(mean, spread * cov, many, rng)
        mean = weights @ draws
        away = draws - mean
        cov = (away * weights[:, None]).T @ away + 1e-6 * np.eye(len(mean))
    accuracies = posterior.accuracy(draws)
    tail, intervals = (1.0 - _DRAWN_LEVEL) / 2.0, []
    for w in range(len(seen.said.names)):
        order = np.argsort(accuracies[:, w])
        total, values = np.cumsum(weights[order]), accuracies[order, w]
        low, middle, high = (
            float(values[min(np.searchsorted(total, q), len(values) - 1)]) for q in (tail, 0.5, 1 - tail)
        )
        intervals.append(Interval(middle, low, 1.0 if posterior.never_errs(best, w) else high))
    return intervals


def _recent(seen: Seen) -> Seen:
    m = len(seen.predicted)
    return replace(seen, said=seen.said.among(np.arange(m) >= m - MOST_ITEMS), predicted=seen.predicted[-MOST_ITEMS:])


class _Posterior:
    """The posterior of the parameters: W errors, then the nuisances, each as a normal variable."""

    def __init__(self, seen: Seen) -> None:
        self.seen, said = seen, seen.said
        W, (m, C) = len(said.names), seen.predicted.shape
        self.W, self.C, self.guess = W, C, (C - 1) / C
        pairs = np.unique(np.stack([said.place, said.label]), axis=1) if len(said.place) else np.zeros((2, 0), np.int64)
        count = np.bincount(pairs[0], minlength=m)
        self.J = int(np.minimum(count + 1, C).max(initial=1))
        column = np.arange(pairs.shape[1]) - np.repeat(np.cumsum(count) - count, count)
        named = np.full((m, self.J), UNRESOLVED)
        named[pairs[0], column] = pairs[1]
        own = np.where(named >= 0, np.take_along_axis(seen.predicted, np.maximum(named, 0), 1), 0.0)
        flat = np.where(named >= 0, 1.0 / C, 0.0)
        open_, rest = np.flatnonzero(count < C), count[count < C]  # the column of all classes that nobody named
        own[open_, rest] = np.maximum(1.0 - own[open_].sum(axis=1), 0.0)
        flat[open_, rest] = np.maximum(1.0 - flat[open_].sum(axis=1), 0.0)
        decided = np.flatnonzero(said.known != UNRESOLVED)
        if len(decided):
            at = (named[decided] == said.known[decided, None]).astype(np.float64)
            unnamed = at.sum(axis=1) == 0
            at[unnamed, count[decided[unnamed]]] = 1.0
            own[decided] = flat[decided] = at
        self.own, self.flat = own, flat
        right, given = np.zeros((m, self.J, W)), np.zeros((m, W))
        given[said.place, said.person] = 1.0
        right[said.place, :, said.person] = named[said.place] == said.label[:, None]
        self.right, self.wrong = right.reshape(-1, W), (given[:, None] - right).reshape(-1, W)
        self.prior = np.array([_PRIOR["error"]] * W + [_PRIOR[name] for name in _NUISANCES])

    def start(self) -> Float64s:
        return np.asarray(self.prior[:, 0], dtype=np.float64)

    def log(self, T: Float64s) -> Float64s:
        """(B,): the logarithm of the posterior of parameters (B, P), up to a constant."""
        z = (T - self.prior[:, 0]) / self.prior[:, 1]
        return np.asarray(self.log_likelihood(T) - 0.5 * (z**2).sum(axis=1))

    def log_likelihood(self, T: Float64s) -> Float64s:
        step = max(1, _AT_ONCE // max(1, len(self.right)))
        return np.concatenate([self._part(T[k : k + step]) for k in range(0, len(T), step)])

    def _part(self, T: Float64s) -> Float64s:
        seen = self.seen
        error, share, hard, harder, less = self._parameters(T)
        worse = error + harder[:, None] * (self.guess - error)
        total = np.zeros(len(T))
        if len(seen.predicted):
            normal, rough = (self._answers(e) for e in (error, worse))
            rate = np.where(seen.said.drawn[:, None], less, 1.0)  # (m, B)
            d, h = rate * share, rate * hard
            likely = (
                (1.0 - d - h) * np.einsum("mj,mjb->mb", self.own, normal)
                + d * np.einsum("mj,mjb->mb", self.flat, normal)
                + h * np.einsum("mj,mjb->mb", self.flat, rough)
            )
            total = np.log(np.maximum(likely, _TINY)).sum(axis=0)
        on_gold = np.clip(error + (less * hard)[:, None] * (worse - error), 1e-12, 1 - 1e-12)
        return np.asarray(total + np.log1p(-on_gold) @ seen.gold_right + np.log(on_gold) @ seen.gold_wrong)

    def _parameters(self, T: Float64s) -> tuple[Float64s, Float64s, Float64s, Float64s, Float64s]:
        """ε (B, W), δ, h, τ, ρ (B,)."""
        W = self.W
        error = np.maximum(self.guess * _logistic(T[:, :W]), 1e-9)
        a, b = np.exp(np.minimum(T[:, W], 30)), np.exp(np.minimum(T[:, W + 1], 30))
        return error, a / (1 + a + b), b / (1 + a + b), _logistic(T[:, W + 2]), _logistic(T[:, W + 3])

    def _answers(self, error: Float64s) -> Float64s:
        """Π_w P(v_iw | c): (m, J, B)."""
        says = self.right @ np.log1p(-error).T + self.wrong @ np.log(error / max(self.C - 1, 1)).T
        return np.asarray(np.exp(says).reshape(-1, self.J, len(error)))

    def accuracy(self, T: Float64s) -> Float64s:
        """a (B, W)."""
        error, _, hard, harder, _ = self._parameters(T)
        return np.asarray(1.0 - error - (hard * harder)[:, None] * (self.guess - error))

    def objective(self, x: Float64s) -> tuple[float, Float64s]:
        """Minus the logarithm of the posterior, and its gradient by differences."""
        h = 1e-4
        T = x + h * np.concatenate([np.zeros((1, len(x))), np.eye(len(x)), -np.eye(len(x))])
        found = -self.log(T)
        P = len(x)
        return float(found[0]), (found[1 : P + 1] - found[P + 1 :]) / (2 * h)

    def curvature(self, x: Float64s) -> Float64s:
        """Second derivatives of minus the logarithm of the posterior, by differences of gradients."""
        h, P = 1e-2, len(x)
        rows = []
        for k in range(P):
            step = np.zeros(P)
            step[k] = h
            rows.append((self.objective(x + step)[1] - self.objective(x - step)[1]) / (2 * h))
        H = np.array(rows)
        return np.asarray((H + H.T) / 2)

    def draw(self, mean: Float64s, cov: Float64s, many: int, rng: np.random.Generator) -> tuple[Float64s, Float64s]:
        """Draws (B, P) and their weights."""
        P = len(mean)
        root = np.linalg.cholesky(cov)
        normal = rng.standard_normal((many, P))
        stretch = np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, many))
        draws = mean + (normal @ root.T) * stretch[:, None]
        far = (normal**2).sum(axis=1) * stretch**2
        logs = self.log(draws) + 0.5 * (_FREEDOM + P) * np.log1p(far / _FREEDOM)
        weights = np.exp(logs - logs.max())
        return draws, weights / weights.sum()

    def never_errs(self, best: Float64s, w: int) -> bool:
        """Whether an accuracy of 1 fits as well as the best, up to noise."""
        fixed = np.zeros(len(best), dtype=bool)
        fixed[[w, self.W + 1]] = True
        x = np.where(fixed, -20.0, best)
        worst = self.log_likelihood(best[None])[0] - 0.5 * chi2.ppf(LEVEL, 1)
        if self.log_likelihood(x[None])[0] >= worst:
            return True

        def rest(free: Float64s) -> tuple[float, Float64s]:
            at = x.copy()
            at[~fixed] = free
            value, slope = self.objective(at)
            return value, slope[~fixed]

        x[~fixed] = minimize(rest, best[~fixed], jac=True, method="L-BFGS-B", options={"maxiter": 50}).x
        return bool(self.log_likelihood(x[None])[0] >= worst)


def _logistic(x: Float64s) -> Float64s:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -40, 40))))


def _inverse(H: Float64s) -> Float64s:
    """The inverse of a curvature; directions in which there is none count as the prior's."""
    values, vectors = np.linalg.eigh(H)
    return np.asarray((vectors / np.maximum(values, 0.15)) @ vectors.T)
