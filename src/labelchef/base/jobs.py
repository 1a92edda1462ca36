"""Long work in the background: what it is, how far it is, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class JobKind(StrEnum):
    """What is done."""

    REPLAY = "replay"
    DATASET = "dataset"
    PREDICTIONS = "predictions"
    MODEL = "model"
    REPORT = "report"


class JobState(StrEnum):
    """How far it is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The server ended while it ran; it may be started again."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self not in (JobState.WAITING, JobState.RUNNING)


@dataclass(frozen=True)
class Job:
    """Work in the background, as a lead sees it."""

    id: str
    kind: JobKind
    options: Mapping[str, Any]
    """What was asked for: the format of a file."""
    by: str
    state: JobState
    done: float | None
    """How much is done, from 0 to 1; null where that cannot be said."""
    sentence: str
    """What is being done, or what came of it."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    file: str | None
    """Name of the file to download; null where there is none, or no longer."""
    bytes: int
    """Its size."""
    result: Mapping[str, Any] | None
    """What a replay found; null in lists."""
    problem: str | None
    """Why it failed, and what to do."""
