"""The pilot: where no trusted samples are given, the first answers are drawn by chance and become the trusted ones.

The N samples have an order that follows from the seed alone. A batch of the pilot is the next ones of this order that can be
asked, so the samples asked so far are drawn without replacement, each as probable as any other, however large the batches are.
The pilot is over when `FEWEST` of them are decided. From then on they are trusted: they train, and each is judged by the model
without it. Equal probabilities keep these figures unbiased for the N samples without weights. Strata (source patterns, clusters)
would keep that only where each gets exactly its share of the batch, which whole numbers do not allow.

Whether the pilot is over follows from what people said, so a restart, an undone round and a replay come to the same.
"""

from collections.abc import Iterable

import numpy as np

from labelchef.base.arrays import Bools, Ints
from labelchef.base.records import UNRESOLVED
from labelchef.base.validation import FEWEST
from labelchef.believe.people import Said

_STREAM = 0x9107  # of random numbers: the seed is used elsewhere too


def next_drawn(eligible: Bools, size: int, seed: int) -> Ints:
    """The next `size` samples of the order, of those that are eligible (N,).

    >>> first = next_drawn(np.ones(6, dtype=bool), 2, seed=0)
    >>> left = np.ones(6, dtype=bool)
    >>> left[first] = False
    >>> np.concatenate([first, next_drawn(left, 2, seed=0)]).tolist() == next_drawn(np.ones(6, dtype=bool), 4, 0).tolist()
    True
    """
    order = np.random.default_rng([seed, _STREAM]).permutation(len(eligible))
    return np.asarray(order[eligible[order]][:size], dtype=np.int64)


def drawn_in_pilot(rounds: Iterable[Said]) -> tuple[Ints, bool]:
    """The samples that the pilot has drawn, ascending, and whether it is over: enough of them are decided.

    >>> from labelchef.base.records import Decisions, Votes
    >>> items = np.arange(60)
    >>> one = (Votes.of([]), Decisions.sure(items, items % 2), items.tolist())
    >>> drawn, over = drawn_in_pilot([one, (Votes.of([]), Decisions.sure(items + 60, items % 2), [60, 61])])
    >>> len(drawn), over
    (60, True)
    """
    drawn, decided = set[int](), dict[int, int]()
    over = False
    for _, decisions, by_chance in rounds:
        if not over:
            drawn |= set(by_chance)
        decided.update(zip(decisions.items.tolist(), decisions.labels.tolist(), strict=True))
        over = sum(decided.get(item, UNRESOLVED) != UNRESOLVED for item in drawn) >= FEWEST
    return np.array(sorted(drawn), dtype=np.int64), over
