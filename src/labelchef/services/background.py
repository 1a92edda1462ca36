"""What work in the background shares, of uploads (`services.intake.jobs`) and of campaigns (`services.jobs`)."""

import contextlib
import logging
import os
import sys
import threading

from labelchef.domain.errors import LabelchefError

_log = logging.getLogger("labelchef")
_NICE = 10


def problem_of(error: Exception, what: str) -> str:
    """What people are told of work that failed; an error that nobody expected is logged in full."""
    if isinstance(error, LabelchefError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"{what} needs more memory than the server has; leave out rows or columns, or use a larger machine"
    if isinstance(error, OSError):
        return f"a file cannot be read or written: {error}; check the server's disk and its rights"
    _log.error("%s failed", what, exc_info=error)
    return "the server failed with an unexpected error; the details are in its log"


def give_way() -> None:
    """Let other threads of the machine go first. Linux has a priority for each thread; elsewhere nothing changes."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
