"""The orders in which selectors ask items whose answers are known, and what each order brings."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from labelchef.campaign.choice import make_selector
from labelchef.campaign.curves import drawn_areas
from labelchef.campaign.data import CampaignData
from labelchef.campaign.gain import Judged
from labelchef.campaign.metrics import value_of
from labelchef.campaign.session import Session
from labelchef.campaign.start import Parts, new_session
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.comparisons import AS_ASKED, Cell
from labelchef.domain.records import UNRESOLVED, Batch
from labelchef.domain.settings import Settings
from labelchef.selectors import SelectionContext, Selector
from labelchef.selectors.ranking import Ranking, RankingSelector
from labelchef.services.compare.answers import Answers


@dataclass
class AsAsked(RankingSelector):
    """The order in which answers came, with what was suggested then."""

    positions: Ints
    suggestions: Ints
    name: ClassVar[str] = AS_ASKED
    suggests: ClassVar[bool] = True
    needs: ClassVar[str] = "the ledger"

    def rank(self, context: SelectionContext) -> Ranking:
        """Places in the order."""
        n = context.objective.engine.n_rows
        place, suggested = np.full(n, np.inf), np.full(n, UNRESOLVED)
        place[self.positions] = np.arange(len(self.positions))
        suggested[self.positions] = self.suggestions
        return Ranking(place, suggested)


@dataclass
class Redrawn:
    """A selector that does not choose by INFL, with other random numbers; split and model keep those of the campaign."""

    base: Selector
    seed: tuple[int, int]
    looks_ahead: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """That of the selector."""
        return self.base.name

    @property
    def suggests(self) -> bool:
        """Whether the selector does."""
        return self.base.suggests

    def select(self, context: SelectionContext, batch_size: int) -> Batch:
        """The selector's choice, with random numbers of this round and repeat."""
        rng = np.random.default_rng([*self.seed, len(context.rounds)])
        return self.base.select(replace(context, rng=rng), batch_size)


@dataclass(frozen=True)
class Order:
    """What came of a selector's order."""

    split: str
    """What judged: 'test', 'validation' or 'steering'."""
    y: Ints
    """True classes of the samples that judge."""
    values: tuple[float, ...]
    """The metric at each point of `Orders.asked`."""
    drawn: Float64s
    """Areas under the curve on samples drawn again; those of two replays are paired."""
    kept: int
    """Suggestions that equal the answer, of `suggested`."""
    suggested: int
    seconds: float
    """Spent on choosing."""


@dataclass(frozen=True)
class Orders:
    """What all replays of a campaign share: data, settings and answers."""

    settings: Settings
    data: CampaignData
    answers: Answers
    batch_size: int

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """Labels asked at each point of a curve."""
        return (*range(0, len(self.answers), self.batch_size), len(self.answers))

    def of(self, selector: str | Selector, cell: Cell, tell: Callable[[Cell], None]) -> Order:
        """Fit the first model, then let the selector ask until nothing is left; `tell` is called after every round."""
        data = replace(self.data, askable=self.answers.mask(len(self.data.X)))
        session = new_session(data, self.settings, Parts(make_selector(selector, look_ahead=self.settings.look_ahead)))
        session.start()
        split, y, first = _judged(session)
        curve, seconds = [first], 0.0
        for before, after in zip(self.asked, self.asked[1:], strict=False):
            began = time.perf_counter()
            batch = session.select(after - before)
            seconds += time.perf_counter() - began
            session.decide(batch, *self.answers.to(batch))
            curve.append(_judged(session)[2])
            tell(replace(cell, asked=after))
        metric = self.settings.target_metric
        drawn = drawn_areas(y, curve, self.asked, metric, len(self.data.names), self.settings.seed)
        values = tuple(value_of(point.metrics, metric) for point in curve)
        return Order(split, y, values, drawn, *_suggestions(session), seconds)


def _judged(session: Session) -> tuple[str, Ints, Judged]:
    """By the test set if there is one, else by the validation samples that judge, else by those that steer."""
    for split in ("test", "validation"):
        found = session.judged(split)
        if found is not None:
            return split, *found
    found = session.judged("steering")
    assert found is not None, "something always steers"
    return "steering", *found


def _suggestions(session: Session) -> tuple[int, int]:
    """How many suggestions equal the answer, and how many there were."""
    made = [(record.batch.suggested, record.decisions.labels) for record in session.rounds]
    kept = sum(int(((said != UNRESOLVED) & (said == labels)).sum()) for said, labels in made)
    return kept, sum(int((said != UNRESOLVED).sum()) for said, _ in made)
