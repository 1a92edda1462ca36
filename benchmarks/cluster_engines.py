"""Dask against Ray: one reduction over two long-lived actors, each a process of one core, with the same holder.

A call sends a small matrix to both actors and adds what they return, as a sweep does; and arrays of some sizes are sent there and
back, as labels and logits are. Without a cluster there is no message: the baseline is the same function in this process.
"""

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

SIZES = (12_288, 1 << 20, 1 << 24, 1 << 26)
Call = Callable[[Any], list[Any]]


class Holder:
    """What an actor holds: nothing, so that only the message takes time."""

    def back(self, array: Any) -> Any:
        """The array, as it came."""
        return array


@contextmanager
def with_dask() -> Iterator[Call]:
    """Two actors of Dask, called directly."""
    from labelchef.model.engines.cluster.dask_workers import DaskWorkers, local_cluster

    with local_cluster(workers=2) as processes:
        workers = DaskWorkers(processes.scheduler_address)
        actors = [workers.start(name, Holder) for name in workers.members()]

        def call(array: Any) -> list[Any]:
            answers = [actor.call("back", array) for actor in actors]
            return [answer.result(600) for answer in answers]

        yield call
        workers.close()


@contextmanager
def with_ray() -> Iterator[Call]:
    """Two actors of Ray."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    remote: Any = ray.remote(num_cpus=1)(Holder)
    actors = [remote.remote() for _ in range(2)]
    try:
        yield lambda array: ray.get([actor.back.remote(array) for actor in actors])
    finally:
        ray.shutdown()


@contextmanager
def here() -> Iterator[Call]:
    """No cluster."""
    holders = [Holder(), Holder()]
    yield lambda array: [holder.back(array) for holder in holders]


def main(console: Console, *, quick: bool = False) -> dict[str, float]:
    """Run and print; returns milliseconds of a small call."""
    found: dict[str, float] = {}
    table = Table(title="one call of two actors: median ms (95th percentile); MB/s there and back")
    for column in ("engine", "seconds to start", *(f"{size:,} bytes" for size in SIZES)):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for name, make in (("none: one process", here), ("Dask", with_dask), ("Ray", with_ray)):
        if name == "Ray" and importlib.util.find_spec("ray") is None:
            console.print("Ray is not installed: pip install ray")
            continue
        began = time.perf_counter()
        with make() as call:
            call(np.zeros(8))
            started, shown = time.perf_counter() - began, []
            for size in SIZES[: 2 if quick else None]:
                array, spent = np.arange(size // 8, dtype=np.float64), []
                for _ in range(20 if quick else 200 if size < 1 << 22 else 12):
                    clock = time.perf_counter()
                    total = sum(call(array))
                    spent.append(time.perf_counter() - clock)
                assert np.array_equal(total, 2 * array), "the reduction"
                median, high = 1e3 * np.median(spent), 1e3 * np.quantile(spent, 0.95)
                shown.append(f"{median:.2f} ({high:.2f}); {4 * size / median / 1e3:,.0f}")
                found.setdefault(name, float(median))
            table.add_row(name, f"{started:.1f}", *shown)
    console.print(table)
    return found
