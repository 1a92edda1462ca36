"""The background worker: one process takes the steps that are due in the campaigns of a workspace.

A thread looks what is due and hands it to a few others: steps of different campaigns run side by side, of one campaign one after
the other. A step that a pause, a stop or the end of the server has made useless is broken off at its next sweep over the data
(`domain.stopping_work`); the ledger is written at the end of a step only, so nothing is half done.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from labelchef.campaign.steps import Step
from labelchef.domain.campaigns import CampaignState
from labelchef.domain.errors import LabelchefError, NotFoundError, StoreError
from labelchef.domain.stopping_work import StoppedWorkError, stoppable
from labelchef.services import care, charts, trained
from labelchef.services.jobs import JobRunner
from labelchef.services.people.access import changing, find
from labelchef.services.workspace import Workspace, clear_leftovers
from labelchef.store import campaign_table
from labelchef.store.rows import CampaignRow

_log = logging.getLogger("labelchef")
_POLL_SECONDS = 1.0
_PURGE_SECONDS = 60.0
PARALLEL = 2
"""Campaigns whose models are trained side by side, unless another number is asked for; one more may take its next step."""


def advance(ws: Workspace, campaign: str, *, patience: float = 0.0) -> int:
    """Take every step that is due in a campaign now; returns how many there were.

    If another process runs the worker of this workspace, wait `patience` seconds for it, then refuse. An error that
    another try cannot repair leaves the campaign failed, with its message.
    """
    with ws.worker_lock.holding(patience):
        steps = 0
        try:
            while trained.step(ws, campaign):
                steps += 1
        except LabelchefError as error:
            if not _passing(error):
                _fail(ws, campaign, str(error))
            raise
        return steps


def _passing(error: BaseException) -> bool:
    """Whether another try may succeed: the database is locked, gone or full."""
    return isinstance(error, StoreError) and not error.code.startswith("array_")


def _fail(ws: Workspace, campaign: str, message: str) -> None:
    with changing(ws, campaign) as (connection, row):
        ws.forget(row.id)
        campaign_table.note_change(connection, row.id, "worker", {"failed": message})
        campaign_table.update_campaign(connection, row.id, state=CampaignState.FAILED, message=message)


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
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def needs_running(self) -> bool:
        """Whether it is of no use once the campaign is paused or stopped; votes that were counted still go into the model."""
        return self.step in (Step.FIT, Step.SELECT, None)


class Worker:
    """Moves campaigns on in the background until `stop`: one step of a campaign at a time, of several campaigns side by side."""

    def __init__(self, ws: Workspace, parallel: int = PARALLEL) -> None:
        self._ws = ws
        self._parallel = parallel
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._mapper: threading.Thread | None = None
        self._mapped: set[int] = set()
        self._elsewhere: set[str] = set()
        self._jobs: dict[str, _Job] = {}
        self._cold: set[str] = set()
        """Campaigns that ran when the worker started, and whose models are not rebuilt yet."""
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
        """Begin; refuses if another process runs the worker of this workspace."""
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
        if self._mapper is not None:  # looked at only now: the worker's thread is what starts it
            self._mapper.join(timeout)

    @property
    def alive(self) -> bool:
        """Whether it is at work: it was started, and neither stopped nor ended by itself."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        try:
            with self._ws.worker_lock.holding(patience=2.0):
                self._ready.set()
                self._tidy()
                self._purge()
                self._cold = {row.public_id for row in self._campaigns() if row.state == CampaignState.RUNNING}
                with (
                    contextlib.ExitStack() as held,
                    ThreadPoolExecutor(self._parallel + 1, thread_name_prefix="labelchef-step") as pool,
                ):
                    with self._retrying():
                        self._runner.start()
                    held.callback(self._runner.stop)
                    try:
                        while not self._halt.is_set():
                            tick = self._ws.signal.ticks()
                            if not self._round_trip(pool):
                                self._draw_maps()
                            if time.monotonic() >= self._purge_at or self._ws.purge_soon.is_set():
                                self._purge()
                            self._ws.signal.sleep(_POLL_SECONDS, tick)
                    finally:
                        for job in list(self._jobs.values()):
                            job.stop.set()
        except BaseException as error:
            if self._ready.is_set():
                _log.exception("the worker ended")
                self.last_error = str(error)
            self.refusal = error
        finally:
            self._ready.set()

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

    @contextlib.contextmanager
    def _retrying(self) -> Iterator[None]:
        """A database that does not answer is tried again after a while."""
        try:
            yield
        except StoreError as error:
            self.last_error = str(error)
            _log.error("%s", error)
            self._halt.wait(_POLL_SECONDS)

    def _round_trip(self, pool: ThreadPoolExecutor) -> bool:
        """Begin the steps that are due, as many as may run side by side, and stop those that no longer are.

        Whether anything is being computed. Another worker ends this one.
        """
        with self._retrying():
            self._ws.worker_lock.keep()
            rows = self._campaigns()
            self._stop_some(rows)
            for row in sorted(rows, key=lambda row: self._served.get(row.public_id, 0)):
                job = self._next_job(row)
                if job is not None:
                    self._jobs[row.public_id] = job
                    self._served[row.public_id] = max(self._served.values(), default=0) + 1
                    pool.submit(self._work, job, row)
        return bool(self._jobs)

    def _next_job(self, row: CampaignRow) -> _Job | None:
        """What is due in a campaign, if there is a thread for it. One thread is kept for campaigns that have a model."""
        name, jobs = row.public_id, list(self._jobs.values())
        if name in self._jobs or len(jobs) > self._parallel or self._not_before.get(name, 0.0) > time.monotonic():
            return None
        long = row.id not in self._ws.trained
        if long and sum(job.long for job in jobs) >= self._parallel:
            return None
        step = trained.due_step(self._ws, name)
        if step is None and not (name in self._cold and row.state == CampaignState.RUNNING):
            return None
        self._cold.discard(name)
        return _Job(name, step, long)

    def _stop_some(self, rows: Sequence[CampaignRow]) -> None:
        """Break off what a lead has paused or stopped, in this process or another."""
        active = {row.public_id for row in rows if row.state in (CampaignState.RUNNING, CampaignState.PREPARING)}
        for name, job in list(self._jobs.items()):
            if job.needs_running and name not in active:
                job.stop.set()

    def _work(self, job: _Job, row: CampaignRow) -> None:
        try:
            with stoppable(job.stop.is_set):
                if job.step is None:
                    trained.trained_now(self._ws, row)
                    trained.keep_numbers(self._ws, row, scored=False)
                else:
                    trained.step(self._ws, job.campaign)
            self.last_error = None
            self._elsewhere.discard(job.campaign)
        except StoppedWorkError:
            self._ws.forget(row.id)  # what it has computed so far belongs to no round
        except BaseException as error:
            self._not_before[job.campaign] = time.monotonic() + _POLL_SECONDS
            self._note(job.campaign, error)
        finally:
            del self._jobs[job.campaign]
            self._ws.signal.notify()

    def _draw_maps(self) -> None:
        """Compute the maps of campaigns that have a model, beside the rounds, one at a time."""
        if self._mapper is not None and self._mapper.is_alive():
            return
        for row in self._campaigns():
            if row.id not in self._mapped and row.state == CampaignState.RUNNING:
                self._mapped.add(row.id)
                self._mapper = threading.Thread(target=self._map, args=(row.public_id,), daemon=True)
                self._mapper.start()
                return

    def _map(self, campaign: str) -> None:
        try:
            charts.map2d(self._ws, campaign)
        except Exception as error:  # no round needs a map; a request for it gets the error
            _log.warning("no map of campaign %s: %s", campaign, error)

    def _note(self, campaign: str, error: BaseException) -> None:
        """What can pass is tried again; anything else leaves the campaign failed."""
        self.last_error = message = str(error)
        if not isinstance(error, LabelchefError):
            _log.exception("a step of campaign %s failed", campaign)
            message = f"the worker met an error: {error!r}"
        if _passing(error):
            elsewhere = isinstance(error, StoreError) and error.code == "folder"
            if not (elsewhere and campaign in self._elsewhere):  # logged once: it stays so until the folder is there
                _log.error("%s", error)
            self._elsewhere |= {campaign} if elsewhere else set()
            return
        try:
            _fail(self._ws, campaign, message)
        except NotFoundError:
            self._ws.signal.notify()  # it was deleted meanwhile
        except Exception as again:
            _log.error("%s", again)

    def _campaigns(self) -> list[CampaignRow]:
        found: list[CampaignRow] = []
        with self._retrying(), self._ws.reading() as connection:
            found = [row for row in campaign_table.all_campaigns(connection) if row.archived_at is None]
        return found
