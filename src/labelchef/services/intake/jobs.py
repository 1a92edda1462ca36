"""Work on intakes in the background: one thread for each, and how far it is.

A new piece of work supersedes what another thread still does for the same intake: that thread ends when it tells its progress
next, and what came of it is dropped. Joined rows stay in memory for a few intakes; the others are read again when needed.

With several web processes each keeps rows for itself. While one works on an intake it has its lease (`services.leases`), and the
others tell what it does; what a process has read counts as long as files and corrections are the same (`folders.stamp`).
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from labelchef.campaign.data import CampaignData
from labelchef.domain.campaigns import CampaignSummary
from labelchef.domain.errors import ConflictError, LabelchefError
from labelchef.domain.intake import IntakeState, Preview, Progress, Working
from labelchef.intake.raw import Raw
from labelchef.services.background import problem_of
from labelchef.services.intake import folders
from labelchef.services.leases import INTAKE, Lease
from labelchef.services.sharing import Turn
from labelchef.services.workspace import Workspace
from labelchef.sources.interactive import Proposals
from labelchef.sources.rules import RuleBoard

PATIENCE = 0.7
"""Seconds that an answer waits for the work: small files are read at once."""
_GRACE = 5.0
"""Seconds that a thread gets to end."""
_IN_MEMORY = 2
_turn = threading.Lock()


class SupersededError(Exception):
    """Raised in a thread whose work nobody wants any more."""


@dataclass
class Bench:
    """What is kept to try rules on the rows quickly; whoever uses it has its turn."""

    turn: Turn = field(default_factory=Turn)
    board: RuleBoard | None = None
    proposals: dict[str, Proposals] = field(default_factory=dict)
    """Column of text → the rules that are proposed for it."""


@dataclass(frozen=True)
class Read:
    """What reading gave."""

    content: Raw | CampaignData | None
    """The rows with the votes of the files, or arrays; None where they are no longer in memory."""
    preview: Preview | None = None
    """None until it is made, right after the rows."""
    media: Path | None = None
    """The folder that images are in."""
    images: frozenset[str] = frozenset()
    """The images that the preview shows."""
    bench: Bench = field(default_factory=Bench)

    @property
    def raw(self) -> Raw | None:
        """The rows; None for arrays too."""
        return None if isinstance(self.content, CampaignData) else self.content


Outcome: TypeAlias = Read | CampaignSummary
Work: TypeAlias = Callable[[Progress], Outcome]


@dataclass
class Job:
    """What this process knows of an intake."""

    turn: int = 0
    """Which thread's work counts."""
    state: IntakeState = IntakeState.READY
    working: Working | None = None
    problem: str | None = None
    read: Read | None = None
    thread: threading.Thread | None = None
    lease: Lease | None = None
    """Held while a thread works."""
    stamp: tuple[object, ...] | None = None
    """Of what the last work was done with."""


def elsewhere(ws: Workspace, intake: str) -> Job | None:
    """What another process does with an intake just now; None if it does nothing."""
    name = f"{INTAKE}{intake}"
    for one in ws.leases.held(name):
        if one.name == name and one.holder != ws.leases.holder:
            told = one.told
            working = Working(str(told["what"]), int(told["done"]), int(told["total"])) if "what" in told else None
            return Job(state=IntakeState(told.get("state", IntakeState.READING)), working=working)
    return None


def find(ws: Workspace, intake: str) -> Job | None:
    """A copy of what is known of an intake; None where nothing was done with it since the server started."""
    with _turn:
        job = ws.intakes.get(intake)
        return None if job is None else replace(job)


def begin(ws: Workspace, intake: str, state: IntakeState, work: Work, *, patience: float = PATIENCE) -> None:
    """Start a thread for the work, and wait a moment for it."""
    with _turn:
        job = ws.intakes.pop(intake, None) or Job()
        ws.intakes[intake] = job  # the last in the order
        job.turn += 1
        job.state, job.working, job.problem = state, None, None
        if job.lease is None:
            job.lease = ws.leases.take(f"{INTAKE}{intake}")
        if job.lease is None:
            job.state = IntakeState.READY
            raise ConflictError("another process works on these files; try again in a moment", code="intake_state")
        job.lease.told = {"state": str(state)}
        thread = threading.Thread(
            target=_run, args=(ws, intake, job, job.turn, work), name=f"labelchef-intake-{intake}", daemon=True
        )
        job.thread = thread
    thread.start()
    thread.join(patience)


def drop(ws: Workspace, intake: str) -> None:
    """Let go of an intake; a thread that works on it ends."""
    with _turn:
        job = ws.intakes.pop(intake, None)
        if job is not None:
            job.turn += 1
            _give_back(ws, job)
        else:
            ws.leases.ask_to_stop(f"{INTAKE}{intake}")


def close(ws: Workspace) -> None:
    """End all work; nothing on the disk is changed by it."""
    with _turn:
        jobs = list(ws.intakes.values())
        ws.intakes.clear()
        for job in jobs:
            job.turn += 1
            _give_back(ws, job)
    for job in jobs:
        if job.thread is not None:
            job.thread.join(_GRACE)


def _give_back(ws: Workspace, job: Job) -> None:
    lease, job.lease = job.lease, None
    if lease is not None:
        ws.leases.give_back(lease, forget=True)


def _run(ws: Workspace, intake: str, job: Job, turn: int, work: Work) -> None:
    def progress(what: str, done: int, total: int) -> None:
        lease = job.lease
        if job.turn != turn or (lease is not None and (lease.asked.is_set() or lease.lost.is_set())):
            raise SupersededError
        job.working = Working(what, done, total)
        if lease is not None:
            lease.told = {"state": str(job.state), "what": what, "done": done, "total": total}

    outcome: Outcome | None = None
    problem = said = None
    try:
        said = folders.stamp(ws, intake)[0]
        outcome = work(progress)
    except SupersededError:
        with _turn:
            if job.turn == turn:  # somebody in another process wants it to end
                _give_back(ws, job)
                ws.intakes.pop(intake, None)
        return
    except Exception as error:
        problem = problem_of(error, "the work on these files")
    with _turn:
        if job.turn == turn:
            _keep(ws, job, outcome, problem)
            with contextlib.suppress(LabelchefError, OSError):  # deleted meanwhile
                job.stamp = (said, *folders.stamp(ws, intake)[1:])
            _give_back(ws, job)


def _keep(ws: Workspace, job: Job, outcome: Outcome | None, problem: str | None) -> None:
    was, job.working, job.problem = job.state, None, problem
    job.state = IntakeState.MADE if isinstance(outcome, CampaignSummary) else IntakeState.READY
    if isinstance(outcome, Read) or was is IntakeState.READING:
        job.read = outcome if isinstance(outcome, Read) else None
    if job.state is IntakeState.MADE:
        job.read = None
    held = [one for one in ws.intakes.values() if one.read is not None and one.read.content is not None]
    for one in held[:-_IN_MEMORY]:
        assert one.read is not None, "filtered above"
        one.read = replace(one.read, content=None, bench=Bench())
