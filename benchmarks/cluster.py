"""Two workers of one core each against one process of two threads; what a round costs beyond its sweeps; rows and workers.

X is made by whoever holds it, block by block from a seed: no second copy, no network. The limit is the bandwidth of memory,
measured in the same run by reading X: a sweep reads it once. Without a cluster, the user has the process of two threads.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from labelchef.base.records import Decisions, Votes
from labelchef.chef.choice import make_selector
from labelchef.chef.constructors import make_constructor
from labelchef.loop.judging import Split
from labelchef.loop.session import Session
from labelchef.model.engines import Engine, MemoryEngine, RowLabels
from labelchef.model.engines.cluster import ClusterEngine
from labelchef.model.engines.cluster.dask_workers import DaskWorkers, local_cluster
from labelchef.model.features import Features
from labelchef.model.features.reading import Buffers
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective

L2, GAMMA, N_VAL, BATCH = 0.01, 0.8, 500, 10
CHART = Path("experiments/results/cluster-cost.svg")
_BLOCK = 2048
_TARGET = 0.85


class MadeFeatures(Features):
    """Rows that are made when they are read: the same numbers in every process."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__((rows, columns), np.dtype(np.float32), "X made from a seed")

    def check(self) -> None:
        """See `Features.check`: nothing can be missing."""

    def _read(self, first: int, last: int, buffers: Buffers) -> Any:  # noqa: ARG002
        found = np.empty((last - first, self.shape[1]), dtype=np.float32)
        for block in range(first // _BLOCK, -(-last // _BLOCK)):
            start, stop = max(first, block * _BLOCK), min(last, (block + 1) * _BLOCK)
            rng = np.random.default_rng([7, block])
            made = rng.standard_normal((_BLOCK, self.shape[1]), dtype=np.float32)
            made[:, 0] += np.sign(made[:, 1])  # the class shows in the first columns
            found[start - first : stop - first] = made[start - block * _BLOCK : stop - block * _BLOCK]
        return found


class FewWorkers(DaskWorkers):
    """Some of the workers of a cluster."""

    def __init__(self, address: str, count: int) -> None:
        super().__init__(address)
        self._count = count

    def members(self) -> dict[str, int]:
        """The first of them."""
        return dict(sorted(super().members().items())[: self._count])


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for the sweeps of this process."""
    before = os.environ.get("LABELCHEF_THREADS")
    os.environ["LABELCHEF_THREADS"] = str(count)
    try:
        yield
    finally:
        del os.environ["LABELCHEF_THREADS"]
        if before is not None:
            os.environ["LABELCHEF_THREADS"] = before


def median_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Of some calls, after one that is not counted."""
    found = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return float(np.median(found[1:]))


def bandwidth(X: Any, repeats: int = 3) -> float:
    """Bytes a second at which two threads read X."""
    flat, pool = X.reshape(-1), ThreadPoolExecutor(2)
    parts = np.array_split(flat, 64)
    seconds = median_seconds(lambda: sum(pool.map(lambda part: float(np.dot(part, part)), parts)), repeats)
    pool.shutdown()
    return float(X.nbytes / seconds)


def sweep_seconds(engine: Engine, repeats: int) -> float:
    """A sweep with everything on it."""
    rng = np.random.default_rng(3)
    n, D = engine.n_rows, engine.n_columns
    labels = RowLabels(np.full((n, 2), 0.5), np.full(n, GAMMA))
    W, V = rng.normal(size=(2, 1, D)) / np.sqrt(D)
    return median_seconds(partial(engine.sweep, labels, W=W, V=V, gradient=True, hessian_product=True), repeats)


def rounds(engine: Engine, X_val: Any, count: int) -> tuple[float, list[list[int]]]:
    """Median seconds of a round (selection and update), the first aside, and what was chosen."""
    n, y_val = engine.n_rows, (X_val[:, 1] > 0).astype(np.int64)
    rng = np.random.default_rng(5)
    weak = rng.dirichlet([1.0, 1.0], n)
    table = LabelTable(weak, GAMMA)
    session = Session(
        objective=Objective(engine, table.rows, L2),
        labels=table,
        steering=Split(X_val, y_val, 2, bias=True),
        judging=None,
        test=None,
        selector=make_selector("expected_infl", look_ahead=True),
        constructor=make_constructor("newton"),
        seed=0,
    )
    session.start()
    spent, chosen = [], []
    for _ in range(count + 1):
        began = time.perf_counter()
        batch = session.select(BATCH)
        y = (engine.rows(batch.indices)[:, 1] > 0).astype(np.int64)
        session.decide(batch, Votes.of([("truth", batch.indices, y)]), Decisions.sure(batch.indices, y))
        spent.append(time.perf_counter() - began)
        chosen.append(batch.indices.tolist())
    return float(np.median(spent[1:])), chosen


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    n, d = (20_000, 64) if quick else (2_000_000, 768)
    several = (5_000, 10_000, 20_000) if quick else (62_500, 125_000, 250_000, 500_000)
    repeats, count = (2, 2) if quick else (5, 5)
    X_val = MadeFeatures(N_VAL, d).loaded().array
    with threads(2):
        X = MadeFeatures(n, d).loaded().array
        limit = bandwidth(X)
        one = {"sweep": sweep_seconds(MemoryEngine(X, bias=True), repeats)}
        one["round"], chosen = rounds(MemoryEngine(X, bias=True), X_val, count)
        del X
        small = rounds(MemoryEngine(MadeFeatures(2000, 8).loaded().array, bias=True), X_val[:, :8], 2 * count)[0]
    with local_cluster(workers=4) as processes:
        two_workers = FewWorkers(processes.scheduler_address, 2)
        engine = ClusterEngine(MadeFeatures(n, d), bias=True, cluster=two_workers)
        two = {"sweep": sweep_seconds(engine, repeats)}
        two["round"], chosen_there = rounds(engine, X_val, count)
        pace = engine.pace()
        del engine
        tiny = ClusterEngine(MadeFeatures(2000, 8), bias=True, cluster=two_workers)
        small_there = rounds(tiny, X_val[:, :8], 2 * count)[0]
        overhead = 1e3 * (small_there - small)
        two_workers.close()
        costs = _costs(processes, several, d, repeats)
    table = Table(title=f"{n:,} × {d} float32, two cores; memory is read at {limit / 1e9:.1f} GB/s in the same run")
    for column in ("", "one process, two threads, s", "two workers, one core each, s", "speed", "of the bandwidth"):
        table.add_column(column, justify="left" if not column else "right")
    for name in ("sweep", "round"):
        share = f"{n * d * 4 / two[name] / limit:.0%}" if name == "sweep" else ""
        table.add_row(name, f"{one[name]:.3f}", f"{two[name]:.3f}", f"{one[name] / two[name]:.2f}", share)
    console.print(table)
    equal = sum(a == b for a, b in zip(chosen, chosen_there, strict=True))
    console.print(
        f"rounds whose samples are equal: {equal} of {len(chosen)}; target for the speed: {_TARGET}; "
        f"slowest worker against the median: {0.0 if pace is None else pace.lag:.2f}"
    )
    console.print(
        f"overhead of a round: {overhead:.0f} ms ({1e3 * small_there:.0f} ms on an almost empty X, {1e3 * small:.0f} ms in "
        "one process)\n"
    )
    table = Table(title="a sweep in milliseconds, by rows and workers of one core")
    for column in ("rows", *(f"{workers} workers" for workers in (1, 2, 4)), "limit: reading X once"):
        table.add_column(column, justify="right")
    for rows in several:
        shown = [f"{1e3 * costs[rows, workers]:.1f}" for workers in (1, 2, 4)]
        table.add_row(f"{rows:,}", *shown, f"{1e3 * rows * d * 4 / limit:.1f}")
    console.print(table)
    if not quick:
        _chart(costs, d, limit)
        console.print(f"chart: {CHART}")
    return {
        "sweep": one["sweep"] / two["sweep"],
        "round": one["round"] / two["round"],
        "overhead_ms": overhead,
        "equal": equal,
    }


def _costs(processes: Any, several: tuple[int, ...], d: int, repeats: int) -> dict[tuple[int, int], float]:
    """(rows, workers) → seconds of a sweep."""
    found = {}
    for workers in (1, 2, 4):
        few = FewWorkers(processes.scheduler_address, workers)
        for rows in several:
            engine = ClusterEngine(MadeFeatures(rows, d), bias=True, cluster=few)
            found[rows, workers] = sweep_seconds(engine, repeats)
            del engine
        few.close()
    return found


def _chart(costs: dict[tuple[int, int], float], d: int, limit: float) -> None:
    import altair as alt
    import pandas as pd

    measured = [{"rows": rows, "ms": 1e3 * s, "what": f"{workers} workers"} for (rows, workers), s in costs.items()]
    bound = [{"rows": rows, "ms": 1e3 * rows * d * 4 / limit, "what": "limit: memory"} for rows, _ in costs]
    frame = pd.DataFrame([*measured, *bound]).drop_duplicates()
    chart = (
        alt.Chart(frame, width=460, height=280)
        .mark_line(point=True)
        .encode(
            alt.X("rows:Q").scale(type="log").title(f"rows of {d} float32"),
            alt.Y("ms:Q").scale(type="log").title("milliseconds a sweep"),
            alt.Color("what:N").title(None),
            alt.StrokeDash("what:N").title(None),
        )
    )
    CHART.parent.mkdir(parents=True, exist_ok=True)
    chart.save(str(CHART))
