"""How many threads a sweep uses, and how many BLAS uses meanwhile."""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def thread_count() -> int:
    """Threads for a sweep: `LABELCHEF_THREADS`, else the cores this process may use."""
    wanted = os.environ.get("LABELCHEF_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def priority() -> int:
    """The priority of this thread: Linux has one for each (`services.running.give_way`), other systems one a process."""
    try:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    except (OSError, AttributeError):
        return 0


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class _OneThread:
    """The number of BLAS threads belongs to the process: the first block sets it to one, the last to end sets it back.

    Each is done by a thread that then ends, since threadpoolctl lets no thread change what another living one has set.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._blocks = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._turn:
            self._blocks += 1
            if self._blocks == 1:
                self._do(self._set)

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._blocks -= 1
            if self._blocks == 0:
                self._do(self._limit.restore_original_limits)

    def _set(self) -> None:
        self._limit = _blas().limit(limits=1, user_api="blas")

    @staticmethod
    def _do(work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name="labelchef-blas")
        thread.start()
        thread.join()


_one_thread = _OneThread()


def one_blas_thread() -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread: its threads spin after each small product, on cores that others need."""
    return _one_thread
