"""What is due in a campaign, and when it is over: the one loop behind `LabelCleaner.run`, `labelchef clean` and the worker.

    nothing yet ──fit──▶ round 0 is closed
    no batch is out ──select──▶ a batch is out, or the campaign is over
    a batch has its votes ──count──▶ votes are decisions
    decisions the model does not know ──close──▶ the model has followed, the round is closed

`due` reads the ledger's standing and names the step; `step` takes it. Between steps the ledger holds everything, so a
process may end anywhere and another may go on. What differs between the three users is the ledger, and the source of
the votes: an annotator in Python, simulated or recorded people, or people in a browser.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from labelchef.base.arrays import Ints
from labelchef.base.campaigns import RoundState
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import Batch, Heard, RoundRecord, StopReason
from labelchef.base.settings import Settings
from labelchef.believe.aggregation import Aggregator, MajorityVote
from labelchef.loop.annotators import Annotator
from labelchef.loop.ledger import Ledger, MemoryLedger, Selected, Standing
from labelchef.loop.session import Session
from labelchef.loop.stopping import Progress, StoppingRule, TargetReached, parse_rule


class Step(StrEnum):
    """What may be due."""

    FIT = "fit"
    SELECT = "select"
    COUNT = "count"
    CLOSE = "close"


def due(now: Standing) -> Step | None:
    """The step that is due; None while the campaign waits for votes, has failed, or is over."""
    if now.failed:
        return None
    if now.closed == 0:
        return Step.FIT if now.running else None
    if now.batch is RoundState.AGGREGATED:
        return Step.CLOSE
    if now.batch is RoundState.SELECTED:
        return Step.COUNT if now.complete and now.running else None
    if now.pending:
        return Step.CLOSE
    return Step.SELECT if now.running else None


@dataclass(frozen=True)
class Rules:
    """What ends a campaign besides the budget: a target, and a further rule."""

    target: TargetReached | None = None
    stop: StoppingRule | None = None

    @classmethod
    def of(cls, settings: Settings) -> "Rules":
        """The rules that the settings name."""
        target = None if settings.target is None else TargetReached(settings.target_metric, settings.target)
        rules = cls(target, None if settings.stop is None else parse_rule(settings.stop))
        rules.check_audit(settings)
        return rules

    @property
    def reads_metrics(self) -> bool:
        """Whether a rule reads a metric, which samples that judge should measure."""
        return any(rule.reads_metrics for rule in (self.target, self.stop) if rule is not None)

    def check_audit(self, settings: Settings) -> None:
        """Refuse a rule that reads the audit where nothing is audited."""
        if settings.audit == 0.0 and self.stop is not None and self.stop.reads_audit:
            raise InvalidInputError(
                f"the stopping rule ({self.stop}) reads the audit, but audit is 0; expected a share of what is asked, such as "
                "audit 0.1, or another rule",
                code="audit",
            )

    def ending(
        self, session: Session, budget: int | None, spent: int, batch: Batch | None = None
    ) -> tuple[StopReason, str] | None:
        """Why nothing more is to be asked, or None: before a selection without `batch`, after it with the batch."""
        progress = Progress(session.rounds, batch)
        if batch is not None and len(batch) == 0:
            left = int((session.labels.askable & ~session.labels.cleaned).sum())
            note = f"; {left} stayed unresolved and keep their weak label" if left else ""
            return StopReason.NOTHING_LEFT, f"{StopReason.NOTHING_LEFT}{note}"
        if batch is None and self.target is not None and self.target.met(progress):
            return StopReason.TARGET, f"{StopReason.TARGET}: {self.target}"
        if batch is None and budget is not None and spent >= budget:
            return StopReason.BUDGET, f"{StopReason.BUDGET}: {spent} of {budget} samples asked"
        if self.stop is not None and self.stop.met(progress):
            return StopReason.RULE, f"{StopReason.RULE}: {self.stop}"
        return None


@dataclass(frozen=True)
class Stepper:
    """Takes the steps of one campaign.

    `session` gives the trained state that belongs to the ledger as it stands; `forget` says that the state has moved on
    but the ledger has not, so that it must be built again.
    """

    ledger: Ledger
    session: Callable[[], Session]
    forget: Callable[[], None]
    aggregator: Aggregator
    rules: Rules | None = None
    """Rules that were handed in as objects; None for those of the settings."""
    on_round: Callable[[RoundRecord], None] | None = None

    def step(self) -> Step | None:
        """Take the step that is due, if any, and say which it was."""
        now = self.ledger.standing()
        found = due(now)
        if found is Step.FIT:
            session = self.session()
            self._forget_unless(self.ledger.begin(session.rounds[0], session))
        elif found is Step.COUNT:
            self.ledger.count(self.aggregator)
        elif found is Step.CLOSE:
            self._close(now)
        elif found is Step.SELECT:
            self._select(now)
        return found

    def _close(self, now: Standing) -> None:
        session = self.session()
        answered = replace(self.ledger.answered(), rebuilt=session.fresh)
        record = session.decide(
            answered.batch, answered.votes, answered.decisions, dict(answered.seconds), heard=self._heard(session, now)
        )
        self._forget_unless(self.ledger.close(answered, record, session))
        if self.on_round is not None:
            self.on_round(record)

    @staticmethod
    def _heard(session: Session, now: Standing) -> Heard | None:
        """Which votes of sources the next model is made of; None where nothing is learned about them."""
        return None if session.sources is None else now.heard

    def _select(self, now: Standing) -> None:
        session, settings = self.session(), now.settings
        rules = self.rules or Rules.of(settings)
        over = rules.ending(session, settings.budget, now.spent)
        if over is None:
            size, ahead = sizes(settings, now.spent)
            selected = select(session, size, ahead, now.reopened)
            over = rules.ending(session, settings.budget, now.spent, selected.batch)
            if over is None:
                self._forget_unless(self.ledger.open(now, selected))
                return
            self.forget()  # it has selected, and the ledger will not know
        self.ledger.end(now, *over)

    def _forget_unless(self, written: bool) -> None:
        if not written:
            self.forget()


def sizes(settings: Settings, spent: int) -> tuple[int, int]:
    """How many samples the next batch has, and how many the work ahead, within the budget.

    >>> sizes(Settings(batch_size=10, ahead=5, budget=12), 0), sizes(Settings(batch_size=10, budget=12), 10)
    ((10, 2), (2, 0))
    """
    left = settings.batch_size + settings.ahead if settings.budget is None else settings.budget - spent
    size = min(settings.batch_size, left)
    return size, max(0, min(settings.ahead, left - size))


def select(session: Session, size: int, ahead: int, reopened: Ints) -> Selected:
    """The next batch: what a lead took back first, then the selector's choice, then the work ahead."""
    began, rebuilt = time.perf_counter(), session.fresh
    first = session.suggest(reopened[:size])
    batch, more = assembled(size, ahead, first, session.select, as_drawn=session.in_pilot)
    session.fresh = False
    return Selected(batch, more, len(first), size, ahead, time.perf_counter() - began, rebuilt)


def assembled(
    size: int, ahead: int, first: Batch, choose: Callable[[int, int], Batch], *, as_drawn: bool = False
) -> tuple[Batch, Batch]:
    """`first` and then what `choose(samples, of them ahead)` gives, as a batch and the work ahead.

    `as_drawn` says that what is drawn by chance stands in the order in which it was drawn.
    """
    chosen = choose(size, 0).without(first.indices)
    rest = chosen.take(slice(size - len(first)))
    if len(rest.diagnostics.audited) < len(chosen.diagnostics.audited) and not as_drawn:
        # those that were cut off are the last in order, not drawn by chance: without them the others are no fair draw
        rest = replace(rest, diagnostics=replace(rest.diagnostics, audited=()))
    batch = first.joined(rest)
    more = Batch.without_predictions(np.empty(0, dtype=np.int64))
    if ahead:
        more = choose(size + ahead, ahead).without(batch.indices).take(slice(ahead))
    return batch, more


def run(
    ledger: MemoryLedger,
    session: Session,
    annotator: Annotator,
    aggregator: Aggregator | None = None,
    rules: Rules | None = None,
    on_round: Callable[[RoundRecord], None] | None = None,
) -> tuple[StopReason, str]:
    """Take steps, with the annotator's votes, until the campaign is over; returns the reason and a sentence about it.

    State changes only in whole rounds: after an interrupt, call it again and it goes on with the round that was cut off.
    """
    stepper = Stepper(ledger, lambda: session, ledger.withdraw, aggregator or MajorityVote(), rules, on_round)
    ledger.reopen()
    while ledger.ended is None:
        if stepper.step() is None:
            assert ledger.selected is not None, "a campaign that is not over waits for votes"
            began = time.perf_counter()
            votes = annotator.annotate(ledger.selected.batch)
            ledger.vote(votes, time.perf_counter() - began)
    return ledger.ended
