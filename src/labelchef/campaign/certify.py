"""What the audit proves of the present model: a lower bound of its accuracy that holds at all times.

**What is certified.** P_t are the samples that could be asked and that nobody has answered by round t, n_t of them; f_t is
the model after round t. Samples have fixed answers: what people say when they are asked; a sample that people cannot decide has
an answer that no model predicts. e_t is the number of samples in P_t that f_t predicts wrongly, so its accuracy there is
1 − e_t/n_t. `campaign.audit` bounds the mean accuracy of the *past* models; if the model becomes worse, that says nothing of f_t.

**From past models to the present one.** Let round r+1 have audited samples, drawn uniformly from P_r and predicted by f_r, and
let ε_r be the number of samples in P_r that f_r predicts wrongly. Samples leave the pool only with an answer, so for every r ≤ t

    e_t  ≤  ε_r − A_r + D_r          A_r  samples that left between r and t, and that f_r predicts wrongly: known
                                     D_r  samples in P_t of which f_r and f_t predict different classes: known

because f_r is wrong on ε_r − A_r samples of P_t, and f_t can be wrong where f_r is right only where the two differ.

**Bounding the past.** Take the k audited samples since round s (a *window*). x_i ∈ {0, 1} says whether sample i was predicted
wrongly, by f_i from a pool of n_i ≤ n_s samples. Then

    v_i = x_i n_i / n_s ∈ [0, 1]     has mean     μ_i = ε_i / n_s     given the past,      V = Σ_i v_i.

A variable in [0, 1] with mean μ has E e^{−λv} ≤ 1 + μ (e^{−λ} − 1), as e^{−λv} is convex in v. Samples of one round are drawn
without replacement; the product of their factors then has at most the mean that it has with replacement (Hoeffding 1963, theorem
4). So for every λ > 0

    Π_i e^{−λ v_i} / (1 + μ_i (e^{−λ} − 1))

is, from round to round, the capital of a game that is fair or worse. As in `campaign.audit`, the product over i of the
denominators is at most (1 + μ̄ (e^{−λ} − 1))^k, and the mixture over λ > 0

    K(μ) = Σ_λ π(λ) e^{−λV} / (1 + μ (e^{−λ} − 1))^k

ever reaches 1/α at μ = μ̄ = mean of the μ_i with probability at most α, by Ville's inequality. K grows with μ, so

    μ̄ ≤ U_α(V, k) = max { μ : K(μ) < 1/α }      in all rounds t together, with probability 1 − α,

and with the means Ā, D̄ of A_i, D_i over the window

    e_t ≤ n_s U_α(V, k) − Ā + D̄.                                                                                        (C)

**Windows.** A long window has many samples, a late one has models like f_t. Windows begin with the first round, and with the
first round after 16, 32, 64, … audited samples, which is known when they begin. They have the shares 1/2, 1/(2·1·2),
1/(2·2·3), … of α, which add up to 1. So with probability 1 − α, (C) holds for all windows and all rounds together, and the best
of them counts. One may look whenever one likes, stop by what one sees, and let the model change in any way.

**What D costs.** The worst case, that f_t is wrong wherever it differs from f_r, is seldom true, but only answers could exclude
it. If f_t is no worse than the audited models, in the mean over the window, on the samples where they differ, then (C) holds
without D̄: `if_no_worse`. That is an assumption, so no rule stops by it.

**All samples.** Of the samples that were asked it is known how many f_t predicts as they were answered, `right` of `asked`. So
the accuracy of f_t on all samples that could be asked is at least (right + n_t − e_t) / (asked + n_t). Those it has learned from,
so this is no accuracy on new samples.

**The records carry it.** A record has what its model predicts of all samples, as the difference from the record before
(`encoded`), and the numbers of (C). So a certificate at any level follows from the last record, and every number in it from
the records.

Shapes: classes (N,), class ids; pool (N,) booleans.
"""

import base64
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from labelchef.campaign.gain import LEVEL
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.records import AuditState, AuditWindow, RoundRecord
from labelchef.domain.validation import Certificate

Classes = NDArray[np.uint16]
"""(N,) class ids."""
FIRST = 16
"""Audited samples before the second window; every further one begins after twice as many."""
_STEPS = np.arange(1, 33) / 5
_LAMBDAS = 0.02 * np.sinh(_STEPS)  # to 6, denser near 0, as in `campaign.audit`
_DENSITY = np.log(np.cosh(_STEPS)) - 0.5 * _LAMBDAS**2
_LOG_PRIOR = _DENSITY - logsumexp(_DENSITY)
_STAKES = np.expm1(-_LAMBDAS)
_HALVINGS = 24


def upper_mean(wrong: Float64s, audits: Float64s, alpha: Float64s) -> Float64s:
    """U_α(V, k): the largest mean that V among k audited samples leave possible; arrays of one shape.

    >>> upper_mean(np.array([0.0, 5.0]), np.array([0.0, 50.0]), np.array([0.05, 0.05])).round(3).tolist()
    [1.0, 0.252]
    """
    low, high = wrong / np.maximum(audits, 1.0), np.ones_like(wrong)
    gain = _LOG_PRIOR - wrong[..., None] * _LAMBDAS
    with np.errstate(over="ignore"):  # a capital beyond all numbers is beyond 1/α
        for _ in range(_HALVINGS):
            mean = (low + high) / 2
            capital = np.exp(gain - audits[..., None] * np.log1p(mean[..., None] * _STAKES)).sum(axis=-1)
            outside = capital >= 1.0 / alpha
            low, high = np.where(outside, low, mean), np.where(outside, mean, high)
    return np.asarray(high)


def shares(windows: int) -> Float64s:
    """The share of α that each window has, the first one first.

    >>> shares(3).round(4).tolist()
    [0.5, 0.25, 0.0833]
    """
    later = np.arange(1, windows)
    return np.concatenate([[0.5], 0.5 / (later * (later + 1))])[:windows]


def most_errors(
    audits: Float64s, wrong: Float64s, pool: Float64s, found: Float64s, differ: Float64s, level: float
) -> tuple[Float64s, Float64s]:
    """(C) without and with D̄, for the windows along the last axis: at most so many wrong predictions of unasked samples."""
    alpha = np.broadcast_to((1.0 - level) * shares(wrong.shape[-1]), wrong.shape)
    past = pool * upper_mean(wrong, audits, alpha) - found
    return past, past + differ


def certificate(state: AuditState | None, level: float = LEVEL) -> Certificate | None:
    """What is certified of the model of a record; None without audited samples, or with no sample left to speak of."""
    if state is None or not state.windows or not state.unasked:
        return None
    numbers = [(w.audits, w.wrong, w.pool, w.found, w.differ) for w in state.windows]
    audits, wrong, pool, found, differ = np.array(numbers, dtype=np.float64).T
    past, errors = most_errors(audits, wrong, pool, found, differ, level)
    best = int(errors.argmin())
    fewer, most = (float(np.clip(one.min(), 0.0, state.unasked)) for one in (past, errors))
    return Certificate(
        accuracy=1.0 - most / state.unasked,
        level=level,
        unasked=state.unasked,
        audits=state.windows[best].audits,
        differ=state.windows[best].differ / state.unasked,
        if_no_worse=1.0 - fewer / state.unasked,
        everywhere=(state.right + state.unasked - most) / (state.asked + state.unasked),
    )


@dataclass(frozen=True)
class Asked:
    """The samples that have their first answer in a round."""

    items: Ints
    answers: Ints
    """`UNRESOLVED` for none."""
    drawn: Bools
    """Which of them were audited: drawn by chance, and predicted before."""


def state_of(
    classes: Classes, past: Iterable[Classes], rounds: Sequence[Asked], pool: Bools, predictions: str = ""
) -> AuditState:
    """The numbers of (C) for the model that predicts `classes`, after these rounds.

    `past` are the classes that the model before each round predicts, in order; `pool` (N,) says which samples could be asked at
    the start.
    """
    nothing = np.empty(0, dtype=np.int64)
    left, answers = (np.concatenate([nothing, *(getattr(r, name) for r in rounds)]) for name in ("items", "answers"))
    now = pool.copy()
    now[left] = False
    unasked = int(np.count_nonzero(now))
    sums: list[_Sum] = []
    gone = audits = 0
    for then, one in zip(past, rounds, strict=True):
        k = int(np.count_nonzero(one.drawn))
        if k:
            size = unasked + len(left) - gone
            if not sums or audits >= FIRST << (len(sums) - 1):
                sums.append(_Sum(size))
            audits += k
            wrong = int(np.count_nonzero(then[one.items[one.drawn]] != one.answers[one.drawn]))
            found = int(np.count_nonzero(then[left[gone:]] != answers[gone:]))
            differ = int(np.count_nonzero((then != classes) & now))
            for window in sums:
                window.add(k, wrong * size / window.pool, found, differ)
        gone += len(one.items)
    right = int(np.count_nonzero(classes[left] == answers))
    return AuditState(predictions, unasked, len(left), right, tuple(one.mean() for one in sums))


@dataclass
class _Sum:
    """A window while it is summed up."""

    pool: int
    audits: int = 0
    wrong: float = 0.0
    found: int = 0
    differ: int = 0

    def add(self, audits: int, wrong: float, found: int, differ: int) -> None:
        self.audits += audits
        self.wrong += wrong
        self.found += audits * found
        self.differ += audits * differ

    def mean(self) -> AuditWindow:
        return AuditWindow(self.audits, self.wrong, self.pool, self.found / self.audits, self.differ / self.audits)


def next_state(rounds: Sequence[RoundRecord], record: RoundRecord, classes: Classes, pool: Bools) -> AuditState:
    """The state of a new record after `rounds`, whose model predicts `classes`."""
    last = deque(predicted_by(rounds, len(pool)), maxlen=1)
    before = last[0] if last else np.zeros(len(pool), dtype=classes.dtype)
    asked = first_answers([*rounds, record], pool)
    return state_of(classes, predicted_by(rounds, len(pool)), asked, pool, encoded(before, classes))


def first_answers(rounds: Sequence[RoundRecord], pool: Bools) -> list[Asked]:
    """What was asked in each round after the first; a sample counts with its first answer, and as audited if it was drawn then.

    Rounds before which a record does not say what its model predicts, as of a campaign of an older version, audit nothing.
    """
    fresh, found = pool.copy(), []
    for before, record in pairwise(rounds):
        items, at = np.unique(record.decisions.items, return_index=True)
        new = fresh[items]
        items, answers = items[new], record.decisions.labels[at[new]]
        fresh[items] = False
        drawn = np.array([item for item, _ in record.batch.diagnostics.audited], dtype=np.int64)
        found.append(Asked(items, answers, np.isin(items, drawn) & (before.audit is not None)))
    return found


def predicted_by(rounds: Sequence[RoundRecord], n: int) -> Iterator[Classes]:
    """What the model of each record predicts of all n samples, (n,); where a record does not say it, as the one before."""
    classes = np.zeros(n, dtype=np.uint16)
    for record in rounds:
        if record.audit is not None:
            classes = decoded(classes, record.audit.predictions)
        yield classes


def encoded(before: Classes, after: Classes) -> str:
    """Where two arrays of classes differ, as a short text: steps between the places and the new classes, compressed.

    >>> before, after = np.array([0, 1, 2, 2], np.uint16), np.array([0, 2, 2, 1], np.uint16)
    >>> decoded(before, encoded(before, after)).tolist()
    [0, 2, 2, 1]
    """
    places = np.flatnonzero(before != after)
    steps = np.diff(places, prepend=0).astype("<u4").tobytes()
    return base64.b85encode(zlib.compress(steps + after[places].astype("<u2").tobytes())).decode()


def decoded(before: Classes, text: str) -> Classes:
    """The second array, from the first one and the text."""
    data = zlib.decompress(base64.b85decode(text))
    size = len(data) // 6
    after = before.copy()
    places = np.cumsum(np.frombuffer(data[: 4 * size], dtype="<u4"), dtype=np.int64)
    after[places] = np.frombuffer(data[4 * size :], dtype="<u2")
    return after
