"""DUTI: the smallest change of labels that suits the trusted samples (Zhang, Zhu & Wright 2018; paper appendix, eq. 'DUTI').

    min over Y' of  Φ(Y') = L_val(Ŵ) + (1/N) Σ_i ℓ(Ŵ; x_i, y'_i) + (κ/N) Σ_i (1 − y'_i[y_i])
    where  Ŵ = argmin_W (1/N) Σ_i ℓ(W; x_i, y'_i) + (λ/2)‖W‖²,   rows y'_i of samples not cleaned anywhere on the simplex

y_i is the weak label rounded to its most probable class, as the paper adapts DUTI to probabilistic labels, and Y' starts there.
All samples weigh one, as where the paper compares it: DUTI has no notion of a sample that gains weight when cleaned. At the
inner optimum (1/N) Σ ∇ℓ = −λŴ, and the implicit function theorem gives, up to a constant over the classes of a sample,

    G[i, c] = N ∂Φ/∂Y'[i, c] = S[i, c] − log P[i, c] − κ [c = y_i],      S = X U,   H U = g_val − λŴ

One step is Y' ← Π(Y' − η G), Π onto the simplex; W is brought to its new optimum from where it stands (Newton), U riding along.
η is doubled if Φ fell enough, else the step is taken back and η quartered. Φ is not convex: this finds a solution near the
labels as given, which need not be the best of all. There the label of sample i has left y_i only if

    k_i = max over c ≠ y_i of (G + κ[c = y_i])[i, y_i] − G[i, c]

the penalty that would hold it there, is κ at least. So samples are ranked by k_i, largest first: the order in which labels
leave as the penalty falls, which is the source's own order. Where κ is not given, it is the k at the start of the
`flagged`-th sample: the source lowers κ until it has as many labels as it wants, the paper wants 100.

Shapes: Y', G, S, P (N, C); W, U (D, C); k (N,).
"""

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import log_softmax

from labelchef.baselines.rounded import INNER_SWEEPS, check_inner, hard_classes, rounded
from labelchef.core.contrasts import with_reference
from labelchef.core.curvature import CurvatureKeeper
from labelchef.core.objective import Linear, Objective, Point
from labelchef.core.solvers import Companion, minimise, solve_spd
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.errors import ConvergenceWarning, InvalidInputError
from labelchef.engines import RowLabels
from labelchef.selectors.protocol import SelectionContext
from labelchef.selectors.ranking import Ranking, RankingSelector

_ADJOINT_TOL = 1e-4
_ADJOINT_ITERATIONS = 300
_SUFFICIENT = 1e-4
_GROWTH, _SHRINKAGE = 2.0, 4.0
_STILL = 1e-3  # largest move of a label entry that is no move


@dataclass(frozen=True)
class Labels:
    """Labels y' with what follows from them: the inner model, H U = g_val − λŴ, and Φ without its penalty."""

    Y: Float64s
    point: Point
    U: Linear
    loss: float


@dataclass(frozen=True)
class Bilevel:
    """The problem: the campaign on rounded labels of weight one, classes y (N,), and which labels may move."""

    context: SelectionContext
    keeper: CurvatureKeeper
    y: Ints
    free: Bools
    tol: float = 1e-3
    """How near an inner model is brought to its optimum, relative to 1 + ‖W‖."""

    def begin(self) -> Labels:
        """Where Y' starts: every label as given."""
        return self._complete(self.context.objective, self.context.point, self.context.validation)

    def move(self, last: Labels, Y: Float64s) -> Labels:
        """The inner optimum under other labels, from the last one."""
        objective = Objective(
            self.context.objective.engine, RowLabels(Y, self.context.objective.labels.weight), self.context.objective.l2
        )
        start = objective.at(last.point.W, logits=last.point.logits)
        found = minimise(
            objective, start, self.keeper, tol=self.tol, max_sweeps=INNER_SWEEPS,
            companion=Companion(last.U.V, last.U.HV, lambda W: self._rhs(self.context.validate(W))),
        )  # fmt: skip
        check_inner(found)
        return self._complete(objective, found.point, self.context.validate(found.point.W))

    def _rhs(self, validation: Point) -> Float64s:
        return validation.gradient - self.context.objective.l2 * validation.W

    def _complete(self, objective: Objective, point: Point, validation: Point) -> Labels:
        U = solve_spd(
            objective, point, self._rhs(validation), self.keeper,
            tol=min(self.tol, _ADJOINT_TOL), max_iterations=_ADJOINT_ITERATIONS,
        )  # fmt: skip
        if not U.converged:
            warnings.warn(
                f"DUTI's adjoint stopped at a relative residual of {U.residual:.1e}; the ranking is approximate. Raise l2.",
                ConvergenceWarning,
                stacklevel=4,
            )
        data = point.value - 0.5 * objective.l2 * float(np.vdot(point.W, point.W))
        return Labels(objective.labels.Y, point, U.linear, validation.value + data)

    def free_slopes(self, labels: Labels) -> Float64s:
        """G without the penalty."""
        host = self.context.objective.engine.host
        S, A = with_reference(host(labels.U.S)), with_reference(host(labels.point.logits))
        return np.asarray(S - log_softmax(A, axis=1))

    def holding(self, labels: Labels) -> Float64s:
        """k of every sample."""
        slopes, rows = self.free_slopes(labels), np.arange(len(self.y))
        own = slopes[rows, self.y]
        slopes[rows, self.y] = np.inf
        return np.asarray(own - slopes.min(axis=1))

    def slopes(self, labels: Labels, penalty: float) -> Float64s:
        """G."""
        G = self.free_slopes(labels)
        G[np.arange(len(self.y)), self.y] -= penalty
        return G

    def stepped(self, labels: Labels, G: Float64s, eta: float) -> Float64s:
        """Π(Y' − η G), where labels may move."""
        Y = labels.Y.copy()
        Y[self.free] = onto_simplex(Y[self.free] - eta * G[self.free])
        return Y

    def value(self, labels: Labels, penalty: float) -> float:
        """Φ."""
        moved = 1.0 - labels.Y[np.arange(len(self.y)), self.y]
        return labels.loss + penalty * float(moved.mean())


@dataclass(frozen=True)
class Solution:
    """Where the descent ended after so many inner solves; `settled` if no label wanted to move any more."""

    labels: Labels
    penalty: float
    value: float
    solves: int
    settled: bool


def descend(problem: Bilevel, *, penalty: float | None, flagged: int, solves: int) -> Solution:
    """Projected gradient steps from the labels as given, with `solves` inner solves at most."""
    labels = problem.begin()
    k = problem.holding(labels)[problem.free]
    if penalty is None:
        penalty = max(float(np.sort(k)[::-1][min(flagged, len(k)) - 1]), 0.0) if len(k) else 0.0
    largest = _first_step(k, penalty)
    value, eta, used, settled = problem.value(labels, penalty), largest, 0, False
    while used < solves:
        G = problem.slopes(labels, penalty)
        settled = bool(np.abs(problem.stepped(labels, G, largest) - labels.Y).max(initial=0.0) < _STILL)
        if settled:
            break
        Y = problem.stepped(labels, G, eta)
        trial, used = problem.move(labels, Y), used + 1
        gained = value - problem.value(trial, penalty)
        if gained > _SUFFICIENT * float(np.vdot(Y - labels.Y, Y - labels.Y)) / (eta * len(Y)):
            labels, value, eta = trial, value - gained, _GROWTH * eta
        else:
            eta /= _SHRINKAGE
    return Solution(labels, penalty, value, used, settled)


def _first_step(k: Float64s, penalty: float) -> float:
    """η at which the average label that wants to leave can leave at once; never huge where they hardly want to."""
    leaving = k[k > penalty] - penalty
    wish = float(leaving.mean()) if len(leaving) else 0.0
    return 2.0 / (max(wish, 0.1 * float(np.abs(k).mean()) if len(k) else 0.0) or 1.0)


def onto_simplex(Z: Float64s) -> Float64s:
    """The nearest point of the simplex to every row.

    >>> onto_simplex(np.array([[0.5, 0.5], [2.0, 0.0], [0.6, 0.8]])).round(3).tolist()
    [[0.5, 0.5], [1.0, 0.0], [0.4, 0.6]]
    """
    ordered = -np.sort(-Z, axis=1)
    over = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, Z.shape[1] + 1)
    kept = (ordered > over).sum(axis=1)
    return np.asarray(np.maximum(Z - over[np.arange(len(Z)), kept - 1][:, None], 0.0))


@dataclass
class DutiSelector(RankingSelector):
    """The samples whose labels leave first. Suggests the class that y' ends at, which may be the one it began with."""

    penalty: float | None = None
    """κ; None sets it so that `flagged` labels want to leave at first."""
    flagged: int = 100
    solves: int = 8
    """Inner solves at most, with their adjoint: one for each step, and one for each step that was too long."""
    name: ClassVar[str] = "duti"
    suggests: ClassVar[bool] = True
    needs: ClassVar[str] = "a validation set; rounds weak labels; takes no account of γ"

    def __post_init__(self) -> None:
        if self.flagged < 1 or self.solves < 0 or (self.penalty is not None and not self.penalty >= 0.0):
            raise InvalidInputError(
                f"penalty={self.penalty}, flagged={self.flagged}, solves={self.solves}; expected a penalty of at least 0 "
                "or None, at least one flagged label, and at least 0 solves",
                code="selector",
            )

    def rank(self, context: SelectionContext) -> Ranking:
        """−k at the end of the descent."""
        problem = bilevel(context)
        found = descend(problem, penalty=self.penalty, flagged=self.flagged, solves=self.solves)
        return Ranking(-problem.holding(found.labels), suggested=found.labels.Y.argmax(axis=1))


def bilevel(context: SelectionContext) -> Bilevel:
    """DUTI's problem in a campaign."""
    hard = rounded(context, equal_weights=True)
    keeper = replace(hard.keeper)  # what is learned under moved labels stays here
    return Bilevel(hard, keeper, hard_classes(hard), ~context.cleaned)
