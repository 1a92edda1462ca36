"""Annotators with a price: what is said of them before they answer, and what is known of them after."""

from dataclasses import dataclass
from typing import Literal, get_args

from labelchef.domain.errors import InvalidInputError
from labelchef.domain.numbers import check_number, check_whole

Kind = Literal["person", "crowd", "llm", "model"]
BETWEEN = "/"
"""Between the name of a crowd and that of one of its workers, in the record of a vote."""


@dataclass(frozen=True)
class Price:
    """An annotator, what one of its answers costs, and how often it is believed to err.

    >>> Price("llm", 0.002, "llm", error=0.15, gold=40).gave("llm"), Price("crowd", 0.05, "crowd", most=3).gave("crowd/w7")
    (True, True)
    """

    name: str
    price: float
    """Of one answer, in any unit of money."""
    kind: Kind = "person"
    """'crowd': many persons of whom any may answer; the others answer an item once."""
    error: float | None = None
    """Share of its answers that is wrong, if that is known beforehand."""
    gold: int = 0
    """Answers on samples of known class by which `error` was measured; 0 for a guess."""
    most: int = 1
    """Answers on an item at most: of a crowd, each from another worker."""

    def __post_init__(self) -> None:
        if not self.name.strip() or BETWEEN in self.name:
            raise InvalidInputError(
                f"an annotator has the name {self.name!r}; expected one that is not empty and has no {BETWEEN!r}",
                code="prices",
            )
        if self.kind not in get_args(Kind):
            raise InvalidInputError(
                f"{self.name} is of kind {self.kind!r}; expected one of: {', '.join(get_args(Kind))}", code="prices"
            )
        check_number(self.price, f"the price of {self.name}", above=0.0, code="prices")
        if self.error is not None:
            check_number(self.error, f"the error of {self.name}", least=0.0, most=1.0, code="prices")
        check_whole(self.gold, f"gold of {self.name}", 0, code="prices")
        check_whole(self.most, f"most of {self.name}", code="prices")
        if self.most > 1 and self.kind != "crowd":
            raise InvalidInputError(
                f"{self.name} is a {self.kind} and answers an item {self.most} times; expected most = 1, or the kind crowd",
                code="prices",
            )
        if self.gold and self.error is None:
            raise InvalidInputError(
                f"{self.name} has gold = {self.gold} and no error; expected the error that was measured", code="prices"
            )

    def gave(self, worker: str) -> bool:
        """Whether a vote under this name is one of its answers."""
        return worker == self.name or worker.startswith(self.name + BETWEEN)


@dataclass(frozen=True)
class AnnotatorFacts:
    """What is known of an annotator, and what was paid for its answers."""

    name: str
    kind: Kind
    price: float
    answers: int
    spent: float
    error: float
    """Estimated probability that an answer is wrong, with a 95 % interval."""
    low: float
    high: float


@dataclass(frozen=True)
class PriceList:
    """Who can be asked at which price, and the money there is; `explore` answers make an annotator known."""

    annotators: tuple[Price, ...]
    budget: float | None = None
    explore: int = 10
