"""From a ledger back to a trained state: the only code that applies past rounds.

`rebuild` is what a restart needs: the first model, the labels as they stand, and one fit to them. What the rounds selected
is not computed again; the records come from the ledger. More rounds cost more to read (0.1 ms each), and the one fit takes a few
more sweeps when more labels have changed (`python -m benchmarks restart`).

`replay` computes every round again, as it was computed then, and says where it comes out otherwise. On the same machine, with
the same libraries, every round is the same to the last bit. On another processor or with other libraries, numbers differ in their
last digits, and where a solver then stops a step earlier or later, by up to its tolerance `tol`. So a round that is not the same
is compared to within that: its selection agrees to rounding if the samples of the ledger are chosen again once scores that differ
by no more than tol (relative to their scale) count as tied, and its metrics if they differ by no more than ten times tol. Nothing
depends on the result of a replay, and a campaign goes on wherever it is opened.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from labelchef.base.campaigns import RoundKind
from labelchef.base.records import Heard, RoundRecord
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.ledger.protocol import PastRound, Selected, labels_hash, model_hash
from labelchef.loop.session import Session
from labelchef.loop.start import new_session
from labelchef.loop.steps import assembled, select
from labelchef.model.order import Ties

TOLERANCE = 1e-6
"""Relative difference of metrics below which two are the same."""
_WIDER = 10.0


class Verdict(StrEnum):
    """How something that was computed again compares with the ledger."""

    SAME = "same"
    ROUNDING = "same to rounding"
    DIFFERS = "differs"


def rebuild(
    data: CampaignData,
    settings: Settings,
    rounds: Sequence[RoundRecord],
    *,
    on_step: Callable[[int, float, float], None] | None = None,
    on_first: Callable[[Session], None] | None = None,
    first: RoundRecord | None = None,
    heard: Heard | None = None,
) -> Session:
    """The state after `rounds`, the closed rounds of a ledger without round 0.

    `on_first` is given the session when it has its first model, before the rounds are applied. `first` is round 0, if the
    ledger has it: what was chosen then, the ruling too, is not chosen again. `heard` is which votes the first model was made
    of, where `first` does not say it.
    """
    session = new_session(data, settings, heard=heard if first is None else first.heard)
    if session.learner is not None and first is not None:
        session.learner.choice, session.ruling = first.choice, first.ruling
    session.start(on_step)
    if on_first is not None:
        on_first(session)
    session.resume(rounds)
    session.fresh = (
        first is not None or len(rounds) > 0
    )  # also before round 1: a selection had taught the solvers something
    return session


@dataclass(frozen=True)
class ReplayedRound:
    """A round computed again beside what the ledger has; None where there is nothing to compare."""

    number: int
    kind: RoundKind
    selection: Verdict | None
    labels: Verdict | None
    metrics: Verdict | None
    model: Verdict | None
    """Whether the parameters are the same to the last bit; on another machine they may differ where all else agrees."""

    @property
    def agrees(self) -> bool:
        """Whether selection, labels and metrics came out as they did then, at least to rounding."""
        return Verdict.DIFFERS not in (self.selection, self.labels, self.metrics)

    @property
    def exact(self) -> bool:
        """Whether they came out as they did then without that."""
        return self.agrees and Verdict.ROUNDING not in (self.selection, self.labels, self.metrics)


def replay(data: CampaignData, settings: Settings, past: Sequence[PastRound]) -> Iterator[ReplayedRound]:
    """Fit again, select again, decide as the ledger says, and compare every round; the open one comes last.

    Settings may have changed on the way. A change that concerns the session has it rebuilt before its next step, which the round
    says (`rebuilt`), along with the settings of that time.
    """
    first = next((then.opened_with for then in past), None)
    begun = past[0].record if past else None
    session = rebuild(data, first or settings, [], heard=None if begun is None else begun.heard)
    records = list[RoundRecord]()
    for then in past:
        selection, asked, answered = None, then.selected, then.answered
        if asked is not None:
            if asked.rebuilt:
                session = rebuild(data, then.opened_with or settings, records, first=begun)
            selection = _selection(session, asked, then.selection_hash, (then.opened_with or settings).tol)
        record = session.rounds[0] if then.kind is RoundKind.INITIAL else None
        if answered is not None:
            if answered.rebuilt:
                session = rebuild(data, then.closed_with or settings, records, first=begun)
            heard = None if then.record is None else then.record.heard
            if session.learner is not None and then.record is not None and then.record.choice is not None:
                trusted = len(session.labels.cleaned) - session.n_train
                session.learner.leaps = then.record.choice.n_clean == then.record.cleaned + trusted
            record = session.decide(answered.batch, answered.votes, answered.decisions, heard=heard)
        if then.record is not None and then.number > 0:
            records.append(then.record)
        labels = metrics = model = None
        if record is not None:
            labels = _equal(then.labels_hash, labels_hash(*session.label_state))
            metrics = None if then.record is None else _same_metrics(record, then.record, settings.tol)
            model = _equal(then.model_hash, model_hash(session.parameters))
        yield ReplayedRound(then.number, then.kind, selection, labels, metrics, model)


def _selection(session: Session, asked: Selected, then: str | None, tol: float) -> Verdict:
    """The selection made again, beside the one of the ledger."""
    reopened = asked.batch.indices[: asked.reopened]
    if select(session, asked.size, asked.ahead_size, reopened).hash == then:
        return Verdict.SAME
    if asked.hash != then:  # the samples in the ledger are not those of its hash
        return Verdict.DIFFERS
    chosen = np.concatenate([asked.batch.indices, asked.ahead.indices])
    tied = partial(session.selected_again, ties=Ties(tol, chosen))
    first = session.suggest(reopened[: asked.size])
    again = assembled(asked.size, asked.ahead_size, first, tied, as_drawn=session.in_pilot)
    found = np.concatenate([part.indices for part in again])
    return Verdict.ROUNDING if np.array_equal(np.sort(found), np.sort(chosen)) else Verdict.DIFFERS


def _equal(then: str | None, now: str) -> Verdict | None:
    return None if then is None else Verdict.SAME if then == now else Verdict.DIFFERS


def _same_metrics(one: RoundRecord, two: RoundRecord, tol: float) -> Verdict:
    now, then = _metrics(one), _metrics(two)
    if now.keys() != then.keys():
        return Verdict.DIFFERS
    apart = max((abs(now[k] - then[k]) / max(1.0, abs(then[k])) for k in now), default=0.0)
    if apart <= TOLERANCE:
        return Verdict.SAME
    return Verdict.ROUNDING if apart <= _WIDER * tol else Verdict.DIFFERS


def _metrics(record: RoundRecord) -> dict[tuple[str, str], float]:
    splits = {"validation": record.validation, "steering": record.steering, "test": record.test}
    return {(split, name): v for split, found in splits.items() if found for name, v in found.as_dict().items()}
