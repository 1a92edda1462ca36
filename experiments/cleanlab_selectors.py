"""Peers of our selectors, computed by cleanlab (extra `peers`) from class probabilities by models that did not see the sample.

**Out-of-fold probabilities** P (N, C). Samples are dealt into K folds, stratified by their labels (the most probable class). The
model of fold k is the optimum of the same objective on all others,

    F_k(W) = (1/n_k) Σ_{i outside k} r_i ℓ_i(W) + (λ/2) ‖W‖²,      P[i] = softmax(x_i W_k)  for i in fold k,

with n_k samples outside the fold, soft labels and weights as in training. X is not copied: the rows of the fold get weight
zero and the others N/n_k. So one engine serves all folds, and the last sweep of a solve also gives the logits of the rows
left out. Solves start from the present W and its frozen curvature.

**Label quality** (Northcutt et al. 2021; Kuan & Mueller 2022): labels least likely to be right first.

    y_i      = argmax_c Y[i, c]                    the given label: a clean one, or the weak one rounded (equal: the first)
    score_i  = cleanlab.rank.get_label_quality_scores(y, P, method)[i],   smallest first
               self_confidence: P[i, y_i];   normalized_margin: P[i, y_i] − max_{c ≠ y_i} P[i, c], scaled to [0, 1];
               confidence_weighted_entropy: entropy of P[i] over the self-confidence, turned and scaled
    suggest  = argmax_c P[i, c]

Only the label that is scored is rounded, not those that the model is trained on. Cleaned samples are trained on, not asked.

**ActiveLab** (Goh & Mueller 2023): the samples for which one more label tells most.

    score_i = [ (Σ_{j ∈ A_i} w_j + w_M) q_i + w̄ / C ] / (Σ_{j ∈ A_i} w_j + w_M + w̄),   smallest first

A_i are the annotators of sample i, w_j and w_M the trust in annotator j and in the model as estimated from their agreement,
w̄ the mean of w_j, q_i CROWDLAB's quality of the consensus label. `cleanlab.multiannotator.get_active_learning_scores`
computes all of it from P and from labels (N, M), one column for each annotator, NaN where there is no label:

- *The weak labels* are one annotator, which gives the most probable class, or nothing where several are equally probable.
  This column also has the weak labels of cleaned samples: comparing them with the votes of people shows how far to trust them.
- *Each person who voted* is an annotator; for each sample, the votes behind its last decision count. 'Ambiguous' is no label.
  Votes of the suggestion are left out: they come from the model, which has its own weight w_M.
- *Clean labels without votes*, which were given with the data, are one more annotator.

A sample without any label is scored as the library scores unlabelled ones. The library breaks exact ties of P by random
numbers without a seed; so P is kept above 1e-12 and changed by a billionth in favour of the lower class id. ActiveLab scores
where to ask, not what the answer is: there is no suggestion.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import ConvergenceWarning, InvalidInputError
from labelchef.base.numbers import check_whole
from labelchef.base.records import UNRESOLVED
from labelchef.chef.selectors import Selector
from labelchef.chef.selectors.protocol import NOT_PEOPLE, SelectionContext
from labelchef.chef.selectors.ranking import Ranking, RankingSelector
from labelchef.data.exchange.cleanlab import quietly, require_cleanlab
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import RowLabels
from labelchef.model.softmax import probabilities
from labelchef.model.solvers import minimise

METHODS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
_TOL, _MAX_SWEEPS = 1e-4, 300  # of the models of the folds
_FLOOR, _BEND = 1e-12, 1e-9


@dataclass
class _CleanlabSelector(RankingSelector):
    folds: int = 5
    chance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole(self.folds, "folds", 2)
        require_cleanlab(f"selector {self.name!r}")


@dataclass
class CleanlabQualitySelector(_CleanlabSelector):
    """Labels that are least likely right by cleanlab's quality score."""

    method: str = "self_confidence"
    name: ClassVar[str] = "cleanlab_quality"
    suggests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InvalidInputError(f"method is {self.method!r}; expected one of: {', '.join(METHODS)}", code="method")
        super().__post_init__()

    def rank(self, context: SelectionContext) -> Ranking:
        """The library's quality of every given label, and the most probable class by the models of the other folds."""
        from cleanlab.rank import get_label_quality_scores  # here, because the import takes seconds

        P, given = out_of_fold(context, self.folds), context.objective.labels.Y.argmax(axis=1)
        scores = get_label_quality_scores(given, P, method=self.method)
        top = np.sort(P, axis=1)[:, -2:]  # no suggestion where two are equally probable
        suggested = np.where(top[:, 1] > top[:, 0], P.argmax(axis=1), UNRESOLVED)
        return Ranking(np.asarray(scores, dtype=np.float64), suggested)


@dataclass
class ActiveLabSelector(_CleanlabSelector):
    """Samples whose true label is least certain, given the model, the weak labels and every vote so far."""

    name: ClassVar[str] = "active_lab"

    def rank(self, context: SelectionContext) -> Ranking:
        """The library's scores."""
        from cleanlab.multiannotator import get_active_learning_scores

        P, labels = _without_ties(out_of_fold(context, self.folds)), annotations(context)
        known = ~np.isnan(labels).all(axis=1)
        given = (labels[known], P[known]) if known.any() else (None, None)
        with quietly():  # it warns that annotators do not agree, which is normal in the first rounds
            labelled, others = get_active_learning_scores(*given, None if known.all() else P[~known])
        scores = np.empty(len(P))
        scores[known], scores[~known] = labelled, others
        return Ranking(scores)


CLEANLAB_SELECTORS: dict[str, Callable[[], Selector]] = {
    "cleanlab_quality": CleanlabQualitySelector,
    "active_lab": ActiveLabSelector,
}
"""Name → factory, for cells of experiments."""


def annotations(context: SelectionContext) -> Float64s:
    """(N, M): the label of each annotator for each sample, NaN for none; annotators without labels are left out."""
    Y = context.objective.labels.Y
    weak = Y if context.weak is None else context.weak
    people = sorted({who for record in context.rounds for who in record.votes.workers} - set(NOT_PEOPLE))
    column = {who: 2 + k for k, who in enumerate(people)}
    table = np.full((len(Y), 2 + len(people)), np.nan)
    alone = (weak == weak.max(axis=1, keepdims=True)).sum(axis=1) == 1
    table[alone, 0] = weak[alone].argmax(axis=1)
    for record in context.rounds:
        table[record.decisions.items, 2:] = np.nan  # the votes of the last round that decided an item count
        for item, who, label in record.votes:
            if label != UNRESOLVED and who in column:
                table[item, column[who]] = label
    unvoted = context.cleaned & np.isnan(table[:, 2:]).all(axis=1)
    table[unvoted, 1] = Y[unvoted].argmax(axis=1)
    return np.asarray(table[:, ~np.isnan(table).all(axis=0)])


def _without_ties(P: Float64s) -> Float64s:
    bent = np.maximum(P, _FLOOR) * (1.0 - _BEND * np.arange(P.shape[1]))
    return np.asarray(bent / bent.sum(axis=1, keepdims=True))


def deal_folds(classes: Ints, count: int, rng: np.random.Generator) -> Ints:
    """A fold for each sample: the sizes of the folds differ by at most one, and so do their counts of each class.

    >>> folds = deal_folds(np.array([0, 0, 0, 0, 1, 1]), 2, np.random.default_rng(0))
    >>> np.bincount(folds[:4]).tolist(), np.bincount(folds[4:]).tolist()
    ([2, 2], [1, 1])
    """
    shuffled = rng.permutation(len(classes))
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    folds = np.empty(len(classes), dtype=np.int64)
    folds[by_class] = np.arange(len(classes)) % count
    return folds


def out_of_fold(context: SelectionContext, count: int) -> Float64s:
    """Probabilities of all samples, each by the model of the other folds."""
    whole, Y = context.objective, context.objective.labels.Y
    folds = deal_folds(Y.argmax(axis=1), count, context.rng)
    P: Float64s = np.empty_like(Y)
    worst = 0.0
    for fold in range(int(folds.max()) + 1):
        inside = folds == fold
        scale = len(Y) / max(1, int((~inside).sum()))
        objective = replace(whole, labels=RowLabels(Y, np.where(inside, 0.0, whole.labels.weight * scale)))
        start = objective.at(context.point.W, logits=context.point.logits)
        keeper = replace(context.keeper, drift=None)  # a copy: it learns from other weights
        found = minimise(objective, start, keeper, tol=_TOL, max_sweeps=_MAX_SWEEPS)
        P[inside] = probabilities(with_reference(whole.engine.host(found.point.logits)[inside]))
        worst = max(worst, found.point.gradient_norm / found.tolerance)
    if worst > 1.0:
        warnings.warn(
            f"the model of a fold stopped at {worst:.1e} times its gradient tolerance; its probabilities are approximate. "
            "Raise l2, or scale the features.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return P
