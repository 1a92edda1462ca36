"""The learner of a network: trusted samples train, and weak labels are what a source model believes (`believe.models`).

    F(w) = (1/M) Σ_{r_i > 0} r_i ℓ(Y[i], x_i; w) + (λ/2) ‖w‖²

The rows are the N samples that can be asked about, then the n trusted ones that train. r_i is 1 for clean rows, γ for weak ones,
0 for rows of which no source says anything; M rows have r_i > 0. Before every training

    1. the clean network, from the weights that were handed in, is trained on the clean rows alone, and predicts every row: p
    2. the source model learns from the clean rows; its beliefs, with p for a prior, become the labels of the weak rows

Step 1 is for the models that have a classifier for a prior. The network that is trained on all rows could not be that prior: it
has learned the votes already, which would then count twice, and more in every round. What is believed depends on the clean
labels alone, not on the path of the rounds.

Model and λ are fixed: to choose them by cross-validation would train dozens of networks. γ, unless it is fixed too, is chosen
once, with the first model: a network is trained at each of `GAMMAS`, from the weights that were handed in, and the samples that
steer compare them. With ℓ_γ their losses (m,), a smaller γ takes the place of a larger one if it is better beyond noise:

    mean(ℓ_larger − ℓ_smaller) > sd(ℓ_larger − ℓ_smaller) / √m
"""

import copy
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from labelchef.base.arrays import Float64s
from labelchef.base.learning import NO_SOURCES, Choice, Trial
from labelchef.believe.evidence import Evidence
from labelchef.believe.learner import Learner
from labelchef.believe.models import Joint, Product, make_source_model
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective
from labelchef.model.softmax import cross_entropies, log_probabilities
from labelchef.networks.model import NetworkModel
from labelchef.networks.training import Examples, TrainingSettings, copied

GAMMAS = (0.8, 0.1, 0.0)
"""Tried where gamma is not fixed."""

_WITH_PRIOR = (Joint.name, Product.name)


@dataclass(kw_only=True)
class NetworkLearner(Learner):
    """Gives the weak rows of a network's training set their labels; `fixed` holds source model and l2, and gamma or None."""

    model: NetworkModel
    training: TrainingSettings
    first: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    """The weights that were handed in."""
    closed_form: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.first = self.first or copied(self.model.task)

    def adopt(self, objective: Objective, labels: LabelTable) -> Objective:
        """The objective as it is: `believe` makes the choice, which has the l2 of the objective."""
        assert len(labels.Y) == objective.engine.n_rows, "a row a label"
        return objective

    def look_ahead(self, objective: Objective, labels: LabelTable) -> None:
        """Nothing: the choice is made once."""

    def believe(self, objective: Objective | None, labels: LabelTable) -> None:  # noqa: ARG002 (the network has the rows)
        """Learn the sources, and give the weak rows the labels and weights that follow; choose gamma first, if that is due."""
        sources, l2 = self.fixed.sources, self.fixed.l2
        assert sources is not None
        assert l2 is not None
        self.belief = None
        if sources != NO_SOURCES:
            prior = self._clean_network(labels) if sources in _WITH_PRIOR else np.zeros(labels.Y.shape)
            evidence = Evidence(self.votes, log_probabilities(prior), labels.clean_ids, self.given)
            self.belief = make_source_model(sources).believe(evidence)
        if self.choice is None:
            gamma, trials = self.fixed.gamma, tuple[Trial, ...]()
            if sources == NO_SOURCES:
                gamma = 0.0
            elif gamma is None:
                gamma, trials = self._chosen_gamma(labels)
            n_clean = int(np.count_nonzero(labels.cleaned))
            self.choice = Choice(sources, gamma, l2 * len(labels.Y), l2 * n_clean, 1.0, n_clean, trials)
        self._weigh(labels, self.choice.gamma)

    def _weigh(self, labels: LabelTable, gamma: float) -> None:
        """Let the weak rows train with what is believed of them, and this weight."""
        if self.belief is None:
            labels.believe(labels.Y_weak, np.zeros(len(labels.Y)))
        else:
            labels.believe(self.belief.Q, np.where(self.belief.spoken, gamma, 0.0))

    def _chosen_gamma(self, labels: LabelTable) -> tuple[float, tuple[Trial, ...]]:
        X, y = self.model.steering
        Y = np.eye(labels.n_classes)[y]
        chosen, best, trials = GAMMAS[0], np.full(len(y), np.inf), []
        for gamma in GAMMAS:
            self._weigh(labels, gamma)
            trained = self._trained(self.model.examples(labels.rows))
            losses = cross_entropies(trained.logits(X), Y)
            trials.append(Trial(str(self.fixed.sources), gamma, self.model.l2 * len(labels.Y), float(losses.mean())))
            gain = best - losses
            if gamma == GAMMAS[0] or gain.mean() > gain.std() / np.sqrt(len(gain)):
                chosen, best = gamma, losses
        return chosen, tuple(trials)

    def _clean_network(self, labels: LabelTable) -> Float64s:
        """Logits (N + n, C) of the network that is trained on the clean rows alone."""
        trained = self._trained(self.model.examples(labels.rows, labels.cleaned))
        return trained.logits(trained.inputs)

    def _trained(self, data: Examples) -> NetworkModel:
        """A copy of the network, trained on these examples from the weights that were handed in."""
        trained = copy.copy(self.model)
        trained.task, trained.progress = copy.deepcopy(self.model.task), False
        trained.task.load_state_dict(self.first)
        trained.fit(data, self.training, self.seed)
        return trained
