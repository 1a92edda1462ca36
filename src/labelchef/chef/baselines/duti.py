"""DUTI: the smallest change of the labels that fits the trusted samples (Zhang, Zhu & Wright 2018; paper appendix, eq. 'DUTI').

    min over Y' of  Φ(Y') = L_val(Ŵ) + (1/N) Σ_i ℓ(Ŵ; x_i, y'_i) + (κ/N) Σ_i (1 − y'_i[y_i])
    where  Ŵ = argmin_W (1/N) Σ_i ℓ(W; x_i, y'_i) + (λ/2)‖W‖²,   rows y'_i of samples not cleaned anywhere on the simplex

y_i is the weak label rounded to its most probable class, as the paper adapts DUTI to probabilistic labels, and Y' starts there.
All samples have weight one, as in the paper's comparison: DUTI does not know samples that gain weight when cleaned. At the
inner optimum (1/N) Σ ∇ℓ = −λŴ, and the implicit function theorem gives, up to a constant over the classes of a sample,

    G[i, c] = N ∂Φ/∂Y'[i, c] = S[i, c] − log P[i, c] − κ [c = y_i],      S = X U,   H U = g_val − λŴ

One step is Y' ← Π(Y' − η G), Π onto the simplex; W is then brought to its new optimum by Newton's method, which updates U too.
η is doubled if Φ fell enough; else the step is undone and η divided by four. Φ is not convex: this finds a local solution near
the labels as given, which need not be the global one. There the label of sample i has left y_i only if

    k_i = max over c ≠ y_i of (G + κ[c = y_i])[i, y_i] − G[i, c]

the penalty that would keep it there, is at least κ. So samples are ranked by k_i, largest first: the order in which labels
leave y_i as the penalty falls, which is the order of the source. Where κ is not given, it is the `flagged`-th largest k at the
start: the source lowers κ until enough labels have changed, and the paper takes 100.

Shapes: Y', G, S, P (N, C); W, U (D, C); k (N,).
"""

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import log_softmax

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.errors import ConvergenceWarning, InvalidInputError
from labelchef.chef.baselines.rounded import INNER_SWEEPS, check_inner, hard_classes, rounded
from labelchef.chef.selectors.protocol import SelectionContext
from labelchef.chef.selectors.ranking import Ranking, RankingSelector
from labelchef.model.contrasts import with_reference
from labelchef.model.engines import RowLabels
from labelchef.model.objective import Linear, Objective, Point
from labelchef.model.solvers import Companion, minimise, solve_spd

_ADJOINT_TOL = 1e-4
_ADJOINT_ITERATIONS = 300
_SUFFICIENT = 1e-4
_GROWTH, _SHRINKAGE = 2.0, 4.0
_STILL = 1e-3  # smaller moves of a label entry count as none


@dataclass(frozen=True)
class Labels:
    """Labels Y' with what is computed from them: the inner model, U of H U = g_val − λŴ, and Φ without its penalty."""

    Y: Float64s
    point: Point
    U: Linear
    loss: float


@dataclass(frozen=True)
class Bilevel:
    """The problem: the campaign on rounded labels of weight one, and which labels may move."""

    context: SelectionContext
    free: Bools
    tol: float = 1e-3
    """Tolerance of the inner models, relative to 1 + ‖W‖."""

    @property
    def given(self) -> tuple[Ints, Ints]:
        """All rows, and the class y_i of each as given: the places of a table (N, C) that belong to y."""
        return np.arange(len(self.free)), hard_classes(self.context)

    def begin(self) -> Labels:
        """The start: every label as given."""
        return self._complete(self.context.objective, self.context.point, self.context.validation)

    def move(self, last: Labels, Y: Float64s) -> Labels:
        """The inner optimum under other labels, starting from the last one."""
        given, keeper = self.context.objective, self.context.keeper
        objective = replace(given, labels=RowLabels(Y, given.labels.weight))
        start = objective.at(last.point.W, logits=last.point.logits)
        adjoint = Companion(last.U.V, last.U.HV, lambda W: self._rhs(self.context.validate(W)))
        found = minimise(objective, start, keeper, tol=self.tol, max_sweeps=INNER_SWEEPS, companion=adjoint)
        check_inner(found)
        return self._complete(objective, found.point, self.context.validate(found.point.W))

    def _rhs(self, validation: Point) -> Float64s:
        return validation.gradient - self.context.objective.l2 * validation.W

    def _complete(self, objective: Objective, point: Point, validation: Point) -> Labels:
        b, tol = self._rhs(validation), min(self.tol, _ADJOINT_TOL)
        U = solve_spd(objective, point, b, self.context.keeper, tol=tol, max_iterations=_ADJOINT_ITERATIONS)
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
        slopes = self.free_slopes(labels)
        own = slopes[self.given]
        slopes[self.given] = np.inf
        return np.asarray(own - slopes.min(axis=1))

    def stepped(self, labels: Labels, G: Float64s, eta: float) -> Float64s:
        """Π(Y' − η G), where labels may move."""
        Y = labels.Y.copy()
        Y[self.free] = onto_simplex(Y[self.free] - eta * G[self.free])
        return Y

    def value(self, labels: Labels, penalty: float) -> float:
        """Φ."""
        return labels.loss + penalty * float((1.0 - labels.Y[self.given]).mean())


@dataclass(frozen=True)
class Solution:
    """The end of the descent and Φ there; `settled` if a further step would move no label."""

    labels: Labels
    value: float
    settled: bool


def descend(problem: Bilevel, *, penalty: float | None, flagged: int, solves: int) -> Solution:
    """Projected gradient steps from the labels as given, with at most `solves` inner solves."""
    labels = problem.begin()
    k = problem.holding(labels)[problem.free]
    if penalty is None:
        penalty = max(float(np.sort(k)[::-1][min(flagged, len(k)) - 1]), 0.0) if len(k) else 0.0
    largest = _first_step(k, penalty)
    value, eta, settled = problem.value(labels, penalty), largest, False
    for _ in range(solves):
        G = problem.free_slopes(labels)
        G[problem.given] -= penalty
        settled = bool(np.abs(problem.stepped(labels, G, largest) - labels.Y).max(initial=0.0) < _STILL)
        if settled:
            break
        Y = problem.stepped(labels, G, eta)
        trial = problem.move(labels, Y)
        gained = value - problem.value(trial, penalty)
        if gained > _SUFFICIENT * float(np.vdot(Y - labels.Y, Y - labels.Y)) / (eta * len(Y)):
            labels, value, eta = trial, value - gained, _GROWTH * eta
        else:
            eta /= _SHRINKAGE
    return Solution(labels, value, settled)


def _first_step(k: Float64s, penalty: float) -> float:
    """η with which the average label that is going to change can change in one step; bounded where the slopes are small."""
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
    """The samples whose labels change first. Suggests the class that y' ends at, which may be the given one."""

    penalty: float | None = None
    """κ; None sets it so that `flagged` labels would leave at the start."""
    flagged: int = 100
    solves: int = 8
    """Largest number of inner solves, each with its adjoint: one for each step, also for one that was too long."""
    name: ClassVar[str] = "duti"
    suggests: ClassVar[bool] = True

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
    keeper = replace(hard.keeper)  # a copy: it learns from changed labels
    return Bilevel(replace(hard, keeper=keeper), ~context.cleaned)
