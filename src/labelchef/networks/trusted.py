"""Which trusted samples train a network, which stop its training, and which judge it.

A network that was trained on a sample says nothing about how well it predicts others, and there is no closed form for the network
without it. So where trusted samples train, they are divided by class, from the seed, before anything is trained:

    judges    as `holdout` says; 'auto' takes half of 100 samples and more (with a trained last layer none: see below)
    steers    a part of the others: stops training early, and has the gradient that influence is measured by; never trains
    trains    the rest: rows of the training set with weight 1

The whole network is the model: a fifth steers. Only the last layer is (constructor 'last_layer'): the network below it is trained
once, on half of the trusted samples. All of them train the last layer, but those of the other half alone choose its strengths
and are judged, each by the layer without it: of the first half, the features know the labels.
"""

from dataclasses import dataclass

import numpy as np

from labelchef.base.arrays import Bools, Ints
from labelchef.base.errors import InvalidInputError
from labelchef.believe import SourceVotes
from labelchef.believe.vote_forms import WEAK_SOURCE
from labelchef.data.campaign_data import CampaignData, Labelled
from labelchef.data.training_rows import draw_judges

STEERS, STEERS_A_LAST_LAYER = 0.2, 0.5
"""Share of the trusted samples that do not judge which do not train the network either."""


@dataclass(frozen=True)
class Division:
    """Masks (n,) of the trusted samples: each sample is in one of them."""

    trains: Bools
    steers: Bools
    judges: Bools

    @classmethod
    def steering(cls, judges: Bools) -> "Division":
        """No sample trains the network."""
        return cls(np.zeros(len(judges), dtype=bool), ~judges, judges)

    @classmethod
    def training(cls, y: Ints, judges: Bools, n_classes: int, share: float, seed: int) -> "Division":
        """`share` of the samples that do not judge steers, the others train; at least one of each class trains.

        >>> y = np.repeat([0, 1], 10)
        >>> parts = Division.training(y, np.zeros(20, dtype=bool), 2, 0.2, seed=0)
        >>> int(parts.trains.sum()), int(parts.steers.sum())
        (16, 4)
        """
        left = np.flatnonzero(~judges)
        drawn = draw_judges(y[left], n_classes, share, seed)
        if not drawn.any():
            per_class = np.bincount(y[left], minlength=n_classes)
            if per_class.max() < 2:
                raise InvalidInputError(
                    f"{len(left)} trusted samples, one of a class, cannot both train a network and stop its training; expected "
                    "two or more of some class. Add trusted samples, or use trusted='steer'",
                    code="trusted",
                )
            drawn[np.flatnonzero(y[left] == per_class.argmax())[0]] = True
        steers = np.zeros(len(y), dtype=bool)
        steers[left[drawn]] = True
        return cls(~judges & ~steers, steers, judges)


def part(labelled: Labelled, which: Bools) -> Labelled:
    """Some of the samples."""
    return labelled[0][which], labelled[1][which]


def with_clean_rows(data: CampaignData, division: Division) -> CampaignData:
    """The same with the trusted samples that train as clean training rows, after the others; those that judge as judges.

    Nobody is asked about these rows. What is left of validation are the samples that steer.
    """
    trains, steers = division.trains, division.steers
    (X_val, y_val), N, n, C = data.validation, len(data.X), int(trains.sum()), len(data.names)
    votes = SourceVotes.soft(data.weak, WEAK_SOURCE) if data.votes is None else data.votes
    said = SourceVotes.nothing(votes.names, C, len(y_val)) if data.votes_val is None else data.votes_val
    return CampaignData(
        X=np.concatenate([data.X, X_val[trains]]),
        weak=np.concatenate([data.weak, np.full((n, C), 1.0 / C)]),
        names=data.names,
        validation=part(data.validation, steers),
        clean=np.concatenate([data.clean, y_val[trains]]),
        judge=part(data.validation, division.judges) if division.judges.any() else data.judge,
        test=data.test,
        askable=np.concatenate(
            [np.ones(N, dtype=bool) if data.askable is None else data.askable, np.zeros(n, dtype=bool)]
        ),
        votes=votes.above(said.rows(np.flatnonzero(trains))),
        votes_val=said.rows(np.flatnonzero(steers)),
    )
