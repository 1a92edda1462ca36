"""`Workers` with Dask: an actor a worker, called directly, without the scheduler (docs/scale.md says why Dask)."""

import asyncio
import atexit
import contextlib
import os
import platform
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from labelchef.base.cluster_address import LOCAL
from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.version import __version__
from labelchef.model.engines.cluster.workers import ClusterError, Member, WorkerLostError, Workers

try:
    import dask
    import distributed
    from distributed import Client, LocalCluster
except ImportError as error:
    raise MissingExtraError("engine 'dask' needs Dask; pip install 'labelchef[cluster]'", code="cluster") from error

Result = TypeVar("Result")

_CONNECT_SECONDS = 5.0
_RESTART = "10 minutes"  # in which a process that was killed must be back
_IDLE_SECONDS = 60.0  # that a task waits for a worker where there is none
_START_SECONDS = 120.0  # importing libraries on a slow machine
_QUIET: dict[str, object] = {
    "distributed.worker.profile.enabled": False,  # 100 looks a second at every thread, on the core of the sweep
    "distributed.admin.tick.interval": "500ms",  # 50 a second else
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,  # else every row array is made of new pages
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


class _Asked:
    """A call of an actor."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def result(self, timeout: float) -> Any:
        """See `Answer.result`."""
        try:
            return self._future.result(timeout=timeout)
        except (asyncio.TimeoutError, TimeoutError):  # noqa: UP041 (two types before Python 3.11)
            raise TimeoutError from None
        except OSError as error:  # the connection was closed, or cannot be opened
            raise WorkerLostError(str(error)) from None


class _Actor:
    """An actor of Dask."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy

    def call(self, method: str, *given: Any) -> _Asked:
        """See `Holding.call`."""
        try:
            return _Asked(getattr(self._proxy, method)(*given))
        except RuntimeError as error:  # 'Worker holding Actor was lost'
            return _Asked(_Lost(str(error)))


class _Lost:
    """The call of an actor that is known to be lost."""

    def __init__(self, why: str) -> None:
        self._why = why

    def result(self, timeout: float) -> Any:  # noqa: ARG002
        """Raise."""
        raise OSError(self._why)


def local_cluster(workers: int | None = None) -> Any:
    """Worker processes of this machine, one core each; None: as many as there are cores."""
    dask.config.set(
        {"distributed.deploy.lost-worker-timeout": _RESTART}
    )  # else a process that starts slowly is given up
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


class DaskWorkers(Workers):
    """The workers of a Dask cluster."""

    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False
        self._cluster: Any = None
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

    def members(self) -> dict[str, Member]:
        """See `Workers.members`."""
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
        return {
            name: Member(name, int(one["nthreads"]), int(one.get("memory_limit") or 0))
            for name, one in found.items()
            if one.get("status", "running") in ("running", "paused")
        }

    def again(self) -> Workers:
        """See `Workers.again`."""
        try:
            return dask_workers(self.address)
        except InvalidInputError as error:
            raise ClusterError(str(error)) from None

    def check_versions(self, members: set[str]) -> None:
        """See `Workers.check_versions`."""
        told = self._client.run(_asked_versions(), workers=sorted(members), on_error="return")
        mine = own_versions()
        for name, theirs in sorted(told.items()):
            if isinstance(theirs, OSError):
                continue  # it went away; whoever sends it something sees that
            if theirs != mine:
                there = _words(theirs) if isinstance(theirs, dict) else repr(theirs)
                raise ClusterError(
                    f"worker {name} runs {there}, and this process {_words(mine)}; expected the same versions. Install them "
                    "there, or leave the worker out",
                    code="cluster_versions",
                )

    def start(self, member: str, make: Callable[..., Any], *given: Any) -> _Actor:
        """See `Workers.start`."""
        future = self._client.submit(make, *given, actor=True, workers=[member], allow_other_workers=False, pure=False)
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                proxy = future.result(timeout=1.0)
                break
            except (asyncio.TimeoutError, TimeoutError):  # noqa: UP041 (two types before Python 3.11)
                if (
                    member not in self.members() or time.monotonic() > until
                ):  # a task for a worker that died waits for ever
                    future.cancel()
                    raise WorkerLostError(member) from None
            except (OSError, RuntimeError, distributed.KilledWorker, CancelledError, asyncio.CancelledError) as error:
                raise WorkerLostError(str(error)) from None
        proxy._client, proxy._future = self._client, future  # else it would look for a default client of the process
        return _Actor(proxy)

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """See `Workers.submit`: a task, which Dask gives to another worker if one dies; to this process if several died."""
        found: Future[Result] = Future()
        found.set_running_or_notify_cancel()
        here, sent = copy_context(), self._client.submit(work, pure=False)

        def follow() -> None:
            try:
                found.set_result(sent.result() if self._ends(sent) else here.run(work))
            except BaseException as error:
                found.set_exception(error)

        threading.Thread(target=follow, name="labelchef-background", daemon=True).start()
        return found

    def _ends(self, sent: Any) -> bool:
        """Wait for a task; False where nobody will do it: several workers died of it, or none is left."""
        until, over = time.monotonic() + _IDLE_SECONDS, threading.Event()
        sent.add_done_callback(lambda _: over.set())
        while not over.wait(1.0):
            try:
                until = time.monotonic() + _IDLE_SECONDS if self.members() else until
            except ClusterError:
                return False
            if time.monotonic() > until:
                sent.cancel()
                return False
        lost = (OSError, distributed.KilledWorker, CancelledError, asyncio.CancelledError)
        return sent.status == "finished" or (sent.status == "error" and not isinstance(sent.exception(), lost))

    def close(self) -> None:
        """See `Workers.close`."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                self._client.close(timeout=2)
            if self._cluster is not None:
                with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                    self._cluster.close(timeout=5)


def own_versions() -> dict[str, str]:
    """What must be equal on all machines: of Python and NumPy the first two numbers."""
    return {**_asked_versions()(), "labelchef": __version__}


def _asked_versions() -> Callable[[], dict[str, str]]:
    def ask() -> dict[str, str]:  # sent as it is, since labelchef may be missing there: no names of this module
        import importlib

        found = {"Python": ".".join(platform.python_version_tuple()[:2])}
        for shown, name, places in (("NumPy", "numpy", 2), ("labelchef", "labelchef", 9)):
            try:
                version = str(importlib.import_module(name).__version__)
                found[shown] = ".".join(version.split(".")[:places])
            except ImportError:
                found[shown] = "missing"
        return found

    return ask


def _words(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())
