"""Mini-batch gradient descent as the paper trains, its trajectory, and Retrain, which descends anew after every change.

    w_{t+1} = w_t − η [ g_t + λ w_t ],   g_t = (1/|B_t|) Σ_{i ∈ B_t} r_i x_i ⊗ (p_i(w_t) − y_i),   w_0 = 0

for a fixed number of epochs, on a schedule that depends on the seed only; then early stopping: of the parameters after each
epoch, those with the smallest validation loss. g_t is the gradient of the data alone; L2 is added exactly wherever
a step is made.

A trajectory is w_t and g_t of every step. Only g_t is stored: w_t follows from it by the recursion above, bit by bit, in
a few microseconds a step. g_t is rounded to the stored type before it is used, so nothing is lost by storing it.

Without a learning rate, η = 1/L with L = ½ λ_max(X_Bᵀ X_B / |B|) + λ, the larger of two mini-batches: ½ bounds the
curvature of softmax. Mini-batches of a few rows, or features with heavy tails, may need a smaller one.
"""

import mmap
import os
import tempfile
import time
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from labelchef.base.arrays import Float64s, Floats, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.numbers import check_number, check_whole
from labelchef.base.records import ConstructionDiagnostics, LabelChange
from labelchef.base.stopping_work import go_on
from labelchef.chef.constructors.protocol import Construction, OnStep, ValidationLosses
from labelchef.chef.constructors.replayed_descent import descend
from labelchef.chef.constructors.schedule import Schedule, Trajectory
from labelchef.model.contrasts import Coordinates
from labelchef.model.curvature import CurvatureKeeper, freeze
from labelchef.model.engines.protocol import Spent
from labelchef.model.objective import Objective
from labelchef.model.solvers import Companion

_STORED = np.dtype(np.float32)
_PROBED = 2  # mini-batches that the smoothness is measured on
_POWER_STEPS = 30


@dataclass(frozen=True)
class DescentSettings:
    """Settings of a descent.

    `learning_rate=None` takes 1/L. A trajectory of more than `memory_limit` bytes is kept in a temporary file that is
    mapped into memory.
    """

    learning_rate: float | None = None
    epochs: int = 150
    minibatch: int = 2000
    early_stopping: bool = True
    seed: int = 0
    memory_limit: int = 1 << 30

    def __post_init__(self) -> None:
        if self.learning_rate is not None:
            other = ", or None to compute it from the data"
            check_number(self.learning_rate, "learning_rate", above=0.0, instead=other)
            object.__setattr__(self, "learning_rate", float(self.learning_rate))
        for name, least in (("epochs", 1), ("minibatch", 1), ("seed", 0), ("memory_limit", 0)):
            check_whole(getattr(self, name), name, least)
            object.__setattr__(self, name, int(getattr(self, name)))


def smoothness_of(objective: Objective, schedule: Schedule) -> float:
    """L of the data: ½ λ_max(X_Bᵀ X_B / |B|), the largest of the first mini-batches, by the power method."""
    largest = 0.0
    for step in range(min(_PROBED, schedule.steps_per_epoch)):
        X = objective.engine.rows(schedule.rows(step))
        v = np.asarray(np.random.default_rng([schedule.seed, step]).normal(size=X.shape[1]))
        for _ in range(_POWER_STEPS):
            size = float(np.linalg.norm(v))
            v = X.T @ (X @ v) / (len(X) * (size or 1.0))
        largest = max(largest, 0.5 * float(np.linalg.norm(v)))
    return largest


def room(settings: DescentSettings, schedule: Schedule, shape: tuple[int, int]) -> Floats:
    """Room for the gradients of all steps: in memory, or above the limit in a temporary file without a name."""
    size = (schedule.steps, *shape)
    needed = schedule.steps * shape[0] * shape[1] * _STORED.itemsize
    try:
        if needed <= settings.memory_limit:
            return np.empty(size, _STORED)
        with tempfile.TemporaryFile(prefix="labelchef-trajectory-") as stream:
            os.posix_fallocate(stream.fileno(), 0, needed)  # a full disk is an error now, not when a page is written
            return np.frombuffer(mmap.mmap(stream.fileno(), needed), _STORED).reshape(size)
    except (OSError, MemoryError) as error:
        raise InvalidInputError(
            f"the trajectory of {schedule.steps} steps needs {needed / 2**30:.1f} GiB, which is not available in memory or "
            f"in {tempfile.gettempdir()}: {getattr(error, 'strerror', None) or error}; set TMPDIR to a folder with more room, "
            "train fewer epochs or take constructor 'newton'",
            code="memory_limit",
        ) from None


def step_gradient(objective: Objective, at: Coordinates, Z: Float64s, rows: Ints) -> Float64s:
    """g_t at Z in coordinates, (k, D), before rounding: one read of the batch's rows."""
    with np.errstate(over="ignore", invalid="ignore"):  # checked at the end of the epoch
        return at.B.T @ objective.engine.gradient_of_rows(rows, objective.labels, at.B @ Z) / len(rows)


def train(
    objective: Objective,
    schedule: Schedule,
    rate: float,
    smoothness: float,
    gradients: Floats | None,
    on_step: OnStep | None = None,
) -> Trajectory:
    """The whole descent; `gradients` receives every g_t, if it is given."""
    at = Coordinates(objective.shape[1])
    shape = (objective.shape[1] - 1, objective.shape[0])
    Z = np.zeros(shape)
    try:
        ends = np.zeros((schedule.epochs + 1, *shape))
    except (MemoryError, ValueError):
        raise InvalidInputError(
            f"the parameters of {schedule.epochs} epochs do not fit into memory; train fewer epochs", code="epochs"
        ) from None
    rounded: Floats = np.empty(shape, _STORED)
    step = 0
    for epoch in range(schedule.epochs):
        for rows in schedule.epoch(epoch):
            go_on()
            kept = rounded if gradients is None else gradients[step]
            kept[...] = step_gradient(objective, at, Z, rows)
            descend(Z.reshape(-1), kept.reshape(-1), rate, objective.l2)
            step += 1
        ends[epoch + 1] = Z
        check_finite(Z, rate, smoothness + objective.l2)
        if on_step is not None:
            on_step(epoch + 1, float(np.linalg.norm(kept + objective.l2 * Z)), float("nan"))
    stored = np.empty((0, *shape), _STORED) if gradients is None else gradients
    return Trajectory(schedule, rate, smoothness, objective.l2, stored, ends, explicit=schedule.steps)


def check_finite(Z: Float64s, rate: float, smoothness: float) -> None:
    """Raise an error if a descent has diverged."""
    if not np.isfinite(Z).all():
        raise InvalidInputError(
            f"training diverged with learning_rate {rate:g}; expected at most about {2 / smoothness:.2g} for these "
            "features. Lower it, or leave it out to take 1/L",
            code="learning_rate",
        )


@dataclass
class RetrainConstructor:
    """The same schedule, from w_0 = 0, on the labels as they stand: the result depends on labels and seed only."""

    settings: DescentSettings = field(default_factory=DescentSettings)
    name: str = field(default="retrain", init=False)
    _keeps_gradients: ClassVar[bool] = False

    def initialise(
        self,
        objective: Objective,
        validation: ValidationLosses,
        on_step: OnStep | None = None,
        start: Float64s | None = None,  # noqa: ARG002 (a descent begins at zero)
    ) -> Construction:
        """Train."""
        began, before, rows = time.perf_counter(), objective.engine.spent(), objective.engine.n_rows
        schedule = Schedule(rows, min(self.settings.minibatch, rows), self.settings.epochs, self.settings.seed)
        smoothness = smoothness_of(objective, schedule)
        rate = self.settings.learning_rate or 1.0 / (smoothness + objective.l2)
        shape = (objective.shape[1] - 1, objective.shape[0])
        gradients = room(self.settings, schedule, shape) if self._keeps_gradients else None
        trajectory = train(objective, schedule, rate, smoothness, gradients, on_step)
        return self._finish(objective, trajectory, validation, began, before)

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,
        validation: ValidationLosses,
        companion: Companion | None = None,
    ) -> Construction:
        """Descend again under the new labels; where any label may have changed, from the start."""
        if change.everywhere:
            return self.initialise(objective, validation)
        began, before = time.perf_counter(), objective.engine.spent()
        assert last.trajectory is not None, "a model made by descent has a trajectory"
        trajectory = self._again(objective, last.trajectory, change)
        return self._finish(objective, trajectory, validation, began, before, last.keeper, companion)

    def _again(self, objective: Objective, last: Trajectory, change: LabelChange) -> Trajectory:  # noqa: ARG002
        """The descent under the new labels, which the objective has already."""
        return train(objective, last.schedule, last.rate, last.smoothness, None)

    def _finish(
        self,
        objective: Objective,
        trajectory: Trajectory,
        validation: ValidationLosses,
        began: float,
        before: Spent,
        keeper: CurvatureKeeper | None = None,
        companion: Companion | None = None,
    ) -> Construction:
        """Choose the epoch, and evaluate the whole objective there, with the companion's system: one sweep."""
        at = Coordinates(objective.shape[1])
        epoch = trajectory.schedule.epochs
        if self.settings.early_stopping:
            epoch = int(np.argmin(validation(at.parameters(trajectory.ends))))
        W = np.ascontiguousarray(at.parameters(trajectory.ends[epoch]))
        V = None if companion is None or keeper is None else companion.corrected(W, keeper)
        point = objective.at(W, V=V)
        if keeper is None:
            keeper = CurvatureKeeper(freeze(objective, point.logits))
        elif keeper.due(objective):
            keeper.refresh(objective, point.logits)
        spent = objective.engine.spent().since(before)
        diagnostics = ConstructionDiagnostics(
            iterations=trajectory.schedule.steps,
            sweeps=spent.sweeps,
            bytes_read=spent.bytes_read,
            read_seconds=spent.read_seconds,
            gradient_norm=point.gradient_norm,
            distance=point.gradient_norm / objective.l2,
            tolerance=float("inf"),
            epoch=epoch,
            explicit=trajectory.explicit,
            fell_back=trajectory.fell_back,
            seconds=time.perf_counter() - began,
        )
        return Construction(point, keeper, diagnostics, trajectory)
