"""The rows of a campaign as they are proven: votes, decisions, changes by leads and rounds, each as a body in JSON's types.

A body has no inner ids: items are named by key, votes and decisions by their public id, rounds by number, accounts by name. So
the same facts give the same bytes in every database. Rows of one campaign become visible in the order of their inner ids: who
inserts one holds the campaign's lock until the transaction ends. So "all rows up to this id" names the same rows whenever it is
asked.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from labelchef.base.campaigns import NewItem, SplitName
from labelchef.server.store.rows import RoundRow
from labelchef.server.store.tables import Account, Application, Decision, Item, Round, Selection, SettingChange, Vote

Body = dict[str, Any]
_AT_ONCE = 5000


_old_vote, _old_decision = Vote.alias(), Decision.alias()
_VOTES = (
    sa.select(
        *Vote.c["id", "public_id", "attempt", "person", "seq", "label", "retracted", "note", "blind", "suggested"]
    )
    .add_columns(*Vote.c["seconds", "source", "request_id", "created_at", "imported_by"], Item.c.key.label("item"))
    .add_columns(Account.c.name.label("account"))
    .add_columns(Round.c.number.label("round"), _old_vote.c.public_id.label("supersedes"))
    .select_from(Vote)
    .join(Item)
    .outerjoin(Round)
    .outerjoin(Account, Account.c.id == Vote.c.account_id)
    .outerjoin(_old_vote, _old_vote.c.id == Vote.c.supersedes)
)
_DECISIONS = (
    sa.select(*Decision.c["id", "public_id", "attempt", "kind", "by", "label", "support", "created_at"])
    .add_columns(Item.c.key.label("item"), Round.c.number.label("round"))
    .add_columns(_old_decision.c.public_id.label("supersedes"))
    .select_from(Decision)
    .join(Item)
    .outerjoin(Round)
    .outerjoin(_old_decision, _old_decision.c.id == Decision.c.supersedes)
)
_CHANGES = sa.select(*SettingChange.c["id", "who", "created_at", "what"])
KINDS = {"vote": (Vote, _VOTES), "decision": (Decision, _DECISIONS), "change": (SettingChange, _CHANGES)}
"""Kinds of rows that a link covers, in the order in which they are written."""


def rows_after(connection: sa.Connection, campaign_id: int, kind: str, after: int) -> Iterator[tuple[int, Body]]:
    """(inner id, body) of the rows of a kind behind the row `after`, by id."""
    table, found = KINDS[kind]
    part = found.where(table.c.campaign_id == campaign_id).order_by(table.c.id).limit(_AT_ONCE)
    while rows := connection.execute(part.where(table.c.id > after)).mappings().all():
        for row in rows:
            body = {name: value for name, value in row.items() if name != "id"}
            yield int(row["id"]), {name: getattr(value, "value", value) for name, value in body.items()}
        after = int(rows[-1]["id"])


def items_streamed(connection: sa.Connection, campaign_id: int) -> Iterator[NewItem]:
    """Every item of a campaign as it was given, splits in their order, each by position, a part of them in memory at a time."""
    columns = Item.c["position", "key", "text", "image", "fields", "label"]
    for split in SplitName:
        found = sa.select(*columns).where(Item.c.campaign_id == campaign_id, Item.c.split == split)
        part, after = found.order_by(Item.c.position).limit(_AT_ONCE), -1
        while rows := connection.execute(part.where(Item.c.position > after)).all():
            for row in rows:
                yield NewItem(split, *row)
            after = rows[-1].position


def round_body(connection: sa.Connection, row: RoundRow) -> Body:
    """A round: what it put to people, by rank, which decisions its model followed, and what came of it."""
    selected = (
        sa.select(Item.c.key, *Selection.c["attempt", "origin", "suggested", "blind"])
        .join(Item)
        .where(Selection.c.round_id == row.id)
        .order_by(Selection.c.rank)
    )
    applied = (
        sa.select(Decision.c.public_id)
        .join(Application, Application.c.decision_id == Decision.c.id)
        .where(Application.c.round_id == row.id)
        .order_by(Decision.c.id)
    )
    return {
        "number": row.number,
        "kind": row.kind.value,
        "state": row.state.value,
        "size": row.size,
        "ahead": row.ahead,
        "spent": row.spent,
        "selection_hash": row.selection_hash,
        "labels_hash": row.labels_hash,
        "model_hash": row.model_hash,
        "diagnostics": row.diagnostics,
        "rebuilt": row.rebuilt,
        "seconds": row.seconds,
        "opened_at": row.opened_at,
        "closed_at": row.closed_at,
        "outcome": row.outcome,
        "selections": [
            [key, attempt, origin.value, suggested, blind]
            for key, attempt, origin, suggested, blind in connection.execute(selected)
        ],
        "applied": list(connection.execute(applied).scalars()),
    }
