"""Make campaigns, look at them, and steer them."""

import re
import shutil
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelchef.campaign.metrics import check_metric
from labelchef.campaign.steps import Rules
from labelchef.domain.campaigns import (
    CampaignFiles,
    CampaignState,
    CampaignStatus,
    CampaignSummary,
    ItemProgress,
    OpenRound,
    Role,
    RoundSummary,
)
from labelchef.domain.errors import ConflictError, InvalidInputError
from labelchef.domain.settings import Settings
from labelchef.services.people.access import locked_campaign, visible_campaign
from labelchef.services.people.quality import stats_of
from labelchef.services.progress import gains_of
from labelchef.services.times import moment, moment_or_none
from labelchef.services.workspace import CAMPAIGNS, Workspace
from labelchef.store import (
    account_table,
    assignment_table,
    campaign_table,
    decision_table,
    round_table,
    selection_table,
    vote_table,
)
from labelchef.store.rows import CampaignRow, CampaignValues, RoundRow
from labelchef.store.values import new_public_id

if TYPE_CHECKING:
    import sqlalchemy as sa

    from labelchef.campaign.data import CampaignData

_LONGEST_NAME = 200


def create_campaign(
    ws: Workspace, name: str, files: "CampaignFiles | CampaignData", settings: Settings, by: str
) -> CampaignSummary:
    """A new campaign from files or data in memory. Everything is checked first; nothing is left of one refused."""
    if not 0 < len(name.strip()) <= _LONGEST_NAME or not name.isprintable():
        raise InvalidInputError(
            f"{name!r} is no name of a campaign; expected 1 to {_LONGEST_NAME} printable characters", code="name"
        )
    from labelchef.campaign.files import read_files
    from labelchef.campaign.start import check, with_strengths
    from labelchef.services.folders import store_data

    data = read_files(files) if isinstance(files, CampaignFiles) else files
    y_val, y_test = data.validation[1], None if data.test is None else data.test[1]
    data.contents.check(len(data.X), len(y_val))
    check(data, settings)
    settings, _ = with_strengths(data, settings)
    public_id = new_public_id()
    folder = ws.home / CAMPAIGNS / public_id
    try:
        arrays = store_data(data, folder)
        with ws.writing() as connection:
            campaign_table.insert_campaign(
                connection,
                public_id=public_id,
                slug=_free_slug(connection, name),
                name=name.strip(),
                settings=settings,
                by=by,
                classes=[str(name) for name in data.names.names],
                items=data.contents.rows(data.clean, y_val, y_test),
                n_items=len(data.X),
                arrays=arrays,
            )
            row = campaign_table.find_campaign(connection, public_id)
            made = _summary(connection, row)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    ws.signal.notify()
    return made


def create_from_folder(ws: Workspace, name: str, folder: Path, settings: Settings, by: str) -> CampaignSummary:
    """A new campaign from the files of a folder: features.npy, weak.csv, val_features.npy, val_labels.csv, items.csv, …"""
    from labelchef.campaign.files import find_files

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
            people=stats_of(vote_table.live_votes_of_campaign(connection, row.id)),
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
        row = locked_campaign(ws, connection, campaign)
        before = row.settings
        after = before.changed(**changes)
        Rules.of(after)  # a rule that cannot be read is refused here
        check_metric(after.target_metric, len(campaign_table.classes_of(connection, row.id)))
        different = {k: v for k, v in changes.items() if getattr(before, k) != v}
        if not different:
            return before
        moved: CampaignValues = {"settings": after}
        if row.state == CampaignState.FINISHED:
            moved["state"], moved["message"] = CampaignState.RUNNING, "settings changed; checking what is left"
        campaign_table.note_change(
            connection, row.id, by, {"settings": different, "before": {k: getattr(before, k) for k in different}}
        )
        campaign_table.update_campaign(connection, row.id, **moved)
    ws.signal.notify()
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
        row = locked_campaign(ws, connection, campaign)
        if row.state != state:
            if row.state not in allowed:
                raise ConflictError(
                    f"the campaign is {row.state}: {row.message}. To {verb} it, it should be {' or '.join(allowed)}",
                    code="state",
                )
            campaign_table.note_change(connection, row.id, by, {verb: row.state})
            campaign_table.update_campaign(connection, row.id, state=state, message=message)
        found = _summary(connection, campaign_table.find_campaign(connection, row.public_id))
    ws.signal.notify()
    return found


def _sees(connection: "sa.Connection", row: CampaignRow, person: str) -> bool:
    account = account_table.account_by_name(connection, person)
    return account is None or account.role == Role.LEAD or account_table.is_member(connection, row.id, account.id)


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
    outcome = row.outcome or {}
    return RoundSummary(
        number=row.number,
        kind=row.kind,
        state=row.state,
        size=row.size,
        ahead=row.ahead,
        spent=row.spent,
        validation=outcome.get("validation"),
        steering=outcome.get("steering"),
        gain=gains_of(row.outcome).get("validation"),
        test=outcome.get("test"),
        seconds=row.seconds,
        opened_at=moment(row.opened_at),
        closed_at=moment_or_none(row.closed_at),
    )


def _open_round(connection: "sa.Connection", row: RoundRow | None, settings: Settings) -> OpenRound | None:
    if row is None or not row.is_open:
        return None
    leases = assignment_table.live_leases(connection, row.id, time.time())
    items = tuple(
        ItemProgress(s.key, s.rank, s.votes, settings.people, leases.get(s.id, 0), s.decided)
        for s in selection_table.batch_of(connection, row.id)
    )
    return OpenRound(row.number, row.state, items)


def _free_slug(connection: "sa.Connection", name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-") or "campaign"
    slug, k = base, 1
    while campaign_table.slug_taken(connection, slug):
        k += 1
        slug = f"{base}-{k}"
    return slug
