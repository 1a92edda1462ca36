"""What a round costs at 10⁹ × 768 on named hardware: a simulation of the cluster engine, calibrated on processes of this machine.

A sweep is one call: the driver sends a message to every worker, each worker reads its rows, the driver takes the answers.

    worker w begins at        w · s                                     s seconds to send a message
    it computes for           rows · row bytes / bandwidth · noise      noise is log-normal, mean 1
    its answer takes          answer bytes / network                    sums of every part of its rows
    the driver needs          r seconds an answer, one after the other; f seconds a call besides

On this machine p processes share the cores and the memory: their bandwidth is that of one, times min(1, cores / p), times what
is left of it when all cores read. s + r, f, the bandwidth, that share and the noise are measured with 1, 2 and 4 processes and
two sizes. The simulation is then compared with configurations that it was not calibrated on.
"""

import logging
import os
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from distributed import LocalCluster
from rich.console import Console
from rich.table import Table

from labelchef.model.engines import RowLabels
from labelchef.model.engines.cluster import ClusterEngine
from labelchef.model.features import open_features

COLUMNS = 256
PROCESSES, HELD_OUT = (1, 2, 4), ((3, 1.0), (2, 1.5), (4, 1.5))
"""Processes of the calibration; (processes, times the larger size) that are compared."""
REPEATS, TINY = 15, 4096
TARGET_ROWS, TARGET_COLUMNS, SWEEPS = 10**9, 768, 2
"""What is planned for; a round of constructor 'newton' has two sweeps."""


@dataclass(frozen=True)
class Costs:
    """What calibration finds."""

    call: float
    """f, seconds."""
    message: float
    """s + r, seconds a worker."""
    bandwidth: float
    """Bytes a second of one worker alone."""
    shared: float
    """The share of it that a worker has while all cores read."""
    noise: float
    """Standard deviation of the logarithm of a worker's seconds."""


@dataclass(frozen=True)
class Hardware:
    """Workers as they are rented; bandwidths are bytes a second."""

    name: str
    workers: int
    bandwidth: float
    """Of one worker, as its maker states it."""
    reached: float
    """The share of it that a sweep reaches, measured on that kind of machine or on this one."""
    memory: float
    """Bytes for X, of one worker."""
    network: float
    item_bytes: int
    """Of a number in X."""
    price: float
    """Dollars an hour, of one worker: an assumption."""


PLANS = (
    Hardware("16 × H200 (141 GB), float16", 16, 4.8e12, 0.45, 120e9, 50e9, 2, 4.0),
    Hardware("16 × 32 cores, 12 channels DDR5, 192 GB, float16", 16, 460e9, 0.5, 150e9, 3e9, 2, 3.0),
    Hardware("1 × 32 cores with 8 NVMe of 7 GB/s, float16", 1, 56e9, 0.8, 30e12, 3e9, 2, 5.0),
)


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Calibrate, compare, plan; returns the figures."""
    rows = (100_000, 200_000) if quick else (1_000_000, 2_000_000)
    measured: dict[tuple[int, int], list[float]] = {}
    with TemporaryDirectory(prefix="labelchef-plan-") as folder:
        for p in sorted({*PROCESSES, *(p for p, _ in HELD_OUT)}):
            sizes = [TINY, *rows] if p in PROCESSES else [TINY]
            sizes += [int(rows[1] * times) for one, times in HELD_OUT if one == p]
            measured |= {(p, n): found for n, found in _measured(Path(folder), p, sizes).items()}
    costs = calibrated(measured, rows)
    console.print(
        f"calibrated: a call {1e3 * costs.call:.1f} ms, {1e3 * costs.message:.2f} ms a worker, "
        f"{costs.bandwidth / 1e9:.1f} GB/s a worker, {costs.shared:.0%} of it while all cores read, noise {costs.noise:.0%}"
    )
    errors = _compare(console, measured, rows, costs)
    plans = _plan(console, costs)
    return {"errors": errors, "plans": plans}


def calibrated(measured: dict[tuple[int, int], list[float]], rows: tuple[int, int]) -> Costs:
    """The costs from seconds by (processes, rows)."""
    middle = {key: statistics.median(found) for key, found in measured.items()}
    message, call = np.polyfit(PROCESSES, [middle[p, TINY] for p in PROCESSES], 1)
    message, call = max(float(message), 0.0), max(float(call), 0.0)
    nbytes = (rows[1] - rows[0]) * COLUMNS * 4
    bandwidth = nbytes / (middle[1, rows[1]] - middle[1, rows[0]])
    together = [nbytes / (middle[p, rows[1]] - middle[p, rows[0]]) / min(p, cores()) for p in PROCESSES if p > 1]
    spread = [np.std(np.log(measured[p, rows[1]])) for p in PROCESSES]
    return Costs(call, message, bandwidth, float(np.mean(together)) / bandwidth, float(np.mean(spread)))


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def sweep_seconds(
    costs: Costs, workers: int, need: float, answer: float, rng: np.random.Generator, draws: int = 200
) -> float:
    """The median time of a sweep: a worker computes for `need` seconds without noise, its answer takes `answer` on the wire."""
    noise = np.exp(rng.normal(-0.5 * costs.noise**2, costs.noise, size=(draws, workers)))
    half = 0.5 * costs.message
    arrived = np.sort(half * (1 + np.arange(workers)) + need * noise + answer, axis=1)
    done = np.zeros(draws)
    for w in range(workers):  # the driver takes one answer after the other
        done = np.maximum(done, arrived[:, w]) + half
    return float(np.median(done) + costs.call)


def _compare(
    console: Console, measured: dict[tuple[int, int], list[float]], rows: tuple[int, int], costs: Costs
) -> list[float]:
    table = Table(
        title=f"a sweep over n × {COLUMNS} float32 on {cores()} cores: simulated and measured (median of {REPEATS})"
    )
    for column in ("processes", "rows", "simulated ms", "measured ms", "error", "calibrated on it"):
        table.add_column(column, justify="right")
    errors = []
    for p, n in sorted(measured):
        rate = costs.bandwidth * min(1.0, cores() / p) * (costs.shared if p > 1 else 1.0)
        need = n / p * COLUMNS * 4 / rate
        simulated = sweep_seconds(costs, p, need, 0.0, np.random.default_rng([0, p, n]))
        true = statistics.median(measured[p, n])
        known = p in PROCESSES and n in (TINY, *rows)
        error = simulated / true - 1.0
        if not known and n > TINY:
            errors.append(error)
        table.add_row(
            str(p), f"{n:,}", f"{1e3 * simulated:.1f}", f"{1e3 * true:.1f}", f"{error:+.0%}", "yes" if known else "no"
        )
    console.print(table)
    console.print(f"largest error on configurations it was not calibrated on: {max(map(abs, errors)):.0%}")
    return errors


def _plan(console: Console, costs: Costs) -> list[float]:
    table = Table(title=f"a round at {TARGET_ROWS:.0e} × {TARGET_COLUMNS}, two classes, {SWEEPS} sweeps")
    for column in ("hardware", "X", "fits", "GB a worker", "s a sweep", "s a round", "$ a round", "overhead"):
        table.add_column(column, justify="left" if column == "hardware" else "right")
    found = []
    for plan in PLANS:
        nbytes = TARGET_ROWS * TARGET_COLUMNS * plan.item_bytes
        share = nbytes / plan.workers
        parts = max(64, 4 * plan.workers) / plan.workers
        answer = parts * 2 * (TARGET_COLUMNS + 1) * 8 / plan.network
        need = share / (plan.bandwidth * plan.reached)
        quiet = replace(costs, noise=min(costs.noise, 0.1))
        sweep = sweep_seconds(quiet, plan.workers, need, answer, np.random.default_rng(0))
        seconds = SWEEPS * sweep
        price = seconds * plan.price * plan.workers / 3600
        table.add_row(
            plan.name, f"{nbytes / 1e12:.2f} TB", "yes" if share <= plan.memory else "NO", f"{share / 1e9:.0f}", f"{sweep:.2f}",
            f"{seconds:.2f}", f"{price:.4f}", f"{1 - need / sweep:.0%}",
        )  # fmt: skip
        found.append(seconds)
    console.print(table)
    return found


def _measured(folder: Path, processes: int, sizes: list[int]) -> dict[int, list[float]]:
    """Seconds of sweeps by number of rows, on processes of this machine that read their rows from a file, then keep them."""
    rng, found = np.random.default_rng(0), {}
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # the engine's connection outlives the cluster
    made: Any = LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None, memory_limit=0)  # type: ignore[no-untyped-call]
    with made as cluster:
        for n in sizes:
            path = folder / f"{n}.npy"
            if not path.exists():
                block = rng.standard_normal((min(n, 100_000), COLUMNS), dtype=np.float32)
                written = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, COLUMNS))
                for start in range(0, n, len(block)):
                    written[start : start + len(block)] = block[: n - start]
                del written
            engine = ClusterEngine(open_features(path), bias=True, cluster=cluster.scheduler_address, engine="memory")
            labels = RowLabels(np.full((n, 2), 0.5), np.ones(n))
            W, V = rng.normal(size=(2, 1, COLUMNS + 1))
            times = []
            for _ in range(REPEATS + 2):
                began = time.perf_counter()
                engine.sweep(labels, W=W, V=V, gradient=True, hessian_product=True)
                times.append(time.perf_counter() - began)
            found[n] = times[2:]
            del engine
    return found
