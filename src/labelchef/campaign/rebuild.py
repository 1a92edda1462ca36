"""From a ledger back to a trained state: the only code that applies past rounds.

`rebuild` is what a restart needs: the first model, the labels as they stand, and one fit to them. What the rounds selected
is not computed again; the records come from the ledger. Its cost does not depend on the number of rounds, reading aside.

`replay` computes every round again, as it was computed then, and says where it comes out otherwise: after another version
of a library, or on another machine, it may. Nothing depends on its result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from labelchef.campaign.data import CampaignData
from labelchef.campaign.session import Session
from labelchef.campaign.start import new_session
from labelchef.campaign.steps import select
from labelchef.domain.campaigns import RoundKind
from labelchef.domain.records import RoundRecord
from labelchef.domain.settings import Settings
from labelchef.ledger.protocol import PastRound, labels_hash, model_hash

TOLERANCE = 1e-6
"""Relative difference of metrics below which two are the same."""

OnStep = Callable[[int, float, float], None]


def rebuild(
    data: CampaignData,
    settings: Settings,
    rounds: Sequence[RoundRecord],
    *,
    on_step: OnStep | None = None,
    on_first: Callable[[Session], None] | None = None,
) -> Session:
    """The state after `rounds`, the closed rounds of a ledger without round 0.

    `on_first` is given the session when it has its first model, before the rounds are applied.
    """
    session = started(data, settings, on_step)
    if on_first is not None:
        on_first(session)
    session.resume(rounds)
    return session


def started(data: CampaignData, settings: Settings, on_step: OnStep | None = None) -> Session:
    """A session with its first model."""
    session = new_session(data, settings)
    session.start(on_step)
    return session


@dataclass(frozen=True)
class ReplayedRound:
    """A round computed again beside what the ledger has; None where there is nothing to compare."""

    number: int
    kind: RoundKind
    selection: bool | None
    labels: bool | None
    metrics: bool | None
    model: bool | None
    """Whether the parameters are the same to the last bit; on another machine they may differ where all else agrees."""

    @property
    def agrees(self) -> bool:
        """Whether selection, labels and metrics came out as they did then."""
        return False not in (self.selection, self.labels, self.metrics)


def replay(data: CampaignData, settings: Settings, past: Sequence[PastRound]) -> Iterator[ReplayedRound]:
    """Fit again, select again, decide as the ledger says, and compare every round; the open one comes last."""
    session, records = started(data, settings), list[RoundRecord]()
    for then in past:
        selection = None
        if then.selected is not None:
            asked = then.selected
            if asked.rebuilt:
                session = rebuild(data, settings, records)
            again = select(session, asked.size, asked.ahead_size, asked.batch.indices[: asked.reopened])
            selection = again.hash == then.selection_hash
        record = session.rounds[0] if then.kind is RoundKind.INITIAL else None
        if then.answered is not None:
            answered = then.answered
            if answered.rebuilt:
                session = rebuild(data, settings, records)
            record = session.decide(answered.batch, answered.votes, answered.decisions)
        if then.record is not None and then.number > 0:
            records.append(then.record)
        yield ReplayedRound(
            number=then.number,
            kind=then.kind,
            selection=selection,
            labels=None if record is None else _equal(then.labels_hash, labels_hash(*session.label_state)),
            metrics=None if record is None or then.record is None else _same_metrics(record, then.record),
            model=None if record is None else _equal(then.model_hash, model_hash(session.parameters)),
        )


def _equal(then: str | None, now: str) -> bool | None:
    return None if then is None else then == now


def _same_metrics(one: RoundRecord, two: RoundRecord) -> bool:
    parts = [(one.validation, two.validation), (one.steering, two.steering)]
    if (one.test is None) != (two.test is None):
        return False
    if one.test is not None and two.test is not None:
        parts.append((one.test, two.test))
    return all(_close(a.as_dict(), b.as_dict()) for a, b in parts)


def _close(one: Mapping[str, float], two: Mapping[str, float]) -> bool:
    return one.keys() == two.keys() and all(abs(one[k] - two[k]) <= TOLERANCE * max(1.0, abs(two[k])) for k in one)
