"""What would change if other votes of sources were heard: muted sources, sources that are heard again, edited rules.

The model is really made: the learner chooses source model, γ and λ by the same cross-validation as for any model, and the same
constructor finds the minimum of F. Then both models are compared on the same samples:

    metrics       on the samples that judge, cross-fitted where they train; the difference with a paired interval (`gain.gains`)
    believed      samples without an answer (copies count once) whose most probable class by model and sources is another
    predicted     samples without an answer of which the model predicts another class

Where the choice comes out otherwise, part of the difference is that of another source model: cross-fitted losses of different
source models are not equally exact, and a choice by cross-validation is noisy. So the difference with the choice as it is
(`kept`) stands beside it.

`closed_form` is what `source_report.muting` predicts for the sources that are newly muted, added up; the choice stays there.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelchef.base.arrays import Float64s, Ints
from labelchef.base.errors import ConflictError
from labelchef.base.learning import Choice, InUse
from labelchef.base.records import Heard, Metrics
from labelchef.base.validation import Gain
from labelchef.judge.gain import gains
from labelchef.loop.judging import CrossFitted
from labelchef.loop.session import Session
from labelchef.loop.source_report import muting

MOST_SHOWN = 20
"""Samples whose believed class changes that are named."""
Told = Callable[[str], None]
"""Hears what is being computed, in words."""


@dataclass(frozen=True)
class ChangedBelief:
    """A sample without an answer of which another class would be believed."""

    position: int
    before: int
    after: int
    p_before: float
    """Probability of the class that is believed now."""
    p_after: float
    """Probability of the class that would be believed."""


@dataclass(frozen=True)
class SourceEffect:
    """The model as it is beside the one that would be made of other votes."""

    before: Heard
    after: Heard
    gains: Mapping[str, Mapping[str, Gain]]
    """By split ('validation', 'test') and metric."""
    kept: Mapping[str, Mapping[str, Gain]]
    """The same with source model, γ and λ as they are now; empty where these do not change."""
    baselines: Mapping[str, Mapping[str, Metrics]]
    """By split: 'trusted_only' and 'no_weak', which no source changes."""
    unanswered: int
    believed: int
    predicted: int
    shown: tuple[ChangedBelief, ...] = ()
    """Those whose belief changes most first."""
    in_use_before: InUse | None = None
    in_use_after: InUse | None = None
    closed_form: float = float("nan")
    seconds: float = 0.0
    parameters: Float64s = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    """W (D, C) of the model that would be made."""


def effect_of(session: Session, heard: Heard, told: Told = lambda _: None) -> SourceEffect:
    """What the model of a session would be if these votes were heard; the session stays as it is."""
    learner, began = session.learner, time.perf_counter()
    if learner is None or session.sources is None or learner.choice is None:
        why = "nothing is learned about sources here: trusted samples only steer, or the model is a network"
        raise ConflictError(why, code="sources")
    told("looking at the model as it is")
    first, baselines, now = _Seen.of(session), session.rounds[-1].baselines, session.heard
    choice, used, predicted_change = (
        learner.choice,
        InUse.of(learner.choice, session.ruling),
        _closed_form(session, heard),
    )
    told("choosing by cross-validation and fitting with the other votes")
    with session.supposing(heard):
        told("comparing")
        last = _Seen.of(session)
        assert session.learner is not None, "as before"
        other_choice = session.learner.choice
        after, W = InUse.of(other_choice, session.ruling), session.parameters.copy()
    found, kept = _gains(session, first, last), dict[str, Mapping[str, Gain]]()
    if other_choice is not None and not _same(choice, other_choice):
        told("fitting with the choice as it is")
        with session.supposing(heard, keep_choice=True):
            kept = _gains(session, first, _Seen.of(session))
    open_ = ~(session.labels.cleaned | session.labels.silent)[: session.n_train]
    old, new = first.Q.argmax(axis=1), last.Q.argmax(axis=1)
    other = np.flatnonzero(open_ & (old != new))
    moved = np.abs(last.Q - first.Q).sum(axis=1)[other]
    most = other[np.argsort(-moved, kind="stable")[:MOST_SHOWN]]
    return SourceEffect(
        before=now,
        after=heard,
        gains=found,
        kept=kept,
        baselines=baselines,
        unanswered=int(open_.sum()),
        believed=len(other),
        predicted=int((open_ & (first.predicted != last.predicted)).sum()),
        shown=tuple(_changed(row, first.Q, last.Q) for row in most.tolist()),
        in_use_before=used,
        in_use_after=after,
        closed_form=predicted_change,
        seconds=time.perf_counter() - began,
        parameters=W,
    )


@dataclass(frozen=True)
class _Seen:
    """A model on the samples that judge, and on all N."""

    judged: Mapping[str, Any]
    Q: Float64s
    """(N, C) beliefs."""
    predicted: Ints
    """(N,)"""

    @classmethod
    def of(cls, session: Session) -> "_Seen":
        n = slice(session.n_train)
        judged = {name: part.judged(session.parameters) for name, part in session.judges.items()}
        return cls(judged, session.posterior()[n], session.predicted(n))


def _gains(session: Session, first: _Seen, last: _Seen) -> dict[str, Mapping[str, Gain]]:
    """Of every metric on every part that judges."""
    C, seed = session.labels.n_classes, session.seed
    return {
        name: gains(part.y, first.judged[name], last.judged[name], C, seed, cross_fitted=isinstance(part, CrossFitted))
        for name, part in session.judges.items()
    }


def _same(one: Choice, two: Choice) -> bool:
    """Whether the learner uses the same source model and strengths."""
    return (one.model, one.gamma, one.strength) == (two.model, two.gamma, two.strength)


def _changed(row: int, old: Float64s, new: Float64s) -> ChangedBelief:
    a, b = int(old[row].argmax()), int(new[row].argmax())
    return ChangedBelief(row, a, b, float(old[row, a]), float(new[row, b]))


def _closed_form(session: Session, heard: Heard) -> float:
    """The predicted change of the loss by muting alone; NaN where something else changes too."""
    assert session.learner is not None, "asked of sessions that learn about sources"
    fresh = set(heard.muted) - set(session.heard.muted)
    if heard.version != session.heard.version or not fresh or set(session.heard.muted) - set(heard.muted):
        return float("nan")
    places = np.array([j for j, name in enumerate(session.learner.votes.names) if name in fresh], dtype=np.int64)
    return float(muting(session, places).sum())
