"""What people do with files before they are a campaign: upload them, look, correct, create.

What `folders` keeps is enough to go on: after a restart the files are read again, and encoders find their cache.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError
from labelchef.base.files import writing_to
from labelchef.base.intake import ColumnRole, FileRole, Intake, IntakeState, Plan, Progress, Severity, WaitingFiles
from labelchef.base.settings import Settings
from labelchef.believe.rules import rule_values
from labelchef.data.campaign_data import CampaignData
from labelchef.data.encoders.specs import AUTO
from labelchef.data.intake.raw import Raw
from labelchef.loop.start import check_choices, check_pilot
from labelchef.server.campaigns import guidelines as written
from labelchef.server.campaigns.naming import check_name
from labelchef.server.intake import folders, jobs, reading
from labelchef.server.intake.folders import Record
from labelchef.server.intake.starting import start_campaign
from labelchef.server.running import problem_of
from labelchef.server.shared import below, moment, told_below
from labelchef.server.sources.campaign_rules import RuleValues, checked
from labelchef.server.workspace import Workspace


@dataclass(frozen=True)
class Correction:
    """What a user says of the files; None, or nothing said of a file, leaves it as it is."""

    roles: Mapping[str, FileRole] = field(default_factory=dict)
    """Path → role."""
    columns: Mapping[str, Mapping[str, ColumnRole]] = field(default_factory=dict)
    """Path → column → role."""
    by_position: bool | None = None
    rows_are_ids: bool | None = None
    fold_case: bool | None = None
    classes: tuple[str, ...] | None = None
    """The classes in their order; an empty tuple for those that occur."""


def start(ws: Workspace, files: Iterable[tuple[str, IO[bytes]]], by: str) -> Intake:
    """Keep uploaded files (name, content) and begin to read them. If one cannot be kept, none is."""
    intake, record = folders.new_folder(ws), Record(by, time.time())
    try:
        _keep(ws, intake, record, files)
        folders.write(ws, intake, record)
    except BaseException:
        folders.forget(ws, intake)
        raise
    return _begun(ws, intake)


def start_from_folder(ws: Workspace, folder: Path, by: str) -> Intake:
    """Begin to read a folder of the server; nothing of it is copied or changed."""
    if not folder.is_dir():
        raise InvalidInputError(f"there is no folder {folder} on the server; check the path", code="file")
    intake = folders.new_folder(ws)
    folders.write(ws, intake, Record(by, time.time(), folder=str(folder.resolve())))
    return _begun(ws, intake)


def add(ws: Workspace, intake: str, files: Iterable[tuple[str, IO[bytes]]], *, replace: bool = False) -> Intake:
    """Keep more files; with `replace`, one with a known name replaces it. Then all are read again."""
    record = _changeable(ws, intake)
    if record.folder is not None:
        why = "this is a folder of the server; put the files there, or start over and upload all of them"
        raise ConflictError(why, code="intake_state")
    _keep(ws, intake, record, files, replace=replace)
    return _begun(ws, intake)


def _keep(
    ws: Workspace, intake: str, record: Record, files: Iterable[tuple[str, IO[bytes]]], *, replace: bool = False
) -> None:
    folder = folders.files_of(ws, intake, record)
    with writing_to(folder, "the upload was not stored. Make room and send it again", code="folder"):
        folders.keep(folder, files, replace=replace)


def look(ws: Workspace, intake: str) -> Intake:
    """An intake as it stands; after a restart, its files are read again."""
    if folders.read(ws, intake).campaign is None and reading.job_of(ws, intake) is None:
        return _begun(ws, intake)
    return _answer(ws, intake)


def list_intakes(ws: Workspace) -> list[WaitingFiles]:
    """The files that are no campaign yet, newest first."""
    folders.forget_old(ws)
    found = []
    for intake in folders.ids(ws):
        with contextlib.suppress(NotFoundError):  # deleted meanwhile
            record = folders.read(ws, intake)
            if record.campaign is None:
                names = folders.names(ws, intake, record)
                found.append(WaitingFiles(intake, record.by, moment(record.created_at), names))
    return sorted(found, key=lambda one: one.created_at, reverse=True)


def correct(ws: Workspace, intake: str, said: Correction) -> Intake:
    """Use files and columns as the user says, and read them again. A new role of a file undoes what was said of its columns."""
    record = _changeable(ws, intake)
    with folders.changing(ws, intake):
        record = folders.read(ws, intake)
        _check(record.plan, said)
        columns = {path: roles for path, roles in record.columns.items() if path not in said.roles}
        for path, roles in said.columns.items():
            columns[path] = {**columns.get(path, {}), **roles}
        changed = replace(
            record,
            roles={**record.roles, **said.roles},
            columns=columns,
            by_position=record.by_position if said.by_position is None else said.by_position,
            rows_are_ids=record.rows_are_ids if said.rows_are_ids is None else said.rows_are_ids,
            fold_case=record.fold_case if said.fold_case is None else said.fold_case,
            classes=record.classes if said.classes is None else said.classes or None,
        )
        folders.write(ws, intake, changed)
    return _begun(ws, intake)


def _check(plan: Plan | None, said: Correction) -> None:
    known = {} if plan is None else {one.path: one for one in plan.files}
    unknown = [path for path in (*said.roles, *said.columns) if path not in known]
    if not unknown:
        unknown = [name for path, roles in said.columns.items() for name in roles if name not in known[path].columns]
    if unknown:
        why = f"there is no file or column {unknown[0]!r} among these files; the answer to the upload names all of them"
        raise InvalidInputError(why, code="file")
    if FileRole.FUNCTIONS in said.roles.values():
        raise InvalidInputError(folders.NO_CODE, code="code")


def keep_rules(ws: Workspace, intake: str, rules: Sequence[RuleValues]) -> Intake:
    """Use these rules of the page, in place of those before. They are sources like those of the files."""
    _changeable(ws, intake)
    _, raw = reading.read_rows(ws, intake)
    made = checked(rules, raw.classes, raw.votes["source"].astype("str").unique())
    with folders.changing(ws, intake):
        record = folders.read(ws, intake)
        folders.write(ws, intake, replace(record, rules=tuple(rule_values(one) for one in made)))
    jobs.begin(ws, intake, IntakeState.READING, lambda progress: reading.read_again(ws, intake, progress))
    return _answer(ws, intake)


def create(
    ws: Workspace,
    intake: str,
    name: str,
    settings: Settings,
    by: str,
    *,
    encoders: Sequence[str] = (AUTO,),
    guidelines: str | None = None,
) -> Intake:
    """Begin to make the campaign. `look` says how far it is and, at last, the campaign's slug."""
    _changeable(ws, intake)
    with ws.reading() as connection:
        check_name(connection, name)
    reading.ensure_read(ws, intake)
    job = jobs.find(ws, intake)
    shown = None if job is None or job.state is not IntakeState.READY or job.read is None else job.read.preview
    if shown is None:
        raise ConflictError("the files are not read, or cannot be; look at the preview first", code="not_ready")
    check_choices(settings, n_items=shown.n_train)
    if not shown.usable:
        first = next(one.message for one in shown.findings if one.severity is Severity.ERROR)
        raise ConflictError(f"no campaign can be made of these files yet: {first}", code="not_ready")
    if shown.n_trusted == 0:
        check_pilot(settings)
    written.whole(guidelines, shown.classes)  # what cannot be used is refused before anything is encoded

    def make(content: Raw | CampaignData, progress: Progress) -> CampaignSummary:
        return start_campaign(ws, name, content, settings, by, specs=encoders, progress=progress, guidelines=guidelines)

    with folders.changing(ws, intake):
        folders.write(ws, intake, replace(folders.read(ws, intake), problem=None))
    jobs.begin(ws, intake, IntakeState.CREATING, lambda progress: _make(ws, intake, make, progress))
    return _answer(ws, intake)


def delete(ws: Workspace, intake: str) -> None:
    """Delete an intake with its uploaded files; what is being done with it ends."""
    folders.folder_of(ws, intake)
    jobs.drop(ws, intake)
    folders.forget(ws, intake)


def _changeable(ws: Workspace, intake: str) -> Record:
    """The record of an intake that may be changed now."""
    record, job = folders.read(ws, intake), reading.job_of(ws, intake)
    if record.campaign is not None or (job is not None and job.state is IntakeState.CREATING):
        state = "made" if record.campaign is not None else "being made"
        raise ConflictError(f"the campaign is {state}; its files can no longer be changed", code="intake_state")
    return record


def _begun(ws: Workspace, intake: str) -> Intake:
    reading.begin(ws, intake)
    return _answer(ws, intake)


def _answer(ws: Workspace, intake: str) -> Intake:
    record, job = folders.read(ws, intake), jobs.find(ws, intake)
    if job is None or not job.busy:
        job = jobs.elsewhere(ws, intake) or job
    state = IntakeState.READY if job is None else job.state
    return Intake(
        id=intake,
        by=record.by,
        created_at=moment(record.created_at),
        state=IntakeState.MADE if record.campaign is not None else state,
        plan=record.plan,
        preview=None if job is None or job.read is None else job.read.preview,
        working=None if job is None else job.working,
        problem=record.problem if job is None or job.problem is None else job.problem,
        campaign=record.campaign,
        rules=record.rules,
        rows_are_ids=record.rows_are_ids,
    )


def _make(
    ws: Workspace, intake: str, make: Callable[[Raw | CampaignData, Progress], CampaignSummary], progress: Progress
) -> CampaignSummary:
    """Encode, store, and let go of what was uploaded. Encoders keep what they computed, so a second attempt goes on."""
    record, job = folders.read(ws, intake), jobs.find(ws, intake)
    root = folders.files_of(ws, intake, record)
    read = None if job is None else job.read
    with told_below(root):
        if read is None or read.content is None:
            read = reading.read_files(ws, intake, progress)
        assert read.content is not None, "just read"
        content = read.content
        if isinstance(content, Raw):
            content = reading.with_rules(read, content, checked(record.rules, content.classes, ()))
        try:
            made = make(content, progress)
        except Exception as error:
            with folders.changing(ws, intake):  # other processes tell it too
                told = below(problem_of(error, "the work on these files"), root)
                folders.write(ws, intake, replace(folders.read(ws, intake), problem=told))
            raise
    with folders.changing(ws, intake):
        folders.write(ws, intake, replace(record, campaign=made.slug, problem=None))
    folders.forget_files(ws, intake)
    return made


def image(ws: Workspace, intake: str, name: str) -> Path:
    """The file of an image that is in the preview; others are not given out."""
    folders.folder_of(ws, intake)
    if reading.job_of(ws, intake) is None:
        reading.ensure_read(ws, intake)
    job = jobs.find(ws, intake)
    read = None if job is None else job.read
    if read is not None and read.media is not None and name in read.images:
        path = (read.media / name).resolve()
        if path.is_relative_to(read.media.resolve()) and path.is_file():
            return path
    raise NotFoundError(f"there is no image {name[:100]!r} in the preview", code="image")
