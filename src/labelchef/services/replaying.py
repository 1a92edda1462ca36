"""Run a campaign's history again from its ledger and compare it, hash by hash."""

from collections.abc import Callable
from dataclasses import dataclass

from labelchef.domain.campaigns import RoundKind
from labelchef.services import fold
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table


@dataclass(frozen=True)
class ReplayRound:
    """A round run again beside what the ledger has; None where there is nothing to compare."""

    number: int
    kind: RoundKind
    selection: bool | None
    labels: bool | None
    metrics: bool | None
    model: bool | None
    """Whether the parameters are the same to the last bit; the same labels may differ there on another machine."""

    @property
    def agrees(self) -> bool:
        """Whether selection, labels and metrics came out as they did then."""
        return False not in (self.selection, self.labels, self.metrics)


@dataclass(frozen=True)
class ReplayOutcome:
    """What a replay came to."""

    agrees: bool
    message: str
    rounds: tuple[ReplayRound, ...]


def replay(ws: Workspace, campaign: str, on_round: Callable[[ReplayRound], None] | None = None) -> ReplayOutcome:
    """Fit again, select again, decide again as the ledger says, and compare every round.

    Nothing is written; a worker may run meanwhile.
    """
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
    compared: list[ReplayRound] = []
    for step in fold.unfold(ws, row):
        then = step.row
        closed = step.record is not None
        found = ReplayRound(
            number=then.number,
            kind=then.kind,
            selection=None if step.selection is None else step.selection == then.selection_hash,
            labels=step.labels == then.labels_hash if closed else None,
            metrics=None
            if step.record is None
            else fold.same_metrics(fold.metrics_of(step.record), then.metrics or {}),
            model=fold.model_hash(step.folded.cleaner) == then.model_hash if closed else None,
        )
        compared.append(found)
        if on_round is not None:
            on_round(found)
    wrong = [r.number for r in compared if not r.agrees]
    message = (
        f"round {wrong[0]} and {len(wrong) - 1} later ones came out otherwise than the ledger says"
        if wrong
        else f"{len(compared)} rounds came out as the ledger says: selections, labels and metrics"
    )
    return ReplayOutcome(not wrong, message, tuple(compared))
