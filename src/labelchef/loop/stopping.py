"""Stopping rules, which combine with `&` and `|`, and their form as text for the command line, the API and the page.

>>> rule = TargetReached("f1_macro", 0.9) | (MaxRounds(50) & Plateau("loss", patience=5))
>>> print(rule)
(f1_macro ≥ 0.9 or (50 rounds done and no better loss for 5 rounds))
"""

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labelchef.base.errors import InvalidInputError
from labelchef.base.numbers import check_number, check_whole
from labelchef.base.records import Batch, RoundRecord
from labelchef.base.settings import METRICS
from labelchef.judge.audit import audit_trail
from labelchef.judge.metrics import value_of


@dataclass(frozen=True)
class Progress:
    """The input of a rule: the rounds so far, and the batch just selected (None before selection)."""

    rounds: Sequence[RoundRecord]
    batch: Batch | None = None


class StoppingRule(ABC):
    """Base of all rules: `met` is whether to stop, `str()` describes it. Metrics are those of the samples that judge."""

    @property
    def reads_metrics(self) -> bool:
        """Whether it reads a metric, so that validation samples should be held out for it."""
        return False

    @property
    def reads_audit(self) -> bool:
        """Whether it reads the audit, without which it is never met."""
        return False

    @abstractmethod
    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""

    def __and__(self, other: "StoppingRule") -> "StoppingRule":
        return Combined(self, other, "and")

    def __or__(self, other: "StoppingRule") -> "StoppingRule":
        return Combined(self, other, "or")


@dataclass(frozen=True)
class Combined(StoppingRule):
    """Stops when both rules do ('and'), or when one of them does ('or')."""

    left: StoppingRule
    right: StoppingRule
    word: str

    @property
    def reads_metrics(self) -> bool:
        """Whether one of the rules does."""
        return self.left.reads_metrics or self.right.reads_metrics

    @property
    def reads_audit(self) -> bool:
        """Whether one of the rules does."""
        return self.left.reads_audit or self.right.reads_audit

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        return (all if self.word == "and" else any)(rule.met(progress) for rule in (self.left, self.right))

    def __str__(self) -> str:
        return f"({self.left} {self.word} {self.right})"


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
        measured = [r.validation for r in progress.rounds if r.validation.as_dict()]
        values = [sign * value_of(metrics, self.metric) for metrics in measured]
        recent, before = values[-self.patience :], values[: -self.patience]
        return bool(before) and max(recent) <= max(before) + self.min_delta

    def __str__(self) -> str:
        return f"no better {self.metric} for {self.patience} rounds"


@dataclass(frozen=True)
class Audited(StoppingRule):
    """The audit shows an accuracy of at least this: the lower end of its interval, which holds whenever one looks.

    The mean accuracy that it speaks of is that of the models as they were when the audited samples were drawn.
    """

    accuracy: float
    reads_audit = True

    def __post_init__(self) -> None:
        check_number(self.accuracy, "the accuracy of Audited", code="stop")
        if not 0.0 < self.accuracy < 1.0:
            raise InvalidInputError(
                f"the accuracy of Audited is {self.accuracy:g}; expected a number between 0 and 1, such as 0.9",
                code="stop",
            )

    def met(self, progress: Progress) -> bool:
        """Whether to stop now."""
        trail = audit_trail(progress.rounds, 2)  # the number of classes does not matter for an accuracy
        return trail.accuracy().low >= self.accuracy

    def __str__(self) -> str:
        return f"audited accuracy ≥ {self.accuracy:g}"


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


RULES: dict[str, Callable[..., StoppingRule]] = {
    rule.__name__: rule for rule in (Audited, MaxRounds, NoPredictedGain, Plateau, TargetReached)
}


def parse_rule(text: str) -> StoppingRule:
    """The rule that a text describes: rules by name with numbers and texts, combined by `&`, `|` and brackets.

    >>> print(parse_rule("MaxRounds(50) | Plateau('loss', patience=5) & NoPredictedGain()"))
    (50 rounds done or (no better loss for 5 rounds and no sample is predicted to help))
    """
    try:
        return _rule(ast.parse(text.strip(), mode="eval").body)
    except InvalidInputError as error:
        raise InvalidInputError(f"stop is {text!r}: {error}", code="stop") from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InvalidInputError(
            f"stop is {text!r}; expected rules such as MaxRounds(50) | Plateau('loss', patience=5), made of "
            f"{', '.join(RULES)} with & and | ({str(error).splitlines()[0]})",
            code="stop",
        ) from None


def _rule(node: ast.expr) -> StoppingRule:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _rule(node.left) | _rule(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return _rule(node.left) & _rule(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RULES:
        named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        return RULES[node.func.id](*map(_value, node.args), **named)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Certified":
        raise InvalidInputError(
            "the rule Certified was removed after version 0.2: what it proved was too far below the truth to stop by; expected "
            "another rule, such as Audited(0.9). Change the setting 'stop' and resume: all answers stay",
            code="stop",
        )
    raise ValueError(f"{ast.unparse(node)[:80]} is not a rule")


def _value(node: ast.expr) -> int | float | str:
    value = ast.literal_eval(node)
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is neither a number nor a text")
