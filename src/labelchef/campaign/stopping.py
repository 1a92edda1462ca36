"""Stopping rules, which combine with `&` and `|`.

>>> rule = TargetReached("f1_macro", 0.9) | (MaxRounds(50) & Plateau("loss", patience=5))
>>> print(rule)
(f1_macro ≥ 0.9 or (50 rounds done and no better loss for 5 rounds))
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from labelchef.campaign.metrics import value_of
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.numbers import check_number, check_whole
from labelchef.domain.records import Batch, RoundRecord
from labelchef.domain.settings import METRICS


@dataclass(frozen=True)
class Progress:
    """The input of a rule: the rounds so far, and the batch just selected (None before selection)."""

    rounds: Sequence[RoundRecord]
    batch: Batch | None = None


class StoppingRule(ABC):
    """Base of all rules: `met` is whether to stop, `str()` describes the condition.

    Metrics are those on the validation samples held out for judging.
    """

    @property
    def reads_metrics(self) -> bool:
        """Whether it reads a metric, so that validation samples should be held out for it."""
        return False

    @abstractmethod
    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""

    def __and__(self, other: "StoppingRule") -> "StoppingRule":
        return Both(self, other)

    def __or__(self, other: "StoppingRule") -> "StoppingRule":
        return Either(self, other)


@dataclass(frozen=True)
class Both(StoppingRule):
    """Stops when both rules do."""

    left: StoppingRule
    right: StoppingRule

    @property
    def reads_metrics(self) -> bool:
        """Whether one of the rules does."""
        return self.left.reads_metrics or self.right.reads_metrics

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        return self.left.met(progress) and self.right.met(progress)

    def __str__(self) -> str:
        return f"({self.left} and {self.right})"


@dataclass(frozen=True)
class Either(StoppingRule):
    """Stops when one of the rules does."""

    left: StoppingRule
    right: StoppingRule

    @property
    def reads_metrics(self) -> bool:
        """Whether one of the rules does."""
        return self.left.reads_metrics or self.right.reads_metrics

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        return self.left.met(progress) or self.right.met(progress)

    def __str__(self) -> str:
        return f"({self.left} or {self.right})"


@dataclass(frozen=True)
class TargetReached(StoppingRule):
    """A metric on validation has reached a value."""

    metric: str
    value: float
    reads_metrics = True

    def __post_init__(self) -> None:
        _check_metric(self.metric)
        check_number(self.value, "the target", code="target")

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        now = value_of(progress.rounds[-1].validation, self.metric)
        return now <= self.value if self.metric == "loss" else now >= self.value

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.metric == 'loss' else '≥'} {self.value:g}"


@dataclass(frozen=True)
class MaxRounds(StoppingRule):
    """This number of rounds was made."""

    rounds: int

    def __post_init__(self) -> None:
        check_whole(self.rounds, "the number of rounds of MaxRounds", code="stop")

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        return progress.rounds[-1].number >= self.rounds

    def __str__(self) -> str:
        return f"{self.rounds} rounds done"


@dataclass(frozen=True)
class Plateau(StoppingRule):
    """The metric has not improved on its best value by more than `min_delta` for `patience` rounds."""

    metric: str
    patience: int = 5
    min_delta: float = 0.0
    reads_metrics = True

    def __post_init__(self) -> None:
        _check_metric(self.metric)
        check_whole(self.patience, "the patience of Plateau", code="stop")
        check_number(self.min_delta, "min_delta of Plateau", code="stop")

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        sign = -1.0 if self.metric == "loss" else 1.0
        values = [sign * value_of(r.validation, self.metric) for r in progress.rounds]
        recent, before = values[-self.patience :], values[: -self.patience]
        return bool(before) and max(recent) <= max(before) + self.min_delta

    def __str__(self) -> str:
        return f"no better {self.metric} for {self.patience} rounds"


@dataclass(frozen=True)
class NoPredictedGain(StoppingRule):
    """No sample of the batch is predicted to lower the validation loss: `batch.influence` is nowhere negative.

    Never met where the selector predicts nothing (NaN).
    """

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        batch = progress.batch
        return batch is not None and len(batch) > 0 and bool((batch.influence >= 0.0).all())

    def __str__(self) -> str:
        return "no sample is predicted to help"


def _check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise InvalidInputError(f"unknown metric {metric!r}; expected one of: {', '.join(METRICS)}", code="metric")
