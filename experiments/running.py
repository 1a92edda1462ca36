"""Cells in a pool of processes, with progress; what is finished is kept, what fails is told and does not stop the rest."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.cells import Cell, run_cell
from experiments.store import CellStore, Result

THREADS = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
TIMED = ("selection", "construction")
"""Kinds of cells that measure time: they run one at a time, with all threads."""


@dataclass
class Outcome:
    """What became of the cells."""

    results: dict[str, Result] = field(default_factory=dict)
    failures: list[tuple[Cell, str]] = field(default_factory=list)


def run_cells(cells: Sequence[Cell], store: CellStore, *, jobs: int, console: Console) -> Outcome:
    """Run the cells that are not finished yet; an interrupt leaves those that are."""
    outcome = Outcome(store.finished(cells))
    missing = list({cell.key: cell for cell in cells if cell.key not in outcome.results}.values())
    if outcome.results:
        console.print(f"{len(outcome.results)} cells were finished before", style="dim")
    for processes, threads, part in (
        (jobs, 1, [cell for cell in missing if cell.kind not in TIMED]),
        (1, jobs, [cell for cell in missing if cell.kind in TIMED]),
    ):
        if part:
            _run(part, store, outcome, processes, threads, console)
    return outcome


def _run(cells: list[Cell], store: CellStore, outcome: Outcome, processes: int, threads: int, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left:"),
               TimeRemainingColumn(compact=True))  # fmt: skip
    with _pool(processes, threads) as pool, Progress(*columns, console=console) as progress:
        task = progress.add_task(cells[0].experiment, total=len(cells))
        futures: dict[Future[Any], Cell] = {pool.submit(run_cell, cell): cell for cell in cells}
        for future in as_completed(futures):
            cell = futures[future]
            try:
                result = future.result()
            except BrokenProcessPool:
                lost = [cell for cell in cells if cell.key not in outcome.results]
                outcome.failures += [(cell, "its process ended") for cell in lost]
                progress.console.print(
                    f"a process ended (out of memory?): {len(lost)} cells are left undone", style="red"
                )
                return
            except Exception as error:  # of any kind: it is told, and the others go on
                outcome.failures.append((cell, f"{type(error).__name__}: {error}"))
                progress.console.print(f"failed: {cell}: {type(error).__name__}: {error}", style="red")
            else:
                store.add(result)
                outcome.results[cell.key] = result
            progress.update(task, advance=1, description=cell.experiment)


@contextmanager
def _pool(processes: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that start with so many threads each; they end at once when interrupted."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update({name: str(threads) for name in THREADS})
    context = multiprocessing.get_context("spawn")  # threads are counted when numba and BLAS are loaded
    pool = ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_begin,
    )
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin() -> None:
    """A process that ends at once when interrupted, and has compiled what campaigns need before it measures any."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    small = {"gamma": 0.8, "l2": 0.01, "n_train": 100, "n_test": 100}
    run_cell(Cell("", "digits", 0, selector="increm_infl", labels=20, look_ahead=True, **small))  # type: ignore[arg-type]


_ROUND, _START = 0.03, 0.15
_SLOW = {"duti": 0.08, "o2u": 0.07, "cleanlab_quality": 0.02, "active_lab": 0.65, "tars": 0.02}
_KINDS = {"selection": 25.0, "construction": 60.0, "tsne": 8.0, "network": 15.0, "peer": 4.0, "board": 6.0}


def estimated_seconds(cells: Sequence[Cell], jobs: int) -> float:
    """A rough figure for a machine of two cores, from the seconds a round that selectors were seen to take."""
    total = 0.0
    for cell in cells:
        rounds = -(-cell.labels // cell.b)
        size = cell.n_train / 3000 * (3 if cell.data == "cifar10n" else 1)  # ten classes
        campaign = _START + rounds * (_ROUND + _SLOW.get(cell.selector, 0.0)) * size
        total += _KINDS.get(cell.kind, campaign) / (1 if cell.kind in TIMED else jobs)
    return total
