"""DeltaGrad-L: repeat the last descent under the new labels, most steps without reading the mini-batch.

(Paper, section 4.2 and Algorithm 2 of the appendix.) With w_t, g_t the last trajectory and w'_t the new one,

    ∇F(w'_t; B_t) ≈ g_t + B_t (w'_t − w_t)                                        data part, old labels
    g'_t = that + (1/|B_t|) Σ_{i ∈ B_t, changed} x_i ⊗ [r'_i (p_i − y'_i) − r_i (p_i − y_i)]   p at w'_t, exact
    w'_{t+1} = w'_t − η (g'_t + λ w'_t)

B_t is the L-BFGS matrix of the last m0 pairs (w' − w, ∇F(w'; B) − ∇F(w; B)). The first term is computed
explicitly for t ≤ j0 and every T0 steps after; those steps make the pairs. The four modifications for labels:
the changed samples are what is removed; the cached trajectory is the last round's (this one's is used by the next);
what is added are the same samples, in the same batches, under their new labels; weights are 1 and γ. L2 is kept out of
the approximation, because it is known exactly.

Where B_t cannot be trusted the step is explicit too, and counted: no pair with positive curvature yet, vᵀBv ≤ 0 or
‖Bv‖ > 2L‖v‖ (impossible for a batch), or an explicit step found that the prediction of B has an error ε that would grow
to 0.3 of w' − w before the next one, 0.1 if the prediction was worse than none (see `replayed_descent.learn`).

With every step explicit this is Retrain, bit by bit.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from labelchef.base.numbers import check_whole
from labelchef.base.records import LabelChange
from labelchef.base.stopping_work import go_on
from labelchef.chef.constructors import replayed_descent as replayed
from labelchef.chef.constructors.descent import RetrainConstructor, check_finite, room, step_gradient
from labelchef.chef.constructors.schedule import Trajectory
from labelchef.model.contrasts import Coordinates
from labelchef.model.objective import Objective

_SLACK = 2.0  # times the smoothness, which was measured on a few batches only
_TOLERATED, _TOLERATED_WORSE = 0.3, 0.1  # of w' − w; the second where the prediction of B is worse than zero


@dataclass
class DeltaGradLConstructor(RetrainConstructor):
    """Train once, then follow every change of labels. `burn_in`, `period`, `history` are the paper's j0, T0, m0.

    `error_guard=False` is the paper's algorithm, which does not measure its own error.
    """

    burn_in: int = 10
    period: int = 10
    history: int = 2
    error_guard: bool = True
    name: str = field(default="deltagrad_l", init=False)
    _keeps_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least in (("burn_in", 0), ("period", 1), ("history", 1)):
            check_whole(getattr(self, name), name, least)

    def _again(self, objective: Objective, last: Trajectory, change: LabelChange) -> Trajectory:
        """The last descent under the new labels, most steps without reading their mini-batch."""
        schedule, at, shape = last.schedule, Coordinates(objective.shape[1]), last.gradients.shape[1:]
        descents = replayed.Descents(
            G=last.gradients,
            G_new=room(self.settings, schedule, shape),
            z=np.zeros(shape),
            z_new=np.zeros(shape),
            ends=np.zeros_like(last.ends),
            rate=last.rate,
            l2=last.l2,
            sizes=schedule.sizes,
            basis=at.B,
        )
        met = schedule.steps_of(change.indices)
        order = np.argsort(met, axis=None, kind="stable")
        changed = replayed.Changed(
            X=np.ascontiguousarray(objective.engine.rows(change.indices)),
            old=np.column_stack([change.Y_old, change.weight_old]),
            new=np.column_stack([change.Y_new, change.weight_new]),
            at=np.searchsorted(met.reshape(-1)[order], np.arange(schedule.steps + 1)),
            which=np.tile(np.arange(len(change.indices)), len(met))[order],
        )
        limit = _SLACK * last.smoothness
        tolerated = (_TOLERATED, _TOLERATED_WORSE) if self.error_guard else (np.inf, np.inf)
        guard = replayed.Guard(self.history, limit, last.rate, self.period, last.l2, *tolerated)
        n = descents.z.size
        known = replayed.QuasiHessian(np.empty((0, n)), np.empty((0, n)), np.empty((0, 0)), 0.0)
        step, explicit, fell_back, wrong = 0, 0, 0, False
        while step < schedule.steps:
            go_on()
            due = self._due(step)
            if step != due and not wrong:
                step = replayed.approximate_steps(step, min(due, schedule.steps), known, limit, descents, changed)
                if step == schedule.steps:
                    break
            explicit += 1
            fell_back += step != self._due(step)
            g = step_gradient(objective, at, descents.z_new, schedule.rows(step))
            s, y = replayed.explicit_step(step, g, descents, changed)
            known, wrong = replayed.learn(s, y, guard, known)
            step += 1
        check_finite(descents.z_new, last.rate, last.smoothness + last.l2)
        return replace(last, gradients=descents.G_new, ends=descents.ends, explicit=explicit, fell_back=fell_back)

    def _due(self, step: int) -> int:
        """The next explicit step of the schedule, from this step on."""
        if step <= self.burn_in:
            return step
        return step + (self.burn_in - step) % self.period
