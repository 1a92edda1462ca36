"""The ledger as one list: votes, decisions and changes by leads, newest first."""

from datetime import UTC, datetime

import sqlalchemy as sa

from labelchef.base.campaigns import LedgerEntry
from labelchef.server.store.tables import Application, Decision, Item, Round, SettingChange, Vote

_NAMED = {"id", "public_id", "created_at", "who", "item", "round", "label"}
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
) -> tuple[tuple[LedgerEntry, ...], str | None]:
    """Lines before the cursor, newest first, and the cursor of what follows."""
    rows: list[tuple[float, str, int, sa.RowMapping]] = []
    for name, (table, found) in _LISTS.items():
        if kind not in (None, name) or (item_id is not None and "item_id" not in table.c):
            continue
        place = sa.tuple_(table.c.created_at, sa.literal(name), table.c.id)
        where = [table.c.campaign_id == campaign_id]
        where += [] if after is None else [place < sa.tuple_(*after)]
        where += [] if item_id is None else [table.c.item_id == item_id]
        where += [] if person is None else [found.selected_columns["who"] == person]
        newest = found.where(*where).order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit + 1)
        lines = connection.execute(newest).mappings()
        rows += [(line["created_at"], name, line["id"], line) for line in lines]
    rows.sort(key=lambda row: row[:3], reverse=True)
    entries = tuple(_entry(name, line) for _, name, _, line in rows[:limit])
    return entries, "{!r}~{}~{}".format(*rows[limit - 1]) if len(rows) > limit else None


def _entry(kind: str, line: sa.RowMapping) -> LedgerEntry:
    """A line as it is shown; a change has no name of its own."""
    return LedgerEntry(
        id=line.get("public_id") or f"change-{line['id']}",
        kind=kind,
        at=datetime.fromtimestamp(line["created_at"], UTC),
        who=line["who"],
        item=line.get("item"),
        round=line.get("round"),
        label=line.get("label"),
        what=line.get("what", {name: value for name, value in line.items() if name not in _NAMED}),
    )
