"""From data and settings to a session: checks, the strengths gamma and l2, the parts of the session."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.errors import InvalidInputError, JudgeWarning, warn_caller
from labelchef.base.records import Heard
from labelchef.base.settings import AUTO, TRAIN, Settings, fixed
from labelchef.base.validation import FEWEST, FEWEST_OF_A_CLASS
from labelchef.believe import SourceVotes
from labelchef.believe.hearing import AllVotes, check_names
from labelchef.believe.learner import Fixed, Learner
from labelchef.believe.tuning import Tuned, tune
from labelchef.believe.vote_forms import WEAK_SOURCE
from labelchef.chef.choice import make_selector, require_suggestions
from labelchef.chef.constructors import Constructor, DescentSettings, make_constructor
from labelchef.chef.selectors import Selector
from labelchef.data.campaign_data import CampaignData, Labelled
from labelchef.data.training_rows import first_table, judges_of, stacked_votes
from labelchef.judge.metrics import check_metric
from labelchef.loop.judging import CrossFitted, Split
from labelchef.loop.session import Session
from labelchef.loop.steps import Rules
from labelchef.model.engines import choose_placement
from labelchef.model.engines.choice import check_engine
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective


@dataclass(frozen=True)
class Parts:
    """Selector, constructor and rules that were handed in as objects; None for those that the settings name."""

    selector: Selector | None = None
    constructor: Constructor | None = None
    rules: Rules | None = None
    feature_dtype: str | None = None
    """How a GPU stores the features; None for the type that they have."""
    cluster: str | None = None
    """The address of the cluster to use; None for that of this machine, if there is one."""
    bias: bool = True
    """Whether the model has an intercept."""


def check(data: CampaignData, settings: Settings, parts: Parts | None = None) -> None:
    """Everything that would make the first model fail or a figure mislead, said before any work is done."""
    parts = parts or Parts()
    check_choices(settings, parts, n_items=len(data.X))
    if data.from_nothing:
        check_pilot(settings, parts)
    check_muted(data, settings)
    check_figures(data, settings, parts.rules or Rules.of(settings))


def check_choices(settings: Settings, parts: Parts | None = None, *, n_items: int) -> None:
    """The part of `check` that needs no data but their number: what can never work, selector, suggestions, rules."""
    parts = parts or Parts()
    check_engine(settings.engine, parts.feature_dtype, parts.cluster)
    if settings.ahead > n_items:
        raise InvalidInputError(
            f"ahead is {settings.ahead}, and there are {n_items} items to label; expected a whole number from 0 to {n_items}",
            code="ahead",
        )
    if settings.target is not None and settings.target_metric != "loss" and not 0 <= settings.target <= 1:
        raise InvalidInputError(
            f"target is {settings.target:g}; expected a number from 0 to 1 for {settings.target_metric}", code="target"
        )
    selector = parts.selector or make_selector(settings.selector, look_ahead=settings.look_ahead)
    if settings.suggestion_votes:
        require_suggestions(selector)
    if parts.rules is None:
        Rules.of(settings)


def check_pilot(settings: Settings, parts: Parts | None = None) -> None:
    """Refuse what needs trusted samples from the start, where none are given."""
    newton = (parts is None or parts.constructor is None) and settings.constructor == Settings().constructor
    wrong = {
        "trusted 'steer' (or preset 'paper') needs them to steer by": settings.trusted != TRAIN,
        f"constructor {settings.constructor!r} needs them to stop early": not newton,
        "suggestion_votes lets a suggestion vote, and none can be made without them": settings.suggestion_votes,
    }
    for why, there in wrong.items():
        if there:
            raise InvalidInputError(
                f"there are no trusted samples, and {why}. Give trusted samples, or leave the setting at its default: then the "
                f"first {FEWEST} answers are drawn by chance and become the trusted samples",
                code="val",
            )


def check_muted(data: CampaignData, settings: Settings) -> None:
    """Refuse to mute what is no source, or where nothing is learned about sources."""
    if not settings.muted:
        return
    if settings.trusted != TRAIN:
        raise InvalidInputError(
            "muted: nothing is learned about sources where trusted samples only steer; expected trusted 'train', the default, or "
            "votes without the sources that are not wanted",
            code="muted",
        )
    check_names(settings.muted, (WEAK_SOURCE,) if data.votes is None else data.votes.names)


def check_figures(data: CampaignData, settings: Settings, rules: Rules) -> None:
    """Refuse a metric that the data do not have; warn where too few samples judge."""
    check_metric(settings.target_metric, len(data.names))
    steering, judging = split_validation(data, settings)
    if settings.trusted == TRAIN and len(judging[1]) == 0:
        if data.from_nothing:
            return
        if rules.reads_metrics:
            check_judges(steering[1], steering[1], settings.holdout, read=True)
        return
    check_judges(judging[1], steering[1], settings.holdout, read=rules.reads_metrics)


def check_judges(judging: Ints, steering: Ints, holdout: float | str, *, read: bool) -> None:
    """Warn if no samples judge, or too few. `read` says whether a target or stopping rule reads the metrics.

    `holdout=0` is a choice of the user: it is warned about only if something reads the metrics.
    """
    remedy = "Add trusted samples, or give judges of your own: fit(…, known=Known(X_judge=…, y_judge=…))"
    if len(judging) == 0:
        if holdout == 0 and not read:
            return
        cause = f"all {len(steering)} validation samples steer the selection, too few to hold some out"
        if holdout == 0:
            cause = "holdout is 0, so the target or stopping rule reads samples that steer the selection"
        said = f"nothing judges: {cause}; what is read off them is optimistic. {remedy}"
    else:
        there = np.union1d(judging, steering)
        rarest = int(np.bincount(judging, minlength=int(there.max()) + 1)[there].min())
        if len(judging) >= FEWEST and rarest >= FEWEST_OF_A_CLASS:
            return
        said = (
            f"too small to judge: {len(judging)} validation samples are held out, {rarest} of the rarest class; expected "
            f"{FEWEST} and {FEWEST_OF_A_CLASS} or more. {remedy}"
        )
    warn_caller(said, JudgeWarning)


def split_validation(data: CampaignData, settings: Settings) -> tuple[Labelled, Labelled]:
    """The validation samples that steer, and those that judge."""
    X, y = data.validation
    judges = judges_of(data, settings)
    if not judges.any():
        return data.validation, data.judge if data.judge is not None else (X[:0], y[:0])
    return (X[~judges], y[~judges]), (X[judges], y[judges])


def with_strengths(data: CampaignData, settings: Settings, *, bias: bool = True) -> tuple[Settings, Tuned | None]:
    """The settings with gamma and l2 as numbers, and what was tried to choose those that were 'auto'.

    Where trusted samples train, the learner chooses them, along with the source model and again as labels come in.
    """
    if settings.trusted == TRAIN:
        return settings, None
    gamma, l2 = fixed(settings.gamma), fixed(settings.l2)
    if gamma is not None and l2 is not None:
        return settings, None
    steering, _ = split_validation(data, settings)
    tuned = tune(data.X, data.weak, data.clean, *steering, gamma=gamma, l2=l2, bias=bias, seed=settings.seed)
    return replace(settings, gamma=tuned.gamma, l2=tuned.l2), tuned


def all_votes(data: CampaignData, settings: Settings, table: LabelTable) -> AllVotes:
    """The votes of all sources on the samples and the trusted ones that train."""
    steering, edited = ~judges_of(data, settings), data.edited

    def later(version: int) -> SourceVotes:
        assert edited is not None, "asked of votes that were edited"
        train, val = edited(version)
        return train.above(val.rows(np.flatnonzero(steering)))

    return AllVotes(stacked_votes(data, steering), table.Y_weak, len(data.X), None if edited is None else later)


def new_session(
    data: CampaignData, settings: Settings, parts: Parts | None = None, heard: Heard | None = None
) -> Session:
    """A session that has no model yet; where trusted samples only steer, gamma and l2 must be numbers (`with_strengths`).

    `heard` says which votes the first model is made of; None for those that the settings leave.
    """
    parts = parts or Parts()
    bias, C = parts.bias, len(data.names)
    placement = choose_placement(settings.engine, parts.feature_dtype, data.X, parts.cluster)
    steering, judging = split_validation(data, settings)

    def split(part: Labelled) -> Split:
        return Split(*part, C, bias=bias, engine=placement.split)

    learner, sources = None, None
    heard = Heard(settings.muted) if heard is None else heard
    if settings.trusted == TRAIN:
        (X_val, y_val), N = steering, len(data.X)
        table = first_table(data, 0.0, y_val)
        objective = Objective(
            placement.training(data.X, bias=bias, more=X_val), table.rows, 1.0
        )  # the learner knows l2
        sources = all_votes(data, settings, table)
        learner = _learner(data, settings, table, *sources.under(heard), bias=bias)
        trusted: Split = CrossFitted(
            X_val, y_val, C, rows=np.arange(N, N + len(y_val)), bias=bias, engine=placement.split
        )
    else:
        table = first_table(data, float(settings.gamma))
        objective = Objective(placement.training(data.X, bias=bias), table.rows, float(settings.l2))
        trusted = split(steering)
    return Session(
        objective=objective,
        labels=table,
        steering=trusted,
        judging=split(judging) if len(judging[1]) else None,
        test=None if data.test is None else split(data.test),
        selector=copy.deepcopy(parts.selector) or make_selector(settings.selector, look_ahead=settings.look_ahead),
        constructor=copy.deepcopy(parts.constructor) or _constructor(settings),
        seed=settings.seed,
        learner=learner,
        sources=sources,
        heard=heard,
        metric=settings.target_metric,
        audit=settings.audit,
        blind_audit=not settings.suggestion_votes,
        chance_first=data.from_nothing,
    )


def _learner(
    data: CampaignData, settings: Settings, table: LabelTable, votes: SourceVotes, given: Any, *, bias: bool
) -> Learner:
    sources = None if settings.sources == AUTO else settings.sources
    return Learner(
        votes=votes,
        given=given,
        n_items=len(data.X),
        trusted=np.arange(len(data.X), len(table.Y)),
        bias=bias,
        seed=settings.seed,
        fixed=Fixed(fixed(settings.gamma), fixed(settings.l2), sources),
        answers=settings.answers,
        known=table.decided.copy(),
    )


def _constructor(settings: Settings) -> Constructor:
    proven = settings.trusted != TRAIN  # there an answer changes what is believed of all samples: updates are larger
    return make_constructor(
        settings.constructor, tol=settings.tol, proven=proven, descent=DescentSettings(seed=settings.seed)
    )
