"""Small work that is asked for again and again: recorded once as a CUDA graph, then replayed by a single launch.

A solve with the factor, or a sweep over a few hundred validation rows, is some twenty kernels of a few microseconds each;
launching them one by one takes ten times as long as they run. On a device without graphs the work is simply done.
"""

import gc
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

_KEPT = 8  # recordings at a time; the oldest goes first
_RECORDING = threading.Lock()  # one at a time
_WORTHWHILE = 2  # calls before a recording is made: what changes at every call never pays for one


@dataclass
class _Entry:
    """Calls so far; once recorded, the graph with the places it reads from and writes to."""

    owners: tuple[Any, ...]
    """What the recording refers to, kept alive: its addresses are part of it."""
    calls: int = 0
    graph: Any = None
    source: Any = None
    results: tuple[Any, ...] = field(default=())
    hopeless: bool = False
    """Whether recording failed."""


class Recorder:
    """Replays work on a device. Results lie where the next call, of whatever key, may write: use or copy them first."""

    def __init__(self, device: torch.device) -> None:
        self._records = device.type == "cuda"
        self._entries: dict[Hashable, _Entry] = {}
        self._pool: Any = None

    def run(
        self, key: Hashable, owners: tuple[Any, ...], work: Callable[[Any], tuple[Any, ...]], argument: Any
    ) -> tuple[Any, ...]:
        """work(argument), which launches kernels and waits for none; the key says what work it is, for these owners."""
        if not self._records:
            return work(argument)
        key = (key, tuple(id(owner) for owner in owners))
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(owners)
            while len(self._entries) > _KEPT:
                self._entries.pop(next(iter(self._entries)))
        entry.calls += 1
        if entry.calls > _WORTHWHILE and entry.graph is None and not entry.hopeless:
            self._record(entry, work, argument)
        if entry.graph is None:
            return work(argument)
        entry.source.copy_(argument)
        entry.graph.replay()
        return entry.results

    def _record(self, entry: _Entry, work: Callable[[Any], tuple[Any, ...]], argument: Any) -> None:
        """If it cannot be recorded, it is done step by step from now on."""
        entry.source, graph = argument.clone(), torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        with _RECORDING, torch.cuda.stream(stream), _nothing_thrown_away():
            try:
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                results = work(entry.source)
                graph.capture_end()
            except BaseException as error:
                entry.hopeless, self._pool = True, None  # a pool that a failed recording wrote to takes no other
                with suppress(RuntimeError):
                    graph.capture_end()
                if not isinstance(error, RuntimeError):
                    raise
                return
        entry.graph, entry.results = graph, results


@contextmanager
def _nothing_thrown_away() -> Iterator[None]:
    """No garbage is collected meanwhile: a recording of former days among it would spoil this one as it goes."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
