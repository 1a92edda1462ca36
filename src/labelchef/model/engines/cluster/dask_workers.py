"""The connection to a Dask cluster: who is there, tasks, and their results."""

import asyncio
import atexit
import contextlib
import os
import platform
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any, TypeVar

import numpy as np

from labelchef.base.cluster_address import LOCAL
from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.stopping_work import go_on
from labelchef.base.version import __version__
from labelchef.model.engines.cluster.workers import ClusterError, TasksLostError

try:
    import dask
    import distributed
    from distributed import Client, LocalCluster
except ImportError as error:
    raise MissingExtraError("engine 'dask' needs Dask; pip install 'labelchef[cluster]'", code="cluster") from error

Result = TypeVar("Result")

_CONNECT_SECONDS = 5.0
_WAIT_SECONDS = 60.0  # for a worker where none is left
_LOOK_SECONDS = 0.5  # between two looks at whether to go on
_IDLE_LOOKS = 3
_LOST = (distributed.KilledWorker, CancelledError, asyncio.CancelledError)
_SETTINGS: dict[str, object] = {
    "distributed.deploy.lost-worker-timeout": "10 minutes",  # else a process that starts slowly is given up
    "distributed.admin.large-graph-warning-threshold": "1 TB",  # labels are sent with their tasks
}
_QUIET: dict[str, object] = {
    "distributed.worker.profile.enabled": False,  # 100 looks a second at every thread, on the core of the sweep
    "distributed.admin.tick.interval": "500ms",  # 50 a second else
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,  # else every row array is made of new pages
    "distributed.scheduler.work-stealing": False,  # parts are shared out already
    "distributed.scheduler.allowed-failures": 20,  # workers that may die of a task
}
"""What keeps workers from their sweeps; together it costs them a fifth of their time (docs/scale.md)."""
_open: dict[tuple[int, str], "DaskWorkers"] = {}
_turn = threading.Lock()


def dask_workers(address: str) -> "DaskWorkers":
    """The workers of a scheduler's address ('tcp://host:8786'), or processes of this machine ('local').

    One connection a process and address: campaigns share it.
    """
    with _turn:
        key = (os.getpid(), address)
        if key not in _open or _open[key].closed:
            _open[key] = DaskWorkers(address)
            atexit.register(_open[key].close)
        return _open[key]


def local_cluster(workers: int | None = None) -> Any:
    """Worker processes of this machine, one core each; None: as many as there are cores."""
    dask.config.set(_SETTINGS)
    make: Any = LocalCluster
    with dask.config.set(_QUIET):
        return make(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0)


def _within(seconds: float, make: Callable[[], Result]) -> Result:
    """What is made, or a TimeoutError: a port where something else listens would be waited for without end."""
    made: Future[Result] = Future()

    def work() -> None:
        try:
            made.set_result(make())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=work, name="labelchef-connect", daemon=True).start()
    return made.result(seconds)


class DaskWorkers:
    """The workers of a Dask cluster. `closed` says whether the connection was lost."""

    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False
        self._cluster: Any = None
        dask.config.set(_SETTINGS)
        where: Any = address
        if address == LOCAL:
            where = self._cluster = local_cluster()
        make: Any = partial(Client, where, timeout=_CONNECT_SECONDS, direct_to_workers=True, set_as_default=False)
        try:
            self._client = _within(2 * _CONNECT_SECONDS, make)
        except (OSError, TimeoutError, ValueError) as error:
            raise InvalidInputError(
                f"no cluster answers at {address!r} ({type(error).__name__}: {error}); expected the address of a Dask scheduler, "
                "tcp://HOST:8786, or 'local'. Start one: `dask scheduler`, then `dask worker tcp://HOST:8786` on each machine",
                code="cluster",
            ) from None

    def again(self) -> "DaskWorkers":
        """The same cluster, connected anew. Raises ClusterError where it does not answer."""
        try:
            return dask_workers(self.address)
        except InvalidInputError as error:
            raise ClusterError(str(error)) from None

    def members(self) -> dict[str, int]:
        """Who is there now, and how many threads each has. Raises ClusterError where the scheduler does not answer."""
        found: dict[str, Any] | None = None
        with contextlib.suppress(OSError, TimeoutError):
            if self._client.status == "running":
                found = self._client.scheduler_info(n_workers=-1).get("workers")
        if found is None or self._client.status != "running":
            self.closed = True  # the next engine connects again
            raise ClusterError(
                f"the scheduler at {self.address} does not answer any more; start it again, with workers, and try again. "
                "Nothing was changed"
            )
        return {name: max(1, int(one["nthreads"])) for name, one in found.items()}

    def awaited(self) -> dict[str, int]:
        """`members`, once there are any."""
        until = time.monotonic() + _WAIT_SECONDS
        while not (found := self.members()):
            go_on()
            if time.monotonic() > until:
                raise ClusterError(
                    f"no worker is there, and none came within {_WAIT_SECONDS:g} s. Cluster: {self.address}. Start workers "
                    "(`dask worker ADDRESS`) and try again. Nothing was changed"
                )
            time.sleep(0.1)
        return found

    def check_versions(self, members: set[str]) -> None:
        """Refuse workers that run another version of Python, NumPy or labelchef."""
        told = self._client.run(versions, workers=sorted(members), on_error="return") if members else {}
        mine = own_versions()
        for name, theirs in sorted(told.items()):
            if theirs != mine and not isinstance(theirs, OSError):  # else it went away
                raise ClusterError(
                    f"worker {name} runs {theirs}, and this process {mine}; expected the same versions. Install them "
                    "there, or leave the worker out",
                    code="cluster_versions",
                )

    def task(self, function: Callable[..., Any], *given: Any, worker: str | None = None, retries: int = 0) -> Any:
        """The future of `function(*given)` on a worker, or on another one if that is gone."""
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self._client.submit(function, *given, **where, pure=False, retries=retries)

    def places(self, futures: dict[int, Any]) -> dict[int, str]:
        """Which worker has which result; where it is lost again, anybody."""
        found = self._client.who_has(list(futures.values())) if futures else {}
        return {n: (sorted(found.get(one.key, ())) or sorted(self.awaited()))[0] for n, one in futures.items()}

    def finish(self, futures: list[Any]) -> None:
        """Wait for futures whose results stay on the workers; raises the error of the first that failed."""

        def done(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while (left := any(one.status in ("pending", "lost") for one in futures)) and time.monotonic() < until:
                time.sleep(0.01)
            return not left

        self._watch(done)
        self._refuse_failed(futures)

    def results(self, futures: list[Any]) -> list[Any]:
        """The results of futures; raises the error of the first that failed."""
        fetching: Any = self._client.gather(futures, asynchronous=True)
        answer = asyncio.run_coroutine_threadsafe(fetching, self._client.loop.asyncio_loop)
        try:
            self._watch(lambda seconds: bool(wait([answer], seconds).done))
        except BaseException:
            answer.cancel()
            raise
        self._refuse_failed(futures)
        try:
            return list(answer.result())
        except (*_LOST, OSError) as error:
            raise self._lost(error) from None

    def _watch(self, done: Callable[[float], bool]) -> None:
        """Wait as long as the work should go on, and there are workers; Dask repeats what a dead worker was to do."""
        idle = 0
        while not done(_LOOK_SECONDS):
            go_on()
            self.awaited()
            idle = 0 if any(self._client.processing().values()) else idle + 1
            if idle > _IDLE_LOOKS:  # Dask gives tasks of workers that died all at once to nobody
                raise TasksLostError(
                    f"no worker of {self.address} does what it was asked; try again. Nothing was changed"
                )

    def _refuse_failed(self, futures: list[Any]) -> None:
        for future in futures:
            if future.status in ("error", "cancelled"):
                failed = future.exception() if future.status == "error" else CancelledError()
                raise self._lost(failed) if isinstance(failed, _LOST) else failed

    def _lost(self, error: BaseException) -> ClusterError:
        self.members()  # or the scheduler is lost
        if isinstance(error, distributed.KilledWorker):
            return ClusterError(
                f"workers of {self.address} died of one task, again and again; expected workers that stay. Often they have too "
                "little memory: see their logs, start more of them or raise --memory-limit, and try again. Nothing was changed"
            )
        return TasksLostError(
            f"the cluster at {self.address} has forgotten what it was asked ({type(error).__name__}); try again. "
            "Nothing was changed"
        )

    def close(self) -> None:
        """End the connection."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                self._client.close(timeout=2)
            if self._cluster is not None:
                with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                    self._cluster.close(timeout=5)


def versions() -> str:
    """What must be equal on all machines: of Python and NumPy the first two numbers."""
    python, two = ".".join(platform.python_version_tuple()[:2]), ".".join(np.__version__.split(".")[:2])
    return f"Python {python}, NumPy {two}, labelchef {__version__}"


own_versions = versions
