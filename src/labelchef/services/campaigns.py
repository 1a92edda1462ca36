"""Make campaigns, look at them, and steer them."""

import re
import shutil
import statistics
import time
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelchef.domain.campaigns import (
    SUGGESTION,
    CampaignFiles,
    CampaignState,
    CampaignStatus,
    CampaignSummary,
    ConflictItem,
    DecisionKind,
    ItemProgress,
    LedgerEntry,
    OpenRound,
    Origin,
    Page,
    PersonStats,
    Role,
    RoundState,
    RoundSummary,
)
from labelchef.domain.errors import ConflictError, InvalidInputError
from labelchef.domain.settings import Settings
from labelchef.domain.validation import Gain
from labelchef.services.access import moment, moment_or_none, visible_campaign
from labelchef.services.labelling import class_of, content_of
from labelchef.services.workspace import Workspace
from labelchef.store import (
    account_table,
    assignment_table,
    campaign_table,
    decision_table,
    item_table,
    ledger_lines,
    round_table,
    selection_table,
    vote_table,
)
from labelchef.store.rows import CampaignRow, CampaignValues, ItemRow, RoundRow, SelectionRow, VoteRow
from labelchef.store.values import new_public_id, storable

if TYPE_CHECKING:
    import sqlalchemy as sa

    from labelchef.services.campaign_files import CampaignData

_LONGEST_NAME = 200


def create_campaign(
    ws: Workspace, name: str, files: "CampaignFiles | CampaignData", settings: Settings, by: str
) -> CampaignSummary:
    """A new campaign from files or data in memory. Everything is checked first; nothing is left of one refused."""
    if not 0 < len(name.strip()) <= _LONGEST_NAME or not name.isprintable():
        raise InvalidInputError(
            f"{name!r} is no name of a campaign; expected 1 to {_LONGEST_NAME} printable characters", code="name"
        )
    from labelchef.services.campaign_files import check_data, read_files, store_files, with_strengths

    data = read_files(files) if isinstance(files, CampaignFiles) else files
    check_data(data, settings)
    settings = with_strengths(data, settings)
    public_id = new_public_id()
    folder = ws.home / "campaigns" / public_id
    try:
        arrays = store_files(data, folder)
        with ws.writing() as connection:
            campaign_table.insert_campaign(
                connection,
                public_id=public_id,
                slug=_free_slug(connection, name),
                name=name.strip(),
                settings=settings,
                by=by,
                classes=data.classes,
                items=data.rows(),
                n_items=len(data.X),
                arrays=arrays,
            )
            row = campaign_table.find_campaign(connection, public_id)
            made = _summary(connection, row)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    ws.notify()
    return made


def create_from_folder(ws: Workspace, name: str, folder: Path, settings: Settings, by: str) -> CampaignSummary:
    """A new campaign from the files of a folder: features.npy, weak.csv, val_features.npy, val_labels.csv, items.csv, …"""
    from labelchef.services.campaign_files import find_files

    return create_campaign(ws, name, find_files(folder), settings, by)


def selector_choices() -> list[tuple[str, str, bool]]:
    """The selectors that a lead can choose on the page: name, hint, whether it suggests labels."""
    from labelchef.campaign.choice import hint_of
    from labelchef.selectors import SELECTORS

    return [(name, hint_of(name), bool(getattr(made, "suggests", False))) for name, made in SELECTORS.items()]


def list_campaigns(ws: Workspace, person: str | None = None) -> list[CampaignSummary]:
    """All campaigns, or those that a person may see."""
    with ws.reading() as connection:
        found = campaign_table.all_campaigns(connection)
        return [_summary(connection, row) for row in found if person is None or _sees(connection, row, person)]


def summary(ws: Workspace, campaign: str, person: str | None = None) -> CampaignSummary:
    """A campaign in one line; with `person`, only if they may see it."""
    with ws.reading() as connection:
        row = (
            campaign_table.find_campaign(connection, campaign)
            if person is None
            else visible_campaign(connection, campaign, person)[0]
        )
        return _summary(connection, row)


def status(ws: Workspace, campaign: str) -> CampaignStatus:
    """A campaign in full, as a lead sees it."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        chosen = row.settings
        turns = round_table.rounds_of(connection, row.id)
        return CampaignStatus(
            summary=_summary(connection, row),
            settings=chosen,
            classes=campaign_table.classes_of(connection, row.id),
            rounds=tuple(_round(r) for r in turns),
            open_round=_open_round(connection, turns[-1] if turns else None, chosen),
            people=_people(connection, row.id),
            members=tuple(account_table.member_names(connection, row.id)),
            conflicts=len(decision_table.unresolved_items(connection, row.id)),
            pending=len(decision_table.pending_decisions(connection, row.id)),
        )


def rounds(ws: Workspace, campaign: str) -> list[RoundSummary]:
    """The rounds so far, oldest first."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        return [_round(r) for r in round_table.rounds_of(connection, row.id)]


def settings(ws: Workspace, campaign: str) -> Settings:
    """The settings as they are now."""
    with ws.reading() as connection:
        return campaign_table.find_campaign(connection, campaign).settings


def change_settings(ws: Workspace, campaign: str, by: str, **changes: Any) -> Settings:
    """Change budget, batch size, target, work ahead or blind share; it counts from the next selection on.

    A finished campaign goes on if the change leaves something to do.
    """
    with ws.writing() as connection:
        row = _locked(ws, connection, campaign)
        before = row.settings
        after = before.changed(**changes)
        check_metric(after, len(campaign_table.classes_of(connection, row.id)))
        different = {k: v for k, v in changes.items() if getattr(before, k) != v}
        if not different:
            return before
        again = row.state == CampaignState.FINISHED
        moved = _running("settings changed; checking what is left") if again else CampaignValues()
        moved["settings"] = after
        campaign_table.note_change(
            connection, row.id, by, {"settings": different, "before": {k: getattr(before, k) for k in different}}
        )
        campaign_table.update_campaign(connection, row.id, **moved)
    ws.notify()
    return after


def pause(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """Hand out nothing more until `resume`; votes on items people hold are still taken."""
    allowed = (CampaignState.RUNNING, CampaignState.PREPARING)
    return _move(ws, campaign, by, "pause", CampaignState.PAUSED, "paused by the lead", allowed)


def resume(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """Go on after a pause, a stop, or a failure whose cause was removed.

    A finished campaign goes on if there is something to do, else it finishes again and says why.
    """
    allowed = (CampaignState.PAUSED, CampaignState.STOPPED, CampaignState.FAILED, CampaignState.FINISHED)
    return _move(ws, campaign, by, "resume", CampaignState.RUNNING, "resumed by the lead", allowed)


def stop(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """End the campaign as it stands; the votes of an open batch stay in the ledger, `resume` takes them up again."""
    allowed = (CampaignState.RUNNING, CampaignState.PREPARING, CampaignState.PAUSED, CampaignState.FAILED)
    return _move(ws, campaign, by, "stop", CampaignState.STOPPED, "stopped by the lead", allowed)


def reopen(ws: Workspace, campaign: str, item: str, by: str) -> None:
    """Take a decision back: the label is weak again with the next model, and the item is asked first in the next batch.

    A finished campaign goes on if its budget and target leave something to do.
    """
    with ws.writing() as connection:
        row = _locked(ws, connection, campaign)
        sample = item_table.item_by_key(connection, row.id, item)
        if _asked_now(connection, row.id, sample) is not None:
            raise ConflictError(f"item {item!r} is being asked now; wait for the end of its round", code="asked_now")
        last = decision_table.last_decision(connection, sample.id)
        if last is None or last.kind == DecisionKind.REOPEN:
            raise ConflictError(f"item {item!r} has no decision to take back", code="not_decided")
        decision_table.insert_decision(
            connection,
            campaign_id=row.id,
            item_id=sample.id,
            attempt=last.attempt,
            round_id=last.round_id,
            kind=DecisionKind.REOPEN,
            by=by,
            label=None,
            support=0.0,
        )
        item_table.next_attempt(connection, sample.id, last.attempt + 1)
        again = row.state == CampaignState.FINISHED
        moved = _running("an item was reopened; checking what is left") if again else CampaignValues()
        campaign_table.update_campaign(connection, row.id, **moved)
    ws.notify()


def resolve(ws: Workspace, campaign: str, item: str, label: int | str | None, by: str) -> None:
    """Decide an item as lead, whatever the votes say; in the open batch it needs no more votes."""
    with ws.writing() as connection:
        row = _locked(ws, connection, campaign)
        sample = item_table.item_by_key(connection, row.id, item)
        class_id = class_of(campaign_table.classes_of(connection, row.id), label)
        asked = _asked_now(connection, row.id, sample)
        past = selection_table.batch_selection_of_attempt(connection, sample.id, sample.attempt)
        place = asked if asked is not None else past
        decision_table.insert_decision(
            connection,
            campaign_id=row.id,
            item_id=sample.id,
            attempt=sample.attempt if place is None else place.attempt,
            round_id=None if place is None else place.round_id,
            kind=DecisionKind.LEAD,
            by=by,
            label=class_id,
            support=1.0,
        )
        if asked is not None:
            selection_table.mark_decided(connection, asked.id)
        campaign_table.update_campaign(connection, row.id)
    ws.notify()


def conflicts(ws: Workspace, campaign: str) -> list[ConflictItem]:
    """Items whose votes tied or came to 'ambiguous', for the lead to resolve."""
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        numbers = {r.id: r.number for r in round_table.rounds_of(connection, row.id)}
        found = []
        for decision in decision_table.unresolved_items(connection, row.id):
            votes = vote_table.live_votes(connection, decision.item_id, decision.attempt)
            place = selection_table.batch_selection_of_attempt(connection, decision.item_id, decision.attempt)
            found.append(
                ConflictItem(
                    item=decision.key,
                    content=content_of(decision),
                    round=0 if decision.round_id is None else numbers[decision.round_id],
                    suggestion=None if place is None else place.suggested,
                    votes=tuple((v.person, v.label, v.note) for v in votes),
                    asked_again=decision.item_attempt != decision.attempt,
                )
            )
        return found


def ledger(
    ws: Workspace,
    campaign: str,
    *,
    after: str | None = None,
    limit: int = 100,
    kind: str | None = None,
    item: str | None = None,
    person: str | None = None,
) -> Page[LedgerEntry]:
    """Votes, decisions and changes by leads, newest first, a page at a time."""
    if kind is not None and kind not in ledger_lines.KINDS:
        raise InvalidInputError(f"kind is {kind!r}; expected one of: {', '.join(ledger_lines.KINDS)}", code="kind")
    if not 1 <= limit <= 1000:
        raise InvalidInputError(f"limit is {limit!r}; expected a whole number from 1 to 1000", code="limit")
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
        item_id = None if item is None else item_table.item_by_key(connection, row.id, item).id
        if person is not None and not storable(person):
            return Page((), None)
        entries, cursor = ledger_lines.page(
            connection, row.id, after=_cursor(after), limit=limit, kind=kind, item_id=item_id, person=person
        )
    return Page(tuple(_entry(e) for e in entries), cursor)


def check_metric(settings: Settings, n_classes: int) -> None:
    """Refuse a target metric that this campaign does not have."""
    from labelchef.campaign.stopping import TargetReached

    TargetReached(settings.target_metric, settings.target or 0.0)
    if settings.target_metric == "f1" and n_classes != 2:
        raise InvalidInputError(
            f"target_metric is 'f1' with {n_classes} classes; expected 'f1_macro', 'accuracy' or 'loss'", code="metric"
        )


def _move(
    ws: Workspace,
    campaign: str,
    by: str,
    verb: str,
    state: CampaignState,
    message: str,
    allowed: Sequence[CampaignState],
) -> CampaignSummary:
    with ws.writing() as connection:
        row = _locked(ws, connection, campaign)
        if row.state != state:
            if row.state not in allowed:
                raise ConflictError(
                    f"the campaign is {row.state}: {row.message}. To {verb} it, it should be {' or '.join(allowed)}",
                    code="state",
                )
            campaign_table.note_change(connection, row.id, by, {verb: row.state})
            campaign_table.update_campaign(connection, row.id, state=state, message=message)
        found = _summary(connection, campaign_table.find_campaign(connection, row.public_id))
    ws.notify()
    return found


def _running(message: str) -> CampaignValues:
    return {"state": CampaignState.RUNNING, "message": message}


def _locked(ws: Workspace, connection: "sa.Connection", campaign: str) -> CampaignRow:
    row = campaign_table.find_campaign(connection, campaign)
    ws.database.lock_campaign(connection, row.id)
    return campaign_table.find_campaign(connection, row.public_id)


def _sees(connection: "sa.Connection", row: CampaignRow, person: str) -> bool:
    account = account_table.account_by_name(connection, person)
    return account is None or account.role == Role.LEAD or account_table.is_member(connection, row.id, account.id)


def _asked_now(connection: "sa.Connection", campaign_id: int, sample: ItemRow) -> SelectionRow | None:
    """The selection of an item in a batch that is still being voted on, or None."""
    turn = round_table.last_round(connection, campaign_id)
    if turn is None or turn.state != RoundState.SELECTED:
        return None
    selection = selection_table.selection_of_item(connection, turn.id, sample.id)
    return None if selection is None or selection.origin == Origin.AHEAD else selection


def _summary(connection: "sa.Connection", row: CampaignRow) -> CampaignSummary:
    last = round_table.last_round(connection, row.id)
    return CampaignSummary(
        id=row.public_id,
        slug=row.slug,
        name=row.name,
        state=row.state,
        message=row.message,
        created_at=moment(row.created_at),
        created_by=row.created_by,
        version=row.version,
        n_items=row.n_items,
        spent=row.spent,
        budget=row.settings.budget,
        round=0 if last is None else last.number,
    )


def _round(row: RoundRow) -> RoundSummary:
    metrics = row.metrics or {}
    return RoundSummary(
        number=row.number,
        kind=row.kind,
        state=row.state,
        size=row.size,
        ahead=row.ahead,
        spent=row.spent,
        validation=metrics.get("validation"),
        steering=metrics.get("steering"),
        gain=gain_of(metrics),
        test=metrics.get("test"),
        seconds=row.seconds,
        opened_at=moment(row.opened_at),
        closed_at=moment_or_none(row.closed_at),
    )


def gain_of(metrics: Mapping[str, Any]) -> dict[str, Gain] | None:
    """The gains that were stored with a round, by metric; None where nothing judges."""
    found = metrics.get("gain")
    return None if found is None else {name: Gain(**values) for name, values in found.items()}


def _open_round(connection: "sa.Connection", row: RoundRow | None, settings: Settings) -> OpenRound | None:
    if row is None or not row.is_open:
        return None
    leases = assignment_table.live_leases(connection, row.id, time.time())
    items = tuple(
        ItemProgress(s.key, s.rank, s.votes, settings.people, leases.get(s.id, 0), s.decided)
        for s in selection_table.batch_of(connection, row.id)
    )
    return OpenRound(row.number, row.state, items)


def _people(connection: "sa.Connection", campaign_id: int) -> tuple[PersonStats, ...]:
    by_person: dict[str, list[VoteRow]] = defaultdict(list)
    for vote in vote_table.live_votes_of_campaign(connection, campaign_id):
        if vote.person != SUGGESTION:
            by_person[vote.person].append(vote)
    stats = []
    for person, votes in by_person.items():
        seconds = [v.seconds for v in votes if v.seconds is not None]
        stats.append(
            PersonStats(
                person=person,
                votes=len(votes),
                ambiguous=sum(v.label is None for v in votes),
                seconds=statistics.median(seconds) if seconds else None,
                last_vote_at=moment(max(v.created_at for v in votes)),
            )
        )
    return tuple(sorted(stats, key=lambda s: s.person))


def _entry(row: ledger_lines.LedgerRow) -> LedgerEntry:
    return LedgerEntry(
        id=row.public_id or f"change-{row.id}",
        kind=row.kind,
        at=moment(row.created_at),
        who=row.who,
        item=row.item,
        round=row.round,
        label=row.label,
        what=row.what,
    )


def _cursor(after: str | None) -> tuple[float, str, int] | None:
    if after is None:
        return None
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,20})?)~([a-z]+)~(\d{1,18})", after)
    if found is None or found[2] not in ledger_lines.KINDS:
        raise InvalidInputError(f"{after!r} is no cursor; take the one of the page before", code="cursor")
    return float(found[1]), found[2], int(found[3])


def _free_slug(connection: "sa.Connection", name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-") or "campaign"
    slug, k = base, 1
    while campaign_table.slug_taken(connection, slug):
        k += 1
        slug = f"{base}-{k}"
    return slug
