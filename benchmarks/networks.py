"""INFL on LeNet over 10 000 images of 28×28: one pass over all samples and classes against plain inference, and memory.

Both passes read the same batches in the same run; the solve for v costs a curvature product an iteration. Memory is the
peak above what stood before the pass, each measured in a process of its own.
"""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.architectures import LeNet
from rich.console import Console
from rich.table import Table

from labelchef.networks import adapt
from labelchef.networks.inputs import as_device, batches
from labelchef.networks.linearised import Linearised
from labelchef.networks.training import Examples, predicting

SIZES, CLASSES, BATCH = (10_000, 20_000), 10, 512


def main(console: Console, *, quick: bool = False) -> dict[str, float]:
    """Run and print; returns the figures."""
    n, device = 2_000 if quick else SIZES[0], as_device("auto")
    data, linear = _problem(n, device)
    v = torch.randn(linear.n_parameters, device=device)
    plain, pushed = _interleaved(lambda: _inference(linear, data), lambda: linear.push(data.X, v))
    _, product = _interleaved(lambda: _inference(linear, data), lambda: linear.ggn_product(data, v), 3)
    table = Table(title=f"LeNet, {n} images, {CLASSES} classes, {linear.n_parameters} parameters, {device}")
    for column in ("", "seconds", "of plain inference"):
        table.add_column(column, justify="right")
    for name, seconds in (
        ("plain inference", plain), ("INFL pass, all samples and classes", pushed), ("one Gauss–Newton product", product),
    ):  # fmt: skip
        table.add_row(name, f"{seconds:.3f}", f"{seconds / plain:.2f}")
    console.print(table)
    found = {"ratio": pushed / plain, "product": product / plain}
    if not quick:
        peaks = [_peak_megabytes(size, device.type) for size in SIZES]
        told = ", ".join(f"{peak:.0f} MiB for {size} images" for peak, size in zip(peaks, SIZES, strict=True))
        console.print(f"memory that the INFL pass takes above what stood before: {told}")
        found |= {f"peak_{size}": peak for size, peak in zip(SIZES, peaks, strict=True)}
    return found


def _problem(n: int, device: torch.device) -> tuple[Examples, Linearised]:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    X = rng.standard_normal((n, 1, 28, 28), dtype=np.float32)
    data = Examples(X, rng.dirichlet(np.ones(CLASSES), n), np.full(n, 0.8))
    return data, Linearised(adapt(LeNet(CLASSES).to(device)), device, BATCH)


def _inference(linear: Linearised, data: Examples) -> Any:
    with torch.no_grad(), predicting(linear.task):
        return [linear.task(x).cpu().numpy() for _, x in batches(data.X, BATCH, linear.device, torch.float32)]


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _interleaved(one: Callable[[], Any], other: Callable[[], Any], repeats: int = 5) -> tuple[float, float]:
    """Medians of two kinds of work done in turn, so that a busy machine slows both."""
    one(), other()
    times = np.array([(_seconds(one), _seconds(other)) for _ in range(repeats)])
    return float(np.median(times[:, 0])), float(np.median(times[:, 1]))


def _peak_megabytes(n: int, device: str) -> float:
    """In a process of its own, the first pass aside: libraries take memory when first used."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return float(pool.apply(_pass_in_process, (n, device)))


def _pass_in_process(n: int, name: str) -> float:
    device = torch.device(name)
    data, linear = _problem(n, device)
    v = torch.randn(linear.n_parameters, device=device)
    linear.push(data.X[: 2 * BATCH], v)
    if device.type == "cuda":
        allocated = int(torch.cuda.memory_allocated())
        torch.cuda.reset_peak_memory_stats()
        linear.push(data.X, v)
        return (int(torch.cuda.max_memory_allocated()) - allocated) / 2**20
    clear = Path("/proc/self/clear_refs")
    if not clear.exists():
        return float("nan")  # only Linux forgets a peak
    clear.write_text("5")
    before = _resident("VmRSS")
    linear.push(data.X, v)
    return (_resident("VmHWM") - before) / 2**10


def _resident(what: str) -> float:
    """KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(what)))
