"""The whole loop in memory: rounds until the budget is spent, the target reached, a rule stops, nothing is left."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from labelchef.aggregation import Aggregator
from labelchef.annotators import Annotator
from labelchef.campaign.session import Session
from labelchef.campaign.stopping import Progress, StoppingRule, TargetReached
from labelchef.domain.records import Batch, RoundRecord, StopReason


@dataclass(frozen=True)
class LoopSettings:
    """How far to go. `budget` counts samples asked, whatever came of it; None means no limit."""

    batch_size: int
    budget: int | None = None
    target: TargetReached | None = None
    stop: StoppingRule | None = None

    @property
    def reads_metrics(self) -> bool:
        """Whether a target or a rule reads what is judged."""
        return any(rule.reads_metrics for rule in (self.target, self.stop) if rule is not None)


def run_rounds(
    session: Session,
    annotator: Annotator,
    aggregator: Aggregator,
    settings: LoopSettings,
    on_round: Callable[[RoundRecord], None] | None = None,
) -> tuple[StopReason, str]:
    """Run rounds until something ends them; returns the reason and a sentence about it.

    State changes only in whole rounds: interrupt it, call it again, and it goes on where it stood.
    """
    while True:
        ended = _before(session, settings)
        if ended is not None:
            return ended
        began = time.perf_counter()
        batch = session.select(_batch_size(session, settings))
        seconds = {"select": time.perf_counter() - began}
        ended = _after_selection(session, settings, batch)
        if ended is not None:
            return ended
        began = time.perf_counter()
        votes = annotator.annotate(batch)
        seconds["annotate"] = time.perf_counter() - began
        began = time.perf_counter()
        decisions = aggregator.aggregate(votes, batch)
        seconds["aggregate"] = time.perf_counter() - began
        record = session.decide(batch, votes, decisions, seconds)
        if on_round is not None:
            on_round(record)


def _batch_size(session: Session, settings: LoopSettings) -> int:
    left = settings.batch_size if settings.budget is None else settings.budget - session.spent
    return min(settings.batch_size, left)


def _before(session: Session, settings: LoopSettings) -> tuple[StopReason, str] | None:
    progress = Progress(session.rounds)
    if settings.target is not None and settings.target.met(progress):
        return StopReason.TARGET, f"target reached: {settings.target}"
    if settings.budget is not None and session.spent >= settings.budget:
        return StopReason.BUDGET, f"budget spent: {session.spent} of {settings.budget} samples asked"
    if settings.stop is not None and settings.stop.met(progress):
        return StopReason.RULE, f"stopping rule: {settings.stop}"
    return None


def _after_selection(session: Session, settings: LoopSettings, batch: Batch) -> tuple[StopReason, str] | None:
    if len(batch) == 0:
        given_up = int((session.labels.askable & ~session.labels.cleaned).sum())
        note = f"; {given_up} stayed unresolved and keep their weak label" if given_up else ""
        return StopReason.NOTHING_LEFT, f"nothing left to clean{note}"
    if settings.stop is not None and settings.stop.met(Progress(session.rounds, batch)):
        return StopReason.RULE, f"stopping rule: {settings.stop}"
    return None
