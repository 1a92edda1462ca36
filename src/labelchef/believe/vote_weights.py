"""How much the votes of a source count in what is believed of a sample: a weight for each source, from clean samples.

    Q_i(c) ∝ p_i(c) Π_j θ_j(λ_ij | c)^w_j,      w_j = μ + δ_j

    (μ, δ) = argmax Σ_k log Q_k(y_k) − (1 / 2σ²) [ (μ − ½)² + Σ_j δ_j² ],      σ = ½

θ alone takes sources for independent, given the class. Sources that repeat each other then count several times, and so does what
the classifier has learned from their votes: beliefs are more certain than they are right. A source that is independent of all
else has w = 1, one that only repeats others needs w = 0; the prior lies halfway, and is as wide. The maximum is unique.

The clean samples k are trusted ones with votes; with fewer than 50 of them, answered ones too. It is cross-fitted: p_k is the
model without sample k, at its temperature, and θ was learned without the fold of k where k is trusted. Where weak labels are
counted, there are no rates: the softened labels take the place of one source. With fewer than `FEWEST_VOTES` such samples nothing
shows how far votes can be believed together; then w = 0, and what is believed is what the model says, at its temperature.

Shapes: A (m, C) logits; G (m·C, J) sparse, log θ_j(λ_kj | c) less its mean over c; y (m,); w (J,).
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import coo_array, csr_array

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.learning import FEWEST_VOTES
from labelchef.believe import SourceVotes
from labelchef.model.softmax import cross_entropies, probabilities

PRIOR = 0.5
"""Halfway between a source that repeats others and an independent one; also the standard deviation."""


@dataclass(frozen=True)
class VoteWeights:
    """What votes count."""

    weights: Float64s
    """(J,), or (1,) where weak labels are counted."""
    measured_on: int
    """Clean samples with votes that they rest on; 0 where there are too few, and no vote counts."""


def fitted(A: Float64s, G: csr_array, y: Ints) -> VoteWeights:
    """The weights for these samples.

    >>> A, y = np.zeros((40, 2)), np.array([0, 1] * 20)
    >>> good = np.log(np.eye(2)[y] * 0.8 + 0.1).reshape(-1, 1)
    >>> twice = fitted(A, csr_array(np.hstack([good, good])), y).weights
    >>> bool(np.isclose(*twice)), bool(twice[0] < fitted(A, csr_array(good), y).weights[0])
    (True, True)
    """
    m, C = A.shape
    every, Y, first = np.asarray(G.sum(axis=1)).ravel(), np.eye(C)[y], np.zeros(G.shape[1] + 1)
    first[0] = PRIOR

    def loss(t: Float64s) -> tuple[float, Float64s]:
        Z = A + (t[0] * every + G @ t[1:]).reshape(m, C)
        residual, away = (probabilities(Z) - Y).ravel(), (t - first) / PRIOR**2
        slope = np.concatenate([[every @ residual], G.T @ residual])
        return float(cross_entropies(Z, Y).sum()) + 0.5 * float(away @ (t - first)), slope + away

    if m < FEWEST_VOTES:
        return VoteWeights(np.zeros(G.shape[1]), 0)
    found = minimize(loss, first, jac=True, method="L-BFGS-B", options={"gtol": 1e-8}).x
    return VoteWeights(np.asarray(found[0] + found[1:]), m)


def said(votes: SourceVotes, rates: Float64s) -> csr_array:
    """G (n·C, J) of votes on n samples, with rates (J, C, C) by source, vote and class."""
    L, C, table = np.log(rates), votes.n_classes, votes.table.tocoo()
    L -= L.mean(axis=2, keepdims=True)
    source, vote = np.divmod(table.col, C)
    rows = (table.row[:, None] * C + np.arange(C)).ravel()
    values = (table.data[:, None] * L[source, vote]).ravel()
    return csr_array(coo_array((values, (rows, np.repeat(source, C))), shape=(votes.n_rows * C, votes.n_sources)))


def counted(weak: Float64s) -> csr_array:
    """G (n·C, 1) of softened weak labels (n, C)."""
    L = np.log(weak)
    return csr_array((L - L.mean(axis=1, keepdims=True)).reshape(-1, 1))
