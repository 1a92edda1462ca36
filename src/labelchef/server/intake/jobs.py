"""Work on intakes in the background (`services.running`), and what came of it.

A new piece of work takes the place of what is still done for the same intake, and what came of that is dropped. Joined
rows stay in memory for a few intakes; the others are read again when needed.

With several web processes each keeps rows for itself. While one works on an intake it has its lease (`server.leases`), and the
others tell what it does; what a process has read counts as long as files and corrections are the same (`folders.stamp`).
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from labelchef.base.campaigns import CampaignSummary
from labelchef.base.errors import ConflictError, LabelchefError
from labelchef.base.intake import IntakeState, Preview, Progress, Working
from labelchef.base.jobs import JobState
from labelchef.believe.automatic.interactive import Proposals
from labelchef.believe.rules import RuleBoard
from labelchef.data.campaign_data import CampaignData
from labelchef.data.intake.raw import Raw
from labelchef.server.intake import folders
from labelchef.server.leases import INTAKE
from labelchef.server.running import Run, problem_of, told_by
from labelchef.server.sharing import Turn
from labelchef.server.workspace import Workspace

PATIENCE = 0.7
"""Seconds that an answer waits for the work: small files are read at once."""
_IN_MEMORY = 2


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

    state: IntakeState = IntakeState.READY
    working: Working | None = None
    problem: str | None = None
    read: Read | None = None
    run: Run[Outcome] | None = None
    """The work that was begun last."""
    stamp: tuple[object, ...] | None = None
    """Of what the last work was done with."""

    @property
    def busy(self) -> bool:
        """Whether a thread of this process works on it."""
        return self.run is not None and self.run.alive


class Intakes(dict[str, Job]):
    """Jobs by intake, the one that was begun last at the end; `turn` is held while they are changed."""

    def __init__(self) -> None:
        self.turn = threading.Lock()


def elsewhere(ws: Workspace, intake: str) -> Job | None:
    """What another process does with an intake just now; None if it does nothing."""
    name = f"{INTAKE}{intake}"
    for one in ws.leases.held(name):
        if one.name == name and one.holder != ws.leases.holder:
            return Job(IntakeState(one.told.get("state", IntakeState.READING)), told_by(one.told))
    return None


def find(ws: Workspace, intake: str) -> Job | None:
    """A copy of what is known of an intake; None where nothing was done with it since the server started."""
    known = ws.memory.of(Intakes)
    with known.turn:
        job = known.get(intake)
        if job is None:
            return None
        run = job.run
        return replace(job, working=None if run is None or run.state is not JobState.RUNNING else run.working)


def begin(ws: Workspace, intake: str, state: IntakeState, work: Work, *, patience: float = PATIENCE) -> None:
    """Begin the work in the background, and wait a moment for it."""
    known = ws.memory.of(Intakes)
    name = f"{INTAKE}{intake}"
    said: list[object] = []

    def done(run: Run[Outcome]) -> Outcome:
        said.append(folders.stamp(ws, intake)[0])
        return work(run.tell)

    def over(run: Run[Outcome]) -> None:
        with known.turn:
            if job.run is not run or known.get(intake) is not job:
                return  # nobody wants it any more
            if run.state is JobState.CANCELLED:  # somebody in another process wants it to end
                del known[intake]
            else:
                _keep(known, job, run)
                with contextlib.suppress(LabelchefError, OSError):  # deleted meanwhile
                    job.stamp = (*said, *folders.stamp(ws, intake)[1:])
            _give_back(ws, run)

    with known.turn:
        job = known.pop(intake, None) or Job()
        known[intake] = job  # the last in the order
        lease = (None if job.run is None else job.run.handed_over()) or ws.leases.take(name)
        if lease is None:
            job.state = IntakeState.READY
            raise ConflictError("another process works on these files; try again in a moment", code="intake_state")
        run = job.run = Run[Outcome](
            name, lease, str(state), explain=partial(problem_of, what="the work on these files")
        )
        job.state, job.problem, lease.told = state, None, {"state": str(state)}
        ws.runs.begin(run, done, over)
    run.wait(patience)


def drop(ws: Workspace, intake: str) -> None:
    """Let go of an intake; a thread that works on it ends."""
    known = ws.memory.of(Intakes)
    with known.turn:
        job = known.pop(intake, None)
        ws.runs.drop(f"{INTAKE}{intake}")
        if job is None:
            ws.leases.ask_to_stop(f"{INTAKE}{intake}")
        elif job.run is not None:
            _give_back(ws, job.run)


def _give_back(ws: Workspace, run: Run[Outcome]) -> None:
    lease = run.handed_over()
    if lease is not None:
        ws.leases.give_back(lease, forget=True)


def _keep(known: Intakes, job: Job, run: Run[Outcome]) -> None:
    was, outcome, job.problem = job.state, run.found, run.problem
    job.state = IntakeState.MADE if isinstance(outcome, CampaignSummary) else IntakeState.READY
    if isinstance(outcome, Read) or was is IntakeState.READING:
        job.read = outcome if isinstance(outcome, Read) else None
    if job.state is IntakeState.MADE:
        job.read = None
    run.found = None
    held = [one for one in known.values() if one.read is not None and one.read.content is not None]
    for one in held[:-_IN_MEMORY]:
        assert one.read is not None, "filtered above"
        one.read = replace(one.read, content=None, bench=Bench())
