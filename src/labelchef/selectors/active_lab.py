"""ActiveLab (Goh & Mueller 2023), computed by the cleanlab library: the samples for which one more label tells most.

    score_i = [ (Σ_{j ∈ A_i} w_j + w_M) q_i + w̄ / C ] / (Σ_{j ∈ A_i} w_j + w_M + w̄),   smallest first

A_i are the annotators of sample i, w_j and w_M the trust in annotator j and in the model as estimated from their agreement,
w̄ the mean of w_j, q_i CROWDLAB's quality of the consensus label. `cleanlab.multiannotator.get_active_learning_scores`
computes all of it from two inputs, which are made here:

- P (N, C), out-of-fold probabilities of our own model (`out_of_fold`).
- labels (N, M), one column for each annotator, NaN where there is no label:
  *The weak labels* are one annotator, which gives the most probable class, or nothing where several are equally probable.
  This column also has the weak labels of cleaned samples: comparing them with the votes of people shows how far to trust them.
  *Each person who voted* is an annotator; for each sample, the votes behind its last decision count. 'Ambiguous' is no label.
  Votes of the suggestion are left out: they come from the model, which has its own weight w_M.
  *Clean labels without votes*, which were given with the data, are one more annotator.

A sample without any label is scored as the library scores unlabelled ones. The library breaks exact ties of P by random
numbers without a seed; so P is kept above 1e-12 and changed by a billionth in favour of the lower class id.

ActiveLab scores where to ask, not what the answer is: there is no suggestion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.domain.arrays import Float64s
from labelchef.domain.campaigns import SUGGESTION
from labelchef.domain.records import UNRESOLVED, RoundRecord
from labelchef.selectors.cleanlab_extra import cleanlab_module, quietly, require_cleanlab
from labelchef.selectors.cleanlab_quality import check_folds
from labelchef.selectors.out_of_fold import out_of_fold
from labelchef.selectors.protocol import SelectionContext
from labelchef.selectors.ranking import Ranking, RankingSelector

_NO_PERSON = (SUGGESTION, "undo")  # workers in a record which are not people
_FLOOR, _BEND = 1e-12, 1e-9


@dataclass
class ActiveLabSelector(RankingSelector):
    """Samples whose true label is least certain, given the model, the weak labels and every vote so far."""

    folds: int = 5
    name: ClassVar[str] = "active_lab"
    chance: ClassVar[bool] = True
    needs: ClassVar[str] = "weak labels, rounded; votes, as soon as there are any; the extra cleanlab"

    def __post_init__(self) -> None:
        check_folds(self.folds)
        require_cleanlab(self.name)

    def rank(self, context: SelectionContext) -> Ranking:
        """The library's scores."""
        P = _without_ties(out_of_fold(context, self.folds))
        labels = annotations(context)
        known = ~np.isnan(labels).all(axis=1)
        score = cleanlab_module("multiannotator").get_active_learning_scores
        with quietly():  # it warns that annotators do not agree, which is normal in the first rounds
            labelled, others = score(
                labels[known] if known.any() else None,
                P[known] if known.any() else None,
                P[~known] if not known.all() else None,
            )
        scores = np.empty(len(P))
        scores[known], scores[~known] = labelled, others
        return Ranking(scores)


def annotations(context: SelectionContext) -> Float64s:
    """(N, M): the label of each annotator for each sample, NaN for none; annotators without labels are left out."""
    Y = context.objective.labels.Y
    weak = Y if context.weak is None else context.weak
    votes = votes_that_count(context.rounds)
    people = sorted({who for said in votes.values() for who in said})
    table = np.full((len(Y), 2 + len(people)), np.nan)
    alone = (weak == weak.max(axis=1, keepdims=True)).sum(axis=1) == 1
    table[alone, 0] = weak[alone].argmax(axis=1)
    column = {who: 2 + k for k, who in enumerate(people)}
    for item, said in votes.items():
        for who, label in said.items():
            table[item, column[who]] = label
    unvoted = context.cleaned & np.isnan(table[:, 2:]).all(axis=1)
    table[unvoted, 1] = Y[unvoted].argmax(axis=1)
    return np.asarray(table[:, ~np.isnan(table).all(axis=0)])


def votes_that_count(rounds: Sequence[RoundRecord]) -> dict[int, dict[str, int]]:
    """Item → annotator → class id, from the last round that decided the item."""
    votes: dict[int, dict[str, int]] = {}
    for record in rounds:
        for item in record.decisions.items.tolist():
            votes[item] = {}
        for item, who, label in record.votes:
            if label != UNRESOLVED and who not in _NO_PERSON:
                votes.setdefault(item, {})[who] = label
    return votes


def _without_ties(P: Float64s) -> Float64s:
    bent = np.maximum(P, _FLOOR) * (1.0 - _BEND * np.arange(P.shape[1]))
    return np.asarray(bent / bent.sum(axis=1, keepdims=True))
