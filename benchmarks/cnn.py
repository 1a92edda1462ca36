"""The paper's appendix experiment on networks (its table "CNN"), one command: `python -m benchmarks.cnn [--quick]`.

LeNet on images, a 1-D CNN on embeddings of text; 100 labels cleaned in batches of 10 or 100, γ = 0.8, three people who err
5 % of the time. INFL under the paper's three strategies; everyone else is answered by three people. Finished cells are
kept: the same command goes on where it stopped.

What differs from the paper, besides the sets: the network is fine-tuned after a batch where the paper retrains, early
stopping looks at the validation set as the paper's does, and INFL follows its formula (the authors' solver does not, see
the method note). Where a set has no weak labels they are random, as in the paper.
"""

import argparse
import dataclasses
import hashlib
import json
import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from torch import nn

from benchmarks import real
from benchmarks.look_ahead import interval
from benchmarks.shapes import Data
from labelchef.annotators import SimulatedAnnotators, make_strategy
from labelchef.annotators.strategies import people_needed
from labelchef.networks import FineTune, InfluenceSettings, NetworkCleaner, TrainingSettings
from labelchef.networks.architectures import EmbeddingCnn, LeNet

IMAGES = {"pneumonia": "pneumoniamnist", "retina": "retinamnist", "breast": "breastmnist"}
TEXTS = {"fact": "fact_google_relations", "twitter": "airline_twitter"}
METHODS: dict[str, tuple[str, str]] = {
    "INFL (one)": ("infl", "one"),
    "INFL (two)": ("infl", "two"),
    "INFL (three)": ("infl", "three"),
    "INFL-D": ("infl_d", "one"),
    "INFL-Y": ("infl_y", "one"),
    "Active (one)": ("least_confidence", "one"),
    "Active (two)": ("entropy", "one"),
    "margin": ("margin", "one"),
    "O2U": ("o2u", "one"),
    "random": ("random", "one"),
}
"""Name in the table → selector and strategy."""

_COLUMNS = ("uncleaned", "INFL (one)", "INFL (two)", "INFL (three)", "INFL-D", "Active (one)", "Active (two)", "O2U")
PAPER: dict[tuple[str, int], dict[str, float]] = {
    (ours, b): dict(zip(_COLUMNS, figures, strict=False))
    for ours, b, figures in (
        ("pneumonia", 100, (0.8897, 0.8895, 0.8883, 0.8893)),
        ("pneumonia", 10, (0.8897, 0.8893, 0.8908, 0.8904, 0.8895, 0.8895, 0.8895, 0.8873)),
        ("retina", 100, (0.5529, 0.5577, 0.5636, 0.5602)),
        ("retina", 10, (0.5529, 0.5596, 0.5645, 0.5607, 0.5556, 0.5574, 0.5574, 0.5608)),
        ("fact", 100, (0.7510, 0.7536, 0.8027, 0.7636)),
        ("fact", 10, (0.7510, 0.7553, 0.8063, 0.7654, 0.7560, 0.7566, 0.7516, 0.7739)),
        ("twitter", 100, (0.6609, 0.6727, 0.6828, 0.6783)),
        ("twitter", 10, (0.6609, 0.6585, 0.6907, 0.6745, 0.6642, 0.6544, 0.6610, 0.6740)),
    )
}
"""F1 in the paper's table; its MIMIC stands beside our pneumonia."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One campaign."""

    data: str
    method: str
    b: int
    seed: int
    n_train: int = 1500
    labels: int = 100
    epochs: int = 20
    l2: float = 1e-3
    damping: float = 0.1
    curvature_rows: int = 500

    @property
    def key(self) -> str:
        """Of everything that shapes the result."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def cells(quick: bool, seeds: int) -> list[Cell]:
    """The grid; INFL at both batch sizes, the others at 10, as in the paper."""
    sets = ("pneumonia", "fact") if quick else (*IMAGES, *TEXTS)
    small: dict[str, Any] = {"n_train": 200, "labels": 20, "epochs": 5, "curvature_rows": 100} if quick else {}
    return [
        Cell(data, method, min(b, small.get("labels", b)), seed, **small)
        for data in sets
        for seed in range(1 if quick else seeds)
        for method, (selector, _) in METHODS.items()
        for b in ((10, 100) if selector == "infl" else (10,))
    ]


def load(folder: Path, name: str, seed: int, n_train: int) -> Data:
    """Training, validation and test of a set, inputs of mean 0 and variance 1 over all of training."""
    data = real.split(_pool(folder, name), seed, n_train)
    mean, deviation = data.X.mean(), data.X.std()
    scaled = {part: (getattr(data, part) - mean) / deviation for part in ("X", "X_val", "X_test")}
    return dataclasses.replace(data, **scaled)


def _pool(folder: Path, name: str) -> real.Pool:
    if name in TEXTS:
        return real.load(folder, TEXTS[name])
    parts = ("train", "val", "test")
    with np.load(folder / "medmnist" / f"{IMAGES[name]}.npz") as file:
        images = np.concatenate([file[f"{part}_images"] for part in parts])
        y = np.concatenate([file[f"{part}_labels"].ravel() for part in parts]).astype(np.int64)
        n = len(file["train_labels"])
    X = (images.transpose(0, 3, 1, 2) if images.ndim == 4 else images[:, None]).astype(np.float32) / 255.0
    if name == "retina":  # the paper's two classes: the two lowest grades against the others
        y = (y >= 2).astype(np.int64)
    trusted = np.arange(len(y)) >= n
    return real.Pool(X, None, y, trusted, 2, n_val=min(300, int(trusted.sum()) // 2))


def run(cell: Cell) -> dict[str, Any]:
    """A campaign from its cell; the same every time."""
    torch.set_num_threads(1)
    folder = real.data_folder()
    assert folder is not None, "set LABELCHEF_DATA to the folder with the data sets"
    data = load(folder, cell.data, cell.seed, cell.n_train)
    torch.manual_seed(cell.seed)
    n_classes = data.Y_weak.shape[1]
    network: nn.Module = LeNet(n_classes, channels=data.X.shape[1]) if data.X.ndim == 4 else EmbeddingCnn(
        data.X.shape[1], n_classes
    )  # fmt: skip
    selector, strategy = METHODS[cell.method]
    needed = people_needed(strategy)
    people = None
    if needed:
        people = SimulatedAnnotators(data.y, n_classes=n_classes, error_rates=(0.05,) * needed, seed=cell.seed)
    cleaner = NetworkCleaner(
        network, selector, FineTune(), gamma=0.8, l2=cell.l2, budget=cell.labels, batch_size=cell.b,
        training=TrainingSettings(epochs=cell.epochs, batch_size=64),
        influence=InfluenceSettings(damping=cell.damping, curvature_rows=cell.curvature_rows),
        device="cpu", random_state=cell.seed,
    )  # fmt: skip
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val, X_test=data.X_test, y_test=data.y_test)
    history = cleaner.run(make_strategy(strategy, people)).history
    metric = "test_f1" if n_classes == 2 else "test_f1_macro"
    return {
        **dataclasses.asdict(cell),
        "key": cell.key,
        "before": float(history[metric].iloc[0]),
        "f1": float(history[metric].iloc[-1]),
        "macro_before": float(history["test_f1_macro"].iloc[0]),
        "macro": float(history["test_f1_macro"].iloc[-1]),
        "curve": history[metric].tolist(),
        "seconds": float(history.filter(like="seconds_").to_numpy().sum()),
    }


def table(rows: pd.DataFrame) -> str:
    """Markdown: our mean F1 with its 95 % interval, the paper's figure beside it.

    F1 of the second class where there are two, as the paper's; macro-F1 tells whether the other class is found at all.
    """
    columns = (
        "set",
        "b",
        "method",
        "F1 before",
        "F1 after",
        "gain, paired",
        "gain in macro-F1",
        "paper: before → after",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for _, part in rows.groupby(["data", "b", "method"], sort=False):
        data, b, method = str(part["data"].iloc[0]), int(part["b"].iloc[0]), str(part["method"].iloc[0])
        paper = PAPER.get((data, b), {})
        theirs = f"{paper['uncleaned']:.3f} → {paper[method]:.3f}" if method in paper else "–"
        gain, macro = _mean(part["f1"] - part["before"], "+"), _mean(part["macro"] - part["macro_before"], "+")
        cells = (data, str(b), method, _mean(part["before"]), _mean(part["f1"]), gain, macro, theirs)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(values: "pd.Series[float]", sign: str = "") -> str:
    if len(values) < 2:
        return f"{values.mean():{sign}.3f}"
    mean, half = interval(values)
    return f"{mean:{sign}.3f} ± {half:.3f}"


def finished(file: Path) -> dict[str, dict[str, Any]]:
    """Results on disk by key; a line that was cut off does not count."""
    found: dict[str, dict[str, Any]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["key"]] = row
    return found


def run_all(grid: Iterable[Cell], file: Path, jobs: int, console: Console) -> list[dict[str, Any]]:
    """What is not there yet is run and written as it ends; failures are told and left out."""
    wanted = {cell.key: cell for cell in grid}
    done = {key: row for key, row in finished(file).items() if key in wanted}
    left = [cell for key, cell in wanted.items() if key not in done]
    console.print(f"{len(wanted)} cells, {len(left)} to run")
    file.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool, file.open("a") as out:
        futures = {pool.submit(run, cell): cell for cell in left}
        for n, future in enumerate(as_completed(futures), 1):
            cell = futures[future]
            error = future.exception()
            if error is not None:
                console.print(f"{cell}: {error}", style="red")
                continue
            row = future.result()
            done[cell.key] = row
            out.write(json.dumps(row) + "\n")
            out.flush()
            console.print(f"{n}/{len(left)} {cell.data} {cell.method} b={cell.b} seed {cell.seed}: {row['f1']:.3f}")
    return [done[key] for key in wanted if key in done]


def main() -> None:
    """Parse, run, write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cnn", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="two sets, one seed, 20 labels: to see that everything runs"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    options = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    name = "cnn-quick" if options.quick else "cnn"
    rows = run_all(cells(options.quick, options.seeds), options.out / f"{name}.jsonl", options.jobs, console)
    written = options.out / f"{name}.md"
    written.write_text(table(pd.DataFrame(rows)))
    console.print(written.read_text())
    console.print(f"written to {written}")


if __name__ == "__main__":
    main()
