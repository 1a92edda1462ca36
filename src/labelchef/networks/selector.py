"""Who chooses on a network: INFL by forward mode, and selectors that ask for nothing but probabilities."""

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from labelchef.core.influence import influence_matrix, smallest
from labelchef.core.objective import Point
from labelchef.core.softmax import probabilities
from labelchef.domain.arrays import Float64s
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import Batch, SelectionDiagnostics
from labelchef.networks.influence import InfluenceSettings, Solution, solve, subsample
from labelchef.networks.linearised import Linearised
from labelchef.networks.model import NetworkModel
from labelchef.selectors import SELECTORS, SelectionContext, Selector, make_selector

ON_PROBABILITIES = ("random", "least_confidence", "entropy", "margin")
"""Selectors of the convex pipeline that run on a network as they are: its probabilities are all they look at."""

NETWORK_SELECTORS = ("infl", *ON_PROBABILITIES)
"""Names accepted by `NetworkCleaner(selector=…)`; with constructor 'last_layer' all of `labelchef.selectors` are."""


@dataclass(frozen=True)
class Influences:
    """I(i, c) of every sample and class (N, C) with the solve behind it."""

    influence: Float64s
    solution: Solution
    solve_seconds: float


@dataclass
class NetworkInflSelector:
    """INFL on a network. The last round's v starts the next solve."""

    model: NetworkModel
    settings: InfluenceSettings = field(default_factory=InfluenceSettings)
    seed: int = 0
    name: ClassVar[str] = "infl"
    suggests: ClassVar[bool] = True
    looks_ahead: ClassVar[bool] = False
    _v: torch.Tensor | None = field(default=None, init=False, repr=False)
    _last: tuple[Point, Influences] | None = field(default=None, init=False, repr=False)

    @property
    def carried(self) -> None:
        """Nothing rides along with the network's training."""
        return None

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The eligible samples of the smallest min_c I(i, c), each standing for itself."""
        began = time.perf_counter()
        found = self.influences(context)
        best = np.where(context.eligible, found.influence.min(axis=1), np.inf)
        indices = smallest(best, batch_size)
        solution = found.solution
        diagnostics = SelectionDiagnostics(
            iterations=solution.iterations,
            residual=solution.residual,
            converged=solution.converged,
            candidates=int(context.eligible.sum()),
            sweeps=float(solution.iterations + 1),
            seconds=time.perf_counter() - began,
            solve_seconds=found.solve_seconds,
        )
        return Batch(indices, found.influence[indices].argmin(axis=1), best[indices], diagnostics)

    def influences(self, context: SelectionContext) -> Influences:
        """The whole matrix for the model as it stands; asked again, it is not computed again."""
        if self._last is None or self._last[0] is not context.point:
            self._last = (context.point, self._compute(context))
        return self._last[1]

    def _compute(self, context: SelectionContext) -> Influences:
        began, model, labels = time.perf_counter(), self.model, context.objective.labels
        network = Linearised(model.task, model.device, self.settings.batch_size)
        g = network.gradient(model.validation_examples)
        data = subsample(model.examples(labels), self.settings.curvature_rows, self.seed)
        solution = solve(network, data, g, self.settings, l2=model.l2, start=self._v)
        self._v = solution.v
        seconds = time.perf_counter() - began
        logits, S = network.push(model.X, solution.v)
        matrix = influence_matrix(S, probabilities(logits), labels.Y, labels.weight)
        return Influences(matrix, solution, seconds)


def choose_selector(chosen: Any, infl: NetworkInflSelector) -> Selector:
    """A selector for a network: INFL, one that needs probabilities only, or one of the user's own."""
    name = chosen if isinstance(chosen, str) else getattr(chosen, "name", "")
    if chosen == "infl":
        return infl
    if (name in SELECTORS and name not in ON_PROBABILITIES) or str(name).endswith("+look_ahead"):
        raise InvalidInputError(
            f"selector {name!r} needs the convex model; expected one of {', '.join(NETWORK_SELECTORS)} for a network, "
            "or constructor='last_layer', which is convex and takes them all",
            code="selector",
        )
    return make_selector(chosen)
