"""The records of a round: small frozen dataclasses, with the diagnostics of how they were computed."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.learning import Choice, PeopleFacts, PersonFacts, Ruling

UNRESOLVED = -1
"""The class id that stands for 'no decision': annotators tied, abstained or called the item ambiguous."""


@dataclass(frozen=True)
class SelectionDiagnostics:
    """How a selection was computed."""

    iterations: int = 0
    """Conjugate gradient iterations for H V = g_val, a sweep each."""
    residual: float = 0.0
    """‖g_val − H V‖ / ‖g_val‖."""
    converged: bool = True
    candidates: int = 0
    """Samples evaluated exactly; all eligible ones for a full evaluation."""
    sweeps: float = 0.0
    """Passes over the training features, including those of the solve and the shares of a pass for candidate rows."""
    bytes_read: float = 0.0
    """Of the training features, by passes over files; 0 where they are in memory."""
    read_seconds: float = 0.0
    """The part of `seconds` that these passes took."""
    lag: float = 0.0
    """On a cluster: the time of the slowest worker over that of the median one, in the last sweeps; 0 elsewhere."""
    slowest_worker: str = ""
    fell_back: bool = False
    """Whether bounds could not prune, and everything was evaluated."""
    slack: float = float("inf")
    """Lower bound of the best sample that was not evaluated, minus the last selected score: positive proves the batch."""
    seconds: float = 0.0
    solve_seconds: float = 0.0
    """The part of `seconds` that went into H V = g_val."""
    audited: tuple[tuple[int, int], ...] = ()
    """(sample, class predicted of it) for those drawn by chance, before they are answered, to judge the model."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "audited", tuple((int(item), int(label)) for item, label in self.audited))

    def joined(self, other: "SelectionDiagnostics") -> "SelectionDiagnostics":
        """Those of two selections made one after the other: costs add up, and the worse quality counts."""
        worse = {"residual": max, "converged": min, "fell_back": max, "slack": min}
        names = [one.name for one in fields(self)]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return SelectionDiagnostics(**{name: worse.get(name, operator.add)(*pair) for name, pair in pairs.items()})


@dataclass(frozen=True)
class Batch:
    """The samples to ask next, most helpful first. Influences are N times a change of the steering loss: negative helps.

    Shapes: `indices`, `suggested`, `influence` (b,), `by_answer` (b, C), or (b, 0) where nothing is predicted.
    """

    indices: Ints
    suggested: Ints
    """Class ids; `UNRESOLVED` where the selector suggests nothing."""
    influence: Float64s
    """The influence of asking, as the selector values it: for `infl` that of the suggested label, which is the best case;
    for `expected_infl` the expectation over the answers. NaN where the selector predicts nothing."""
    diagnostics: SelectionDiagnostics = field(default_factory=SelectionDiagnostics)
    by_answer: Float64s = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    """`by_answer[k, c]`: the influence if `indices[k]` is answered c, formula (A) of `model.influence` at the logits,
    products, labels and weights the sample was picked with. With look-ahead, what it adds after those before it."""

    def __post_init__(self) -> None:
        if self.by_answer.size == 0:
            object.__setattr__(self, "by_answer", np.empty((len(self.indices), 0)))

    def __len__(self) -> int:
        return len(self.indices)

    @classmethod
    def without_predictions(cls, items: Ints) -> "Batch":
        """Items with no suggestion and no influence.

        >>> Batch.without_predictions(np.array([3, 5])).suggested.tolist()
        [-1, -1]
        """
        return cls(items, np.full(len(items), UNRESOLVED), np.full(len(items), np.nan))

    def take(self, places: "Ints | slice") -> "Batch":
        """The entries at these places, in their order; of the audited samples, those that are among them."""
        names = ("indices", "suggested", "influence", "by_answer")
        taken = replace(self, **{name: getattr(self, name)[places] for name in names})
        if not self.diagnostics.audited:
            return taken
        there = set(taken.indices.tolist())
        audited = tuple(pair for pair in self.diagnostics.audited if pair[0] in there)
        return replace(taken, diagnostics=replace(self.diagnostics, audited=audited))

    def without(self, items: Ints) -> "Batch":
        """The entries of all other items."""
        return self.take(np.flatnonzero(~np.isin(self.indices, items)))

    def joined(self, other: "Batch") -> "Batch":
        """This batch, then the other. Where only one has influences by answer, those of the other are NaN."""
        width = max(self.by_answer.shape[1], other.by_answer.shape[1])
        rows = [b.by_answer if b.by_answer.shape[1] else np.full((len(b), width), np.nan) for b in (self, other)]
        return Batch(
            np.concatenate([self.indices, other.indices]),
            np.concatenate([self.suggested, other.suggested]),
            np.concatenate([self.influence, other.influence]),
            self.diagnostics.joined(other.diagnostics),
            np.concatenate(rows),
        )

    def aligned(self, items: Ints) -> "Batch":
        """An entry for each of these items, in their order; an item that is not in the batch has no predictions.

        >>> batch = Batch(np.array([7, 9]), np.array([1, 0]), np.array([-2.0, -1.0]))
        >>> batch.aligned(np.array([9, 4])).suggested.tolist()
        [0, -1]
        """
        whole = self.joined(Batch.without_predictions(np.setdiff1d(items, self.indices)))
        place = {item: k for k, item in enumerate(whole.indices.tolist())}
        return whole.take(np.array([place[item] for item in items.tolist()], dtype=np.int64))

    def predicted_change(self, labels: Ints) -> float:
        """(1/N) times this sum is the predicted change of the steering loss: Σ_k by_answer[k, labels[k]].

        An item left `UNRESOLVED` keeps its label and adds nothing, as does one without predictions. NaN if no item has any.

        >>> batch = Batch(np.array([7, 9]), np.array([1, 0]), np.zeros(2), by_answer=np.array([[1.0, -2.0], [-1.0, 3.0]]))
        >>> batch.predicted_change(np.array([1, 1])), batch.predicted_change(np.array([0, -1]))
        (1.0, 1.0)
        """
        known = ~np.isnan(self.by_answer).all(axis=1)
        if not known.any():
            return float("nan")
        counted = np.flatnonzero(known & (labels != UNRESOLVED))
        return float(self.by_answer[counted, labels[counted]].sum())


@dataclass(frozen=True)
class ConstructionDiagnostics:
    """How a model was made: `gradient_norm` is ‖∇F‖ at the returned parameters."""

    iterations: int = 0
    """Newton steps, or steps of a descent."""
    sweeps: float = 0.0
    bytes_read: float = 0.0
    """Of the training features, by passes over files; 0 where they are in memory."""
    read_seconds: float = 0.0
    """The part of `seconds` that these passes took."""
    lag: float = 0.0
    """On a cluster: the time of the slowest worker over that of the median one, in the last sweeps; 0 elsewhere."""
    slowest_worker: str = ""
    gradient_norm: float = 0.0
    distance: float = 0.0
    """‖∇F‖ / l2: the parameters are proven to lie no farther than this from the optimum."""
    tolerance: float = 0.0
    """‖∇F‖ that proves the tolerance."""
    converged: bool = True
    """Whether that is reached, or the distance is estimated to be small enough."""
    epoch: int = 0
    """The epoch that early stopping chose; 0 where nothing descends, or where no epoch beat the model of zeros."""
    explicit: int = 0
    """Steps of a descent that looked at their mini-batch."""
    fell_back: int = 0
    """Those among them that were meant to be approximated but could not be trusted."""
    seconds: float = 0.0


@dataclass(frozen=True)
class LabelChange:
    """Labels and weights of a few samples, before and after, in any direction: what a constructor needs to update the model.

    With `everywhere`, any other label may have changed too, and so may l2: sources learned from the answers.
    """

    indices: Ints
    Y_old: Float64s
    weight_old: Float64s
    Y_new: Float64s
    weight_new: Float64s
    everywhere: bool = False


@dataclass(frozen=True)
class Votes:
    """A tidy table of votes: row k says that `workers[k]` gave `items[k]` the class id `labels[k]`.

    >>> votes = Votes.of([("a", [3, 5], [0, 1]), ("b", [3, 5], [0, -1])])
    >>> len(votes), votes.items.tolist()
    (4, [3, 5, 3, 5])
    """

    items: Ints
    workers: tuple[str, ...]
    labels: Ints

    @classmethod
    def of(cls, ballots: "list[tuple[str, object, object]]") -> "Votes":
        """Stack (worker, items, labels) ballots into one table."""
        items = [np.asarray(b[1], dtype=np.int64).reshape(-1) for b in ballots]
        labels = [np.asarray(b[2], dtype=np.int64).reshape(-1) for b in ballots]
        workers = tuple(b[0] for b, i in zip(ballots, items, strict=True) for _ in range(len(i)))
        empty = np.empty(0, dtype=np.int64)
        return cls(np.concatenate([*items, empty]), workers, np.concatenate([*labels, empty]))

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[tuple[int, str, int]]:
        yield from zip(self.items.tolist(), self.workers, self.labels.tolist(), strict=True)

    def __add__(self, other: "Votes") -> "Votes":
        return Votes(
            np.concatenate([self.items, other.items]),
            self.workers + other.workers,
            np.concatenate([self.labels, other.labels]),
        )


@dataclass(frozen=True)
class Decisions:
    """The result of the votes: one class id for each item, or `UNRESOLVED`."""

    items: Ints
    labels: Ints
    support: Float64s
    """Share of the votes behind the decision; 0 where there were none."""

    @classmethod
    def sure(cls, items: Ints, labels: Ints) -> "Decisions":
        """Decisions with full support, those left `UNRESOLVED` with none."""
        return cls(items, labels, (labels != UNRESOLVED).astype(np.float64))


@dataclass(frozen=True)
class Answers:
    """What people said of m samples, the last answer of each person on each sample; it need not have settled their label."""

    samples: Ints
    """(m,) rows, ascending."""
    known: Ints
    """(m,) class ids known otherwise (gold, decisions of a lead), `UNRESOLVED` elsewhere."""
    drawn: Bools
    """(m,) whether the sample was drawn by chance; the others were asked because a selector chose them."""
    names: tuple[str, ...]
    """The persons."""
    place: Ints
    """(K,) which of the m samples an answer is on."""
    person: Ints
    """(K,)"""
    label: Ints
    """(K,) class ids."""

    @property
    def telling(self) -> bool:
        """Whether anything could show that people err: gold, a sample drawn by chance, or two answers on one sample."""
        overlap = len(np.unique(self.place)) < len(self.place)
        return overlap or bool((self.known >= 0).any() or self.drawn.any())

    def facts(self, error: tuple[float, float, float], rates: Float64s) -> PeopleFacts:
        """What is known of the persons, with the estimated error of all and its interval, and the rate of each."""
        count = np.bincount(self.person, minlength=len(self.names)).tolist()
        return PeopleFacts(
            *error,
            samples=len(self.samples),
            answers=len(self.place),
            gold=int((self.known != UNRESOLVED).sum()),
            overlap=int((np.bincount(self.place, minlength=len(self.samples)) > 1).sum()),
            persons=tuple(PersonFacts(*one) for one in zip(self.names, count, rates.tolist(), strict=True)),
            source=False,
        )

    def among(self, kept: Bools) -> "Answers":
        """Those on some of the m samples."""
        to, inside = np.cumsum(kept) - 1, kept[self.place]
        return Answers(
            self.samples[kept],
            self.known[kept],
            self.drawn[kept],
            self.names,
            to[self.place[inside]],
            self.person[inside],
            self.label[inside],
        )


@dataclass(frozen=True)
class Metrics:
    """Quality on one split. `f1` is the F1 of the positive class, given for two classes only.

    `Metrics()`: nothing is measured yet, because no trusted samples were given and too few answers are there.
    """

    loss: float = math.nan
    accuracy: float = math.nan
    f1_macro: float = math.nan
    f1: float | None = None

    def as_dict(self) -> dict[str, float]:
        """Name → value, without what is not defined; empty where nothing is measured yet."""
        if math.isnan(self.loss):
            return {}
        values = {"loss": self.loss, "accuracy": self.accuracy, "f1_macro": self.f1_macro}
        return values if self.f1 is None else {**values, "f1": self.f1}


class StopReason(StrEnum):
    """Why a campaign ended."""

    BUDGET = "budget spent"
    TARGET = "target reached"
    NOTHING_LEFT = "nothing left to clean"
    RULE = "stopping rule"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Heard:
    """Which votes of sources a model was made of.

    >>> Heard.from_json(Heard(("old rule",), 2).as_json())
    Heard(muted=('old rule',), version=2)
    """

    muted: tuple[str, ...] = ()
    """Sources whose votes were not used, by name."""
    version: int = 0
    """Of the votes: 0 as they came with the data; each edit of the rules of a campaign makes the next one."""

    def as_json(self) -> dict[str, list[str] | int]:
        """In JSON's types."""
        return {"muted": list(self.muted), "version": self.version}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> "Heard":
        """What `as_json` wrote; all sources where nothing was written."""
        return cls() if values is None else cls(tuple(map(str, values["muted"])), int(values["version"]))


@dataclass(frozen=True)
class RoundRecord:
    """Everything one round did. Round 0 is the first model: it selects nothing."""

    number: int
    batch: Batch
    """An entry for each decision; corrections, which were not asked for, have no predictions."""
    votes: Votes
    decisions: Decisions
    changed: Ints
    """Items whose hard label (the most probable class) differs from before."""
    asked: int
    """Samples put to people in this round: the first decisions are on them, those after are corrections of others."""
    spent: int
    """Samples asked so far, this round included. Corrections of clean labels and undone rounds cost nothing."""
    cleaned: int
    """Samples with a clean label so far, including those given at the start."""
    validation: Metrics
    """On the validation samples held out for judging; on the steering samples where none are held out."""
    steering: Metrics
    """On the steering samples: the validation samples that selection sees."""
    test: Metrics | None
    predicted_change: float
    """Of the steering loss, for the answers that were given: (1/N) Σ_k batch.by_answer[k, answer of k]. NaN where the
    selector predicts nothing, and for an empty batch."""
    realised_change: float
    """Of the steering loss, from the record before to this one; NaN for round 0."""
    construction: ConstructionDiagnostics
    seconds: Mapping[str, float]
    choice: Choice | None = None
    """What the learner used; None where trusted samples do not train."""
    ruling: Ruling | None = None
    """How the model's logits become probabilities and classes; None for the plain way."""
    baselines: Mapping[str, Mapping[str, Metrics]] = field(default_factory=dict)
    """What one would have without labelchef, by split ('validation', 'test') and name ('trusted_only': a model of the trusted
    samples alone; 'no_weak': of trusted and answered samples); empty where trusted samples do not train."""
    heard: Heard = Heard()
    """Which votes of sources this model was made of."""


@dataclass(frozen=True)
class AskedCount:
    """How many samples were asked: the one number that pages, report, command line and API give.

    A sample is asked when a batch that is closed has put it to people while it had no clean label; each time counts, and each
    time costs one of the budget. So `asked` is `RoundRecord.spent` of the last closed round, the sum over rounds of what each
    has spent. Not asked are: samples of the open batch (they count when it closes), work ahead that no batch took up, labels
    that were imported or that a lead decided outside of a batch. `others` are the samples with such a decision that no closed
    batch has asked, before or after it; a correction of a sample that was asked is none of them.

    >>> print(AskedCount(asked=60, audited=6, others=4))
    60 samples asked (6 of them drawn by chance), 4 more imported or decided without being asked
    """

    asked: int
    audited: int
    """Of those asked, drawn by chance for the audit."""
    others: int

    @classmethod
    def of(cls, rounds: Sequence[RoundRecord]) -> "AskedCount":
        """From the closed rounds."""
        asked = rounds[-1].spent if rounds else 0
        put = {item for record in rounds for item in record.decisions.items[: record.asked].tolist()}
        decided = {item for record in rounds for item in record.decisions.items.tolist()}
        audited = sum(len(record.batch.diagnostics.audited) for record in rounds)
        return cls(asked, audited, len(decided - put))

    def __str__(self) -> str:
        audited = f" ({self.audited} of them drawn by chance)" if self.audited else ""
        said = f"{self.asked} {'sample' if self.asked == 1 else 'samples'} asked{audited}"
        if not self.others:
            return said
        return f"{said}, {self.others} more imported or decided without being asked"
