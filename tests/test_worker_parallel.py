"""Steps of several campaigns side by side, and steps that are broken off: by a stop, a pause, the end of the worker."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import Settings
from labelchef.model.engines.cluster.workers import ClusterError
from labelchef.model.engines.memory import MemoryEngine
from labelchef.model.engines.threads import one_blas_thread
from labelchef.server.campaigns.campaigns import create_campaign, pause, resume, status, stop, summary
from labelchef.server.campaigns.trained import replay
from labelchef.server.worker import Worker, advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import label_all, make, small_data, wait_until

SLOW = 70
"""Training items of the campaign whose sweeps take long."""


class SlowDisk:
    """Sweeps over the data of one campaign take a while each, until it is `fast`."""

    def __init__(self) -> None:
        self.fast, self.sweeping, self.sweeps, self.seconds = threading.Event(), threading.Event(), 0, 0.5

    def pass_over(self) -> None:
        self.sweeps += 1
        self.sweeping.set()
        self.fast.wait(self.seconds)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    disk, real = SlowDisk(), MemoryEngine._sweep

    def sweep(engine: MemoryEngine, *given: Any) -> Any:
        if engine.n_rows in (SLOW, SLOW + 30):
            disk.pass_over()
        return real(engine, *given)

    monkeypatch.setattr(MemoryEngine, "_sweep", sweep)
    yield disk
    disk.fast.set()


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "home") as opened:
        yield opened


SETTINGS = Settings(batch_size=3, budget=6)


def slow_campaign(ws: Workspace, name: str = "Slow") -> str:
    return create_campaign(ws, name, small_data(n_train=SLOW), SETTINGS, "lead").slug


def batch_of(ws: Workspace, campaign: str) -> list[str]:
    found = status(ws, campaign).open_round
    assert found is not None
    return [one.item for one in found.items]


def test_a_long_first_fit_delays_no_other_campaign(ws: Workspace, slow: SlowDisk) -> None:
    alone = make(ws, "Alone", batch_size=3, budget=6)
    expected = batch_of(ws, alone)
    first = slow_campaign(ws)
    slow.seconds = 120.0
    with Worker(ws):
        assert slow.sweeping.wait(60)
        other = create_campaign(ws, "Other", small_data(), SETTINGS, "lead").slug
        wait_until(lambda: status(ws, other).open_round is not None)
        assert summary(ws, first).state == CampaignState.PREPARING
        assert batch_of(ws, other) == expected, "what runs beside it changes nothing"
        slow.fast.set()
        wait_until(lambda: status(ws, first).open_round is not None)
    again = slow_campaign(ws, "Again")
    advance(ws, again)
    assert batch_of(ws, again) == batch_of(ws, first)
    for campaign in (first, other):
        assert replay(ws, campaign).agrees


@pytest.mark.parametrize("change", [stop, pause])
def test_a_first_fit_is_broken_off_and_taken_up_again(ws: Workspace, slow: SlowDisk, change: Any) -> None:
    campaign = slow_campaign(ws)
    files = {path.name for path in ws.home.rglob("*")}
    with Worker(ws) as worker:
        assert slow.sweeping.wait(60)
        change(ws, campaign, "lead")
        wait_until(lambda: not worker._jobs)
        done = slow.sweeps
        assert status(ws, campaign).rounds == ()
        assert summary(ws, campaign).state in (CampaignState.STOPPED, CampaignState.PAUSED)
        slow.fast.set()
    assert slow.sweeps == done, "nothing is computed for a campaign that was stopped"
    left = {path.name for path in ws.home.rglob("*")}
    assert {name for name in left - files if not name.startswith("labelchef.db.")} == set(), "nothing is half written"
    resume(ws, campaign, "lead")
    with Worker(ws):
        wait_until(lambda: status(ws, campaign).open_round is not None)
    again = slow_campaign(ws, "Again")
    advance(ws, again)
    assert batch_of(ws, again) == batch_of(ws, campaign)
    label_all(ws, campaign, "ann", n=SLOW)
    assert replay(ws, campaign).agrees


def test_the_end_of_the_server_breaks_a_fit_off(ws: Workspace, slow: SlowDisk) -> None:
    campaign = slow_campaign(ws)
    with Worker(ws):
        assert slow.sweeping.wait(60)
    assert status(ws, campaign).rounds == ()
    assert summary(ws, campaign).state == CampaignState.PREPARING
    slow.fast.set()
    with Worker(ws):
        wait_until(lambda: status(ws, campaign).open_round is not None)


def test_a_worker_for_one_campaign_at_a_time_serves_all_of_them(ws: Workspace) -> None:
    made = [create_campaign(ws, name, small_data(), SETTINGS, "lead").slug for name in "abc"]
    with Worker(ws, parallel=1):
        wait_until(lambda: all(status(ws, one).open_round is not None for one in made), 300.0)


def test_blas_has_its_threads_back_when_the_last_block_ends() -> None:
    def threads() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before, inside, leave = threads(), threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with one_blas_thread():
        few = threads()
        thread.start()
        assert inside.wait(60)
    assert threads() == few, "another thread is still in such a block"
    leave.set()
    thread.join()
    assert threads() == before


@pytest.mark.parametrize(
    "error", [ClusterError("no worker is there"), InvalidInputError("x.npy has changed", code="features_changed")]
)
def test_a_campaign_waits_for_its_cluster_and_its_files(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The campaign does not fail: its lead reads what it waits for, and it goes on by itself."""
    campaign = create_campaign(ws, "Waits", small_data(), SETTINGS, "lead").slug
    real, gone = MemoryEngine._sweep, threading.Event()
    gone.set()

    def sweep(engine: MemoryEngine, *given: Any) -> Any:
        if gone.is_set():
            raise error
        return real(engine, *given)

    monkeypatch.setattr(MemoryEngine, "_sweep", sweep)
    worker = Worker(ws)
    worker.start()
    try:
        wait_until(lambda: str(error) in summary(ws, campaign).message)
        assert summary(ws, campaign).state == CampaignState.PREPARING
        gone.clear()
        wait_until(lambda: summary(ws, campaign).state == CampaignState.RUNNING)
    finally:
        worker.stop()
