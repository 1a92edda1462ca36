"""From the influences of a sample's possible answers to the one number it is ranked by.

    best case   min_c I(i, c), assumed answer argmin_c I(i, c)            INFL (paper section 4.1.1)
    expected    Σ_c Q[i, c] I(i, c) − β sd_Q I(i, ·), assumed answers Q[i]  expected influence

Shapes: A, S, Y (n, C), γ (n,); worth, influence (n,); answers (n, C), rows on the simplex; by_answer (n, C).
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
    """`worth` is what samples are ranked by, smallest first; `influence` and `by_answer` are those of `Batch`."""

    worth: Float64s
    influence: Float64s
    answers: Float64s
    """Assumed for each sample: one-hot, or a distribution over the classes."""
    by_answer: Float64s


class Appraisal(Protocol):
    """How influences become a worth; negative helps."""

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """The worth of some samples."""
        ...


@dataclass(frozen=True)
class BestCase:
    """Assumes the answer that helps most."""

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """min_c I(i, c) and the class with this influence."""
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        best = scores.min(axis=1)
        return Worth(best, best, np.eye(S.shape[1])[scores.argmin(axis=1)], scores)


@dataclass(frozen=True)
class Expected:
    """Expects answers Q, for a step η towards the trusted samples; `optimism` is β, the weight of the spread."""

    eta: float
    optimism: float

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> Worth:
        """Σ_c Q[i, c] I(i, c) minus β times the spread, and Q."""
        Q = expected_answers(A, S, self.eta)
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        mean = np.einsum("ic,ic->i", Q, scores)
        spread = np.sqrt(np.maximum(np.einsum("ic,ic->i", Q, scores**2) - mean**2, 0.0))
        return Worth(np.asarray(mean - self.optimism * spread), np.asarray(mean), Q, scores)
