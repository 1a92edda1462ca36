"""Many who wait cost one watcher."""

import asyncio
import threading
import time

import pytest

from labelchef.base.errors import NotFoundError
from labelchef.server.changes import Signal
from labelchef.server.web.live import Hub


class Versions(Signal):
    """Versions of campaigns, and how many threads wait for a change at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[str, int] = {}
        self.gone = {"gone"}
        self.most, self._sleeping = 0, 0
        self._counting = threading.Lock()

    def version(self, campaign: str) -> int:
        if campaign in self.gone:
            raise NotFoundError("gone", code="campaign")
        return self.now.get(campaign, 1)

    def sleep(self, seconds: float, since: int) -> None:
        with self._counting:
            self._sleeping += 1
            self.most = max(self.most, self._sleeping)
        super().sleep(seconds, since)
        with self._counting:
            self._sleeping -= 1

    def change(self, campaign: str) -> None:
        self.now[campaign] = self.now.get(campaign, 1) + 1
        self.notify()


def hub_over(versions: Versions, step: float = 1.0) -> Hub:
    return Hub(versions.version, versions, step=step)


def test_all_who_wait_are_told_by_one_watcher() -> None:
    versions = Versions()

    async def whole() -> list[int]:
        hub = hub_over(versions, step=0.5)
        waiting = [asyncio.create_task(hub.changed("a", 1, 10)) for _ in range(50)]
        await asyncio.sleep(0.2)
        versions.change("a")
        told = await asyncio.gather(*waiting)
        assert not hub._waiting, "nothing is left of those who went"
        hub.close()
        return told

    assert asyncio.run(whole()) == [2] * 50
    assert versions.most == 1


def test_time_runs_out_and_news_are_told_at_once() -> None:
    versions = Versions()

    async def whole() -> tuple[int, int]:
        hub = hub_over(versions, step=0.05)
        late, news = await hub.changed("a", 1, 0.1), await hub.changed("a", 0, 10)
        hub.close()
        return late, news

    assert asyncio.run(whole()) == (1, 1)


def test_a_server_that_stops_lets_them_go() -> None:
    async def whole() -> float:
        hub = hub_over(Versions(), step=0.1)
        waiting = asyncio.create_task(hub.changed("a", 1, 20))
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        hub.release()
        await waiting
        hub.close()
        return time.monotonic() - begun

    assert asyncio.run(whole()) < 5


def test_an_error_reaches_who_waits() -> None:
    async def whole() -> None:
        hub = hub_over(Versions())
        try:
            await hub.changed("gone", 1, 1)
        finally:
            hub.close()

    with pytest.raises(NotFoundError):
        asyncio.run(whole())


def test_many_campaigns_wait_for_nobody() -> None:
    versions = Versions()

    async def whole() -> tuple[float, float]:
        hub = hub_over(versions, step=2.0)
        waiting = {f"c{k}": asyncio.create_task(hub.changed(f"c{k}", 1, 10)) for k in range(100)}
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        assert await hub.changed("c7", 0, 10) == 1, "a first look is not behind the others"
        looked = time.monotonic() - begun
        versions.change("c63")
        assert await waiting["c63"] == 2
        told = time.monotonic() - begun
        assert sum(task.done() for task in waiting.values()) == 1
        hub.release()
        await asyncio.gather(*waiting.values())
        hub.close()
        return looked, told

    looked, told = asyncio.run(whole())
    assert looked < 1
    assert told < 1.5
    assert versions.most == 1


def test_a_campaign_that_goes_is_told_to_those_who_wait_for_it() -> None:
    versions = Versions()

    async def whole() -> int:
        hub = hub_over(versions, step=0.05)
        stays = asyncio.create_task(hub.changed("a", 1, 10))
        goes = asyncio.create_task(hub.changed("b", 1, 10))
        await asyncio.sleep(0.1)
        versions.gone.add("b")
        with pytest.raises(NotFoundError):
            await goes
        versions.change("a")
        told = await stays
        hub.close()
        return told

    assert asyncio.run(whole()) == 2
