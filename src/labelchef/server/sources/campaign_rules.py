"""The rules of a campaign: kept with it, tried on its items, edited while it runs.

A campaign keeps its rules in an array of its folder, `rules`, and where their words are in the texts of its items in `spans`.
An edit makes the next version k: `rules-k`, `spans-k` and the votes of all sources, `votes-k_…` and `val_votes-k_…`.
Earlier versions stay: rounds that were made of them can be computed again. The change is in the ledger with the digests of
the new arrays.

Rules name the columns of the files that a campaign was made of. Items have a text, which is made of one or more of them, and
fields. `Kept.texts` says which columns the text is, and the array `text_parts` (N + n, columns) how long each part of each
text is.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sqlalchemy import Connection

from labelchef.base.arrays import Bools, Ints
from labelchef.base.campaigns import SplitName
from labelchef.base.errors import ConflictError, InvalidInputError
from labelchef.base.stopping_work import go_on
from labelchef.believe import SourceVotes
from labelchef.believe.rules import Dictionary, Model, Rule, RuleBoard, check_rules, rule_of, rule_values
from labelchef.believe.spans import spans_of
from labelchef.believe.vote_forms import WEAK_SOURCE
from labelchef.server.memory import Latest
from labelchef.server.store import campaign_table
from labelchef.server.store.arrays import ArrayFacts, read_array, write_array
from labelchef.server.store.campaign_table import RULES
from labelchef.server.store.rows import CampaignRow, ItemRow
from labelchef.server.workspace import Workspace, folder_of, require_folder

SPANS, PARTS = "spans", "text_parts"
_AT_ONCE, _A_FRAME = 1000, 20_000
_SPLITS = (SplitName.TRAIN, SplitName.VALIDATION)
_RENAMED = ("id", "text", "image")
_KEPT, _MOST_VERSIONS = 8, 1000
RuleValues = Mapping[str, object]
"""A rule as plain values, see `believe.rules.rule_of`."""


@dataclass(frozen=True)
class Kept:
    """The rules of a campaign."""

    rules: tuple[Rule, ...] = ()
    texts: tuple[str, ...] = ("text",)
    """The columns that the text of an item is made of, one below the other."""

    def to_array(self) -> "NDArray[np.uint8]":
        """As a file holds it."""
        values = {"rules": [rule_values(one) for one in self.rules], "texts": list(self.texts)}
        return np.frombuffer(json.dumps(values, ensure_ascii=False).encode(), dtype=np.uint8)

    @classmethod
    def of_array(cls, array: "NDArray[np.uint8]") -> "Kept":
        """What `to_array` gave."""
        values = json.loads(bytes(array))
        return cls(tuple(rule_of(one, k + 1) for k, one in enumerate(values["rules"])), tuple(values["texts"]))


def kept_of(rules: Sequence[Rule], texts: Sequence[str]) -> Kept:
    """Rules to be kept; word lists of files become words of the rule."""
    plain = tuple(replace(one, file=None) if isinstance(one, Dictionary) else one for one in rules)
    return Kept(plain, tuple(texts))


def arrays_to_keep(kept: Kept, frames: Sequence[pd.DataFrame]) -> dict[str, "NDArray[Any]"]:
    """The arrays of a new campaign; `frames` are its training and trusted rows, with the columns that the rules name."""
    made: dict[str, NDArray[Any]] = {RULES: kept.to_array()}
    if len(kept.texts) > 1:
        lengths = [[_lengths(frame[name]) for name in kept.texts] for frame in frames]
        made[PARTS] = np.concatenate([np.stack(columns, axis=1) for columns in lengths])
    if kept.rules and frames:
        marked = [name for name in kept.texts if name in frames[0].columns]
        offsets = made[PARTS][: len(frames[0])] if PARTS in made else None
        made[SPANS] = _spans(kept, RuleBoard(frames[0]), marked, 0, offsets)
    return made


def _lengths(column: "pd.Series[Any]") -> Ints:
    missing = column.isna().tolist()
    return np.array(
        [0 if lack else len(str(one)) for one, lack in zip(column.tolist(), missing, strict=True)], np.int32
    )


def _spans(
    kept: Kept,
    board: RuleBoard,
    texts: Sequence[str],
    first: int,
    parts: "NDArray[Any] | None",
    only: Collection[str] | None = None,
) -> "NDArray[np.int32]":
    """(m, 4): position of the item, number of the rule, begin and end in its text; by position."""
    found: list[tuple[int, int, int, int]] = []
    for number, rule in enumerate(kept.rules):
        if rule.column not in texts or (only is not None and rule.name not in only):
            continue
        place = kept.texts.index(rule.column)
        for row, (start, end) in spans_of(rule, board):
            shift = 0
            if parts is not None:
                before = parts[row, :place]
                shift = int(before.sum()) + int((before > 0).sum())
            found.append((first + row, number, start + shift, end + shift))
    return np.array(sorted(found), dtype=np.int32).reshape(len(found), 4)


@dataclass(frozen=True)
class Marks:
    """Where the words of the rules are in the texts of the training items."""

    rules: tuple[Rule, ...]
    spans: "NDArray[np.int32]"
    """(m, 4) as `_spans` makes them."""

    def of_item(self, position: int) -> list[tuple[Rule, int, int]]:
        """(rule, begin, end) in the text of an item, in code points."""
        low, high = np.searchsorted(self.spans[:, 0], [position, position + 1])
        return [(self.rules[number], start, end) for _, number, start, end in self.spans[low:high].tolist()]


class _Known:
    """What is kept of the rules of campaigns, by public id."""

    def __init__(self) -> None:
        self.marks = Latest[tuple[str, int], Marks | None](_KEPT)
        self.versions = Latest[str, tuple[int, int]](_MOST_VERSIONS)
        """The version of the campaign, and that of its votes then."""


def marks_of(ws: Workspace, connection: Connection, campaign: CampaignRow) -> Marks | None:
    """The marks of the present rules; None where no rules are kept."""
    known = ws.memory.of(_Known)
    at, version = known.versions.get(campaign.public_id) or (-1, 0)
    if at != campaign.version:  # it grows with each edit of the rules
        version = campaign_table.votes_version(connection, campaign.id)
        known.versions[campaign.public_id] = campaign.version, version

    def read() -> Marks | None:
        arrays = campaign_table.arrays_of(connection, campaign.id)
        end, folder = f"-{version}" if version else "", folder_of(ws, campaign)
        if f"{SPANS}{end}" not in arrays:
            return None
        rules = Kept.of_array(read_array(folder, arrays[f"{RULES}{end}"])).rules
        return Marks(rules, read_array(folder, arrays[f"{SPANS}{end}"]))

    return known.marks.made((campaign.public_id, version), read)


def kept_rules(ws: Workspace, campaign: CampaignRow, version: int | None = None) -> tuple[Kept, int]:
    """The rules of a campaign in a version, the present one unless it is named; no rules where none were kept."""
    with ws.reading() as connection:
        arrays = campaign_table.arrays_of(connection, campaign.id)
        number = campaign_table.votes_version(connection, campaign.id) if version is None else version
    name = f"{RULES}-{number}" if number else RULES
    return Kept.of_array(read_array(require_folder(ws, campaign), arrays[name])) if name in arrays else Kept(), number


def checked(values: Sequence[RuleValues], classes: Sequence[str], taken: Collection[str]) -> tuple[Rule, ...]:
    """Rules from plain values; refused where one votes for a class that is not there, or has the name of another source."""
    rules = tuple(rule_of(one, k + 1) for k, one in enumerate(values))
    check_rules(rules)
    for rule in rules:
        wanted = [label for _, label in rule.map] if isinstance(rule, Model) else [rule.label]
        unknown = next((label for label in wanted if label not in classes), None)
        if unknown is not None:
            known = ", ".join(map(repr, classes[:20]))
            raise InvalidInputError(f"rule {rule.name!r} votes for {unknown!r}; expected one of {known}", code="rule")
        if rule.name in taken:
            why = f"rule {rule.name!r} has the name of a source that is no rule; give it another name"
            raise InvalidInputError(why, code="rule")
    return rules


# --- the rows of a campaign, as rules see them ---


@dataclass(frozen=True)
class Rows:
    """Items of one split from some position on, as a frame with the columns that rules may name."""

    split: SplitName
    first: int
    frame: pd.DataFrame
    parts: "NDArray[Any] | None"
    labels: tuple[int | None, ...]
    """Given with the data."""


def rows_of(ws: Workspace, campaign: CampaignRow, kept: Kept, at_once: int = _A_FRAME) -> Iterator[Rows]:
    """Training items, then trusted ones, `at_once` at a time; each part is read in a transaction of its own."""
    with ws.reading() as connection:
        sizes = {one: campaign_table.size_of_split(connection, campaign.id, one) for one in _SPLITS}
        arrays = campaign_table.arrays_of(connection, campaign.id)
    parts = read_array(require_folder(ws, campaign), arrays[PARTS]) if PARTS in arrays else None
    for split in _SPLITS:
        before = 0 if split is SplitName.TRAIN else sizes[SplitName.TRAIN]
        for first in range(0, sizes[split], at_once):
            items: list[ItemRow] = []
            for start in range(first, min(first + at_once, sizes[split]), _AT_ONCE):
                go_on()
                with ws.reading() as connection:
                    some = range(start, min(start + _AT_ONCE, first + at_once, sizes[split]))
                    found = campaign_table.items_at(connection, campaign.id, split, list(some))
                items += [found[position] for position in some]
            cut = None if parts is None else np.asarray(parts[before + first : before + first + len(items)])
            frame = pd.DataFrame([_cells(one, kept, None if cut is None else cut[k]) for k, one in enumerate(items)])
            yield Rows(split, first, frame, cut, tuple(one.label for one in items))


def _cells(item: ItemRow, kept: Kept, lengths: "NDArray[Any] | None") -> dict[str, object]:
    """What the columns hold: id, the parts of the text, and the fields."""
    cells: dict[str, object] = {}
    for name, value in (item.fields or {}).items():
        plain = name.removesuffix(" (column)")
        cells[plain if plain in _RENAMED else name] = value
    text = item.text or ""
    if lengths is None:
        cells[kept.texts[0] if kept.texts else "text"] = text
    else:
        at = 0
        for name, length in zip(kept.texts, lengths.tolist(), strict=True):
            cells[name] = text[at : at + length]
            at += length + (length > 0)
    return {**cells, "id": item.key}


def columns_of(ws: Workspace, campaign: CampaignRow, kept: Kept) -> list[str]:
    """The columns that rules may name."""
    first = next(rows_of(ws, campaign, kept, at_once=100), None)
    return [] if first is None else [name for name in map(str, first.frame.columns) if name != "id"]


# --- votes ---


@dataclass(frozen=True)
class Edited:
    """What an edit of the rules would make: the votes of all sources, and where the words are."""

    kept: Kept
    base: int
    """The version it was made of."""
    votes: SourceVotes
    val_votes: SourceVotes
    spans: "NDArray[np.int32]"
    changed: tuple[str, ...] = ()
    """Rules that are new or other than before."""
    removed: tuple[str, ...] = ()


def edit(
    ws: Workspace,
    campaign: CampaignRow,
    rules: Sequence[Rule],
    votes: tuple[SourceVotes, SourceVotes],
    classes: Sequence[str],
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Edited:
    """The votes of all sources with these rules in the place of the present ones; `votes` are those of the present version.

    Only rules that are new or changed are searched, on one part of the items after the other.
    """
    kept, base = kept_rules(ws, campaign)
    now = {one.name: one for one in kept.rules}
    wanted = kept_of(rules, kept.texts)
    fresh = [one for one in wanted.rules if now.get(one.name) != one]
    gone = sorted(set(now) - {one.name for one in wanted.rules})
    if not fresh and not gone:
        raise ConflictError("the rules are those that the campaign has; change one first", code="no_change")
    number = {name: k for k, name in enumerate(classes)}
    said: dict[SplitName, dict[str, list[tuple[Ints, Ints]]]] = {
        one: {rule.name: [] for rule in fresh} for one in _SPLITS
    }
    spans: list[NDArray[np.int32]] = []
    total, done = sum(one.n_rows for one in votes), 0
    for part in rows_of(ws, campaign, kept):
        board = RuleBoard(part.frame)
        board.prepare(fresh)
        for rule in fresh:
            go_on()
            found = board.matches(rule)
            labels = (
                [rule.label] * len(found.rows) if found.labels is None and not isinstance(rule, Model) else found.labels
            )
            assert labels is not None, "a rule votes for its label, or for what the column says"
            ids = np.array([number.get(str(one), -1) for one in labels], dtype=np.int64)
            said[part.split][rule.name].append((part.first + found.rows[ids >= 0], ids[ids >= 0]))
        if part.split is SplitName.TRAIN:
            texts = [name for name in kept.texts if name in part.frame]
            spans.append(_spans(wanted, board, texts, part.first, part.parts, only={one.name for one in fresh}))
        done += len(part.frame)
        told(done, total)
    train, val = (
        _with_rules(one, wanted, gone, said[split], len(classes)) for one, split in zip(votes, _SPLITS, strict=True)
    )
    with ws.reading() as connection:
        marks = marks_of(ws, connection, campaign)
    spans.append(_moved(marks, wanted, {one.name for one in fresh}))
    stacked = np.concatenate(spans)
    stacked = stacked[np.lexsort(stacked.T[::-1])]
    return Edited(wanted, base, train, val, stacked, tuple(one.name for one in fresh), tuple(gone))


def _moved(marks: Marks | None, wanted: Kept, fresh: Collection[str]) -> "NDArray[np.int32]":
    """The marks of rules that stay as they are, with the numbers that the rules have now."""
    if marks is None:
        return np.empty((0, 4), dtype=np.int32)
    number = {one.name: k for k, one in enumerate(wanted.rules) if one.name not in fresh}
    to = np.array([number.get(one.name, -1) for one in marks.rules] or [-1], dtype=np.int32)
    found = np.array(marks.spans, dtype=np.int32)
    found[:, 1] = to[found[:, 1]]
    return found[found[:, 1] >= 0]


def _with_rules(
    votes: SourceVotes, kept: Kept, gone: Sequence[str], said: Mapping[str, Sequence[tuple[Ints, Ints]]], C: int
) -> SourceVotes:
    """The votes without the columns of rules that are gone or changed, and with new columns; weak labels stay the last source."""
    left: Bools = np.array([name not in gone and name not in said for name in votes.names], dtype=bool)
    others = votes.only(left)
    columns = []
    for k, parts in enumerate(said.values()):
        columns += [(rows, k * C + ids) for rows, ids in parts]
    rows = np.concatenate([*(one for one, _ in columns), np.empty(0, dtype=np.int64)])
    places = np.concatenate([*(one for _, one in columns), np.empty(0, dtype=np.int64)])
    table = csr_array((np.ones(len(rows)), (rows, places)), shape=(votes.n_rows, len(said) * C))
    both = others.beside(SourceVotes(tuple(said), C, table))
    rules = [one.name for one in kept.rules]
    order = [name for name in votes.names if name in both.names and name != WEAK_SOURCE]
    order += [name for name in rules if name in said and name not in order]
    order += [WEAK_SOURCE] if WEAK_SOURCE in both.names else []
    return replace(both.among(tuple(order)), shown=None)


def store(folder: Path, made: Edited) -> list[ArrayFacts]:
    """Write the next version; the database does not know it yet."""
    version = made.base + 1
    arrays: dict[str, NDArray[Any]] = {f"{RULES}-{version}": made.kept.to_array(), f"{SPANS}-{version}": made.spans}
    for split, votes in (("votes", made.votes), ("val_votes", made.val_votes)):
        arrays |= {f"{split}-{version}_{part}": array for part, array in votes.arrays().items()}
    return [write_array(folder, name, array) for name, array in arrays.items()]
