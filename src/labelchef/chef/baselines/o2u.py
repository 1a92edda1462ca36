"""O2U-Net (Huang et al., ICCV 2019; the paper's O2U): the samples whose loss stays high in cyclic training.

The learning rate runs through cycles, from its largest value down to its smallest along a line,

    η_e = η₁ − (e / (E − 1)) (η₁ − η₂),    e = 0 … E − 1,     η₁ = 1/L,  η₂ = η₁/100,  L = ½ λ_max(X_BᵀX_B / |B|) + λ

and jumps back. At the end of a cycle the model fits everything, noise included; the jump brings it back to underfitting.
Samples that are fitted late in a cycle and lost early in the next have a high mean loss. One step on a mini-batch B of rows is

    W ← W − η_e [ (1/|B|) Σ_B r_i x_i ⊗ (P_i − Y_i) + λ W ],

the descent of the paper's eq. (1). After every epoch the loss of each sample is taken, and

    score_i = −(1/T) Σ_t ℓ_i(W_t),   smallest first, t over the T epochs of all cycles.

O2U-Net also subtracts the mean loss of each epoch; this is the same for all samples and does not change the order, so it is left
out. Training starts from the present model in place of a pre-trained one. ℓ_i is the cross-entropy against the label as it is,
soft or hard (the paper changes only the objective): the loss of a soft label is at least its entropy, so it is asked early.

Shapes: X (N, D), W (D, C), in contrast form Z (k, D) with k = C − 1; losses (N,).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.numbers import check_whole
from labelchef.chef.selectors.protocol import SelectionContext
from labelchef.chef.selectors.ranking import Ranking, RankingSelector
from labelchef.model.contrasts import contrast, with_reference
from labelchef.model.objective import Objective
from labelchef.model.softmax import cross_entropies

_RATE_ROWS = 256  # enough to estimate the largest curvature of the data
_LOWEST = 0.01  # η₂ of η₁, as in the source


@dataclass
class O2USelector(RankingSelector):
    """Samples with a high mean loss over cycles of the learning rate. Mini-batches are small, as in the source."""

    cycles: int = 3
    epochs: int = 8
    minibatch: int = 64
    name: ClassVar[str] = "o2u"
    chance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for what, least in (("cycles", 1), ("epochs", 2), ("minibatch", 1)):
            check_whole(getattr(self, what), what, least)

    def rank(self, context: SelectionContext) -> Ranking:
        """Minus the mean loss of every sample over all epochs."""
        objective = context.objective
        N, labels = objective.engine.n_rows, objective.labels
        first = _largest_rate(objective, context.rng.permutation(N)[:_RATE_ROWS])
        Z, total = contrast(context.point.W), np.zeros(N)
        for rate in np.tile(np.linspace(first, _LOWEST * first, self.epochs), self.cycles):
            Z = _epoch(objective, Z, context.rng.permutation(N), self.minibatch, float(rate))
            logits = objective.engine.host(objective.engine.sweep(labels, W=Z).logits)
            total += cross_entropies(with_reference(logits), labels.Y)
        return Ranking(-total / (self.cycles * self.epochs))


def _epoch(objective: Objective, Z: Float64s, order: Ints, size: int, rate: float) -> Float64s:
    """One pass in mini-batches. Contrasts of a full gradient are g_c − g_0, and g_0 is minus the sum of the others."""
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        g = objective.engine.gradient_of_rows(rows, objective.labels, Z) / len(rows)
        Z = Z - rate * (g + g.sum(axis=0) + objective.l2 * Z)
    return Z


def _largest_rate(objective: Objective, rows: Ints) -> float:
    """1/L, the largest rate with which a step cannot raise the loss, estimated on a few rows."""
    X = objective.engine.rows(rows)
    gram = X @ X.T if len(X) <= X.shape[1] else X.T @ X
    return 1.0 / (0.5 * float(np.linalg.eigvalsh(gram)[-1]) / len(X) + objective.l2)
