"""What the lines of a ledger file hold, and whether its links follow from them, without the workspace and its database.

Each link follows from the link before it and the lines since (`server.ledger.links`), the first one also from classes, items and
arrays; with pseudonyms, which change the lines of votes, only the latter is computed.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from labelchef.base.canonical import digest
from labelchef.loop.ledger.proof import (
    FORMAT,
    VERSION,
    AlteredError,
    GroundDigest,
    Line,
    RowDigest,
    in_form,
    link_hash,
    signed_by,
)

_ROW_KINDS = ("vote", "decision", "change")


@dataclass
class Contents:
    """What the lines of a file hold; `add` takes them in order and raises `AlteredError` at the first link that does not fit."""

    classes: tuple[str, ...] = ()
    pseudonyms: bool = False
    of_folder: bool = False
    """Whether `labelchef clean` wrote it, not a workspace."""
    key: str | None = None
    """With which links may be signed."""
    given: dict[str, dict[str, int | None]] = field(default_factory=lambda: defaultdict(dict))
    """Split → key → label given with the data."""
    contents: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Split → key → digest of what people saw."""
    final: dict[str, int | None] = field(default_factory=dict)
    """Item → the label of the decision that counts."""
    counts: Counter[str] = field(default_factory=Counter)
    links: list[str] = field(default_factory=list)
    """The links, the first one first."""
    bodies: set[str] = field(default_factory=set)
    """Digests of all votes, decisions and changes."""
    first_forms: set[str] = field(default_factory=set)
    """The same in the first form, which an earlier ledger may have."""
    ground: bool = False
    """Whether the first link covers classes, items and arrays."""
    _arrays: dict[str, str] = field(default_factory=dict)
    _ground: GroundDigest | None = None
    _rows: dict[str, RowDigest] = field(default_factory=lambda: {kind: RowDigest() for kind in _ROW_KINDS})

    def add(self, line: Line) -> None:
        """Take in one line."""
        readers = {"header": self._header, "data": self._data, "items": self._items, "change": self._change}
        readers |= {"decision": self._decision, "round": self._round}
        if line.kind not in {*readers, "vote"}:
            raise AlteredError(line.number, f"lines of kind {line.kind!r} are not known to this version")
        if (line.number == 1) != (line.kind == "header"):
            raise AlteredError(line.number, "the header is the first line, and only that")
        self.counts[line.kind] += 1
        try:
            if line.kind in _ROW_KINDS:
                self._rows[line.kind].add(line.body)
                self.bodies.add(digest(line.body))
                self.first_forms.add(digest(in_form(line.body, 1)))
            if line.kind in readers:
                readers[line.kind](line)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise AlteredError(line.number, f"it is not what lines of kind {line.kind!r} are ({error!r})") from None

    def _header(self, line: Line) -> None:
        body = line.body
        if body["format"] != FORMAT or body["format_version"] != VERSION:
            raise AlteredError(line.number, f"it is of format {body['format_version']!r}; this version reads {VERSION}")
        self.classes = tuple(body["classes"])
        self.pseudonyms, self.of_folder = bool(body["pseudonyms"]), body["campaign"]["id"] is None

    def _data(self, line: Line) -> None:
        self._arrays = {one["name"]: one["sha256"] for one in line.body}
        self._ground = GroundDigest(self.classes, line.body)

    def _items(self, line: Line) -> None:
        body, split = line.body, line.body["split"]
        if self._ground is None or body["first"] != len(self.given[split]):
            raise AlteredError(line.number, "lines are missing before it")
        for position, (key, content, label) in enumerate(
            zip(body["keys"], body["content"], body["labels"], strict=True), start=body["first"]
        ):
            self._ground.add(split, position, key, label, content)
            self.given[split][key], self.contents[split][key] = self._class_id(line, label), content

    def _change(self, line: Line) -> None:
        for name, sha256 in dict(line.body["what"].get("rules", {})).get("arrays", {}).items():
            if self._arrays.get(name) != sha256:
                raise AlteredError(line.number, f"the array {name!r} is not the one that this edit of the rules stored")

    def _decision(self, line: Line) -> None:
        self.final[line.body["item"]] = self._class_id(line, line.body["label"])

    def _class_id(self, line: Line, label: Any) -> int | None:
        if label is not None and not (isinstance(label, int) and 0 <= label < len(self.classes)):
            raise AlteredError(line.number, f"label {label!r}; expected one of {len(self.classes)} classes")
        return label

    def _round(self, line: Line) -> None:
        body, link = line.body, line.body.get("link")
        number, before = body["number"], self.links[-1] if self.links else ""
        closed = body["state"] == "closed"
        self.counts["closed"] += closed
        if link is None:
            if before and closed:
                raise AlteredError(line.number, f"round {number} has no link, and a round before it has")
            return
        if link["previous"] != before:
            raise AlteredError(line.number, f"the link of round {number} does not follow that of the round before")
        told = link.get("ground")
        if told is not None and not before:
            if self._ground is None or self._ground.hex() != told:
                why = (
                    f"class names, items or arrays are not those that were there when round {number} closed: the "
                    "database was changed since"
                )
                raise AlteredError(line.number, why)
            self.ground = True
        bare = {name: value for name, value in body.items() if name != "link"}
        if not self.pseudonyms and link_hash(before, self._rows, bare, told) != link["sha256"]:
            why = f"the rows stored when round {number} closed are not those above: the database was changed since"
            raise AlteredError(line.number, why)
        self._rows = {kind: RowDigest() for kind in _ROW_KINDS}
        self.links.append(link["sha256"])
        if link["signature"] is not None and self.key is not None:
            mine = signed_by(self.key, link["sha256"], link["signature"])
            self.counts["signed links" if mine else "foreign links"] += 1
