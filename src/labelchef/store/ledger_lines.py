"""The ledger as one list: votes, decisions and changes by leads, newest first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from labelchef.store.tables import Application, Decision, Item, Round, SettingChange, Vote


@dataclass(frozen=True)
class LedgerRow:
    """A line of the ledger."""

    id: int
    public_id: str | None
    kind: str
    created_at: float
    who: str
    item: str | None
    round: int | None
    label: int | None
    what: Mapping[str, object]


_SHARED = ("id", "public_id", "created_at", "who", "item", "round", "label")
_old_vote, _old_decision, _made, _used = Vote.alias(), Decision.alias(), Round.alias(), Round.alias()
_VOTES = (
    sa.select(*Vote.c["id", "public_id", "created_at", "label", "retracted", "note", "blind", "suggested"])
    .add_columns(
        Vote.c.seconds, Vote.c.source, Vote.c.imported_by, Vote.c.person.label("who"), Item.c.key.label("item")
    )
    .add_columns(Round.c.number.label("round"), _old_vote.c.public_id.label("supersedes"))
    .select_from(Vote)
    .join(Item)
    .outerjoin(Round)
    .outerjoin(_old_vote, _old_vote.c.id == Vote.c.supersedes)
)
_DECISIONS = (
    sa.select(*Decision.c["id", "public_id", "created_at", "label", "kind", "support"])
    .add_columns(Decision.c.by.label("who"), Item.c.key.label("item"), _made.c.number.label("round"))
    .add_columns(_old_decision.c.public_id.label("supersedes"), _used.c.number.label("applied_in"))
    .select_from(Decision)
    .join(Item)
    .outerjoin(_made, _made.c.id == Decision.c.round_id)
    .outerjoin(Application, Application.c.decision_id == Decision.c.id)
    .outerjoin(_used, _used.c.id == Application.c.round_id)
    .outerjoin(_old_decision, _old_decision.c.id == Decision.c.supersedes)
)
_CHANGES = sa.select(SettingChange)
_LISTS = {"vote": (Vote, _VOTES), "decision": (Decision, _DECISIONS), "change": (SettingChange, _CHANGES)}
KINDS = tuple(_LISTS)


def page(
    connection: sa.Connection,
    campaign_id: int,
    *,
    after: tuple[float, str, int] | None,
    limit: int,
    kind: str | None,
    item_id: int | None,
    person: str | None,
) -> tuple[list[LedgerRow], str | None]:
    """Lines before the cursor, newest first, and the cursor of what follows."""
    rows: list[LedgerRow] = []
    for name, (table, found) in _LISTS.items():
        if kind not in (None, name) or (item_id is not None and "item_id" not in table.c):
            continue
        place = sa.tuple_(table.c.created_at, sa.literal(name), table.c.id)
        where = [table.c.campaign_id == campaign_id]
        where += [] if after is None else [place < sa.tuple_(*after)]
        where += [] if item_id is None else [table.c.item_id == item_id]
        where += [] if person is None else [found.selected_columns["who"] == person]
        newest = found.where(*where).order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit + 1)
        rows += [_row(name, line) for line in connection.execute(newest).mappings()]
    rows.sort(key=lambda row: (row.created_at, row.kind, row.id), reverse=True)
    last = rows[limit - 1] if len(rows) > limit else None
    return rows[:limit], None if last is None else f"{last.created_at!r}~{last.kind}~{last.id}"


def _row(kind: str, line: sa.RowMapping) -> LedgerRow:
    shared: dict[str, Any] = {name: line.get(name) for name in _SHARED}
    return LedgerRow(kind=kind, what=line.get("what", {k: v for k, v in line.items() if k not in shared}), **shared)
