"""The audit: a share of what is asked is drawn uniformly, predicted before it is answered, and so judges the model at any time.

**How many.** Before a batch of b items, with a items asked and s of them audited so far, an audit share ρ and a start
u ∈ [0, 1) from the seed, the batch gets

    ⌊ρ (a + b) + u⌋ − s       audited items, at least 0 and at most b.

So the audited items are never more than one away from ρ times the asked ones, however small the batches are, and are ρ times
the asked ones on average over the seeds. They are drawn uniformly without replacement from what can be asked, before a selector
chooses the others.

**What is estimated.** x_i is 1 if the model as it was before the answer predicted audited item i correctly, else 0. Given the
past, x_i has mean m_i, the accuracy of that model on what could be asked then. The mean accuracy m̄_t is estimated by S_t / t:

    m̄_t = (1/t) Σ_{i ≤ t} m_i,          S_t = Σ_{i ≤ t} x_i

**Its interval, valid at all times.** For every λ,

    Π_i e^{λ x_i} / (1 + m_i (e^λ − 1))

is the capital of a fair game: every factor has mean 1. (It is a bet on x_i − m_i with stake (e^λ − 1) / (1 + m_i (e^λ − 1)).) The
logarithm is concave, so Π_i (1 + m_i (e^λ − 1)) ≤ (1 + m̄_t (e^λ − 1))^t, and the mixture over λ,

    K_t(m) = Σ_λ π(λ) e^{λ S_t} / (1 + m (e^λ − 1))^t

is at m = m̄_t at most the capital of a fair game that starts with 1. By Ville's inequality it ever reaches 1/α with probability
at most α, so

    { m : K_t(m) < 1/α }                contains m̄_t at all times t together, with probability 1 − α.

K_t is convex in m, so this is an interval; K_t depends on the counts only. π is a normal density of variance 1 on a grid of λ. In
contrast to the hedged capital of Waudby-Smith and Ramdas ("Estimating means of bounded random variables by betting"), whose
intervals are about as wide, the mixture does not depend on m, and so the model may change between the items.

This is about the past models: if the model improves, the present one is better than the interval says, and worse if it fell.

The macro-F1 of the same predictions is given with a bootstrap interval for one look, which is not valid at all times.

Shapes: predicted, answered (t,), class ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import UNRESOLVED, RoundRecord
from labelchef.base.validation import AuditPoint, AuditReport, Figure
from labelchef.judge.figures import figures
from labelchef.judge.gain import LEVEL

_STEPS = np.arange(-32, 33) / 5
_LAMBDAS = 0.02 * np.sinh(_STEPS)  # -6 to 6, denser near 0: with many items small bets decide
_DENSITY = np.log(np.cosh(_STEPS)) - 0.5 * _LAMBDAS**2
_LOG_PRIOR = _DENSITY - logsumexp(_DENSITY)
_HALVINGS = 30
_STREAM = 0xA0D17  # of random numbers: the seed is used elsewhere too


def audit_size(share: float, batch_size: int, asked: int, audited: int, seed: int) -> int:
    """How many items of the next batch are audited, after `asked` items of which `audited` were.

    >>> sizes, asked = [], 0
    >>> for _ in range(12):
    ...     sizes.append(audit_size(0.1, 5, asked, sum(sizes), seed=0))
    ...     asked += 5
    >>> sizes
    [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]
    """
    if not 0.0 <= share <= 1.0:
        raise InvalidInputError(f"audit is {share}; expected a share from 0 (no audit) to 1", code="audit")
    start = np.random.default_rng([seed, _STREAM]).random()
    wanted = int(np.floor(share * (asked + batch_size) + start)) - audited
    return min(max(wanted, 0), batch_size)


def draw_audit(eligible: Ints, size: int, round_number: int, seed: int) -> Ints:
    """The audited items of a round: `size` of the eligible ones (all, if they are fewer), uniform, in ascending order.

    >>> draw_audit(np.array([3, 5, 8, 9]), 2, round_number=1, seed=0).tolist()
    [5, 8]
    """
    rng = np.random.default_rng([seed, _STREAM, round_number])
    return np.sort(rng.choice(np.sort(eligible), min(size, len(eligible)), replace=False)).astype(np.int64)


def anytime_bounds(right: Ints, audited: Ints, level: float = LEVEL) -> tuple[Float64s, Float64s]:
    """Lower and upper ends, for counts of right predictions S_t among t audited items; arrays of one shape.

    >>> low, high = anytime_bounds(np.array([0, 45]), np.array([0, 50]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.729], [1.0, 0.984])
    """
    S, t = right.astype(np.float64), audited.astype(np.float64)
    return _lower(S, t, level), 1.0 - _lower(t - S, t, level)


def _lower(right: Float64s, audited: Float64s, level: float) -> Float64s:
    """The smallest m with K_t(m) < 1/α, by bisection between 0 and S_t / t; the density is symmetric, so one side is enough."""
    low, high = np.zeros_like(right), right / np.maximum(audited, 1.0)
    for _ in range(_HALVINGS):
        m = (low + high) / 2
        outside = _log_capital(m, right, audited) >= -np.log1p(-level)
        low, high = np.where(outside, m, low), np.where(outside, high, m)
    return low


def _log_capital(m: Float64s, right: Float64s, audited: Float64s) -> Float64s:
    growth = right[..., None] * _LAMBDAS - audited[..., None] * np.log1p(m[..., None] * np.expm1(_LAMBDAS))
    return np.asarray(logsumexp(growth + _LOG_PRIOR, axis=-1))


@dataclass(frozen=True)
class AuditTrail:
    """What was predicted of audited items before their answers, and the answers, in the order in which they were asked.

    >>> trail = AuditTrail.start(2).extended(np.array([0, 1, 1]), np.array([0, 1, 0]))
    >>> trail.size, round(trail.accuracy().value, 3)
    (3, 0.667)
    """

    predicted: Ints
    answered: Ints
    n_classes: int

    @classmethod
    def start(cls, n_classes: int) -> "AuditTrail":
        """Nothing audited yet."""
        none = np.empty(0, dtype=np.int64)
        return cls(none, none, n_classes)

    def extended(self, predicted: Ints, answered: Ints) -> "AuditTrail":
        """With more items; those that people could not decide are left out."""
        if len(predicted) != len(answered):
            raise InvalidInputError(
                f"{len(predicted)} predictions and {len(answered)} answers of audited items; expected as many of both",
                code="audit",
            )
        known = answered != UNRESOLVED
        return AuditTrail(
            np.concatenate([self.predicted, predicted[known]]),
            np.concatenate([self.answered, answered[known]]),
            self.n_classes,
        )

    @property
    def size(self) -> int:
        """Items that were audited and answered."""
        return len(self.answered)

    def accuracy(self) -> Figure:
        """Share of right predictions so far, with the interval that is valid at all times; 0 to 1 before the first item."""
        right = int((self.predicted == self.answered).sum())
        (low,), (high,) = anytime_bounds(np.array([right]), np.array([self.size]))
        value = right / self.size if self.size else float("nan")
        return Figure("accuracy", value, float(low), float(high), self.size, self._rarest())

    def course(self) -> tuple[Float64s, Float64s, Float64s]:
        """Accuracy after 1, 2, … items, and the ends of its interval, each (t,)."""
        right, audited = np.cumsum(self.predicted == self.answered), np.arange(1, self.size + 1)
        return right / audited, *anytime_bounds(right, audited)

    def one_look_figures(self, seed: int) -> dict[str, Figure]:
        """Accuracy and F1 with bootstrap intervals for a single look: who stops when one looks good stops too early."""
        if not self.size:
            return {}
        return figures(self.answered, self.predicted, self.n_classes, seed=seed, cross_fitted=False)

    def _rarest(self) -> int:
        return int(np.bincount(self.answered, minlength=self.n_classes).min())


def audit_trail(rounds: Sequence[RoundRecord], n_classes: int) -> AuditTrail:
    """The trail of past rounds: what was predicted when a sample was drawn, and what people then decided."""
    trail = AuditTrail.start(n_classes)
    for record in rounds:
        said = dict(zip(record.decisions.items.tolist(), record.decisions.labels.tolist(), strict=True))
        pairs = [(guess, said.get(item, UNRESOLVED)) for item, guess in record.batch.diagnostics.audited]
        if pairs:
            predicted, answered = np.array(pairs, dtype=np.int64).T
            trail = trail.extended(predicted, answered)
    return trail


def audit_report(rounds: Sequence[RoundRecord], share: float, n_classes: int) -> AuditReport:
    """What is shown of the audit; `share` is the setting."""
    trail = audit_trail(rounds, n_classes)
    course = zip(*(values.tolist() for values in trail.course()), strict=True)
    points = tuple(AuditPoint(k + 1, *point) for k, point in enumerate(course))
    return AuditReport(share, trail.accuracy() if trail.size else None, points)
