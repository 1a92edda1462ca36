"""The learner of a network: trusted samples train, and weak labels are what a source model believes (`sources.models`).

    F(w) = (1/M) Σ_{r_i > 0} r_i ℓ(Y[i], x_i; w) + (λ/2) ‖w‖²

The rows are the N samples that can be asked about, then the n trusted ones that train. r_i is 1 for clean rows, γ for weak ones,
0 for rows of which no source says anything; M rows have r_i > 0. Before every training

    1. the clean network, from the weights that were handed in, is trained on the clean rows alone, and predicts every row: p
    2. the source model learns from the clean rows; its beliefs, with p for a prior, become the labels of the weak rows

Step 1 is for the models that have a classifier for a prior. The network that is trained on all rows could not be that prior: it
has learned the votes already, which would then count twice, and more in every round. What is believed depends on the clean
labels alone, not on the path of the rounds.

Model, γ and λ are fixed: to choose them by cross-validation would train dozens of networks.
"""

import copy
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from labelchef.campaign.learner import Learner
from labelchef.core.labels import LabelTable
from labelchef.core.objective import Objective
from labelchef.core.softmax import log_probabilities
from labelchef.domain.arrays import Float64s
from labelchef.domain.learning import NO_SOURCES, Choice
from labelchef.networks.model import NetworkModel
from labelchef.networks.training import TrainingSettings, copied
from labelchef.sources.models import Evidence, Joint, Product, make_source_model

_WITH_PRIOR = (Joint.name, Product.name)


@dataclass(kw_only=True)
class NetworkLearner(Learner):
    """Gives the weak rows of a network's training set their labels; `fixed` holds model, gamma and l2."""

    model: NetworkModel
    training: TrainingSettings
    first: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    """The weights that were handed in."""
    closed_form: ClassVar[bool] = False

    def __post_init__(self) -> None:
        assert self.fixed.everything, "a network's learner chooses nothing"
        self.first = self.first or copied(self.model.task)

    def adopt(self, objective: Objective, labels: LabelTable) -> Objective:
        """The objective as it is: the choice is what was fixed."""
        self.settle(labels)
        return objective

    def settle(self, labels: LabelTable) -> None:
        """Write down what was fixed as the choice."""
        if self.choice is None:
            gamma, l2, sources = self.fixed.gamma, self.fixed.l2, self.fixed.sources
            assert gamma is not None
            assert l2 is not None
            assert sources is not None
            n_clean = int(np.count_nonzero(labels.cleaned))
            used = 0.0 if sources == NO_SOURCES else gamma
            self.choice = Choice(sources, used, l2 * len(labels.Y), l2 * n_clean, 1.0, n_clean)

    def believe(self, objective: Objective, labels: LabelTable) -> None:  # noqa: ARG002 (the network has the rows)
        """Learn the sources, and give the weak rows the labels and weights that follow."""
        self.believe_rows(labels)

    def believe_rows(self, labels: LabelTable) -> None:
        """The same without an objective."""
        self.settle(labels)
        assert self.choice is not None
        if self.choice.model == NO_SOURCES:
            self.belief = None
            labels.believe(labels.Y_weak, np.zeros(len(labels.Y)))
            return
        prior = self._clean_network(labels) if self.choice.model in _WITH_PRIOR else np.zeros(labels.Y.shape)
        evidence = Evidence(self.votes, log_probabilities(prior), labels.clean_ids, self.given)
        self.belief = make_source_model(self.choice.model).believe(evidence)
        labels.believe(self.belief.Q, np.where(self.belief.spoken, self.choice.gamma, 0.0))

    def _clean_network(self, labels: LabelTable) -> Float64s:
        """Logits (N + n, C) of the network that is trained on the clean rows alone."""
        clean = copy.copy(self.model)
        clean.task, clean.progress = copy.deepcopy(self.model.task), False
        clean.task.load_state_dict(self.first)
        clean.fit(clean.examples(labels.rows, labels.cleaned), self.training, self.seed)
        return clean.logits(clean.inputs)
