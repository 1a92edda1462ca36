"""What asking a sample is worth: its influences over the classes come to one number, and to the answer assumed for it.

    best case   min_c I(i, c), the answer that attains it               INFL (paper section 4.1.1)
    expected    Σ_c Q[i, c] I(i, c) − β sd_Q I(i, ·), the answers Q[i]  what people are expected to say

Shapes: A, S, Y (n, C), γ (n,); worth, influence (n,), answers (n, C), rows on the simplex.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from labelchef.core.influence import influence_matrix
from labelchef.core.posterior import expected_answers
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s


@dataclass(frozen=True)
class Worth:
    """What samples are ranked by, smallest first; the change of the validation loss it stands for; the answers assumed."""

    worth: Float64s
    influence: Float64s
    answers: Float64s
    by_answer: Float64s


class Appraisal(Protocol):
    """From influences to a worth; negative helps."""

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """The worth of some samples."""
        ...


@dataclass(frozen=True)
class BestCase:
    """The answer that would help most."""

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """min_c I(i, c) and the class that attains it."""
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        best = scores.min(axis=1)
        return Worth(best, best, np.eye(S.shape[1])[scores.argmin(axis=1)], scores)


@dataclass(frozen=True)
class Expected:
    """The answers to be expected, for a step η towards the trusted samples, and how much their spread counts."""

    eta: float
    optimism: float

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """Σ_c Q[i, c] I(i, c), less the spread, and Q."""
        Q = expected_answers(A, S, self.eta)
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        mean = np.einsum("ic,ic->i", Q, scores)
        spread = np.sqrt(np.maximum(np.einsum("ic,ic->i", Q, scores**2) - mean**2, 0.0))
        return Worth(np.asarray(mean - self.optimism * spread), np.asarray(mean), Q, scores)
