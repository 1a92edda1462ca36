"""The background worker: one thread of one process takes the steps that are due in the campaigns of a workspace."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Self

from labelchef.domain.campaigns import CampaignState
from labelchef.domain.errors import LabelchefError, StoreError
from labelchef.services import charts, trained
from labelchef.services.people.access import changing, find
from labelchef.services.workspace import Workspace, clear_leftovers
from labelchef.store import campaign_table
from labelchef.store.rows import CampaignRow

_log = logging.getLogger("labelchef")
_POLL_SECONDS = 1.0


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


def _passing(error: Exception) -> bool:
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


class Worker:
    """Moves campaigns on in the background until `stop`."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._mapper: threading.Thread | None = None
        self._mapped: set[int] = set()
        self._elsewhere: set[str] = set()
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
        """End after the step in hand."""
        self._halt.set()
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
                self._rebuild()
                while not self._halt.is_set():
                    tick = self._ws.signal.ticks()
                    if not self._round_trip():
                        self._draw_maps()
                        self._ws.signal.sleep(_POLL_SECONDS, tick)
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

    def _rebuild(self) -> None:
        """Rebuild the models of running campaigns now, so that the first batch does not wait for it."""
        for row in self._campaigns():
            if self._halt.is_set() or row.state != CampaignState.RUNNING:
                continue
            try:
                trained.trained_now(self._ws, row)
            except Exception as error:
                self._note(row.public_id, error)

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
        """Take a step in every campaign where one is due; whether there was any. Another worker ends this one."""
        moved = False
        with self._retrying():
            self._ws.worker_lock.keep()
            for row in self._campaigns():
                if self._halt.is_set():
                    return False
                try:
                    moved = trained.step(self._ws, row.public_id) or moved
                    self.last_error = None
                    self._elsewhere.discard(row.public_id)
                except Exception as error:
                    self._note(row.public_id, error)
                    if row.public_id not in self._elsewhere:  # campaigns of another home delay no others
                        self._halt.wait(_POLL_SECONDS)
        return moved

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

    def _note(self, campaign: str, error: Exception) -> None:
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
        except Exception as again:
            _log.error("%s", again)

    def _campaigns(self) -> list[CampaignRow]:
        found: list[CampaignRow] = []
        with self._retrying(), self._ws.reading() as connection:
            found = campaign_table.all_campaigns(connection)
        return found
