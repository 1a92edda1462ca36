"""Actions of a lead on one or many items: decide, take decisions back, have items asked first.

An action is one transaction: all of it is stored, or nothing. Every item gets its own fate; one that is not possible does not
hold up the others. A request that comes again, with the same `request_id`, is answered as the first time and does nothing.
Decisions are rows of the ledger, as if each had been made by itself; what is to be asked is a change by the lead.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection

from labelchef.base.browsing import Action, ActionDone, Fate, ItemQuery
from labelchef.base.campaigns import CampaignState, DecisionKind, RoundState, SplitName
from labelchef.base.errors import ConflictError, InvalidInputError
from labelchef.server.campaigns.access import changing, looking
from labelchef.server.items import items
from labelchef.server.items.copies import asked_items
from labelchef.server.items.decisions import check_seen, class_of
from labelchef.server.store import browse_table, campaign_table, decision_table, round_table
from labelchef.server.store.rows import CampaignRow, CampaignValues, DecisionRow, ItemRow, SelectedItem, SelectionRow
from labelchef.server.workspace import Workspace

MOST = 1000
"""Items of one action."""


@dataclass(frozen=True)
class Wanted:
    """An action as a lead asks for it: of the items that are named, or of all that match a query."""

    action: Action
    label: int | str | None = None
    """For `decide`."""
    items: Sequence[str] = ()
    query: ItemQuery | None = None
    count: int | None = None
    """How many items the lead was told that match."""
    seen: Mapping[str, int | str | None] = field(default_factory=dict)
    """For `decide`: key → label as the lead saw it; one that was decided otherwise since is not overruled silently."""


@dataclass(frozen=True)
class _At:
    """Inside the transaction: what is known of the items."""

    connection: Connection
    row: CampaignRow
    classes: tuple[str, ...]
    by: str
    last: Mapping[int, DecisionRow]
    """Item → the decision that counts."""
    asked: Mapping[int, SelectedItem]
    """Item → its place in the batch that people vote on now."""
    places: Mapping[tuple[int, int], SelectionRow]
    """(item, attempt) → by which it was put to people."""
    wished: frozenset[int]


def act(ws: Workspace, campaign: str, wanted: Wanted, by: str, request_id: str | None = None) -> ActionDone:
    """Do it; what became of every item."""
    asked: dict[str, Any] = {
        "action": wanted.action.value,
        "label": wanted.label,
        "items": list(wanted.items),
        "query": None if wanted.query is None else asdict(wanted.query),
        "count": wanted.count,
    }
    with looking(ws, campaign) as (connection, row):
        known = _before(connection, row, by, request_id, asked)
        label = class_of(campaign_table.classes_of(connection, row.id), wanted.label)
    if known is not None:
        return known
    if wanted.action is Action.DECIDE and label is None:
        raise InvalidInputError("label is missing; expected the class to decide for", code="label")
    keys = _named(ws, campaign, wanted)
    with changing(ws, campaign) as (connection, row):
        known = _before(connection, row, by, request_id, asked)  # the same request may have been answered meanwhile
        if known is not None:
            return known
        rows = asked_items(ws, connection, row, campaign_table.items_by_key(connection, row.id, keys))
        at = _look(connection, row, [one.id for one in rows.values()], by)
        if wanted.action is Action.DECIDE:
            seen = {rows[key].key: said for key, said in wanted.seen.items() if key in rows}
            check_seen(at.classes, list(rows.values()), at.last, seen, label)
        do = {Action.DECIDE: _decide(label), Action.REOPEN: _reopen, Action.ASK: _ask}[wanted.action]
        refused = {key: _refusal(at, wanted.action, rows.get(key), key) for key in keys}
        fates = tuple(refused[key] or Fate(key, done=True) for key in keys)
        samples = list({rows[fate.item].id: rows[fate.item] for fate in fates if fate.done}.values())
        moved: CampaignValues = {}
        if samples:
            do(at, samples)
            if wanted.action is not Action.DECIDE and row.state == CampaignState.FINISHED:
                moved = {"state": CampaignState.RUNNING, "message": "items are to be asked; checking what is left"}
            campaign_table.update_campaign(connection, row.id, **moved)
        done = ActionDone(len(samples), len(fates) - len(samples), fates, _message(at, wanted.action, len(samples)))
        if request_id is not None:
            browse_table.insert_action(
                connection,
                campaign_id=row.id,
                person=by,
                request_id=request_id,
                asked=asked,
                answer=asdict(done),
                created_at=time.time(),
            )
    return done


def _before(
    connection: Connection, row: CampaignRow, by: str, request_id: str | None, asked: Mapping[str, Any]
) -> ActionDone | None:
    """How the same request was answered before, None if it is new."""
    found = None if request_id is None else browse_table.action_of(connection, row.id, by, request_id)
    if found is None:
        return None
    if found.asked != asked:
        raise ConflictError("this request_id was used for another action; use a new one", code="request_id")
    said: dict[str, Any] = dict(found.answer)
    fates = tuple(Fate(**one) for one in said["fates"])
    return ActionDone(said["done"], said["refused"], fates, said["message"], repeated=True)


def _named(ws: Workspace, campaign: str, wanted: Wanted) -> list[str]:
    """The keys of the items that are meant, in their order."""
    if wanted.query is None:
        keys = list(dict.fromkeys(wanted.items))
        if not 0 < len(keys) <= MOST:
            raise InvalidInputError(f"{len(keys)} items; expected 1 to {MOST} in one action", code="items")
        return keys
    if wanted.query.split is not SplitName.TRAIN:
        raise InvalidInputError(
            f"split is {wanted.query.split}; expected train: trusted and test items are never decided or asked",
            code="filter",
        )
    found, keys = items.matching_keys(ws, campaign, wanted.query, MOST)
    if wanted.count is not None and found != wanted.count:
        why = f"{found} items match now, {wanted.count} did when you looked; look again, then repeat the action"
        raise ConflictError(why, code="count")
    if not 0 < found <= MOST:
        why = (
            f"{found} items match; expected 1 to {MOST} in one action. Narrow the filters, or act on one page at a time"
        )
        raise InvalidInputError(why, code="items")
    return keys


def _look(connection: Connection, row: CampaignRow, ids: Sequence[int], by: str) -> _At:
    turn = round_table.last_turn(connection, row.id)
    batch = round_table.batch_of(connection, turn.id) if turn is not None and turn.state == RoundState.SELECTED else []
    return _At(
        connection,
        row,
        campaign_table.classes_of(connection, row.id),
        by,
        {one.item_id: one for one in decision_table.decisions_on(connection, ids)},
        {one.item_id: one for one in batch},
        round_table.batch_selections(connection, ids),
        frozenset(decision_table.wishes(connection, row.id)),
    )


def _refusal(at: _At, action: Action, sample: ItemRow | None, key: str) -> Fate | None:
    """Why an action is not possible for an item, None if it is."""

    def no(code: str, message: str) -> Fate:
        return Fate(key, done=False, why=code, message=message)

    if sample is None:
        return no("item", "there is no such training item")
    if action is Action.DECIDE:
        return None
    if sample.id in at.asked:
        return no("asked_now", "it is being asked now; wait for the end of its round")
    last = at.last.get(sample.id)
    if action is Action.REOPEN:
        decided = last is not None and last.kind != DecisionKind.REOPEN
        return None if decided else no("not_decided", "it has no decision to take back")
    if last is not None and last.label is not None:
        return no("decided", "it has an answer; re-open it to have it asked again")
    if last is None and sample.label is not None:
        return no("given", "its label was given with the data; decide it to change that")
    waits = last is not None and last.kind == DecisionKind.REOPEN and (sample.id, sample.attempt) not in at.places
    if waits or sample.id in at.wished:
        return no("waiting", "it is to be asked first already")
    return None


def _decide(label: int | None) -> Callable[[_At, Sequence[ItemRow]], None]:
    def decide(at: _At, samples: Sequence[ItemRow]) -> None:
        """As `services.items.decisions.resolve` does with one."""
        made = []
        for sample in samples:
            place = at.asked.get(sample.id) or at.places.get((sample.id, sample.attempt))
            made.append(decision_table.decision_about(sample, place, DecisionKind.LEAD, at.by, label, 1.0))
            if sample.id in at.asked:
                round_table.mark_decided(at.connection, at.asked[sample.id].id)
        decision_table.insert_decisions(at.connection, made, at.last)

    return decide


def _reopen(at: _At, samples: Sequence[ItemRow]) -> None:
    """As `services.items.decisions.reopen` does with one."""
    made = [
        decision_table.decision_about(sample, at.last[sample.id], DecisionKind.REOPEN, at.by, None, 0.0)
        for sample in samples
    ]
    decision_table.insert_decisions(at.connection, made, at.last)
    for sample in samples:
        campaign_table.next_attempt(at.connection, sample.id, at.last[sample.id].attempt + 1)


def _ask(at: _At, samples: Sequence[ItemRow]) -> None:
    decision_table.insert_wishes(at.connection, at.row.id, [sample.id for sample in samples], at.by)
    campaign_table.note_change(at.connection, at.row.id, at.by, {"ask_first": [sample.key for sample in samples]})


def _message(at: _At, action: Action, done: int) -> str:
    """What follows from the action."""
    if done == 0:
        return "Nothing was changed."
    if action is Action.DECIDE:
        return "The model follows with the next round. Decisions of a lead cost nothing of the budget."
    settings = at.row.settings
    said = (
        f"They are asked first, {settings.batch_size} items in a batch, and count in the budget if they have no label."
    )
    if settings.budget is None:
        return said
    left = max(0, settings.budget - at.row.spent)
    more = "" if done <= left else " Raise the budget to have all of them asked."
    return f"{said} {left} of {settings.budget} are left.{more}"
