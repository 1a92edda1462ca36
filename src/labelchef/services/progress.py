"""How a campaign goes: metrics of every round, what was predicted and what came of it, agreement, people."""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labelchef.domain.campaigns import SUGGESTION, DecisionKind, Origin, RoundKind
from labelchef.domain.validation import Gain, note_on
from labelchef.services.people.access import looking
from labelchef.services.people.agreement import (
    PairAgreement,
    PersonQuality,
    Pull,
    fleiss_of,
    pairs_of,
    pull_of,
    quality_of,
)
from labelchef.services.shared import common
from labelchef.services.workspace import Workspace
from labelchef.store import decision_table, round_table, selection_table, vote_table
from labelchef.store.rows import DecisionRow, RoundRow, SelectionBrief


@dataclass(frozen=True)
class RoundProgress:
    """A closed round in numbers."""

    number: int
    kind: RoundKind
    spent: int
    validation: dict[str, float]
    """On the samples that judge; on those that steer where none judges."""
    steering: dict[str, float]
    gain: Gain | None
    """Of the target metric, this model against the first one; None where nothing judges."""
    test: dict[str, float] | None
    predicted_change: float | None
    """Of the loss on the samples that steer: what was predicted of the answers that were given; None where nothing was."""
    realised_change: float | None
    """Of that loss, what came of them; None for round 0."""
    asked: int
    resolved: int
    suggested: int
    """Items that had a suggestion."""
    followed: int
    """Items decided as suggested."""
    seconds_per_item: float | None
    """Median over the votes of people."""


@dataclass(frozen=True)
class ProgressReport:
    """Everything the progress page shows but the map."""

    metric: str
    target: float | None
    spent: int
    budget: int | None
    rounds: tuple[RoundProgress, ...]
    pairs: tuple[PairAgreement, ...]
    fleiss_kappa: float | None
    suggestion: Pull
    people: tuple[PersonQuality, ...]

    @property
    def gain(self) -> Gain | None:
        """What cleaning has brought so far."""
        return self.rounds[-1].gain if self.rounds else None

    @property
    def note(self) -> str:
        """What a reader of the metrics should know."""
        return note_on(self.gain)


def progress(ws: Workspace, campaign: str) -> ProgressReport:
    """The campaign in numbers, from the ledger alone."""
    with looking(ws, campaign) as (connection, row):
        rounds = round_table.rounds_of(connection, row.id)
        votes = vote_table.live_votes_of_campaign(connection, row.id)
        decided = decision_table.last_decisions(connection, row.id)
        selections = selection_table.selections_of_campaign(connection, row.id)
    settings = row.settings
    people = [vote for vote in votes if vote.person != SUGGESTION]
    batches: dict[int, list[SelectionBrief]] = defaultdict(list)
    for selection in selections:
        if selection.origin != Origin.AHEAD:
            batches[selection.round_id].append(selection)
    seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for vote in people:
        if vote.seconds is not None:
            seconds[vote.item_id, vote.attempt].append(vote.seconds)
    return ProgressReport(
        metric=settings.target_metric,
        target=settings.target,
        spent=row.spent,
        budget=settings.budget,
        rounds=tuple(
            _round(turn, turn.metrics, batches[turn.id], decided, seconds, settings.target_metric)
            for turn in rounds
            if not turn.is_open and turn.metrics is not None
        ),
        pairs=pairs_of(people),
        fleiss_kappa=fleiss_of(people),
        suggestion=pull_of(people),
        people=quality_of(people, decided),
    )


def _round(
    turn: RoundRow,
    metrics: Mapping[str, Any],
    batch: list[SelectionBrief],
    decided: Mapping[int, DecisionRow],
    seconds: Mapping[tuple[int, int], list[float]],
    metric: str,
) -> RoundProgress:
    labels = [_label_of(decided, s) for s in batch]
    gains = gains_of(metrics).get("validation")
    times = [t for s in batch for t in seconds.get((s.item_id, s.attempt), ())]
    return RoundProgress(
        **common(RoundProgress, turn),
        validation=metrics["validation"],
        steering=metrics["steering"],
        gain=None if gains is None else gains[metric],
        test=metrics.get("test"),
        asked=len(batch),
        resolved=sum(label is not None for label in labels),
        suggested=sum(s.suggested is not None for s in batch),
        followed=sum(s.suggested is not None and s.suggested == label for s, label in zip(batch, labels, strict=True)),
        seconds_per_item=statistics.median(times) if times else None,
    )


def _label_of(decided: Mapping[int, DecisionRow], selection: SelectionBrief) -> int | None:
    """The decision on a selection's attempt; None if there is none, or a later attempt took its place."""
    made = decided.get(selection.item_id)
    fits = made is not None and made.attempt == selection.attempt and made.kind != DecisionKind.REOPEN
    return made.label if made is not None and fits else None


def gains_of(metrics: Mapping[str, Any] | None) -> dict[str, dict[str, Gain]]:
    """The gains that were stored with a round, by split ('validation', 'test') and metric."""
    stored = {} if metrics is None else metrics["gain"]
    return {split: {name: Gain(**values) for name, values in found.items()} for split, found in stored.items()}
