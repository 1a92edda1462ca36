"""Long polls without a thread for each: one thread watches all campaigns for all requests that wait."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from labelchef.server.changes import Signal

_PAUSE = 0.02
"""The least seconds between two looks: under load, several changes are reported as one."""


class Hub:
    """All long polls, answered by one thread; a change by another process is seen after `step` seconds."""

    def __init__(self, version: Callable[[str], int], signal: Signal, *, step: float = 1.0) -> None:
        """`version` looks a campaign's version up; `signal` tells of changes by this process."""
        self._version = version
        self._signal = signal
        self._step = step
        self._waiting: dict[str, dict[asyncio.Future[int], int]] = {}
        """Campaign → requests that wait, with the version each one knows."""
        self._watcher: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="labelchef-watch")
        self._closed = False

    async def changed(self, campaign: str, since: int, timeout: float) -> int:
        """The campaign's version: at once if it is not `since`, else when it changes or the time is over."""
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(campaign, {})[told] = since
        try:
            now = await asyncio.to_thread(self._version, campaign)
            if now != since or timeout <= 0 or self._closed:
                return now
            if self._watcher is None:
                self._watcher = asyncio.create_task(self._watch())
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(told, timeout)
            return now
        finally:
            if told.done() and not told.cancelled():
                told.exception()  # seen, even where the first look had the answer already
            del self._waiting[campaign][told]
            if not self._waiting[campaign]:
                del self._waiting[campaign]

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting and not self._closed:
                tick = self._signal.ticks()  # before it is known who waits: whoever comes later is woken for
                found = await loop.run_in_executor(self._pool, self._look, list(self._waiting))
                for campaign, version in found.items():
                    self._tell(campaign, version)
                await asyncio.sleep(_PAUSE)
                if not self._closed:
                    await loop.run_in_executor(self._pool, self._signal.sleep, self._step, tick)
        finally:
            self._watcher = None

    def _look(self, campaigns: Sequence[str]) -> dict[str, int | Exception]:
        found: dict[str, int | Exception] = {}
        for campaign in campaigns:
            try:
                found[campaign] = self._version(campaign)
            except Exception as error:  # told to those who wait for this campaign
                found[campaign] = error
        return found

    def _tell(self, campaign: str, version: int | Exception) -> None:
        for told, since in self._waiting.get(campaign, {}).items():
            if told.done():
                continue
            if isinstance(version, Exception):
                told.set_exception(version)
            elif version != since:
                told.set_result(version)

    def release(self) -> None:
        """Answer all requests that wait, so that the server can stop; call from the event loop's thread."""
        self._closed = True
        for campaign in self._waiting:
            self._tell(campaign, -1)

    def close(self) -> None:
        """End the watcher's thread."""
        self.release()
        self._pool.shutdown(wait=False, cancel_futures=True)
