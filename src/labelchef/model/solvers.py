"""Two solvers whose cost is counted in sweeps: the minimum of F, and V = H⁻¹ g.

`minimise` is Newton's method with a frozen Hessian M, corrected by the last (ΔW, Δ∇F) pairs (L-BFGS with M⁻¹ in
place of the usual multiple of the identity) and damped by an exact line search. One step costs one sweep: the
sweep at the trial point returns value, gradient and logits together, and a step that is cut short needs no further
product, because the logits along a line are known. Where M is the Hessian, this is Newton's method.

It ends at a gradient so small that strong convexity proves the distance to the minimum. This bound assumes the curvature λ in
all directions, and is pessimistic. The distance can be `estimated` instead: the next step s⁺ is known without a sweep, and if
steps go on to shrink as the last one did,

    ‖W − W*‖ ≈ ‖s⁺‖ (1 + ρ + ρ² + …) = ‖s⁺‖ / (1 − ρ),      ρ = ‖s⁺‖ / ‖s‖

The series is what is left where M is too large for H, as it is once the weights of many rows have fallen.

A linear system H(W) V = b(W) can be solved along with it, as a `Companion`: every sweep of `minimise` then also returns
H V, and V is corrected by M⁻¹(b − H V) before the next. When W is at the optimum, V is nearly solved, without sweeps of its
own.

`solve_spd` is conjugate gradients preconditioned by M. Each iteration costs one sweep, which also returns X·d, so
that the products S = X V are updated together with V, without a sweep of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.model.curvature import CurvatureKeeper
from labelchef.model.engines import RowArray
from labelchef.model.objective import Linear, Objective, Point

NEEDED = 2
"""Sweeps that a warm solve takes even with a perfect factor: one for the step, one for the proof."""

_LARGEST_GRADIENT = 1e-6
_SUFFICIENT = 1e-4
_ROUNDING = 1e-13
_ROUGH_TOL, _ROUGH_ROUNDING = 1e-4, 1e-8  # tolerances from which rough sweeps are precise enough, and their error of F
_SLOW = 0.5  # steps that shrink by less than this may be held up by the error of rough sweeps
_LINE_STEPS = 30
_PATIENCE = 60  # steps without a smaller gradient


@dataclass(frozen=True)
class Companion:
    """The system H(W) V = rhs(W), with V and H V as last known."""

    V: Float64s
    HV: Float64s
    rhs: Callable[[Float64s], Float64s]

    def corrected(self, W: Float64s, keeper: CurvatureKeeper) -> Float64s:
        """V after one correction towards the solution at W.

        Corrections converge where M is near H and may diverge where it is not: a V whose residual is no smaller than
        that of zero is replaced by zero.
        """
        b = self.rhs(W)
        V, HV = (self.V, self.HV) if _helps(self.HV, b) else (0.0, 0.0)
        return np.asarray(V + keeper.solve(b - HV))


def _helps(HV: Float64s, b: Float64s) -> bool:
    """Whether V is a better start than zero; false for anything not finite."""
    return bool(np.linalg.norm(b - HV) < np.linalg.norm(b))


@dataclass(frozen=True)
class Minimum:
    """The result of `minimise`."""

    point: Point
    iterations: int
    tolerance: float
    converged: bool


def gradient_tolerance(objective: Objective, W: Float64s, tol: float) -> float:
    """‖∇F‖ small enough that ‖W − W*‖ ≤ tol·(1 + ‖W‖) by strong convexity, and never above 1e-6·(1 + ‖W‖).

    It is never below 1e-12·(1 + ‖W‖), because of rounding; where tol·l2 is smaller, the bound is 1e-12/l2 instead of tol.
    """
    return max(min(tol * objective.l2, _LARGEST_GRADIENT), 1e-12) * (1.0 + float(np.linalg.norm(W)))


def minimise(
    objective: Objective,
    start: Point,
    keeper: CurvatureKeeper,
    *,
    tol: float,
    max_sweeps: int,
    companion: Companion | None = None,
    on_step: Callable[[int, float, float], None] | None = None,
    estimated: bool = False,
) -> Minimum:
    """The minimum of F, starting from `start`, and the companion's system on the way.

    `on_step(iteration, gradient norm, tolerance)` is called after every step. If the distance may be `estimated`, it also ends
    where that is at most tol·‖W‖, after one step at the earliest, and sweeps are rough where `tol` allows it.
    """
    point, best, idle, iteration = start, start.gradient_norm, 0, 0
    threshold, last, roughly, near = gradient_tolerance(objective, point.W, tol), np.inf, rough(tol, estimated), False
    while point.gradient_norm > threshold and iteration < max_sweeps:
        if keeper.due(objective):
            keeper.refresh(objective, point.logits)
        plain = -keeper.solve(point.gradient)
        size = float(np.linalg.norm(plain))
        left = size / (1.0 - size / last) if size < last else np.inf
        near = estimated and iteration > 0 and left <= tol * float(np.linalg.norm(point.W))
        if near:
            break
        roughly = roughly and size <= _SLOW * last
        direction = keeper.foreseen(objective, point.logits, point.gradient, plain)
        if not np.vdot(point.gradient, direction) < 0.0:
            direction = plain
        V = None if companion is None else companion.corrected(point.W + direction, keeper)
        trial = _step(objective, point, direction, V, roughly=roughly)
        if trial is None:
            break
        if companion is not None and trial.linear is not None:
            companion = replace(companion, V=trial.linear.V, HV=trial.linear.HV)
        keeper.learn(trial.W - point.W, trial.gradient - point.gradient)
        point, last = trial, float(np.linalg.norm(direction))
        iteration += 1
        keeper.waste += iteration > NEEDED
        best, idle = (point.gradient_norm, 0) if point.gradient_norm < 0.9 * best else (best, idle + 1)
        if idle >= _PATIENCE:  # only rounding is left
            break
        threshold = gradient_tolerance(objective, point.W, tol)
        if on_step is not None:
            on_step(iteration, point.gradient_norm, threshold)
    return Minimum(point, iteration, threshold, near or point.gradient_norm <= threshold)


def rough(tol: float, estimated: bool) -> bool:
    """Whether rough sweeps are precise enough for a distance that is estimated."""
    return estimated and tol >= _ROUGH_TOL


def _step(
    objective: Objective, point: Point, direction: Float64s, V: Float64s | None, *, roughly: bool
) -> Point | None:
    """The full step if it decreases F enough, else the minimum along the line; None if neither decreases F."""
    slope = float(np.vdot(point.gradient, direction))
    trial = objective.at(point.W + direction, V=V, roughly=roughly)
    slack = (_ROUGH_ROUNDING if roughly else _ROUNDING) * (1.0 + abs(point.value))
    if trial.value <= point.value + _SUFFICIENT * slope + slack:
        return trial
    products = trial.logits - point.logits
    t = _line_minimum(objective, point, direction, products)
    if not 0.0 < t < np.inf:
        return None
    shorter = objective.at(point.W + t * direction, logits=point.logits + t * products, V=V, roughly=roughly)
    return shorter if shorter.value <= point.value + slack else None


def _line_minimum(objective: Objective, point: Point, direction: Float64s, products: RowArray) -> float:
    """Root of the slope of F along the direction, by Newton steps kept inside a bracket."""
    low, high, t = 0.0, 1.0, 0.5
    for _ in range(_LINE_STEPS):
        slope, bend = objective.along(point, direction, products, t)
        low, high = (t, high) if slope < 0 else (low, t)
        newton = t - slope / bend if bend > 0 else low
        following = newton if low < newton < high else 0.5 * (low + high)
        if abs(following - t) <= 1e-3 * t:
            return following
        t = following
    return t


@dataclass(frozen=True)
class LinearSolution:
    """The solution with its products, and how the solve went; `residual` is ‖b − H V‖ / ‖b‖."""

    linear: Linear
    iterations: int
    residual: float
    converged: bool


def solve_spd(
    objective: Objective, point: Point, b: Float64s, keeper: CurvatureKeeper, *, tol: float, max_iterations: int
) -> LinearSolution:
    """H V = b at a point, starting from the direction that the point carries if there is one, else from zero."""
    if point.linear is None or not _helps(point.linear.HV, b):
        V, S, HV = np.zeros_like(b), objective.engine.zeros(b.shape[1] - 1), np.zeros_like(b)
    else:
        V, S, HV = point.linear.V.copy(), point.linear.S, point.linear.HV.copy()
    size = float(np.linalg.norm(b))
    R, direction, rt, iteration = b - HV, np.zeros_like(b), 1.0, 0
    learned: list[tuple[Float64s, Float64s]] = []  # after the loop: conjugate gradients need one fixed operator
    while np.linalg.norm(R) > tol * size and iteration < max_iterations:
        T = keeper.solve(R)
        rt, old = float(np.vdot(R, T)), rt
        direction = T + (rt / old) * direction
        product, along = objective.hessian_product(point, direction)
        bend = float(np.vdot(direction, product))
        if not bend > 0.0:
            break
        learned.append((direction, product))
        alpha = rt / bend
        V += alpha * direction
        S = S + alpha * along
        HV += alpha * product
        R = b - HV
        iteration += 1
    for pair in learned:
        keeper.learn(*pair)
    residual = float(np.linalg.norm(R)) / (size or 1.0)
    return LinearSolution(Linear(V, S, HV), iteration, residual, residual <= tol)
