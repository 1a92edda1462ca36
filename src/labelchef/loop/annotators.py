"""Annotators: each turns a batch into votes. Class ids are columns of the weak labels; −1 means 'ambiguous'.

Who votes on an item: people, the suggestion, or both; and the paper's three ways of combining them (section 5.1):

one     three people, majority
two     the suggestion alone, no person at all
three   the suggestion and two people, majority
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import UNRESOLVED, Batch, Votes
from labelchef.base.settings import voters_of


@runtime_checkable
class Annotator(Protocol):
    """Anything that votes on a batch."""

    def annotate(self, batch: Batch) -> Votes:
        """Votes on items of the batch; an item may get none, one or several."""
        ...


@dataclass(frozen=True)
class GroundTruth:
    """One annotator that is always right. `truth` holds class ids, −1 where the truth is not known.

    >>> batch = Batch(np.array([2, 0]), np.array([1, 1]), np.array([-2.0, -1.0]))
    >>> list(GroundTruth(np.array([0, 1, 2])).annotate(batch))
    [(2, 'truth', 2), (0, 'truth', 0)]
    """

    truth: Any

    def annotate(self, batch: Batch) -> Votes:
        """The truth of each item."""
        return Votes.of([("truth", batch.indices, _of_items(_class_ids(self.truth), batch))])


@dataclass(frozen=True)
class Suggestion:
    """The selector's own suggestion as one more annotator's vote (paper section 4.3)."""

    def annotate(self, batch: Batch) -> Votes:
        """The suggested label of each item."""
        return Votes.of([("suggestion", batch.indices, batch.suggested)])


class SimulatedAnnotators:
    """Simulated people with independent errors, each with an error rate of their own.

    A wrong answer is any other class with equal probability. An answer depends on the seed, the person and the item
    only, so it is the same whenever and in whatever order it is asked for.

    >>> truth = np.zeros(1000, dtype=np.int64)
    >>> people = SimulatedAnnotators(truth, n_classes=3, error_rates=(0.0, 0.5), seed=1)
    >>> batch = Batch(np.arange(1000), truth, np.zeros(1000))
    >>> votes = people.annotate(batch).labels.reshape(2, 1000)
    >>> int((votes[0] != 0).sum()), bool(abs((votes[1] != 0).mean() - 0.5) < 0.05)
    (0, True)
    """

    def __init__(
        self,
        truth: Any,
        *,
        n_classes: int,
        error_rates: Sequence[float] = (0.05, 0.05, 0.05),
        seed: int = 0,
    ) -> None:
        if not error_rates or not all(0.0 <= rate <= 1.0 for rate in error_rates):
            raise InvalidInputError(
                f"error rates {list(error_rates)}; expected at least one number between 0 and 1",
                code="error_rate",
            )
        self._truth = _class_ids(truth)
        largest = int(self._truth.max(initial=0))
        if n_classes < 2 or largest >= n_classes:
            raise InvalidInputError(
                f"n_classes={n_classes} with class ids up to {largest}; expected two classes or more, and ids below "
                "their number",
                code="truth",
            )
        if seed < 0:
            raise InvalidInputError(f"seed={seed!r}; expected a whole number of at least 0", code="seed")
        self._answers: dict[str, Ints] = {}
        for person, rate in enumerate(error_rates):
            rng, N = np.random.default_rng([seed, person]), len(self._truth)
            errs = (rng.random(N) < rate) & (self._truth != UNRESOLVED)
            other = (self._truth + rng.integers(1, n_classes, N)) % n_classes
            self._answers[f"person {person + 1}"] = np.where(errs, other, self._truth)

    def annotate(self, batch: Batch) -> Votes:
        """One vote for each person and item."""
        _of_items(self._truth, batch)
        return Votes.of([(who, batch.indices, said[batch.indices]) for who, said in self._answers.items()])


class RecordedVotes:
    """Votes that people gave earlier, looked up by item. Items without votes stay unresolved.

    >>> crowd = RecordedVotes([(4, "ann", 1), (4, "bob", 0), (8, "ann", 1)], per_item=1)
    >>> list(crowd.annotate(Batch(np.array([4, 5]), np.array([0, 0]), np.zeros(2))))
    [(4, 'ann', 1)]
    """

    def __init__(self, votes: Iterable[tuple[int, str, int]], *, per_item: int | None = None) -> None:
        if per_item is not None and per_item < 1:
            raise InvalidInputError(f"per_item={per_item}; expected at least 1", code="per_item")
        self._votes: dict[int, list[tuple[str, int]]] = {}
        for item, worker, label in votes:
            self._votes.setdefault(int(item), []).append((str(worker), int(label)))
        self._per_item = per_item

    def annotate(self, batch: Batch) -> Votes:
        """The recorded votes on the batch, the first `per_item` of each item."""
        return Votes.of(
            [
                (worker, item, label)
                for item in batch.indices.tolist()
                for worker, label in self._votes.get(item, [])[: self._per_item]
            ]
        )


@dataclass(frozen=True)
class CallableAnnotator:
    """Any function that returns one label for each item of a batch.

    >>> always = CallableAnnotator(lambda batch: [0] * len(batch))
    >>> list(always.annotate(Batch(np.array([3]), np.array([1]), np.zeros(1))))
    [(3, 'callable', 0)]
    """

    function: Callable[[Batch], Iterable[int]]
    name: str = "callable"

    def annotate(self, batch: Batch) -> Votes:
        """The labels that the function returns."""
        answer: object = self.function(batch)
        labels = np.asarray(list(answer)) if isinstance(answer, Iterable) else None
        if labels is None:
            came = repr(answer)
        elif labels.shape != (len(batch),):
            came = f"{labels.shape[0] if labels.ndim == 1 else labels.shape} labels for a batch of {len(batch)}"
        elif labels.size and not np.issubdtype(labels.dtype, np.integer):
            came = f"labels of type {labels.dtype}"
        else:
            return Votes.of([(self.name, batch.indices, labels)])
        raise InvalidInputError(
            f"the annotator gave {came}; expected one class id (an integer) for each item, −1 for unresolved",
            code="annotator",
        )


@dataclass(frozen=True)
class Panel:
    """Several annotators; all of them vote on every batch."""

    members: tuple[Annotator, ...]

    def annotate(self, batch: Batch) -> Votes:
        """All their votes in one table."""
        return sum((member.annotate(batch) for member in self.members), Votes.of([]))


def takes_suggestions(annotator: Annotator) -> bool:
    """Whether the suggestion votes.

    >>> takes_suggestions(Panel((GroundTruth([0, 1]), Suggestion()))), takes_suggestions(GroundTruth([0, 1]))
    (True, False)
    """
    if isinstance(annotator, Panel):
        return any(takes_suggestions(member) for member in annotator.members)
    return isinstance(annotator, Suggestion)


def make_voters(people: int, suggestion_votes: bool, source: Annotator | None = None) -> Annotator:
    """The voters on every item: `people` people, whose votes `source` gives, and the suggestion if it votes.

    >>> make_voters(0, True)
    Suggestion()
    """
    if people == 0:
        return Suggestion()
    if source is None:
        raise InvalidInputError(
            f"{people} people vote on each item, which needs people: give true labels to simulate them or recorded votes, "
            "or use strategy 'two', which uses the suggestions alone",
            code="strategy",
        )
    return Panel((Suggestion(), source)) if suggestion_votes else source


def make_strategy(strategy: str, people: Annotator | None = None) -> Annotator:
    """The voters of a strategy. `people` stands for as many people as the strategy needs.

    >>> make_strategy("two")
    Suggestion()
    """
    return make_voters(*voters_of(strategy), people)


def _class_ids(truth: Any) -> Ints:
    """Class ids by position; a pandas index is ignored."""
    ids = np.asarray(truth)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)) or ids.min(initial=0) < UNRESOLVED:
        raise InvalidInputError(
            f"truth of shape {ids.shape} and type {ids.dtype}; expected one class id (an integer from 0) for each "
            "training sample, −1 where it is not known",
            code="truth",
        )
    return ids.astype(np.int64)


def _of_items(truth: Ints, batch: Batch) -> Ints:
    if len(batch) and int(batch.indices.max()) >= len(truth):
        raise InvalidInputError(
            f"truth has {len(truth)} entries but item {int(batch.indices.max())} was asked; "
            "expected one entry for each training sample",
            code="truth",
        )
    return np.asarray(truth[batch.indices])
