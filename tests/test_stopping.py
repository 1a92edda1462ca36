"""Work that is told to stop: nothing more is computed, wherever it is told."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelchef.base import stopping_work
from labelchef.base.settings import Settings
from labelchef.base.stopping_work import StoppedWorkError, stoppable
from labelchef.believe import evidence
from labelchef.loop.start import new_session
from labelchef.model.dense_fits import DenseRows
from labelchef.model.engines.host import HostEngine
from labelchef.model.engines.memory import MemoryEngine
from labelchef.model.engines.threads import priority
from labelchef.server.running import give_way
from tests.store_support import small_data


class Counted:
    """Counts pieces of work, and tells them to stop inside the piece of a given number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces: list[str] = []
        self.stop_in = 10**9
        places: list[tuple[Any, str]] = [
            (MemoryEngine, "_sweep"),
            (HostEngine, "_add_gram"),
            (DenseRows, "fit"),
        ]
        for owner, name in places:
            monkeypatch.setattr(owner, name, self._wrapped(name, getattr(owner, name)))
        monkeypatch.setattr(evidence, "by_threads", self._wrapped("by_threads", evidence.by_threads))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            if stopping_work._asked.get() != self.stopped:  # a thread that an earlier test has left behind
                return real(*given, **named)
            if self.stopped():
                # told before this piece began: it must not compute, so what it asks first ends it
                with pytest.raises(StoppedWorkError):
                    real(*given, **named)
                raise StoppedWorkError
            self.pieces.append(name)
            return real(*given, **named)

        return counted

    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return len(self.pieces) >= self.stop_in


def test_a_first_fit_stops_in_every_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data, settings = small_data(), Settings(batch_size=3, budget=6)
    counted = Counted(monkeypatch)
    with stoppable(counted.stopped):
        new_session(data, settings).start()
    kinds, total = list(dict.fromkeys(counted.pieces)), len(counted.pieces)
    assert {"_sweep", "fit", "by_threads"} <= set(kinds)
    first = {kind: counted.pieces.index(kind) + 1 for kind in kinds}
    for at in sorted({*first.values(), total // 2, total - 1}):
        counted.pieces.clear()
        counted.stop_in = at
        with stoppable(counted.stopped), pytest.raises(StoppedWorkError):
            new_session(data, settings).start()
        assert len(counted.pieces) == at, f"{len(counted.pieces) - at} pieces of work after the stop in piece {at}"


def test_a_gram_stops_at_its_next_block() -> None:
    engine = MemoryEngine(np.random.default_rng(0).normal(size=(5000, 40)), bias=True)
    with stoppable(lambda: True), pytest.raises(StoppedWorkError):
        engine.gram(np.ones(5000))


def test_threads_of_sweeps_have_the_priority_of_the_work(tmp_path: Path) -> None:
    engine = MemoryEngine(np.zeros((100, 3)), bias=False)
    mine, others = priority(), []

    def low() -> None:
        give_way()
        others.append(priority())
        others.append(engine._threads().submit(priority).result())

    thread = threading.Thread(target=low)
    thread.start()
    thread.join()
    assert others[0] == others[1]
    assert engine._threads().submit(priority).result() == mine, "what gave way does not slow later work down"
