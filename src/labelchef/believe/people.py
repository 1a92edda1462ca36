"""People who err: how often they do, and what an answer is worth.

A person w answers v on a sample of class c with probability 1 − ε_w if v = c, and ε_w / (C − 1) for each other class. With p_i,
the prediction of a model that was trained without sample i, the answers on it have the likelihood

    L_i(ε) = Σ_c p_i(c) Π_w P(v_iw | c; ε_w)

which holds all that is known of the errors: from *gold* (samples whose class is known: p_i is that class), from *overlap* (two
persons agree with probability (1 − ε)² + ε²/(C − 1) on average) and from *the model* (answers that a sure model contradicts).

**The model errs too.** Its predictions are scaled, and a share of them is taken to mean nothing:

    p_i = (1 − δ) softmax(s a_i) + δ/C,      a_i: held-out logits at the temperature of the learner

Samples that were drawn by chance (audited ones) are like the trusted ones, whose classes y no person in question gave: they share
one pair (s, δ). The others were asked because the model that selects was unsure of them, and there any model is wrong more often
than it says: they have a pair (s′, δ′) of their own. All are nuisances:

    ℓ(ε) = max_{s, δ} [ Σ_drawn log L_i(ε; s, δ) + Σ_trusted log p_k(y_k; s, δ) ]  +  max_{s′, δ′} Σ_asked log L_i(ε; s′, δ′)

ε̂ maximises it over [0, ½], for all persons together. The interval holds the ε with ℓ(ε) ≥ ℓ(ε̂) − ½ χ²₁(95 %). A single answer on
a sample of the second kind bounds ε from above only, as it can always be put down to δ′. So to know that people err takes gold,
overlap, or an audit; without any of them the interval begins at 0.

**Persons** are shrunk towards ε̂, since most give few answers: ε_w = (expected errors of w + κ ε̂) / (answers of w + κ), κ = 20,
where the expectation is over the beliefs

    q_i(c) ∝ p_i(c) Π_w P(v_iw | c; ε_w)

**An answer is one more source** where people are known to err (`LEAST` is below the interval): the sample trains with q_i in the
place of the class that was decided. The value of asking again is what one more answer is expected to add to the probability that
the most probable class is right, Σ_v max_c q_i(c) P(v | c; ε̂) − max_c q_i(c): zero where no answer could change the verdict.

Shapes: m answered samples, K answers, n trusted samples; a, p, q (m, C).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.learning import Doubt, PeopleFacts
from labelchef.base.records import UNRESOLVED, Answers, Decisions, Votes
from labelchef.chef.selectors.protocol import NOT_PEOPLE
from labelchef.judge.gain import LEVEL
from labelchef.model.softmax import log_probabilities

LEAST = 0.02
"""Answers are a source, in 'auto', if people err more often than this beyond noise."""
FEWEST_ANSWERS = 20
"""With fewer answers nothing is estimated."""
SURE = 0.6
"""An answer is doubtful if the most probable class has a probability below this, or is another one."""

SCALES: Float64s = np.exp(np.log(2) * np.arange(-4, 3) / 2)
"""s: ¼ to 2."""
SHARES: Float64s = np.array([0.0, 0.005, 0.02, 0.05, 0.12])
"""δ."""
SHARES_ASKED: Float64s = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0])
"""δ′."""

_POOLING = 20.0  # κ
_ERRORS: Float64s = 0.5 * (np.arange(61) / 60) ** 2
_ALTERNATIONS = 10
_TINY = 1e-12
_FLOOR = 1e-4  # of an error rate, so that contradicting answers are possible


Said = tuple[Votes, Decisions, Sequence[int]]
"""What a round brought: votes, decisions, and the samples among them that were drawn by chance."""


def answers_of(rounds: Iterable[Said], given: Ints) -> Answers:
    """The answers that count after these rounds, which may undo or correct each other.

    `given` (N,) are class ids that were known before anybody was asked, `UNRESOLVED` elsewhere: gold. So is a decision with full
    support against a vote: someone had the last word, and whoever is last in the votes is that one.

    >>> votes = Votes.of([("ann", [4, 7], [0, 1]), ("bob", [4], [1])])
    >>> found = answers_of([(votes, Decisions.sure(np.array([4, 7]), np.array([1, 1])), [])], np.full(9, -1))
    >>> found.samples.tolist(), found.known.tolist(), found.label.tolist(), found.names
    ([4, 7], [1, -1], [0, 1], ('ann',))
    """
    history: dict[int, list[tuple[int, float, list[tuple[str, int]]]]] = {}
    drawn = set[int]()
    for votes, decisions, by_chance in rounds:
        drawn |= set(by_chance)
        said: dict[int, list[tuple[str, int]]] = {}
        for item, who, label in votes:
            said.setdefault(item, []).append((who, label))
        decided = zip(decisions.items.tolist(), decisions.labels.tolist(), decisions.support.tolist(), strict=True)
        for item, label, support in decided:
            past, now = history.setdefault(item, []), said.get(item, [])
            if now and now[0][0] == "undo":
                del past[-1:]
            else:
                past.append((label, support, now))
    samples, known, rows = list[int](), list[int](), list[tuple[int, str, int]]()
    for item in sorted(history):
        past = history[item]
        last, gold = dict[str, int](), int(given[item])
        for label, support, now in past:
            overruled = label != UNRESOLVED and support >= 1.0 and any(vote != label for _, vote in now)
            gold = label if overruled else gold
            last.update(now[:-1] if overruled else now)
        heard = [(who, vote) for who, vote in last.items() if who not in NOT_PEOPLE and vote != UNRESOLVED]
        if heard:
            rows += [(len(samples), who, vote) for who, vote in heard]
            samples.append(item)
            known.append(gold)
    names = tuple(sorted({who for _, who, _ in rows}))
    at = {who: k for k, who in enumerate(names)}
    return Answers(
        np.array(samples, dtype=np.int64),
        np.array(known, dtype=np.int64),
        np.array([item in drawn for item in samples], dtype=bool),
        names,
        np.array([place for place, _, _ in rows], dtype=np.int64),
        np.array([at[who] for _, who, _ in rows], dtype=np.int64),
        np.array([vote for _, _, vote in rows], dtype=np.int64),
    )


@dataclass(frozen=True)
class Estimate:
    """How often people err, and what is believed of the samples they answered."""

    facts: PeopleFacts
    samples: Ints
    """(m,) rows."""
    Q: Float64s
    """(m, C) q."""


def estimate(answers: Answers, A: Float64s, trusted: Float64s, y: Ints, error: float | None = None) -> Estimate:
    """From held-out logits of the answered samples (m, C) and of the trusted ones (n, C), whose classes are y (n,).

    An `error` that is given is taken for ε̂.
    """
    errors = _ERRORS if error is None else np.array([error])
    fair = _likelihoods(answers.among(answers.drawn), A[answers.drawn], errors, SHARES)
    fair += [[_log_likelihood(trusted, y, float(s), float(d)) for d in SHARES] for s in SCALES]
    asked = _likelihoods(answers.among(~answers.drawn), A[~answers.drawn], errors, SHARES_ASKED)
    profile = fair.max(axis=(1, 2)) + asked.max(axis=(1, 2))
    at = int(profile.argmax())
    P = np.where(
        answers.drawn[:, None],
        predicted(A, *_best(fair[at], SHARES), answers.known),
        predicted(A, *_best(asked[at], SHARES_ASKED), answers.known),
    )
    Q, rates = _believed(answers, P, float(errors[at]))
    low, high = _interval(profile) if error is None else (error, error)
    facts = answers.facts((float(errors[at]), low, high), rates)
    return Estimate(facts, answers.samples, Q)


def predicted(A: Float64s, scale: float, share: float, known: Ints) -> Float64s:
    """p (m, C) of held-out logits; the known class where there is one."""
    C = A.shape[1]
    P = (1.0 - share) * np.exp(log_probabilities(scale * A)) + share / C
    return np.where((known == UNRESOLVED)[:, None], P, np.eye(C)[np.maximum(known, 0)])


def doubts(samples: Ints, decided: Ints, Q: Float64s, error: float) -> list[Doubt[int]]:
    """The answers that are worth a second look, those where another answer is worth most first."""
    top, wrong = Q.argmax(axis=1), 1.0 - Q[np.arange(len(Q)), decided]
    worth = value_of_asking(Q, error)
    doubtful = np.flatnonzero((top != decided) | (Q.max(axis=1) < SURE))
    found = []
    for k in doubtful[np.lexsort((samples[doubtful], -wrong[doubtful], -worth[doubtful].round(9)))].tolist():
        reason = "the model contradicts the answer" if top[k] != decided[k] else "the answer leaves doubt"
        found.append(Doubt(int(samples[k]), int(decided[k]), int(top[k]), float(wrong[k]), float(worth[k]), reason))
    return found


def value_of_asking(Q: Float64s, error: float) -> Float64s:
    """(m,): what one more answer of a person who errs this often adds to the probability that the best class is right.

    >>> value_of_asking(np.array([[0.5, 0.5], [0.99, 0.01]]), 0.1).round(3).tolist()
    [0.4, 0.0]
    """
    C = Q.shape[1]
    other = error / (C - 1)
    best = np.sort(Q, axis=1)
    first = np.where(best[:, -1:] == Q, best[:, -2:-1], best[:, -1:])  # the best of the other classes
    after = np.maximum((1.0 - error) * Q, other * first).sum(axis=1)
    return np.asarray(after - best[:, -1])


def _likelihoods(answers: Answers, A: Float64s, errors: Float64s, shares: Float64s) -> Float64s:
    """Σ_i log L_i by ε, s and δ: (errors, scales, shares).

    Of the classes of a sample only those that somebody named differ, so L_i is a sum over these and one term for the others.
    """
    C, m = A.shape[1], len(answers.samples)
    found = np.zeros((len(errors), len(SCALES), len(shares)))
    if m == 0:
        return found
    pairs, votes = np.unique(answers.place * C + answers.label, return_counts=True)
    place, label = np.divmod(pairs, C)
    first, total = np.searchsorted(place, np.arange(m)), np.bincount(answers.place, minlength=m)
    right, wrong = 1.0 - errors[:, None], errors[:, None] / (C - 1)
    named = right**votes * wrong ** (total[place] - votes)  # (errors, pairs)
    nobody = wrong**total  # (errors, m)
    for s, scale in enumerate(SCALES):
        for d, share in enumerate(shares):
            p = predicted(A, float(scale), float(share), answers.known)[place, label]
            rest = np.maximum(1.0 - np.bincount(place, weights=p, minlength=m), 0.0)
            sums = np.add.reduceat(named * p, first, axis=1) + nobody * rest
            found[:, s, d] = np.log(np.maximum(sums, _TINY**4)).sum(axis=1)
    return found


def _best(likelihood: Float64s, shares: Float64s) -> tuple[float, float]:
    """The scale and share where it is largest."""
    s, d = np.unravel_index(likelihood.argmax(), likelihood.shape)
    return float(SCALES[s]), float(shares[d])


def _log_likelihood(A: Float64s, y: Ints, scale: float, share: float) -> float:
    P = predicted(A, scale, share, np.full(len(y), UNRESOLVED))
    return float(np.log(np.maximum(P[np.arange(len(y)), y], _TINY)).sum())


def _interval(profile: Float64s) -> tuple[float, float]:
    """Where the profile is within ½ χ² of its maximum, between the points of the grid by a straight line."""
    level = float(profile.max()) - 0.5 * float(chi2.ppf(LEVEL, 1))
    inside = np.flatnonzero(profile >= level)
    ends = []
    for at, beyond in ((int(inside[0]), int(inside[0]) - 1), (int(inside[-1]), int(inside[-1]) + 1)):
        if not 0 <= beyond < len(profile):
            ends.append(float(_ERRORS[at]))
            continue
        part = (profile[at] - level) / (profile[at] - profile[beyond])
        ends.append(float(_ERRORS[at] + part * (_ERRORS[beyond] - _ERRORS[at])))
    return ends[0], ends[1]


def _believed(answers: Answers, P: Float64s, error: float) -> tuple[Float64s, Float64s]:
    """Beliefs (m, C) and error rates of persons (W,)."""
    C, log_p = P.shape[1], np.log(np.maximum(P, _TINY))
    count = np.bincount(answers.person, minlength=len(answers.names))
    errors = np.full(len(answers.names), max(error, _FLOOR))
    Q = P
    for _ in range(_ALTERNATIONS):
        more = np.log(1.0 - errors) - np.log(errors / (C - 1))  # what a vote adds for the class it names
        L = log_p.copy()
        np.add.at(L, (answers.place, answers.label), more[answers.person])
        Q = np.exp(log_probabilities(L))
        missed = np.bincount(
            answers.person, weights=1.0 - Q[answers.place, answers.label], minlength=len(answers.names)
        )
        errors = np.clip((missed + _POOLING * error) / (count + _POOLING), _FLOOR, 0.5)
    return Q, errors
