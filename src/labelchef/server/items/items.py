"""The list of items: filters, search, order, a page at a time; and everything about one item.

Conditions on the model's numbers and on the ledger are masks over positions (`numbers`, `standing`, `source_votes`). Text,
person, round and dissent of people are statements that return inner ids. A page begins behind its cursor, (value, position) of
the last line of the page before: its place in the order that the worker has written is found by bisection, and the order is
walked until the page is full. Where few items match, these are sorted instead. Only the rows of the page are read. A request
costs a few operations on arrays of bytes an item (milliseconds a million items), and no list of all items is made in Python.
"""

import bisect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from labelchef.base.arrays import Bools, Float64s, Ints
from labelchef.base.browsing import (
    Decided,
    Disagreement,
    ItemDetail,
    ItemLine,
    ItemQuery,
    ItemsPage,
    PersonSaid,
    Snippet,
    SortBy,
)
from labelchef.base.campaigns import SUGGESTION, SplitName
from labelchef.base.errors import InvalidInputError, NotFoundError
from labelchef.server.campaigns import numbers
from labelchef.server.campaigns.access import looking
from labelchef.server.campaigns.contents import content_of
from labelchef.server.campaigns.progress import facts_of
from labelchef.server.items.copies import originals
from labelchef.server.items.source_votes import VotesSeen, votes_seen
from labelchef.server.items.standing import STATES, Positions, Standing, standing_of
from labelchef.server.memory import Latest, Memory
from labelchef.server.shared import moment
from labelchef.server.store import browse_table, campaign_table, decision_table, round_table, search, vote_table
from labelchef.server.store.rows import CampaignRow, ItemRow, RoundRow, VoteRow, storable
from labelchef.server.workspace import Workspace, folder_of

MOST_LINES = 200
"""Items on a page."""
MOST_FOUND = 100_000
"""Items that a search for words finds at most."""
_FEW = 1 << 16
"""Items that are sorted; where more match, the worker's order is walked."""
_EXCERPT, _BEFORE = 240, 60
_TRAIN_ONLY = ("predicted", "believed", "weak", "disagree", "suspect", "source", "vote", "person", "round", "state")
_NO_NUMBERS = "There are no numbers of the model yet: they come with the next round that closes."
_NO_SOURCES = "This campaign has no votes of sources."
_LIKE = "This SQLite has no FTS5: texts are searched without an index."


@dataclass(frozen=True)
class _Seen:
    """What a query looks at: a campaign in one transaction."""

    connection: Connection
    row: CampaignRow
    classes: tuple[str, ...]
    standing: Standing
    numbers: numbers.Numbers | None
    votes: VotesSeen | None
    memory: Memory


class Found(NamedTuple):
    """What matches a query: a mask over positions, None for all; how many, of how many; and notes for the reader."""

    mask: Bools | None
    matching: int
    total: int
    notes: tuple[str, ...]


def page(ws: Workspace, campaign: str, query: ItemQuery, *, after: str | None = None, limit: int = 50) -> ItemsPage:
    """The items that match, in the order that is asked for, `limit` of them behind the cursor `after`."""
    if not 1 <= limit <= MOST_LINES:
        raise InvalidInputError(f"limit is {limit}; expected a whole number from 1 to {MOST_LINES}", code="limit")
    cursor = _cursor(after, query.sort)
    with looking(ws, campaign) as (connection, row):
        seen = _see(ws, connection, row)
        found = _find(seen, query)
        positions, following = _cut(seen, query.sort, found, cursor, limit)
        entries = tuple(_lines(seen, query.split, positions, search.parse(query.q)))
    text = None if following is None else f"{query.sort}~{following[0]!r}~{following[1]}"
    number = None if seen.numbers is None else seen.numbers.round
    return ItemsPage(entries, text, found.matching, found.total, number, found.notes)


def matching_keys(ws: Workspace, campaign: str, query: ItemQuery, most: int) -> tuple[int, list[str]]:
    """How many training items match, and the keys of the first `most` of them in their order."""
    with looking(ws, campaign) as (connection, row):
        seen = _see(ws, connection, row)
        found = _find(seen, query)
        positions, _ = _cut(seen, query.sort, found, None, most)
        rows = campaign_table.items_at(connection, row.id, query.split, positions.tolist())
    return found.matching, [rows[place].key for place in positions.tolist()]


def detail(ws: Workspace, campaign: str, item: str, split: SplitName = SplitName.TRAIN) -> ItemDetail:
    """Everything that is known of an item."""
    with looking(ws, campaign) as (connection, row):
        sample = campaign_table.items_by_key(connection, row.id, [item], split).get(item)
        if sample is None:
            raise NotFoundError(f"there is no item {item!r} in this campaign; check the id", code="item")
        seen = _see(ws, connection, row)
        (line,) = _lines(seen, split, np.array([sample.position]), ())
        beside = campaign_table.items_at(connection, row.id, split, [sample.position - 1, sample.position + 1])
        before, following = (beside.get(sample.position + step) for step in (-1, 1))
        rounds = round_table.rounds_of(connection, row.id)
        turns = {turn.id: turn.number for turn in rounds}
        votes = vote_table.last_votes(connection, [sample.id]).values()
        decisions = decision_table.decisions_on(connection, [sample.id])
        copies = seen.standing.copies if split is SplitName.TRAIN else None
        said = () if seen.votes is None or split is not SplitName.TRAIN else seen.votes.said(sample.position)
        return ItemDetail(
            line=line,
            content=content_of(sample),
            sources=said,
            people=tuple(
                PersonSaid(
                    v.person,
                    v.label,
                    v.note,
                    v.attempt,
                    _number(turns, v.round_id),
                    v.blind,
                    moment(v.created_at),
                    v.imported_by,
                )
                for v in sorted(votes, key=lambda v: v.id)
                if not v.retracted
            ),
            decisions=tuple(
                Decided(d.kind, d.by, d.label, d.support, _number(turns, d.round_id), moment(d.created_at))
                for d in decisions
            ),
            rounds=tuple(browse_table.rounds_of_item(connection, sample.id)),
            before=None if before is None else before.key,
            after=None if following is None else following.key,
            model_round=None if seen.numbers is None else seen.numbers.round,
            ruled=seen.numbers is not None and _rules(rounds, seen.numbers.round),
            copies=0 if copies is None else len(copies.groups.get(sample.position, ())),
            copy_of=originals(connection, row, copies, np.array([sample.position])).get(sample.position),
        )


def _rules(rounds: Sequence[RoundRow], number: int) -> bool:
    """Whether the model of this round has a decision rule that may choose a class which is not the most probable one."""
    found = (facts_of(turn.outcome).in_use for turn in rounds if turn.number == number)
    return any(one is not None and one.tau > 0.0 for one in found)


def lines_at(ws: Workspace, campaign: str, positions: Sequence[int]) -> dict[int, ItemLine]:
    """Training items in one line each, by position."""
    with looking(ws, campaign) as (connection, row):
        seen = _see(ws, connection, row)
        return {line.position: line for line in _lines(seen, SplitName.TRAIN, np.array(positions, dtype=np.int64), ())}


def class_names(ws: Workspace, campaign: str) -> tuple[str, ...]:
    """The classes of a campaign, in their order."""
    with looking(ws, campaign) as (connection, row):
        return campaign_table.classes_of(connection, row.id)


def voters(ws: Workspace, campaign: str) -> tuple[str, ...]:
    """Who has voted in a campaign, by name."""
    with looking(ws, campaign) as (connection, row):
        return tuple(sorted(vote_table.voters(connection, row.id) - {SUGGESTION}))


def source_names(ws: Workspace, campaign: str) -> tuple[str, ...]:
    """The sources that vote in a campaign."""
    with looking(ws, campaign) as (connection, row):
        found = _votes(ws, connection, row, campaign_table.classes_of(connection, row.id))
    return () if found is None else found.names


def _number(turns: Mapping[int, int], round_id: int | None) -> int | None:
    return None if round_id is None else turns[round_id]


def _see(ws: Workspace, connection: Connection, row: CampaignRow) -> _Seen:
    classes = campaign_table.classes_of(connection, row.id)
    standing = standing_of(ws, connection, row)
    found = numbers.latest(folder_of(ws, row))
    if found is not None and len(found) != len(standing.positions):
        found = None
    return _Seen(connection, row, classes, standing, found, _votes(ws, connection, row, classes), ws.memory)


def _votes(ws: Workspace, connection: Connection, row: CampaignRow, classes: Sequence[str]) -> VotesSeen | None:
    return votes_seen(ws.memory, folder_of(ws, row), campaign_table.arrays_of(connection, row.id), len(classes))


def _find(seen: _Seen, query: ItemQuery) -> Found:
    for name in ("predicted", "label", "believed", "weak", "vote"):
        class_id = getattr(query, name)
        if class_id is not None and not 0 <= class_id < len(seen.classes):
            why = f"{name} is {class_id}; expected a class from 0 to {len(seen.classes) - 1}"
            raise InvalidInputError(why, code="filter")
    if query.split is not SplitName.TRAIN:
        return _find_given(seen, query)
    notes: list[str] = []
    standing = seen.standing
    by_ids = list(_by_ids(seen, query, standing.positions, notes))
    with standing.turn:
        standing.follow(seen.connection)
        conditions = [*by_ids, *_by_arrays(seen, query, notes)]
        mask = _all_of(conditions)
    if seen.numbers is None and query.sort in _COLUMN:
        notes.append(_NO_NUMBERS)
    return _found(mask, len(standing.positions), notes)


def _all_of(conditions: Sequence[Bools]) -> Bools | None:
    """Where all conditions hold; None where there is none."""
    if not conditions:
        return None
    mask = conditions[0].copy()  # some are arrays that change with the ledger
    for one in conditions[1:]:
        mask &= one
    return mask


def _found(mask: Bools | None, total: int, notes: Sequence[str]) -> Found:
    return Found(mask, total if mask is None else int(np.count_nonzero(mask)), total, tuple(dict.fromkeys(notes)))


def _find_given(seen: _Seen, query: ItemQuery) -> Found:
    """Trusted and test items: they have content and a label, and nothing else."""
    if query.sort is not SortBy.ORDER:
        raise InvalidInputError(
            f"sort is {query.sort}; trusted and test items have no numbers, expected {SortBy.ORDER}", code="filter"
        )
    wrong = [name for name in _TRAIN_ONLY if getattr(query, name) not in (None, "", False)]
    if wrong:
        raise InvalidInputError(
            f"the filter {wrong[0]} is for training items; remove it, or choose split {SplitName.TRAIN}", code="filter"
        )
    notes: list[str] = []
    places = Positions(seen.connection, seen.row, query.split)
    conditions = list(_by_ids(seen, query, places, notes))
    if query.label is not None:
        conditions.append(
            campaign_table.given_labels(seen.connection, seen.row.id, query.split, len(places)) == query.label
        )
    return _found(_all_of(conditions), len(places), notes)


def _by_ids(seen: _Seen, query: ItemQuery, places: Positions, notes: list[str]) -> Iterator[Bools]:
    """The conditions that the database answers."""
    if query.q.strip():
        found, whole = _searched(seen, query, places)
        yield _mask(len(places), found)
        if not whole:
            notes.append(
                f"More than {MOST_FOUND:,} items hold these words; the first of them are looked at. Add words."
            )
        if not search.has_index(seen.connection):
            notes.append(_LIKE)
    if query.person:
        named = (
            browse_table.items_of_person(seen.connection, seen.row.id, query.person) if storable(query.person) else []
        )
        yield _mask(len(places), places.of(named))
    if query.round is not None:
        yield _mask(len(places), places.of(browse_table.items_of_round(seen.connection, seen.row.id, query.round)))
    if query.disagree is Disagreement.PEOPLE:
        yield _mask(len(places), places.of(browse_table.items_of_dissent(seen.connection, seen.row.id)))


def _mask(n: int, positions: Ints) -> Bools:
    found = np.zeros(n, dtype=bool)
    found[positions] = True
    return found


class Searches(Latest[tuple[object, ...], Ints]):
    """The last searches."""


def _searched(seen: _Seen, query: ItemQuery, places: Positions) -> tuple[Ints, bool]:
    """Positions of the items that hold what was typed, and whether these are all; texts never change, so the last searches are
    kept."""
    terms, typed = search.parse(query.q), query.q.strip()
    key = (seen.row.public_id, query.split, terms)
    searches = seen.memory.of(Searches)
    found = searches.get(key)
    if found is None:
        between = (places.range.first, places.range.last)
        ids = search.matching_ids(seen.connection, seen.row.id, query.split, terms, between, MOST_FOUND + 1)
        searches[key] = found = places.of(ids).astype(np.int64)
    named = campaign_table.items_by_key(seen.connection, seen.row.id, [typed], query.split)
    both = np.append(found[:MOST_FOUND], [one.position for one in named.values()]).astype(np.int64)
    return both, len(found) <= MOST_FOUND


def _by_arrays(seen: _Seen, query: ItemQuery, notes: list[str]) -> Iterator[Bools]:
    """The conditions on arrays; one on numbers that are not there is met by no item."""
    standing, known, N = seen.standing, seen.numbers, len(seen.standing.positions)
    nothing = np.zeros(N, dtype=bool)

    def with_numbers(condition: Bools | None) -> Bools:
        if condition is None:
            notes.append(_NO_NUMBERS)
            return nothing
        return condition

    for name in ("predicted", "believed", "weak"):
        class_id = getattr(query, name)
        if class_id is not None:
            yield with_numbers(None if known is None else known[name] == class_id)
    if query.label is not None:
        yield standing.label == query.label
    if query.suspect:
        yield with_numbers(None if known is None else known["suspect"])
    if query.state is not None:
        yield standing.matching(query.state)
    if query.disagree is Disagreement.MODEL_SOURCES:
        yield with_numbers(None if known is None else (known["weak"] >= 0) & (known["weak"] != known["predicted"]))
    if query.disagree is Disagreement.MODEL_PEOPLE:
        yield with_numbers(None if known is None else (standing.label >= 0) & (standing.label != known["predicted"]))
    if query.disagree is Disagreement.SOURCES or query.source or query.vote is not None:
        if seen.votes is None or seen.votes.n_rows != N or (query.source and query.source not in seen.votes.names):
            notes.append(_NO_SOURCES if seen.votes is None else f"There is no source {query.source!r}.")
            yield nothing
            return
        if query.disagree is Disagreement.SOURCES:
            yield seen.votes.dissent()
        if query.source or query.vote is not None:
            yield seen.votes.mask(query.source, query.vote)


_COLUMN = {SortBy.DOUBT: "doubt", SortBy.INFLUENCE: "influence", SortBy.LABEL: "label_probability"}


def _keys(seen: _Seen, sort: SortBy, positions: Ints) -> Float64s:
    """What items are sorted by, smallest first; those without a value come last."""
    if sort is SortBy.ORDER:
        return positions.astype(np.float64)
    if sort is SortBy.NEWEST:
        made = seen.standing.decision[positions].astype(np.float64)
        return np.where(made > 0, -made, np.inf)
    if seen.numbers is None:
        return np.full(len(positions), np.inf)
    return seen.numbers.keys(_COLUMN[sort], positions)


def _cut(
    seen: _Seen, sort: SortBy, found: Found, cursor: tuple[float, int] | None, limit: int
) -> tuple[Ints, tuple[float, int] | None]:
    """The first `limit` positions behind the cursor by (key, position), and the cursor of what follows."""
    if found.mask is not None and found.matching <= _FEW:
        chunks = iter([_sorted(seen, sort, np.flatnonzero(found.mask), cursor)])
        mask = None
    else:
        chunks, mask = _walked(seen, sort, found.total, cursor), found.mask
    kept, count = list[Ints](), 0
    for chunk in chunks:
        kept.append(chunk if mask is None else chunk[mask[chunk]])
        count += len(kept[-1])
        if count > limit:
            break
    positions = np.concatenate([np.empty(0, dtype=np.int64), *kept])[:limit]
    if count <= limit:
        return positions, None
    return positions, (float(_keys(seen, sort, positions[-1:])[0]), int(positions[-1]))


def _sorted(seen: _Seen, sort: SortBy, positions: Ints, cursor: tuple[float, int] | None) -> Ints:
    """Those of rising positions that are behind the cursor, by (key, position)."""
    keys = _keys(seen, sort, positions)
    if cursor is not None:
        behind = (keys > cursor[0]) | ((keys == cursor[0]) & (positions > cursor[1]))
        positions, keys = positions[behind], keys[behind]
    return positions[np.argsort(keys, kind="stable")]


def _walked(seen: _Seen, sort: SortBy, total: int, cursor: tuple[float, int] | None) -> Iterator[Ints]:
    """All positions behind the cursor by (key, position), a growing piece at a time."""
    if sort in _COLUMN and seen.numbers is not None:
        order = seen.numbers.order(_COLUMN[sort])
        if order is None:  # of an earlier version: sorted here until the next round closes
            yield _sorted(seen, sort, np.arange(total), cursor)
            return
        start = 0 if cursor is None else _place(seen.numbers, _COLUMN[sort], order, cursor)
        yield from (order[here].astype(np.int64) for here in _pieces(start, total))
        return
    if sort is SortBy.NEWEST:
        if cursor is None or cursor[0] < np.inf:
            yield _sorted(seen, sort, seen.standing.decided, cursor)
            cursor = None
        start = 0 if cursor is None else cursor[1] + 1
        for here in _pieces(start, total):
            chunk = np.arange(here.start, here.stop)
            yield chunk[seen.standing.decision[here] == 0]
        return
    start = 0 if cursor is None else cursor[1] + 1
    yield from (np.arange(here.start, here.stop) for here in _pieces(start, total))


def _pieces(start: int, stop: int, size: int = 1024) -> Iterator[slice]:
    while start < stop:
        yield slice(start, min(stop, start + size))
        start, size = start + size, 4 * size


def _place(known: numbers.Numbers, column: str, order: "NDArray[np.int32]", cursor: tuple[float, int]) -> int:
    """How many positions of an order are not behind the cursor."""

    def key(k: int) -> tuple[float, int]:
        return float(known.keys(column, order[k : k + 1])[0]), int(order[k])

    return bisect.bisect_right(range(len(order)), cursor, key=key)


def _cursor(after: str | None, sort: SortBy) -> tuple[float, int] | None:
    if after is None:
        return None
    found = re.fullmatch(r"([a-z]+)~(-?(?:inf|[0-9][0-9.e+-]{0,30}))~(\d{1,15})", after)
    try:
        value = float(found[2]) if found is not None and found[1] == sort else math.nan
    except ValueError:
        value = math.nan
    if found is None or math.isnan(value):
        raise InvalidInputError(f"{after!r} is no cursor of this list; take the one of the page before", code="cursor")
    return value, int(found[3])


def _lines(seen: _Seen, split: SplitName, positions: Ints, terms: Sequence[search.Term]) -> Iterator[ItemLine]:
    """Items in one line each, in the order of `positions`."""
    rows = campaign_table.items_at(seen.connection, seen.row.id, split, positions.tolist())
    pattern = _pattern(terms)
    if split is not SplitName.TRAIN:
        for place in positions.tolist():
            yield ItemLine(
                rows[place].key, split, place, excerpt(rows[place], pattern), rows[place].image, None, rows[place].label
            )
        return
    ids = {row.id: place for place, row in rows.items()}
    votes: dict[int, list[VoteRow]] = {}
    for vote in vote_table.last_votes(seen.connection, list(ids)).values():
        votes.setdefault(ids[vote.item_id], []).append(vote)
    standing = seen.standing
    with standing.turn:
        standing.follow(seen.connection)
        states, labels, asked = standing.states(positions), standing.label[positions], standing.asked[positions]
    known = None if seen.numbers is None else {name: seen.numbers[name][positions] for name in _SHOWN}
    for k, place in enumerate(positions.tolist()):
        line = ItemLine(
            item=rows[place].key,
            split=split,
            position=place,
            excerpt=excerpt(rows[place], pattern),
            image=rows[place].image,
            state=STATES[states[k]],
            label=_class(labels[k]),
            round=None if asked[k] < 0 else int(asked[k]),
            votes=_last_attempt(votes.get(place, [])),
        )
        yield line if known is None else _with_numbers(line, {name: values[k] for name, values in known.items()})


_SHOWN = (
    "weak", "predicted", "probability", "doubt", "believed", "belief", "label", "label_probability", "suspect",
    "influence", "influence_round",
)  # fmt: skip


def _with_numbers(line: ItemLine, known: Mapping[str, Any]) -> ItemLine:
    influence = _float(known["influence"])
    label = _class(known["weak"]) if line.label is None else line.label
    of_label = {_class(known["predicted"]): "probability", _class(known["label"]): "label_probability"}.get(label)
    return replace(
        line,
        weak=_class(known["weak"]),
        predicted=_class(known["predicted"]),
        probability=_float(known["probability"]),
        doubt=_float(known["doubt"]),
        believed=_class(known["believed"]),
        belief=_float(known["belief"]),
        label_probability=None if label is None or of_label is None else _float(known[of_label]),
        suspect=bool(known["suspect"]),
        influence=influence,
        influence_round=None if influence is None else int(known["influence_round"]),
    )


def _last_attempt(votes: Sequence[VoteRow]) -> tuple[int | None, ...]:
    """The labels that people gave in the last attempt."""
    counted = [vote for vote in votes if vote.person != SUGGESTION and not vote.retracted]
    last = max((vote.attempt for vote in counted), default=0)
    return tuple(vote.label for vote in sorted(counted, key=lambda vote: vote.id) if vote.attempt == last)


def _class(value: Any) -> int | None:
    return None if value < 0 else int(value)


def _float(value: Any) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def _pattern(terms: Sequence[search.Term]) -> re.Pattern[str] | None:
    """What the terms of a search match in a text."""
    if not terms:
        return None
    words = (r"[\W_]+".join(map(re.escape, term.words)) + (r"[^\W_]*" if term.prefix else "") for term in terms)
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(words)})(?![^\W_])", re.IGNORECASE)


def excerpt(row: ItemRow, pattern: re.Pattern[str] | None = None) -> tuple[Snippet, ...]:
    """The beginning of an item's text, or the part around what was searched for, with that marked."""
    fields = " · ".join(f"{name}: {value}" for name, value in (row.fields or {}).items())
    text = row.text or fields
    first = None if pattern is None else pattern.search(text, 0, 100_000)
    if (
        first is None
        and pattern is not None
        and row.text
        and (inside := pattern.search(fields, 0, 100_000)) is not None
    ):
        text, first = fields, inside
    start = 0 if first is None else max(0, first.start() - _BEFORE)
    part = text[start : start + _EXCERPT]
    pieces: list[Snippet] = [Snippet("…")] if start else []
    place = 0
    for match in () if pattern is None else pattern.finditer(part):
        pieces += [Snippet(part[place : match.start()])] if match.start() > place else []
        pieces.append(Snippet(match.group(), match=True))
        place = match.end()
    tail = part[place:] + ("…" if start + _EXCERPT < len(text) else "")
    return (*pieces, Snippet(tail)) if tail else tuple(pieces)
