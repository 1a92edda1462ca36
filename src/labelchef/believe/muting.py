"""What muting a source would change: derivatives in reverse through the alternations of a source model.

Let L depend on the beliefs Q that a source model ends with, and Q̄ (n, C) be its derivatives by them. For alternations t = A … 1,
q^t ∝ p Π θ^t(λ | ·) and θ^t = counts(q^{t−1}) / m, where the belief in sample k counts w_k (ρ for *Joint*, 1 for *Dawid–Skene*, 0
for *naive Bayes*) and a clean sample 1:

    Z̄_k = q_k ∘ (Q̄_k − q_k·Q̄_k)               derivative by the logits of q_k; weak samples only
    R_j[v, c] = Σ_weak T_kjv Z̄_kc               by log θ_j(v | c)
    c̄_j[v, c] = R_j[v, c] / counts_j[v, c]      by a count
    B_k = Σ_jv T_kjv c̄_j[v]                     by what sample k is believed to be;  Q̄_k ← w_k B_k, and the next t

Dawid–Skene divides by the votes of a worker, which are counts themselves: c̄_j[v, c] −= Σ_u R_j[u, c] / m_jc; and its class
frequencies add Σ_k Z̄_kc / size_c to every B_kc.

Muting source j takes its factor out of every q^t, and its votes out of the weak labels that alternations start from. This
change of beliefs, Δq^t, is taken in full where the source votes; what follows from it for the rates of the others is of first
order:

    muted(j) = Σ_t Σ_k Q̄_k^t · Δq_k^t            Q̄^t, t < A, without what reaches L by the counts of j itself

Shapes: T (n, J·C); θ, counts, R, c̄ (J, C, C); Q̄, Z̄, B (n, C).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.believe.evidence import Evidence, expected_counts, softened, softmax
from labelchef.believe.models import Alternation, DawidSkene, Joint, NaiveBayes, Product, Shares, SourceModel
from labelchef.believe.votes import SMOOTHING, SourceVotes

_VOTES = 1 << 17  # at a time

Alternating = Joint | NaiveBayes | DawidSkene


@dataclass(frozen=True)
class Step:
    """One alternation and the derivatives that belong to it."""

    taken: Alternation
    by_belief: Float64s
    """(n, C): Q̄ of `taken.after`."""
    by_count: Float64s
    """(J, C, C): c̄."""
    by_share: Float64s
    """(n, C): B, by the share of a sample in the counts."""


def muted(model: SourceModel, evidence: Evidence, by_belief: Float64s, instead: Float64s) -> Float64s:
    """(J,): the change of L if a source were muted.

    A sample of which the model then says nothing does not train as a weak one: the same as if it trained with the learner's own
    probabilities, `instead` (n, C).
    """
    votes, weak = evidence.votes, evidence.weak
    found = np.zeros(votes.n_sources)
    steps = backwards(model, evidence, by_belief) if isinstance(model, Alternating) else []
    share = weight_of_beliefs(model, evidence) if isinstance(model, Alternating) else weak.astype(np.float64)
    for rows, sources, table in _voting(votes, weak):
        quiet = _alone(model, evidence, rows, sources)[:, None]
        by_end, change = by_belief[rows], np.zeros(len(rows))
        for step in steps:
            Q = step.taken.after[rows]
            without = softmax(np.log(np.maximum(Q, 1e-300)) - _along(table, np.log(step.taken.rates)))
            gone = instead[rows] if step is steps[0] else 0.0
            change += _dot(by_end, np.where(quiet, gone, without) - Q)[:, 0]
            by_end = share[rows, None] * (step.by_share[rows] - _along(table, step.by_count))
        Q, without = _start(model, evidence, rows, sources, table)
        change += _dot(by_end, (without if steps else np.where(quiet, instead[rows], without)) - Q)[:, 0]
        found += np.bincount(sources, change, minlength=len(found))
    return found


def weight_of_beliefs(model: Alternating, evidence: Evidence) -> Float64s:
    """(n,) w: how much the belief in a weak sample counts for the rates; 0 for clean samples."""
    weak = evidence.weak
    if isinstance(model, Joint):
        n_weak = int(weak.sum())
        return np.asarray(weak * model.weight_of_beliefs(len(weak) - n_weak, n_weak))
    return np.asarray((weak & ~evidence.votes.silent) * float(isinstance(model, DawidSkene)))


def backwards(model: Alternating, evidence: Evidence, by_belief: Float64s) -> list[Step]:
    """The alternations with their derivatives, the last one first."""
    votes, share = evidence.votes, weight_of_beliefs(model, evidence)[:, None]
    found = []
    for taken in reversed(list(model.alternate(evidence))):
        by_logits = _by_logits(taken.after, by_belief, evidence.weak)
        R = expected_counts(votes, by_logits, np.ones(votes.n_rows))
        by_count = R / (taken.rates * taken.totals)
        if isinstance(model, DawidSkene):
            by_count = by_count - R.sum(axis=1, keepdims=True) / taken.totals
        by_share = np.asarray(votes.table @ by_count.reshape(-1, votes.n_classes))
        if isinstance(model, DawidSkene):
            sizes = taken.before[~evidence.votes.silent | ~evidence.weak].sum(axis=0)
            by_share += by_logits.sum(axis=0) / np.maximum(sizes, 1e-9)
        found.append(Step(taken, by_belief, by_count, by_share))
        by_belief = share * by_share
    return found


def _voting(votes: SourceVotes, which: Bools) -> Iterator[tuple[Ints, Ints, Any]]:
    """Every vote on some of the samples, a part at a time: samples (m,), sources (m,), the votes as rows of a table (m, J·C)."""
    table, C = votes.table, votes.n_classes
    rows, sources = np.repeat(np.arange(votes.n_rows), np.diff(table.indptr)), table.indices // C
    first = np.flatnonzero(np.diff(rows, prepend=-1) | np.diff(sources, prepend=-1))
    ends = np.append(first, len(rows))
    for lo in range(0, len(first), _VOTES):
        some = ends[lo : lo + _VOTES + 1]
        entries, part = slice(some[0], some[-1]), first[lo : lo + _VOTES]
        shape, kept = (len(part), table.shape[1]), which[rows[part]]
        found = csr_array((table.data[entries], table.indices[entries], some - some[0]), shape=shape)
        yield rows[part][kept], sources[part][kept], found[kept]


def _along(table: Any, tables: Float64s) -> Float64s:
    """(m, C): rows of votes (m, J·C) times (J, C, C)."""
    return np.asarray(table @ tables.reshape(-1, tables.shape[2]))


def _alone(model: SourceModel, evidence: Evidence, rows: Ints, sources: Ints) -> Bools:
    """(m,) whether the model would say nothing of a sample without the vote of this source."""
    if isinstance(model, Joint | Product):
        return np.zeros(len(rows), dtype=bool)
    counted = isinstance(model, Shares) and evidence.given_source is None
    presence = (evidence.counted if counted else evidence.votes).presence
    few = np.asarray(presence[rows].sum(axis=1)).ravel() <= 1.0 + 1e-9
    return np.asarray(few & (evidence.heard[sources] | (not counted)))


def _start(model: SourceModel, evidence: Evidence, rows: Ints, sources: Ints, table: Any) -> tuple[Float64s, Float64s]:
    """(m, C) beliefs that the model starts from, and the same without one vote each."""
    C = evidence.votes.n_classes
    one = csr_array((table.data, table.indices % C, table.indptr), shape=(len(rows), C)).toarray()
    if isinstance(model, NaiveBayes):
        return one, one
    if isinstance(model, DawidSkene):
        return _without(evidence.votes.rows(rows), one, model.smoothing)
    weak, given = evidence.shares[rows], evidence.given_source
    _, without = _without(evidence.counted.rows(rows), one * evidence.heard[sources, None], SMOOTHING)
    if given is not None:
        without = np.where((sources == given)[:, None], without, weak)
    if isinstance(model, Shares):
        return weak, without
    log_p = evidence.log_p[rows]
    return softmax(log_p + np.log(softened(weak))), softmax(log_p + np.log(softened(without)))


def _without(votes: SourceVotes, one: Float64s, smoothing: float) -> tuple[Float64s, Float64s]:
    """(m, C) vote shares, and the same without one vote on each sample."""
    shares = votes.shares(smoothing)
    counts = np.asarray(votes.presence.sum(axis=1)).reshape(-1, 1) + votes.n_classes * smoothing
    rest = np.maximum(shares * counts - one, smoothing)
    return shares, np.asarray(rest / rest.sum(axis=1, keepdims=True))


def _by_logits(Q: Float64s, by_belief: Float64s, weak: Bools) -> Float64s:
    """Z̄ (n, C), zero where a sample is clean."""
    return np.asarray(weak[:, None] * Q * (by_belief - _dot(Q, by_belief)))


def _dot(A: Float64s, B: Float64s) -> Float64s:
    return np.asarray((A * B).sum(axis=1, keepdims=True))
