"""Rounds read back from the database: all of a campaign's in a fixed number of queries, however many rounds there are."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import sqlalchemy as sa

from labelchef.domain.arrays import Ints
from labelchef.domain.campaigns import DecisionKind, Origin, RoundKind
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, SelectionDiagnostics, Votes
from labelchef.ledger.conversion import diagnostics_from_json, record_of
from labelchef.ledger.protocol import NO_BATCH, Answered, PastRound, Selected
from labelchef.store import decision_table, round_table, selection_table
from labelchef.store.rows import DecisionWithPosition, PlacedSelection, RoundRow, SelectedItem, VoteRow


def past_rounds(connection: sa.Connection, campaign_id: int) -> list[PastRound]:
    """All rounds in order, the open one last."""
    selections: dict[int, list[PlacedSelection]] = defaultdict(list)
    for row in selection_table.placed_selections(connection, campaign_id):
        selections[row.round_id].append(row)
    applied: dict[int | None, list[DecisionWithPosition]] = defaultdict(list)
    for decision in decision_table.decisions(connection, campaign_id):
        applied[decision.applied_in].append(decision)
    rounds = round_table.rounds_of(connection, campaign_id)
    return [_past(row, selections[row.id], applied[row.id]) for row in rounds]


def _past(row: RoundRow, selections: Sequence[PlacedSelection], applied: Sequence[DecisionWithPosition]) -> PastRound:
    batch, selected, answered, record = NO_BATCH, None, None, None
    if row.kind is RoundKind.BATCH:
        diagnostics = diagnostics_from_json(SelectionDiagnostics, row.diagnostics)
        parts = [[s for s in selections if (s.origin is Origin.AHEAD) == ahead] for ahead in (False, True)]
        batch, ahead = (batch_of(part, diagnostics) for part in parts)
        reopened = sum(s.origin is Origin.REOPENED for s in parts[0])
        selected = Selected(batch, ahead, reopened, row.size, row.ahead, row.seconds["select"])
    if row.outcome is not None:
        decisions = merged(batch.indices, applied)
        outcome = {**row.outcome, "seconds": row.seconds}
        record = record_of(row.number, batch.aligned(decisions.items), decisions, outcome)
        if row.kind is not RoundKind.INITIAL:
            answered = Answered(batch, record.votes, decisions, row.seconds)
    return PastRound(
        row.number, row.kind, selected, answered, record, row.selection_hash, row.labels_hash, row.model_hash
    )


def batch_of(rows: Sequence[PlacedSelection | SelectedItem], diagnostics: SelectionDiagnostics | None = None) -> Batch:
    """Selections as a batch."""
    width = max((len(row.by_answer) for row in rows), default=0)
    return Batch(
        np.array([row.position for row in rows], dtype=np.int64),
        class_ids(row.suggested for row in rows),
        np.array([row.influence for row in rows], dtype=np.float64),
        by_answer=np.array([row.by_answer for row in rows], dtype=np.float64).reshape(len(rows), width),
        diagnostics=diagnostics or SelectionDiagnostics(),
    )


def class_ids(labels: Iterable[int | None]) -> Ints:
    """Labels as an array, `UNRESOLVED` for None."""
    return np.array([UNRESOLVED if label is None else label for label in labels], dtype=np.int64)


def votes_table(rows: Iterable[DecisionWithPosition], behind: dict[int, list[VoteRow]]) -> Votes:
    """The votes that the last decision on each item rests on, by position; a lead who decides counts as a voter."""
    ballots: list[tuple[str, object, object]] = []
    last = {row.item_id: row for row in rows}
    for row in sorted(last.values(), key=lambda row: row.position):
        if row.kind is not DecisionKind.REOPEN:
            said = [(vote.person, vote.label) for vote in behind.get(row.item_id, [])]
            said += [(row.by, row.label)] if row.kind is DecisionKind.LEAD else []
            ballots += [(who, [row.position], class_ids([label])) for who, label in said]
    return Votes.of(ballots)


def merged(batch: Ints, rows: Iterable[DecisionWithPosition]) -> Decisions:
    """One decision an item, the last one: those of the batch in its order, then corrections as they came."""
    last: dict[int, DecisionWithPosition] = {}
    for row in rows:
        last.pop(row.position, None)
        last[row.position] = row
    inside = [p for p in batch.tolist() if p in last]
    found = [last[p] for p in dict.fromkeys([*inside, *last])]
    return Decisions(
        np.array([row.position for row in found], dtype=np.int64),
        class_ids(row.label for row in found),
        np.array([row.support for row in found], dtype=np.float64),
    )
