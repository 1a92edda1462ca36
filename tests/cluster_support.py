"""Workers of a cluster without processes: what dies, hangs or has no memory, and when, is known exactly."""

import pickle
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from labelchef.model.engines.cluster import Limits, Workers
from labelchef.model.engines.cluster.holder import Holder
from labelchef.model.engines.cluster.workers import Answer, Holding, Member, WorkerLostError

FAST = Limits(call=0.2, wait=0.3, look=0.0)


class _Here:
    """A holder in this process, with faults that a test asks for."""

    def __init__(self, workers: "HereWorkers", name: str, holder: Holder) -> None:
        self._workers, self._name, self._holder = workers, name, holder

    def call(self, method: str, *given: Any) -> Answer:
        return Said(
            self._workers, self._name, lambda: getattr(self._holder, method)(*pickle.loads(pickle.dumps(given)))
        )


class Said:
    """What a holder has answered."""

    def __init__(self, workers: "HereWorkers", name: str, work: Callable[[], Any]) -> None:
        self._found: Any = None
        workers.calls += 1
        dies = name in workers.there and workers.dies(workers.calls)
        if dies:
            workers.there.pop(name)
        self._dead = name not in workers.there
        self._late = name in workers.hangs
        self._full = name in workers.full
        self._error: Exception | None = None
        if not self._dead and not self._late:
            try:
                self._found = work()
            except Exception as error:
                self._error = error

    def result(self, timeout: float) -> Any:
        if self._dead:
            raise WorkerLostError
        if self._late:
            time.sleep(min(timeout, 0.01))
            raise TimeoutError
        if self._full:
            raise MemoryError("Unable to allocate 9 GiB")
        if self._error is not None:
            raise self._error
        return self._found


class HereWorkers(Workers):
    """The protocol without processes: what dies, and when, is known exactly."""

    address = "here"

    def __init__(self, names: str = "abc") -> None:
        self.there = {name: Member(name, 1, 0) for name in names}
        self.hangs: set[str] = set()
        self.full: set[str] = set()
        """Whose memory does not suffice."""
        self.calls = 0
        self.dies: Callable[[int], bool] = lambda _: False
        self.joins: list[str] = []

    def members(self) -> dict[str, Member]:
        if self.joins and (name := self.joins.pop(0)):
            self.there[name] = Member(name, 1, 0)
        return dict(self.there)

    def check_versions(self, members: set[str]) -> None: ...

    def start(self, member: str, make: Callable[..., Any], *given: Any) -> Holding:
        if member not in self.there:
            raise WorkerLostError
        return _Here(self, member, make(*given))

    def submit(self, work: Callable[[], Any]) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work())
        return done

    def close(self) -> None: ...
