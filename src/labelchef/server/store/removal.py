"""Remove a whole campaign: the one way in which rows of the ledger may go.

The triggers of the ledger (`guards`) refuse every change, every truncation, and the deletion of a row unless its campaign is
marked `purging`. That mark is set, and everything but the items deleted, within one transaction (`remove_rows`): a crash in
between leaves everything as it was. The items, of which there may be millions, follow some thousand at a time (`remove_items`),
so that votes in other campaigns do not wait; nothing finds a campaign that is marked, and whoever removes next goes on with it.
A campaign that is being made has the mark too, until all of it is there. Which rows belong to a campaign follows from the
foreign keys of the tables: a new table needs nothing here.
"""

import time
from collections.abc import Iterator

import sqlalchemy as sa

from labelchef.server.store.rows import CampaignRow, RemovedCampaign, all_rows
from labelchef.server.store.tables import LEDGER_TABLES, METADATA, Campaign, Item
from labelchef.server.store.tables import RemovedCampaign as RemovedTable

AT_ONCE = 10_000
"""Items that are deleted in one transaction."""
_REFUSED = "the ledger is append-only"


def way_to_campaign(table: sa.Table) -> list[sa.Column[object]] | None:
    """Foreign keys that lead from a table to the campaign; None for a table that belongs to none.

    >>> from labelchef.server.store.tables import Account, Application, Vote
    >>> [str(key) for key in way_to_campaign(Application)], [str(key) for key in way_to_campaign(Vote)]
    (['application.decision_id', 'decision.campaign_id'], ['vote.campaign_id'])
    >>> way_to_campaign(Account) is None
    True
    """
    shortest: list[sa.Column[object]] | None = None
    for key in sorted(table.foreign_keys, key=lambda key: str(key.parent)):
        other = key.column.table
        if other is table or key.parent.nullable:
            continue
        rest = [] if other is Campaign else way_to_campaign(other)
        if rest is not None and (shortest is None or len(rest) + 1 < len(shortest)):
            shortest = [key.parent, *rest]
    return shortest


def _of_campaign(way: list[sa.Column[object]], chosen: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """That a row's way ends at the campaigns that are chosen."""
    within: sa.Select[tuple[object]] = sa.select(Campaign.c.id).where(chosen)
    for key in reversed(way[1:]):
        within = sa.select(key.table.c.id).where(key.in_(within))
    return way[0].in_(within)


def remove_rows(connection: sa.Connection, campaign: CampaignRow) -> dict[str, int]:
    """Delete every row of a deleted campaign, and note that it was there; table → rows deleted."""
    assert campaign.deleted_at is not None, "only what a lead has deleted is removed"
    this = Campaign.c.id == campaign.id
    connection.execute(sa.update(Campaign).where(this).values(purging=True, purge_at=campaign.deleted_at))
    counts = {}
    for table in reversed(METADATA.sorted_tables):
        way = way_to_campaign(table)
        if way is None:
            continue
        if table is Item:
            continue
        own = [key.parent for key in table.foreign_keys if key.column.table is table]
        where = _of_campaign(way, this)
        if own:  # rows that refer to earlier rows of the same table go first
            counts[table.name] = _newest_first(connection, table, where)
        else:
            counts[table.name] = connection.execute(sa.delete(table).where(where)).rowcount
    values = {name: getattr(campaign, name) for name in ("public_id", "slug", "name", "created_at", "deleted_at")}
    connection.execute(
        sa.insert(RemovedTable).values(**values, deleted_by=campaign.deleted_by or "", removed_at=time.time())
    )
    counts["item"], _ = remove_items(connection, campaign.id)
    return counts


def remove_items(connection: sa.Connection, campaign_id: int) -> tuple[int, bool]:
    """Delete some items of a campaign of which nothing else is left, after the last one the campaign; how many, and whether
    that was all."""
    some = sa.select(Item.c.id).where(Item.c.campaign_id == campaign_id).limit(AT_ONCE)
    count = connection.execute(sa.delete(Item).where(Item.c.id.in_(some))).rowcount
    if count == AT_ONCE:
        return count, False
    connection.execute(sa.delete(Campaign).where(Campaign.c.id == campaign_id))
    return count, True


def is_marked(connection: sa.Connection, campaign_id: int) -> bool | None:
    """Whether a campaign is being made or removed; None if it is gone. Its row stays as it is until this transaction ends."""
    found = sa.select(Campaign.c.purging).where(Campaign.c.id == campaign_id)
    if connection.dialect.name == "postgresql":
        found = found.with_for_update()
    marked = connection.execute(found).scalar()
    return None if marked is None else bool(marked)


def _newest_first(connection: sa.Connection, table: sa.Table, where: sa.ColumnElement[bool]) -> int:
    """Delete rows of which some supersede others. PostgreSQL checks that at the end of a statement, SQLite row by row."""
    if connection.dialect.name == "postgresql":
        return connection.execute(sa.delete(table).where(where)).rowcount
    ids = list(connection.execute(sa.select(table.c.id).where(where).order_by(table.c.id.desc())).scalars())
    if ids:
        connection.execute(sa.delete(table).where(table.c.id == sa.bindparam("one")), [{"one": one} for one in ids])
    return len(ids)


def removed_campaigns(connection: sa.Connection) -> list[RemovedCampaign]:
    """Every campaign that was removed for good, oldest first."""
    return all_rows(connection, sa.select(RemovedTable).order_by(RemovedTable.c.id), RemovedCampaign)


def guards(dialect: str) -> Iterator[str]:
    """Statements that make the triggers of the ledger, in place of earlier ones."""
    for table in LEDGER_TABLES:
        allowed = _purging(METADATA.tables[table])
        yield from _postgres(table, allowed) if dialect == "postgresql" else _sqlite(table, allowed)


def _purging(table: sa.Table) -> str:
    """SQL that is true for a row OLD whose campaign is being removed."""
    way = way_to_campaign(table)
    assert way is not None, f"{table.name} is a ledger but belongs to no campaign"
    within = "SELECT id FROM campaign WHERE purging"
    for key in reversed(way[1:]):
        within = f"SELECT id FROM {key.table.name} WHERE {key.name} IN ({within})"
    return f"OLD.{way[0].name} IN ({within})"


def _postgres(table: str, allowed: str) -> Iterator[str]:
    yield (
        f"CREATE OR REPLACE FUNCTION labelchef_keep_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF TG_OP = 'DELETE' THEN IF {allowed} THEN RETURN OLD; END IF; END IF; "
        f"RAISE EXCEPTION '{_REFUSED}'; END $$"
    )
    for name, event, each in (("append_only", "UPDATE OR DELETE", "ROW"), ("no_truncate", "TRUNCATE", "STATEMENT")):
        yield f"DROP TRIGGER IF EXISTS {table}_{name} ON {table}"
        yield (
            f"CREATE TRIGGER {table}_{name} BEFORE {event} ON {table} "
            f"FOR EACH {each} EXECUTE FUNCTION labelchef_keep_{table}()"
        )


def _sqlite(table: str, allowed: str) -> Iterator[str]:
    for verb, unless in (("UPDATE", ""), ("DELETE", f"WHEN NOT {allowed} ")):
        yield f"DROP TRIGGER IF EXISTS {table}_no_{verb.lower()}"
        yield (
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} {unless}"
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )
