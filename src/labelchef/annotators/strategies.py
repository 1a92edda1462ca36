"""Who votes on an item: people, the suggestion, or both; and the paper's three ways of combining them (section 5.1).

one     three people, majority
two     the suggestion alone, no person at all
three   the suggestion and two people, majority
"""

from labelchef.annotators.people import Annotator, Panel, Suggestion
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.settings import STRATEGY_VOTERS, voters_of

STRATEGIES = tuple(STRATEGY_VOTERS)


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
