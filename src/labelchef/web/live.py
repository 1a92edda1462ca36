"""Waiting for a change without a thread for each who waits: one watcher a campaign tells all of them."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Wait = Callable[[str, int, float], int]
"""(campaign, version known, seconds) → the version then; blocks until it differs or the time is over."""


class Hub:
    """Long polls of all who wait, fed by one blocking call a campaign."""

    def __init__(self, wait: Wait, *, step: float = 2.0) -> None:
        self._wait = wait
        self._step = step
        self._waiting: dict[str, set[asyncio.Future[int]]] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="labelchef-watch")
        self._closed = False

    async def changed(self, campaign: str, since: int, timeout: float) -> int:
        """The campaign's version, at once if it is not `since`, else when it changes or the time is over."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[int] = loop.create_future()
        self._waiting.setdefault(campaign, set()).add(told)
        try:
            now = await loop.run_in_executor(self._pool, self._wait, campaign, since, 0.0)
            if now != since or timeout <= 0 or self._closed:
                return now
            if campaign not in self._watchers:
                self._watchers[campaign] = asyncio.create_task(self._watch(campaign, now))
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(told, timeout)
            return now
        finally:
            self._waiting[campaign].discard(told)
            if not self._waiting[campaign]:
                del self._waiting[campaign]

    async def _watch(self, campaign: str, version: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting.get(campaign) and not self._closed:
                now = await loop.run_in_executor(self._pool, self._wait, campaign, version, self._step)
                if now != version:
                    self._tell(campaign, now)
                    version = now
        except Exception as error:
            for told in self._waiting.get(campaign, ()):
                if not told.done():
                    told.set_exception(error)
        finally:
            self._watchers.pop(campaign, None)

    def _tell(self, campaign: str, version: int) -> None:
        for told in self._waiting.get(campaign, ()):
            if not told.done():
                told.set_result(version)

    def release(self) -> None:
        """Let all who wait go, so that the server can stop; call from the event loop's thread."""
        self._closed = True
        for campaign in list(self._waiting):
            self._tell(campaign, -1)

    def close(self) -> None:
        """End the watchers' threads."""
        self.release()
        self._pool.shutdown(wait=False, cancel_futures=True)
