"""Make campaigns, look at them, and steer them."""

import re
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection

from labelchef.campaign.choice import hint_of
from labelchef.campaign.data import CampaignData, find_files, read_files
from labelchef.campaign.metrics import check_metric
from labelchef.campaign.start import check, with_strengths
from labelchef.campaign.steps import Rules
from labelchef.domain.campaigns import (
    SUGGESTION,
    CampaignFiles,
    CampaignState,
    CampaignStatus,
    CampaignSummary,
    ItemProgress,
    Notice,
    OpenRound,
    RoundSummary,
)
from labelchef.domain.errors import ConflictError, InvalidInputError, StoreError
from labelchef.domain.files import PRIVATE_FILE, PRIVATE_FOLDER, locked_folder, sync_folder
from labelchef.domain.settings import Settings
from labelchef.domain.validation import AuditReport, Forecast
from labelchef.selectors import SELECTORS
from labelchef.services.labelling import duties
from labelchef.services.people.access import changing, find, looking, takes_part
from labelchef.services.progress import audit_of, facts_of, forecast_of, gains_of, in_steps, stats_of
from labelchef.services.shared import common, moment, writing_to
from labelchef.services.workspace import CAMPAIGNS, UNFINISHED_CAMPAIGN, Workspace, require_folder
from labelchef.store import account_table, campaign_table, decision_table, round_table, vote_table
from labelchef.store.arrays import ArrayFacts, write_array
from labelchef.store.rows import CampaignRow, CampaignValues, RoundRow, new_public_id

_LONGEST_NAME = 200
_FROM = {
    CampaignState.PAUSED: (CampaignState.RUNNING, CampaignState.PREPARING),
    CampaignState.RUNNING: (CampaignState.PAUSED, CampaignState.STOPPED, CampaignState.FAILED, CampaignState.FINISHED),
    CampaignState.STOPPED: (CampaignState.RUNNING, CampaignState.PREPARING, CampaignState.PAUSED, CampaignState.FAILED),
}
"""The states from which a lead may bring a campaign into each state."""


def create_campaign(
    ws: Workspace,
    name: str,
    files: CampaignFiles | CampaignData,
    settings: Settings,
    by: str,
    *,
    encoder: bytes | None = None,
) -> CampaignSummary:
    """A new campaign from files or data in memory. Everything is checked first; nothing is left of one refused.

    `encoder` is what made the features, as a file holds it; it goes with the final model.
    """
    if not 0 < len(name.strip()) <= _LONGEST_NAME or not name.isprintable():
        why = f"{name!r} is no name of a campaign; expected 1 to {_LONGEST_NAME} printable characters"
        raise InvalidInputError(why, code="name")
    data = read_files(files) if isinstance(files, CampaignFiles) else files
    y_val, y_test = data.validation[1], None if data.test is None else data.test[1]
    data.contents.check(len(data.X), len(y_val), 0 if y_test is None else len(y_test))
    check(data, settings)
    settings, _ = with_strengths(data, settings)
    public_id = new_public_id()
    folder = ws.home / CAMPAIGNS / public_id
    unfinished = ws.home / CAMPAIGNS / f"{UNFINISHED_CAMPAIGN}{public_id}"
    try:
        with writing_to(folder, "no campaign was made. Make room or check the rights", code="folder"):
            unfinished.mkdir(mode=PRIVATE_FOLDER)
            with locked_folder(unfinished):
                arrays = _store(data, unfinished, encoder)
                unfinished.rename(folder)
            sync_folder(folder.parent)
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
            made = _summary(ws, connection, campaign_table.find_campaign(connection, public_id))
    except BaseException:
        for one in (unfinished, folder):
            shutil.rmtree(one, ignore_errors=True)
        raise
    ws.signal.notify()
    return made


def _store(data: CampaignData, folder: Path, encoder: bytes | None) -> list[ArrayFacts]:
    """Write arrays and images into a new campaign's folder."""
    arrays = {"features": data.X, "weak": data.weak, "val_features": data.validation[0]}
    if encoder is not None:
        arrays["encoder"] = np.frombuffer(encoder, dtype=np.uint8)
    if data.test is not None:
        arrays["test_features"] = data.test[0]
    for split, votes in (("votes", data.votes), ("val_votes", data.votes_val)):
        arrays |= {} if votes is None else {f"{split}_{part}": array for part, array in votes.arrays().items()}
    (folder / "media").mkdir(mode=PRIVATE_FOLDER)
    for name in data.contents.images():
        assert data.contents.media is not None, "contents were checked"
        target = folder / "media" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data.contents.media / name, target)
        target.chmod(PRIVATE_FILE)
    return [write_array(folder, name, array) for name, array in arrays.items()]


def create_from_folder(
    ws: Workspace, name: str, folder: Path, settings: Settings, by: str, *, by_position: bool = False
) -> CampaignSummary:
    """A new campaign from the files of a folder: features.npy, weak.csv, val_features.npy, items.csv, …"""
    return create_campaign(ws, name, find_files(folder, by_position), settings, by)


def selector_choices() -> list[tuple[str, str, bool]]:
    """The selectors that a lead can choose on the page: name, hint, whether it suggests labels."""
    return [(name, hint_of(name), bool(getattr(made, "suggests", False))) for name, made in SELECTORS.items()]


def list_campaigns(ws: Workspace, person: str | None = None) -> list[CampaignSummary]:
    """All campaigns, or those that a person may see."""
    with ws.reading() as connection:
        account = None if person is None else account_table.account_by_name(connection, person)
        found = campaign_table.all_campaigns(connection)
        seen = [row for row in found if account is None or takes_part(connection, row, account)]
        return [_summary(ws, connection, row) for row in seen]


def summary(ws: Workspace, campaign: str, person: str | None = None) -> CampaignSummary:
    """A campaign in one line; with `person`, only if they may see it."""
    with looking(ws, campaign, person) as (connection, row):
        return _summary(ws, connection, row)


def status(ws: Workspace, campaign: str) -> CampaignStatus:
    """A campaign in full, as a lead sees it."""
    with looking(ws, campaign) as (connection, row):
        turns = round_table.rounds_of(connection, row.id)
        classes = campaign_table.classes_of(connection, row.id)
        return CampaignStatus(
            summary=_summary(ws, connection, row),
            settings=row.settings,
            classes=classes,
            rounds=tuple(_round(r) for r in turns),
            open_round=_open_round(connection, turns[-1] if turns else None, row.settings),
            people=stats_of(vote_table.live_votes_of_campaign(connection, row.id)),
            members=tuple(account_table.member_names(connection, row.id)),
            conflicts=len(decision_table.unresolved_items(connection, row.id)),
            pending=len(decision_table.pending_decisions(connection, row.id)),
            audit=audit_of(turns, row.settings.audit, len(classes)),
            forecast=forecast_of(turns, row.settings.target_metric),
        )


def rounds(ws: Workspace, campaign: str) -> list[RoundSummary]:
    """The rounds so far, oldest first."""
    with looking(ws, campaign) as (connection, row):
        return [_round(r) for r in round_table.rounds_of(connection, row.id)]


def audit(ws: Workspace, campaign: str, *, person: str | None = None) -> AuditReport:
    """What the audit has found so far; with `person`, as annotators see it."""
    with looking(ws, campaign) as (connection, row):
        classes = campaign_table.classes_of(connection, row.id)
        found = audit_of(round_table.rounds_of(connection, row.id), row.settings.audit, len(classes))
    return found if person is None else in_steps(found)


def forecast(ws: Workspace, campaign: str, metric: str | None, labels: int, worth: float) -> Forecast:
    """What the next labels are worth."""
    with looking(ws, campaign) as (connection, row):
        turns = round_table.rounds_of(connection, row.id)
    return forecast_of(turns, metric or row.settings.target_metric, labels=labels, worth=worth)


def settings(ws: Workspace, campaign: str) -> Settings:
    """The settings as they are now."""
    return find(ws, campaign).settings


def change_settings(ws: Workspace, campaign: str, by: str, **changes: Any) -> Settings:
    """Change budget, batch size, target, work ahead or blind share; it counts from the next selection on.

    Another number of people counts at once, for the open batch too. A finished campaign goes on if the change
    leaves something to do.
    """
    with changing(ws, campaign) as (connection, row):
        before = row.settings
        after = before.changed(**changes)
        Rules.of(after)  # a rule that cannot be read is refused here
        check_metric(after.target_metric, len(campaign_table.classes_of(connection, row.id)))
        old = {name: getattr(before, name) for name in changes}
        different = {name: value for name, value in changes.items() if old[name] != value}
        if not different:
            return before
        moved: CampaignValues = {"settings": after}
        if row.state == CampaignState.FINISHED:
            moved["state"], moved["message"] = CampaignState.RUNNING, "settings changed; checking what is left"
        noted = {"settings": different, "before": {name: old[name] for name in different}}
        campaign_table.note_change(connection, row.id, by, noted)
        campaign_table.update_campaign(connection, row.id, **moved)
        return after


def pause(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """Hand out nothing more until `resume`; votes on items people hold are still taken."""
    return _move(ws, campaign, by, "pause", CampaignState.PAUSED)


def resume(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """Go on after a pause, a stop, or a failure whose cause was removed.

    A finished campaign goes on if there is something to do, else it finishes again and says why.
    """
    return _move(ws, campaign, by, "resume", CampaignState.RUNNING)


def stop(ws: Workspace, campaign: str, by: str) -> CampaignSummary:
    """End the campaign as it stands; the votes of an open batch stay in the ledger, `resume` takes them up again."""
    return _move(ws, campaign, by, "stop", CampaignState.STOPPED)


def _move(ws: Workspace, campaign: str, by: str, verb: str, state: CampaignState) -> CampaignSummary:
    with changing(ws, campaign) as (connection, row):
        if row.state != state:
            if row.state not in _FROM[state]:
                expected = " or ".join(_FROM[state])
                why = f"the campaign is {row.state}: {row.message}. To {verb} it, it should be {expected}"
                raise ConflictError(why, code="state")
            message = f"{'resumed' if state == CampaignState.RUNNING else state} by the lead"
            campaign_table.note_change(connection, row.id, by, {verb: row.state})
            campaign_table.update_campaign(connection, row.id, state=state, message=message)
        return _summary(ws, connection, campaign_table.find_campaign(connection, row.public_id))


def _summary(ws: Workspace, connection: Connection, row: CampaignRow) -> CampaignSummary:
    last = round_table.last_round(connection, row.id)
    values = common(CampaignSummary, row) | {"id": row.public_id, "created_at": moment(row.created_at)}
    values["notices"] = notices = tuple(_notices(ws, connection, row))
    values["message"] = next((one.message for one in notices if one.code == "folder"), row.message)
    return CampaignSummary(**values, budget=row.settings.budget, round=0 if last is None else last.number)


def _notices(ws: Workspace, connection: Connection, row: CampaignRow) -> Iterator[Notice]:
    """What a lead should do, or the campaign waits."""
    try:
        require_folder(ws, row)
    except StoreError as error:
        yield Notice(error.code, str(error))
    people = row.settings.people
    if people > 1 and row.state in (CampaignState.PREPARING, CampaignState.RUNNING, CampaignState.PAUSED):
        accounts = account_table.names_that_take_part(connection, row.id)
        others = vote_table.names_without_account(connection, row.id) - {SUGGESTION}
        able = len(accounts | others)
        if accounts and able < people:  # without accounts, anybody may vote
            can = "1 person votes" if able == 1 else f"{able} people vote"
            message = f"{people} votes an item are asked, {can}; add people, label too or lower the setting people"
            yield Notice("people", message)
    if row.state == CampaignState.RUNNING:
        yield from _people_notices(connection, row)


def _people_notices(connection: Connection, row: CampaignRow) -> Iterator[Notice]:
    """What a lead should know of ties, duties and gold."""
    turn = round_table.last_round(connection, row.id)
    waiting = 0 if turn is None else round_table.further_asked(connection, turn.id, row.settings.people)
    if waiting:
        said = "1 item waits" if waiting == 1 else f"{waiting} items wait"
        message = (
            f"{said} for one more vote, since the votes tie; a lead may decide instead (the item's page or the ledger)"
        )
        yield Notice("tie", message)
    lonely = duties.uncovered(connection, row)
    if lonely:
        said = "1 item of the batch belongs" if lonely == 1 else f"{lonely} items of the batch belong"
        message = f"{said} to the duty of too few members; everybody gets them when their own items are done"
        yield Notice("duty", message)


def _round(row: RoundRow) -> RoundSummary:
    outcome = row.outcome or {}
    values = common(RoundSummary, row) | {split: outcome.get(split) for split in ("validation", "steering", "test")}
    closed_at = None if row.closed_at is None else moment(row.closed_at)
    values |= {"opened_at": moment(row.opened_at), "closed_at": closed_at}
    return RoundSummary(**values, **vars(facts_of(row.outcome)), gain=gains_of(row.outcome).get("validation"))


def _open_round(connection: Connection, row: RoundRow | None, settings: Settings) -> OpenRound | None:
    if row is None or not row.is_open:
        return None
    leases = vote_table.live_leases(connection, row.id, vote_table.Moment.of(settings.lease_minutes))
    items = tuple(
        ItemProgress(s.key, s.rank, s.votes, s.needed or settings.people, leases.get(s.id, 0), s.decided)
        for s in round_table.batch_of(connection, row.id)
    )
    return OpenRound(row.number, row.state, items)


def _free_slug(connection: Connection, name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-") or "campaign"
    slug, k = base, 1
    while campaign_table.slug_taken(connection, slug):
        k += 1
        slug = f"{base}-{k}"
    return slug
