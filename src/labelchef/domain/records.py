"""What a round leaves behind: small frozen records that carry their own diagnostics."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from labelchef.domain.arrays import Float64s, Ints

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
    """Passes over the training features, those of the solve and shares of a pass for candidate rows counted in."""
    fell_back: bool = False
    """Whether bounds could not prune, and everything was evaluated."""
    slack: float = float("inf")
    """How far the best sample that was not evaluated is, at least, from being selected: lower bound − last score."""
    seconds: float = 0.0
    solve_seconds: float = 0.0
    """The part of `seconds` that went into H V = g_val."""


@dataclass(frozen=True)
class Batch:
    """The samples to look at next, most helpful first.

    `influence[k]` is N times the predicted change of the validation loss if `indices[k]` were cleaned to
    `suggested[k]` (a class id): negative helps. Selectors that suggest nothing have `UNRESOLVED` there, those that predict
    nothing NaN.
    """

    indices: Ints
    suggested: Ints
    influence: Float64s
    diagnostics: SelectionDiagnostics = field(default_factory=SelectionDiagnostics)

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class ConstructionDiagnostics:
    """How a model was made: `gradient_norm` is ‖∇F‖ at the returned parameters."""

    iterations: int = 0
    """Newton steps, or steps of a descent."""
    sweeps: float = 0.0
    gradient_norm: float = 0.0
    distance: float = 0.0
    """‖∇F‖ / l2: the parameters are proven to lie no farther than this from the optimum."""
    tolerance: float = 0.0
    converged: bool = True
    epoch: int = 0
    """The epoch that early stopping chose; 0 where nothing descends, or where no epoch beat the model of zeros."""
    explicit: int = 0
    """Steps of a descent that looked at their mini-batch."""
    fell_back: int = 0
    """Those among them that were meant to be approximated but could not be trusted."""
    seconds: float = 0.0


@dataclass(frozen=True)
class LabelChange:
    """Labels and weights of a few samples, before and after: the only thing a constructor needs to know.

    Any change is allowed, weak → clean as well as back again (`inverse`).
    """

    indices: Ints
    Y_old: Float64s
    weight_old: Float64s
    Y_new: Float64s
    weight_new: Float64s

    def inverse(self) -> "LabelChange":
        """The change that takes this one back."""
        return LabelChange(self.indices, self.Y_new, self.weight_new, self.Y_old, self.weight_old)


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
    """What the votes came to: one class id an item, or `UNRESOLVED`."""

    items: Ints
    labels: Ints
    support: Float64s
    """Share of the votes behind the decision; 0 where there were none."""


@dataclass(frozen=True)
class Metrics:
    """Quality on one split. `f1` is the F1 of the positive class, given for two classes only."""

    loss: float
    accuracy: float
    f1_macro: float
    f1: float | None = None

    def as_dict(self) -> dict[str, float]:
        """Name → value, without what is not defined."""
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
class RoundRecord:
    """Everything one round did. Round 0 is the initialisation: it selects nothing."""

    number: int
    batch: Batch
    votes: Votes
    decisions: Decisions
    changed: Ints
    """Items whose hard label (the most probable class) differs from before."""
    spent: int
    """Samples asked so far, this round included."""
    cleaned: int
    """Samples with a clean label so far, given ones included."""
    validation: Metrics
    """On the validation samples that judge; on those that steer where none judges."""
    steering: Metrics
    """On the validation samples that selection sees."""
    test: Metrics | None
    construction: ConstructionDiagnostics
    seconds: Mapping[str, float]
