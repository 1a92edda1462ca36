"""A cluster after messages that failed, were interrupted or came late, and after its scheduler went away: no wrong sums."""

import errno
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.serving import free_port

from labelchef.base.errors import InvalidInputError
from labelchef.base.stopping_work import StoppedWorkError, stoppable, waited
from labelchef.cli.options import use_cluster
from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.engines.choice import choose_placement
from labelchef.model.engines.cluster import ClusterEngine, ClusterError, crew, dask_workers, holder
from labelchef.model.engines.cluster.dask_workers import DaskWorkers
from labelchef.model.engines.cluster.workers import Member
from labelchef.model.features import open_features
from tests.cluster_support import FAST, HereWorkers, Said
from tests.store_support import wait_until

N, D = 1500, 5
Result = Callable[[Said, float], Any]


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[Any, RowLabels, Any]:
    X = rng.normal(size=(N, D))
    return X, RowLabels(rng.dirichlet(np.ones(2), N), np.ones(N)), rng.normal(size=(1, D))


def gradient(engine: Any, labels: RowLabels, **given: Any) -> Any:
    return np.asarray(engine.sweep(labels, gradient=True, **given).gradient)


def right(engine: ClusterEngine, X: Any, labels: RowLabels, **given: Any) -> None:
    expected = gradient(MemoryEngine(X, bias=False), labels, **given)
    np.testing.assert_allclose(gradient(engine, labels, **given), expected, atol=1e-9)


def test_labels_behind_a_step_that_failed_are_sent_again(
    data: tuple[Any, RowLabels, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels, W = data
    engine = ClusterEngine(X, bias=False, cluster=HereWorkers("ab"), limits=FAST)
    kept = engine.sweep(labels, W=W).logits
    changed = np.arange(10)
    labels.Y[changed] = 1.0 - labels.Y[changed]
    labels.changes.append(changed)

    def full(*_: Any) -> Any:
        raise MemoryError("no room")

    A = X @ W.T
    with monkeypatch.context() as patched:
        patched.setitem(holder._OPERATIONS, "given", full)  # before the labels, in one message with them
        with pytest.raises(ClusterError, match="no memory left"):
            gradient(engine, labels, logits=A)
    right(engine, X, labels, logits=A)
    np.testing.assert_allclose(engine.host(kept), A, atol=1e-12)


def test_a_reply_that_comes_late_is_not_taken_for_another(
    data: tuple[Any, RowLabels, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels, W = data
    workers = HereWorkers("ab")
    engine = ClusterEngine(X, bias=False, cluster=workers, limits=FAST)
    right(engine, X, labels, W=W)
    real: Result = Said.result
    state = {"calls": 0, "until": 0.0}

    def interrupted(answer: Said, timeout: float) -> Any:
        state["calls"] += 1
        if state["calls"] == 1:
            state["until"] = time.monotonic() + 1.25 * FAST.call
            raise KeyboardInterrupt
        if time.monotonic() < state["until"]:
            time.sleep(0.01)
            raise TimeoutError
        return real(answer, timeout)

    with monkeypatch.context() as patched:
        patched.setattr(Said, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gradient(engine, labels, W=W)
        with pytest.warns(UserWarning, match="has not answered"):
            found = gradient(engine, labels, W=-3.0 * W)
    np.testing.assert_allclose(found, gradient(MemoryEngine(X, bias=False), labels, W=-3.0 * W), atol=1e-9)


def test_a_worker_whose_look_at_the_files_was_interrupted_looks_again(
    data: tuple[Any, RowLabels, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X, labels, W = data
    np.save(tmp_path / "x.npy", X)
    engine = ClusterEngine(open_features(tmp_path / "x.npy"), bias=False, cluster=HereWorkers("a"), limits=FAST)

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Said, "result", stop)
        with pytest.raises(KeyboardInterrupt):
            gradient(engine, labels, W=W)
    right(engine, X, labels, W=W)


def test_a_worker_that_comes_back_under_its_address_is_used(
    data: tuple[Any, RowLabels, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "_DEAD_SECONDS", 0.05)
    X, labels, W = data
    workers = HereWorkers("a")
    engine = ClusterEngine(X, bias=False, cluster=workers, limits=FAST)
    right(engine, X, labels, W=W)
    workers.there.clear()
    with pytest.raises(ClusterError, match="no worker is there"):
        gradient(engine, labels, W=W)
    workers.there["a"] = Member("a", 1, 0)
    right(engine, X, labels, W=W)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EIO, "Input/output error"), r"worker a failed: RuntimeError: OSError: .*Input/output error"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "worker a has no memory left"),
        (TimeoutError("the store is slow"), r"worker a failed: RuntimeError: TimeoutError: the store is slow"),
    ],
)
def test_an_error_of_the_work_is_no_lost_worker(
    data: tuple[Any, RowLabels, Any], monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    X, labels, W = data
    engine = ClusterEngine(X, bias=False, cluster=HereWorkers("a"), limits=FAST)
    right(engine, X, labels, W=W)

    def fail(*_: Any) -> Any:
        raise error

    with monkeypatch.context() as patched:
        patched.setitem(holder._OPERATIONS, "sweep", fail)
        with pytest.raises(ClusterError, match=told):
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


def _seven() -> int:
    return 7


def test_a_task_that_nobody_does_is_done_here(monkeypatch: pytest.MonkeyPatch, cluster: DaskWorkers) -> None:
    assert waited(cluster.submit(_seven)) == 7
    monkeypatch.setattr(dask_workers, "_IDLE_SECONDS", 0.5)
    monkeypatch.setattr(DaskWorkers, "members", lambda _: {})
    monkeypatch.setattr(cluster._client, "submit", partial(cluster._client.submit, workers=["tcp://127.0.0.1:1"]))
    assert waited(cluster.submit(_seven)) == 7


def test_a_wait_ends_where_the_work_should_not_go_on() -> None:
    with stoppable(lambda: True), pytest.raises(StoppedWorkError):
        waited(Future[int]())


@pytest.mark.parametrize("address", ["localhost", "foo://x:1", "tcp://host", "8786"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidInputError, match=r"is no address of a cluster; expected .*tcp://HOST:8786"):
        choose_placement("dask", None, np.zeros((2, 2)), address)
    with pytest.raises(InvalidInputError, match="is no address of a cluster"):
        use_cluster(address)
