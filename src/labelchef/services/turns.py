"""What the ledger asks for next, and what votes come to: the part of a round that needs no model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from labelchef.aggregation import MajorityVote
from labelchef.domain.campaigns import CampaignState, RoundState
from labelchef.domain.records import UNRESOLVED, Batch, Votes
from labelchef.domain.settings import Settings
from labelchef.services.workspace import Workspace
from labelchef.store import campaigns as store
from labelchef.store import rounds as ledger

if TYPE_CHECKING:
    import sqlalchemy as sa


@dataclass(frozen=True)
class Due:
    """The arrow that is due, and the round it starts from."""

    arrow: str
    row: Any = None


def due(connection: "sa.Connection", campaign: Any) -> Due | None:
    """What the ledger asks for next; None if it waits for people or a lead."""
    if campaign.state == CampaignState.FAILED.value:
        return None
    row = ledger.last_round(connection, campaign.id)
    if row is None:
        return Due("fit")
    running = campaign.state in (CampaignState.RUNNING.value, CampaignState.PREPARING.value)
    if row.state == RoundState.AGGREGATED.value:
        return Due("close", row)
    if row.state == RoundState.SELECTED.value:
        people = Settings.of(campaign.settings).people
        ready = running and not ledger.batch_incomplete(connection, row.id, people)
        return Due("aggregate", row) if ready else None
    if ledger.has_pending(connection, campaign.id):
        return Due("correct", row)
    return Due("select", row) if running else None


def is_due(ws: Workspace, campaign: str) -> bool:
    """Whether there is a step for a worker to take."""
    with ws.reading() as connection:
        return due(connection, store.find_campaign(connection, campaign)) is not None


def majority(votes: list[Any]) -> tuple[int | None, float]:
    """What the live votes on one item come to, and the share of votes behind it."""
    if not votes:
        return None, 0.0
    labels = np.array([UNRESOLVED if v.label is None else v.label for v in votes], dtype=np.int64)
    item = np.zeros(len(votes), dtype=np.int64)
    table = Votes(item, tuple(v.person for v in votes), labels)
    batch = Batch.without_predictions(np.zeros(1, dtype=np.int64))
    made = MajorityVote().aggregate(table, batch)
    label = int(made.labels[0])
    return None if label == UNRESOLVED else label, float(made.support[0])
