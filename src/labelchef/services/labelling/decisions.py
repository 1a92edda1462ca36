"""Decisions on items: by a lead, or again when votes change; and the items that need one."""

from typing import TYPE_CHECKING

from labelchef.aggregation import MajorityVote
from labelchef.domain.campaigns import (
    CampaignState,
    ConflictItem,
    DecisionKind,
    Origin,
    PersonVote,
    RoundState,
)
from labelchef.domain.errors import ConflictError
from labelchef.ledger.sql import counted
from labelchef.services.labelling.classes import class_of
from labelchef.services.labelling.tasks import content_of
from labelchef.services.people.access import locked_campaign
from labelchef.services.workspace import Workspace
from labelchef.store import (
    campaign_table,
    decision_table,
    item_table,
    round_table,
    selection_table,
    vote_table,
)
from labelchef.store.rows import (
    CampaignRow,
    CampaignValues,
    ItemRow,
    SelectionRow,
)

if TYPE_CHECKING:
    import sqlalchemy as sa


def resolve(ws: Workspace, campaign: str, item: str, label: int | str | None, by: str) -> None:
    """Decide an item as lead, whatever the votes say; in the open batch it needs no more votes."""
    with ws.writing() as connection:
        row = locked_campaign(ws, connection, campaign)
        sample = item_table.item_by_key(connection, row.id, item)
        class_id = class_of(campaign_table.classes_of(connection, row.id), label)
        asked = _asked_now(connection, row.id, sample)
        past = selection_table.batch_selection_of_attempt(connection, sample.id, sample.attempt)
        place = asked if asked is not None else past
        decision_table.insert_decision(
            connection,
            campaign_id=row.id,
            item_id=sample.id,
            attempt=sample.attempt if place is None else place.attempt,
            round_id=None if place is None else place.round_id,
            kind=DecisionKind.LEAD,
            by=by,
            label=class_id,
            support=1.0,
        )
        if asked is not None:
            selection_table.mark_decided(connection, asked.id)
        campaign_table.update_campaign(connection, row.id)
    ws.signal.notify()


def reopen(ws: Workspace, campaign: str, item: str, by: str) -> None:
    """Take a decision back: the label is weak again with the next model, and the item is asked first in the next batch.

    A finished campaign goes on if its budget and target leave something to do.
    """
    with ws.writing() as connection:
        row = locked_campaign(ws, connection, campaign)
        sample = item_table.item_by_key(connection, row.id, item)
        if _asked_now(connection, row.id, sample) is not None:
            raise ConflictError(f"item {item!r} is being asked now; wait for the end of its round", code="asked_now")
        last = decision_table.last_decision(connection, sample.id)
        if last is None or last.kind == DecisionKind.REOPEN:
            raise ConflictError(f"item {item!r} has no decision to take back", code="not_decided")
        decision_table.insert_decision(
            connection,
            campaign_id=row.id,
            item_id=sample.id,
            attempt=last.attempt,
            round_id=last.round_id,
            kind=DecisionKind.REOPEN,
            by=by,
            label=None,
            support=0.0,
        )
        item_table.next_attempt(connection, sample.id, last.attempt + 1)
        moved: CampaignValues = {}
        if row.state == CampaignState.FINISHED:
            moved = {"state": CampaignState.RUNNING, "message": "an item was reopened; checking what is left"}
        campaign_table.update_campaign(connection, row.id, **moved)
    ws.signal.notify()


def conflicts(ws: Workspace, campaign: str) -> list[ConflictItem]:
    """Items whose votes tied or were mostly 'ambiguous', for the lead to resolve."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        numbers = {r.id: r.number for r in round_table.rounds_of(connection, row.id)}
        found = []
        for decision in decision_table.unresolved_items(connection, row.id):
            votes = vote_table.live_votes(connection, decision.item_id, decision.attempt)
            place = selection_table.batch_selection_of_attempt(connection, decision.item_id, decision.attempt)
            found.append(
                ConflictItem(
                    item=decision.key,
                    content=content_of(decision),
                    round=0 if decision.round_id is None else numbers[decision.round_id],
                    suggestion=None if place is None else place.suggested,
                    votes=tuple(PersonVote(v.person, v.label, v.note) for v in votes),
                    asked_again=decision.item_attempt != decision.attempt,
                )
            )
        return found


def reconsider(connection: "sa.Connection", campaign: CampaignRow, selection: SelectionRow, sample: ItemRow) -> None:
    """Votes on an item that votes decided have changed: decide it again if they give another label."""
    last = decision_table.last_decision(connection, sample.id)
    if last is None or last.kind != DecisionKind.VOTES or last.attempt != selection.attempt:
        return
    label, support = counted(vote_table.live_votes(connection, sample.id, selection.attempt), MajorityVote())
    if label != last.label:
        decision_table.insert_decision(
            connection,
            campaign_id=campaign.id,
            item_id=sample.id,
            attempt=selection.attempt,
            round_id=selection.round_id,
            kind=DecisionKind.VOTES,
            by="votes",
            label=label,
            support=support,
        )
        campaign_table.update_campaign(connection, campaign.id)


def _asked_now(connection: "sa.Connection", campaign_id: int, sample: ItemRow) -> SelectionRow | None:
    """The selection of an item in a batch that is still being voted on, or None."""
    turn = round_table.last_round(connection, campaign_id)
    if turn is None or turn.state != RoundState.SELECTED:
        return None
    selection = selection_table.selection_of_item(connection, turn.id, sample.id)
    return None if selection is None or selection.origin == Origin.AHEAD else selection
