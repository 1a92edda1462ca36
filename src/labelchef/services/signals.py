"""The signal by which threads of one process hear of a change."""

import threading


class Signal:
    """A count of changes that threads can wait on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ticks = 0

    def notify(self) -> None:
        """Wake the threads that wait: something changed."""
        with self._changed:
            self._ticks += 1
            self._changed.notify_all()

    def ticks(self) -> int:
        """How often `notify` was called."""
        with self._changed:
            return self._ticks

    def sleep(self, seconds: float, since: int | None = None) -> None:
        """Wait until something changes (after tick `since`), at most `seconds`."""
        with self._changed:
            known = self._ticks if since is None else since
            self._changed.wait_for(lambda: self._ticks != known, timeout=max(0.0, seconds))
