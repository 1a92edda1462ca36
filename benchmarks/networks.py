"""INFL on LeNet over 10 000 images of 28×28: one pass over all samples and classes against plain inference, and memory.

Both passes read the same batches in the same run; the solve for v costs a curvature product an iteration. Memory is the
peak above what stood before the pass, each measured in a process of its own.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from labelchef.networks import adapt
from labelchef.networks.architectures import LeNet
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
    product = _seconds(lambda: linear.ggn_product(data, v))
    table = Table(title=f"LeNet, {n} images, {CLASSES} classes, {linear.n_parameters} parameters, {device}")
    for column in ("", "seconds", "of plain inference"):
        table.add_column(column, justify="right")
    for name, seconds in (
        ("plain inference", plain), ("INFL pass, all samples and classes", pushed), ("one Gauss–Newton product", product),
    ):  # fmt: skip
        table.add_row(name, f"{seconds:.3f}", f"{seconds / plain:.2f}")
    console.print(table)
    found = {"ratio": pushed / plain, "product": product / plain}
    if device.type == "cpu" and not quick:
        peaks = [_peak_megabytes(size) for size in SIZES]
        told = ", ".join(f"{peak:.0f} MiB for {size} images" for peak, size in zip(peaks, SIZES, strict=True))
        console.print(f"memory of the INFL pass above the data: {told}")
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


def _peak_megabytes(n: int) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return float(pool.apply(_pass_in_process, (n,)))


def _pass_in_process(n: int) -> float:
    data, linear = _problem(n, torch.device("cpu"))
    v = torch.randn(linear.n_parameters)
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    linear.push(data.X, v)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit / 2**20
