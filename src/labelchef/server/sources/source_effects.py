"""What other votes of sources would change, computed before it is applied, in the background (`services.running`).

A proposal is a list of muted sources, and, if rules are edited, all rules. Its effect is computed on a session of its own
(`sources.study`), outside of any transaction, so that votes and rounds go on; it can be cancelled, and ends by itself when
its time is up. Nothing is stored until `apply` is called; then the model of the campaign follows, when
`campaigns.change_settings` says.

What was proposed last is kept in the campaign's folder (`effect.json`). A web process that is asked about an effect which another
one computes, computes it too: the result is the same, and both end when another one is proposed or this one is cancelled.
"""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np
import pandas as pd

from labelchef.base.arrays import Ints
from labelchef.base.campaigns import CampaignState, ItemContent, SplitName
from labelchef.base.errors import ConflictError, NotFoundError
from labelchef.base.files import whole_file, writing_to
from labelchef.base.intake import Working
from labelchef.base.jobs import JobState
from labelchef.base.records import Heard
from labelchef.base.stopping_work import go_on
from labelchef.believe import SourceVotes
from labelchef.believe.hearing import AllVotes, check_names
from labelchef.believe.rules import RuleBoard, RuleSetFacts, facts_of, rule_values
from labelchef.believe.vote_forms import WEAK_SOURCE
from labelchef.data.training_rows import judges_of
from labelchef.loop.source_effect import SourceEffect, effect_of
from labelchef.server.campaigns.access import changing, find, looking
from labelchef.server.campaigns.contents import content_of
from labelchef.server.campaigns.trained import data_of, source_names
from labelchef.server.running import Run, problem_of
from labelchef.server.sharing import Turn
from labelchef.server.sources import campaign_rules, sources
from labelchef.server.sources.campaign_rules import Edited, Kept, RuleValues, checked, kept_rules
from labelchef.server.store import campaign_table, decision_table
from labelchef.server.store.rows import CampaignRow, CampaignValues
from labelchef.server.workspace import Workspace, folder_of, require_folder

MOST_SECONDS = 600.0
"""After which an effect is given up."""
_PROPOSED = "effect.json"


class EffectState(StrEnum):
    """How far the computation of an effect is."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True)
class Proposal:
    """Which votes should be heard."""

    muted: tuple[str, ...]
    rules: tuple[RuleValues, ...] | None = None
    """All rules of the campaign as they should be; None to leave them as they are."""


@dataclass(frozen=True)
class ShownBelief:
    """An item of which another class would be believed."""

    item: str
    content: ItemContent
    before: str
    after: str
    p_before: float
    p_after: float


@dataclass(frozen=True)
class Progress:
    """An effect that is being computed, or was."""

    muted: tuple[str, ...]
    rules: tuple[RuleValues, ...] | None
    state: EffectState
    stage: str
    """What is being computed, in words."""
    seconds: float
    problem: str | None
    effect: SourceEffect | None
    shown: tuple[ShownBelief, ...]
    stale: bool
    """Whether the campaign has moved on since: another round, other settings or rules."""


@dataclass(frozen=True)
class _Found:
    """What came of a computation."""

    effect: SourceEffect
    shown: tuple[ShownBelief, ...]
    edited: Edited | None
    key: tuple[object, ...]


@dataclass(frozen=True)
class _Job:
    """A proposal, and the computation of its effect."""

    proposal: Proposal
    turn: str
    """Names the proposal, for all processes."""
    run: Run[_Found]


class _Jobs(dict[str, _Job]):
    """The last job of each campaign."""


class _Boards(dict[str, tuple[RuleBoard, list[int | None], Turn]]):
    """The rows of a campaign as rules read them, with their labels."""


def begin(ws: Workspace, campaign: str, proposal: Proposal, *, patience: float = 0.3) -> Progress:
    """Begin to compute an effect, in the place of one that is being computed for this campaign."""
    row = find(ws, campaign)
    sources.study(ws, campaign)  # refuses where there is no model, or nothing is learned
    classes = _classes(ws, campaign)
    kept, version = kept_rules(ws, row)
    names = _names(ws, row, version)
    if proposal.rules is not None:
        made = checked(proposal.rules, classes, sorted(set(names) - {one.name for one in kept.rules}))
        rules = {one.name for one in kept.rules}
        names = tuple(name for name in names if name not in rules) + tuple(one.name for one in made)
    check_names(proposal.muted, names)
    job = _Job(proposal, secrets.token_hex(8), Run(f"effect:{row.public_id}"))
    _note(ws, row, job.turn, proposal)
    _start(ws, row, job, patience)
    return _told(ws, row, job)


def _start(ws: Workspace, row: CampaignRow, job: _Job, patience: float) -> None:
    """Compute in the background, in the place of what this process computes for the campaign."""
    ws.memory.of(_Jobs)[row.public_id] = job
    late, watch = job.run.began + MOST_SECONDS, _Watch(ws, row, job)
    job.run.explain = partial(problem_of, what="the effect of other sources")
    job.run.unwanted = lambda: watch.stopped() or time.monotonic() > late
    ws.runs.begin(job.run, lambda run: _compute(ws, row.public_id, job.proposal, run))
    job.run.wait(patience)


def _note(ws: Workspace, row: CampaignRow, turn: str, proposal: Proposal, *, cancelled: bool = False) -> None:
    """Tell all processes what was proposed last, or that it was cancelled."""
    path = require_folder(ws, row) / _PROPOSED
    with writing_to(path, "make room or check the rights", code="folder"), whole_file(path) as stream:
        rules = None if proposal.rules is None else [dict(one) for one in proposal.rules]
        told = {"turn": turn, "muted": list(proposal.muted), "rules": rules, "cancelled": cancelled, "at": time.time()}
        stream.write(json.dumps(told).encode())


def _noted(ws: Workspace, row: CampaignRow) -> tuple[str, Proposal, bool] | None:
    """Name, proposal and whether it was cancelled, of what was proposed last in any process."""
    try:
        told = json.loads((folder_of(ws, row) / _PROPOSED).read_text())
        if not abs(time.time() - told["at"]) < 2 * MOST_SECONDS:
            return None  # of a server that ended long ago
        rules = None if told["rules"] is None else tuple(told["rules"])
        return str(told["turn"]), Proposal(tuple(told["muted"]), rules), bool(told["cancelled"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass
class _Watch:
    """Whether an effect is still wanted; other processes are asked once a second."""

    ws: Workspace
    row: CampaignRow
    job: _Job
    _looked: float = 0.0

    def stopped(self) -> bool:
        """Whether to stop."""
        stop = self.job.run.stop
        if not stop.is_set() and time.monotonic() - self._looked > 1.0:
            self._looked = time.monotonic()
            now = _noted(self.ws, self.row)
            if now is not None and (now[0] != self.job.turn or now[2]):
                stop.set()
        return stop.is_set()


def computed(ws: Workspace, campaign: str, proposal: Proposal) -> SourceEffect:
    """The effect, once it is computed; refused with the reason where it cannot be."""
    found = begin(ws, campaign, proposal, patience=MOST_SECONDS)
    if found.effect is None:
        raise ConflictError(f"the effect could not be computed: {found.problem or found.state}", code="effect")
    return found.effect


def look(ws: Workspace, campaign: str) -> Progress:
    """The effect that was asked for last."""
    row = find(ws, campaign)
    return _told(ws, row, _job(ws, row))


def cancel(ws: Workspace, campaign: str) -> Progress:
    """Give up an effect that is being computed."""
    row = find(ws, campaign)
    job = _job(ws, row)
    if job.run.state is JobState.RUNNING:
        _note(ws, row, job.turn, job.proposal, cancelled=True)
    job.run.stop.set()
    job.run.wait(1.0)
    return _told(ws, row, job)


def _job(ws: Workspace, row: CampaignRow) -> _Job:
    job, noted = ws.memory.of(_Jobs).get(row.public_id), _noted(ws, row)
    if noted is not None and (job is None or job.turn != noted[0]):
        turn, proposal, cancelled = noted
        job = _Job(proposal, turn, Run(f"effect:{row.public_id}"))
        if cancelled:
            job.run.stop.set()
            job.run.state, job.run.ended = JobState.CANCELLED, job.run.began
        else:
            _start(ws, row, job, 0.3)
    if job is None:
        raise NotFoundError("no effect was asked for since the server started; ask for one first", code="effect")
    return job


def _told(ws: Workspace, row: CampaignRow, job: _Job) -> Progress:
    run, found = job.run, job.run.found
    state, problem = EffectState(run.state.value), run.problem
    if state is EffectState.CANCELLED and not run.stop.is_set():
        state, problem = EffectState.FAILED, f"it was not computed within {MOST_SECONDS:.0f} seconds"
    now = run.working or Working("waiting", 0, 0)
    going = f"{now.what}: {now.done} of {now.total}" if now.total else now.what
    stage = going if state is EffectState.RUNNING else ""
    seconds = (run.ended or time.monotonic()) - run.began
    effect, shown, stale = (
        (None, (), False) if found is None else (found.effect, found.shown, found.key != _key(ws, row))
    )
    muted, rules = job.proposal.muted, job.proposal.rules
    return Progress(muted, rules, state, stage, round(seconds, 2), problem, effect, shown, stale)


def _key(ws: Workspace, row: CampaignRow) -> tuple[object, ...]:
    """What an effect was computed for."""
    row, _, closed = sources.standing(ws, row.public_id)
    with ws.reading() as connection:
        version = campaign_table.votes_version(connection, row.id)
    return closed[-1].number, closed[-1].model_hash, row.settings.muted, version


def _compute(ws: Workspace, campaign: str, proposal: Proposal, run: Run[_Found]) -> _Found:
    run.tell("rebuilding the campaign's model")
    row, made = find(ws, campaign), None
    key, studied = _key(ws, row), sources.study(ws, campaign)
    while not studied.lock.acquire(timeout=0.2):  # somebody else computes with it
        go_on()
    try:
        data, session = studied.made(ws)
        with ws.reading() as connection:
            version = campaign_table.votes_version(connection, row.id)
        votes, every = session.sources, session.sources
        assert every is not None, "trusted samples train"
        heard = Heard(proposal.muted, version)
        if proposal.rules is not None:
            told = partial(run.tell, "letting the rules vote on all items")
            made = edited(ws, row, proposal.rules, told)
            heard = Heard(proposal.muted, version + 1)
            session.sources = _with_version(every, made, heard.version, np.flatnonzero(~judges_of(data, row.settings)))
        try:
            effect = effect_of(session, heard, run.tell)
        finally:
            session.sources = votes
    finally:
        studied.lock.release()
    return _Found(effect, _shown(ws, campaign, effect, studied.classes), made, key)


def _with_version(every: AllVotes, made: Edited, version: int, steering: Ints) -> AllVotes:
    """All votes, and those of an edit as a version of them."""

    def later(number: int) -> SourceVotes:
        return made.votes.above(made.val_votes.rows(steering)) if number == version else every.version(number)

    return replace(every, edited=later)


def _shown(ws: Workspace, campaign: str, effect: SourceEffect, classes: Sequence[str]) -> tuple[ShownBelief, ...]:
    with looking(ws, campaign) as (connection, row):
        places = [one.position for one in effect.shown]
        items = campaign_table.items_at(connection, row.id, SplitName.TRAIN, places)
    return tuple(
        ShownBelief(
            items[one.position].key,
            content_of(items[one.position]),
            classes[one.before],
            classes[one.after],
            one.p_before,
            one.p_after,
        )
        for one in effect.shown
    )


# --- rules ---


@dataclass(frozen=True)
class CampaignRules:
    """The rules of a campaign, and what rules may name."""

    rules: tuple[dict[str, object], ...]
    """As a rules file has them."""
    version: int
    """0 as they came with the campaign; every edit makes the next one."""
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    """Columns of text."""
    classes: tuple[str, ...]
    muted: tuple[str, ...]
    """Sources that are muted by the settings as they are now."""


def rules_now(ws: Workspace, campaign: str) -> CampaignRules:
    """The rules that the campaign has."""
    row = find(ws, campaign)
    kept, version = kept_rules(ws, row)
    columns = tuple(campaign_rules.columns_of(ws, row, kept))
    values = tuple(rule_values(one) for one in kept.rules)
    texts = tuple(one for one in kept.texts if one in columns)
    return CampaignRules(values, version, columns, texts, _classes(ws, campaign), row.settings.muted)


def try_rules(
    ws: Workspace, campaign: str, rules: Sequence[RuleValues], gone: Callable[[], bool] = lambda: False
) -> RuleSetFacts:
    """Where rules would vote, how often they are right on clean items, and where they differ; nothing is kept.

    `gone` says whether nobody waits for the answer any more.
    """
    row = find(ws, campaign)
    kept, version = kept_rules(ws, row)
    classes, names = _classes(ws, campaign), _names(ws, row, version)
    made = checked(rules, classes, sorted(set(names) - {one.name for one in kept.rules}))
    board, given, turn = _board(ws, row, kept)
    with ws.reading() as connection:
        decided = {one.position: one.label for one in decision_table.last_decisions(connection, row.id).values()}
    labels = [decided.get(k, one) if k < row.n_items else one for k, one in enumerate(given)]
    known = [None if one is None else classes[one] for one in labels]
    with turn.taken(gone) as check:
        return facts_of(made, board.frame, known, board=board, check=check)


def _board(ws: Workspace, row: CampaignRow, kept: Kept) -> tuple[RuleBoard, list[int | None], Turn]:
    boards = ws.memory.of(_Boards)
    found = boards.get(row.public_id)
    if found is None:
        parts = list(campaign_rules.rows_of(ws, row, kept))
        frame = pd.concat([one.frame for one in parts], ignore_index=True)
        found = RuleBoard(frame), [label for one in parts for label in one.labels], Turn()
        boards.clear()  # one campaign at a time: its texts are in memory
        boards[row.public_id] = found
    return found


def edited(
    ws: Workspace,
    row: CampaignRow,
    rules: Sequence[RuleValues],
    told: Callable[[int, int], None] = lambda _done, _all: None,
) -> Edited:
    """The votes of all sources with these rules; nothing is stored."""
    kept, version = kept_rules(ws, row)
    classes, names = _classes(ws, row.public_id), _names(ws, row, version)
    made = checked(rules, classes, sorted(set(names) - {one.name for one in kept.rules}))
    data = data_of(ws, row)
    if version:
        assert data.edited is not None, "there are versions"
        votes = data.edited(version)
    else:
        train = SourceVotes.soft(data.weak, WEAK_SOURCE) if data.votes is None else data.votes
        n = len(data.validation[1])
        val = SourceVotes.nothing(train.names, train.n_classes, n) if data.votes_val is None else data.votes_val
        votes = train, val
    return campaign_rules.edit(ws, row, made, votes, classes, told)


def apply(ws: Workspace, campaign: str, proposal: Proposal, by: str) -> int:
    """Use other sources from the next model on; the version of the votes then.

    With rules, they vote on all items again, and their votes are stored beside those before.
    """
    row = find(ws, campaign)
    sources.study(ws, campaign)  # refuses where there is no model, or nothing is learned
    made = _known(ws, row, proposal) if proposal.rules is not None else None
    if proposal.rules is not None and made is None:
        made = edited(ws, row, proposal.rules)
    folder = require_folder(ws, row)
    names = _names(ws, row, kept_rules(ws, row)[1]) if made is None else made.votes.names
    check_names(proposal.muted, names)
    facts = [] if made is None else campaign_rules.store(folder, made)
    with changing(ws, campaign) as (connection, row):
        version = campaign_table.votes_version(connection, row.id)
        if made is not None and made.base != version:
            raise ConflictError("somebody else has edited the rules meanwhile; load the page again", code="edited")
        before, muted = row.settings, tuple(dict.fromkeys(proposal.muted))
        noted: dict[str, object] = {}
        if muted != before.muted:
            noted |= {"settings": {"muted": muted}, "before": {"muted": before.muted}}
        if made is not None:
            for one in facts:
                campaign_table.put_array(connection, row.id, one)
            arrays = {one.name: one.sha256 for one in facts}
            noted["rules"] = {
                "version": version + 1,
                "changed": made.changed,
                "removed": made.removed,
                "arrays": arrays,
            }
        if noted:
            moved: CampaignValues = {"settings": before.changed(muted=muted)}
            if row.state == CampaignState.FINISHED:
                moved["state"], moved["message"] = CampaignState.RUNNING, "sources changed; checking what is left"
            campaign_table.note_change(connection, row.id, by, noted)
            campaign_table.update_campaign(connection, row.id, **moved)
        return version + (made is not None)


def _known(ws: Workspace, row: CampaignRow, proposal: Proposal) -> Edited | None:
    """The votes of the rules, if their effect was computed just before."""
    job = ws.memory.of(_Jobs).get(row.public_id)
    found = None if job is None else job.run.found
    if job is None or found is None or found.edited is None or job.proposal.rules != proposal.rules:
        return None
    return found.edited if found.edited.base == kept_rules(ws, row)[1] else None


def _classes(ws: Workspace, campaign: str) -> tuple[str, ...]:
    with looking(ws, campaign) as (connection, row):
        return campaign_table.classes_of(connection, row.id)


def _names(ws: Workspace, row: CampaignRow, version: int) -> tuple[str, ...]:
    with ws.reading() as connection:
        return source_names(connection, require_folder(ws, row), row.id, version)
