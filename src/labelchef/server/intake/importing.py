"""Votes of other tools in: a table of item, annotator and label, or a file of a tool that `labelchef.data.exchange` knows.

A vote on an item of the open batch counts there. On all other items the votes decide at once, as votes of people do:

    never asked, or taken back by a lead    the majority decides the item; a tie, or 'ambiguous', waits until it is asked
    decided by votes                        the majority may correct the decision
    decided by a lead                       the decision stands

The model follows with the next round. Such labels cost no budget, which counts samples that were put to people.
"""

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from sqlalchemy import Connection

from labelchef.base.campaigns import (
    SUGGESTION,
    AssignmentState,
    DecisionKind,
    ImportedLine,
    ImportReport,
    LineOutcome,
    Origin,
    RoundState,
    SplitName,
)
from labelchef.base.errors import InvalidInputError, LabelchefError
from labelchef.base.files import writing_to
from labelchef.believe.aggregation import MajorityVote
from labelchef.data.exchange.formats import FORMATS, format_named, sniff
from labelchef.data.files import tables
from labelchef.server.campaigns.access import changing, check_person
from labelchef.server.items.copies import asked_items
from labelchef.server.items.decisions import class_of
from labelchef.server.ledger.sql import counted, needed_by
from labelchef.server.store import account_table, campaign_table, decision_table, round_table, vote_table
from labelchef.server.store.rows import (
    CampaignRow,
    DecisionRow,
    DecisionValues,
    ItemRow,
    NewVote,
    SelectionRow,
    VoteRow,
)
from labelchef.server.workspace import Workspace

TABLE = "table"
_REMARKABLE = (LineOutcome.DECIDED, LineOutcome.CORRECTED)


def import_votes(
    ws: Workspace,
    campaign: str,
    by: str,
    path: Path,
    *,
    dry_run: bool = False,
    format: str | None = None,
    rename: Mapping[str, str] | None = None,
) -> ImportReport:
    """Take votes of another tool: all of them, or, if a line cannot be used, none. Says what became of each line.

    A table of item, annotator, label (and note, if there is such a column), where an empty label or −1 means ambiguous; or a
    file of another tool, recognised by its content unless `format` names it, of which answers of people are taken. `rename`
    gives annotators other names. Imported again, the same file changes nothing. The ledger says of each vote
    that `by` brought it in, and keeps the name and the digest of the file.
    """
    lines, found, notes = _lines(path, format)
    lines = [replace(line, annotator=(rename or {}).get(line.annotator, line.annotator)) for line in lines]
    with changing(ws, campaign) as (connection, row), connection.begin_nested() as written:
        importing = _Import(ws, connection, row, "line" if found == TABLE else "record", by)
        became = importing.take(lines)
        if importing.n_stored:
            what: dict[str, object] = {"imported": importing.n_stored, "file": path.name}
            if path.is_file():
                with path.open("rb") as stream:
                    what["sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
            campaign_table.note_change(connection, row.id, by, what)
        notes += _follows(connection, row, became)
        if dry_run:
            written.rollback()
    counts = Counter(one.outcome for one in became)
    told = {str(outcome): counts[outcome] for outcome in LineOutcome if counts[outcome]}
    return ImportReport(found, {"read": len(lines), **told}, tuple(became), tuple(notes), dry_run)


def _follows(connection: Connection, campaign: CampaignRow, became: Sequence[ImportedLine]) -> list[str]:
    """When the model learns from what the lines decided, if they decided anything."""
    decided = len({one.item for one in became if one.outcome in _REMARKABLE})
    turn = round_table.last_turn(connection, campaign.id)
    if not decided or turn is None:
        return []
    said = f"items whose label the import decides: {decided}"
    if turn.state is not RoundState.SELECTED:
        return [f"{said}; the model follows with the next round"]
    people = campaign.settings.people
    left = sum(
        not one.decided and one.votes < (one.needed or people) for one in round_table.batch_of(connection, turn.id)
    )
    return [
        f"{said}; the model follows when round {turn.number}, which is open, is complete: {left} of its items lack votes"
    ]


def write_lines(report: ImportReport, path: Path) -> Path:
    """Write what became of each line as a table: .csv, .jsonl or .parquet."""
    rows = [(one.line, one.item, one.annotator, one.outcome.value) for one in report.lines]
    with writing_to(path, "make room or name another file"):
        return tables.write_table(pd.DataFrame(rows, columns=["line", "item", "annotator", "outcome"]), path)


def _lines(path: Path, format: str | None) -> tuple[list[tables.VoteLine], str, list[str]]:
    """The votes of a file, the format it has, and what was left out."""
    name = sniff(path) if format is None else None if format == TABLE else format_named(format).name
    if name is None:
        return tables.read_vote_lines(path), TABLE, []
    tool = FORMATS[name]
    if not tool.people:
        raise InvalidInputError(
            f"{path} is a file of {tool.title}, which holds no answers of people; expected one of: {TABLE}, "
            f"{', '.join(one.name for one in FORMATS.values() if one.people)}",
            code="votes",
        )
    read = tool.read(path)
    said = [(k, one.id, who, label) for k, one in enumerate(read.records, 1) for who, label in one.answers.items()]
    lines = [tables.VoteLine(k, item, who, label, None) for k, item, who, label in said if label is not None]
    notes = list(read.notes)
    if len(lines) < len(said):
        notes.append(f"answers without a label (skipped, or ambiguous), left out: {len(said) - len(lines)}")
    if not lines:
        raise InvalidInputError(
            f"{path} holds no answer of a person; expected at least one. {'. '.join(notes) or 'Label items there first'}",
            code="votes",
        )
    return lines, name, notes


@dataclass(frozen=True)
class _Incoming:
    line: int
    item: str
    """As the line names it: `sample`, or a copy of it."""
    sample: ItemRow
    person: str
    label: int | None
    note: str | None


@dataclass(frozen=True)
class _At:
    """Where votes on an item go: the attempt, and the selection by which people were or are asked."""

    attempt: int
    selection: SelectionRow | None
    is_open: bool
    """Whether it is in the batch that people vote on now."""

    @property
    def round_id(self) -> int | None:
        return None if self.selection is None or self.selection.origin is Origin.AHEAD else self.selection.round_id


class _Import:
    """One import, in its transaction."""

    def __init__(self, ws: Workspace, connection: Connection, campaign: CampaignRow, unit: str, by: str) -> None:
        self.ws, self.connection, self.campaign, self.unit, self.by = ws, connection, campaign, unit, by
        self.n_stored = 0
        self.classes = campaign_table.classes_of(connection, campaign.id)

    def take(self, lines: Sequence[tables.VoteLine]) -> list[ImportedLine]:
        """Store the votes and decide the items; what became of each line."""
        outcomes = dict.fromkeys((line.number, line.item, line.annotator) for line in lines)
        became: dict[tuple[int, str, str], LineOutcome] = dict.fromkeys(outcomes, LineOutcome.REPLACED)
        votes, known = self._checked(lines)
        became |= {(line.number, line.item, line.annotator): LineOutcome.KNOWN for line in known}
        places = self._places([vote.sample for vote in votes])
        unchanged = self._store(votes, places)
        samples = {vote.sample.id: vote.sample for vote in votes}
        found = self._decide(samples, places)
        for vote in votes:
            outcome, same = found[vote.sample.id], (vote.sample.id, vote.person) in unchanged
            quiet = same and outcome not in _REMARKABLE
            became[vote.line, vote.item, vote.person] = LineOutcome.UNCHANGED if quiet else outcome
        return [ImportedLine(*line, outcome) for line, outcome in became.items()]

    def _checked(self, lines: Sequence[tables.VoteLine]) -> tuple[list[_Incoming], list[tables.VoteLine]]:
        """The votes that are to be stored, the last one of a person on an item, and lines on items whose label is known."""
        keys = [line.item for line in lines]
        items = asked_items(
            self.ws,
            self.connection,
            self.campaign,
            campaign_table.items_by_key(self.connection, self.campaign.id, keys),
        )
        trusted = {
            key
            for split in (SplitName.VALIDATION, SplitName.TEST)
            for key in campaign_table.items_by_key(self.connection, self.campaign.id, keys, split)
        }
        wanted: dict[tuple[str, str], _Incoming] = {}
        known: dict[tuple[str, str], tables.VoteLine] = {}
        for line in lines:
            try:
                check_person(line.annotator)
                class_id, sample = class_of(self.classes, line.label), items.get(line.item)
                if sample is None and line.item not in trusted:
                    raise InvalidInputError(f"there is no item {line.item!r} in this campaign", code="votes")
            except LabelchefError as error:
                raise InvalidInputError(
                    f"{self.unit} {line.number}: {error}. Nothing was stored", code="votes"
                ) from None
            who = (line.annotator, line.item if sample is None else sample.key)
            if sample is None or sample.label is not None:
                known[who] = line
                continue
            wanted.pop(who, None)  # the last line counts, at its own place in the order
            wanted[who] = _Incoming(line.number, line.item, sample, line.annotator, class_id, line.note)
        return list(wanted.values()), list(known.values())

    def _places(self, samples: Sequence[ItemRow]) -> dict[int, _At]:
        turn = round_table.last_turn(self.connection, self.campaign.id)
        going = turn is not None and turn.state is RoundState.SELECTED
        selections = round_table.selections_of(self.connection, turn.id) if turn is not None and going else []
        asked = {selection.item_id: selection for selection in selections}
        past = round_table.batch_selections(self.connection, [sample.id for sample in samples])
        places = {}
        for sample in samples:
            selection = asked.get(sample.id) or past.get((sample.id, sample.attempt))
            in_batch = sample.id in asked and asked[sample.id].origin is not Origin.AHEAD
            attempt = sample.attempt if selection is None else selection.attempt
            places[sample.id] = _At(attempt, selection, in_batch)
        return places

    def _store(self, votes: Sequence[_Incoming], places: Mapping[int, _At]) -> set[tuple[int, str]]:
        """Append the votes that are new; returns (item, person) of those that were there already."""
        last = vote_table.last_votes(self.connection, [vote.sample.id for vote in votes])
        accounts = {account.name: account.id for account in account_table.accounts(self.connection)}
        unchanged: set[tuple[int, str]] = set()
        rows: list[tuple[VoteRow | None, NewVote]] = []
        for vote in votes:
            at = places[vote.sample.id]
            prior = last.get((vote.sample.id, at.attempt, vote.person))
            live = prior is not None and not prior.retracted
            if prior is not None and live and prior.label == vote.label and prior.note == vote.note:
                unchanged.add((vote.sample.id, vote.person))
                continue
            new = NewVote(
                campaign_id=self.campaign.id,
                item_id=vote.sample.id,
                attempt=at.attempt,
                round_id=at.round_id,
                person=vote.person,
                account_id=accounts.get(vote.person),
                label=vote.label,
                note=vote.note,
                blind=True,
                suggested=None if at.selection is None else at.selection.suggested,
                source="import",
                imported_by=self.by,
            )
            rows.append((prior, new))
            if at.is_open and at.selection is not None:
                if not live:
                    round_table.count_vote(self.connection, at.selection.id, +1)
                vote_table.assign(self.connection, at.selection, vote.person, AssignmentState.VOTED, time.time())
        if rows:
            vote_table.insert_votes(self.connection, rows)
            self.n_stored = len(rows)
        return unchanged

    def _decide(self, samples: Mapping[int, ItemRow], places: Mapping[int, _At]) -> dict[int, LineOutcome]:
        """Decide every item by all votes on it; what came of each."""
        ballots: dict[tuple[int, int], list[VoteRow]] = defaultdict(list)
        for row in vote_table.last_votes(self.connection, list(samples)).values():
            if not row.retracted:
                ballots[row.item_id, row.attempt].append(row)
        last = {made.item_id: made for made in decision_table.decisions_on(self.connection, list(samples))}
        found: dict[int, LineOutcome] = {}
        decided: list[DecisionValues] = []
        for item, sample in samples.items():
            at = places[item]
            votes = sorted(ballots[item, at.attempt], key=lambda row: row.id)
            if at.is_open and at.selection is not None:
                people, settings = [vote for vote in votes if vote.person != SUGGESTION], self.campaign.settings
                needed = needed_by(people, settings, at.selection.suggested)
                if needed is not None:
                    round_table.need_votes(self.connection, at.selection.id, needed)
                enough = len(people) >= (settings.people if needed is None else needed)
                found[item] = LineOutcome.COMPLETE if enough else LineOutcome.WAITS
                if at.selection.decided:
                    found[item] = LineOutcome.LEAD
                continue
            label, support = counted(votes, MajorityVote())
            found[item] = _outcome(label, last.get(item), at.attempt)
            if found[item] in _REMARKABLE:
                decided.append(
                    DecisionValues(
                        campaign_id=self.campaign.id,
                        item_id=item,
                        attempt=at.attempt,
                        round_id=at.round_id,
                        kind=DecisionKind.VOTES,
                        by="votes",
                        label=label,
                        support=support,
                    )
                )
                if at.attempt != sample.attempt:
                    campaign_table.next_attempt(self.connection, item, at.attempt)
                if at.selection is not None and at.selection.origin is Origin.AHEAD:
                    round_table.mark_decided(self.connection, at.selection.id)
        decision_table.insert_decisions(self.connection, decided, last)
        if decided:
            campaign_table.update_campaign(self.connection, self.campaign.id)
        return found


def _outcome(label: int | None, last: DecisionRow | None, attempt: int) -> LineOutcome:
    """What votes that come to `label` make of an item that is not in the open batch."""
    if last is None or last.attempt != attempt or last.kind is DecisionKind.REOPEN:
        return LineOutcome.TIED if label is None else LineOutcome.DECIDED
    if last.kind is DecisionKind.LEAD:
        return LineOutcome.LEAD
    return LineOutcome.AGREES if label == last.label else LineOutcome.CORRECTED
