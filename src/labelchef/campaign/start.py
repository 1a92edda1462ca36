"""From data and settings to a session: checks, which validation samples judge, the strengths, the first label table."""

import copy
from dataclasses import dataclass, replace

import numpy as np

from labelchef.campaign.choice import make_selector, require_suggestions
from labelchef.campaign.data import CampaignData, Labelled
from labelchef.campaign.holdout import check_judges, draw_judges
from labelchef.campaign.metrics import check_metric
from labelchef.campaign.session import Session, Split
from labelchef.campaign.steps import Rules
from labelchef.campaign.tuning import Tuned, tune
from labelchef.constructors import Constructor, DescentSettings, make_constructor
from labelchef.core.labels import LabelTable
from labelchef.core.objective import Objective
from labelchef.domain.arrays import Bools
from labelchef.domain.records import UNRESOLVED
from labelchef.domain.settings import Settings, fixed
from labelchef.engines import choose_placement
from labelchef.selectors import Selector


@dataclass(frozen=True)
class Parts:
    """Selector, constructor and rules that were handed in as objects; None for those that the settings name."""

    selector: Selector | None = None
    constructor: Constructor | None = None
    rules: Rules | None = None


def check(data: CampaignData, settings: Settings, parts: Parts | None = None) -> None:
    """Everything that would make the first model fail or a figure mislead, said before any work is done."""
    parts = parts or Parts()
    selector = parts.selector or make_selector(settings.selector, look_ahead=settings.look_ahead)
    if settings.suggestion_votes:
        require_suggestions(selector)
    check_figures(data, settings, parts.rules or Rules.of(settings))


def check_figures(data: CampaignData, settings: Settings, rules: Rules) -> None:
    """Refuse a metric that the data do not have; warn where too few samples judge."""
    check_metric(settings.target_metric, len(data.names))
    steering, judging = split_validation(data, settings)
    check_judges(judging[1], steering[1], settings.holdout, read=rules.reads_metrics, stacklevel=5)


def judges_of(data: CampaignData, settings: Settings) -> Bools:
    """(n,) which validation samples judge; none where the user has judging samples of their own."""
    holdout = 0.0 if data.judge is not None else settings.holdout
    return draw_judges(data.validation[1], len(data.names), holdout, settings.seed)


def split_validation(data: CampaignData, settings: Settings) -> tuple[Labelled, Labelled]:
    """The validation samples that steer, and those that judge."""
    X, y = data.validation
    judges = judges_of(data, settings)
    if not judges.any():
        return data.validation, data.judge if data.judge is not None else (X[:0], y[:0])
    return (X[~judges], y[~judges]), (X[judges], y[judges])


def with_strengths(data: CampaignData, settings: Settings) -> tuple[Settings, Tuned | None]:
    """The settings with gamma and l2 as numbers, and what was tried to choose those that were 'auto'."""
    gamma, l2 = fixed(settings.gamma), fixed(settings.l2)
    if gamma is not None and l2 is not None:
        return settings, None
    steering, _ = split_validation(data, settings)
    tuned = tune(
        data.X, data.weak, data.clean, *steering, gamma=gamma, l2=l2, bias=settings.fit_intercept, seed=settings.seed
    )
    return replace(settings, gamma=tuned.gamma, l2=tuned.l2), tuned


def first_table(data: CampaignData, gamma: float) -> LabelTable:
    """The labels to begin with: weak ones, and those that are known from the start."""
    table = LabelTable(data.weak, gamma, data.askable)
    known = np.flatnonzero(data.clean != UNRESOLVED)
    table.assign(known, data.clean[known])
    return table


def new_session(data: CampaignData, settings: Settings, parts: Parts | None = None) -> Session:
    """A session that has no model yet; gamma and l2 must be numbers (`with_strengths`)."""
    parts = parts or Parts()
    placement = choose_placement(settings.engine, settings.feature_dtype, data.X.size)
    steering, judging = split_validation(data, settings)
    table = first_table(data, float(settings.gamma))

    def split(part: Labelled) -> Split:
        return Split(*part, len(data.names), bias=settings.fit_intercept, engine=placement.split)

    selector = parts.selector or settings.selector
    return Session(
        objective=Objective(placement.training(data.X, bias=settings.fit_intercept), table.rows, float(settings.l2)),
        labels=table,
        steering=split(steering),
        judging=split(judging) if len(judging[1]) else None,
        test=None if data.test is None else split(data.test),
        selector=make_selector(copy.deepcopy(selector), look_ahead=settings.look_ahead),
        constructor=copy.deepcopy(parts.constructor) or _constructor(settings),
        seed=settings.seed,
    )


def _constructor(settings: Settings) -> Constructor:
    steps = {"learning_rate": settings.learning_rate, "epochs": settings.epochs, "minibatch": settings.minibatch}
    given = {name: value for name, value in steps.items() if value is not None}
    descent = DescentSettings(**given, seed=settings.seed)  # type: ignore[arg-type]
    return make_constructor(settings.constructor, tol=settings.tol, descent=descent)
