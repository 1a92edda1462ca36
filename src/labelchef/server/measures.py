"""Numbers about the whole workspace, for operators: the same in whichever process they are asked for.

They come from the database, so several web processes and workers on other machines need no common place for them. They are read
at most once a second; the sums over rounds are kept, and only rounds that are new are read.
"""

import shutil
import threading
import time
from dataclasses import dataclass

from labelchef.server.store import measure_table
from labelchef.server.store.measure_table import RoundTotals
from labelchef.server.workspace import Workspace

_KEPT_SECONDS = 1.0


@dataclass(frozen=True)
class Measured:
    """One look."""

    campaigns: dict[str, int]
    """State → campaigns."""
    jobs: dict[str, int]
    """State → jobs."""
    open_leases: int
    rounds: RoundTotals
    disk_free: int


class Measures:
    """The numbers of a workspace."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._lock = threading.Lock()
        self._rounds = RoundTotals()
        self._last: tuple[float, Measured] | None = None

    def look(self) -> Measured:
        """The numbers now, or within the last second."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] >= _KEPT_SECONDS:
                with self._ws.reading() as connection:
                    measure_table.add_closed(connection, self._rounds)
                    found = Measured(
                        measure_table.campaigns_by_state(connection),
                        measure_table.jobs_by_state(connection),
                        measure_table.open_leases(connection),
                        self._rounds,
                        shutil.disk_usage(self._ws.home).free,
                    )
                self._last = time.monotonic(), found
            return self._last[1]
