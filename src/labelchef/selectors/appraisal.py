"""What asking a sample is worth: its influences over the classes come to one number, and to the answer assumed for it.

    best case   min_c I(i, c), the answer that attains it               INFL (paper section 4.1.1)
    expected    Σ_c Q[i, c] I(i, c), the answers Q[i]                   what people are expected to say

Shapes: A, S, Y (n, C), γ (n,); worth (n,), answers (n, C), rows on the simplex.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from labelchef.core.influence import influence_matrix
from labelchef.core.posterior import expected_answers
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s


class Appraisal(Protocol):
    """From influences to a worth; negative helps."""

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> tuple[Float64s, Float64s]:
        """(worth, answers) of some samples."""
        ...


@dataclass(frozen=True)
class BestCase:
    """The answer that would help most."""

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> tuple[Float64s, Float64s]:
        """min_c I(i, c) and the class that attains it."""
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        return scores.min(axis=1), np.eye(S.shape[1])[scores.argmin(axis=1)]


@dataclass(frozen=True)
class Expected:
    """The answers to be expected, for a step η towards the trusted samples."""

    eta: float

    def of(self, A: Float64s, S: Float64s, Y: Float64s, gamma: Float64s) -> tuple[Float64s, Float64s]:
        """Σ_c Q[i, c] I(i, c) and Q."""
        Q = expected_answers(A, S, self.eta)
        scores = influence_matrix(S, probabilities(A), Y, gamma)
        return np.asarray(np.einsum("ic,ic->i", Q, scores)), Q
