"""Selectors replayed on a campaign's own labels: which would have brought its model on sooner.

A selector may ask the items whose answer the ledger knows, and no others; it gets that answer. All start from one first
model and spend the same labels, so at the end they have cleaned the same items: what differs is how soon. The order in
which the campaign had its answers is one of those compared, and the differences are taken from it.
"""

import threading
from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import t as student

from labelchef.campaign.choice import make_selector
from labelchef.campaign.curves import labels_to_reach
from labelchef.campaign.gain import LEVEL, between
from labelchef.domain.comparisons import AS_ASKED, SHARES, Cell, Comparison, Standing
from labelchef.domain.errors import ConflictError, InvalidInputError, MissingExtraError
from labelchef.domain.settings import Settings
from labelchef.domain.validation import FEWEST, Gain
from labelchef.selectors import Selector
from labelchef.selectors.ranking import RankingSelector
from labelchef.services.compare.orders import AsAsked, Order, Orders, Redrawn, known_answers
from labelchef.services.people.access import find
from labelchef.services.trained import data_of
from labelchef.services.workspace import Workspace

FEWEST_LABELS = 20
"""Known answers below which orders are not told apart."""
REPEATS = 5
"""How often a selector that draws chance is replayed."""
_USUAL = ("expected_infl", "increm_infl", "cleanlab_quality", "margin", "random")
_SAME = 1e-9  # a level is reached by the same model, whatever its last bits
_one = threading.Lock()


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
    names = _wanted(selectors, settings)
    size = settings.batch_size if batch_size is None else batch_size
    for value, what in ((repeats, "repeats"), (size, "batch_size")):
        if value < 1:
            raise InvalidInputError(f"{what} is {value}; expected at least 1", code=what)
    answers = known_answers(ws, row)
    if len(answers) < FEWEST_LABELS:
        raise ConflictError(
            f"the campaign has {len(answers)} decided items; expected {FEWEST_LABELS} or more to tell orders apart. "
            "Compare again when more are labelled",
            code="few_labels",
        )
    if not _one.acquire(blocking=False):
        raise ConflictError("a comparison is running already; wait until it has ended", code="comparing")
    try:
        orders = Orders(settings, data_of(ws, row), answers, size)
        return _compared(orders, row.slug, names, repeats, on_cell or (lambda _: None))
    finally:
        _one.release()


def usual_selectors(settings: Settings) -> tuple[str, ...]:
    """The campaign's own selector, and those it is set against unless others are named; an extra only if it is there."""
    return tuple(dict.fromkeys([settings.selector, *(name for name in _USUAL if _there(name))]))


def _there(name: str) -> bool:
    try:
        make_selector(name)
    except MissingExtraError:
        return False
    return True


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
    return Gain(settings.target_metric, reference.area, mean, *between(drawn), len(y), rarest)


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
        "validation": f"Judged by {samples} validation samples that no selector sees.",
        "steering": f"Judged by the {samples} validation samples that selectors see, since none are held out: those that "
        "choose by them look better than they are.",
    }
    notes.append(judges[reference.split] + (" They are too few to judge by." if samples < FEWEST else ""))
    drawn = [one for one in standings if one.repeats > 1]
    if drawn:
        named = ", ".join(one.selector for one in drawn)
        notes.append(f"Chance plays a part in {named}: figures are means of {drawn[0].repeats} replays.")
    if orders.settings.constructor != "newton":
        notes.append(
            f"With constructor {orders.settings.constructor} a model depends on its way: the ends may differ a little."
        )
    return notes
