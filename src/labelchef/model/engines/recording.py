"""Small work that is repeated often: recorded once as a CUDA graph, then run by a single launch.

A solve with the factor, or a sweep over a few hundred validation rows, is some twenty kernels of a few microseconds each;
launching them one by one takes ten times as long as they run. On a device without graphs the work runs step by step.
"""

import gc
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

_KEPT = 8  # recordings at a time; the oldest is dropped first
_RECORDING = threading.Lock()  # one at a time
_WORTHWHILE = 2  # calls before a recording is made, so that work that changes at every call is not recorded


@dataclass
class _Entry:
    """Calls so far; once recorded, the graph with its input and its results."""

    owners: tuple[Any, ...]
    """The tensors that the recording uses, kept alive: their addresses are part of it."""
    calls: int = 0
    graph: Any = None
    source: Any = None
    results: tuple[Any, ...] = field(default=())
    hopeless: bool = False
    """Whether recording failed."""


class Recorder:
    """Records and repeats work on a device. Any later call may overwrite the results: use or copy them first."""

    def __init__(self, device: torch.device) -> None:
        self._records = device.type == "cuda"
        self._entries: dict[Hashable, _Entry] = {}
        self._pool: Any = None

    def run(
        self, key: Hashable, owners: tuple[Any, ...], work: Callable[[Any], tuple[Any, ...]], argument: Any
    ) -> tuple[Any, ...]:
        """work(argument), which launches kernels and does not wait for them; `key` and `owners` identify the work."""
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
        """Record the work. If that fails, it runs step by step from then on."""
        entry.source, graph = argument.clone(), torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        with _RECORDING, torch.cuda.stream(stream), _no_garbage_collection():
            try:
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                results = work(entry.source)
                graph.capture_end()
            except BaseException as error:
                entry.hopeless, self._pool = True, None  # the pool of a failed recording cannot be used again
                with suppress(RuntimeError):
                    graph.capture_end()
                if not isinstance(error, RuntimeError):
                    raise
                return
        entry.graph, entry.results = graph, results


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Garbage collection is off: an old recording that is freed now would make this one fail."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
