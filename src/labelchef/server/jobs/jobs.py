"""Long work that leads start: replays and files to take home. It runs in the background, one at a time.

A job is a row of the database, so it is still there after a restart: one that waited is done then, one that ran is marked as
interrupted and can be started again. How far a job is stays in memory: it changes many times a second, and votes should not
wait for it; other processes see it a second later, in the job's lease (`server.leases`). Results stay: a file in the folder of
the campaign, or what was found as JSON. Every worker runs one job at a time, in one thread of low priority, beside the steps of
the campaigns. Cancelling stops it at its next sweep over the data (`base.stopping_work`).
"""

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from labelchef.base.errors import ConflictError, InvalidInputError, NotFoundError, StoreError, ThrottledError
from labelchef.base.files import PRIVATE_FILE, PRIVATE_FOLDER, writing_to
from labelchef.base.intake import Working
from labelchef.base.jobs import Job, JobKind, JobState
from labelchef.data.exchange.formats import FORMATS
from labelchef.data.files import tables
from labelchef.loop.rebuild import ReplayedRound
from labelchef.server.campaigns import trained
from labelchef.server.campaigns.access import find, looking
from labelchef.server.export import exchange, take_home
from labelchef.server.leases import JOB, Lease
from labelchef.server.running import Run, give_way, problem_of, told_by
from labelchef.server.shared import common, moment
from labelchef.server.store import job_table, round_table
from labelchef.server.store.rows import CampaignRow, JobRow, JobValues
from labelchef.server.workspace import CAMPAIGNS, Workspace, require_folder

KEPT_DAYS = 30
"""Days after which a job and its result are removed."""
MOST_BYTES = 2 * 2**30
"""Of all results in a workspace; beyond it, the oldest files are removed."""
MOST_WAITING = 20
"""Jobs of a workspace that may wait."""
FOLDER = "jobs"
"""The folder of a campaign that holds the results."""
_POLL_SECONDS = 1.0
_DAY = 86400.0


@dataclass(frozen=True)
class Outcome:
    """What came of a job."""

    file: Path | None = None
    result: Mapping[str, Any] | None = None


Work: TypeAlias = Callable[[Workspace, CampaignRow, Mapping[str, Any], Path, Run[Outcome]], Outcome]


def start(ws: Workspace, campaign: str, kind: JobKind, by: str, options: Mapping[str, Any]) -> Job:
    """Begin a job; it runs when those before it are done. What can be checked now is refused now."""
    kept = _checked(kind, options)
    with looking(ws, campaign) as (connection, row):
        if kind is not JobKind.REPLAY:
            trained.require_model(connection, row)
        if len(job_table.jobs_in(connection, [JobState.WAITING])) >= MOST_WAITING:
            why = f"{MOST_WAITING} jobs wait already; try again when some of them are done, or cancel one"
            raise ThrottledError(why, retry_after=30.0, code="busy")
    with ws.writing() as connection:
        job = job_table.insert_job(connection, row.id, kind, kept, by)
    ws.signal.notify()
    return look(ws, campaign, job)


def again(ws: Workspace, campaign: str, job: str, by: str) -> Job:
    """Begin the same work anew."""
    row = _row(ws, campaign, job)
    return start(ws, campaign, row.kind, by, row.options)


def jobs(ws: Workspace, campaign: str) -> list[Job]:
    """The jobs of a campaign, newest first, without what they found."""
    with looking(ws, campaign) as (connection, row):
        return [_shown(ws, one, short=True) for one in job_table.jobs_of(connection, row.id)]


def look(ws: Workspace, campaign: str, job: str) -> Job:
    """A job as it stands."""
    return _shown(ws, _row(ws, campaign, job))


def file_of(ws: Workspace, campaign: str, job: str) -> Path:
    """The file that a job gave."""
    with looking(ws, campaign) as (connection, row):
        made = job_table.job_by_id(connection, row.id, job)
    folder = _folder(ws, row.public_id, job)
    if made is None or made.file is None or not (folder / made.file).is_file():
        raise NotFoundError("this job has no file, or no longer; start it again", code="job")
    return folder / made.file


def cancel(ws: Workspace, campaign: str, job: str) -> Job:
    """Stop a job: at once if it waits, at its next sweep over the data if it runs. Nothing of it stays."""
    row = _row(ws, campaign, job)
    with ws.writing() as connection:
        ended: JobValues = {"state": JobState.CANCELLED, "ended_at": time.time()}
        waited = job_table.move_job(connection, row.id, JobState.WAITING, **ended)
    run = ws.runs.find(f"{JOB}{job}")
    if not waited and run is not None:
        run.cancel()
    elif not waited:
        ws.leases.ask_to_stop(f"{JOB}{job}")
    return look(ws, campaign, job)


def remove(ws: Workspace, campaign: str, job: str) -> None:
    """Forget a job that is over, with its result."""
    row, found = _row(ws, campaign, job), find(ws, campaign)
    if not row.state.over:
        raise ConflictError("the job is not over; cancel it first", code="running")
    with ws.writing() as connection:
        job_table.delete_job(connection, row.id)
    shutil.rmtree(_folder(ws, found.public_id, job), ignore_errors=True)


def _row(ws: Workspace, campaign: str, job: str) -> JobRow:
    with looking(ws, campaign) as (connection, row):
        found = job_table.job_by_id(connection, row.id, job)
    if found is None:
        raise NotFoundError(f"there is no job {job!r} in this campaign", code="job")
    return found


def _shown(ws: Workspace, row: JobRow, *, short: bool = False) -> Job:
    working = _working(ws, row.public_id) if row.state is JobState.RUNNING else None
    sentences = {
        JobState.WAITING: "it waits for its turn",
        JobState.RUNNING: "it begins",
        JobState.DONE: str((row.result or {}).get("message", "it is done")),
        JobState.FAILED: row.problem or "it failed",
        JobState.CANCELLED: "it was cancelled",
        JobState.INTERRUPTED: "the server ended while it ran; start it again",
    }
    times = {
        name: None if getattr(row, name) is None else moment(getattr(row, name)) for name in ("started_at", "ended_at")
    }
    values = common(Job, row) | times | {"id": row.public_id, "created_at": moment(row.created_at)}
    if short:
        values["result"] = None
    return Job(
        **values,
        by=row.person,
        done=1.0 if row.state is JobState.DONE else _share(working),
        sentence=sentences[row.state] if working is None else working.what,
    )


def _working(ws: Workspace, job: str) -> Working | None:
    """How far a job is that runs, in this process or another."""
    name = f"{JOB}{job}"
    run = ws.runs.find(name)
    return told_by(ws.leases.told(name)) if run is None else run.working


def _share(working: Working | None) -> float | None:
    """How much is done, from 0 to 1."""
    return None if working is None or not working.total else min(1.0, working.done / working.total)


def _folder(ws: Workspace, campaign: str, job: str) -> Path:
    return ws.home / CAMPAIGNS / campaign / FOLDER / job


class JobRunner:
    """Does the jobs of a workspace, one at a time, oldest first; owned by a worker. Each job has a lease."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Mark what a process before left running, and begin."""
        self._halt.clear()
        self._mark_interrupted()
        self._thread = threading.Thread(target=self._run, name="labelchef-jobs", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None = 30.0) -> None:
        """End; the job in hand is broken off at its next sweep, and marked as interrupted."""
        self._halt.set()
        for run in self._ws.runs.named(JOB):
            run.stop.set()
        self._ws.signal.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        give_way()
        while not self._halt.is_set():
            tick = self._ws.signal.ticks()
            try:
                busy = self._next()
            except StoreError:
                busy = False  # the worker tells of a database that does not answer
            if not busy:
                self._ws.signal.sleep(_POLL_SECONDS, tick)

    def _mark_interrupted(self) -> None:
        """Mark the jobs whose process has died."""
        with self._ws.reading() as connection:
            running = job_table.jobs_in(connection, [JobState.RUNNING])
        for row, _ in running:
            if (lease := self._ws.leases.take(f"{JOB}{row.public_id}")) is not None:
                with self._ws.writing() as connection:
                    ended: JobValues = {"state": JobState.INTERRUPTED, "ended_at": time.time()}
                    job_table.move_job(connection, row.id, JobState.RUNNING, **ended)
                self._ws.leases.give_back(lease, forget=True)

    def _next(self) -> bool:
        """Do the oldest job that waits, if no other worker has it; whether there was one."""
        self._mark_interrupted()
        with self._ws.reading() as connection:
            waiting = job_table.jobs_in(connection, [JobState.WAITING])
        for row, campaign in waiting:
            lease = self._ws.leases.take(f"{JOB}{row.public_id}")
            if lease is None:
                continue
            run = self._ws.runs.keep(Run[Outcome](lease.name, lease))
            try:
                with self._ws.writing() as connection:
                    begun: JobValues = {"state": JobState.RUNNING, "started_at": time.time()}
                    taken = job_table.move_job(connection, row.id, JobState.WAITING, **begun)
                if taken:  # else it was cancelled, or done by another worker, meanwhile
                    self._work(row, campaign, run, lease)
            finally:
                self._ws.runs.drop(lease.name)
                self._ws.leases.give_back(lease, forget=True)
            tidy(self._ws)
            return True
        return False

    def _work(self, row: JobRow, campaign: str, run: Run[Outcome], lease: Lease) -> None:
        folder = _folder(self._ws, campaign, row.public_id)

        def work(run: Run[Outcome]) -> Outcome:
            found = find(self._ws, campaign)
            require_folder(self._ws, found)
            with writing_to(folder, "make room or check the rights", code="folder"):
                folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
                folder.parent.chmod(PRIVATE_FOLDER)
            made = WORK[row.kind](self._ws, found, row.options, folder, run)
            if made.file is not None:
                made.file.chmod(PRIVATE_FILE)
            return made

        run.explain = partial(problem_of, what=f"the job {row.kind}")
        run.do(work)
        ended: JobValues = {"state": run.state, "ended_at": time.time()}
        if run.state is JobState.CANCELLED and (self._halt.is_set() or lease.lost.is_set()):
            ended["state"] = JobState.INTERRUPTED
        if run.problem is not None:
            ended["problem"] = run.problem
        made = run.found or Outcome()
        if made.result is not None:
            ended["result"] = dict(made.result)
        if made.file is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            ended["file"], ended["bytes"] = made.file.name, made.file.stat().st_size
        with self._ws.writing() as connection:
            job_table.move_job(connection, row.id, JobState.RUNNING, **ended)


def tidy(ws: Workspace, *, most_bytes: int = MOST_BYTES, kept_days: float = KEPT_DAYS) -> int:
    """Remove jobs that are old, and the oldest files where there are too many bytes; how many were touched."""
    over = [state for state in JobState if state.over]
    with ws.reading() as connection:
        ended = job_table.jobs_in(connection, over)
    old = [(row, where) for row, where in ended if (row.ended_at or row.created_at) < time.time() - _DAY * kept_days]
    young = [one for one in ended if one not in old]
    total, heavy = 0, []
    for row, where in reversed(young):
        total += row.bytes
        if row.file is not None and total > most_bytes:
            heavy.append((row, where))
    with ws.writing() as connection:
        for row, _ in old:
            job_table.delete_job(connection, row.id)
        for row, _ in heavy:
            job_table.update_job(connection, row.id, file=None, bytes=0)
    for row, where in (*old, *heavy):
        shutil.rmtree(_folder(ws, where, row.public_id), ignore_errors=True)
    return len(old) + len(heavy)


def _checked(kind: JobKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a job, those that it does not have left out; a format that there is not is refused."""
    if kind in (JobKind.REPLAY, JobKind.REPORT):
        return {}
    known: tuple[str, ...] = exchange.model_formats() if kind is JobKind.MODEL else tuple(tables.FORMATS)
    if kind is JobKind.DATASET:
        known = (*known, *FORMATS)
    format = options.get("format") or known[0]
    if format not in known:
        raise InvalidInputError(f"format is {format!r}; expected one of: {', '.join(known)}", code="format")
    return {"format": format}


def _replay(ws: Workspace, row: CampaignRow, _options: Mapping[str, Any], _folder: Path, run: Run[Outcome]) -> Outcome:
    with ws.reading() as connection:
        total = max(1, len(round_table.rounds_of(connection, row.id)))

    def tell(one: ReplayedRound) -> None:
        run.tell(f"round {one.number} of {total - 1}", one.number + 1, total)

    run.tell("the first model is trained again", 0, total)
    found = trained.replay(ws, row.public_id, tell)
    return Outcome(result=asdict(found))


def _dataset(ws: Workspace, row: CampaignRow, options: Mapping[str, Any], folder: Path, run: Run[Outcome]) -> Outcome:
    run.tell("the final model is trained, then the file is written")
    return Outcome(take_home.export_packed(ws, row.public_id, folder, f"{row.slug}-dataset", options["format"]))


def _written(what: str, write: Callable[..., Path], sentence: str) -> Work:
    def work(ws: Workspace, row: CampaignRow, options: Mapping[str, Any], folder: Path, run: Run[Outcome]) -> Outcome:
        run.tell(sentence)
        format = options["format"]
        return Outcome(write(ws, row.public_id, folder / f"{row.slug}-{what}.{format}", format=format))

    return work


def _report(ws: Workspace, row: CampaignRow, _options: Mapping[str, Any], folder: Path, run: Run[Outcome]) -> Outcome:
    run.tell("charts and tables are made")
    return Outcome(exchange.export_report(ws, row.public_id, folder / f"{row.slug}-report.html", shared=False))


WORK: Mapping[JobKind, Work] = {
    JobKind.REPLAY: _replay,
    JobKind.DATASET: _dataset,
    JobKind.PREDICTIONS: _written(
        "predictions", take_home.export_predictions, "the final model is trained, then the file is written"
    ),
    JobKind.MODEL: _written("model", exchange.export_model, "the final model is trained from scratch"),
    JobKind.REPORT: _report,
}
"""What each kind of job does."""
