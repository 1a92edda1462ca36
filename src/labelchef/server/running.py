"""Work in the background: how it is begun, how far it is, how it is stopped, and what came of it.

    run = ws.runs.begin(Run("effect:k3"), work)     in a thread of its own, in the place of other work of that name
    ws.runs.keep(run).do(work)                      in the thread of the caller, as the queue of jobs does

The work gets its `Run` and tells it how far it is (`Run.tell`). It ends at its next sweep over the data, or when it tells
something, once it is stopped: by `Run.stop`, by other work of the same name, or through its lease, by any process.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from labelchef.base.errors import LabelchefError
from labelchef.base.intake import Working
from labelchef.base.jobs import JobState
from labelchef.base.stopping_work import StoppedWorkError, stoppable
from labelchef.server.leases import Lease

_log = logging.getLogger("labelchef")
_NICE = 10
_GRACE = 5.0
"""Seconds that a thread gets to end."""
Found = TypeVar("Found")


@dataclass(eq=False)
class Run(Generic[Found]):
    """A piece of work: what it tells, and what came of it."""

    name: str
    """That of its lease, if it has one."""
    lease: Lease | None = None
    """Held while it is done; other processes read there how far it is, and ask it to stop."""
    kind: str = ""
    """What it is, for other processes."""
    stop: threading.Event = field(default_factory=threading.Event)
    state: JobState = JobState.RUNNING
    working: Working | None = None
    found: Found | None = None
    problem: str | None = None
    """Why it failed, and what to do."""
    explain: "Callable[[BaseException], str]" = lambda error: problem_of(error, "the work")
    """Why it failed, in words for people."""
    unwanted: Callable[[], bool] = lambda: False
    """A further reason to stop."""
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether a thread is at work on it."""
        return self.thread is not None and self.thread.is_alive()

    def stopped(self) -> bool:
        """Whether nobody wants it any more."""
        lease = self.lease
        return self.stop.is_set() or (lease is not None and (lease.asked.is_set() or lease.lost.is_set()))

    def tell(self, what: str, done: int = 0, total: int = 0) -> None:
        """Say how far it is; work that nobody wants any more ends here."""
        if self.stopped():
            raise StoppedWorkError
        self.show(Working(what, done, total))

    def show(self, working: Working) -> None:
        """Let others see how far it is."""
        self.working = working
        if self.lease is not None:
            self.lease.told = {"state": self.kind, **asdict(working)}

    def cancel(self) -> None:
        """Stop it, and say so until it has ended."""
        self.stop.set()
        self.show(replace(self.working or Working("", 0, 0), what="it is being cancelled"))

    def do(self, work: "Work[Found]") -> None:
        """Do the work here."""
        try:
            with stoppable(lambda: self.stopped() or self.unwanted()):
                self.found = work(self)
            self.state = JobState.DONE
        except StoppedWorkError:
            self.state = JobState.CANCELLED
        except BaseException as error:
            try:
                self.problem = self.explain(error)
            finally:
                self.state = JobState.FAILED
        finally:
            self.ended = time.monotonic()

    def wait(self, seconds: float | None) -> None:
        """Wait for its end, at most so long."""
        if self.thread is not None:
            self.thread.join(seconds)

    def handed_over(self) -> Lease | None:
        """The lease, which this run has no longer."""
        lease, self.lease = self.lease, None
        return lease


Work: TypeAlias = Callable[[Run[Found]], Found]


class Runs:
    """The work of one process on a workspace, by name; many threads may use it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._runs: dict[str, Run[Any]] = {}

    def find(self, name: str) -> Run[Any] | None:
        """What this process does under a name, or has done last."""
        with self._turn:
            return self._runs.get(name)

    def begin(
        self, run: Run[Found], work: Work[Found], over: Callable[[Run[Found]], None] = lambda _run: None
    ) -> Run[Found]:
        """Do the work in a thread of its own, in the place of other work of that name.

        `over` is called in the thread at the end, however the work ended.
        """

        def target() -> None:
            try:
                run.do(work)
            finally:
                over(run)

        self.keep(run)
        run.thread = threading.Thread(target=target, name=f"labelchef-{run.name}", daemon=True)
        run.thread.start()
        return run

    def keep(self, run: Run[Found]) -> Run[Found]:
        """Let others find a run until it is dropped; other work of its name is stopped."""
        with self._turn:
            old = self._runs.get(run.name)
            if old is not None:
                old.stop.set()
            self._runs[run.name] = run
        return run

    def named(self, prefix: str) -> list[Run[Any]]:
        """All work whose name begins so."""
        with self._turn:
            return [run for name, run in self._runs.items() if name.startswith(prefix)]

    def drop(self, name: str) -> Run[Any] | None:
        """Stop work and let go of what came of it."""
        with self._turn:
            run = self._runs.pop(name, None)
        if run is not None:
            run.stop.set()
        return run

    def close(self) -> None:
        """End all work that has a thread of its own, and wait for it."""
        mine = [run for run in self.named("") if run.thread is not None]
        for run in mine:
            self.drop(run.name)
        for run in mine:
            run.wait(_GRACE)


def told_by(told: Mapping[str, Any]) -> Working | None:
    """How far work of another process is, by what its lease tells."""
    return Working(str(told["what"]), int(told["done"]), int(told["total"])) if "what" in told else None


def problem_of(error: BaseException, what: str) -> str:
    """What people are told of work that failed; an error that nobody expected is logged in full."""
    if isinstance(error, LabelchefError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"{what} needs more memory than the server has; leave out rows or columns, or use a larger machine"
    if isinstance(error, OSError):
        return f"a file cannot be read or written: {error}; check the server's disk and its rights"
    _log.error("%s failed", what, exc_info=error)
    return "the server failed with an unexpected error; the details are in its log"


def give_way() -> None:
    """Let other threads of the machine go first. Linux has a priority for each thread; elsewhere nothing changes."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
