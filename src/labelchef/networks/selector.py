"""Selectors for a network: INFL and its variants by forward mode, O2U by its own training, and those on probabilities.

With S[i] = J_i v of `networks.influence` in the place of X V:

    expected_infl   Σ_c Q[i, c] I(i, c) − β sd_Q I(i, ·)                  suggests argmax_c Q
    infl            min_c I(i, c), formula (A)                            suggests argmin_c
    infl_y          min_c S[i, c] − P[i]·S[i]   (A) at γ = 0              suggests argmin_c
    infl_d          (P[i] − Y[i])·S[i]          N · change of the validation loss without i, at weight 1
    o2u             minus the mean loss of i over epochs of a cyclic learning rate

Q = softmax(A − η S) as in `model.posterior`. Along v, the logits of the trusted samples change by T = J v; the curvature of the
validation loss is vᵀ H_val v = mean_j Var_{P_j} T_j in the Gauss–Newton approximation, and the damped curvature replaces H.

F is a mean over the M rows that have weight, an influence is R times a change, R being all rows (N samples, and the n trusted
ones that train). v is therefore that of (M/R) F, which has the same minimum: R/M times the solution for F.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from labelchef.base.arrays import Float64s
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import Batch, SelectionDiagnostics
from labelchef.chef.baselines.influence import by_deletion, by_slope
from labelchef.chef.choice import ALL_SELECTORS, make_selector
from labelchef.chef.selectors import SelectionContext, Selector
from labelchef.chef.selectors.infl import Appraisal, BestCase, Expected
from labelchef.chef.selectors.ranking import Ranking, RankingSelector
from labelchef.model.engines import RowLabels
from labelchef.model.influence import influence_matrix
from labelchef.model.objective import Point
from labelchef.model.order import smallest
from labelchef.model.posterior import step_length
from labelchef.model.softmax import cross_entropies, probabilities
from labelchef.networks.influence import InfluenceSettings, Solution, solve
from labelchef.networks.linearised import Linearised
from labelchef.networks.model import NetworkModel, bar
from labelchef.networks.training import Examples, TrainingSettings

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
        data, few, tol = model.examples(context.objective.labels), self.settings.curvature_rows, self.settings.tol
        scale = len(model.inputs) / len(data.X)
        if few is not None and few < len(data.X):
            chosen = np.sort(np.random.default_rng(self.seed).choice(len(data.X), few, replace=False))
            data = Examples(data.X[chosen], data.Y[chosen], data.weight[chosen])
        with bar("influence", 100, shown=model.progress) as move:  # its length is the digits that are asked for

            def tell(iteration: int, residual: float) -> None:
                share = math.log(max(residual, tol)) / math.log(tol)
                move(max(0.0, 100 * share), f"influence, iteration {iteration}, residual {residual:.0e}")

            solution = solve(network, data, g, self.settings, l2=model.l2, start=self._v, on_iteration=tell)
        self._v = solution.v
        seconds = time.perf_counter() - began
        v = scale * solution.v
        trusted, T = network.push(model.steering[0], v)
        eta = step_length(probabilities(trusted), T, float(g.double() @ v.double()), len(model.inputs))
        logits, S = network.push(model.inputs, v)
        return Products(S, logits, probabilities(logits), eta, solution, seconds)


def _by_worth(appraisal: Appraisal, found: Products, labels: RowLabels) -> Ranking:
    worth = appraisal.of(found.A, found.S, labels.Y, labels.weight)
    return Ranking(worth.worth, worth.answers.argmax(axis=1), worth.influence)


ALONG_V: dict[str, Callable[[Products, RowLabels], Ranking]] = {
    "expected_infl": lambda found, labels: _by_worth(Expected(found.eta, optimism=1.0), found, labels),
    "infl": lambda found, labels: _by_worth(BestCase(), found, labels),
    "infl_d": lambda found, labels: by_deletion(found.S, found.P, labels),
    "infl_y": lambda found, _: by_slope(found.S, found.P),
}


@dataclass
class NetworkInfluenceSelector:
    """A selector that ranks by S = J v. Samples are scored one by one: there is no look-ahead."""

    name: str
    direction: Direction

    @property
    def suggests(self) -> bool:
        """INFL-D, which asks what deletion would bring, has no label to suggest."""
        return self.name != "infl_d"

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The eligible samples with the smallest scores; equal scores by index."""
        began, found, labels = time.perf_counter(), self.direction.at(context), context.objective.labels
        ranking = ALONG_V[self.name](found, labels)
        indices = smallest(np.where(context.eligible, ranking.scores, np.inf), batch_size, context.ties)
        diagnostics = SelectionDiagnostics(
            iterations=found.solution.iterations,
            residual=found.solution.residual,
            converged=found.solution.converged,
            candidates=int(context.eligible.sum()),
            sweeps=float(found.solution.iterations + 1),
            seconds=time.perf_counter() - began,
            solve_seconds=found.solve_seconds,
        )
        by_answer = influence_matrix(found.S[indices], found.P[indices], labels.Y[indices], labels.weight[indices])
        return replace(ranking.batch(indices, diagnostics), by_answer=by_answer)


@dataclass
class NetworkO2USelector(RankingSelector):
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

    def rank(self, context: SelectionContext) -> Ranking:
        """Minus the sum of the losses of every sample."""
        labels = context.objective.labels
        swinging = copy.copy(self.model)
        swinging.task, swinging.progress = copy.deepcopy(self.model.task), False
        total = np.zeros(len(labels.Y))
        rates = np.linspace(10.0, 0.1, self.epochs) * self.training.learning_rate
        for n, rate in enumerate(np.tile(rates, self.cycles)):
            settings = replace(self.training, epochs=1, learning_rate=float(rate), patience=None)
            swinging.train(labels, settings, self.seed + n)
            total += cross_entropies(swinging.logits(swinging.inputs), labels.Y)
        context.objective.engine.sweeps += 2.0 * self.cycles * self.epochs  # an epoch, and the losses after it
        return Ranking(-total)


NETWORK_SELECTORS = (*ALONG_V, "o2u", *ON_PROBABILITIES)
"""Names accepted by `NetworkCleaner(selector=…)`; with constructor 'last_layer', those of the convex model."""


def choose_selector(chosen: Any, direction: Direction, training: TrainingSettings) -> Selector:
    """A selector for a network: one that uses v, O2U, one that needs only probabilities, or a user's own."""
    name = chosen if isinstance(chosen, str) else str(getattr(chosen, "name", ""))
    if isinstance(chosen, str) and chosen in ALONG_V:
        return NetworkInfluenceSelector(chosen, direction)
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
