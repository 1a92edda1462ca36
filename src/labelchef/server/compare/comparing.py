"""Selectors replayed on a campaign's own labels: which would have brought its model on sooner.

A selector may ask the items whose answer the ledger knows, and no others; it gets that answer. All start from one first
model and spend the same labels, so at the end they have cleaned the same items: what differs is how soon. The order in
which the campaign had its answers is one of those compared, and the differences are taken from it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.stats import t as student

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.campaigns import DecisionKind, Origin
from labelchef.base.errors import ConflictError, InvalidInputError
from labelchef.base.records import UNRESOLVED, Batch, Decisions, Metrics, Votes
from labelchef.base.settings import Settings
from labelchef.base.validation import (
    ABOUT_BASELINES,
    AS_ASKED,
    BASELINES,
    FEWEST,
    SHARES,
    Cell,
    Comparison,
    Gain,
    Standing,
)
from labelchef.chef.choice import make_selector
from labelchef.chef.selectors import SelectionContext, Selector
from labelchef.chef.selectors.ranking import Ranking, RankingSelector
from labelchef.data.campaign_data import CampaignData
from labelchef.judge.gain import LEVEL, Judged, area, between, drawn_areas, labels_to_reach, widened
from labelchef.judge.metrics import value_of
from labelchef.loop.session import Session
from labelchef.loop.start import Parts, new_session
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.trained import data_of
from labelchef.server.ledger.sql import votes_table
from labelchef.server.store import campaign_table, decision_table, round_table, vote_table
from labelchef.server.store.rows import CampaignRow, DecisionRow
from labelchef.server.workspace import Workspace

FEWEST_LABELS = 20
"""Known answers below which orders are not told apart."""
REPEATS = 5
"""How often a selector that draws chance is replayed."""
_USUAL = ("expected_infl", "increm_infl", "margin", "random")
_SAME = 1e-9  # a level is reached by the same model, whatever its last bits


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
        selections = round_table.selections_of_campaign(connection, campaign.id)
        given = campaign_table.given_items(connection, campaign.id)
        last = {row.item_id: row for row in decisions}
        final = {i: row for i, row in last.items() if _answers(row) and i not in given}
        votes = votes_table(final.values(), vote_table.votes_behind(connection, list(final.values())))
    order = [item for item in dict.fromkeys(row.item_id for row in decisions if _answers(row)) if item in final]
    asked = {
        s.item_id: UNRESOLVED if s.suggested is None else s.suggested for s in selections if s.origin != Origin.AHEAD
    }
    said: dict[int, tuple[tuple[str, int], ...]] = {}
    for position, who, label in votes:
        said[position] = (*said.get(position, ()), (who, label))
    return Answers(
        positions=np.array([final[item].position for item in order], dtype=np.int64),
        labels=np.array([final[item].label for item in order], dtype=np.int64),
        suggested=np.array([asked.get(item, UNRESOLVED) for item in order], dtype=np.int64),
        votes=said,
        unanswered=len(asked.keys() - final.keys() - given),
    )


def _answers(row: DecisionRow) -> bool:
    return row.label is not None and row.kind != DecisionKind.REOPEN


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

    def __post_init__(self) -> None:
        self.name, self.suggests = self.base.name, self.base.suggests

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
    baselines: Mapping[str, Metrics]
    """On the same samples at the end, by name: what one would have without weak labels."""
    cross_fitted: bool
    """Whether the samples that judge train too, and each was judged by models without it."""


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
        data = replace(self.data, askable=np.isin(np.arange(len(self.data.X)), self.answers.positions))
        settings = replace(self.settings, audit=0.0)  # the selector alone chooses
        session = new_session(data, settings, Parts(make_selector(selector, look_ahead=settings.look_ahead)))
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
        return Order(
            split=split,
            y=y,
            values=values,
            area=area(self.asked, values, self.asked[-1]),
            drawn=drawn,
            **_suggestions(session),
            seconds=seconds,
            baselines=session.rounds[-1].baselines.get(split, {}),
            cross_fitted=split == "validation" and session.judging is None,
        )


def _judged(session: Session) -> tuple[str, Ints, Judged]:
    """By the test set if there is one, else by the validation samples that judge, else by those that steer."""
    parts = ((split, session.judged(split)) for split in ("test", "validation", "steering"))
    there = next(((split, *found) for split, found in parts if found is not None), None)
    if there is None:
        raise ConflictError(
            "selectors cannot be compared: no trusted samples were given, so nothing judges the first answers; expected trusted "
            "or test samples among the data",
            code="few_labels",
        )
    return there


def _suggestions(session: Session) -> dict[str, int]:
    """How many suggestions equal the answer, and how many there were."""
    made = [(record.batch.suggested, record.decisions.labels) for record in session.rounds]
    kept = sum(int(((said != UNRESOLVED) & (said == labels)).sum()) for said, labels in made)
    return {"kept": kept, "suggested": sum(int((said != UNRESOLVED).sum()) for said, _ in made)}


def compare(
    ws: Workspace,
    campaign: str,
    selectors: Sequence[str] | None = None,
    batch_size: int | None = None,
    *,
    repeats: int = REPEATS,
    on_cell: Callable[[Cell], None] | None = None,
) -> Comparison:
    """Replay selectors on the labels a campaign has; `on_cell` is told after every round.

    Without `selectors`, the campaign's own and a few to set it against; without `batch_size`, the campaign's. Nothing is
    written; a worker may run meanwhile.
    """
    row = find(ws, campaign)
    settings = row.settings
    names, answers = check(ws, row, selectors)
    size = settings.batch_size if batch_size is None else batch_size
    for value, what in ((repeats, "repeats"), (size, "batch_size")):
        if value < 1:
            raise InvalidInputError(f"{what} is {value}; expected at least 1", code=what)
    with ws.reading() as connection:
        version = campaign_table.votes_version(connection, row.id)
    orders = Orders(settings, data_of(ws, row).at_version(version), answers, size)
    return _compared(orders, row.slug, names, repeats, on_cell or (lambda _: None))


def check(ws: Workspace, row: CampaignRow, selectors: Sequence[str] | None) -> tuple[tuple[str, ...], Answers]:
    """The selectors to replay and the answers there are; refused where a name is not known, or answers are too few."""
    names = _wanted(selectors, row.settings)
    answers = known_answers(ws, row)
    if len(answers) < FEWEST_LABELS:
        raise ConflictError(
            f"the campaign has {len(answers)} decided items; expected {FEWEST_LABELS} or more to tell orders apart. "
            "Compare again when more are labelled",
            code="few_labels",
        )
    return names, answers


def usual_selectors(settings: Settings) -> tuple[str, ...]:
    """The campaign's own selector, and those it is set against unless others are named."""
    return tuple(dict.fromkeys([settings.selector, *_USUAL]))


def _wanted(selectors: Sequence[str] | None, settings: Settings) -> tuple[str, ...]:
    """Names without repetition, each of which can be made."""
    names = usual_selectors(settings) if selectors is None else tuple(dict.fromkeys(selectors))
    if not names:
        raise InvalidInputError("no selector is named; expected one or more, or nothing for the usual", code="selector")
    for name in names:
        make_selector(name)
    return names


def _compared(
    orders: Orders, campaign: str, names: Sequence[str], repeats: int, tell: Callable[[Cell], None]
) -> Comparison:
    answers, seed = orders.answers, orders.settings.seed
    own = AsAsked(answers.positions, answers.suggested)
    reference = orders.of(own, Cell(AS_ASKED, 1, 1, 0, len(answers)), tell)
    standings = [_standing(orders, AS_ASKED, [reference], reference)]
    for name in names:
        made = make_selector(name)
        times = repeats if isinstance(made, RankingSelector) and made.chance else 1
        drawn: list[str | Selector] = [name, *(Redrawn(make_selector(name), (seed, k)) for k in range(1, times))]
        cells = [Cell(name, k + 1, times, 0, len(answers)) for k in range(times)]
        found = [orders.of(one, cell, tell) for one, cell in zip(drawn, cells, strict=True)]
        standings.append(_standing(orders, name, found, reference))
    standings.sort(key=lambda one: -_sign(orders) * one.area)
    return Comparison(
        campaign=campaign,
        metric=orders.settings.target_metric,
        split=reference.split,
        samples=len(reference.y),
        labels=len(answers),
        unanswered=answers.unanswered,
        batch_size=orders.batch_size,
        asked=orders.asked,
        level=reference.values[-1],
        standings=tuple(standings),
        notes=tuple(_notes(orders, reference, standings)),
    )


def _sign(orders: Orders) -> float:
    """By which larger is better."""
    return -1.0 if orders.settings.target_metric == "loss" else 1.0


def _standing(orders: Orders, name: str, runs: list[Order], reference: Order) -> Standing:
    asked, labels, sign = orders.asked, float(orders.asked[-1]), _sign(orders)
    areas = np.array([run.area for run in runs])
    error = float(np.std(areas, ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else None  # of their mean
    level = sign * reference.values[-1] - _SAME
    reached = float(np.median([labels_to_reach(asked, [sign * v for v in run.values], level) for run in runs]))
    curve = np.mean([run.values for run in runs], axis=0)
    suggested = sum(run.suggested for run in runs)
    return Standing(
        selector=name,
        repeats=len(runs),
        curve=tuple(float(v) for v in curve),
        after=tuple(float(np.interp(share * labels, asked, curve)) for share in SHARES),
        area=float(areas.mean()),
        area_half=None if error is None else float(student.ppf((1 + LEVEL) / 2, len(runs) - 1) * error),
        labels_to_reach=reached if np.isfinite(reached) else None,
        suggestion_share=sum(run.kept for run in runs) / suggested if suggested else None,
        seconds=float(np.mean([run.seconds for run in runs])),
        difference=None if name == AS_ASKED else _difference(orders.settings, runs, error, reference),
    )


def _difference(settings: Settings, runs: list[Order], error: float | None, reference: Order) -> Gain:
    """From the campaign's own order; to the samples' draws comes, by Student's law, what other repeats might have given."""
    drawn = np.mean([run.drawn for run in runs], axis=0) - reference.drawn
    if error is not None:
        rng = np.random.default_rng([settings.seed, len(runs)])
        drawn += rng.standard_t(len(runs) - 1, len(drawn)) * error
    mean, y = float(np.mean([run.area for run in runs])), reference.y
    rarest = int(np.bincount(y)[np.unique(y)].min())
    bounds, metric = between(drawn), settings.target_metric
    if reference.cross_fitted:
        bounds = widened(mean - reference.area, *bounds, metric)
    return Gain(metric, reference.area, mean, *bounds, len(y), rarest, reference.cross_fitted)


def _notes(orders: Orders, reference: Order, standings: Sequence[Standing]) -> list[str]:
    missing, samples = orders.answers.unanswered, len(reference.y)
    notes = [
        f"Selectors choose among the {len(orders.answers)} items that this campaign has answers for, and its own selector "
        "chose most of them. After all of them everyone has cleaned the same items: what differs is how soon. What others "
        "would have asked instead is not known, so they may be better than they look here.",
    ]
    if missing:
        notes.append(f"{missing} items were asked and have no answer: they are left out and keep their weak label.")
    judges = {
        "test": f"Judged by {samples} test samples.",
        "validation": f"Judged by {samples} trusted samples that train, each by the model without it."
        if reference.cross_fitted
        else f"Judged by {samples} validation samples that no selector sees.",
        "steering": f"Judged by the {samples} validation samples that selectors see, since none are held out: those that "
        "choose by them look better than they are.",
    }
    notes.append(judges[reference.split] + (" They are too few to judge by." if samples < FEWEST else ""))
    if reference.baselines:
        metric = orders.settings.target_metric
        found = (f"{BASELINES[name]} {value_of(metrics, metric):.3f}" for name, metrics in reference.baselines.items())
        notes.append(f"On the same samples, after all labels: {', '.join(found)}. {ABOUT_BASELINES}")
    drawn = [one for one in standings if one.repeats > 1]
    if drawn:
        named = ", ".join(one.selector for one in drawn)
        notes.append(f"Chance plays a part in {named}: figures are means of {drawn[0].repeats} replays.")
    if orders.settings.constructor != "newton":
        notes.append(
            f"With constructor {orders.settings.constructor} a model depends on its way: the ends may differ a little."
        )
    return notes
