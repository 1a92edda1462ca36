"""The answers in the ledger of a campaign: of every decided item, in the order in which they came."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labelchef.domain.arrays import Bools, Ints
from labelchef.domain.campaigns import DecisionKind, Origin
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, Votes
from labelchef.services.workspace import Workspace
from labelchef.store import decision_table, item_table, selection_table, vote_table
from labelchef.store.rows import CampaignRow, DecisionRow


@dataclass(frozen=True)
class Answers:
    """Decided items: `positions` (n,) in the order in which they were first decided, `labels` (n,) as they stand now."""

    positions: Ints
    labels: Ints
    suggested: Ints
    """What was suggested when each was asked last; `UNRESOLVED` for nothing."""
    votes: Mapping[int, tuple[tuple[str, int], ...]]
    """Position → who said what, as the decision rests on it."""
    unanswered: int
    """Items that were asked and have no answer: unresolved, taken back, or still being voted on."""

    def __len__(self) -> int:
        return len(self.positions)

    def mask(self, n_train: int) -> Bools:
        """(N,) which items have a known answer."""
        known = np.zeros(n_train, dtype=bool)
        known[self.positions] = True
        return known

    def to(self, batch: Batch) -> tuple[Votes, Decisions]:
        """What people answer to a batch of decided items."""
        place = {position: k for k, position in enumerate(self.positions.tolist())}
        labels = self.labels[[place[item] for item in batch.indices.tolist()]]
        ballots: list[tuple[str, object, object]] = [
            (who, [item], [label]) for item in batch.indices.tolist() for who, label in self.votes.get(item, ())
        ]
        return Votes.of(ballots), Decisions(batch.indices, labels, np.ones(len(batch)))


def known_answers(ws: Workspace, campaign: CampaignRow) -> Answers:
    """The answers that count now; labels given with the data are not among them."""
    from labelchef.ledger.sql import votes_table

    with ws.reading() as connection:
        decisions = decision_table.decisions(connection, campaign.id)
        selections = selection_table.selections_of_campaign(connection, campaign.id)
        given = {item.id for item in item_table.train_items(connection, campaign.id) if item.label is not None}
        last = {row.item_id: row for row in decisions}
        final = {i: row for i, row in last.items() if _answers(row) and i not in given}
        behind = vote_table.votes_behind(connection, list(final.values()))
        votes = votes_table(final.values(), behind)
    first: dict[int, int] = {}
    for row in decisions:
        if _answers(row):
            first.setdefault(row.item_id, row.id)
    order = sorted(final, key=first.__getitem__)
    asked = {s.item_id: s.suggested for s in selections if s.origin != Origin.AHEAD}
    shown = [asked.get(item) for item in order]
    said: dict[int, tuple[tuple[str, int], ...]] = {}
    for position, who, label in votes:
        said[position] = (*said.get(position, ()), (who, label))
    return Answers(
        positions=np.array([final[item].position for item in order], dtype=np.int64),
        labels=np.array([final[item].label for item in order], dtype=np.int64),
        suggested=np.array([UNRESOLVED if label is None else label for label in shown], dtype=np.int64),
        votes=said,
        unanswered=len(asked.keys() - final.keys() - given),
    )


def _answers(row: DecisionRow) -> bool:
    return row.label is not None and row.kind != DecisionKind.REOPEN
