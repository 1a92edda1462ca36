"""Which validation samples steer the selection, and which judge it.

Selection lowers the loss on the samples it sees (the steering samples), so metrics on them improve faster than on other samples,
and the more so the fewer they are. The samples held out for judging are drawn by class from the seed, before training.
"""

import warnings

import numpy as np

from labelchef.domain.arrays import Bools, Ints
from labelchef.domain.errors import JudgeWarning
from labelchef.domain.settings import AUTO
from labelchef.domain.validation import FEWEST, FEWEST_OF_A_CLASS

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


def check_judges(judging: Ints, steering: Ints, holdout: float | str, *, read: bool, stacklevel: int = 3) -> None:
    """Warn if no samples judge, or too few. `read` says whether a target or stopping rule reads the metrics.

    `holdout=0` is a choice of the user: it is warned about only if something reads the metrics.
    """
    remedy = "Add trusted samples, or give judges of your own: fit(…, X_judge=…, y_judge=…)"
    if len(judging) == 0:
        if holdout == 0 and not read:
            return
        cause = f"all {len(steering)} validation samples steer the selection, too few to hold some out"
        if holdout == 0:
            cause = "holdout is 0, so the target or stopping rule reads samples that steer the selection"
        said = f"nothing judges: {cause}; what is read off them is optimistic. {remedy}"
    else:
        there = np.union1d(judging, steering)
        rarest = int(np.bincount(judging, minlength=int(there.max()) + 1)[there].min())
        if len(judging) >= FEWEST and rarest >= FEWEST_OF_A_CLASS:
            return
        said = (
            f"too small to judge: {len(judging)} validation samples are held out, {rarest} of the rarest class; expected "
            f"{FEWEST} and {FEWEST_OF_A_CLASS} or more. {remedy}"
        )
    warnings.warn(said, JudgeWarning, stacklevel=stacklevel)
