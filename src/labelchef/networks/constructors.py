"""Who builds the network after labels change, and the session that takes it up.

- `Retrain`: from the weights that were handed in, on the labels as they stand: a function of labels and seed alone.
- `FineTune`: a few epochs from the weights of the last round.
- `LastLayer`: the network is trained once and frozen; its last layer is softmax regression on the features below it, and
  the convex pipeline takes over. Exact: the layer's optimum, INFL, Increm-INFL and DeltaGrad-L on these features. Not:
  the features themselves, which stay what the first labels made of them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.base.numbers import check_number, check_whole
from labelchef.base.records import ConstructionDiagnostics, Decisions, LabelChange, RoundRecord
from labelchef.chef.constructors import Construction
from labelchef.chef.constructors.protocol import OnStep, ValidationLosses
from labelchef.loop.judging import Split
from labelchef.loop.session import Session
from labelchef.model.curvature import CurvatureKeeper, freeze
from labelchef.model.objective import Objective
from labelchef.model.solvers import Companion
from labelchef.networks.model import NetworkModel, View
from labelchef.networks.training import Trained, TrainingSettings, copied


@dataclass(frozen=True)
class Retrain:
    """Train again from the weights that were handed in, as the first model was."""

    name: str = field(default="retrain", init=False)

    def settings(self, first: TrainingSettings) -> TrainingSettings:
        """Those of the first training."""
        return first


@dataclass(frozen=True)
class FineTune:
    """Go on from the last round's weights."""

    epochs: int = 5
    learning_rate: float | None = None
    """None takes that of the first training."""
    patience: int | None = 5
    """As in the first training: so many epochs without a better validation loss end it, and the best epoch is kept. None
    keeps the last one; then, round by round, the network learns weak labels by heart."""
    name: str = field(default="fine_tune", init=False)

    def __post_init__(self) -> None:
        check_whole(self.epochs, "epochs", code="constructor")
        if self.patience is not None:
            check_whole(self.patience, "patience", code="constructor")
        if self.learning_rate is not None:
            check_number(self.learning_rate, "learning_rate", above=0.0, code="constructor")

    def settings(self, first: TrainingSettings) -> TrainingSettings:
        """How to go on."""
        rate = first.learning_rate if self.learning_rate is None else self.learning_rate
        return replace(first, epochs=self.epochs, learning_rate=rate, patience=self.patience)


@dataclass(frozen=True)
class LastLayer:
    """Only the last layer follows, by a constructor of the convex pipeline ('newton', 'retrain', 'deltagrad_l')."""

    constructor: str = "newton"
    look_ahead: bool = True
    name: str = field(default="last_layer", init=False)


NETWORK_CONSTRUCTORS = {"retrain": Retrain, "fine_tune": FineTune, "last_layer": LastLayer}
"""Names accepted by `NetworkCleaner(constructor=…)`."""

NetworkConstructor = Retrain | FineTune | LastLayer


def as_constructor(chosen: Any) -> NetworkConstructor:
    """A constructor by name, or the one that was handed in."""
    if isinstance(chosen, Retrain | FineTune | LastLayer):
        return chosen
    if not isinstance(chosen, str) or chosen not in NETWORK_CONSTRUCTORS:
        raise InvalidInputError(
            f"unknown constructor {chosen!r} for a network; expected one of: {', '.join(NETWORK_CONSTRUCTORS)}",
            code="constructor",
        )
    made: NetworkConstructor = NETWORK_CONSTRUCTORS[chosen]()
    return made


@dataclass(frozen=True, kw_only=True)
class NetworkConstruction(Construction):
    """A trained network: its weights, and its view for the pipeline, at whose point it sits."""

    weights: dict[str, torch.Tensor] = field(repr=False)
    view: View = field(repr=False)


@dataclass
class NetworkTrainer:
    """`Retrain` and `FineTune` behind the protocol of all constructors. `pretrained`: the first model is as handed in."""

    model: NetworkModel
    training: TrainingSettings
    following: Retrain | FineTune
    seed: int
    pretrained: bool = False
    name: str = field(default="", init=False)
    first: dict[str, torch.Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name, self.first = self.following.name, copied(self.model.task)

    def initialise(
        self,
        objective: Objective,
        validation: ValidationLosses,  # noqa: ARG002 (the network has its own)
        on_step: OnStep | None = None,
        start: Float64s | None = None,  # noqa: ARG002 (parameters of a linear model)
    ) -> NetworkConstruction:
        """Train, or take the network as it was handed in."""
        return self._construction(objective, None if self.pretrained else self.training, on_step)

    def construct(
        self,
        objective: Objective,
        last: Construction,
        change: LabelChange,  # noqa: ARG002 (the labels show it already)
        validation: ValidationLosses,  # noqa: ARG002
        companion: Companion | None = None,  # noqa: ARG002
    ) -> NetworkConstruction:
        """Train again, or go on."""
        assert isinstance(last, NetworkConstruction)
        again = isinstance(self.following, Retrain)
        self.model.task.load_state_dict(self.first if again else last.weights)
        return self._construction(objective, self.following.settings(self.training))

    def _construction(
        self, objective: Objective, settings: TrainingSettings | None, on_step: OnStep | None = None
    ) -> NetworkConstruction:
        began, model, done = time.perf_counter(), self.model, Trained(0, 0, 0, 0.0)
        if settings is not None:
            done = model.train(objective.labels, settings, self.seed, on_step)
        view = model.view(objective.labels)
        point = view.objective.at(np.eye(model.n_classes))
        nan = float("nan")  # no gradient of F over the weights is computed, and no optimum is claimed
        made = ConstructionDiagnostics(
            iterations=done.steps, sweeps=float(done.epochs), gradient_norm=nan, distance=nan, tolerance=nan,
            epoch=done.epoch, explicit=done.steps, seconds=time.perf_counter() - began,
        )  # fmt: skip
        keeper = CurvatureKeeper(freeze(view.objective, point.logits))
        return NetworkConstruction(point, keeper, made, weights=copied(model.task), view=view)


@dataclass
class NetworkSession(Session):
    """A campaign on a network: objective and splits are those of the view of its model, replaced with every model."""

    @contextmanager
    def _as_one(self, decisions: Decisions) -> Iterator[LabelChange]:
        last = self.construction
        try:
            with super()._as_one(decisions) as change:
                yield change
        except BaseException:
            assert isinstance(last, NetworkConstruction)
            assert isinstance(self.constructor, NetworkTrainer)
            self._look_at(last.view)
            self.constructor.model.task.load_state_dict(last.weights)
            raise

    @property
    def judges(self) -> dict[str, Split]:
        """A network is judged on samples that neither trained nor stopped it, or not at all."""
        parts = {"validation": self.judging, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def _record(self, construction: Construction, *details: Any, **named: Any) -> RoundRecord:
        assert isinstance(construction, NetworkConstruction)
        self._look_at(construction.view)
        return super()._record(construction, *details, **named)

    def _look_at(self, view: View) -> None:
        self.objective = replace(view.objective, labels=self.labels.rows)
        self.steering, self.judging, self.test = view.steering, view.judging, view.test


@dataclass
class LastLayerSession(Session):
    """A campaign on the last layer, where the trusted samples that trained the network are clean training rows too."""

    n_samples: int = 0
    """N: these rows come after the samples that the user knows of."""

    @classmethod
    def of(cls, session: Session, n_samples: int) -> "LastLayerSession":
        """A session that has no model yet, with these rows set apart."""
        given = {one.name: getattr(session, one.name) for one in fields(session) if one.init}
        return cls(**given, n_samples=n_samples)

    @property
    def n_train(self) -> int:
        """N."""
        return self.n_samples
