"""Retrain: mini-batch descent from scratch after every change of labels, as the paper's baseline does."""

import time
from dataclasses import dataclass, field

from labelchef.constructors.descent import (
    DescentSettings,
    Progress,
    finish,
    schedule_of,
    smoothness_of,
    train,
)
from labelchef.constructors.protocol import Construction, OnStep, ValidationLosses
from labelchef.core.curvature import CurvatureKeeper
from labelchef.core.objective import Objective
from labelchef.core.solvers import Companion
from labelchef.domain.records import LabelChange


@dataclass
class RetrainConstructor:
    """The same schedule, from w_0 = 0, on the labels as they stand: the result depends on labels and seed only."""

    settings: DescentSettings = field(default_factory=DescentSettings)
    name: str = field(default="retrain", init=False)

    def initialise(
        self, objective: Objective, validation: ValidationLosses, on_step: OnStep | None = None
    ) -> Construction:
        """Train."""
        began, sweeps = time.perf_counter(), objective.engine.sweeps
        schedule = schedule_of(self.settings, objective)
        smoothness = smoothness_of(objective, schedule)
        rate = self.settings.learning_rate or 1.0 / (smoothness + objective.l2)
        trajectory = train(objective, schedule, rate, smoothness, None, on_step)
        return finish(
            objective, trajectory, validation, early_stopping=self.settings.early_stopping,
            keeper=None, companion=None, progress=Progress(schedule.steps), began=began, sweeps=sweeps,
        )  # fmt: skip

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,  # noqa: ARG002 (it is in the labels already)
        validation: ValidationLosses,
        companion: Companion | None = None,
    ) -> Construction:
        """Train again."""
        began, sweeps = time.perf_counter(), objective.engine.sweeps
        before = last.trajectory
        assert before is not None, "a retrained model has a trajectory"
        trajectory = train(objective, before.schedule, before.rate, before.smoothness, None)
        keeper: CurvatureKeeper = last.keeper
        return finish(
            objective, trajectory, validation, early_stopping=self.settings.early_stopping,
            keeper=keeper, companion=companion, progress=Progress(before.schedule.steps), began=began, sweeps=sweeps,
        )  # fmt: skip
