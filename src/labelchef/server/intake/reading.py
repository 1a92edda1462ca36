"""The files of an intake as this process has read them: joined rows or arrays, and what people see of them first."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labelchef.base.campaigns import CampaignFiles
from labelchef.base.errors import ConflictError, InvalidInputError
from labelchef.base.intake import ColumnRole, FileRole, IntakeState, Plan, Preview, Progress
from labelchef.believe.rules import Rule, RuleBoard, apply_rules
from labelchef.data.campaign_data import find_files
from labelchef.data.intake.arrays import are_arrays
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.data.intake.looking import preview
from labelchef.data.intake.raw import Raw
from labelchef.data.intake.voting import rows_of, with_sources, with_votes
from labelchef.server.intake import folders, jobs
from labelchef.server.intake.folders import Record
from labelchef.server.intake.jobs import Read
from labelchef.server.intake.starting import look as look_at
from labelchef.server.shared import below, told_below
from labelchef.server.sources.campaign_rules import checked
from labelchef.server.workspace import Workspace

_OTHER_PATIENCE = 30.0
"""Seconds that a request waits where the files were read by another process only."""


def job_of(ws: Workspace, intake: str) -> jobs.Job | None:
    """What is known of an intake: what this or another process does with it, or what this one has read, if that still counts."""
    job = jobs.find(ws, intake)
    if job is not None and job.busy:
        return job
    other = jobs.elsewhere(ws, intake)
    if other is not None:
        return other
    return job if job is not None and job.stamp == folders.stamp(ws, intake) else None


def ensure_read(ws: Workspace, intake: str) -> None:
    """Read the files, if this process has not read them as they are now; wait for it for a while."""
    if job_of(ws, intake) is None:
        jobs.begin(
            ws, intake, IntakeState.READING, lambda progress: read_files(ws, intake, progress), patience=_OTHER_PATIENCE
        )


def read_rows(ws: Workspace, intake: str) -> tuple[Read, Raw]:
    """What was read of an intake, with its rows."""
    folders.folder_of(ws, intake)
    if jobs.find(ws, intake) is None:
        ensure_read(ws, intake)
    job = jobs.find(ws, intake)
    read = None if job is None else job.read
    if read is not None and read.content is not None and read.raw is None:
        why = (
            "these files are arrays, and rules read texts and columns. Give votes as source_votes, or raw data with ids"
        )
        raise InvalidInputError(why, code="rule")
    if read is None or read.raw is None:
        raise ConflictError("the files are not read just now; look at the preview first", code="not_ready")
    return read, read.raw


def begin(ws: Workspace, intake: str) -> None:
    """Read the files in the background, if no other process has just begun to."""
    with contextlib.suppress(ConflictError):  # what another process reads of an old record does not count
        jobs.begin(ws, intake, IntakeState.READING, lambda progress: read_files(ws, intake, progress))


def read_files(ws: Workspace, intake: str, progress: Progress) -> Read:
    """Detect roles, apply what the user said, join. The plan is kept even where the rows cannot be joined."""
    record = folders.read(ws, intake)
    root = folders.files_of(ws, intake, record)
    with told_below(root):
        if record.folder is None:
            folders.unpack(root, progress)
        files = _arrays(root, record)
        arrays = None if files is None else look_at(files, progress=progress)
        plan = _planned(root, record, progress) if arrays is None else arrays.preview.plan
        with folders.changing(ws, intake):
            progress("reading", 0, 0)  # ends here if another reading has begun
            folders.write(ws, intake, replace(folders.read(ws, intake), plan=_renamed(plan, root)))
        if arrays is not None:
            return Read(arrays.content, _shown(arrays.preview, root))
        return _looked_at(_joined(plan, progress), plan, record, root)


def _arrays(root: Path, record: Record) -> CampaignFiles | None:
    """The files, where they are called as arrays are and the user has not said how they are used."""
    place = folders.entered(root)
    if record.roles or record.columns or not are_arrays(place):
        return None
    return find_files(place, record.by_position, record.classes)


def _joined(plan: Plan, progress: Progress) -> Read:
    """The rows of the files, with the votes of rules that are among them."""
    if plan.of(FileRole.FUNCTIONS):
        raise InvalidInputError(folders.NO_CODE, code="code")
    return Read(with_sources(join(plan, progress=progress), plan, progress=progress))


def read_again(ws: Workspace, intake: str, progress: Progress) -> Read:
    """Use other rules on rows that are in memory."""
    record, job = folders.read(ws, intake), jobs.find(ws, intake)
    if job is None or job.read is None or job.read.raw is None:
        return read_files(ws, intake, progress)
    root = folders.files_of(ws, intake, record)
    with told_below(root):
        return _looked_at(job.read, _planned(root, record, progress), record, root)


def _looked_at(read: Read, plan: Plan, record: Record, root: Path) -> Read:
    """With the preview of the rows and of the votes that the page's rules give them."""
    assert read.raw is not None, "just read"
    raw = with_rules(read, read.raw, checked(record.rules, read.raw.classes, ()))
    found = preview(plan, raw)
    images = {row.content.get(name) for row in found.rows for name in raw.columns(ColumnRole.IMAGE)}
    shown = frozenset(name for name in images if name)
    return replace(read, preview=_shown(found, root), media=raw.media, images=shown)


def _planned(root: Path, record: Record, progress: Progress) -> Plan:
    """How the files are used: as the user said, else as detected."""
    given = Given(
        classes=record.classes,
        by_position=record.by_position,
        rows_are_ids=record.rows_are_ids,
        fold_case=record.fold_case,
        roles={_absolute(path, root): role for path, role in record.roles.items()},
        column_roles={_absolute(path, root): roles for path, roles in record.columns.items()},
    )
    place = folders.entered(root)
    return detect([place, *folders.rules_files(place)], given, progress)


def with_rules(read: Read, raw: Raw, rules: Sequence[Rule]) -> Raw:
    """The rows with the votes of rules beside those that came with the files."""
    if not rules:
        return raw
    with read.bench.turn.lock:
        board = board_of(read, raw)
        votes = apply_rules(rules, board.frame, board=board)
    return replace(with_votes(raw, votes, [rule.name for rule in rules]), rules=(*raw.rules, *rules))


def board_of(read: Read, raw: Raw) -> RuleBoard:
    """The rows as rules read them, made once; whoever calls has the turn of the bench."""
    if read.bench.board is None:
        read.bench.board = RuleBoard(rows_of(raw))
    return read.bench.board


def _renamed(plan: Plan, root: Path) -> Plan:
    """The plan with paths relative to the folder of the files."""
    return replace(plan, files=tuple(replace(one, path=_relative(one.path, root)) for one in plan.files))


def _relative(path: str, root: Path) -> str:
    """A path of a plan below the folder of the files: '.' is the folder itself, '#train' a part of it.

    >>> [_relative(path, Path("/home/a")) for path in ("/home/a/b.csv", "/home/a", "/home/a#train")]
    ['b.csv', '.', '#train']
    """
    return path.removeprefix(str(root)).removeprefix("/") or "."


def _absolute(path: str, root: Path) -> str:
    """What `_relative` was made of.

    >>> [_absolute(path, Path("/home/a")) for path in ("b.csv", ".", "#train")]
    ['/home/a/b.csv', '/home/a', '/home/a#train']
    """
    return str(root) if path == "." else f"{root}{path}" if path.startswith("#") else f"{root}/{path}"


def _shown(found: Preview, root: Path) -> Preview:
    """The preview without names of the server's folders."""
    findings = tuple(
        replace(one, message=below(one.message, root), examples=tuple(below(text, root) for text in one.examples))
        for one in found.findings
    )
    return replace(found, plan=_renamed(found.plan, root), findings=findings)
