"""Heavy answers: computed once for all who wait for the same one, and only a few at a time.

Twenty people who open the progress of a large campaign cause one computation, not twenty: `Shared.get` lets the first one
compute and gives its result to the others, and to those who come later as long as the key, which holds the campaign's version,
is the same. Files to take home are written by two requests at a time (`few_at_a_time`); some wait, more are told to come back:
each one that waits holds a thread that votes need too. Rules that people type are tried one request at a time for each campaign
(`Turn`) and few of all campaigns, in bounded time, and only for as long as the one who asked waits.
"""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from labelchef.base.errors import ThrottledError

Result = TypeVar("Result")
AT_ONCE = 2
"""Heavy computations at one time, of each kind."""
MOST_WAITING = 8
"""Requests for files that may wait for their turn."""
MOST_TRIES = 3
"""Requests that try rules of one campaign: one at work, the others wait."""
MOST_TRIES_TOGETHER = 8
"""The same, of all campaigns."""
TRY_SECONDS = 10.0
"""Time of all rules of one request; what was searched is kept for the next."""
_files = threading.BoundedSemaphore(AT_ONCE)
_waiting = threading.BoundedSemaphore(AT_ONCE + MOST_WAITING)
_trying = threading.BoundedSemaphore(MOST_TRIES_TOGETHER)


class Shared(Generic[Result]):
    """Results by key, the last `kept` of them; one computation for all who ask for the same at the same time.

    >>> calls, shared = [], Shared[int](kept=1)
    >>> [shared.get(key, lambda: calls.append(key) or len(calls)) for key in ("a", "a", "b", "a")]
    [1, 1, 2, 3]
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._found: OrderedDict[Hashable, Future[Result]] = OrderedDict()
        self._lock = threading.Lock()
        self._at_once = threading.BoundedSemaphore(AT_ONCE)

    def get(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The result for a key; an error is given to those who wait, and not kept."""
        with self._lock:
            found = self._found.get(key)
            first = found is None
            if found is None:
                found = self._found[key] = Future()
        if first:
            try:
                with self._at_once:
                    found.set_result(compute())
            except BaseException as error:
                with self._lock:
                    del self._found[key]
                found.set_exception(error)
                raise
            with self._lock:
                self._found.move_to_end(key)
                done = [other for other, one in self._found.items() if one.done()]
                for other in done[: max(0, len(done) - self._kept)]:
                    del self._found[other]
        return found.result()


@contextlib.contextmanager
def few_at_a_time() -> Iterator[None]:
    """Wait for one's turn to write a large file; refused where too many wait already."""
    if not _waiting.acquire(blocking=False):
        why = f"{AT_ONCE + MOST_WAITING} exports are being made or wait already; try again in a moment"
        raise ThrottledError(why, retry_after=10.0, code="busy")
    try:
        with _files:
            yield
    finally:
        _waiting.release()


class Turn:
    """Whose turn it is to use something: one at a time, and few wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_TRIES)

    @contextlib.contextmanager
    def taken(self, gone: Callable[[], bool]) -> Iterator[Callable[[], None]]:
        """Have one's turn; gives a function to be called again and again, which ends the work when its time is over."""
        ends = time.monotonic() + TRY_SECONDS

        def check() -> None:
            if gone():
                raise ThrottledError("the one who asked does not wait any more", retry_after=1.0, code="busy")
            if time.monotonic() > ends:
                why = f"these rules take more than {TRY_SECONDS:g} seconds together; try fewer at a time"
                raise ThrottledError(why, retry_after=1.0, code="busy")

        with (
            _place(self._places, f"{MOST_TRIES} requests try rules of this campaign"),
            _place(_trying, f"{MOST_TRIES_TOGETHER} requests try rules"),
        ):
            while not self.lock.acquire(timeout=0.1):
                check()
            try:
                yield check
            finally:
                self.lock.release()


@contextlib.contextmanager
def _place(places: threading.BoundedSemaphore, why: str) -> Iterator[None]:
    """Hold one of the places; refused where none is free."""
    if not places.acquire(blocking=False):
        raise ThrottledError(f"{why} already; try again in a moment", retry_after=2.0, code="busy")
    try:
        yield
    finally:
        places.release()
