"""The same features in every stored form: how fast a sweep reads them, beside plain `.npy`, from the disk and not from its cache.

The gradient of each sweep is compared with that of the array in memory.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from labelchef.model.engines import MemoryEngine, RowLabels
from labelchef.model.engines.streaming import StreamingEngine
from labelchef.model.features import open_features

COLUMNS, CLASSES = 768, 2
GROUP = 10_000
"""Rows of a group or chunk: about 15 MB in float16."""


def _npy(path: Path, X: Any) -> None:
    np.save(path, X)


def _shards(path: Path, X: Any) -> None:
    path.mkdir()
    for k, start in enumerate(range(0, len(X), 5 * GROUP)):
        np.save(path / f"part-{k:04d}.npy", X[start : start + 5 * GROUP])


def _lists(X: Any) -> Any:
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])})


def _arrow(path: Path, X: Any) -> None:
    table = _lists(X)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=GROUP)


def _parquet(path: Path, X: Any, compression: str = "none") -> None:
    pq.write_table(_lists(X), path, row_group_size=GROUP, compression=compression, use_dictionary=False)


FORMS: dict[str, tuple[str, Callable[[Path, Any], None]]] = {
    ".npy, float16": ("x.npy", _npy),
    "folder of .npy": ("x", _shards),
    ".arrow": ("x.arrow", _arrow),
    ".parquet, not compressed": ("x.parquet", _parquet),
    ".parquet, snappy": ("s.parquet", functools.partial(_parquet, compression="snappy")),
}


def _files(path: Path) -> list[Path]:
    return [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]


def _forget(path: Path) -> None:
    """Let the system forget what it has read of files."""
    for one in _files(path):
        with one.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _swept(engine: Any, labels: RowLabels, W: Any) -> tuple[float, Any]:
    clock = time.perf_counter()
    found = engine.sweep(labels, W=W, V=W, gradient=True, hessian_product=True)
    return time.perf_counter() - clock, found.gradient


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    n = 30_000 if quick else 1_000_000
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(20_000, COLUMNS)).astype(np.float16)
    X = np.concatenate([np.roll(noise, k, axis=1) for k in range(-(-n // len(noise)))])[:n]
    labels = RowLabels(np.full((n, CLASSES), 0.5), np.ones(n))
    W = rng.normal(size=(CLASSES - 1, COLUMNS + 1)) / np.sqrt(COLUMNS)
    memory = MemoryEngine(X, bias=True)
    _swept(memory, labels, W)
    inside, expected = _swept(memory, labels, W)
    table = Table(title=f"a sweep over {n:,} × {COLUMNS} float16 ({X.nbytes / 1e9:.2f} GB), median of 3")
    for column in ("stored as", "GB stored", "seconds", "× .npy", "difference of the gradient"):
        table.add_column(column, justify="left" if column == "stored as" else "right")
    table.add_row("in memory", "", f"{inside:.2f}", "", "")
    figures: dict[str, Any] = {"memory": inside}
    with tempfile.TemporaryDirectory(prefix="labelchef-forms-", dir=Path.cwd()) as folder:
        for form, (name, write) in FORMS.items():
            path = Path(folder) / name
            write(path, X)
            size, taken, gradient = sum(one.stat().st_size for one in _files(path)), [], expected
            for _ in range(3):
                _forget(path)
                seconds, gradient = _swept(StreamingEngine(open_features(path), bias=True), labels, W)
                taken.append(seconds)
            off = float(np.linalg.norm(gradient - expected) / np.linalg.norm(expected))
            figures[form] = {"seconds": float(np.median(taken)), "bytes": size, "off": off}
            ratio = figures[form]["seconds"] / figures[".npy, float16"]["seconds"]
            table.add_row(form, f"{size / 1e9:.2f}", f"{figures[form]['seconds']:.2f}", f"{ratio:.2f}", f"{off:.0e}")
            for one in _files(path):
                one.unlink()
    console.print(table)
    return figures
