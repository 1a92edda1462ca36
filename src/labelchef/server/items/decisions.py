"""Decisions on items: by a lead, or again when votes change; the items that need one; and the ledger, a page at a time."""

import re
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from labelchef.base.campaigns import (
    CampaignState,
    ConflictItem,
    DecisionKind,
    LedgerEntry,
    Origin,
    Page,
    PersonVote,
    RoundState,
)
from labelchef.base.errors import ChangedError, ConflictError, InvalidInputError
from labelchef.believe.aggregation import MajorityVote
from labelchef.server.campaigns.access import changing, looking
from labelchef.server.campaigns.conflicts import contested_items
from labelchef.server.campaigns.contents import content_of
from labelchef.server.items.copies import asked_items
from labelchef.server.ledger.sql import counted
from labelchef.server.store import campaign_table, decision_table, ledger_lines, round_table, vote_table
from labelchef.server.store.rows import CampaignRow, CampaignValues, DecisionRow, ItemRow, SelectionRow, storable
from labelchef.server.workspace import Workspace


def class_of(classes: Sequence[str], label: int | str | None) -> int | None:
    """A class position from a position or a name."""
    if label is None:
        return None
    if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(classes):
        return label
    if isinstance(label, str) and label in classes:
        return classes.index(label)
    shown = ", ".join(repr(name) for name in classes[:20])
    raise InvalidInputError(
        f"label is {label!r}; expected one of {shown}, a position from 0 to {len(classes) - 1}, or none for ambiguous",
        code="label",
    )


def check_seen(
    classes: Sequence[str],
    samples: Sequence[ItemRow],
    last: Mapping[int, DecisionRow],
    seen: Mapping[str, int | str | None],
    label: int | None,
) -> None:
    """Refuse to decide items whose label is not the one that the lead saw, unless it is the one to decide for.

    `last`: item → the decision that counts; `seen`: key → label, None for none.
    """
    now: dict[str, str | None] = {}
    told = []
    for sample in samples:
        decision = last.get(sample.id)
        present = sample.label if decision is None else decision.label
        if sample.key not in seen or present in (class_of(classes, seen[sample.key]), label):
            continue
        now[sample.key] = None if present is None else classes[present]
        by = "" if decision is None else f" by {decision.by}"
        told.append(f"{sample.key!r} is {'open again' if present is None else classes[present]}{by}")
    if told:
        more = f" and {len(told) - 3} more" if len(told) > 3 else ""
        why = f"decided since you looked: {', '.join(told[:3])}{more}. Nothing was done; look again, or overrule it"
        raise ChangedError(why, now=now)


def resolve(
    ws: Workspace,
    campaign: str,
    item: str,
    label: int | str | None,
    by: str,
    seen: Mapping[str, int | str | None] | None = None,
) -> None:
    """Decide an item as lead, whatever the votes say; in the open batch it needs no more votes.

    With `seen`, key → label as the lead saw it, the decision is refused if another one was made since.
    """
    with changing(ws, campaign) as (connection, row):
        sample = _asked_item(ws, connection, row, item)
        classes = campaign_table.classes_of(connection, row.id)
        class_id = class_of(classes, label)
        last = {one.item_id: one for one in decision_table.decisions_on(connection, [sample.id])}
        check_seen(classes, [sample], last, {sample.key: seen[item]} if seen and item in seen else {}, class_id)
        asked = _asked_now(connection, row.id, sample)
        place = asked or round_table.batch_selection_of_attempt(connection, sample.id, sample.attempt)
        values = decision_table.decision_about(sample, place, DecisionKind.LEAD, by, class_id, 1.0)
        decision_table.insert_decision(connection, **values)
        decision_table.drop_wishes(connection, [sample.id])
        if asked is not None:
            round_table.mark_decided(connection, asked.id)
        campaign_table.update_campaign(connection, row.id)


def reopen(ws: Workspace, campaign: str, item: str, by: str) -> None:
    """Take a decision back: the label is weak again with the next model, and the item is asked first in the next batch.

    A finished campaign goes on if its budget and target leave something to do.
    """
    with changing(ws, campaign) as (connection, row):
        sample = _asked_item(ws, connection, row, item)
        if _asked_now(connection, row.id, sample) is not None:
            raise ConflictError(f"item {item!r} is being asked now; wait for the end of its round", code="asked_now")
        last = decision_table.last_decision(connection, sample.id)
        if last is None or last.kind == DecisionKind.REOPEN:
            raise ConflictError(f"item {item!r} has no decision to take back", code="not_decided")
        values = decision_table.decision_about(sample, last, DecisionKind.REOPEN, by, None, 0.0)
        decision_table.insert_decision(connection, **values)
        campaign_table.next_attempt(connection, sample.id, last.attempt + 1)
        moved: CampaignValues = {}
        if row.state == CampaignState.FINISHED:
            moved = {"state": CampaignState.RUNNING, "message": "an item was reopened; checking what is left"}
        campaign_table.update_campaign(connection, row.id, **moved)


def conflicts(ws: Workspace, campaign: str) -> list[ConflictItem]:
    """Items whose votes tied or were mostly 'ambiguous', for the lead to resolve, and what they wait for."""
    with looking(ws, campaign) as (connection, row):
        numbers = {r.id: r.number for r in round_table.rounds_of(connection, row.id)}
        contested = contested_items(connection, row)
        items = campaign_table.items_by_id(connection, [item for item, _ in contested])
        found = []
        for (item, attempt), awaits in contested.items():
            votes = vote_table.live_votes(connection, item, attempt)
            place = round_table.batch_selection_of_attempt(connection, item, attempt)
            found.append(
                ConflictItem(
                    item=items[item].key,
                    content=content_of(items[item]),
                    round=0 if place is None else numbers[place.round_id],
                    suggestion=None if place is None else place.suggested,
                    votes=tuple(PersonVote(v.person, v.label, v.note) for v in votes),
                    awaits=awaits,
                )
            )
        return found


def ledger(
    ws: Workspace,
    campaign: str,
    *,
    after: str | None = None,
    limit: int = 100,
    kind: str | None = None,
    item: str | None = None,
    person: str | None = None,
) -> Page[LedgerEntry]:
    """Votes, decisions and changes by leads, newest first, a page at a time."""
    if kind is not None and kind not in ledger_lines.KINDS:
        raise InvalidInputError(f"kind is {kind!r}; expected one of: {', '.join(ledger_lines.KINDS)}", code="kind")
    if not 1 <= limit <= 1000:
        raise InvalidInputError(f"limit is {limit!r}; expected a whole number from 1 to 1000", code="limit")
    with looking(ws, campaign) as (connection, row):
        item_id = None if item is None else campaign_table.item_by_key(connection, row.id, item).id
        if person is not None and not storable(person):
            return Page((), None)
        return Page(
            *ledger_lines.page(
                connection, row.id, after=_cursor(after), limit=limit, kind=kind, item_id=item_id, person=person
            )
        )


def _cursor(after: str | None) -> tuple[float, str, int] | None:
    if after is None:
        return None
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,20})?)~([a-z]+)~(\d{1,18})", after)
    if found is None or found[2] not in ledger_lines.KINDS:
        raise InvalidInputError(f"{after!r} is no cursor; take the one of the page before", code="cursor")
    return float(found[1]), found[2], int(found[3])


def reconsider(connection: Connection, campaign: CampaignRow, selection: SelectionRow, sample: ItemRow) -> None:
    """Votes on an item that votes decided have changed: decide it again if they give another label.

    The campaign's version grows in any case: whoever changes a vote would else learn whether it decides, and so how others voted.
    """
    campaign_table.update_campaign(connection, campaign.id)
    last = decision_table.last_decision(connection, sample.id)
    if last is None or last.kind != DecisionKind.VOTES or last.attempt != selection.attempt:
        return
    label, support = counted(vote_table.live_votes(connection, sample.id, selection.attempt), MajorityVote())
    if label != last.label:
        values = decision_table.decision_about(sample, selection, DecisionKind.VOTES, "votes", label, support)
        decision_table.insert_decision(connection, **values)


def _asked_item(ws: Workspace, connection: Connection, campaign: CampaignRow, key: str) -> ItemRow:
    """The item, or that which is asked in its place."""
    found = {key: campaign_table.item_by_key(connection, campaign.id, key)}
    return asked_items(ws, connection, campaign, found)[key]


def _asked_now(connection: Connection, campaign_id: int, sample: ItemRow) -> SelectionRow | None:
    """The selection of an item in a batch that is still being voted on, or None."""
    turn = round_table.last_turn(connection, campaign_id)
    if turn is None or turn.state != RoundState.SELECTED:
        return None
    selection = round_table.selection_of_item(connection, turn.id, sample.id)
    return None if selection is None or selection.origin == Origin.AHEAD else selection
