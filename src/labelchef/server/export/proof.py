"""The ledger of a campaign as a signed file; `services.export.verifying` checks it.

Pseudonyms are keyed hashes of names, by a key that follows from that of the workspace: the same person has the same pseudonym in
every file of the workspace, and nobody without the key can try names.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from labelchef.base.campaigns import SUGGESTION, SplitName
from labelchef.base.errors import InvalidInputError
from labelchef.base.files import whole_file, writing_to
from labelchef.loop.ledger.lines import header, item_lines
from labelchef.loop.ledger.proof import FORM, SigningKey, chained, in_form, sealed, shown_content
from labelchef.server.campaigns.access import find, looking
from labelchef.server.keys import signing_key
from labelchef.server.ledger.links import LinkState, check_links, form_of, proven_round
from labelchef.server.store import campaign_table, chain_table, round_table
from labelchef.server.store.arrays import read_array
from labelchef.server.store.rows import CampaignRow
from labelchef.server.workspace import Workspace, require_folder

_NOBODY = (SUGGESTION, "votes", "worker", "undo")
"""Names in the ledger that are not those of people."""


@dataclass(frozen=True)
class LedgerFile:
    """A ledger that was written, and what a look at its links said."""

    path: Path
    public: str
    links: LinkState


def export_ledger(
    ws: Workspace, campaign: str, path: Path, format: str | None = None, *, pseudonyms: bool = False
) -> Path:
    """Write the signed ledger of a campaign, JSON lines."""
    return write_ledger(ws, campaign, path, format, pseudonyms=pseudonyms).path


def write_ledger(
    ws: Workspace, campaign: str, path: Path, format: str | None = None, *, pseudonyms: bool = False
) -> LedgerFile:
    """The same, with what its links say."""
    if (format or path.suffix.removeprefix(".").lower()) != "jsonl":
        raise InvalidInputError(f"{path} ends in {path.suffix!r}; expected .jsonl for a ledger", code="out")
    key = signing_key(ws)
    require_folder(ws, find(ws, campaign))
    with looking(ws, campaign) as (connection, row), writing_to(path, "make room or name another file"):
        links = check_links(connection, row.id)
        records = _records(ws, connection, row, pseudonyms=pseudonyms)
        if pseudonyms:
            records = _renamed(records, _pseudonym_of(key))
        with whole_file(path) as stream:
            for line in sealed(chained(records), time.time(), key):
                stream.write(line)
    return LedgerFile(path, key.public, links)


def _records(ws: Workspace, connection: Connection, row: CampaignRow, *, pseudonyms: bool) -> Iterator[tuple[str, Any]]:
    """The lines of a campaign without their chain."""
    classes = campaign_table.classes_of(connection, row.id)
    about = {"name": row.name, "id": row.public_id, "created_at": row.created_at, "created_by": row.created_by}
    yield header(about, classes, row.settings, pseudonyms=pseudonyms)
    arrays = campaign_table.arrays_of(connection, row.id)
    yield "data", [_facts(asdict(one)) for _, one in sorted(arrays.items())]
    weak = read_array(require_folder(ws, row), arrays["weak"])
    for split in SplitName:
        items = campaign_table.items_of_split(connection, row.id, split)
        yield from item_lines(
            split.value,
            [one.key for one in items],
            [shown_content(one.text, one.image, one.fields) for one in items],
            [one.label for one in items],
            weak if split is SplitName.TRAIN else None,
        )
    ends = {kind: chain_table.rows_after(connection, row.id, kind, 0) for kind in chain_table.KINDS}
    waiting = {kind: next(rows, None) for kind, rows in ends.items()}

    def until(upto: dict[str, int] | None, form: int) -> Iterator[tuple[str, Any]]:
        for kind, rows in ends.items():
            while (at := waiting[kind]) is not None and (upto is None or at[0] <= upto[kind]):
                yield kind, in_form(at[1], form)
                waiting[kind] = next(rows, None)

    rounds = round_table.rounds_of(connection, row.id)
    linked = [one.number for one in rounds if one.link is not None]
    first = next((one.link for one in rounds if one.link is not None), None)
    """It covers all rows of rounds that an earlier version closed, too."""
    for one in rounds:
        covering = one.link or first
        if covering is None or one.number > linked[-1]:
            yield from until(None, FORM)
        else:
            yield from until(covering["upto"], form_of(covering))
        body = chain_table.round_body(connection, one)
        if one.link is not None:
            shown = {name: one.link[name] for name in ("sha256", "previous", "signature", "ground") if name in one.link}
            body = {**proven_round(body, one.link), "link": shown}
        yield "round", body
    yield from until(None, FORM)


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items() if name != "path"}


def _pseudonym_of(key: SigningKey) -> Callable[[str], str]:
    secret = hmac.new(key.raw, b"labelchef pseudonyms", hashlib.sha256).digest()

    def pseudonym(name: str) -> str:
        if name in _NOBODY:
            return name
        return "person-" + hmac.new(secret, name.encode(), hashlib.sha256).hexdigest()[:16]

    return pseudonym


def _renamed(records: Iterator[tuple[str, Any]], pseudonym: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    """The same lines with pseudonyms in the place of names, without notes, request ids and files, which may hold names."""
    for kind, body in records:
        if kind == "header":
            about = {**body["campaign"], "created_by": pseudonym(body["campaign"]["created_by"])}
            yield kind, {**body, "campaign": about}
        elif kind == "vote":
            names = {name: pseudonym(one) for name in ("person", "account", "imported_by") if (one := body.get(name))}
            yield kind, {**body, **names, "note": None, "request_id": None}
        elif kind == "decision":
            yield kind, {**body, "by": pseudonym(body["by"])}
        elif kind == "change":
            kept = {name: one for name, one in body["what"].items() if name != "file"}
            what = {name: pseudonym(one) if name.startswith("member_") else one for name, one in kept.items()}
            yield kind, {**body, "who": pseudonym(body["who"]), "what": what}
        elif kind == "round" and body["outcome"] is not None:
            votes = [[item, pseudonym(who), label] for item, who, label in body["outcome"]["votes"]]
            yield kind, {**body, "outcome": {**body["outcome"], "votes": votes}}
        else:
            yield kind, body
