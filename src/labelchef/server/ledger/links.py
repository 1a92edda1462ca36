"""Links: what makes a change of stored rows visible. When a round closes, a digest over the link before it and over every vote,
decision and change by a lead since then, and over the round itself, is stored with the round.

    rows(kind)  = SHA-256 of the canonical bodies of all rows of the kind since the link before, each with a line feed, by id
    link        = SHA-256 of canonical {previous, vote: rows(vote), decision: …, change: …, round: SHA-256 of the round's body,
                  in the first link also ground: what the campaign is about (`proof.GroundDigest`)}

A link says in which form (`proof.FORM`) the bodies of rows are. The body of the round holds the settings at that time and the
version of labelchef too. A link covers exactly the rows of its
campaign with an inner id above that of the link before and up to its own (`upto`), of each kind. No row can appear among them
later: whoever inserts a row holds the campaign's lock from before the id is given until the transaction ends, and so does the
step that closes a round. Rounds that were closed by an earlier version have no link; the first link covers all rows before it.
Whether an earlier version closed them or someone removed their links cannot be told, so it is said that they are not proven.

Most rows are read before the closing transaction begins (`LinkMaker.read`); the rest, usually none, inside of it. Votes wait no
longer than before. Where a key is there, the link is signed: whoever can write the database alone cannot make another one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from labelchef.base.settings import Settings
from labelchef.loop.ledger.proof import (
    FORM,
    GroundDigest,
    RowDigest,
    content_digest,
    in_form,
    link_hash,
    shown_content,
    unproven,
)
from labelchef.server.store import campaign_table, chain_table, round_table
from labelchef.server.store.chain_table import Body
from labelchef.server.store.rows import RoundRow

Sign = Callable[[str], str | None]
"""From the text of a digest to its signature; None where it cannot be signed now."""


def proven_round(body: Body, link: dict[str, Any]) -> Body:
    """The body of a round that its link covers: with the settings and the version of that time."""
    return {**body, "settings": link["settings"], "version": link["version"]}


def form_of(link: dict[str, Any]) -> int:
    """The form of the bodies of rows that a link is over."""
    return int(link.get("form", 1))


@dataclass(frozen=True)
class Signer:
    """Who makes links."""

    version: str = ""
    """Of labelchef."""
    sign: Sign | None = None
    """None where there is no key."""


@dataclass
class LinkMaker:
    """The rows since the last link of a campaign, read as far as they are there."""

    campaign_id: int
    previous: str = ""
    ground: str | None = None
    """Of the first link."""
    upto: dict[str, int] = field(default_factory=lambda: dict.fromkeys(chain_table.KINDS, 0))
    rows: dict[str, RowDigest] = field(default_factory=lambda: {kind: RowDigest() for kind in chain_table.KINDS})

    @classmethod
    def after_last(cls, connection: sa.Connection, campaign_id: int) -> "LinkMaker":
        """Behind the last link of a campaign, with all rows that are there."""
        links = [row.link for row in round_table.rounds_of(connection, campaign_id) if row.link is not None]
        if links:
            made = cls(campaign_id, links[-1]["sha256"], upto=dict(links[-1]["upto"]))
        else:
            made = cls(campaign_id, ground=ground_of(connection, campaign_id))
        made.read(connection)
        return made

    def read(self, connection: sa.Connection) -> None:
        """Take in the rows that came since."""
        for kind, rows in self.rows.items():
            for row_id, body in chain_table.rows_after(connection, self.campaign_id, kind, self.upto[kind]):
                rows.add(body)
                self.upto[kind] = row_id

    def link(self, connection: sa.Connection, row: RoundRow, settings: Settings, by: "Signer") -> dict[str, Any]:
        """The link of a round that is closed in this transaction, as it is stored."""
        self.read(connection)
        facts = {"settings": settings.as_dict(), "version": by.version}
        made = link_hash(
            self.previous, self.rows, proven_round(chain_table.round_body(connection, row), facts), self.ground
        )
        signature = None if by.sign is None else by.sign(made)
        under = {} if self.ground is None else {"ground": self.ground}
        stored = {"sha256": made, "previous": self.previous, "upto": self.upto, "signature": signature}
        return {**stored, "form": FORM, **facts, **under}


def ground_of(connection: sa.Connection, campaign_id: int) -> str:
    """What a campaign is about, as it is stored now."""
    arrays = campaign_table.arrays_of(connection, campaign_id).values()
    facts = [{"name": a.name, "dtype": a.dtype, "shape": list(a.shape), "sha256": a.sha256} for a in arrays]
    made = GroundDigest(campaign_table.classes_of(connection, campaign_id), facts)
    for one in chain_table.items_streamed(connection, campaign_id):
        content = content_digest(shown_content(one.text, one.image, one.fields))
        made.add(one.split, one.position, one.key, one.label, content)
    return made.hex()


@dataclass(frozen=True)
class LinkState:
    """What a check of the links found."""

    linked: int
    """Rounds with a link."""
    unlinked: int
    """Closed rounds without: an earlier version closed them, or links were removed."""
    broken: int | None
    """The first round whose link does not follow from the rows that are there; None if all do."""
    ground: bool | None = None
    """Whether classes, items and arrays are those of the first link; None where it does not cover them."""

    @property
    def told(self) -> str:
        """What is wrong or not proven, in words; empty if nothing is."""
        if self.ground is False:
            return (
                f"class names, items or arrays of the data are not those that were there when round {self.broken} closed: "
                "they were changed in the database since"
            )
        if self.broken is not None:
            return f"rows that were stored when round {self.broken} closed have been changed in the database since"
        return unproven(self.linked, self.unlinked, ground=self.ground is not None)


def check_links(connection: sa.Connection, campaign_id: int) -> LinkState:
    """Compute every link of a campaign again from the rows that are there."""
    linked = unlinked = 0
    ground: bool | None = None
    previous, rows = "", _Rows(connection, campaign_id)
    for row in round_table.rounds_of(connection, campaign_id):
        if row.is_open:
            continue
        if row.link is None:
            unlinked += 1
            if linked:
                return LinkState(linked, unlinked, row.number, ground)  # links once made do not end
            continue
        body, told = proven_round(chain_table.round_body(connection, row), row.link), row.link.get("ground")
        made = link_hash(previous, rows.upto(row.link["upto"], form_of(row.link)), body, told)
        if row.link["previous"] != previous or made != row.link["sha256"]:
            return LinkState(linked, unlinked, row.number, ground)
        if not linked and told is not None:
            ground = told == ground_of(connection, campaign_id)
            if not ground:
                return LinkState(linked, unlinked, row.number, ground)
        previous, linked = row.link["sha256"], linked + 1
    if linked and not _versions_hold(connection, campaign_id):
        return LinkState(linked, unlinked, 0, ground=False)
    return LinkState(linked, unlinked, None, ground)


def _versions_hold(connection: sa.Connection, campaign_id: int) -> bool:
    """Whether the arrays that edits of rules stored are those that the changes name."""
    arrays = campaign_table.arrays_of(connection, campaign_id)
    named: dict[str, str] = {}
    for _, body in chain_table.rows_after(connection, campaign_id, "change", 0):
        named |= dict(body["what"].get("rules", {})).get("arrays", {})
    return all(name in arrays and arrays[name].sha256 == sha256 for name, sha256 in named.items())


class _Rows:
    """The rows of a campaign in order, handed out link by link."""

    def __init__(self, connection: sa.Connection, campaign_id: int) -> None:
        self._rows = {
            kind: list(chain_table.rows_after(connection, campaign_id, kind, 0)) for kind in chain_table.KINDS
        }
        self._at = dict.fromkeys(chain_table.KINDS, 0)

    def upto(self, ends: dict[str, int], form: int) -> dict[str, RowDigest]:
        found = {kind: RowDigest() for kind in chain_table.KINDS}
        for kind, rows in self._rows.items():
            while self._at[kind] < len(rows) and rows[self._at[kind]][0] <= ends[kind]:
                found[kind].add(in_form(rows[self._at[kind]][1], form))
                self._at[kind] += 1
        return found
