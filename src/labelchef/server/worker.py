"""The background worker: takes the steps that are due in the campaigns of a workspace.

A thread looks what is due and hands it to a few others: steps of different campaigns run side by side, of one campaign one after
the other. A step that a pause, a stop or the end of the server has made useless is broken off at its next sweep over the data
(`base.stopping_work`); the ledger is written at the end of a step only, so nothing is half done.

There may be several workers, in one process each, on any machine that sees the database and the home. A worker takes the lease
of a campaign (`server.leases`) with its first step there and keeps it: the model stays in its memory. It takes no more than
its share, campaigns / workers rounded up, as long as others take the rest within `_PATIENCE` seconds, and gives back one at a
time what is above its share, of campaigns that have nothing to do.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from sqlalchemy import Connection

from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import LabelchefError, NotFoundError, StoreError
from labelchef.base.jobs import JobState
from labelchef.loop.steps import Step
from labelchef.model.engines.cluster.workers import ClusterError
from labelchef.server.campaigns import care, charts, trained
from labelchef.server.campaigns.access import changing, find
from labelchef.server.jobs.jobs import JobRunner
from labelchef.server.leases import CAMPAIGN, WORKER, Lease
from labelchef.server.running import Run, give_way
from labelchef.server.store import campaign_table, lease_table
from labelchef.server.store.rows import CampaignRow
from labelchef.server.workspace import Workspace, clear_leftovers, folder_of, require_folder

_log = logging.getLogger("labelchef")
_POLL_SECONDS = 1.0
_PURGE_SECONDS = 60.0
_PATIENCE = 3.0
"""Seconds that a campaign waits for a worker that has less than its share."""
PARALLEL = 2
"""Campaigns whose models are trained side by side, unless another number is asked for; one more may take its next step."""


def advance(ws: Workspace, campaign: str, *, patience: float = 0.0) -> int:
    """Take every step that is due in a campaign now; returns how many there were.

    If another process has its lease, wait `patience` seconds for it, then refuse. An error that another try cannot repair
    leaves the campaign failed, with its message.
    """
    with ws.leases.holding(trained.lease_name(find(ws, campaign)), patience) as lease:
        steps = 0
        try:
            while trained.step(ws, campaign, lease):
                steps += 1
        except LabelchefError as error:
            if not _passing(error):
                _fail(ws, campaign, str(error), lease)
            raise
        return steps


def _passing(error: BaseException) -> bool:
    """Whether another try may succeed: the database is locked, gone or full; cluster or files of X are not as they were."""
    if isinstance(error, StoreError):
        return not error.code.startswith("array_")
    return isinstance(error, ClusterError) or (isinstance(error, LabelchefError) and error.code == "features_changed")


def _wait(ws: Workspace, campaign: str, message: str, lease: Lease) -> None:
    """Tell the leads what the campaign waits for."""
    with changing(ws, campaign) as (connection, row):
        if _still_ours(connection, lease) and row.message != message:
            campaign_table.update_campaign(connection, row.id, message=message)


def _fail(ws: Workspace, campaign: str, message: str, lease: Lease) -> None:
    with changing(ws, campaign) as (connection, row):
        trained.forget(ws, row.id)
        if not _still_ours(connection, lease):
            return
        campaign_table.note_change(connection, row.id, "worker", {"failed": message})
        campaign_table.update_campaign(connection, row.id, state=CampaignState.FAILED, message=message)


def _still_ours(connection: Connection, lease: Lease) -> bool:
    """Whether no other process has taken the campaign over: what this one met is of no interest any more then."""
    if lease_table.still_holds(connection, lease.name, lease.fence):
        return True
    _log.warning("another process has taken over %s: an error met here is not noted in the campaign", lease.name)
    return False


def wait_for_change(ws: Workspace, campaign: str, since: int, timeout: float = 25.0) -> int:
    """The campaign's version once it is beyond `since`, or as it is after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        tick = ws.signal.ticks()
        version = find(ws, campaign).version
        left = deadline - time.monotonic()
        if version > since or left <= 0:
            return version
        ws.signal.sleep(min(left, _POLL_SECONDS), tick)


@dataclass(frozen=True)
class _Job:
    """What is being computed for a campaign, and how to stop it."""

    campaign: str
    step: Step | None
    """None: only the model of a running campaign is rebuilt, so that its next step does not wait for it."""
    long: bool
    """Whether the model is trained from scratch first."""
    lease: Lease
    run: Run[None]

    @property
    def needs_running(self) -> bool:
        """Whether it is of no use once the campaign is paused or stopped; votes that were counted still go into the model."""
        return self.step in (Step.FIT, Step.SELECT, None)


@dataclass(frozen=True)
class _Others:
    """The other workers."""

    taken: set[str]
    """Campaigns that other processes work on."""
    share: int
    """Campaigns that each worker should have."""
    workers: int


def _active(row: CampaignRow) -> bool:
    return row.state in (CampaignState.RUNNING, CampaignState.PREPARING)


class Worker:
    """Moves campaigns on in the background until `stop`: one step of a campaign at a time, of several campaigns side by side."""

    def __init__(self, ws: Workspace, parallel: int = PARALLEL) -> None:
        self._ws = ws
        self._parallel = parallel
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._mapping: Run[None] | None = None
        self._mapped: set[int] = set()
        self._elsewhere: set[str] = set()
        self._jobs: dict[str, _Job] = {}
        self._leases: dict[str, Lease] = {}
        """Campaigns that this worker moves on."""
        self._warm: set[str] = set()
        """Running campaigns whose model this worker has rebuilt, or tried to, since it has their lease."""
        self._due_since: dict[str, float] = {}
        """Since when a campaign that nobody has waits for a step, by the monotonic clock."""
        self._given_back = 0.0
        """When a campaign above the share was given back last."""
        self._not_before: dict[str, float] = {}
        """When a campaign is tried again after an error, by the monotonic clock."""
        self._purge_at = 0.0
        """When deleted campaigns are looked for next, by the monotonic clock."""
        self._runner = JobRunner(ws)
        self._served: dict[str, int] = {}
        """When each campaign had its last step, counted in steps: who waited longest is next."""
        self.refusal: BaseException | None = None
        """Why it ended, if it did not end by `stop`."""
        self.last_error: str | None = None
        """The last error of the database or disk; None after a step without one."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin; what the database refuses now is raised."""
        self._halt.clear()
        self._ready.clear()
        self.refusal = None
        self._thread = threading.Thread(target=self._run, name="labelchef-worker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self.refusal is not None:
            raise self.refusal

    def stop(self, timeout: float | None = 30.0) -> None:
        """End; steps in hand are broken off at their next sweep, without a trace."""
        self._halt.set()
        self._runner.stop(0.0)
        self._ws.signal.notify()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._mapping is not None:  # looked at only now: the worker's thread is what starts it
            self._mapping.stop.set()
            self._mapping.wait(timeout)

    @property
    def alive(self) -> bool:
        """Whether it is at work: it was started, and neither stopped nor ended by itself."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        try:
            with (
                self._ws.leases.holding(f"{WORKER}{self._ws.leases.holder}:{id(self)}"),
                self._ws.changes.listening(),
                contextlib.ExitStack() as held,
            ):
                held.callback(self._end_steps)
                self._ready.set()
                self._tidy()
                self._purge()
                with self._retrying():
                    self._runner.start()
                held.callback(self._runner.stop)
                while not self._halt.is_set():
                    tick = self._ws.signal.ticks()
                    if not self._round_trip():
                        self._draw_maps()
                    if time.monotonic() >= self._purge_at or self._ws.purge_soon.is_set():
                        self._purge()
                    self._ws.signal.sleep(_POLL_SECONDS, tick)
        except BaseException as error:
            if self._ready.is_set():
                _log.exception("the worker ended")
                self.last_error = str(error)
            self.refusal = error
        finally:
            self._give_back(*self._leases)
            self._ready.set()

    def _end_steps(self) -> None:
        """Break off what is being computed, and wait for it."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.run.stop.set()
        for job in jobs:
            job.run.wait(None)

    def _tidy(self) -> None:
        """Delete what processes that were killed have left unfinished."""
        try:
            found = clear_leftovers(self._ws)
        except OSError as error:
            _log.warning("unfinished files could not be looked for: %s", error)
            return
        if found:
            _log.warning("%d unfinished files or folders of processes that were killed were deleted", found)

    def _purge(self) -> None:
        """Remove the deleted campaigns whose grace period is over, and what earlier removals have left on the disk."""
        self._purge_at = time.monotonic() + _PURGE_SECONDS
        self._ws.purge_soon.clear()
        with self._retrying():
            care.purge(self._ws)
            self._ws.leases.sweep()

    @contextlib.contextmanager
    def _retrying(self) -> Iterator[None]:
        """A database that does not answer is tried again after a while."""
        try:
            yield
        except StoreError as error:
            self.last_error = str(error)
            _log.error("%s", error)
            self._halt.wait(_POLL_SECONDS)

    def _round_trip(self) -> bool:
        """Begin the steps that are due, as many as may run side by side, and stop those that no longer are.

        Whether anything is being computed.
        """
        with self._retrying():
            rows = self._campaigns()
            self._stop_some(rows)
            self._drop_lost(rows)
            others = self._others(rows)
            for row in sorted(rows, key=lambda row: self._served.get(row.public_id, 0)):
                if row.public_id in others.taken:
                    continue
                try:
                    job = self._next_job(row, others)
                except NotFoundError:
                    continue  # it was deleted since it was listed
                if job is not None:
                    self._jobs[row.public_id] = job
                    self._served[row.public_id] = max(self._served.values(), default=0) + 1
                    job.run.explain = partial(self._note, job.campaign, job.lease)
                    self._ws.runs.begin(job.run, partial(self._work, job, row), partial(self._over, job, row))
            self._share(rows, others)
        return bool(self._jobs)

    def _others(self, rows: Sequence[CampaignRow]) -> "_Others":
        """What other processes have, and how many campaigns this one should have."""
        held = self._ws.leases.held()
        names = {one.name.removeprefix(CAMPAIGN) for one in held if one.name.startswith(CAMPAIGN)}
        workers = max(1, sum(one.name.startswith(WORKER) for one in held))
        active = sum(_active(row) for row in rows)
        return _Others(names - self._leases.keys(), -(-active // workers), workers)

    def _next_job(self, row: CampaignRow, others: "_Others") -> _Job | None:
        """What is due in a campaign, if there is a thread for it. One thread is kept for campaigns that have a model."""
        name, jobs = row.public_id, list(self._jobs.values())
        if name in self._jobs or len(jobs) > self._parallel or self._not_before.get(name, 0.0) > time.monotonic():
            return None
        long = trained.state_of(self._ws, row.id) is None
        if long and sum(job.long for job in jobs) >= self._parallel:
            return None
        step = trained.due_step(self._ws, name)
        if step is None and (name in self._warm or row.state != CampaignState.RUNNING):
            return None
        lease = self._lease(row, others)
        if lease is None:
            return None
        self._warm.add(name)
        return _Job(name, step, long, lease, Run(f"step:{name}", lease))

    def _lease(self, row: CampaignRow, others: "_Others") -> Lease | None:
        """The lease of a campaign, if this worker has it or may take it now."""
        name = row.public_id
        if name in self._leases:
            return self._leases[name]
        now = time.monotonic()
        waited = now - self._due_since.setdefault(name, now)
        if others.workers > 1 and len(self._leases) >= others.share and waited < _PATIENCE:
            return None  # another worker has fewer
        if not folder_of(self._ws, row).is_dir():
            self._not_before[name] = now + _POLL_SECONDS
            try:
                require_folder(self._ws, row)
            except StoreError as error:
                self._note_passing(name, error)
            return None
        lease = self._ws.leases.take(trained.lease_name(row))
        if lease is not None:
            self._leases[name] = lease
            self._due_since.pop(name, None)
        return lease

    def _drop_lost(self, rows: Sequence[CampaignRow]) -> None:
        """Forget what other workers have taken over, and give back what is over: finished, stopped, archived, deleted."""
        ids = {row.public_id: row.id for row in rows}
        gone = [name for name, lease in self._leases.items() if lease.lost.is_set() and name not in self._jobs]
        for name in gone:
            del self._leases[name]
            self._warm.discard(name)
            if name in ids:
                trained.forget(self._ws, ids[name])
        active = {row.public_id for row in rows if _active(row)}
        self._give_back(*(name for name in self._leases if name not in active and name not in self._jobs))
        self._due_since = {name: since for name, since in self._due_since.items() if name in ids}

    def _share(self, rows: Sequence[CampaignRow], others: "_Others") -> None:
        """Give back one idle campaign if this worker has more than its share; another takes it and rebuilds its model."""
        now = time.monotonic()
        if len(self._leases) <= others.share or now - self._given_back < _PATIENCE:
            return
        ids = {row.public_id: row.id for row in rows}
        for name in self._leases:
            if name not in self._jobs and name in ids:
                self._given_back = now
                self._due_since[name] = now + _PATIENCE  # others first
                self._give_back(name)
                trained.forget(self._ws, ids[name])
                self._ws.signal.notify()
                return

    def _give_back(self, *names: str) -> None:
        """End leases of campaigns."""
        found = [self._leases.pop(name) for name in names]
        self._warm.difference_update(names)
        if found:
            self._ws.leases.give_back(*found)

    def _stop_some(self, rows: Sequence[CampaignRow]) -> None:
        """Break off what a lead has paused or stopped, in this process or another."""
        active = {row.public_id for row in rows if _active(row)}
        for name, job in list(self._jobs.items()):
            if job.needs_running and name not in active:
                job.run.stop.set()

    def _work(self, job: _Job, row: CampaignRow, _run: Run[None]) -> None:
        if job.long:
            give_way()
        if job.step is None:
            trained.trained_now(self._ws, row)
            trained.keep_numbers(self._ws, row, scored=False)
        else:
            trained.step(self._ws, job.campaign, job.lease)
        self.last_error = None
        self._elsewhere.discard(job.campaign)

    def _over(self, job: _Job, row: CampaignRow, run: Run[None]) -> None:
        if run.state is JobState.CANCELLED:
            trained.forget(self._ws, row.id)  # what it has computed so far belongs to no round
        del self._jobs[job.campaign]
        self._ws.signal.notify()

    def _draw_maps(self) -> None:
        """Compute the maps of campaigns that have a model, beside the rounds, one at a time."""
        if self._mapping is not None and self._mapping.alive:
            return
        for row in self._campaigns():
            if row.id not in self._mapped and row.public_id in self._leases and row.state == CampaignState.RUNNING:
                self._mapped.add(row.id)
                run = Run[None](f"map:{row.public_id}", explain=partial(self._no_map, row))
                self._mapping = self._ws.runs.begin(run, partial(self._map, row.public_id))
                return

    def _map(self, campaign: str, _run: Run[None]) -> None:
        charts.map2d(self._ws, campaign)

    def _no_map(self, row: CampaignRow, error: BaseException) -> str:
        """Log it: no round needs a map, and a request for it gets the error."""
        _log.warning("no map of campaign %s: %s", row.public_id, error)
        return str(error)

    def _note(self, campaign: str, lease: Lease, error: BaseException) -> str:
        """What can pass is tried again; anything else leaves the campaign failed, unless its lease is lost."""
        self._not_before[campaign] = time.monotonic() + _POLL_SECONDS
        self.last_error = message = str(error)
        if not isinstance(error, LabelchefError):
            _log.exception("a step of campaign %s failed", campaign)
            message = f"the worker met an error: {error!r}"
        if _passing(error):
            self._note_passing(campaign, error)
            if isinstance(error, StoreError):
                return message
        try:
            if _passing(error):
                _wait(self._ws, campaign, f"it is tried again until it succeeds: {message}", lease)
            else:
                _fail(self._ws, campaign, message, lease)
        except NotFoundError:
            self._ws.signal.notify()  # it was deleted meanwhile
        except Exception as again:
            _log.error("%s", again)
        return message

    def _note_passing(self, campaign: str, error: BaseException) -> None:
        """Log what is tried again."""
        self.last_error = str(error)
        elsewhere = isinstance(error, StoreError) and error.code == "folder"
        if not (elsewhere and campaign in self._elsewhere):  # logged once: it stays so until the folder is there
            _log.error("%s", error)
        self._elsewhere |= {campaign} if elsewhere else set()

    def _campaigns(self) -> list[CampaignRow]:
        """Campaigns that are not in the archive."""
        found: list[CampaignRow] = []
        with self._retrying(), self._ws.reading() as connection:
            found = [row for row in campaign_table.all_campaigns(connection) if row.archived_at is None]
        return found
