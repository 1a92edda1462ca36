"""What follows from what in a ledger file, computed again without the workspace and without its database:

    votes        each replaces the vote of this person on this attempt that it says it does
    decisions    by votes: the rule gives this label and this share for the votes that were there, at a time that is not
                 before the decision before; the last one fits all votes. By a lead: as it is said
    selections   `selection_hash` is that of the samples and suggestions of the round
    labels       `labels_hash` is that of weak labels, labels given with the data, and the decisions up to the round
    links        each follows from the link before it and the lines since (`ledger.links`), the first one also from classes,
                 items and arrays; with pseudonyms, which change the lines of votes, only the latter is computed

Votes and decisions between two rounds have no common order, so "the votes that were there" is the shortest beginning of the
votes on the attempt, by their order, that gives the decision.
"""

import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelchef.aggregation import MajorityVote
from labelchef.domain.arrays import Bools, Float64s, Ints
from labelchef.domain.canonical import digest
from labelchef.domain.records import UNRESOLVED, Batch, Votes
from labelchef.ledger.proof import (
    FORMAT,
    RULE,
    VERSION,
    AlteredError,
    GroundDigest,
    Line,
    RowDigest,
    in_form,
    link_hash,
    signed_by,
    unpacked,
)
from labelchef.ledger.protocol import labels_hash

_ROW_KINDS = ("vote", "decision", "change")
_TRAIN = "train"
_Attempt = tuple[str, int]


@dataclass
class Recount:
    """The state that the lines of a file lead to; `add` takes them in order and raises `AlteredError` at the first that does not
    follow from those before it."""

    classes: tuple[str, ...] = ()
    campaign: str = ""
    pseudonyms: bool = False
    of_folder: bool = False
    """Whether `labelchef clean` wrote it, not a workspace."""
    key: str | None = None
    """With which links may be signed."""
    given: dict[str, dict[str, int | None]] = field(default_factory=lambda: defaultdict(dict))
    """Split → key → label given with the data."""
    contents: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Split → key → digest of what people saw."""
    final: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Item → the decision that counts."""
    counts: Counter[str] = field(default_factory=Counter)
    _arrays: dict[str, dict[str, Any]] = field(default_factory=dict)
    _weak: list[Float64s] = field(default_factory=list)
    _place: dict[str, int] = field(default_factory=dict)
    _labels: Float64s | None = None
    _cleaned: Bools | None = None
    _votes: dict[_Attempt, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Items for which anyone named a class."""
    _vote_ids: set[str] = field(default_factory=set)
    _decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    _used: dict[_Attempt, int] = field(default_factory=dict)
    """Votes on an attempt that the last decision on it rests on."""
    _pending: set[str] = field(default_factory=set)
    """Decisions that no round has applied yet."""
    links: list[str] = field(default_factory=list)
    """The links, the first one first."""
    bodies: set[str] = field(default_factory=set)
    """Digests of all votes, decisions and changes."""
    first_forms: set[str] = field(default_factory=set)
    """The same in the first form, which an earlier ledger may have."""
    ground: bool = False
    """Whether the first link covers classes, items and arrays."""
    _ground: GroundDigest | None = None
    _link: str = ""
    _rows: dict[str, RowDigest] = field(default_factory=lambda: {kind: RowDigest() for kind in _ROW_KINDS})
    _number: int = -1
    _last_line: dict[str, int] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Take in one line."""
        known = {"header", "data", "items", "round", *_ROW_KINDS}
        if line.kind not in known:
            raise AlteredError(line.number, f"lines of kind {line.kind!r} are not known to this version")
        if (line.number == 1) != (line.kind == "header"):
            raise AlteredError(line.number, "the header is the first line, and only that")
        self.counts[line.kind] += 1
        try:
            getattr(self, f"_{line.kind}")(line)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise AlteredError(line.number, f"it is not what lines of kind {line.kind!r} are ({error!r})") from None
        if line.kind in _ROW_KINDS:
            self._rows[line.kind].add(line.body)
            self.bodies.add(digest(line.body))
            self.first_forms.add(digest(in_form(line.body, 1)))

    def finish(self) -> None:
        """Check what only the end shows: the last decisions fit all votes."""
        for item, made in self.final.items():
            at = (item, made["attempt"])
            if made["kind"] == "votes" and self._counted(self._votes[at])[0] != made["label"]:
                why = f"votes on item {item!r} behind its last decision, {made['public_id']!r}, give another label"
                raise AlteredError(self._last_line[item], why)

    @property
    def linked(self) -> int:
        """Rounds with a link."""
        return self.counts["linked"]

    def _header(self, line: Line) -> None:
        body = line.body
        if body["format"] != FORMAT or body["format_version"] != VERSION:
            raise AlteredError(line.number, f"it is of format {body['format_version']!r}; this version reads {VERSION}")
        self.classes, self.campaign = tuple(body["classes"]), body["campaign"]["name"]
        if body["rule"] != RULE:
            raise AlteredError(line.number, f"decisions by a rule that this version does not know, {body['rule']!r}")
        self.pseudonyms, self.of_folder = bool(body["pseudonyms"]), body["campaign"]["id"] is None

    def _data(self, line: Line) -> None:
        self._arrays = {one["name"]: one for one in line.body}
        self._ground = GroundDigest(self.classes, line.body)

    def _items(self, line: Line) -> None:
        body, split = line.body, line.body["split"]
        if not len(body["keys"]) == len(body["content"]) == len(body["labels"]):
            raise AlteredError(line.number, "items with parts of different length")
        if body["first"] != len(self.given[split]):
            raise AlteredError(line.number, "items are missing before it")
        if self._ground is None:
            raise AlteredError(line.number, "the line of the arrays is not before it")
        for position, (key, content, label) in enumerate(
            zip(body["keys"], body["content"], body["labels"], strict=True), start=body["first"]
        ):
            self._ground.add(split, position, key, label, content)
            if split == _TRAIN:
                self._place[key] = len(self._place)
            self.given[split][key], self.contents[split][key] = label, content
        if split == _TRAIN:
            self._weak.append(unpacked(body["weak"], len(self.classes)))

    def _change(self, line: Line) -> None:
        body = line.body
        if not isinstance(body["who"], str) or not isinstance(body["what"], dict):
            raise AlteredError(line.number, "a change by nobody, or of nothing")
        for name, sha256 in dict(body["what"].get("rules", {})).get("arrays", {}).items():
            if self._arrays.get(name, {}).get("sha256") != sha256:
                raise AlteredError(line.number, f"the array {name!r} is not the one that this edit of the rules stored")

    def _vote(self, line: Line) -> None:
        body = line.body
        if body["item"] not in self._place:
            raise AlteredError(line.number, f"a vote on an item that is not there, {body['item']!r}")
        self._check_label(line, body["label"])
        ballots = self._votes[body["item"], body["attempt"]]
        mine = [one for one in ballots if one["person"] == body["person"]]
        last = mine[-1]["public_id"] if mine else None
        if body["public_id"] in self._vote_ids or body["seq"] != len(mine) or body["supersedes"] != last:
            why = f"the vote {body['public_id']!r} does not follow the votes of this person on item {body['item']!r}"
            raise AlteredError(line.number, why)
        self._vote_ids.add(body["public_id"])
        ballots.append(body)
        self._last_line[body["item"]] = line.number

    def _decision(self, line: Line) -> None:
        body = line.body
        item, at = body["item"], (body["item"], body["attempt"])
        if item not in self._place or body["public_id"] in self._decisions:
            raise AlteredError(line.number, f"a decision twice, or on an item that is not there, {item!r}")
        self._check_label(line, body["label"])
        if body["supersedes"] != (self.final[item]["public_id"] if item in self.final else None):
            raise AlteredError(line.number, f"the decision does not follow the last one on item {item!r}")
        if body["kind"] == "votes":
            self._used[at] = self._prefix(line, at)
        elif body["kind"] not in ("lead", "reopen") or (body["kind"] == "reopen" and body["label"] is not None):
            raise AlteredError(line.number, f"a decision of kind {body['kind']!r} with label {body['label']!r}")
        self._decisions[body["public_id"]] = self.final[item] = body
        self._pending.add(body["public_id"])
        self._last_line[item] = line.number

    def _check_label(self, line: Line, label: Any) -> None:
        if label is not None and not (isinstance(label, int) and 0 <= label < len(self.classes)):
            raise AlteredError(line.number, f"label {label!r}; expected one of {len(self.classes)} classes")

    def _prefix(self, line: Line, at: _Attempt) -> int:
        """How many votes on the attempt the decision rests on."""
        body, ballots = line.body, self._votes[at]
        for count in range(self._used.get(at, 0), len(ballots) + 1):
            label, support = self._counted(ballots[:count])
            if label == body["label"] and abs(support - body["support"]) < 1e-9:
                return count
        found = self._counted(ballots)[0]
        told = "no label" if found is None else f"{self.classes[found]!r}"
        said = "no label" if body["label"] is None else f"{self.classes[body['label']]!r}"
        why = f"the votes on item {at[0]!r} give {told}, and the decision {body['public_id']!r} says {said}"
        raise AlteredError(line.number, why)

    @staticmethod
    def _counted(ballots: Sequence[dict[str, Any]]) -> tuple[int | None, float]:
        """What the live votes come to, and the share behind it."""
        last = {one["person"]: one for one in ballots}
        live = [one for one in last.values() if not one["retracted"]]
        if not live:
            return None, 0.0
        item = np.zeros(len(live), dtype=np.int64)
        labels = np.array([UNRESOLVED if one["label"] is None else one["label"] for one in live], dtype=np.int64)
        made = MajorityVote().aggregate(
            Votes(item, tuple(one["person"] for one in live), labels), Batch.without_predictions(item[:1])
        )
        label = int(made.labels[0])
        return None if label == UNRESOLVED else label, float(made.support[0])

    def _round(self, line: Line) -> None:
        body = line.body
        if body["number"] != self._number + 1:
            raise AlteredError(line.number, f"round {body['number']} comes behind round {self._number}")
        self._number = body["number"]
        if body["kind"] == "batch" and body["selection_hash"] is not None:
            self._check_selection(line)
        if body["state"] == "closed":
            self.counts["closed"] += 1
            self._close(line)
        self._check_link(line)

    def _check_selection(self, line: Line) -> None:
        parts = []
        for ahead in (False, True):
            mine = [one for one in line.body["selections"] if (one[2] == "ahead") == ahead]
            parts.append([self._place[one[0]] for one in mine])
            parts.append([UNRESOLVED if one[3] is None else one[3] for one in mine])
        found = hashlib.sha256(b"".join(np.array(part, dtype="<i8").tobytes() for part in parts)).hexdigest()
        if found != line.body["selection_hash"]:
            raise AlteredError(line.number, f"the samples of round {self._number} are not those of its selection_hash")
        self.counts["selections"] += 1

    def _close(self, line: Line) -> None:
        """The decisions that went into the model of a round, and the labels after it."""
        body, outcome = line.body, line.body["outcome"]
        applied: dict[int, int] = {}
        for public_id in body["applied"]:
            if public_id not in self._pending:
                why = f"round {self._number} applies decision {public_id!r}, which is not there or was used"
                raise AlteredError(line.number, why)
            self._pending.remove(public_id)
            made = self._decisions[public_id]
            applied[self._place[made["item"]]] = UNRESOLVED if made["label"] is None else made["label"]
        decided = dict(zip(outcome["decided_items"], outcome["decided"], strict=True))
        if decided != applied:
            raise AlteredError(
                line.number, f"the labels of round {self._number} are not those of the decisions it applies"
            )
        labels, cleaned = self._table(line)
        for place, label in applied.items():
            labels[place] = self._weak[0][place] if label == UNRESOLVED else np.eye(len(self.classes))[label]
            cleaned[place] = label != UNRESOLVED
        if body["labels_hash"] is not None:
            if labels_hash(labels, cleaned) != body["labels_hash"]:
                raise AlteredError(
                    line.number, f"the labels after round {self._number} are not those of its labels_hash"
                )
            self.counts["labels"] += 1

    def _table(self, line: Line) -> tuple[Float64s, Bools]:
        """Labels and which are clean, to begin with as they were given."""
        if self._labels is None or self._cleaned is None:
            weak = np.concatenate(self._weak) if self._weak else np.empty((0, len(self.classes)))
            self._weak = [weak]
            given: Ints = np.array(
                [UNRESOLVED if label is None else label for label in self.given[_TRAIN].values()], dtype=np.int64
            )
            facts = self._arrays.get("weak")
            if facts is None or _npy_digest(weak.astype(facts["dtype"])) != facts["sha256"]:
                raise AlteredError(line.number, "the weak labels of the items are not those of the data")
            self._labels, self._cleaned = weak.copy(), given != UNRESOLVED
            self._labels[self._cleaned] = np.eye(len(self.classes))[given[self._cleaned]]
        return self._labels, self._cleaned

    def _check_link(self, line: Line) -> None:
        link = line.body.get("link")
        if link is None:
            if self._link and line.body["state"] == "closed":
                raise AlteredError(line.number, f"round {self._number} has no link, and a round before it has")
            return
        bare = {name: value for name, value in line.body.items() if name != "link"}
        if link["previous"] != self._link:
            raise AlteredError(
                line.number, f"the link of round {self._number} does not follow that of the round before"
            )
        told = link.get("ground")
        if told is not None and not self._link:
            if self._ground is None or self._ground.hex() != told:
                why = (
                    f"class names, items or arrays are not those that were there when round {self._number} closed: the "
                    "database was changed since"
                )
                raise AlteredError(line.number, why)
            self.ground = True
        if not self.pseudonyms and link_hash(self._link, self._rows, bare, told) != link["sha256"]:
            why = (
                f"the rows stored when round {self._number} closed are not those above: the database was changed since"
            )
            raise AlteredError(line.number, why)
        self._link, self._rows = link["sha256"], {kind: RowDigest() for kind in _ROW_KINDS}
        self.counts["linked"] += 1
        self.links.append(self._link)
        if link["signature"] is not None and self.key is not None:
            mine = signed_by(self.key, link["sha256"], link["signature"])
            self.counts["signed links" if mine else "foreign links"] += 1


def _npy_digest(array: "np.ndarray[Any, Any]") -> str:
    """SHA-256 of an array in NumPy's .npy format."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return hashlib.sha256(stream.getvalue()).hexdigest()
