"""Out of core: a sweep, the first model and whole rounds over a file larger than memory, against the disk's bandwidth.

    python -m benchmarks disk --folder DIR                    20,000,000 × 768 float16, 30.7 GB
    python -m benchmarks disk --folder DIR --rows 200000   a small run; without --folder: in a folder that is then removed

The file is made once, by the recipe of `benchmarks.shapes` (the noise of a row is one of 65,536 rows of noise, moved from block
to block), in blocks: a run that was interrupted goes on. Every step runs in a process of its own, whose largest memory it
reports, prints what it found, and keeps it in `FOLDER/disk-ROWS.json`; a later run repeats only the steps that are missing
(remove that file to repeat all). Bandwidth is that of plain reads of 8 GB, spread over the same file, past the page cache, by
the number of parallel reads that is fastest, measured before every step that is compared with it, and after the rounds, too.
The baseline is what one has without an engine for files: `np.memmap` and the memory engine.
"""

import argparse
import concurrent.futures
import json
import mmap
import multiprocessing
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.gpu import BATCH, GAMMA, L2, decide
from benchmarks.shapes import FACTORS, NOISE
from labelchef.chef.choice import make_selector
from labelchef.chef.constructors import make_constructor
from labelchef.loop.judging import Split
from labelchef.loop.session import Session
from labelchef.model.engines import Engine, MemoryEngine, RowLabels
from labelchef.model.engines.streaming import StreamingEngine
from labelchef.model.features import open_features
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective

ROWS, SMALL, SLICE = 20_000_000, 200_000, 500_000
ROUNDS, SELECTOR, TOL = 2, "expected_infl", 1e-5
COLUMNS, CLASSES, N_VAL = 768, 2, 1000
_BLOCK = 1 << 16  # rows made at a time


def make_file(path: Path, rows: int, seed: int = 0) -> Path:
    """Write X (rows, 768) float16, unless it is there; blocks that are there are not made again."""
    header = _header(rows)
    size = len(header) + rows * COLUMNS * 2
    done = path.with_suffix(".done")
    finished = {int(line) for line in done.read_text().split()} if done.exists() else set()
    wanted = [k for k in range(-(-rows // _BLOCK)) if k not in finished]
    if path.exists() and path.stat().st_size == size and not wanted:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    recipe, turn = _Recipe(seed), threading.Lock()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, size)
        os.pwrite(descriptor, header, 0)

        def write(block: int) -> None:
            X = recipe.block(block)[: rows - block * _BLOCK]
            os.pwrite(descriptor, X.tobytes(), len(header) + block * _BLOCK * COLUMNS * 2)
            with turn, done.open("a") as stream:
                stream.write(f"{block}\n")

        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(write, wanted))
    finally:
        os.close(descriptor)
    return path


def _header(rows: int) -> bytes:
    text = repr({"descr": "<f2", "fortran_order": False, "shape": (rows, COLUMNS)})
    text = text.ljust(4096 - 11) + "\n"  # rows begin at a page
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


class _Recipe:
    """Blocks of X and their classes; block k is the same whoever makes it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self._seed = seed
        self._mixing = (rng.normal(size=(FACTORS, COLUMNS)) / np.sqrt(1.0 + np.arange(FACTORS))[:, None]).astype(
            np.float32
        )
        self._noise = (NOISE * rng.standard_normal((_BLOCK, COLUMNS), dtype=np.float32)).astype(np.float32)
        self._scale = (1.0 / np.sqrt((self._mixing**2).sum(axis=0) + NOISE**2)).astype(np.float32)
        self._centres = np.zeros((CLASSES, FACTORS), dtype=np.float32)
        for c in range(CLASSES):
            self._centres[c, c // 2] = 1 - 2 * (c % 2)

    def labels(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Classes y (rows,) and weak labels (rows, 2): half of a weak label is noise."""
        y = np.concatenate([self.classes(k) for k in range(-(-rows // _BLOCK))])[:rows]
        weak = np.random.default_rng([self._seed, 4]).dirichlet(np.ones(CLASSES), rows)
        return y, 0.5 * weak + 0.5 * np.eye(CLASSES)[y]

    def classes(self, block: int) -> np.ndarray:
        return np.random.default_rng([self._seed, 2, block]).integers(0, CLASSES, _BLOCK)

    def block(self, block: int) -> np.ndarray:
        """(65,536, 768) float16."""
        rng, y = np.random.default_rng([self._seed, 3, block]), self.classes(block)
        Z = self._centres[y] + rng.standard_normal((_BLOCK, FACTORS), dtype=np.float32)
        shift, X = int(rng.integers(_BLOCK)), np.empty((_BLOCK, COLUMNS), dtype=np.float16)
        for start in range(0, _BLOCK, 2048):
            part = Z[start : start + 2048] @ self._mixing
            moved = (start + shift) % _BLOCK
            first = min(2048, _BLOCK - moved)
            part[:first] += self._noise[moved : moved + first]
            part[first:] += self._noise[: 2048 - first]
            part *= self._scale
            X[start : start + 2048] = part
        return X

    def trusted(self) -> tuple[np.ndarray, np.ndarray]:
        """Samples of a block that is not in the file."""
        last = 1 << 30
        return self.block(last)[:N_VAL].astype(np.float32), self.classes(last)[:N_VAL]


def main(console: Console, *, quick: bool = False, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Run and print; returns the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks disk")
    parser.add_argument(
        "--folder", type=Path, help="where the file is kept; without it, a small one is made for a while"
    )
    parser.add_argument("--rows", type=int, help="rows of the file")
    options = parser.parse_args(arguments)
    if options.folder is not None:
        return _run(console, options.folder, options.rows or ROWS)
    with tempfile.TemporaryDirectory(prefix="labelchef-disk-") as made:
        return _run(console, Path(made), options.rows or (20_000 if quick else SMALL))


def _run(console: Console, folder: Path, n: int) -> dict[str, Any]:
    path, kept = folder / f"x{n}.npy", folder / f"disk-{n}.json"
    began = time.perf_counter()
    make_file(path, n)
    console.print(
        f"{n:,} × {COLUMNS} float16, {path.stat().st_size / 1e9:.1f} GB; made in {time.perf_counter() - began:.0f} s"
    )
    figures: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    steps: dict[str, Callable[[Path, int], dict[str, Any]]] = {
        "sweep": _sweep, "memory map": _mapped, "rounds": _rounds, "fidelity": _fidelity,
    }  # fmt: skip
    for name, step in steps.items():
        if name not in figures:
            figures[name] = _apart(step, path, n)
            kept.write_text(json.dumps(figures, indent=1))
        console.print(f"{name}: {json.dumps(figures[name])}")
    console.print(_table(figures, n))
    return figures


def _apart(step: Callable[[Path, int], dict[str, Any]], path: Path, rows: int) -> dict[str, Any]:
    """A step in a new process, so that its largest memory is its own."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_measured, step, path, rows).result()


def _measured(step: Callable[[Path, int], dict[str, Any]], path: Path, rows: int) -> dict[str, Any]:
    found = step(path, rows)
    return {**found, "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}


def bandwidth(path: Path, most: int = 8_000_000_000) -> dict[str, float]:
    """10⁹ bytes a second of plain reads past the page cache, in pieces of 128 MB that are spread over the whole file.

    An eighth each is read by 1, 2, 4 and 8 reads of 16 MB at a time; the rest by the number that was fastest.
    """
    size, block = path.stat().st_size, 16 << 20
    piece = 8 * block
    begins = [k * piece for k in range(max(1, size // piece))]
    begins = begins[:: max(1, size // most)]
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:  # a file system without it
        descriptor = os.open(path, os.O_RDONLY)
    buffers = [mmap.mmap(-1, block) for _ in range(8)]

    def read(readers: int, some: list[int]) -> float:
        offsets = [begin + k * block for begin in some for k in range(8)]

        def work(k: int) -> int:
            return sum(os.preadv(descriptor, [buffers[k]], offset) for offset in offsets[k::readers] if offset < size)

        clock = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(readers) as pool:
            count = sum(pool.map(work, range(readers)))
        return count / (time.perf_counter() - clock) / 1e9

    try:
        found = {readers: read(readers, begins[k::8] or begins) for k, readers in enumerate((1, 2, 4, 8))}
        best = max(found, key=found.__getitem__)
        rest = [begin for k, begin in enumerate(begins) if k % 8 > 3]
        rate = read(best, rest or begins)
    finally:
        os.close(descriptor)
    return {"reads at once": best, "GB/s": rate}


def _warm(*, mapped: bool = False) -> None:
    """Compile what is measured."""
    few = np.zeros((64, COLUMNS), dtype=np.float16)
    few.setflags(write=not mapped)  # another type to the compiler
    labels = RowLabels(np.full((64, CLASSES), 0.5), np.ones(64))
    W = np.zeros((CLASSES - 1, COLUMNS + 1))
    one = MemoryEngine(few, bias=True)
    for roughly in (False, True):
        one.sweep(labels, W=W, V=W, gradient=True, hessian_product=True, roughly=roughly)


def _one_sweep(engine: Engine) -> float:
    labels = RowLabels(np.full((engine.n_rows, CLASSES), 0.5), np.full(engine.n_rows, GAMMA))
    W, V = np.random.default_rng(1).normal(size=(2, CLASSES - 1, COLUMNS + 1)) / np.sqrt(COLUMNS)
    clock = time.perf_counter()
    engine.sweep(labels, W=W, V=V, gradient=True, hessian_product=True)
    return time.perf_counter() - clock


def _sweep(path: Path, rows: int) -> dict[str, Any]:
    """One sweep with everything on it."""
    _warm()
    disk, engine = bandwidth(path), StreamingEngine(open_features(path), bias=True)
    seconds = _one_sweep(engine)
    rate = engine.passes[-1].bytes / seconds / 1e9
    return {"disk": disk, "seconds": seconds, "GB/s": rate, "of the disk": rate / disk["GB/s"], "rows": rows}


def _mapped(path: Path, rows: int) -> dict[str, Any]:
    """The baseline: a memory map under the memory engine, which reads float16 too; the system decides what is read when."""
    _warm(mapped=True)
    disk, X = bandwidth(path), open_features(path)
    with path.open("rb") as stream:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = np.load(path, mmap_mode="r")
    seconds = _one_sweep(MemoryEngine(mapped, bias=True))
    rate = X.nbytes / seconds / 1e9
    return {"disk": disk, "seconds": seconds, "GB/s": rate, "of the disk": rate / disk["GB/s"], "rows": rows}


def _session(engine: Engine, recipe: _Recipe, weak: np.ndarray) -> Session:
    X_val, y_val = recipe.trusted()
    table = LabelTable(weak, GAMMA)
    return Session(
        objective=Objective(engine, table.rows, L2),
        labels=table,
        steering=Split(X_val, y_val, CLASSES, bias=True, engine=MemoryEngine),
        judging=None,
        test=None,
        selector=make_selector(SELECTOR, look_ahead=True),
        constructor=make_constructor("newton", tol=TOL),
        seed=0,
    )


def _rounds(path: Path, rows: int) -> dict[str, Any]:
    """The first model, then rounds of query and update."""
    _warm()
    recipe = _Recipe(0)
    y, weak = recipe.labels(rows)
    engine = StreamingEngine(open_features(path), bias=True)
    session = _session(engine, recipe, weak)
    before_all, found = bandwidth(path), dict[str, Any]()

    def note(name: str, work: Callable[[], Any]) -> Any:
        before, clock = engine.spent(), time.perf_counter()
        made = work()
        seconds, spent = time.perf_counter() - clock, engine.spent().since(before)
        found[name] = {
            "seconds": seconds, "passes": spent.bytes_read / (rows * COLUMNS * 2), "sweeps": spent.sweeps,
            "GB/s": spent.bytes_read / seconds / 1e9, "seconds reading": spent.read_seconds,
        }  # fmt: skip
        print(f"  {name}: {json.dumps(found[name])}", flush=True)
        return made

    def one_round() -> None:
        batch = session.select(BATCH)
        decide(session, batch, y[batch.indices])

    note("first model", session.start)
    for k in range(ROUNDS):
        note(f"round {k + 1}", one_round)
    after_all = bandwidth(path)
    rate = 0.5 * (before_all["GB/s"] + after_all["GB/s"])
    for one in found.values():
        one["of the disk"] = one["GB/s"] / rate
    found["disk"] = {"GB/s": rate, "before": before_all, "after": after_all}
    found["seconds of each pass"] = [round(one.seconds, 2) for one in engine.passes]
    return found


def _fidelity(path: Path, rows: int) -> dict[str, Any]:
    """The first rows of the file, streamed and in memory: the same samples chosen?"""
    n = min(rows, SLICE)
    recipe, X = _Recipe(0), open_features(path).part(0, n)
    y, weak = recipe.labels(n)
    engines = StreamingEngine(X, bias=True), MemoryEngine(X.loaded(), bias=True)
    sessions, equal, asked = [_session(engine, recipe, weak) for engine in engines], 0, 0
    for session in sessions:
        session.start()
    for _ in range(ROUNDS):
        batches = [session.select(BATCH) for session in sessions]
        equal += int(np.isin(batches[0].indices, batches[1].indices).sum())
        asked += len(batches[1].indices)
        for session, batch in zip(sessions, batches, strict=True):
            decide(session, batch, y[batch.indices])
    W = [session.parameters for session in sessions]
    moved = float(np.linalg.norm(W[0] - W[1]) / np.linalg.norm(W[1]))
    return {
        "rows": n,
        "chosen alike": equal,
        "of": asked,
        "relative distance of W": moved,
        "sampled every": engines[0].factor_step,
    }


def _table(figures: dict[str, Any], rows: int) -> Table:
    alike = figures["fidelity"]
    same = f"{alike['chosen alike']} of {alike['of']} samples chosen as in memory on {alike['rows']:,} rows"
    table = Table(title=f"{rows:,} × {COLUMNS} float16, {rows * COLUMNS * 2 / 1e9:.1f} GB; {same}")
    for column in ("", "seconds", "passes", "GB/s", "disk, GB/s", "of the disk", "peak memory, GB"):
        table.add_column(column, justify="left" if not column else "right")
    made, lines = figures["rounds"], []
    for name in ("memory map", "sweep"):
        one = figures[name]
        title = "a sweep, np.memmap (baseline)" if name == "memory map" else "a sweep, streamed"
        lines.append((title, one, 1.0, one["disk"]["GB/s"], one["peak GB"]))
    names = ("first model", *(f"round {k + 1}" for k in range(ROUNDS)))
    lines += [(name, made[name], made[name]["passes"], made["disk"]["GB/s"], made["peak GB"]) for name in names]
    for title, one, passes, disk, peak in lines:
        table.add_row(
            title, f"{one['seconds']:.1f}", f"{passes:.0f}", f"{one['GB/s']:.2f}", f"{disk:.2f}", f"{one['of the disk']:.0%}",
            f"{peak:.1f}",
        )  # fmt: skip
    return table
