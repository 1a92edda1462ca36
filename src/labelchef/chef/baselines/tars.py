"""TARS: the expected gain of asking, over all decisions of the annotators (Dolatshah et al. 2018; paper appendix, 'TARS').

TARS uses hard labels: weak ones are rounded, ỹ_i = argmax Y[i], and the model is that of the rounded labels. A sample's value
is the expected change of the validation loss over the decisions d that n annotators may come to,

    E_i = Σ_d O[ỹ_i, d] I(i, d),      O[ỹ, d] = Σ_t Pr(t | ỹ) B[t, d]                            smallest first

    I(i, d)     INFL's formula (A) at the rounded label, in place of the source's model refitted for each outcome
    A[t, a]     how often a person says a where t is right: counted from the votes on samples that are clean now, added to
                a prior of `prior_votes` votes for each class, of which the share `prior_error` is wrong
    B[t, d]     how often the majority of n people with confusion A says d; a tie is no decision and changes nothing
    Pr(t | ỹ)   ∝ π[t] T[t, ỹ],  π the class shares of validation
    T = R J     confusion of the rounded weak labels: R[t, m] what the model predicts for validation samples of class t,
                J[m, ỹ] which rounded weak labels go with its prediction on training samples not cleaned yet

T is exact if the model is right everywhere (T = J), and if it repeats the weak labels (T = R). All counts of R, J and π start
at one (Laplace). B is a sum over counts of votes, not over all Cⁿ outcomes: with c ~ multinomial(n, A[t]),

    B[t, d] = Σ_k n! · [zⁿ] (A[t, d] z)ᵏ/k! · Π_{a≠d} Σ_{j<k} (A[t, a] z)ʲ/j!

Shapes: A, B, T, R, J, O (C, C); π (C,); I (N, C); E (N,).
"""

from dataclasses import dataclass
from math import factorial
from typing import ClassVar

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import UNRESOLVED, Batch
from labelchef.chef.baselines.influence import RankedAlongV
from labelchef.chef.baselines.rounded import hard_classes, rounded
from labelchef.chef.selectors.protocol import NOT_PEOPLE, SelectionContext, measured
from labelchef.chef.selectors.ranking import Ranking
from labelchef.model.influence import influence_matrix

LARGEST_PANEL = 99
"""Largest number of annotators for one item; the majority of more is practically the same."""


def majority_shares(A: Float64s, n: int) -> Float64s:
    """B for n annotators of confusion A; each row sums to one minus the probability of a tie.

    >>> majority_shares(np.array([[0.9, 0.1], [0.2, 0.8]]), 3).round(3).tolist()
    [[0.972, 0.028], [0.104, 0.896]]
    """
    C = len(A)
    B = np.zeros((C, C))
    powers = A[:, :, None] ** np.arange(n + 1) / np.array([float(factorial(j)) for j in range(n + 1)])
    for t in range(C):
        for d in range(C):
            for k in range(1, n + 1):
                others = np.ones(1)
                for a in range(C):
                    if a != d:
                        others = np.convolve(others, powers[t, a, :k])[: n - k + 1]
                if len(others) == n - k + 1:
                    B[t, d] += powers[t, d, k] * others[n - k]
    return B * float(factorial(n))


def annotator_confusion(
    context: SelectionContext, *, prior_error: float = 0.05, prior_votes: float = 20.0
) -> tuple[Float64s, int | None]:
    """A, and the mean number of people who voted on an item so far (None before any vote)."""
    C, truth = context.objective.labels.Y.shape[1], hard_classes(context)
    counts = prior_votes * np.where(np.eye(C, dtype=bool), 1.0 - prior_error, prior_error / (C - 1))
    votes, asked = 0, 0
    for record in context.rounds:
        people = ~np.isin(np.array(record.votes.workers, dtype=object), NOT_PEOPLE)
        items, said = record.votes.items[people], record.votes.labels[people]
        votes, asked = votes + len(items), asked + len(np.unique(items))
        known = context.cleaned[items] & (said != UNRESOLVED)
        np.add.at(counts, (truth[items[known]], said[known]), 1.0)
    return counts / counts.sum(axis=1, keepdims=True), round(votes / asked) if asked else None


def posterior_of_truth(context: SelectionContext, weak: Ints) -> Float64s:
    """Pr(t | ỹ), rows ỹ, columns t, for a model on rounded labels."""
    C = context.objective.labels.Y.shape[1]
    predicted = context.probabilities.argmax(axis=1)
    open_ = ~context.cleaned
    R = _shares(context.trusted.y, (context.trusted.X @ context.point.W).argmax(axis=1), C)
    J = _shares(predicted[open_], weak[open_], C)
    prior = 1.0 + np.bincount(context.trusted.y, minlength=C)
    joint = (prior[:, None] * (R @ J)).T
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def _shares(given: Ints, seen: Ints, C: int) -> Float64s:
    """The share of each `seen` class among the samples of each `given` class; counts start at one."""
    counts = np.ones((C, C))
    np.add.at(counts, (given, seen), 1.0)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


@dataclass
class TarsSelector(RankedAlongV):
    """The samples whose cleaning is expected to lower the validation loss most, over all answers. Suggests no label."""

    annotators: int = 3
    """People asked about an item; replaced by the mean so far once there are votes."""
    prior_error: float = 0.05
    prior_votes: float = 20.0
    name: ClassVar[str] = "tars"

    def __post_init__(self) -> None:
        if self.annotators < 1 or not 0.0 < self.prior_error < 1.0 or not self.prior_votes > 0.0:
            raise InvalidInputError(
                f"annotators={self.annotators}, prior_error={self.prior_error}, prior_votes={self.prior_votes}; expected "
                "at least one annotator, an error between 0 and 1 and a positive number of votes",
                code="selector",
            )

    @measured
    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The batch for the campaign with rounded labels."""
        return super().select(rounded(context), batch_size)

    def rank(self, context: SelectionContext, S: Float64s) -> Ranking:
        """E of all samples, which is `influence` too."""
        labels = context.objective.labels
        change = influence_matrix(S, context.probabilities, labels.Y, labels.weight)
        scores = np.einsum("ic,ic->i", self.outcomes(context)[hard_classes(context)], change)
        return Ranking(scores, influence=scores)

    def outcomes(self, context: SelectionContext) -> Float64s:
        """O: how often each decision follows a rounded weak label."""
        A, seen = annotator_confusion(context, prior_error=self.prior_error, prior_votes=self.prior_votes)
        B = majority_shares(A, min(seen or self.annotators, LARGEST_PANEL))
        return np.asarray(posterior_of_truth(context, hard_classes(context)) @ B)
