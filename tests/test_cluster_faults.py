"""A cluster after messages that failed, were interrupted or came late, and after its scheduler went away: no wrong sums."""

import errno
import subprocess
import sys
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from benchmarks.serving import free_port

from labelchef.base.errors import InvalidInputError
from labelchef.base.stopping_work import StoppedWorkError, stoppable, waited
from labelchef.cli.options import use_cluster
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.engines.choice import choose_placement
from labelchef.model.engines.cluster import ClusterEngine, ClusterError, dask_workers, parts
from labelchef.model.engines.cluster.dask_workers import DaskWorkers
from tests.store_support import wait_until

N, D = 1500, 5


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[Any, RowLabels, Any]:
    X = rng.normal(size=(N, D))
    return X, RowLabels(rng.dirichlet(np.ones(2), N), np.ones(N)), rng.normal(size=(1, D))


def gradient(engine: Any, labels: RowLabels, **given: Any) -> Any:
    return np.asarray(engine.sweep(labels, gradient=True, **given).gradient)


def right(engine: ClusterEngine, X: Any, labels: RowLabels, **given: Any) -> None:
    expected = gradient(MemoryEngine(X, bias=False), labels, **given)
    np.testing.assert_allclose(gradient(engine, labels, **given), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EIO, "Input/output error"), r"worker tcp://.* failed \(_fails\): OSError: .*Input/output error"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "worker tcp://.* has no memory left.*more workers"),
        (TimeoutError("the store is slow"), r"worker tcp://.* failed \(_fails\): TimeoutError: the store is slow"),
    ],
)
def test_an_error_of_the_work_names_the_worker_and_a_later_try_goes_on(
    data: tuple[Any, RowLabels, Any], cluster: DaskWorkers, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    X, labels, W = data
    engine = ClusterEngine(X, bias=False, cluster=cluster)
    with monkeypatch.context() as patched:
        patched.setattr(parts, "squares", _raising(error))
        with pytest.raises(ClusterError, match=told):
            engine.row_squares()
    right(engine, X, labels, W=W)


def _raising(error: Exception) -> Any:
    """A function that workers can be sent."""

    def _fails(_: Any) -> None:
        raise error

    return _fails


def _waits(part: Any) -> Any:
    import time

    time.sleep(0.5)
    return part.engine.row_squares()


def test_a_sweep_can_be_stopped_and_done_again(
    data: tuple[Any, RowLabels, Any], cluster: DaskWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels, W = data
    engine = ClusterEngine(X, bias=False, cluster=cluster)
    right(engine, X, labels, W=W)
    asked = iter([False, False])
    monkeypatch.setattr(dask_workers, "_LOOK_SECONDS", 0.01)
    with monkeypatch.context() as patched:
        patched.setattr(parts, "squares", _waits)
        with stoppable(lambda: next(asked, True)), pytest.raises(StoppedWorkError):
            engine.row_squares()
    right(engine, X, labels, W=-3.0 * W)


def test_no_worker_is_an_error_and_a_later_try_goes_on(
    data: tuple[Any, RowLabels, Any], cluster: DaskWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels, W = data
    engine = ClusterEngine(X, bias=False, cluster=cluster)
    with monkeypatch.context() as patched:
        patched.setattr(DaskWorkers, "members", lambda _: {})
        patched.setattr(dask_workers, "_WAIT_SECONDS", 0.2)
        with pytest.raises(ClusterError, match=r"no worker is there, and none came within 0\.2 s.*Nothing was changed"):
            gradient(engine, labels, W=W)
    right(engine, X, labels, W=W)


def started(what: str, *options: str) -> "subprocess.Popen[bytes]":
    """A scheduler or a worker of Dask as a process."""
    code = f"from distributed.cli.dask_{what} import main; main()"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", code, *options], **quiet)  # type: ignore[call-overload,no-any-return]


@pytest.mark.slow
def test_a_scheduler_that_comes_back_is_used_again(
    data: tuple[Any, RowLabels, Any],
) -> None:
    X, labels, W = data
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduling = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show")
    working = (address, "--nworkers", "1", "--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--no-nanny")
    running = [started("scheduler", *scheduling), started("worker", *working)]
    try:
        wait_until(lambda: answers(address))
        engine = ClusterEngine(X, bias=False, cluster=address)
        right(engine, X, labels, W=W)
        for one in running:
            one.kill()
            one.wait()
        with pytest.raises(ClusterError, match=r"does not answer any more|none came within"):
            gradient(engine, labels, W=W)
        running = [started("scheduler", *scheduling), started("worker", *working)]
        wait_until(lambda: answers(address))
        right(engine, X, labels, W=W)
    finally:
        for one in running:
            one.kill()
            one.wait()


def answers(address: str) -> bool:
    try:
        found = dask_workers.dask_workers(address)
        return bool(found.members())
    except (InvalidInputError, ClusterError):
        return False


def test_a_wait_ends_where_the_work_should_not_go_on() -> None:
    with stoppable(lambda: True), pytest.raises(StoppedWorkError):
        waited(Future[int]())


@pytest.mark.parametrize("address", ["localhost", "foo://x:1", "tcp://host", "8786"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is no address of a cluster; expected .*tcp://HOST:8786"):
        choose_placement("dask", None, np.zeros((2, 2)), address)
    with pytest.raises(InvalidInputError, match="is no address of a cluster"):
        use_cluster(address)
