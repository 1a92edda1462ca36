"""How a campaign goes: metrics of every round, what was predicted and what came of it, agreement, people."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labelchef.domain.campaigns import SUGGESTION, DecisionKind, Origin, RoundKind
from labelchef.domain.validation import Gain, note_on
from labelchef.services.people.agreement import PairAgreement, Pull, fleiss_of, pairs_of, pull_of
from labelchef.services.people.quality import PersonQuality, quality_of
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, decision_table, round_table, selection_table, vote_table
from labelchef.store.rows import DecisionRow, RoundRow, SelectionBrief, VoteRow


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
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        rounds = round_table.rounds_of(connection, row.id)
        votes = vote_table.live_votes_of_campaign(connection, row.id)
        decided = decision_table.last_decisions(connection, row.id)
        selections = selection_table.selections_of_campaign(connection, row.id)
    settings = row.settings
    people = [vote for vote in votes if vote.person != SUGGESTION]
    return ProgressReport(
        metric=settings.target_metric,
        target=settings.target,
        spent=row.spent,
        budget=settings.budget,
        rounds=tuple(_rounds(rounds, selections, decided, people, settings.target_metric)),
        pairs=tuple(pairs_of(people)),
        fleiss_kappa=fleiss_of(people),
        suggestion=pull_of(people),
        people=tuple(quality_of(people, decided)),
    )


def _rounds(
    rounds: Sequence[RoundRow],
    selections: Sequence[SelectionBrief],
    decided: Mapping[int, DecisionRow],
    votes: Sequence[VoteRow],
    metric: str,
) -> list[RoundProgress]:
    by_round: dict[int, list[SelectionBrief]] = defaultdict(list)
    for selection in selections:
        if selection.origin != Origin.AHEAD:
            by_round[selection.round_id].append(selection)
    seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for vote in votes:
        if vote.seconds is not None:
            seconds[vote.item_id, vote.attempt].append(vote.seconds)
    found: list[RoundProgress] = []
    for turn in rounds:
        if turn.is_open or turn.outcome is None:
            continue
        batch = by_round[turn.id]
        labels = {s.item_id: _label_of(decided, s) for s in batch}
        followed = [s for s in batch if s.suggested is not None and labels[s.item_id] == s.suggested]
        gains = gains_of(turn.outcome).get("validation")
        times = [t for s in batch for t in seconds[s.item_id, s.attempt]]
        found.append(
            RoundProgress(
                number=turn.number,
                kind=turn.kind,
                spent=turn.spent,
                validation=turn.outcome["validation"],
                steering=turn.outcome["steering"],
                gain=None if gains is None else gains[metric],
                test=turn.outcome.get("test"),
                predicted_change=turn.outcome["predicted_change"],
                realised_change=turn.outcome["realised_change"],
                asked=len(batch),
                resolved=sum(label is not None for label in labels.values()),
                suggested=sum(s.suggested is not None for s in batch),
                followed=len(followed),
                seconds_per_item=statistics.median(times) if times else None,
            )
        )
    return found


def _label_of(decided: Mapping[int, DecisionRow], selection: SelectionBrief) -> int | None:
    """The decision on a selection's attempt; None if there is none, or a later attempt took its place."""
    decision = decided.get(selection.item_id)
    fits = decision is not None and decision.attempt == selection.attempt and decision.kind != DecisionKind.REOPEN
    return decision.label if decision is not None and fits else None


def gains_of(metrics: Mapping[str, Any] | None) -> dict[str, dict[str, Gain]]:
    """The gains that were stored with a round, by split ('validation', 'test') and metric."""
    stored = {} if metrics is None else metrics["gain"]
    return {split: {name: Gain(**values) for name, values in found.items()} for split, found in stored.items()}
