"""cleanlab's label quality (Northcutt et al. 2021; Kuan & Mueller 2022) as a selector: labels least likely to be right first.

    y_i      = argmax_c Y[i, c]                    the given label: a clean one, or the weak one rounded (equal: the first)
    score_i  = cleanlab.rank.get_label_quality_scores(y, P, method)[i],   smallest first
               self_confidence: P[i, y_i];   normalized_margin: P[i, y_i] − max_{c ≠ y_i} P[i, c], scaled to [0, 1];
               confidence_weighted_entropy: entropy of P[i] over the self-confidence, turned and scaled
    suggest  = argmax_c P[i, c]

P (N, C) are out-of-fold probabilities of our own model (`out_of_fold`), trained on soft labels and weights as always: only
the label that is scored is rounded, not those that the model is trained on. Cleaned samples are trained on, not asked.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.domain.arrays import Float64s
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.numbers import check_whole
from labelchef.domain.records import UNRESOLVED
from labelchef.selectors.cleanlab_extra import cleanlab_module, require_cleanlab
from labelchef.selectors.out_of_fold import out_of_fold
from labelchef.selectors.protocol import SelectionContext
from labelchef.selectors.ranking import Ranking, RankingSelector

METHODS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


@dataclass
class CleanlabQualitySelector(RankingSelector):
    """Labels that are least likely right by cleanlab's quality score."""

    method: str = "self_confidence"
    folds: int = 5
    name: ClassVar[str] = "cleanlab_quality"
    chance: ClassVar[bool] = True
    suggests: ClassVar[bool] = True
    needs: ClassVar[str] = (
        "weak labels, rounded where they are judged; gamma above 0, or some clean labels; the extra cleanlab"
    )

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InvalidInputError(f"method is {self.method!r}; expected one of: {', '.join(METHODS)}", code="method")
        check_folds(self.folds)
        require_cleanlab(self.name)

    def rank(self, context: SelectionContext) -> Ranking:
        """The library's quality of every given label, and the most probable class by the models of the other folds."""
        P = out_of_fold(context, self.folds)
        given = context.objective.labels.Y.argmax(axis=1)
        scores: Float64s = np.asarray(
            cleanlab_module("rank").get_label_quality_scores(given, P, method=self.method), dtype=np.float64
        )
        top = np.sort(P, axis=1)[:, -2:]
        suggested = np.where(
            top[:, 1] > top[:, 0], P.argmax(axis=1), UNRESOLVED
        )  # no suggestion where two are equally probable
        return Ranking(scores, suggested)


def check_folds(folds: object) -> None:
    """Refuse anything but a whole number of 2 folds or more."""
    check_whole(folds, "folds", 2)
