"""From a ledger back to a trained state: the only code that applies past rounds.

`rebuild` is what a restart needs: the first model, the labels as they stand, and one fit to them. What the rounds selected
is not computed again; the records come from the ledger. More rounds cost more to read (0.1 ms each), and the one fit takes a few
more sweeps when more labels have changed (`python -m benchmarks restart`).

`replay` computes every round again, as it was computed then, and says where it comes out otherwise: after another version
of a library, or on another machine, it may. Nothing depends on its result.
"""

from collections.abc import Callable, Iterator, Sequence
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


def rebuild(
    data: CampaignData,
    settings: Settings,
    rounds: Sequence[RoundRecord],
    *,
    on_step: Callable[[int, float, float], None] | None = None,
    on_first: Callable[[Session], None] | None = None,
    first: RoundRecord | None = None,
) -> Session:
    """The state after `rounds`, the closed rounds of a ledger without round 0.

    `on_first` is given the session when it has its first model, before the rounds are applied. `first` is round 0, if the
    ledger has it: what the learner chose then is not chosen again.
    """
    session = new_session(data, settings)
    if session.learner is not None and first is not None:
        session.learner.choice = first.choice
    session.start(on_step)
    if on_first is not None:
        on_first(session)
    session.resume(rounds)
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
    session, records = rebuild(data, settings, []), list[RoundRecord]()
    for then in past:
        selection, asked, answered = None, then.selected, then.answered
        if asked is not None:
            if asked.rebuilt:
                session = rebuild(data, settings, records)
            again = select(session, asked.size, asked.ahead_size, asked.batch.indices[: asked.reopened])
            selection = again.hash == then.selection_hash
        record = session.rounds[0] if then.kind is RoundKind.INITIAL else None
        if answered is not None:
            if answered.rebuilt:
                session = rebuild(data, settings, records)
            record = session.decide(answered.batch, answered.votes, answered.decisions)
        if then.record is not None and then.number > 0:
            records.append(then.record)
        labels = metrics = model = None
        if record is not None:
            labels = _equal(then.labels_hash, labels_hash(*session.label_state))
            metrics = None if then.record is None else _same_metrics(record, then.record)
            model = _equal(then.model_hash, model_hash(session.parameters))
        yield ReplayedRound(then.number, then.kind, selection, labels, metrics, model)


def _equal(then: str | None, now: str) -> bool | None:
    return None if then is None else then == now


def _same_metrics(one: RoundRecord, two: RoundRecord) -> bool:
    now, then = _metrics(one), _metrics(two)
    close = (abs(now[k] - then[k]) <= TOLERANCE * max(1.0, abs(then[k])) for k in now.keys() & then.keys())
    return now.keys() == then.keys() and all(close)


def _metrics(record: RoundRecord) -> dict[tuple[str, str], float]:
    splits = {"validation": record.validation, "steering": record.steering, "test": record.test}
    return {(split, name): v for split, found in splits.items() if found for name, v in found.as_dict().items()}
