"""Rounds read back from the database: all of a campaign's in a fixed number of queries, however many rounds there are."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import sqlalchemy as sa

from labelchef.domain.arrays import Ints
from labelchef.domain.campaigns import DecisionKind, Origin, RoundKind
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, Metrics, RoundRecord, SelectionDiagnostics, Votes
from labelchef.ledger.conversion import construction_diagnostics, number_of, selection_diagnostics
from labelchef.ledger.protocol import Answered, PastRound, Selected
from labelchef.store import decision_table, round_table, selection_table, vote_table
from labelchef.store.rows import DecisionWithPosition, PlacedSelection, RoundRow, SelectedItem, VoteRow

REBUILT, SELECT, CLOSE = "rebuilt", "select", "close"
"""In a round's diagnostics: before which of its steps the session was rebuilt."""

VOTES_UP_TO = "votes_up_to"
"""In a closed round's diagnostics: the newest vote that its record may hold. A vote may change after its round."""


def past_rounds(connection: sa.Connection, campaign_id: int) -> list[PastRound]:
    """All rounds in order, the open one last."""
    selections: dict[int, list[PlacedSelection]] = defaultdict(list)
    for row in selection_table.placed_selections(connection, campaign_id):
        selections[row.round_id].append(row)
    applied: dict[int, list[DecisionWithPosition]] = defaultdict(list)
    for decision in decision_table.applied_decisions(connection, campaign_id):
        applied[decision.applied_in].append(decision)
    votes: dict[tuple[int, int], list[VoteRow]] = defaultdict(list)
    for vote in vote_table.votes_of_campaign(connection, campaign_id):
        votes[vote.item_id, vote.attempt].append(vote)
    rounds = round_table.rounds_of(connection, campaign_id)
    return [_past(row, selections[row.id], applied[row.id], votes) for row in rounds]


def _past(
    row: RoundRow,
    selections: Sequence[PlacedSelection],
    applied: Sequence[DecisionWithPosition],
    votes: dict[tuple[int, int], list[VoteRow]],
) -> PastRound:
    selected = answered = record = None
    rebuilt = row.diagnostics.get(REBUILT, [])
    diagnostics = selection_diagnostics(row.diagnostics.get("selection", {}))
    if row.kind is RoundKind.BATCH:
        parts = [[s for s in selections if (s.origin is Origin.AHEAD) == ahead] for ahead in (False, True)]
        batch, ahead = (batch_of(part, diagnostics) for part in parts)
        reopened = sum(s.origin is Origin.REOPENED for s in parts[0])
        selected = Selected(
            batch, ahead, reopened, row.size, row.ahead, row.seconds.get("select", 0.0), SELECT in rebuilt
        )
    if not row.is_open and row.kind is not RoundKind.INITIAL:
        batch = Batch.without_predictions(np.empty(0, dtype=np.int64)) if selected is None else selected.batch
        upto = row.diagnostics[VOTES_UP_TO]
        behind = {
            d.item_id: vote_table.live(v for v in votes[d.item_id, d.attempt] if v.id <= upto)
            for d in last_of_each(applied)
        }
        answered = Answered(
            batch, votes_table(applied, behind), merged(batch.indices, applied), row.seconds, CLOSE in rebuilt
        )
    if not row.is_open:
        record = _record(row, answered)
    return PastRound(
        row.number, row.kind, selected, answered, record, row.selection_hash, row.labels_hash, row.model_hash
    )


def _record(row: RoundRow, answered: Answered | None) -> RoundRecord:
    assert row.metrics is not None, "a closed round has metrics"
    nothing: Ints = np.empty(0, dtype=np.int64)
    if answered is None:
        answered = Answered(Batch.without_predictions(nothing), Votes.of([]), Decisions(nothing, nothing, np.empty(0)))
    test, known = row.metrics["test"], row.diagnostics
    return RoundRecord(
        number=row.number,
        batch=answered.batch.aligned(answered.decisions.items),
        votes=answered.votes,
        decisions=answered.decisions,
        changed=np.array(known["changed"], dtype=np.int64),
        asked=len(answered.batch),
        spent=row.spent,
        cleaned=known["cleaned"],
        validation=Metrics(**row.metrics["validation"]),
        steering=Metrics(**row.metrics["steering"]),
        test=None if test is None else Metrics(**test),
        construction=construction_diagnostics(known["construction"]),
        seconds=row.seconds,
        predicted_change=number_of(row.predicted_change),
        realised_change=number_of(row.realised_change),
    )


def batch_of(rows: Sequence[PlacedSelection | SelectedItem], diagnostics: SelectionDiagnostics | None = None) -> Batch:
    """Selections as a batch."""
    width = max((len(row.by_answer) for row in rows), default=0)
    return Batch(
        np.array([row.position for row in rows], dtype=np.int64),
        np.array([UNRESOLVED if row.suggested is None else row.suggested for row in rows], dtype=np.int64),
        np.array([np.nan if row.influence is None else row.influence for row in rows], dtype=np.float64),
        by_answer=np.array([list(row.by_answer) for row in rows], dtype=np.float64).reshape(len(rows), width),
        diagnostics=diagnostics or SelectionDiagnostics(),
    )


def last_of_each(rows: Iterable[DecisionWithPosition]) -> list[DecisionWithPosition]:
    """The last decision on each item, taken back ones left out, by position."""
    last = {row.item_id: row for row in rows}
    standing = (row for row in last.values() if row.kind is not DecisionKind.REOPEN)
    return sorted(standing, key=lambda row: row.position)


def votes_table(rows: Iterable[DecisionWithPosition], behind: dict[int, list[VoteRow]]) -> Votes:
    """The votes that the last decision on each item rests on; a lead who decides counts as a voter."""
    ballots: list[tuple[str, object, object]] = []
    for row in last_of_each(rows):
        said = [(vote.person, vote.label) for vote in behind.get(row.item_id, [])]
        said += [(row.by, row.label)] if row.kind is DecisionKind.LEAD else []
        ballots += [(who, [row.position], [UNRESOLVED if label is None else label]) for who, label in said]
    return Votes.of(ballots)


def merged(batch: Ints, rows: Iterable[DecisionWithPosition]) -> Decisions:
    """One decision an item, the last one: those of the batch in its order, then corrections as they came."""
    last: dict[int, DecisionWithPosition] = {}
    for row in rows:
        last.pop(row.position, None)
        last[row.position] = row
    inside = [p for p in batch.tolist() if p in last]
    order = inside + [p for p in last if p not in set(inside)]
    labels = [last[p].label for p in order]
    return Decisions(
        np.array(order, dtype=np.int64),
        np.array([UNRESOLVED if label is None else label for label in labels], dtype=np.int64),
        np.array([last[p].support for p in order], dtype=np.float64),
    )
