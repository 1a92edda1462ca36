"""Many who wait cost one watcher a campaign."""

import asyncio
import threading
import time

import pytest

from labelchef.domain.errors import NotFoundError
from labelchef.web.live import Hub


class Versions:
    """A campaign's version, and how many threads wait for it at once."""

    def __init__(self) -> None:
        self.version, self.most, self._now = 1, 0, 0
        self._changed = threading.Condition()

    def wait(self, campaign: str, since: int, timeout: float) -> int:
        if campaign == "gone":
            raise NotFoundError("gone", code="campaign")
        with self._changed:
            self._now += timeout > 0
            self.most = max(self.most, self._now)
            self._changed.wait_for(lambda: self.version != since, timeout)
            self._now -= timeout > 0
            return self.version

    def change(self) -> None:
        with self._changed:
            self.version += 1
            self._changed.notify_all()


def test_all_who_wait_are_told_by_one_watcher() -> None:
    versions = Versions()

    async def whole() -> list[int]:
        hub = Hub(versions.wait, step=0.5)
        waiting = [asyncio.create_task(hub.changed("a", 1, 10)) for _ in range(50)]
        await asyncio.sleep(0.2)
        versions.change()
        told = await asyncio.gather(*waiting)
        assert not hub._waiting, "nothing is left of those who went"
        hub.close()
        return told

    assert asyncio.run(whole()) == [2] * 50
    assert versions.most == 1


def test_time_runs_out_and_news_are_told_at_once() -> None:
    versions = Versions()

    async def whole() -> tuple[int, int]:
        hub = Hub(versions.wait, step=0.05)
        late, news = await hub.changed("a", 1, 0.1), await hub.changed("a", 0, 10)
        hub.close()
        return late, news

    assert asyncio.run(whole()) == (1, 1)


def test_a_server_that_stops_lets_them_go() -> None:
    async def whole() -> float:
        hub = Hub(Versions().wait, step=0.1)
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
        hub = Hub(Versions().wait)
        try:
            await hub.changed("gone", 1, 1)
        finally:
            hub.close()

    with pytest.raises(NotFoundError):
        asyncio.run(whole())
