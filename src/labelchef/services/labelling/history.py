"""The ledger of a campaign, a page at a time."""

import re

from labelchef.domain.campaigns import LedgerEntry, Page
from labelchef.domain.errors import InvalidInputError
from labelchef.services.people.access import looking
from labelchef.services.shared import common, moment
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, ledger_lines
from labelchef.store.rows import storable


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
        entries, cursor = ledger_lines.page(
            connection, row.id, after=_cursor(after), limit=limit, kind=kind, item_id=item_id, person=person
        )
    return Page(tuple(_entry(line) for line in entries), cursor)


def _entry(row: ledger_lines.LedgerRow) -> LedgerEntry:
    values = common(LedgerEntry, row)
    return LedgerEntry(**{**values, "id": row.public_id or f"change-{row.id}", "at": moment(row.created_at)})


def _cursor(after: str | None) -> tuple[float, str, int] | None:
    if after is None:
        return None
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,20})?)~([a-z]+)~(\d{1,18})", after)
    if found is None or found[2] not in ledger_lines.KINDS:
        raise InvalidInputError(f"{after!r} is no cursor; take the one of the page before", code="cursor")
    return float(found[1]), found[2], int(found[3])
