"""How a quantity that depends on beliefs changes with what the beliefs are made of: derivatives in reverse.

Let L depend on the beliefs Q that a source model ends with, and Q̄ (n, C) be its derivatives by them. For alternations t = A … 1,
q^t ∝ p Π θ^t(λ | ·) and θ^t = counts(q^{t−1}) / m, where the belief in sample k counts w_k (ρ for *Joint*, 1 for *Dawid–Skene*, 0
for *naive Bayes*) and a clean sample 1:

    Z̄_k = q_k ∘ (Q̄_k − q_k·Q̄_k)               derivative by the logits of q_k; weak samples only
    R_j[v, c] = Σ_weak T_kjv Z̄_kc               by log θ_j(v | c)
    c̄_j[v, c] = R_j[v, c] / counts_j[v, c]      by a count;  m̄_c = −Σ_jv R_j[v, c] / m_c  by a size of Joint
    B_k = Σ_jv T_kjv c̄_j[v]                     by what sample k is believed to be;  Q̄_k ← w_k B_k, and the next t

Dawid–Skene divides by the votes of a worker, which are counts themselves: c̄_j[v, c] −= Σ_u R_j[u, c] / m_jc; and its class
frequencies add Σ_k Z̄_kc / size_c to every B_kc.

**An answer** c for the weak sample i changes its share of all counts from s_i = w_i q_i to e_c, and, with p as it is, L by

    answers(i, c) = Σ_t Σ_u ([u = c] − s_iu) B_iu^t + Σ_u ([u = c] − ρ p_iu) m̄_u + (dL/dρ) Δρ

to first order. For one alternation, without the small terms, that is Σ_j (R_j[λ_ij, c] / counts − Σ_v R_j[v, c] / m_c). The last
term is the same for all (i, c): ρ follows the number of clean samples. Two corrections matter where counts are small. One vote
more multiplies θ by 1 + 1/counts; if q_kc grows by this factor and is scaled to sum to 1, its change is exactly Z̄_kc / (counts +
q_kc), so this stands for Z̄_kc / counts in the step upwards, u = c; 1 / m becomes log(1 + 1/m). And sample i itself, which is not
weak any more, is left out of R. For Dawid–Skene and naive Bayes, class frequencies change in the same way. The derivative by the
logits of p is the sum of all Z̄ and, by m, p ∘ (ρ m̄ − p·ρ m̄).

**Muting** source j takes its factor out of every q^t, and its votes out of the weak labels that alternations start from. This
change of beliefs, Δq^t, is taken in full where the source votes; what follows from it for the rates of the others is of first
order:

    muted(j) = Σ_t Σ_k Q̄_k^t · Δq_k^t            Q̄^t, t < A, without what reaches L by the counts of j itself

Shapes: T (n, J·C); θ, counts, R, c̄ (J, C, C); Q̄, Z̄, B, answers (n, C); m̄ (C,).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.sources import kernels
from labelchef.sources.evidence import Evidence, by_threads, expected_counts, softened, softmax
from labelchef.sources.models import Alternation, DawidSkene, Joint, NaiveBayes, Product, Shares, SourceModel
from labelchef.sources.votes import SMOOTHING, SourceVotes

_VOTES = 1 << 17  # at a time

Alternating = Joint | NaiveBayes | DawidSkene


@dataclass(frozen=True)
class Adjoint:
    """Derivatives of L, where L depends on what is believed of the weak samples."""

    logits: Float64s
    """(n, C): by the logits of the classifier p."""
    answers: Float64s
    """(n, C): change of L if sample i gets the clean label c and p stays as it is, by the beliefs in all other samples."""


@dataclass(frozen=True)
class Step:
    """One alternation and the derivatives that belong to it."""

    taken: Alternation
    by_belief: Float64s
    """(n, C): Q̄ of `taken.after`."""
    by_logits: Float64s
    """(n, C): Z̄."""
    by_rates: Float64s
    """(J, C, C): R."""
    by_count: Float64s
    """(J, C, C): c̄."""
    by_share: Float64s
    """(n, C): B, by the share of a sample in the counts."""


def adjoint(model: SourceModel, evidence: Evidence, by_belief: Float64s) -> Adjoint:
    """The derivatives, from those by the beliefs that `model` ends with, (n, C); rows of clean samples are not read."""
    weak, nothing = evidence.weak, np.zeros_like(evidence.log_p)
    if isinstance(model, Product):
        return Adjoint(_by_logits(evidence.first(), by_belief, weak), nothing)
    if not isinstance(model, Alternating):
        return Adjoint(nothing, nothing)
    steps, share = backwards(model, evidence, by_belief), weight_of_beliefs(model, evidence)[:, None]
    answers = sum((_by_votes(model, evidence, step) for step in steps), nothing)
    if not isinstance(model, Joint):
        return Adjoint(nothing, answers)
    P, n_weak = np.exp(evidence.log_p), int(weak.sum())
    rho = model.weight_of_beliefs(len(weak) - n_weak, n_weak)
    by_log_size = -sum(step.by_rates.sum(axis=(0, 1)) for step in steps)
    sizes = steps[0].taken.totals[0, 0]
    shown = evidence.shown[:, None]
    answers -= shown * _by_sizes(sum((_of_others(evidence, step) for step in steps), nothing), rho * P, sizes)
    by_size = by_log_size / sizes
    first = steps[-1]
    by_p = sum((step.by_logits for step in steps), nothing)
    by_p += _by_logits(first.taken.before, share * first.by_share, weak)
    by_p += weak[:, None] * shown * rho * P * (by_size - _dot(P, by_size))
    growth = model.weight_of_beliefs(len(weak) - n_weak + 1, n_weak - 1) - rho
    by_rho = float(by_size @ P[weak & evidence.shown].sum(axis=0))
    by_rho += sum(float(np.vdot(step.taken.before[weak], step.by_share[weak])) for step in steps)
    return Adjoint(by_p, answers + by_rho * growth)


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
            by_share += by_logits.sum(axis=0) / _class_sizes(model, evidence, taken)
        found.append(Step(taken, by_belief, by_logits, R, by_count, by_share))
        by_belief = share * by_share
    return found


def _by_votes(model: Alternating, evidence: Evidence, step: Step) -> Float64s:
    """(n, C): change of L by the counts of one alternation and by what they are divided by, for every answer."""
    votes, C = evidence.votes, evidence.votes.n_classes
    share = weight_of_beliefs(model, evidence)[:, None] * step.taken.before
    counts, totals = step.taken.rates * step.taken.totals, np.full_like(step.taken.rates, np.inf)
    full = _saturated(evidence, step, counts)
    if isinstance(model, DawidSkene):
        totals[:] = step.taken.totals + 0.5
        full -= step.by_rates.sum(axis=1, keepdims=True) / totals
    up, down, table = np.empty_like(share), np.empty_like(share), votes.table
    tables = tuple(np.ascontiguousarray(one.reshape(-1, C)) for one in (counts, totals, full, step.by_count))
    parts = (table.indptr, table.indices, table.data, step.by_logits, step.taken.after, *tables, up, down)
    by_threads(partial(kernels.teach_rows, *parts), votes.n_rows)
    found = _for_each_answer(up, down, share)
    if isinstance(model, Joint):
        return found
    if isinstance(model, NaiveBayes):
        found -= evidence.shown[:, None] * _by_sizes(_of_others(evidence, step), share, step.taken.totals[0, 0])
    by_frequency = step.by_logits.sum(axis=0) - step.by_logits
    return found + _by_sizes(by_frequency, share, _class_sizes(model, evidence, step.taken))


def _saturated(evidence: Evidence, step: Step, counts: Float64s) -> Float64s:
    """(J, C, C): Σ_k T_kjv Z̄_kc / (counts_j[v, c] + q_kc)."""
    table, C = evidence.votes.table, evidence.votes.n_classes
    flat = np.ascontiguousarray(counts.reshape(-1, C))

    def work(lo: int, hi: int) -> Float64s:
        found = np.zeros_like(flat)
        given = (table.indptr, table.indices, table.data, step.by_logits, step.taken.after, flat)
        kernels.saturate_rows(*given, found, lo, hi)
        return found

    return np.asarray(sum(by_threads(work, evidence.votes.n_rows))).reshape(counts.shape)


def _of_others(evidence: Evidence, step: Step) -> Float64s:
    """(n, C): Σ_jv R_j[v], without the part of the sample itself."""
    own = np.asarray(evidence.votes.presence.sum(axis=1)).reshape(-1, 1) * step.by_logits
    return np.asarray(step.by_rates.sum(axis=(0, 1)) - own)


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


def _class_sizes(model: Alternating, evidence: Evidence, taken: Alternation) -> Float64s:
    """(C,) what the class frequencies of naive Bayes or Dawid–Skene are in proportion to."""
    if isinstance(model, NaiveBayes):
        return evidence.class_counts + 1.0
    return np.asarray(np.maximum(taken.before[~evidence.votes.silent | ~evidence.weak].sum(axis=0), 1e-9))


def _by_sizes(by_log_size: Float64s, share: Float64s, sizes: Float64s) -> Float64s:
    """(n, C): Σ_u by_log_size[i, u] ([u = c] − share[i, u]) / sizes[u], steps upwards in full: log(1 + 1 / size) for 1 / size."""
    return _for_each_answer(by_log_size * np.log1p(1.0 / sizes), by_log_size / sizes, share)


def _for_each_answer(up: Float64s, down: Float64s, share: Float64s) -> Float64s:
    """(n, C): (1 − share[i, c]) up[i, c] − Σ_{u ≠ c} share[i, u] down[i, u]."""
    loss = share * down
    return np.asarray((1.0 - share) * up + loss - loss.sum(axis=1, keepdims=True))


def _by_logits(Q: Float64s, by_belief: Float64s, weak: Bools) -> Float64s:
    """Z̄ (n, C), zero where a sample is clean."""
    return np.asarray(weak[:, None] * Q * (by_belief - _dot(Q, by_belief)))


def _dot(A: Float64s, B: Float64s) -> Float64s:
    return np.asarray((A * B).sum(axis=1, keepdims=True))
