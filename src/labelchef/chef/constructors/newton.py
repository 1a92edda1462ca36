"""Newton (docs/method.md): go to the new optimum, and prove that it is one.

The gradient after a change of b labels is known without a sweep,

    ∇F = ∇F_before + (1/N) Σ_changed x_i ⊗ [r'(p_i − y'_i) − r (p_i − y_i)],

so a solve with the frozen Hessian gives a point near the new optimum; every further sweep verifies and, if necessary,
corrects it. It ends when ‖∇F‖, computed there, is below the tolerance: ‖W − W*‖ ≤ tol·(1 + ‖W‖); or, unless this is to be
proven, when the distance is estimated to be at most tol·‖W‖ (`model/solvers.py`). Where any label may have changed, because
sources learned from the answers, the gradient takes half a sweep: the logits are known.
"""

import time
import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from labelchef.base.arrays import Float64s
from labelchef.base.errors import ConvergenceWarning
from labelchef.base.records import ConstructionDiagnostics, LabelChange
from labelchef.chef.constructors.protocol import Construction, OnStep, ValidationLosses
from labelchef.model.curvature import CurvatureKeeper, freeze
from labelchef.model.engines.protocol import Spent
from labelchef.model.objective import Objective
from labelchef.model.solvers import Companion, Minimum, minimise, rough


@dataclass
class NewtonConstructor:
    """The optimum of the convex objective, to a proven tolerance on the parameters."""

    tol: float = 1e-5
    proven: bool = True
    """Whether the tolerance of an update is proven, too; else it is estimated, and the first model's alone is proven."""
    max_sweeps: int = 1000
    name: str = field(default="newton", init=False)

    def initialise(
        self,
        objective: Objective,
        validation: ValidationLosses,  # noqa: ARG002 (an optimum needs no early stopping)
        on_step: OnStep | None = None,
        start: Float64s | None = None,
    ) -> Construction:
        """Start from W = 0 with an estimated factor, then freeze the curvature at the optimum.

        From a `start` near the minimum, the curvature is frozen there, once and for all.
        """
        began, before = time.perf_counter(), objective.engine.spent()
        first = objective.at(np.zeros(objective.shape) if start is None else start)
        keeper = CurvatureKeeper(freeze(objective, first.logits, roughly=start is None))
        found = minimise(objective, first, keeper, tol=self.tol, max_sweeps=self.max_sweeps, on_step=on_step)
        if start is None:
            keeper.refresh(objective, found.point.logits)
        return self._finish(objective, found, keeper, began, before)

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,
        validation: ValidationLosses,  # noqa: ARG002
        companion: Companion | None = None,
    ) -> Construction:
        """From the last optimum to the new one."""
        began, before = time.perf_counter(), objective.engine.spent()
        keeper = last.keeper
        if change.everywhere:
            roughly = rough(self.tol, not self.proven)
            start = objective.at(last.point.W, logits=last.point.logits, roughly=roughly)
            keeper.forget_rows(objective.l2)
        else:
            start = objective.relabelled(last.point, change)
            keeper.note(objective, last.point.logits, change)
        found = minimise(
            objective,
            start,
            keeper,
            tol=self.tol,
            max_sweeps=self.max_sweeps,
            companion=companion,
            estimated=not self.proven,
        )
        return self._finish(objective, found, keeper, began, before)

    def _finish(
        self, objective: Objective, found: Minimum, keeper: CurvatureKeeper, began: float, before: Spent
    ) -> Construction:
        norm = found.point.gradient_norm
        if not found.converged:
            warnings.warn(
                f"the model stopped at ‖∇F‖ = {norm:.1e} (asked: {found.tolerance:.1e}) after {found.iterations} "
                "steps; its labels and influence are approximate. Raise l2, scale the features, or raise tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        spent = objective.engine.spent().since(before)
        diagnostics = ConstructionDiagnostics(
            iterations=found.iterations,
            sweeps=spent.sweeps,
            bytes_read=spent.bytes_read,
            read_seconds=spent.read_seconds,
            gradient_norm=norm,
            distance=norm / objective.l2,
            tolerance=found.tolerance,
            converged=found.converged,
            seconds=time.perf_counter() - began,
        )
        pace = objective.engine.pace()
        if pace is not None:
            diagnostics = replace(diagnostics, lag=pace.lag, slowest_worker=pace.slowest)
        return Construction(found.point, keeper, diagnostics)
