"""The GPU engine: sweeps against the memory's bandwidth, whole rounds at millions of samples, agreement with the CPU.

Times are between CUDA events, host included. Features are made on the device, by the recipe of
`benchmarks.shapes`. Without a GPU (or with --quick) small shapes run on whatever there is, to see that everything works.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.shapes import FACTORS, NOISE
from labelchef.base.records import Batch, Decisions, Votes
from labelchef.chef.choice import make_selector
from labelchef.chef.constructors import make_constructor
from labelchef.loop.judging import Split
from labelchef.loop.session import Session
from labelchef.model.engines import Engine, MemoryEngine, RowLabels
from labelchef.model.labels import LabelTable
from labelchef.model.objective import Objective

BATCH, ROUNDS, N_VAL, L2, GAMMA = 10, 12, 1000, 0.01, 0.8
DTYPES = ("float32", "float16", "bfloat16")
SELECTORS = ("expected_infl", "increm_infl")
"""Whose rounds are measured; the first one, the default, is compared with the CPU's."""


@dataclass(frozen=True)
class Problem:
    """Features on the device as they are stored, labels on the host."""

    X: Any
    weak: Any
    y: Any
    X_val: Any
    y_val: Any
    n_classes: int

    @property
    def name(self) -> str:
        return f"{len(self.X):,} × {self.X.shape[1]}, C = {self.n_classes}, {str(self.X.dtype).removeprefix('torch.')}"


def main(console: Console, *, quick: bool = False) -> dict[str, Any]:
    """Run and print; returns the figures."""
    try:
        import torch
    except ImportError:
        console.print("no PyTorch here: pip install 'labelchef[torch]'")
        return {}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    large = device == "cuda" and not quick
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU: plain PyTorch on the CPU"
    console.print(f"{name}, PyTorch {torch.__version__}\n")
    shapes = [(1_000_000, 768, 10), (1_000_000, 768, 2)] if large else [(3000, 64, 5), (3000, 64, 2)]
    figures: dict[str, Any] = {"sweeps": _sweeps(console, shapes, device)}
    _rounds(console, [(*shapes[0], "float32"), (*shapes[0], "float16"), (*shapes[1], "float32")], device)
    _rounds(console, [(10_000_000, 768, 2, "float16") if large else (5000, 64, 2, "float16")], device)
    figures["agreement"] = [
        _agreement(console, make(20_000 if large else 2000, *shapes[n][1:], device)) for n in (0, 1)
    ]
    _crossover(console, [5_000, 20_000, 80_000, 320_000] if large else [2000], shapes[0][1], device)
    _largest(console, make(*shapes[0], device), device)
    return figures


def make(n: int, d: int, n_classes: int, device: str, dtype: str = "float32", seed: int = 0) -> Problem:
    """The problem of that shape; the same for the same seed on the same device."""
    import torch

    rng, generator = np.random.default_rng(seed), torch.Generator(device=device).manual_seed(seed)
    normal = partial(torch.randn, generator=generator, device=device)
    y = rng.integers(0, n_classes, n + N_VAL)
    decay = 1.0 / torch.sqrt(1.0 + torch.arange(FACTORS, device=device))
    mixing = normal((FACTORS, d)) * decay[:, None]
    centres = torch.zeros((n_classes, FACTORS), device=device)
    for c in range(n_classes):
        centres[c, c // 2] = 1 - 2 * (c % 2)
    X, scale = torch.empty((n + N_VAL, d), dtype=getattr(torch, dtype), device=device), None
    for start in range(0, n + N_VAL, 1 << 18):
        which = torch.from_numpy(y[start : start + (1 << 18)]).to(device)
        block = (centres[which] + normal((len(which), FACTORS))) @ mixing + NOISE * normal((len(which), d))
        scale = (block.mean(dim=0), block.std(dim=0)) if scale is None else scale
        X[start : start + len(block)] = (block - scale[0]) / scale[1]
    weak = rng.dirichlet(np.ones(n_classes), n)
    return Problem(X[:n], weak, y[:n], X[n:].float().cpu().numpy(), y[n:], n_classes)


def start(
    problem: Problem, engine: Engine, splits: Callable[..., Engine], *, selector: str, look_ahead: bool
) -> Session:
    """A session with its first model."""
    table = LabelTable(problem.weak, GAMMA)
    session = Session(
        objective=Objective(engine, table.rows, L2),
        labels=table,
        steering=Split(problem.X_val, problem.y_val, problem.n_classes, bias=True, engine=splits),
        judging=None,
        test=None,
        selector=make_selector(selector, look_ahead=look_ahead),
        constructor=make_constructor("newton"),
        seed=0,
    )
    session.start()
    return session


def on_device(
    problem: Problem, device: str, dtype: str | None = None, *, selector: str = SELECTORS[0], look_ahead: bool = True
) -> Session:
    """A session on the device."""
    from labelchef.model.engines.torch_engine import TorchEngine

    engine = TorchEngine(problem.X, bias=True, device=device, dtype=dtype)
    splits = partial(TorchEngine, device=device)
    return start(problem, engine, splits, selector=selector, look_ahead=look_ahead)


def on_host(problem: Problem) -> Session:
    """The same by the memory engine, on the same numbers."""
    X = problem.X.float().cpu().numpy()
    return start(problem, MemoryEngine(X, bias=True), MemoryEngine, selector=SELECTORS[0], look_ahead=True)


def decide(session: Session, batch: Batch, labels: Any) -> None:
    """The answers of one round."""
    votes = Votes.of([("truth", batch.indices, labels)])
    session.decide(batch, votes, Decisions(batch.indices, labels, np.ones(len(labels))))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its seconds between two CUDA events, the device at rest before the first.

    They count all the host does in between too. Without a GPU, by the clock.
    """
    import torch

    if not torch.cuda.is_available():
        clock = time.perf_counter()
        return work(), time.perf_counter() - clock
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    began.record()
    made = work()
    ended.record()
    torch.cuda.synchronize()
    return made, 1e-3 * began.elapsed_time(ended)


def _median(work: Callable[[], Any], repeats: int = 20) -> float:
    for _ in range(3):
        work()
    return float(np.median([timed(work)[1] for _ in range(repeats)]))


def _sweeps(console: Console, shapes: list[tuple[int, int, int]], device: str) -> dict[str, float]:
    """One sweep with everything on it (W and V, gradient and Hessian product); X is read twice, forward and back."""
    import torch

    from labelchef.model.engines.torch_engine import TorchEngine

    source = torch.randn(1 << (29 if device == "cuda" else 20), device=device)
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / _median(partial(target.copy_, source))
    del source, target
    table = Table(title=f"a sweep (logits, products, gradient, Hessian product); a copy moves {copy / 1e12:.2f} TB/s")
    for column in ("shape", "milliseconds", "TB/s of X read twice", "of the copy"):
        table.add_column(column, justify="left" if column == "shape" else "right")
    figures = {}
    for (n, d, C), dtype in ((shape, dtype) for shape in shapes for dtype in DTYPES):
        problem, rng = make(n, d, C, device, dtype), np.random.default_rng(1)
        W, V = rng.normal(size=(2, C - 1, d + 1)) / np.sqrt(d)
        labels = RowLabels(problem.weak, np.full(n, GAMMA))
        cases = [("", True)] + ([(", streamed from the host", False)] if dtype == "float32" and C > 2 else [])
        for note, resident in cases:
            X = problem.X if resident else problem.X.cpu()
            engine = TorchEngine(X, bias=True, device=device, resident=resident)
            work = partial(engine.sweep, labels, W=W, V=V, gradient=True, hessian_product=True)
            seconds = _median(work, 20 if resident else 3)
            reads = (2 if resident else 1) * n * engine.row_bytes / seconds
            share = f"{reads / copy:.0%}" if resident else "once, over the bus"
            table.add_row(problem.name + note, f"{1e3 * seconds:.2f}", f"{reads / 1e12:.3f}", share)
            figures[problem.name + note] = seconds
            del engine, X
        del problem
    console.print(table)
    return figures


def _rounds(console: Console, cases: list[tuple[int, int, int, str]], device: str) -> None:
    """Whole rounds, the first aside."""
    table = Table(title=f"rounds with b = {BATCH}, milliseconds: median (largest) of {ROUNDS} after the first")
    for column in (
        "shape",
        "selector",
        "look-ahead",
        "V and selection",
        "update",
        "round",
        "sweeps",
        "evaluation",
        "first model, s",
    ):
        table.add_column(column, justify="left" if column == "shape" else "right")
    for n, d, C, dtype in cases:
        problem = make(n, d, C, device, dtype)
        for selector, ahead in itertools.product(SELECTORS, (True, False)):
            session, first = timed(partial(on_device, problem, device, selector=selector, look_ahead=ahead))
            parts: list[tuple[float, float, float]] = []
            engine, swept = session.objective.engine, []
            for _ in range(ROUNDS + 1):
                before = engine.sweeps
                batch, chosen = timed(partial(session.select, BATCH))
                _, rest = timed(partial(decide, session, batch, problem.y[batch.indices]))
                evaluated = session.rounds[-1].seconds["evaluate"]
                parts.append((chosen, rest - evaluated, evaluated))
                swept.append(engine.sweeps - before)
            times = 1e3 * np.array(parts[1:])
            whole = times[:, 0] + times[:, 1]
            shown = [f"{np.median(part):.1f} ({part.max():.1f})" for part in (times[:, 0], times[:, 1], whole)]
            sweeps = f"{np.median(swept[1:]):.1f} ({max(swept[1:]):.1f})"
            table.add_row(
                problem.name, selector, "on" if ahead else "off", *shown, sweeps,
                f"{np.median(times[:, 2]):.1f}", f"{first:.1f}",
            )  # fmt: skip
            del session, engine
        del problem
    console.print(table)


def _agreement(console: Console, problem: Problem) -> dict[str, Any]:
    """The device beside the CPU, round by round on the same labels, for each way to store X."""
    device = str(problem.X.device)
    table = Table(title=f"against the CPU engine in float32, {ROUNDS} rounds at {problem.name}")
    for column in ("stored as", "same batches", "same places", "largest |ΔW| / |W|", "largest |Δ score| / |score|"):
        table.add_column(column, justify="left" if column == "stored as" else "right")
    figures = {}
    for dtype in DTYPES:
        host, other = on_host(problem), on_device(problem, device, dtype)
        same, places, moved, scored = 0, 0, 0.0, 0.0
        for _ in range(ROUNDS):
            one, two = host.select(BATCH), other.select(BATCH)
            same += int(np.array_equal(one.indices, two.indices) and np.array_equal(one.suggested, two.suggested))
            places += len(set(one.indices.tolist()) & set(two.indices.tolist()))
            if np.array_equal(one.indices, two.indices):
                scored = max(scored, float(np.max(np.abs(one.influence - two.influence) / np.abs(one.influence))))
            for session in (host, other):
                decide(session, one, problem.y[one.indices])
            W = [session.construction.point.W for session in (host, other)]
            moved = max(moved, float(np.linalg.norm(W[0] - W[1]) / np.linalg.norm(W[0])))
        shown = (
            f"{same} of {ROUNDS}",
            f"{places} of {ROUNDS * BATCH}",
            f"{moved:.1e}",
            f"{scored:.1e}" if same else "–",
        )
        table.add_row(dtype, *shown)
        figures[dtype] = {"same": same, "places": places, "moved": moved, "scored": scored}
    console.print(table)
    return figures


def _crossover(console: Console, sizes: list[int], d: int, device: str) -> None:
    """From which size on the device pays."""
    table = Table(title=f"a round of the memory engine and of the device, milliseconds, d = {d}, b = {BATCH}")
    for column in ("rows", "C", "numbers in X", "memory", "device"):
        table.add_column(column, justify="right")
    for n in sizes:
        for C in (2, 10):
            problem, taken = make(n, d, C, device), []
            for session in (on_host(problem), on_device(problem, device)):
                times = []
                for _ in range(6):
                    batch, chosen = timed(partial(session.select, BATCH))
                    _, rest = timed(partial(decide, session, batch, problem.y[batch.indices]))
                    times.append(chosen + rest - session.rounds[-1].seconds["evaluate"])
                taken.append(float(np.median(times[1:])))
            table.add_row(f"{n:,}", str(C), f"{n * d:,}", *(f"{1e3 * seconds:.1f}" for seconds in taken))
    console.print(table)


def _largest(console: Console, problem: Problem, device: str) -> None:
    """Both engines at the full shape: the same selections?"""
    host, other = on_host(problem), on_device(problem, device)
    same, seconds = 0, []
    for _ in range(3):
        batches = []
        for session in (host, other):
            batch, taken = timed(partial(session.select, BATCH))
            batches.append(batch)
            seconds.append(taken)
        same += int(np.array_equal(batches[0].indices, batches[1].indices))
        labels = problem.y[batches[0].indices]
        seconds += [timed(partial(decide, session, batches[0], labels))[1] for session in (host, other)]
    host_ms, device_ms = (1e3 * (seconds[-4 + n] + seconds[-2 + n]) for n in (0, 1))
    console.print(
        f"{problem.name}: {same} of 3 batches the same as the CPU's; the last round took "
        f"{host_ms:.0f} ms on the CPU, {device_ms:.0f} ms on the device (evaluation included)"
    )
