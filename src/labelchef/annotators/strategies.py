"""The paper's three ways of combining people and the suggestion (section 5.1, 'human annotator setup').

one     three people, majority
two     the suggestion alone, no person at all
three   the suggestion and two people, majority
"""

from labelchef.annotators.people import Annotator, Panel, Suggestion
from labelchef.domain.errors import InvalidInputError

STRATEGIES = ("one", "two", "three")


def people_needed(strategy: str) -> int:
    """How many people vote on an item under a strategy.

    >>> [people_needed(s) for s in STRATEGIES]
    [3, 0, 2]
    """
    if strategy not in STRATEGIES:
        raise InvalidInputError(
            f"unknown strategy {strategy!r}; expected one of: {', '.join(STRATEGIES)}", code="strategy"
        )
    return {"one": 3, "two": 0, "three": 2}[strategy]


def make_strategy(strategy: str, people: Annotator | None = None) -> Annotator:
    """The annotator of a strategy. `people` votes for as many people as the strategy needs.

    >>> make_strategy("two")
    Suggestion()
    """
    if people_needed(strategy) == 0:
        return Suggestion()
    if people is None:
        raise InvalidInputError(
            f"strategy {strategy!r} needs people: give true labels to simulate them or recorded votes, "
            "or use strategy 'two', which takes the suggestions alone",
            code="strategy",
        )
    return people if strategy == "one" else Panel((Suggestion(), people))
