"""The answers in the ledger of a campaign, the orders in which selectors ask for them, and what each order brings."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from labelchef.campaign.choice import make_selector
from labelchef.campaign.curves import area, drawn_areas
from labelchef.campaign.data import CampaignData
from labelchef.campaign.gain import Judged
from labelchef.campaign.metrics import value_of
from labelchef.campaign.session import Session
from labelchef.campaign.start import Parts, new_session
from labelchef.domain.arrays import Float64s, Ints
from labelchef.domain.campaigns import DecisionKind, Origin
from labelchef.domain.comparisons import AS_ASKED, Cell
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, Votes
from labelchef.domain.settings import Settings
from labelchef.ledger.sql_reading import votes_table
from labelchef.selectors import SelectionContext, Selector
from labelchef.selectors.ranking import Ranking, RankingSelector
from labelchef.services.workspace import Workspace
from labelchef.store import decision_table, item_table, selection_table, vote_table
from labelchef.store.rows import CampaignRow, DecisionRow


@dataclass(frozen=True)
class Answers:
    """Decided items: `positions` (n,) in the order in which they were first decided, `labels` (n,) as they stand now."""

    positions: Ints
    labels: Ints
    suggested: Ints
    """What was suggested when each was asked last; `UNRESOLVED` for nothing."""
    votes: Mapping[int, tuple[tuple[str, int], ...]]
    """Position → who said what, as the decision rests on it."""
    unanswered: int
    """Items that were asked and have no answer: unresolved, taken back, or still being voted on."""

    def __len__(self) -> int:
        return len(self.positions)

    def to(self, batch: Batch) -> tuple[Votes, Decisions]:
        """What people answer to a batch of decided items."""
        known = dict(zip(self.positions.tolist(), self.labels.tolist(), strict=True))
        items = batch.indices.tolist()
        ballots: list[tuple[str, object, object]] = [
            (who, [item], [label]) for item in items for who, label in self.votes.get(item, ())
        ]
        labels = np.array([known[item] for item in items], dtype=np.int64)
        return Votes.of(ballots), Decisions(batch.indices, labels, np.ones(len(batch)))


def known_answers(ws: Workspace, campaign: CampaignRow) -> Answers:
    """The answers that count now; labels given with the data are not among them."""
    with ws.reading() as connection:
        decisions = decision_table.decisions(connection, campaign.id)
        selections = selection_table.selections_of_campaign(connection, campaign.id)
        given = {item.id for item in item_table.train_items(connection, campaign.id) if item.label is not None}
        last = {row.item_id: row for row in decisions}
        final = {i: row for i, row in last.items() if _answers(row) and i not in given}
        upto = vote_table.last_vote_id(connection, campaign.id)
        votes = votes_table(final.values(), vote_table.votes_behind(connection, list(final.values()), upto))
    order = [item for item in dict.fromkeys(row.item_id for row in decisions if _answers(row)) if item in final]
    asked = {s.item_id: s.suggested for s in selections if s.origin != Origin.AHEAD}
    said: dict[int, tuple[tuple[str, int], ...]] = {}
    for position, who, label in votes:
        said[position] = (*said.get(position, ()), (who, label))
    return Answers(
        positions=np.array([final[item].position for item in order], dtype=np.int64),
        labels=np.array([final[item].label for item in order], dtype=np.int64),
        suggested=np.array([_class(asked.get(item)) for item in order], dtype=np.int64),
        votes=said,
        unanswered=len(asked.keys() - final.keys() - given),
    )


def _answers(row: DecisionRow) -> bool:
    return row.label is not None and row.kind != DecisionKind.REOPEN


def _class(label: int | None) -> int:
    return UNRESOLVED if label is None else label


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
    area: float
    """The mean of `values` over the labels."""
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
        askable = np.isin(np.arange(len(self.data.X)), self.answers.positions)
        data = replace(self.data, askable=askable)
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
        return Order(split, y, values, area(self.asked, values, self.asked[-1]), drawn, *_suggestions(session), seconds)


def _judged(session: Session) -> tuple[str, Ints, Judged]:
    """By the test set if there is one, else by the validation samples that judge, else by those that steer."""
    parts = ((split, session.judged(split)) for split in ("test", "validation", "steering"))
    return next((split, *found) for split, found in parts if found is not None)


def _suggestions(session: Session) -> tuple[int, int]:
    """How many suggestions equal the answer, and how many there were."""
    made = [(record.batch.suggested, record.decisions.labels) for record in session.rounds]
    kept = sum(int(((said != UNRESOLVED) & (said == labels)).sum()) for said, labels in made)
    return kept, sum(int((said != UNRESOLVED).sum()) for said, _ in made)
