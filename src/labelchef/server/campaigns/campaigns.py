"""Make campaigns, look at them, and steer them."""

import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from labelchef.base.campaigns import (
    SUGGESTION,
    CampaignFiles,
    CampaignState,
    CampaignStatus,
    CampaignSummary,
    Holder,
    ItemProgress,
    Notice,
    OpenRound,
    Role,
    RoundSummary,
    Shelf,
    SplitName,
)
from labelchef.base.errors import ChangedError, ConflictError, InvalidInputError, StoreError
from labelchef.base.files import PRIVATE_FILE, PRIVATE_FOLDER
from labelchef.base.intake import Progress, no_progress
from labelchef.base.settings import TRAIN, Settings
from labelchef.base.validation import AuditReport
from labelchef.believe.hearing import check_names
from labelchef.chef.choice import hint_of
from labelchef.chef.selectors import SELECTORS
from labelchef.data.campaign_data import CampaignData, read_files
from labelchef.judge.metrics import check_metric
from labelchef.loop.start import check, check_choices, check_pilot, with_strengths
from labelchef.server.campaigns import duties, harms
from labelchef.server.campaigns import guidelines as written
from labelchef.server.campaigns.access import changing, find, leads, looking, takes_part
from labelchef.server.campaigns.conflicts import contested_items
from labelchef.server.campaigns.making import NewCampaign, make_campaign
from labelchef.server.campaigns.naming import check_name
from labelchef.server.campaigns.progress import asked_of, audit_of, facts_of, gain_of, in_steps, stats_of
from labelchef.server.campaigns.trained import source_names
from labelchef.server.shared import common, moment
from labelchef.server.store import account_table, campaign_table, decision_table, round_table, vote_table
from labelchef.server.store.arrays import ArrayFacts, write_array
from labelchef.server.store.rows import CampaignRow, CampaignValues, RoundRow
from labelchef.server.workspace import Workspace, folder_of, require_folder

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
    guidelines: str | None = None,
    more: Mapping[str, NDArray[Any]] | None = None,
    progress: Progress = no_progress,
) -> CampaignSummary:
    """A new campaign from files or data in memory. Everything is checked first; nothing is left of one refused.

    `guidelines` is a Markdown text for people, with sections about classes (`guidelines.split`). `more` are further
    arrays to keep, by name: rules (`campaign_rules`), and the bytes of the encoder that made the features.
    """
    with ws.reading() as connection:
        check_name(connection, name)
    data = read_files(files) if isinstance(files, CampaignFiles) else files
    y_val, y_test = data.validation[1], None if data.test is None else data.test[1]
    data.contents.check(len(data.X), len(y_val), 0 if y_test is None else len(y_test))
    data = data.with_copies() if settings.trusted == TRAIN else data
    check(data, settings)
    classes = [str(name) for name in data.names.names]
    texts = written.whole(guidelines, classes)
    settings, _ = with_strengths(data, settings)
    new = NewCampaign(
        name=lambda connection: check_name(connection, name),
        settings=settings,
        by=by,
        classes=classes,
        items=data.contents.rows(data.clean, y_val, y_test),
        n_items=len(data.X),
        total=len(data.X) + len(y_val) + (0 if y_test is None else len(y_test)),
    )

    def finish(connection: Connection, row: CampaignRow) -> CampaignSummary:
        written.store(connection, row.id, by, texts, classes)
        return summary_of(ws, connection, row)

    return make_campaign(ws, new, lambda folder: _store(data, folder, more or {}), finish, progress)


def _store(data: CampaignData, folder: Path, more: Mapping[str, NDArray[Any]]) -> list[ArrayFacts]:
    """Write arrays and images into a new campaign's folder."""
    arrays: dict[str, Any] = {"features": data.X, "weak": data.weak, "val_features": data.validation[0], **more}
    if data.copies is not None:
        arrays["copies"] = data.copies.of
    if data.feature_names is not None:
        arrays["feature_names"] = np.array(data.feature_names)
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


def selector_choices() -> list[tuple[str, str, bool]]:
    """The selectors that a lead can choose on the page: name, hint, whether it suggests labels."""
    return [(name, hint_of(name), bool(getattr(made, "suggests", False))) for name, made in SELECTORS.items()]


def list_campaigns(ws: Workspace, person: str | None = None, shelf: Shelf = Shelf.OPEN) -> list[CampaignSummary]:
    """The campaigns of a shelf: those in use, those in the archive, or those that are deleted and can be restored.

    With `person`, those that they may see; of deleted ones, those that they lead.
    """
    with ws.reading() as connection:
        account = None if person is None else account_table.account_by_name(connection, person)
        found = campaign_table.all_campaigns(connection, deleted=shelf is Shelf.DELETED)
        if shelf is not Shelf.DELETED:
            found = [row for row in found if (row.archived_at is not None) == (shelf is Shelf.ARCHIVED)]
        allowed = leads if shelf is Shelf.DELETED else takes_part
        seen = [row for row in found if account is None or allowed(connection, row, account)]
        return [summary_of(ws, connection, row) for row in seen]


def summary(ws: Workspace, campaign: str, person: str | None = None) -> CampaignSummary:
    """A campaign in one line; with `person`, only if they may see it."""
    with looking(ws, campaign, person) as (connection, row):
        return summary_of(ws, connection, row)


def status(ws: Workspace, campaign: str) -> CampaignStatus:
    """A campaign in full, as a lead sees it."""
    with looking(ws, campaign) as (connection, row):
        turns = round_table.rounds_of(connection, row.id)
        classes = campaign_table.classes_of(connection, row.id)
        return CampaignStatus(
            summary=summary_of(ws, connection, row),
            settings=row.settings,
            classes=classes,
            rounds=tuple(_round(r) for r in turns),
            open_round=_open_round(connection, turns[-1] if turns else None, row.settings),
            people=stats_of(vote_table.live_votes_of_campaign(connection, row.id)),
            members=tuple(account_table.member_names(connection, row.id)),
            leads=tuple(account_table.member_names(connection, row.id, role=Role.LEAD)),
            conflicts=len(contested_items(connection, row)),
            pending=len(decision_table.pending_decisions(connection, row.id)),
            audit=audit_of(turns, row.settings.audit, len(classes)),
            asked=asked_of(turns),
            harms=harms.kept(folder_of(ws, row), row.settings),
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


def settings(ws: Workspace, campaign: str) -> Settings:
    """The settings as they are now."""
    return find(ws, campaign).settings


def change_settings(
    ws: Workspace, campaign: str, by: str, seen: Mapping[str, object] | None = None, /, **changes: Any
) -> Settings:
    """Change settings; from when each change holds is its option's `effect`.

    `seen` are the values on which the change is based: where another lead changed one of the same settings since, nothing is
    stored. A finished campaign goes on if the change leaves something to do.
    """
    with changing(ws, campaign) as (connection, row):
        before = row.settings
        _check_seen(connection, row, seen or {}, changes)
        after = before.changed(**changes)
        check_choices(after, n_items=row.n_items)  # a selector or rule that cannot be used is refused here
        check_metric(after.target_metric, len(campaign_table.classes_of(connection, row.id)))
        if campaign_table.size_of_split(connection, row.id, SplitName.VALIDATION) == 0:
            check_pilot(after)
        if "muted" in changes:
            _check_muted(ws, connection, row, after)
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


def _check_seen(
    connection: Connection, row: CampaignRow, seen: Mapping[str, object], changes: Mapping[str, object]
) -> None:
    """Refuse a change that is based on another value than the present one, unless it gives the present one."""
    present = row.settings.as_dict()
    based = {name: tuple(value) if isinstance(value, list) else value for name, value in seen.items()}
    differ = {
        name: present[name]
        for name, value in changes.items()
        if name in based and present[name] != based[name] and present[name] != value
    }
    if not differ:
        return
    told = []
    for name, value in differ.items():
        who = campaign_table.who_set(connection, row.id, name)
        told.append(f"{name} is {_plain(value)} now, set by {who} (you saw {_plain(based[name])})")
    why = f"changed since you looked: {'; '.join(told)}. Nothing was saved; save again to set yours"
    raise ChangedError(why, now=differ)


def _plain(value: object) -> str:
    return "empty" if value is None else str(value)


def _check_muted(ws: Workspace, connection: Connection, row: CampaignRow, after: Settings) -> None:
    """Refuse to mute what is no source, or where nothing is learned about sources."""
    if after.muted and after.trusted != TRAIN:
        why = "muted: nothing is learned about sources where trusted samples only steer, so none can be muted"
        raise InvalidInputError(why, code="muted")
    version = campaign_table.votes_version(connection, row.id)
    check_names(after.muted, source_names(connection, require_folder(ws, row), row.id, version))


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
        return summary_of(ws, connection, campaign_table.find_campaign(connection, row.public_id))


def summary_of(ws: Workspace, connection: Connection, row: CampaignRow) -> CampaignSummary:
    """A campaign in one line, from its row."""
    last = round_table.last_turn(connection, row.id)
    values = common(CampaignSummary, row) | {"id": row.public_id}
    values |= {one: _moment(getattr(row, one)) for one in ("created_at", "archived_at", "deleted_at", "purge_at")}
    values["notices"] = notices = tuple(_notices(ws, connection, row))
    values["message"] = next((one.message for one in notices if one.code == "folder"), row.message)
    return CampaignSummary(**values, budget=row.settings.budget, round=0 if last is None else last.number)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


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
            remedy = "add people, label too, or lower the setting “People an item” (people)"
            message = f"{people} votes an item are asked, {can}; {remedy}"
            yield Notice("people", message)
    if row.state == CampaignState.RUNNING:
        yield from _people_notices(connection, row)


def _people_notices(connection: Connection, row: CampaignRow) -> Iterator[Notice]:
    """What a lead should know of ties, duties and gold."""
    turn = round_table.last_turn(connection, row.id)
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
    return RoundSummary(**values, **vars(facts_of(row.outcome)), gain=gain_of(row.outcome))


def _open_round(connection: Connection, row: RoundRow | None, settings: Settings) -> OpenRound | None:
    if row is None or not row.is_open:
        return None
    leases = vote_table.live_leases(connection, row.id, vote_table.Moment.of(settings.lease_minutes))
    items = tuple(
        ItemProgress(s.key, s.rank, s.votes, s.needed or settings.people, leases.get(s.id, 0), s.decided)
        for s in round_table.batch_of(connection, row.id)
    )
    held = vote_table.holders(connection, row.id, vote_table.Moment.of(settings.lease_minutes))
    return OpenRound(row.number, row.state, items, tuple(Holder(name, n, moment(until)) for name, n, until in held))
