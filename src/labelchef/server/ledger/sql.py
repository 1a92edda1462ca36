"""A ledger in a database (SQLite or PostgreSQL), written by many processes: the contract of `loop.ledger.protocol`.

Every write is one transaction that first looks whether the round it was computed for is still the last one. Votes come
from `server.labelling.votes`: a batch is complete when each of its items has the votes it needs, or a decision of a lead.
"""

import contextlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, Unpack

import numpy as np
import sqlalchemy as sa

from labelchef.base.arrays import Ints
from labelchef.base.campaigns import SUGGESTION, CampaignState, DecisionKind, Origin, RoundKind, RoundState, SplitName
from labelchef.base.records import (
    UNRESOLVED,
    Batch,
    Decisions,
    Heard,
    RoundRecord,
    SelectionDiagnostics,
    StopReason,
    Votes,
)
from labelchef.base.settings import Settings
from labelchef.believe.aggregation import Aggregator, votes_needed
from labelchef.loop.ledger.conversion import (
    diagnostics_as_json,
    diagnostics_from_json,
    plain_number,
    plain_numbers,
    record_as_json,
    record_from_json,
)
from labelchef.loop.ledger.protocol import (
    NO_BATCH,
    Answered,
    Model,
    PastRound,
    Selected,
    Standing,
    labels_hash,
    model_hash,
)
from labelchef.server.gold_draws import in_pool
from labelchef.server.ledger.links import LinkMaker, Signer
from labelchef.server.store import account_table, campaign_table, decision_table, lease_table, round_table, vote_table
from labelchef.server.store.arrays import ArrayFacts, write_array
from labelchef.server.store.database import Database
from labelchef.server.store.rows import (
    CampaignRow,
    CampaignValues,
    DecisionWithPosition,
    NewSelection,
    NewVote,
    RoundRow,
    RoundValues,
    SelectedItem,
    SelectionBrief,
    VoteRow,
)

SELECT, CLOSE = "select", "close"
"""The steps before which a session may have been rebuilt, as `round.rebuilt` names them."""
_BLIND_DRAW = 77  # apart from other uses of the seed
_MODEL = re.compile(r"model-(\d+)(?:-\d+)?\.npy")
_ACTIVE = (CampaignState.RUNNING, CampaignState.PREPARING)


class Shown(Protocol):
    """What people are shown beside an item: its weak label, and the validation items that are most like it."""

    def weak(self, position: int) -> Sequence[float]:
        """A probability for each class."""

    def nearest(self, positions: Ints) -> Sequence[Sequence[tuple[int, float]]]:
        """Of each item, validation items as (position, similarity), most similar first."""


@dataclass(frozen=True)
class SqlLedger:
    """The ledger of one campaign. `shown` is called when a batch is stored, to say what people see beside its items."""

    database: Database
    folder: Path
    campaign: str
    """Its public id."""
    shown: Callable[[], Shown]
    signer: Signer = Signer()  # noqa: RUF009 (it never changes)
    """Makes the links of rounds."""
    fence: tuple[str, int] | None = None
    """The lease (`server.store.lease_table`) under which this is written, and its number: refused once another process has
    taken it."""

    def standing(self) -> Standing:
        """Where the campaign stands."""
        with self.database.reading() as connection:
            campaign = campaign_table.find_campaign(connection, self.campaign)
            last = round_table.last_round(connection, campaign.id)
            batch = last.state if last is not None and last.is_open else None
            version = campaign_table.votes_version(connection, campaign.id)
            heard = Heard.from_json((last.outcome or {}).get("heard")) if last is not None and batch is None else None
            others = heard is not None and heard != Heard(campaign.settings.muted, version)
            return Standing(
                settings=campaign.settings,
                closed=0 if last is None else last.number + (batch is None),
                spent=campaign.spent,
                batch=batch,
                complete=last is not None and _complete(connection, campaign, last),
                pending=others or decision_table.has_pending(connection, campaign.id),
                running=campaign.state in _ACTIVE,
                failed=campaign.state is CampaignState.FAILED,
                reopened=np.array(decision_table.positions_to_ask(connection, campaign.id), dtype=np.int64),
                mark=(0 if last is None else last.id,),
                version=version,
            )

    def begin(self, record: RoundRecord, model: Model) -> bool:
        """Write round 0, the scores of all samples at the start, and that the campaign runs."""
        arrays = [
            write_array(self.folder, "scores", model.scores(), stem=self._stem("scores")),
            self._write_model(0, model),
        ]
        links = self._links()
        with self._moving((0,)) as at:
            if at is None:
                return False
            closed = _closed(record, model)
            closed["settings"] = at.campaign.settings
            round_id = at.insert_round(RoundKind.INITIAL, **closed)
            self._link(at, links, round_id)
            for facts in arrays:
                campaign_table.put_array(at.connection, at.campaign.id, facts)
            state = at.campaign.state
            ready = CampaignState.RUNNING if state is CampaignState.PREPARING else state
            at.update_campaign(state=ready, message="the first model is trained")
        return True

    def open(self, now: Standing, selected: Selected) -> bool:
        """Store a batch, and the work ahead, for people to vote on."""
        shown = self.shown()
        nearest = shown.nearest(np.concatenate([selected.batch.indices, selected.ahead.indices]))
        with self._moving(now.mark) as at:
            if at is None or not _same_plan(at.campaign, now):
                return False
            if decision_table.has_pending(at.connection, at.campaign.id):
                return False  # the batch may hold an item that was decided meanwhile: the model follows first
            round_id = at.insert_round(
                RoundKind.BATCH,
                state=RoundState.SELECTED,
                size=selected.size,
                ahead=selected.ahead_size,
                spent=now.spent,
                selection_hash=selected.hash,
                diagnostics=diagnostics_as_json(selected.batch.diagnostics),
                rebuilt=SELECT if selected.rebuilt else "",
                settings=at.campaign.settings,
                seconds={"select": selected.seconds},
            )
            selections = _new_selections(at, selected, round_id, shown, nearest)
            round_table.insert_selections(at.connection, selections)
            asked = [one.item_id for one in selections if one.origin != Origin.AHEAD]
            decision_table.drop_wishes(at.connection, asked)
            at.update_campaign(state=CampaignState.RUNNING, message=f"round {at.next_number} is open")
        return True

    def end(self, now: Standing, reason: StopReason, message: str) -> bool:  # noqa: ARG002 (the message names it)
        """Write down that the campaign is finished, and why."""
        with self._moving(now.mark) as at:
            if at is None or not _same_plan(at.campaign, now):
                return False
            if decision_table.has_pending(at.connection, at.campaign.id):
                return False
            at.update_campaign(state=CampaignState.FINISHED, message=message)
        return True

    def count(self, aggregator: Aggregator) -> bool:
        """Turn the votes of a complete batch into decisions."""
        with self._moving(None) as at:
            if at is None or at.last is None or not _complete(at.connection, at.campaign, at.last):
                return False  # a vote was taken back meanwhile
            connection, round_id = at.connection, at.last.id
            selections = round_table.batch_of(connection, round_id)
            if at.campaign.settings.suggestion_votes:
                for selection in selections:
                    _suggestion_vote(connection, at.campaign.id, selection)
            votes = vote_table.live_votes_of_round(connection, round_id)
            decided = decision_table.decided_items(connection, round_id)
            if _ask_further(at, [one for one in selections if one.item_id not in decided], votes):
                return False
            for selection in selections:
                if selection.item_id not in decided:
                    label, support = counted(votes.get(selection.item_id, []), aggregator)
                    decision_table.insert_decision(
                        connection,
                        campaign_id=at.campaign.id,
                        item_id=selection.item_id,
                        attempt=selection.attempt,
                        round_id=round_id,
                        kind=DecisionKind.VOTES,
                        by="votes",
                        label=label,
                        support=support,
                    )
            round_table.update_round(connection, round_id, state=RoundState.AGGREGATED)
            at.update_campaign()
        return True

    def answered(self) -> Answered:
        """The decisions that no model knows yet: those on the batch that was counted, then corrections."""
        with self.database.reading() as connection:
            campaign = campaign_table.find_campaign(connection, self.campaign)
            last = round_table.last_round(connection, campaign.id)
            assert last is not None, "there is a first model"
            rows = round_table.batch_of(connection, last.id) if last.state is RoundState.AGGREGATED else []
            pending = decision_table.pending_decisions(connection, campaign.id)
            votes = votes_table(pending, vote_table.votes_behind(connection, pending))
        batch = _batch_of(rows, diagnostics_from_json(SelectionDiagnostics, last.diagnostics) if rows else None)
        seconds = last.seconds if last.is_open else {}
        mark = (last.id, max((row.id for row in pending), default=0))
        return Answered(batch, votes, _merged(batch.indices, pending), seconds, mark=mark)

    def close(self, answered: Answered, record: RoundRecord, model: Model) -> bool:
        """Write the round whose model has followed `answered`: the open batch, or a round of corrections."""
        round_id, decisions_up_to = answered.mark
        facts, links = self._write_model(record.number, model), self._links()
        with self._moving((round_id,)) as at:
            if at is None or at.last is None or at.last.state is RoundState.SELECTED:
                return False
            closed = _closed(record, model)
            if answered.rebuilt:
                closed["rebuilt"] = f"{at.last.rebuilt if at.last.is_open else ''} {CLOSE}".strip()
            if at.last.is_open:
                round_table.update_round(at.connection, round_id, **closed)
            else:
                closed["settings"] = at.campaign.settings
                round_id = at.insert_round(RoundKind.CORRECTION, **closed)
            pending = decision_table.pending_decisions(at.connection, at.campaign.id)
            known = [row.id for row in pending if row.id <= decisions_up_to]
            decision_table.apply_decisions(at.connection, round_id, known)
            self._link(at, links, round_id)
            campaign_table.put_array(at.connection, at.campaign.id, facts)
            at.update_campaign(spent=record.spent)
        for path in self.folder.glob("model-*.npy"):  # later ones are of another process that went on meanwhile
            number = _MODEL.fullmatch(path.name)
            if number is not None and int(number[1]) <= record.number and path.name != facts.path:
                with contextlib.suppress(OSError):
                    path.unlink()
        return True

    def rounds(self) -> list[RoundRecord]:
        """The closed rounds in order, round 0 first."""
        with self.database.reading() as connection:
            campaign = campaign_table.find_campaign(connection, self.campaign)
            rows = round_table.rounds_of(connection, campaign.id)
        return [record_from_json(row.outcome) for row in rows if row.outcome is not None]

    def past(self) -> Iterator[PastRound]:
        """All rounds in order, the open one last."""
        with self.database.reading() as connection:
            campaign = campaign_table.find_campaign(connection, self.campaign)
            rows = round_table.rounds_of(connection, campaign.id)
            selections: dict[int, list[SelectionBrief]] = defaultdict(list)
            for selection in round_table.selections_of_campaign(connection, campaign.id):
                selections[selection.round_id].append(selection)
        yield from (_past(row, selections[row.id]) for row in rows)

    @contextlib.contextmanager
    def _moving(self, mark: tuple[int, ...] | None) -> "Iterator[_At | None]":
        """A transaction in which nobody else writes to the campaign; None if `mark` names another last round, or the lease is
        lost."""
        with self.database.writing() as connection:
            campaign = campaign_table.find_campaign(connection, self.campaign)
            self.database.lock_campaign(connection, campaign.id)
            campaign = campaign_table.find_campaign(connection, self.campaign)
            last = round_table.last_round(connection, campaign.id)
            same = mark is None or mark == (0 if last is None else last.id,)
            mine = self.fence is None or lease_table.still_holds(connection, *self.fence)
            yield _At(connection, campaign, last) if same and mine else None

    def _links(self) -> LinkMaker:
        """The rows that the next link covers, as far as they are there now."""
        with self.database.reading() as connection:
            campaign = campaign_table.find_campaign(connection, self.campaign)
            return LinkMaker.after_last(connection, campaign.id)

    def _link(self, at: "_At", links: LinkMaker, round_id: int) -> None:
        """Store the link of a round that is closed in this transaction; nobody else writes to the campaign meanwhile."""
        row = round_table.round_by_id(at.connection, round_id)
        link = links.link(at.connection, row, at.campaign.settings, self.signer)
        round_table.update_round(at.connection, round_id, link=link)

    def _write_model(self, number: int, model: Model) -> ArrayFacts:
        """The model in a file of its own, beside the last one: the database says which of them counts."""
        return write_array(self.folder, "model", model.parameters, stem=self._stem(f"model-{number}"))

    def _stem(self, name: str) -> str:
        """A name that no process has which held the lease before: it may still be writing."""
        return name if self.fence is None else f"{name}-{self.fence[1]}"


@dataclass(frozen=True)
class _At:
    """Inside a transaction: the campaign and its last round as they are."""

    connection: sa.Connection
    campaign: CampaignRow
    last: RoundRow | None

    @property
    def next_number(self) -> int:
        return 0 if self.last is None else self.last.number + 1

    def insert_round(self, kind: RoundKind, **values: Unpack[RoundValues]) -> int:
        return round_table.insert_round(self.connection, self.campaign.id, self.next_number, kind, **values)

    def update_campaign(self, **values: Unpack[CampaignValues]) -> None:
        campaign_table.update_campaign(self.connection, self.campaign.id, **values)


def _closed(record: RoundRecord, model: Model) -> RoundValues:
    outcome = record_as_json(record)
    gains = {
        split: {name: gain.as_dict() for name, gain in found.items()} for split, found in model.gains_by_split().items()
    }
    figures = {
        split: {name: one.as_dict() for name, one in found.items()} for split, found in model.figures_by_split().items()
    }
    calibration = model.calibration()
    facts = {"gain": gains, "figures": figures, "calibration": None if calibration is None else asdict(calibration)}
    return {
        "state": RoundState.CLOSED,
        "spent": record.spent,
        "labels_hash": labels_hash(*model.label_state),
        "model_hash": model_hash(model.parameters),
        "outcome": {**outcome, **facts},
        "seconds": outcome["seconds"],
        "closed_at": time.time(),
    }


def _complete(connection: sa.Connection, campaign: CampaignRow, last: RoundRow) -> bool:
    """Whether the batch is still to be counted and has the votes it needs."""
    people = campaign.settings.people
    return last.state is RoundState.SELECTED and not round_table.batch_incomplete(connection, last.id, people)


def _same_plan(campaign: CampaignRow, now: Standing) -> bool:
    """Whether what was planned with still holds: the campaign runs, with the same settings."""
    return campaign.state in _ACTIVE and campaign.settings == now.settings


def needed_by(votes: Sequence[VoteRow], settings: Settings, suggested: int | None) -> int | None:
    """After how many votes of people an item may be settled, given those so far; None for as many as there are people."""
    if not settings.stop_at_majority:
        return None
    hint = [suggested] if settings.suggestion_votes and suggested is not None and suggested != UNRESOLVED else []
    cast = [*hint, *(UNRESOLVED if vote.label is None else vote.label for vote in votes)]
    return votes_needed(cast, settings.people + len(hint)) - len(hint)


def counted(votes: Sequence[VoteRow], aggregator: Aggregator) -> tuple[int | None, float]:
    """What the live votes on one item come to, and the share of votes behind it."""
    if not votes:
        return None, 0.0
    item = np.zeros(len(votes), dtype=np.int64)
    table = Votes(item, tuple(v.person for v in votes), _class_ids(v.label for v in votes))
    made = aggregator.aggregate(table, Batch.without_predictions(item[:1]))
    label = int(made.labels[0])
    return None if label == UNRESOLVED else label, float(made.support[0])


def _ask_further(at: _At, selections: Sequence[SelectedItem], votes: dict[int, list[VoteRow]]) -> bool:
    """Ask one more person for each item whose votes tie, where a member is there who has not voted; whether any is asked."""
    settings = at.campaign.settings
    if settings.people < 2 or not settings.tie_votes:
        return False
    members: set[str] | None = None
    asked = False
    for one in selections:
        cast = votes.get(one.item_id, [])
        if one.votes >= settings.people + settings.tie_votes or not tied(cast):
            continue
        if members is None:
            members = account_table.active_members(at.connection, at.campaign.id)
        if members - {vote.person for vote in cast}:
            round_table.need_votes(at.connection, one.id, one.votes + 1)
            asked = True
    if asked:
        at.update_campaign()
    return asked


def tied(votes: Sequence[VoteRow]) -> bool:
    """Whether several answers, 'ambiguous' among them, have the most votes."""
    counts = sorted(Counter(vote.label for vote in votes).values(), reverse=True)
    return len(counts) > 1 and counts[0] == counts[1]


def _suggestion_vote(connection: sa.Connection, campaign_id: int, selection: SelectedItem) -> None:
    if selection.suggested is None:
        return
    if vote_table.last_vote(connection, selection.item_id, selection.attempt, SUGGESTION) is None:
        vote = NewVote(
            campaign_id=campaign_id,
            item_id=selection.item_id,
            attempt=selection.attempt,
            round_id=selection.round_id,
            person=SUGGESTION,
            account_id=None,
            label=selection.suggested,
            blind=False,
            suggested=selection.suggested,
            source=SUGGESTION,
        )
        vote_table.insert_vote(connection, None, vote)


def _new_selections(
    at: _At, selected: Selected, round_id: int, shown: Shown, nearest: Sequence[Sequence[tuple[int, float]]]
) -> list[NewSelection]:
    settings = at.campaign.settings
    every = selected.batch.joined(selected.ahead)
    positions = every.indices.tolist()
    items = campaign_table.items_at(at.connection, at.campaign.id, SplitName.TRAIN, positions)
    ids = [row.id for row in items.values()]
    over = set(
        round_table.batch_selections(at.connection, ids)
    )  # asked at this attempt, or decided without being asked
    over |= {(made.item_id, made.attempt) for made in decision_table.decisions_on(at.connection, ids)}
    draws = np.random.default_rng([settings.seed, at.next_number, _BLIND_DRAW]).random(len(positions))
    pooled = partial(in_pool, settings.seed, at.campaign.public_id)
    audited = {item for item, _ in selected.batch.diagnostics.audited}
    rows = []
    for rank, position in enumerate(positions):
        item = items[position]
        attempt = item.attempt + ((item.id, item.attempt) in over)
        origin = Origin.AHEAD if rank >= len(selected.batch) else Origin.BATCH
        suggested = int(every.suggested[rank])
        votes = vote_table.live_votes(at.connection, item.id, attempt)
        rows.append(
            NewSelection(
                round_id=round_id,
                item_id=item.id,
                rank=rank,
                origin=Origin.REOPENED if rank < selected.reopened else origin,
                attempt=attempt,
                suggested=None if suggested == UNRESOLVED else suggested,
                influence=plain_number(float(every.influence[rank])),
                by_answer=plain_numbers(every.by_answer[rank].tolist()),
                blind=bool(draws[rank] < settings.blind_share or position in audited),
                weak=[round(float(p), 6) for p in shown.weak(position)],
                nearest=[list(pair) for pair in nearest[rank] if not (settings.gold_share and pooled(pair[0]))],
                votes=sum(v.person != SUGGESTION for v in votes),
                decided=False,
                needed=needed_by([v for v in votes if v.person != SUGGESTION], settings, suggested),
            )
        )
    return rows


def _past(row: RoundRow, selections: Sequence[SelectionBrief]) -> PastRound:
    batch, selected, answered, record = NO_BATCH, None, None, None
    if row.kind is RoundKind.BATCH:
        diagnostics = diagnostics_from_json(SelectionDiagnostics, row.diagnostics)
        parts = [[s for s in selections if (s.origin is Origin.AHEAD) == ahead] for ahead in (False, True)]
        batch, ahead = (_batch_of(part, diagnostics) for part in parts)
        reopened = sum(s.origin is Origin.REOPENED for s in parts[0])
        selected = Selected(batch, ahead, reopened, row.size, row.ahead, rebuilt=SELECT in row.rebuilt)
    if row.outcome is not None:
        record = record_from_json(row.outcome)
        if row.kind is not RoundKind.INITIAL:
            answered = Answered(batch, record.votes, record.decisions, rebuilt=CLOSE in row.rebuilt)
    hashes = row.selection_hash, row.labels_hash, row.model_hash
    closed = None if row.link is None else Settings.stored(row.link["settings"])
    return PastRound(row.number, row.kind, selected, answered, record, *hashes, row.settings, closed or row.settings)


def _batch_of(rows: Sequence[SelectionBrief | SelectedItem], diagnostics: SelectionDiagnostics | None = None) -> Batch:
    width = max((len(row.by_answer) for row in rows), default=0)
    return Batch(
        np.array([row.position for row in rows], dtype=np.int64),
        _class_ids(row.suggested for row in rows),
        np.array([row.influence for row in rows], dtype=np.float64),
        by_answer=np.array([row.by_answer for row in rows], dtype=np.float64).reshape(len(rows), width),
        diagnostics=diagnostics or SelectionDiagnostics(),
    )


def _class_ids(labels: Iterable[int | None]) -> Ints:
    return np.array([UNRESOLVED if label is None else label for label in labels], dtype=np.int64)


def votes_table(rows: Iterable[DecisionWithPosition], behind: dict[int, list[VoteRow]]) -> Votes:
    """The votes that the last decision on each item rests on, by position; a lead who decides counts as a voter."""
    ballots: list[tuple[str, object, object]] = []
    last = {row.item_id: row for row in rows}
    for row in sorted(last.values(), key=lambda row: row.position):
        if row.kind is not DecisionKind.REOPEN:
            said = [(vote.person, vote.label) for vote in behind.get(row.item_id, [])]
            said += [(row.by, row.label)] if row.kind is DecisionKind.LEAD else []
            ballots += [(who, [row.position], _class_ids([label])) for who, label in said]
    return Votes.of(ballots)


def _merged(batch: Ints, rows: Iterable[DecisionWithPosition]) -> Decisions:
    """One decision an item, the last one: those of the batch in its order, then corrections as they came."""
    last: dict[int, DecisionWithPosition] = {}
    for row in rows:
        last.pop(row.position, None)
        last[row.position] = row
    inside = [p for p in batch.tolist() if p in last]
    found = [last[p] for p in dict.fromkeys([*inside, *last])]
    return Decisions(
        np.array([row.position for row in found], dtype=np.int64),
        _class_ids(row.label for row in found),
        np.array([row.support for row in found], dtype=np.float64),
    )
