"""Selectors for a network: INFL and its variants by forward mode, O2U by its own training, and those on probabilities.

With S[i] = J_i v of `networks.influence` in the place of X V:

    expected_infl   Σ_c Q[i, c] I(i, c) − β sd_Q I(i, ·)                  suggests argmax_c Q
    infl            min_c I(i, c), formula (A)                            suggests argmin_c
    infl_y          min_c S[i, c] − P[i]·S[i]   (A) at γ = 0              suggests argmin_c
    infl_d          (P[i] − Y[i])·S[i]          N · change of the validation loss without i, at weight 1
    o2u             minus the mean loss of i over epochs of a cyclic learning rate

Q = softmax(A − η S) as in `core.posterior`. Along v, the logits of the trusted samples change by T = J v; the curvature of the
validation loss is vᵀ H_val v = mean_j Var_{P_j} T_j in the Gauss–Newton approximation, and the damped curvature replaces H.
"""

import copy
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from labelchef.baselines.influence import deletion_influence, label_slopes
from labelchef.campaign.choice import ALL_SELECTORS, make_selector
from labelchef.core.influence import influence_matrix, smallest
from labelchef.core.objective import Point
from labelchef.core.posterior import step_length
from labelchef.core.softmax import cross_entropies, probabilities
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED, Batch, SelectionDiagnostics
from labelchef.networks.influence import InfluenceSettings, Solution, solve, subsample
from labelchef.networks.linearised import Linearised
from labelchef.networks.model import NetworkModel
from labelchef.networks.progress import iterations_shown
from labelchef.networks.training import TrainingSettings, train
from labelchef.selectors import SelectionContext, Selector
from labelchef.selectors.infl import BestCase, Expected

ON_PROBABILITIES = ("random", "least_confidence", "entropy", "margin")
"""Selectors of the convex model which work on a network too: they use only its probabilities."""


@dataclass(frozen=True)
class Products:
    """S = J v, logits A and probabilities P (N, C) of the present model, with the solution for v and the step η."""

    S: Float64s
    A: Float64s
    P: Float64s
    eta: float
    solution: Solution
    solve_seconds: float


@dataclass
class Direction:
    """v and its products, computed once for each model; the last v starts the next solve."""

    model: NetworkModel
    settings: InfluenceSettings
    seed: int
    progress: bool = False
    """Whether to show a progress bar during the solve for v."""
    _v: torch.Tensor | None = field(default=None, init=False, repr=False)
    _last: tuple[Point, Products] | None = field(default=None, init=False, repr=False)

    def at(self, context: SelectionContext) -> Products:
        """The products at the model of `context`; kept until the model changes."""
        if self._last is None or self._last[0] is not context.point:
            self._last = (context.point, self._compute(context))
        return self._last[1]

    def _compute(self, context: SelectionContext) -> Products:
        began, model = time.perf_counter(), self.model
        network = Linearised(model.task, model.device, self.settings.batch_size)
        g = network.gradient(model.steering_examples)
        data = subsample(model.examples(context.objective.labels), self.settings.curvature_rows, self.seed)
        with iterations_shown(self.settings.tol, shown=self.progress) as on_iteration:
            solution = solve(network, data, g, self.settings, l2=model.l2, start=self._v, on_iteration=on_iteration)
        self._v = solution.v
        seconds = time.perf_counter() - began
        trusted, T = network.push(model.steering[0], solution.v)
        eta = step_length(probabilities(trusted), T, float(g.double() @ solution.v.double()), len(model.X))
        logits, S = network.push(model.X, solution.v)
        return Products(S, logits, probabilities(logits), eta, solution, seconds)


@dataclass
class NetworkInfluenceSelector(ABC):
    """A selector that ranks by S = J v. Samples are scored one by one: there is no look-ahead."""

    direction: Direction
    name: ClassVar[str]
    suggests: ClassVar[bool] = True
    looks_ahead: ClassVar[bool] = False

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The eligible samples with the smallest scores; equal scores by index."""
        began, found = time.perf_counter(), self.direction.at(context)
        scores, suggested, influence = self.rank(found, context.objective.labels.Y, context.objective.labels.weight)
        indices = smallest(np.where(context.eligible, scores, np.inf), batch_size)
        diagnostics = SelectionDiagnostics(
            iterations=found.solution.iterations,
            residual=found.solution.residual,
            converged=found.solution.converged,
            candidates=int(context.eligible.sum()),
            sweeps=float(found.solution.iterations + 1),
            seconds=time.perf_counter() - began,
            solve_seconds=found.solve_seconds,
        )
        Y, weight = context.objective.labels.Y[indices], context.objective.labels.weight[indices]
        by_answer = influence_matrix(found.S[indices], found.P[indices], Y, weight)
        return Batch(indices, suggested[indices], influence[indices], diagnostics, by_answer)

    @abstractmethod
    def rank(self, found: Products, Y: Float64s, weight: Float64s) -> tuple[Float64s, Ints, Float64s]:
        """Scores (smallest first), suggested class ids and influences, (N,) each."""


class NetworkInflSelector(NetworkInfluenceSelector):
    """INFL."""

    name: ClassVar[str] = "infl"

    def rank(self, found: Products, Y: Float64s, weight: Float64s) -> tuple[Float64s, Ints, Float64s]:
        """Formula (A): the score is the influence of the best answer."""
        best = BestCase().of(found.A, found.S, Y, weight)
        return best.worth, best.answers.argmax(axis=1), best.influence


@dataclass
class NetworkExpectedInflSelector(NetworkInfluenceSelector):
    """Influence in expectation over the answers of people. `optimism` is β, the weight of its spread."""

    optimism: float = 1.0
    name: ClassVar[str] = "expected_infl"

    def rank(self, found: Products, Y: Float64s, weight: Float64s) -> tuple[Float64s, Ints, Float64s]:
        """The influence is the expectation; the spread affects only the order."""
        expected = Expected(found.eta, self.optimism).of(found.A, found.S, Y, weight)
        return expected.worth, expected.answers.argmax(axis=1), expected.influence


class NetworkInflYSelector(NetworkInfluenceSelector):
    """INFL-Y: a slope with respect to the label, so `influence` is NaN."""

    name: ClassVar[str] = "infl_y"

    def rank(self, found: Products, Y: Float64s, weight: Float64s) -> tuple[Float64s, Ints, Float64s]:  # noqa: ARG002
        """Uses neither the present label nor its weight."""
        slopes = label_slopes(found.S, found.P)
        return np.asarray(slopes.min(axis=1)), slopes.argmin(axis=1), np.full(len(slopes), np.nan)


class NetworkInflDSelector(NetworkInfluenceSelector):
    """INFL-D: the samples whose deletion would lower the validation loss most."""

    name: ClassVar[str] = "infl_d"
    suggests: ClassVar[bool] = False

    def rank(self, found: Products, Y: Float64s, weight: Float64s) -> tuple[Float64s, Ints, Float64s]:
        """Ranked as if the weight were 1, so that there is an order even for γ = 0."""
        scores = deletion_influence(found.S, found.P, Y)
        return scores, np.full(len(Y), UNRESOLVED), weight * scores


@dataclass
class NetworkO2USelector:
    """O2U-Net (Huang et al. 2019): the samples whose loss stays high in cyclic training.

    Training starts from the present weights. In each of `cycles` cycles, the learning rate falls from ten times that of training
    to a tenth of it within `epochs` epochs. Samples are ranked by their mean loss over all epochs, against the present label.
    """

    model: NetworkModel
    training: TrainingSettings
    seed: int
    cycles: int = 2
    epochs: int = 4
    name: ClassVar[str] = "o2u"
    suggests: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The eligible samples with the highest mean loss."""
        began, labels = time.perf_counter(), context.objective.labels
        swinging = replace(self.model, task=copy.deepcopy(self.model.task))
        total = np.zeros(len(labels.Y))
        rates = np.linspace(10.0, 0.1, self.epochs) * self.training.learning_rate
        for n, rate in enumerate(np.tile(rates, self.cycles)):
            settings = replace(self.training, epochs=1, learning_rate=float(rate), patience=None)
            train(
                swinging.task, swinging.examples(labels), swinging.steering_examples, settings,
                l2=swinging.l2, seed=self.seed + n, device=swinging.device,
            )  # fmt: skip
            total += cross_entropies(swinging.logits(swinging.X), labels.Y)
        indices = smallest(np.where(context.eligible, -total, np.inf), batch_size)
        diagnostics = SelectionDiagnostics(
            candidates=int(context.eligible.sum()),
            sweeps=2.0 * self.cycles * self.epochs,
            seconds=time.perf_counter() - began,
        )
        return replace(Batch.without_predictions(indices), diagnostics=diagnostics)


ALONG_V: dict[str, type[NetworkInfluenceSelector]] = {
    "expected_infl": NetworkExpectedInflSelector,
    "infl": NetworkInflSelector,
    "infl_d": NetworkInflDSelector,
    "infl_y": NetworkInflYSelector,
}

NETWORK_SELECTORS = (*ALONG_V, "o2u", *ON_PROBABILITIES)
"""Names accepted by `NetworkCleaner(selector=…)`; with constructor 'last_layer', those of the convex model."""


def choose_selector(chosen: Any, direction: Direction, training: TrainingSettings) -> Selector:
    """A selector for a network: one that uses v, O2U, one that needs only probabilities, or a user's own."""
    name = chosen if isinstance(chosen, str) else str(getattr(chosen, "name", ""))
    if isinstance(chosen, str) and chosen in ALONG_V:
        return ALONG_V[chosen](direction)
    if isinstance(chosen, str) and chosen == "o2u":
        return NetworkO2USelector(direction.model, training, direction.seed)
    convex = name in ALL_SELECTORS and name not in ON_PROBABILITIES
    if convex or name.endswith("+look_ahead") or (isinstance(chosen, str) and name not in ON_PROBABILITIES):
        raise InvalidInputError(
            f"selector {name!r} cannot choose on a network; expected one of {', '.join(NETWORK_SELECTORS)}, or "
            "constructor='last_layer', which is the convex model and takes every selector",
            code="selector",
        )
    return make_selector(chosen)
