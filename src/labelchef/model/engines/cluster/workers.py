"""What a cluster must do: the protocol that an engine needs, small enough for any library of long-lived actors.

Every worker process runs one `Holder` (`holder.py`) for an engine. `Workers.start` makes it, `Holding.call` sends it a message
and returns a future of the answer. Messages to one holder are answered in their order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from labelchef.base.errors import LabelchefError

Result = TypeVar("Result")


class ClusterError(LabelchefError, RuntimeError):
    """The cluster cannot do what is asked; nothing was changed, and a later try goes on."""

    def __init__(self, message: str, *, code: str = "cluster") -> None:
        super().__init__(message, code=code)


class WorkerLostError(Exception):
    """A worker has died, or is treated as dead."""


class SlowWorkerWarning(UserWarning):
    """A worker takes much longer than the others."""


@dataclass(frozen=True)
class Limits:
    """Times in seconds."""

    call: float = 900.0
    """A worker that has not answered then is treated as dead."""
    wait: float = 60.0
    """How long one waits for a worker where none is left."""
    look: float = 1.0
    """Between two looks at who is there."""


@dataclass(frozen=True)
class Member:
    """A worker process."""

    address: str
    threads: int
    memory: int
    """Bytes that it may take; 0 for no limit."""


class Answer(Protocol):
    """What a holder will answer."""

    def result(self, timeout: float) -> Any:
        """The answer. Raises TimeoutError, WorkerLostError, or what the holder raised."""
        ...


class Holding(Protocol):
    """A holder, as the engine sees it."""

    def call(self, method: str, *given: Any) -> Answer:
        """Send a message; returns at once."""
        ...


class Workers(ABC):
    """The worker processes of a cluster."""

    address: str
    """Of the cluster."""
    closed: bool = False
    """Whether the connection was lost."""

    def again(self) -> "Workers":
        """The same cluster, connected anew if the connection was lost. Raises ClusterError where it does not answer."""
        return self

    @abstractmethod
    def members(self) -> dict[str, Member]:
        """Who is there now, by address. Raises ClusterError where the cluster does not answer."""

    @abstractmethod
    def check_versions(self, members: set[str]) -> None:
        """Refuse workers that run another version of Python, NumPy or labelchef."""

    @abstractmethod
    def start(self, member: str, make: Callable[..., Any], *given: Any) -> Holding:
        """Make a long-lived object `make(*given)` in a worker process. Raises WorkerLostError."""

    @abstractmethod
    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Compute something on any worker, beside what its holder does."""

    @abstractmethod
    def close(self) -> None:
        """End the connection."""


def connect(address: str) -> Workers:
    """The workers of a cluster; one connection a process and address."""
    from labelchef.model.engines.cluster.dask_workers import dask_workers

    return dask_workers(address)
