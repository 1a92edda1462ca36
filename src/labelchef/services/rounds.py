"""The rounds of a campaign that lasts, as a state machine. Every arrow is one transaction; numerics run outside.

no round ──fit──▶ round 0 closed, round 1 selected
selected ──every item has its votes──▶ aggregated
aggregated ──model follows──▶ closed, and the next round selected or the campaign finished
no open round, a correction waits ──model follows──▶ a correction round, closed

A crash leaves the state before or after an arrow: `step` looks at the ledger, finds the arrow that is due and takes it.
"""

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from labelchef.campaign.stopping import Progress, TargetReached
from labelchef.domain.arrays import Ints
from labelchef.domain.campaigns import SUGGESTION, CampaignState, DecisionKind, Origin, RoundKind, RoundState, SplitName
from labelchef.domain.records import UNRESOLVED, Batch, Decisions, RoundRecord, StopReason, Votes
from labelchef.domain.settings import Settings
from labelchef.services import fold
from labelchef.services.fold import Folded, Selected
from labelchef.services.folders import folder_of, require_folder
from labelchef.services.turns import due, majority
from labelchef.services.workspace import Workspace
from labelchef.store import campaign_table, decision_table, item_table, round_table, selection_table, vote_table
from labelchef.store.arrays import ArrayFacts, write_array
from labelchef.store.rows import CampaignRow, NewSelection, NewVote, RoundRow, RoundValues, SelectionRow

if TYPE_CHECKING:
    import sqlalchemy as sa

_NONE: Ints = np.empty(0, dtype=np.int64)


def step(ws: Workspace, campaign_id: str) -> bool:
    """Take the arrow that is due, if any; the caller holds the worker's lock."""
    with ws.reading() as connection:
        campaign = campaign_table.find_campaign(connection, campaign_id)
        now = due(connection, campaign)
    if now is None:
        return False
    require_folder(ws, campaign)
    if now.row is None:
        _fit(ws, campaign)
    else:
        steps = {"aggregate": _aggregate, "close": _close, "correct": _correct, "select": _select}
        steps[now.arrow](ws, campaign, now.row)
    ws.signal.notify()
    return True


def _fit(ws: Workspace, campaign: CampaignRow) -> None:
    began = time.perf_counter()
    folded = fold.fit(ws, campaign)
    folded.closed, folded.last_labels = 1, fold.labels_hash(folded.cleaner)
    record = folded.cleaner.rounds_[-1]
    ws.folded[campaign.id] = folded
    plan = _plan(ws, campaign, folded, spent=0)
    model = _write_model(ws, campaign, folded)
    with ws.writing() as connection:
        ws.database.lock_campaign(connection, campaign.id)
        if round_table.last_round(connection, campaign.id) is not None:
            return
        round_table.insert_round(
            connection,
            campaign_id=campaign.id,
            number=0,
            kind=RoundKind.INITIAL,
            size=0,
            ahead=0,
            spent=0,
            selection_hash=None,
            **_closed(folded, record, {"fit": time.perf_counter() - began}),
        )
        campaign_table.put_array(connection, campaign.id, model)
        _go_on(connection, campaign, folded, plan, number=1, spent=0)
    _forget_unrecorded(ws, campaign)


def _aggregate(ws: Workspace, campaign: CampaignRow, row: RoundRow) -> None:
    """Count the votes of a complete batch; pure SQL and counting."""
    settings = campaign.settings
    with ws.writing() as connection:
        ws.database.lock_campaign(connection, campaign.id)
        now = round_table.last_round(connection, campaign.id)
        if now is None or now.id != row.id or now.state != RoundState.SELECTED:
            return
        if selection_table.batch_incomplete(connection, row.id, settings.people):
            return  # a vote was taken back meanwhile
        selections = [s for s in selection_table.selections_of(connection, row.id) if s.origin != Origin.AHEAD]
        if settings.suggestion_votes:
            for selection in selections:
                _suggestion_vote(connection, campaign.id, selection)
        votes = vote_table.live_votes_of_round(connection, row.id)
        decided = decision_table.decided_items(connection, row.id)
        for selection in selections:
            if selection.item_id not in decided:
                label, support = majority(votes.get(selection.item_id, []))
                decision_table.insert_decision(
                    connection,
                    campaign_id=campaign.id,
                    item_id=selection.item_id,
                    attempt=selection.attempt,
                    round_id=row.id,
                    kind=DecisionKind.VOTES,
                    by="votes",
                    label=label,
                    support=support,
                )
        round_table.update_round(connection, row.id, state=RoundState.AGGREGATED)
        campaign_table.update_campaign(connection, campaign.id)


def _suggestion_vote(connection: "sa.Connection", campaign_id: int, selection: SelectionRow) -> None:
    if selection.suggested is None:
        return
    prior = vote_table.last_vote(connection, selection.item_id, selection.attempt, SUGGESTION)
    if prior is None:
        vote_table.insert_vote(
            connection,
            None,
            NewVote(
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
            ),
        )


def _close(ws: Workspace, campaign: CampaignRow, row: RoundRow) -> None:
    """Let the model follow the batch and the corrections that wait, and select what comes next."""
    folded = fold.current(ws, campaign)
    with ws.reading() as connection:
        past = fold.past_round(connection, row)
        pending = decision_table.pending_decisions(connection, campaign.id)
        upto = vote_table.last_vote_id(connection, campaign.id)
        votes = fold.votes_behind(connection, pending, upto)
        chosen = [s for s in selection_table.selections_of(connection, row.id) if s.origin != Origin.AHEAD]
    decisions, corrections = fold.merged(past.selected, pending)
    batch = Batch(
        past.selected,
        np.array([UNRESOLVED if s.suggested is None else s.suggested for s in chosen], dtype=np.int64),
        np.array([np.nan if s.influence is None else s.influence for s in chosen], dtype=np.float64),
    )
    record = _decide(ws, campaign, folded, batch, votes, decisions)
    spent = row.spent + len(past.selected)
    plan = _plan(ws, campaign, folded, spent)
    model = _write_model(ws, campaign, folded)
    with ws.writing() as connection:
        ws.database.lock_campaign(connection, campaign.id)
        now = round_table.last_round(connection, campaign.id)
        if now is None or now.id != row.id or now.state != RoundState.AGGREGATED:
            ws.folded.pop(campaign.id, None)
            return
        decision_table.apply_decisions(connection, row.id, [d.id for d in pending])
        seconds = {**row.seconds, "construct": record.seconds["construct"], "evaluate": record.seconds["evaluate"]}
        closed = _closed(folded, record, seconds, upto=upto, corrections=corrections, before=row.diagnostics)
        round_table.update_round(connection, row.id, spent=spent, **closed)
        campaign_table.put_array(connection, campaign.id, model)
        _go_on(connection, campaign, folded, plan, number=row.number + 1, spent=spent)
    _forget_unrecorded(ws, campaign)
    _drop_old_models(ws, campaign, model)


def _correct(ws: Workspace, campaign: CampaignRow, row: RoundRow) -> None:
    """Corrections while no batch is out: a round of their own, without a selection."""
    folded = fold.current(ws, campaign)
    with ws.reading() as connection:
        pending = decision_table.pending_decisions(connection, campaign.id)
        upto = vote_table.last_vote_id(connection, campaign.id)
        votes = fold.votes_behind(connection, pending, upto)
    decisions, corrections = fold.merged(_NONE, pending)
    record = _decide(ws, campaign, folded, Batch(_NONE, _NONE, np.empty(0)), votes, decisions)
    model = _write_model(ws, campaign, folded)
    with ws.writing() as connection:
        ws.database.lock_campaign(connection, campaign.id)
        now = round_table.last_round(connection, campaign.id)
        if now is None or now.id != row.id:
            ws.folded.pop(campaign.id, None)
            return
        round_id = round_table.insert_round(
            connection,
            campaign_id=campaign.id,
            number=row.number + 1,
            kind=RoundKind.CORRECTION,
            size=0,
            ahead=0,
            spent=row.spent,
            selection_hash=None,
            **_closed(folded, record, dict(record.seconds), upto=upto, corrections=corrections),
        )
        decision_table.apply_decisions(connection, round_id, [d.id for d in pending])
        campaign_table.put_array(connection, campaign.id, model)
        campaign_table.update_campaign(connection, campaign.id)
    _drop_old_models(ws, campaign, model)


def _select(ws: Workspace, campaign: CampaignRow, row: RoundRow) -> None:
    """No batch is out and the campaign runs: select one, or say why it is finished."""
    folded = fold.current(ws, campaign)
    plan = _plan(ws, campaign, folded, row.spent)
    with ws.writing() as connection:
        ws.database.lock_campaign(connection, campaign.id)
        now = round_table.last_round(connection, campaign.id)
        if now is None or now.id != row.id:
            ws.folded.pop(campaign.id, None)
            return
        _go_on(connection, campaign, folded, plan, number=row.number + 1, spent=row.spent)
    _forget_unrecorded(ws, campaign)


def _decide(
    ws: Workspace, campaign: CampaignRow, folded: Folded, batch: Batch, votes: Votes, decisions: Decisions
) -> RoundRecord:
    """Move the state in memory; until the ledger says so too it does not count."""
    ws.folded.pop(campaign.id, None)
    record = fold.decide(folded, fold.batch_of(batch, decisions), votes, decisions, {})
    folded.last_labels = fold.labels_hash(folded.cleaner)
    ws.folded[campaign.id] = folded
    return record


@dataclass(frozen=True)
class _Plan:
    """What comes after the round that closes: a selection, or the end and why."""

    size: int
    ahead: int
    selected: Selected | None
    neighbours: list[list[tuple[int, float]]]
    message: str
    settings: Settings
    """What was asked for; if a lead changed it meanwhile, the plan is void."""


def _plan(ws: Workspace, campaign: CampaignRow, folded: Folded, spent: int) -> _Plan:
    """Ask the selector, outside any transaction, with the settings as they are now."""
    with ws.reading() as connection:
        campaign = campaign_table.find_campaign(connection, campaign.public_id)
        reopened = list(decision_table.reopened_items(connection, campaign.id))
    settings = campaign.settings
    over = _over(folded, settings, spent)
    if campaign.state not in (CampaignState.RUNNING, CampaignState.PREPARING, CampaignState.PAUSED):
        return _Plan(0, 0, None, [], "", settings)
    if over is not None:
        return _Plan(0, 0, None, [], over, settings)
    left = settings.batch_size + settings.ahead if settings.budget is None else settings.budget - spent
    size = min(settings.batch_size, left)
    ahead = max(0, min(settings.ahead, left - size))
    positions = np.array([r.position for r in reopened[:size]], dtype=np.int64)  # the others wait for the next batch
    selected = fold.select(folded, size, ahead, positions)
    if len(selected.batch) == 0:
        unresolved = int((~folded.cleaner.cleaned_).sum())
        note = f"; {unresolved} stayed unresolved and keep their weak label" if unresolved else ""
        return _Plan(0, 0, None, [], f"{StopReason.NOTHING_LEFT}{note}", settings)
    every = np.concatenate([selected.batch.indices, selected.ahead.indices])
    return _Plan(size, ahead, selected, folded.neighbours(every), "", settings)


def _over(folded: Folded, settings: Settings, spent: int) -> str | None:
    if settings.target is not None:
        rule = TargetReached(settings.target_metric, settings.target)
        if rule.met(Progress(folded.cleaner.rounds_)):
            return f"{StopReason.TARGET}: {rule}"
    if settings.budget is not None and spent >= settings.budget:
        return f"{StopReason.BUDGET}: {spent} of {settings.budget} samples asked"
    return None


def _go_on(
    connection: "sa.Connection", campaign: CampaignRow, folded: Folded, plan: _Plan, *, number: int, spent: int
) -> None:
    """Write the next round, or that there is none; neither if what was planned with holds no more: `select` is due then."""
    now = campaign_table.find_campaign(connection, campaign.public_id)
    settings = now.settings
    active = now.state in (CampaignState.RUNNING, CampaignState.PREPARING, CampaignState.PAUSED)
    ends = plan.selected is None
    void = settings != plan.settings or (ends and decision_table.has_pending(connection, campaign.id))
    if not active or void or (ends and plan.message == ""):
        campaign_table.update_campaign(connection, campaign.id, spent=spent)
        return
    if plan.selected is None:
        campaign_table.update_campaign(
            connection, campaign.id, spent=spent, state=CampaignState.FINISHED, message=plan.message
        )
        return
    selected = plan.selected
    round_id = round_table.insert_round(
        connection,
        campaign_id=campaign.id,
        number=number,
        kind=RoundKind.BATCH,
        state=RoundState.SELECTED,
        size=plan.size,
        ahead=plan.ahead,
        spent=spent,
        selection_hash=selected.hash,
        diagnostics={"selection": _plain(asdict(selected.batch.diagnostics))},
        seconds={"select": selected.seconds},
        metrics=None,
    )
    selection_table.insert_selections(
        connection, _selection_rows(connection, now, folded, plan, round_id, number, settings)
    )
    state = CampaignState.PAUSED if now.state == CampaignState.PAUSED else CampaignState.RUNNING
    campaign_table.update_campaign(connection, campaign.id, spent=spent, state=state, message=f"round {number} is open")


def _selection_rows(
    connection: "sa.Connection",
    campaign: CampaignRow,
    folded: Folded,
    plan: _Plan,
    round_id: int,
    number: int,
    settings: Settings,
) -> list[NewSelection]:
    assert plan.selected is not None
    batch, ahead = plan.selected.batch, plan.selected.ahead
    positions = np.concatenate([batch.indices, ahead.indices]).tolist()
    suggested = np.concatenate([batch.suggested, ahead.suggested]).tolist()
    influence = np.concatenate([batch.influence, ahead.influence]).tolist()
    items = item_table.items_at(connection, campaign.id, SplitName.TRAIN, positions)
    asked = selection_table.attempts_asked(connection, [row.id for row in items.values()])
    draws = np.random.default_rng([settings.seed, number, 77]).random(len(positions))
    rows = []
    for rank, position in enumerate(positions):
        item = items[position]
        attempt = item.attempt + ((item.id, item.attempt) in asked)
        origin = Origin.AHEAD if rank >= len(batch) else Origin.BATCH
        if rank < plan.selected.n_reopened:
            origin = Origin.REOPENED
        voted = sum(v.person != SUGGESTION for v in vote_table.live_votes(connection, item.id, attempt))
        rows.append(
            NewSelection(
                round_id=round_id,
                item_id=item.id,
                rank=rank,
                origin=origin,
                attempt=attempt,
                suggested=None if suggested[rank] == UNRESOLVED else int(suggested[rank]),
                influence=float(influence[rank]) if np.isfinite(influence[rank]) else None,
                blind=bool(settings.blind or draws[rank] < settings.blind_share),
                weak=[round(float(p), 6) for p in folded.weak[position]],
                nearest=plan.neighbours[rank],
                votes=voted,
            )
        )
    return rows


def _closed(
    folded: Folded,
    record: RoundRecord,
    seconds: dict[str, float],
    *,
    upto: int = 0,
    corrections: int = 0,
    before: dict[str, Any] | None = None,
) -> RoundValues:
    """The columns of a round that is closed."""
    return {
        "state": RoundState.CLOSED,
        "labels_hash": folded.last_labels,
        "model_hash": fold.model_hash(folded.cleaner),
        "metrics": {**fold.metrics_of(record), "gain": fold.gains_of(folded.cleaner)},
        "diagnostics": {
            **(before or {}),
            "construction": _plain(asdict(record.construction)),
            fold.VOTES_UP_TO: upto,
            "corrections": corrections,
            "changed": len(record.changed),
            "cleaned": record.cleaned,
        },
        "seconds": {k: float(v) for k, v in seconds.items()},
        "closed_at": time.time(),
    }


def _write_model(ws: Workspace, campaign: CampaignRow, folded: Folded) -> ArrayFacts:
    """The model in a file of its own, beside the last one: the ledger says which of them counts."""
    return write_array(folder_of(ws, campaign), "model", folded.cleaner.W_, stem=f"model-{folded.closed - 1}")


def _drop_old_models(ws: Workspace, campaign: CampaignRow, kept: ArrayFacts) -> None:
    for path in folder_of(ws, campaign).glob("model-*.npy"):
        if path.name != kept.path:
            with contextlib.suppress(OSError):
                path.unlink()


def _forget_unrecorded(ws: Workspace, campaign: CampaignRow) -> None:
    """A selection that the ledger did not take (the lead stopped meanwhile) must not colour the next one."""
    folded = ws.folded.get(campaign.id)
    if folded is None:
        return
    with ws.reading() as connection:
        row = round_table.last_round(connection, campaign.id)
    open_batch = row is not None and row.state != RoundState.CLOSED
    if folded.queried != open_batch:
        ws.folded.pop(campaign.id, None)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity: null stands for it."""
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in values.items()}
