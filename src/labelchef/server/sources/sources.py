"""What is known of a campaign's sources, computed when somebody asks.

It is not stored with the rounds: one solve and up to J confusions a round would make every round slower and the database
larger, and few rounds are looked at. The session is one of its own, as for the final model, so a worker may go on meanwhile.
It is kept with what was found until the next round closes: asked again, the answer is there at once.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from labelchef.base.arrays import Bools, Ints
from labelchef.base.campaigns import ItemContent, SplitName
from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.base.files import writing_to
from labelchef.base.learning import SourceFacts
from labelchef.base.settings import TRAIN
from labelchef.believe.rules import rule_values
from labelchef.data.campaign_data import CampaignData
from labelchef.data.files import tables
from labelchef.data.training_rows import judges_of
from labelchef.loop import rebuild
from labelchef.loop.session import Session
from labelchef.loop.source_report import (
    MUTED,
    NOTHING_LEARNED,
    SourceReport,
    every_vote,
    flat_frame,
    source_facts,
    source_report,
)
from labelchef.server.campaigns.access import looking
from labelchef.server.campaigns.contents import content_of
from labelchef.server.campaigns.trained import data_of, ledger_of, require_model
from labelchef.server.sources.campaign_rules import kept_rules
from labelchef.server.store import campaign_table, round_table
from labelchef.server.store.rows import CampaignRow, RoundRow
from labelchef.server.workspace import Workspace

_KEPT = 2
EXAMPLES = 8
"""Examples of each kind that a source is shown with."""
CONFLICTS = 20
"""Other sources that a source is compared with at most: those it differs from most often."""
SORTS: Mapping[str, Callable[[SourceFacts], Any]] = {
    "name": lambda one: one.name.casefold(),
    "votes": lambda one: one.votes,
    "measured_on": lambda one: one.measured_on,
    "accuracy": lambda one: one.accuracy,
    "believed": lambda one: one.believed,
    "conflicts": lambda one: one.conflicts,
    "weight": lambda one: one.weight,
    "muting": lambda one: one.muting,
    "use": lambda one: one.use,
}
"""By what a table of sources can be sorted."""


@dataclass
class Studied:
    """A session of its own after the last closed round, and what was found out with it; `lock` is held while it is used."""

    row: CampaignRow
    classes: tuple[str, ...]
    closed: int
    lock: threading.RLock = field(default_factory=threading.RLock)
    data: CampaignData | None = None
    session: Session | None = None
    report: SourceReport | None = None
    facts: list[SourceFacts] | None = None

    def made(self, ws: Workspace) -> tuple[CampaignData, Session]:
        """Data and session, made on first use; the caller holds the lock."""
        if self.session is None or self.data is None:
            past = ledger_of(ws, self.row).rounds()
            self.data = data_of(ws, self.row)
            self.session = rebuild.rebuild(self.data, self.row.settings, past[1 : self.closed], first=past[0])
        return self.data, self.session


class _Studies(dict[tuple[str, ...], Studied]):
    """What is kept of campaigns, by round; `turn` is held while it is changed."""

    def __init__(self) -> None:
        self.turn = threading.Lock()


def study(ws: Workspace, campaign: str) -> Studied:
    """What is kept of a campaign after its last closed round; those of the last campaigns that were asked for stay."""
    row, classes, closed = standing(ws, campaign)
    if row.settings.trusted != TRAIN:
        raise ConflictError(NOTHING_LEARNED, code="sources")
    last, studies = closed[-1], ws.memory.of(_Studies)
    key = (row.public_id, str(last.number), str(last.labels_hash), str(last.model_hash))
    with studies.turn:
        found = studies.pop(key, None) or Studied(row, classes, len(closed))
        for old in [one for one in studies if one[0] == row.public_id] + list(studies)[: len(studies) - _KEPT + 1]:
            studies.pop(old, None)
        studies[key] = found
    return found


def sources(ws: Workspace, campaign: str) -> SourceReport:
    """The sources of a campaign after its last closed round, at most those with the most votes."""
    row, classes, _ = standing(ws, campaign)
    if row.settings.trusted != TRAIN:
        return SourceReport((), 0, classes, "")
    found = study(ws, campaign)
    with found.lock:  # a second request waits, and then finds the result
        if found.report is None:
            found.report = source_report(found.made(ws)[1], found.classes, _facts(ws, found))
        return found.report


def _facts(ws: Workspace, found: Studied) -> list[SourceFacts]:
    if found.facts is None:
        found.facts = source_facts(found.made(ws)[1])
    return found.facts


@dataclass(frozen=True)
class ListedSource(SourceFacts):
    """A source as leads see it."""

    rule: bool
    """Whether it is a rule that the campaign keeps, which can be edited."""


@dataclass(frozen=True)
class SourcePage:
    """Some of the sources, in the order that was asked for."""

    model: str
    """The source model in use; 'none' if weak labels are not used; empty if nothing is learned."""
    total: int
    """Sources in all."""
    found: int
    """Sources that fit the search."""
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    """What a reader should know."""
    harmful: tuple[str, ...]
    """Sources that harm beyond doubt, the worst first."""
    sources: tuple[ListedSource, ...]

    @classmethod
    def of(cls, report: SourceReport, found: int, shown: tuple[ListedSource, ...]) -> "SourcePage":
        """A page below what is said of all sources."""
        harmful = tuple(one.name for one in report.harmful)
        return cls(report.model, report.total, found, report.classes, report.notes, harmful, shown)


def source_page(
    ws: Workspace,
    campaign: str,
    *,
    search: str = "",
    sort: str = "votes",
    falling: bool = True,
    first: int = 0,
    limit: int = 50,
) -> SourcePage:
    """All sources whose name holds the search, sorted, a part of them; what is not known comes last."""
    if sort not in SORTS:
        raise InvalidInputError(f"sort is {sort!r}; expected one of: {', '.join(SORTS)}", code="sort")
    report = sources(ws, campaign)
    if not report.sources:
        return SourcePage.of(report, 0, ())
    found, muted = study(ws, campaign), standing(ws, campaign)[0].settings.muted
    with found.lock:
        facts = [_as_set(one, muted) for one in _facts(ws, found) if search.casefold() in one.name.casefold()]
    value = SORTS[sort]
    known = [one for one in facts if value(one) == value(one)]
    ordered = sorted(known, key=value, reverse=falling) + [one for one in facts if value(one) != value(one)]
    rules = {one.name for one in kept_rules(ws, found.row)[0].rules}
    shown = tuple(ListedSource(**vars(one), rule=one.name in rules) for one in ordered[first : first + limit])
    return SourcePage.of(report, len(facts), shown)


def _as_set(facts: SourceFacts, muted: Sequence[str]) -> SourceFacts:
    """A source with the use that the settings give it from the next model on, where that is another one."""
    if (facts.use == MUTED) == (facts.name in muted):
        return facts
    return replace(facts, use=f"{'muted' if facts.name in muted else 'heard'}, from the next model on")


@dataclass(frozen=True)
class SourceExample:
    """An item that a source votes on."""

    item: str
    trusted: bool
    """Whether it is a trusted item; else one that can be asked."""
    content: ItemContent
    vote: str
    truth: str | None
    """The clean label, if there is one."""
    believed: str
    others: Mapping[str, str]
    """What other sources that are heard say, those that differ first; at most five."""


@dataclass(frozen=True)
class SourceConflict:
    """Another source that votes on the same items."""

    name: str
    both: int
    """Items both vote on."""
    differ: int


@dataclass(frozen=True)
class SourceDetail:
    """Everything that is known of one source."""

    source: ListedSource
    classes: tuple[str, ...]
    conflicts: tuple[SourceConflict, ...]
    """Those it differs from most often, at most 20."""
    right: tuple[SourceExample, ...]
    """Clean items it is right on, some of them."""
    wrong: tuple[SourceExample, ...]
    conflicting: tuple[SourceExample, ...]
    """Items on which another source says something else."""
    n_right: int
    """Clean items on which it is right."""
    n_wrong: int
    rule: Mapping[str, object] | None
    """The rule as a rules file has it; None for a source that is none, or whose rule was not kept."""
    muted: tuple[str, ...]
    """All sources that are muted by the settings as they are now."""
    model: str


def source_detail(ws: Workspace, campaign: str, name: str) -> SourceDetail:
    """One source with the items it is right and wrong on, and those on which others say something else."""
    found = study(ws, campaign)
    with found.lock:
        data, session = found.made(ws)
        facts = next((one for one in _facts(ws, found) if one.name == name), None)
        if facts is None:
            raise NotFoundError(f"there is no source {name!r} in this campaign; check the name", code="source")
        look = _Look.of(session, data, found, name)
    with looking(ws, campaign) as (connection, row):
        kept, _ = kept_rules(ws, row)
        rule = next((rule_values(one) for one in kept.rules if one.name == name), None)
        N, examples = look.n_items, {}
        for kind, every in (("right", look.right), ("wrong", look.wrong), ("conflicting", look.conflicting)):
            rows = every[:EXAMPLES]
            train = campaign_table.items_at(connection, row.id, SplitName.TRAIN, rows[rows < N].tolist())
            places = look.trusted[rows[rows >= N] - N]
            trusted = campaign_table.items_at(connection, row.id, SplitName.VALIDATION, places.tolist())
            examples[kind] = tuple(
                look.example(r, train[r] if r < N else trusted[int(look.trusted[r - N])]) for r in rows.tolist()
            )
        return SourceDetail(
            source=ListedSource(**vars(facts), rule=rule is not None),
            classes=found.classes,
            conflicts=look.conflicts,
            **examples,
            n_right=len(look.right),
            n_wrong=len(look.wrong),
            rule=rule,
            muted=row.settings.muted,
            model="" if session.learner is None or session.learner.choice is None else session.learner.choice.model,
        )


@dataclass(frozen=True)
class _Look:
    """A source among the others, by rows: N items, then the trusted ones that train."""

    name: str
    classes: tuple[str, ...]
    n_items: int
    trusted: Ints
    """Positions of the trusted rows among the validation items."""
    said: Any
    """`csr_array` (rows, J·C) of all votes."""
    names: tuple[str, ...]
    place: int
    heard: Bools
    """(J,)"""
    clean: Ints
    believed: Ints
    right: Ints
    wrong: Ints
    conflicting: Ints
    conflicts: tuple[SourceConflict, ...]

    @classmethod
    def of(cls, session: Session, data: CampaignData, found: Studied, name: str) -> "_Look":
        votes, C = every_vote(session), session.labels.n_classes
        assert session.learner is not None, "trusted samples train"
        j, clean = votes.names.index(name), session.labels.clean_ids
        heard = np.isin(np.array(votes.names, dtype=object), np.array(session.learner.votes.names, dtype=object))
        block = csc_array(votes.table)[:, j * C : (j + 1) * C].tocsr()
        rows = np.flatnonzero(np.diff(block.indptr))
        vote = np.full(votes.n_rows, -1)
        vote[rows] = block[rows].toarray().argmax(axis=1)
        known = rows[clean[rows] >= 0]
        hits = vote[known] == clean[known]
        presence, hard = votes.presence, votes.table[rows]
        both = np.asarray(presence[rows].sum(axis=0)).ravel()
        same = np.zeros(votes.n_sources)
        entry = hard.tocoo()
        agree = entry.col % C == vote[rows][entry.row]
        np.add.at(same, entry.col[agree] // C, entry.data[agree])
        differ, others = np.round(both - same).astype(int), heard.copy()
        others[j] = False
        apart = np.flatnonzero(others & (differ > 0))
        most = apart[np.argsort(-differ[apart], kind="stable")][:CONFLICTS]
        conflicts = tuple(SourceConflict(votes.names[k], round(float(both[k])), int(differ[k])) for k in most.tolist())
        against = np.zeros(len(rows))
        np.add.at(against, entry.row[~agree & others[entry.col // C]], 1.0)
        clashing = rows[against > 0]
        clashing = clashing[np.lexsort((clashing, clean[clashing] < 0))]  # those whose class is known first
        trusted = np.flatnonzero(~judges_of(data, found.row.settings))
        believed = session.posterior().argmax(axis=1)
        return cls(
            name, found.classes, session.n_train, trusted, votes.table, votes.names, j, heard, clean, believed,
            _spread(known[hits]), _spread(known[~hits]), _spread(clashing), conflicts,
        )  # fmt: skip

    def example(self, row: int, item: Any) -> SourceExample:
        """A row as people see it."""
        C, line = len(self.classes), self.said[[row]].tocoo()
        said = {
            self.names[c // C]: (self.classes[c % C], c // C)
            for c, w in zip(line.col.tolist(), line.data.tolist(), strict=True)
            if w >= 0.5
        }
        mine = said.pop(self.name, (self.classes[int(self.believed[row])], self.place))[0]
        others = [(name, label) for name, (label, k) in said.items() if self.heard[k]]
        others.sort(key=lambda one: one[1] == mine)
        truth = None if self.clean[row] < 0 else self.classes[int(self.clean[row])]
        believed = self.classes[int(self.believed[row])]
        return SourceExample(item.key, row >= self.n_items, content_of(item), mine, truth, believed, dict(others[:5]))


def _spread(rows: Ints) -> Ints:
    """The same rows, the first ones from all over them."""
    if len(rows) <= EXAMPLES:
        return rows
    first = np.unique(np.linspace(0, len(rows) - 1, EXAMPLES).astype(np.int64))
    return np.concatenate([rows[first], np.delete(rows, first)])


def write_sources(ws: Workspace, campaign: str, path: Path) -> Path:
    """Write what is known of every source to a table, .csv, .jsonl or .parquet."""
    row, _, _ = standing(ws, campaign)
    if row.settings.trusted != TRAIN:
        raise ConflictError(f"there is nothing to write: {NOTHING_LEARNED}", code="sources")
    found = study(ws, campaign)
    with found.lock, writing_to(path, "make room or name another file"):
        return tables.write_table(flat_frame(_facts(ws, found)), path)


def standing(ws: Workspace, campaign: str) -> tuple[CampaignRow, tuple[str, ...], list[RoundRow]]:
    """The campaign, its classes and its closed rounds."""
    with looking(ws, campaign) as (connection, row):
        require_model(connection, row)
        classes = campaign_table.classes_of(connection, row.id)
        return row, classes, [one for one in round_table.rounds_of(connection, row.id) if not one.is_open]


def session_after(ws: Workspace, row: CampaignRow, closed: int) -> Session:
    """A session of its own, as it was after so many closed rounds, round 0 included."""
    past = ledger_of(ws, row).rounds()
    return rebuild.rebuild(data_of(ws, row), row.settings, past[1:closed], first=past[0])
