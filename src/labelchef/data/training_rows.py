"""The rows that a session begins with: which trusted samples judge, the first label table, the votes on all rows that train.

The samples held out for judging are drawn by class from the seed, before training: a selection lowers the loss on the samples
that it sees, so figures on those improve faster than on others.
"""

import numpy as np

from labelchef.base.arrays import Bools, Ints
from labelchef.base.records import UNRESOLVED
from labelchef.base.settings import AUTO, TRAIN, Settings
from labelchef.base.validation import FEWEST_OF_A_CLASS
from labelchef.believe import SourceVotes
from labelchef.believe.vote_forms import WEAK_SOURCE
from labelchef.data.campaign_data import CampaignData
from labelchef.model.labels import LabelTable

_SPLIT_FROM = 100
_DRAW = 0x5EED  # keeps these random numbers apart from other uses of the seed


def holdout_size(per_class: Ints) -> Ints:
    """'auto': how many samples of each class judge, given how many there are.

    Half of each class, but at least 5 of it steer, if there are 5. With half as many samples, the interval of a gain is 1.4
    times as wide, and so is the noise of the gradient that steers, so both parts get the same share. Below 100 samples all of
    them steer: 50 are the fewest that can judge, and with fewer steering samples the selection itself gets worse.

    >>> holdout_size(np.array([60, 7, 40])).tolist(), holdout_size(np.array([60, 30])).tolist()
    ([30, 2, 20], [0, 0])
    """
    if per_class.sum() < _SPLIT_FROM:
        return np.zeros_like(per_class)
    return np.minimum(per_class // 2, np.maximum(per_class - FEWEST_OF_A_CLASS, 0))


def share_size(per_class: Ints, share: float) -> Ints:
    """How many samples of each class judge for a given share: by largest remainder; at least one of each class steers.

    >>> share_size(np.array([10, 5, 1]), 0.3).tolist()
    [3, 2, 0]
    """
    most = np.maximum(per_class - 1, 0)
    wanted = share * per_class
    sizes: Ints = np.minimum(np.floor(wanted + 1e-9).astype(np.int64), most)
    short = min(round(share * int(per_class.sum())), int(most.sum())) - int(sizes.sum())
    for c in np.argsort(-(wanted - sizes), kind="stable"):
        if short > 0 and sizes[c] < most[c]:
            sizes[c] += 1
            short -= 1
    return sizes


def draw_judges(y: Ints, n_classes: int, holdout: float | str, seed: int) -> Bools:
    """(n,) which validation samples judge."""
    per_class = np.bincount(y, minlength=n_classes)
    sizes = holdout_size(per_class) if holdout == AUTO else share_size(per_class, float(holdout))
    rng, judges = np.random.default_rng([seed, _DRAW]), np.zeros(len(y), dtype=bool)
    for c, size in enumerate(sizes.tolist()):
        judges[rng.permutation(np.flatnonzero(y == c))[:size]] = True
    return judges


def judges_of(data: CampaignData, settings: Settings) -> Bools:
    """(n,) which validation samples judge; none where the user has judging samples of their own.

    Where trusted samples train, none of them is held out unless the user says so: they are judged by models without them.
    """
    none = data.judge is not None or (settings.trusted == TRAIN and settings.holdout == AUTO)
    holdout = 0.0 if none else settings.holdout
    return draw_judges(data.validation[1], len(data.names), holdout, settings.seed)


def first_table(data: CampaignData, gamma: float, trusted: Ints | None = None) -> LabelTable:
    """The labels to begin with: weak ones, and those that are known from the start; then those of `trusted` samples."""
    weak, askable, clean, silent = data.weak, data.askable, data.clean, None
    if trusted is not None:
        N, n, C = len(weak), len(trusted), weak.shape[1]
        weak = np.concatenate([weak, np.full((n, C), 1.0 / C)])
        askable = np.concatenate([np.ones(N, dtype=bool) if askable is None else askable, np.zeros(n, dtype=bool)])
        clean = np.concatenate([clean, trusted])
        silent = None if data.copies is None else np.concatenate([data.copies.silent, np.zeros(n, dtype=bool)])
    table = LabelTable(weak, gamma, askable, silent)
    table.given[table.silent] = clean[table.silent]
    known = np.flatnonzero((clean != UNRESOLVED) & ~table.silent)
    table.assign(known, clean[known])
    return table


def stacked_votes(data: CampaignData, steering: Bools) -> SourceVotes:
    """The votes on the training samples, then on the trusted ones that train; weak labels alone are one soft source."""
    votes = SourceVotes.soft(data.weak, WEAK_SOURCE) if data.votes is None else data.votes
    val = SourceVotes.nothing(votes.names, votes.n_classes, int(steering.sum()))
    return votes.above(val if data.votes_val is None else data.votes_val.rows(np.flatnonzero(steering)))
