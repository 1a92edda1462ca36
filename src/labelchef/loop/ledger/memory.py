"""A ledger in memory: the rounds are the session's own list, so a round is either in both or in neither."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from labelchef.base.campaigns import RoundKind, RoundState
from labelchef.base.records import Batch, Decisions, Heard, RoundRecord, StopReason, Votes
from labelchef.base.settings import Settings
from labelchef.believe.aggregation import Aggregator
from labelchef.loop.ledger.protocol import NO_BATCH, NO_ITEMS, Answered, Model, PastRound, Selected, Standing


@dataclass
class MemoryLedger:
    """`history` is the list that the session appends its records to. `vote` gives the open batch its votes."""

    settings: Settings
    history: list[RoundRecord] = field(default_factory=list)
    ended: tuple[StopReason, str] | None = None
    """Why nothing more is asked; None while there is more to do."""
    selected: Selected | None = None
    """The batch that is out."""
    _votes: Votes | None = None
    _decisions: Decisions | None = None
    _seconds: dict[str, float] = field(default_factory=dict)

    def standing(self) -> Standing:
        """Where the campaign stands."""
        state = None
        if self.selected is not None:
            state = RoundState.SELECTED if self._decisions is None else RoundState.AGGREGATED
        spent = self.history[-1].spent if self.history else 0
        complete, running = self._votes is not None, self.ended is None
        pending = state is None and bool(self.history) and self.history[-1].heard != Heard(self.settings.muted)
        return Standing(self.settings, len(self.history), spent, state, complete, pending=pending, running=running)

    def begin(self, record: RoundRecord, model: Model) -> bool:  # noqa: ARG002 (nothing but the record is kept)
        """Write round 0."""
        self._keep(record)
        return True

    def open(self, now: Standing, selected: Selected) -> bool:  # noqa: ARG002 (nobody else writes here)
        """Put a batch to people."""
        self.withdraw()
        self.selected, self._seconds = selected, {"select": selected.seconds}
        return True

    def end(self, now: Standing, reason: StopReason, message: str) -> bool:  # noqa: ARG002
        """Write down that nothing more is asked, and why."""
        self.ended = (reason, message)
        return True

    def vote(self, votes: Votes, seconds: float | None = None) -> None:
        """The votes on the open batch; it is complete then."""
        assert self.selected is not None, "a batch is open"
        self._votes = votes
        if seconds is not None:
            self._seconds["annotate"] = seconds

    def count(self, aggregator: Aggregator) -> bool:
        """Turn the votes of the open batch into decisions."""
        assert self.selected is not None, "a batch is open"
        assert self._votes is not None, "it has its votes"
        began = time.perf_counter()
        self._decisions = aggregator.aggregate(self._votes, self.selected.batch)
        self._seconds["aggregate"] = time.perf_counter() - began
        return True

    def decide(self, batch: Batch, votes: Votes, decisions: Decisions, seconds: dict[str, float]) -> None:
        """A batch with its answers all at once."""
        self.selected = Selected(batch, NO_BATCH, 0, len(batch), 0)
        self._votes, self._decisions, self._seconds = votes, decisions, seconds

    def answered(self) -> Answered:
        """The decisions on the open batch; none where only other sources are heard from now on."""
        if self.selected is None:
            return Answered(NO_BATCH, Votes.of([]), Decisions.sure(NO_ITEMS, NO_ITEMS))
        assert self._votes is not None, "it has its votes"
        assert self._decisions is not None, "they were counted"
        return Answered(self.selected.batch, self._votes, self._decisions, self._seconds)

    def close(self, answered: Answered, record: RoundRecord, model: Model) -> bool:  # noqa: ARG002
        """Write the round; its batch is no longer open."""
        self._keep(record)
        self.withdraw()
        return True

    def withdraw(self) -> None:
        """Take back the open batch: nothing of it is kept."""
        self.selected = self._votes = self._decisions = None
        self._seconds = {}

    def reopen(self) -> None:
        """Go on after an end or an interrupt, with settings that may have changed."""
        self.withdraw()
        self.ended = None

    def rounds(self) -> Sequence[RoundRecord]:
        """The closed rounds in order, round 0 first."""
        return self.history

    def past(self) -> Iterator[PastRound]:
        """All rounds in order; without hashes, selections are compared sample by sample."""
        for record in self.history:
            if record.number == 0:
                yield PastRound(0, RoundKind.INITIAL, record=record)
                continue
            asked = record.asked
            batch = record.batch.take(slice(asked))
            selected = Selected(batch, NO_BATCH, 0, asked, 0) if asked else None
            yield PastRound(
                record.number,
                RoundKind.BATCH if asked else RoundKind.CORRECTION,
                selected,
                Answered(batch, record.votes, record.decisions),
                record,
                None if selected is None else selected.hash,
            )

    def _keep(self, record: RoundRecord) -> None:
        if not self.history or self.history[-1] is not record:  # a session's own list has it already
            self.history.append(record)
