"""From votes to a label, or to 'unresolved': majority vote with explicit ties.

'Ambiguous' (class id −1) is counted like any other answer: if it has the most votes, alone or in a tie, the item stays
unresolved, as in the paper (appendix E.1, the labels 'ambiguous' and 'neutral').
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import UNRESOLVED, Batch, Decisions, Votes

Tie = Literal["unresolved", "suggestion", "lowest"]


class Aggregator(Protocol):
    """Turns the votes on a batch into one decision for each item."""

    def aggregate(self, votes: Votes, batch: Batch) -> Decisions:
        """One label for each item of the batch, in its order."""
        ...


def votes_needed(labels: Sequence[int], voters: int) -> int:
    """After how many votes the majority of `voters` may be settled, given the first ones: it is, if the further ones agree.

    With a votes for the first class, b for the second and r to come, nothing can change the winner, or make a tie, if a > b + r.
    So t further votes for the first may settle it if a + t > b + (r − t).

    >>> [votes_needed(labels, 3) for labels in ([], [1], [1, 1], [1, 0], [1, 0, 0])]
    [2, 2, 2, 3, 3]
    """
    counts = sorted(Counter(labels).values(), reverse=True)
    first, second, left = (*counts, 0, 0)[0], (*counts, 0, 0)[1], voters - len(labels)
    further = max(0, (second + left - first) // 2 + 1)
    return len(labels) + min(further, max(left, 0))


@dataclass(frozen=True)
class MajorityVote:
    """The answer with the most votes.

    `tie` says what happens if several classes have the most votes: 'unresolved' (the default), 'suggestion' (the suggested
    class if it is one of them, else unresolved) or 'lowest' (the lowest class id).

    >>> batch = Batch(np.array([7, 9]), np.array([1, 0]), np.array([-2.0, -1.0]))
    >>> votes = Votes.of([("ann", [7, 9], [1, 0]), ("bob", [7, 9], [1, 1])])
    >>> MajorityVote().aggregate(votes, batch).labels.tolist()
    [1, -1]
    """

    tie: Tie = "unresolved"

    def __post_init__(self) -> None:
        if self.tie not in get_args(Tie):
            raise InvalidInputError(f"tie={self.tie!r}; expected one of {get_args(Tie)}", code="tie")

    def aggregate(self, votes: Votes, batch: Batch) -> Decisions:
        """One label for each item of the batch, in its order."""
        position = {item: k for k, item in enumerate(batch.indices.tolist())}
        unasked = [item for item in votes.items.tolist() if item not in position]
        if unasked:
            raise InvalidInputError(
                f"votes on items {unasked[:5]} that were not asked; expected items of the batch only. Remove the other votes",
                code="votes",
            )
        if votes.labels.min(initial=0) < UNRESOLVED:
            raise InvalidInputError(
                f"a vote for class {int(votes.labels.min())}; expected class ids, −1 for ambiguous", code="votes"
            )
        width = int(max(votes.labels.max(initial=0), batch.suggested.max(initial=0))) + 2
        counts = np.zeros((len(batch), width), dtype=np.int64)  # column 0 counts 'ambiguous'
        places = np.array([position[item] for item in votes.items.tolist()], dtype=np.int64)
        np.add.at(counts, (places, votes.labels + 1), 1)
        winners = [self._winner(row, int(hint)) for row, hint in zip(counts, batch.suggested, strict=True)]
        labels = np.array(winners, dtype=np.int64)
        won = counts[np.arange(len(batch)), labels + 1] * (labels != UNRESOLVED)
        return Decisions(batch.indices, labels, won / np.maximum(counts.sum(axis=1), 1))

    def _winner(self, counts: Ints, suggested: int) -> int:
        first = np.flatnonzero(counts == counts.max()) - 1
        if counts.max() == 0 or UNRESOLVED in first:
            return UNRESOLVED
        if len(first) == 1 or self.tie == "lowest":
            return int(first[0])
        return suggested if self.tie == "suggestion" and suggested in first else UNRESOLVED
