"""Work that can be stopped: long computations ask now and then whether they should go on.

Whoever starts a computation says how to ask (`stoppable`); every sweep over the data and every small fit asks (`go_on`), so that
loops need not. The question belongs to the thread and its context; a thread that is started meanwhile takes it along with
`contextvars.copy_context`. Nothing that is computed depends on it.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TypeVar

Found = TypeVar("Found")

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("labelchef_stop", default=None)


class StoppedWorkError(BaseException):
    """The computation was told to stop. Not an `Exception`: nothing on the way takes it for an error of its own."""


@contextlib.contextmanager
def stoppable(stop: Callable[[], bool]) -> Iterator[None]:
    """Let what is computed in this block end with a `StoppedWorkError` soon after `stop()` has become true.

    >>> with stoppable(lambda: False):
    ...     go_on()
    """
    token = _asked.set(stop)
    try:
        yield
    finally:
        _asked.reset(token)


def go_on() -> None:
    """Return if the computation should go on."""
    stop = _asked.get()
    if stop is not None and stop():
        raise StoppedWorkError


def waited(work: "Future[Found]") -> Found:
    """The result of what is computed elsewhere; the wait ends if the computation should not go on.

    >>> done: Future[int] = Future()
    >>> done.set_result(3)
    >>> waited(done)
    3
    """
    while True:
        go_on()
        try:
            return work.result(timeout=0.5)
        except TimeoutError:
            if work.done():  # the error of the work itself
                raise
