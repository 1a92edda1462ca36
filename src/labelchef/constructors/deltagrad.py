"""DeltaGrad-L: replay the last descent under the new labels, most steps without looking at the mini-batch.

(Paper, section 4.2 and Algorithm 2 of the appendix.) With w_t, g_t the last trajectory and w'_t the new one,

    ∇F(w'_t; B_t) ≈ g_t + B_t (w'_t − w_t)                                        data part, old labels
    g'_t = that + (1/|B_t|) Σ_{i ∈ B_t, changed} x_i ⊗ [r'_i (p_i − y'_i) − r_i (p_i − y_i)]   p at w'_t, exact
    w'_{t+1} = w'_t − η (g'_t + λ w'_t)

B_t is the L-BFGS matrix of the last m0 pairs (w' − w, ∇F(w'; B) − ∇F(w; B)). The first term is computed
explicitly for t ≤ j0 and every T0 steps after; those steps make the pairs. The four modifications for labels:
the changed samples are what is removed; the cached trajectory is the last round's (this one's serves the next);
what is added are the same samples, in the same batches, under their new labels; weights are 1 and γ. L2 is kept out of
the approximation, because it is known exactly.

Where B_t cannot be trusted the step is explicit too, and counted: no pair with positive curvature yet, vᵀBv ≤ 0 or
‖Bv‖ > 2L‖v‖ (no batch bends like that), or an explicit step found the prediction of B off by an ε that would grow
to 0.3 of w' − w before the next one, 0.1 if the prediction was worse than none (see `replay.learn`).

With every step explicit this is Retrain, bit by bit.
"""

import time
from dataclasses import dataclass, field

import numpy as np

from labelchef.constructors.descent import (
    DescentSettings,
    Progress,
    check_finite,
    finish,
    room,
    schedule_of,
    smoothness_of,
    step_gradient,
    train,
)
from labelchef.constructors.protocol import Construction, OnStep, ValidationLosses
from labelchef.constructors.replay import explicit_step, learn, replay_steps
from labelchef.constructors.trajectory import Trajectory
from labelchef.core.coordinates import Coordinates
from labelchef.core.objective import Objective
from labelchef.core.solvers import Companion
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.numbers import check_whole
from labelchef.domain.records import LabelChange

_SLACK = 2.0  # of the smoothness: the bound was measured on a few batches
_TOLERATED, _TOLERATED_WORSE = 0.3, 0.1  # of w' − w; the second where B predicts worse than nothing would


@dataclass
class DeltaGradLConstructor:
    """Train once, then follow every change of labels. `burn_in`, `period`, `history` are the paper's j0, T0, m0.

    `error_guard=False` is the paper's algorithm, which does not measure its own error.
    """

    settings: DescentSettings = field(default_factory=DescentSettings)
    burn_in: int = 10
    period: int = 10
    history: int = 2
    error_guard: bool = True
    name: str = field(default="deltagrad_l", init=False)

    def __post_init__(self) -> None:
        for name, least in (("burn_in", 0), ("period", 1), ("history", 1)):
            check_whole(getattr(self, name), name, least)

    def initialise(
        self, objective: Objective, validation: ValidationLosses, on_step: OnStep | None = None
    ) -> Construction:
        """Train as Retrain does, and keep the trajectory."""
        began, sweeps = time.perf_counter(), objective.engine.sweeps
        schedule = schedule_of(self.settings, objective)
        smoothness = smoothness_of(objective, schedule)
        rate = self.settings.learning_rate or 1.0 / (smoothness + objective.l2)
        gradients = room(self.settings, schedule, (objective.shape[1] - 1, objective.shape[0]))
        trajectory = train(objective, schedule, rate, smoothness, gradients, on_step)
        return finish(
            objective, trajectory, validation, early_stopping=self.settings.early_stopping,
            keeper=None, companion=None, progress=Progress(schedule.steps), began=began, sweeps=sweeps,
        )  # fmt: skip

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,
        validation: ValidationLosses,
        companion: Companion | None = None,
    ) -> Construction:
        """Replay the last trajectory under the new labels."""
        began, sweeps = time.perf_counter(), objective.engine.sweeps
        assert last.trajectory is not None, "a replayed model has a trajectory"
        progress = Progress()
        trajectory = self._replayed(objective, last.trajectory, change, progress)
        return finish(
            objective, trajectory, validation, early_stopping=self.settings.early_stopping,
            keeper=last.keeper, companion=companion, progress=progress, began=began, sweeps=sweeps,
        )  # fmt: skip

    def _replayed(
        self, objective: Objective, before: Trajectory, change: LabelChange, progress: Progress
    ) -> Trajectory:
        schedule, G, at = before.schedule, before.gradients, Coordinates(objective.shape[1])
        G_new, ends = room(self.settings, schedule, (G.shape[1], G.shape[2])), np.zeros_like(before.ends)
        Z, Z_new = np.zeros(G.shape[1:]), np.zeros(G.shape[1:])
        changed = _Changed.of(objective, schedule.steps_of(change.indices), schedule.steps, change)
        sizes = np.array([schedule.size(step) for step in range(schedule.steps_per_epoch)])
        place = (
            G, G_new, Z, Z_new, before.rate, before.l2, at.B, changed.X, changed.old, changed.new, changed.at,
            changed.which, sizes, ends,
        )  # fmt: skip
        limit = _SLACK * before.smoothness
        tolerated = (_TOLERATED, _TOLERATED_WORSE) if self.error_guard else (np.inf, np.inf)
        guard = (self.history, limit, before.rate, self.period, before.l2, *tolerated)
        known = (np.empty((0, Z.size)), np.empty((0, Z.size)), np.empty((0, 0)), 0.0)
        step, wrong = 0, False
        while step < schedule.steps:
            due = self._due(step)
            if step != due and not wrong:
                step = replay_steps(step, min(due, schedule.steps), *known, limit, *place)
                if step == schedule.steps:
                    break
            progress.explicit += 1
            progress.fell_back += step != self._due(step)
            g = step_gradient(objective, at, Z_new, schedule.rows(step))
            s, y = explicit_step(step, g, *place)
            *known, wrong = learn(s, y, *guard, *known)
            step += 1
        check_finite(Z_new, before.rate, before.smoothness + before.l2)
        return Trajectory(schedule, before.rate, before.smoothness, before.l2, G_new, ends)

    def _due(self, step: int) -> int:
        """The next step, from this one on, that the schedule of explicit steps names."""
        if step <= self.burn_in:
            return step
        return step + (self.burn_in - step) % self.period


@dataclass(frozen=True)
class _Changed:
    """The changed rows, their labels with the weight last, and which of them each step meets (see `replay`)."""

    X: Float64s
    old: Float64s
    new: Float64s
    at: Ints
    which: Ints

    @classmethod
    def of(cls, objective: Objective, met: Ints, steps: int, change: LabelChange) -> "_Changed":
        order = np.argsort(met, axis=None, kind="stable")
        rows = np.tile(np.arange(len(change.indices)), len(met))
        return cls(
            np.ascontiguousarray(objective.engine.rows(change.indices)),
            np.column_stack([change.Y_old, change.weight_old]),
            np.column_stack([change.Y_new, change.weight_new]),
            np.searchsorted(met.reshape(-1)[order], np.arange(steps + 1)),
            rows[order],
        )
