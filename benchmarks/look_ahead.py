"""Plain batches against look-ahead: test macro-F1 after the same number of labels, over seeds, with 95 % intervals.

The gain is paired by seed: same split, same weak labels, true labels as answers.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.stats import t as student
from sklearn.datasets import load_digits

from benchmarks import real
from benchmarks.shapes import Data
from labelchef import Known, LabelCleaner
from labelchef.chef.choice import make_selector
from labelchef.chef.constructors import NewtonConstructor

LABELS = 100
SETTINGS = ((10, False), (10, True), (50, False), (50, True), (1, False))


def main(console: Console, *, quick: bool = False) -> pd.DataFrame:
    """Run and print; returns a row for each data set, seed and setting."""
    seeds = range(3 if quick else 10)
    rows: list[dict[str, Any]] = []
    for name, l2, labels, draw in _problems(quick):
        for seed in seeds:
            data = draw(seed)
            for b, ahead in SETTINGS:
                rows.append({"data": name, "seed": seed, "b": b, "ahead": ahead, **_run(data, l2, labels, b, ahead)})
        _print(console, name, labels, pd.DataFrame(rows).query("data == @name"))
    return pd.DataFrame(rows)


def _problems(quick: bool) -> Iterator[tuple[str, float, int, Callable[[int], Data]]]:
    yield "digits, random labels", 0.01, 50, _digits
    folder = real.data_folder()
    for name in () if folder is None else ("youtube_wrench",) if quick else real.SETS:
        assert folder is not None
        pool = real.load(folder, name)
        yield name, 1e-3, LABELS, functools.partial(real.split, pool, n_train=10_000)


def _digits(seed: int) -> Data:
    bunch, rng = load_digits(), np.random.default_rng(seed)
    order = rng.permutation(len(bunch.target))
    X, y = (bunch.data[order] / 16).astype(np.float32), bunch.target[order].astype(np.int64)
    weak = rng.dirichlet(np.ones(10), 1000)
    return Data(X[:1000], weak, y[:1000], X[1000:1300], y[1000:1300], X[1300:], y[1300:])


def _run(data: Data, l2: float, labels: int, b: int, ahead: bool) -> dict[str, float]:
    cleaner = LabelCleaner(
        trusted="steer",
        selector=make_selector("increm_infl", look_ahead=ahead),
        gamma=0.8,
        l2=l2,
        budget=labels,
        batch_size=b,
        holdout=0,
        constructor=NewtonConstructor(),
    )
    cleaner.fit(
        data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val, known=Known(X_test=data.X_test, y_test=data.y_test)
    )
    history = cleaner.run(lambda batch: data.y[batch.indices]).history
    rounds = history.iloc[1:]
    return {
        "before": history["test_f1_macro"].iloc[0],
        "f1": history["test_f1_macro"].iloc[-1],
        "val_loss": history["val_loss"].iloc[-1],
        "seconds": float((rounds["seconds_select"] + rounds["seconds_construct"]).sum()),
    }


def interval(values: Any) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval."""
    values = np.asarray(values, dtype=np.float64)
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def _print(console: Console, name: str, labels: int, rows: pd.DataFrame) -> None:
    f1 = {key: part.set_index("seed")["f1"] for key, part in rows.groupby(["b", "ahead"])}
    seconds = rows.groupby(["b", "ahead"])["seconds"].mean()
    table = Table(title=f"{name}: test macro-F1 after {labels} labels ({rows['seed'].nunique()} seeds)")
    for column in ("b", "look-ahead", "macro-F1", "gain over plain, paired", "seconds"):
        table.add_column(column, justify="right")
    mean, half = interval(rows.query("b == 1")["before"])
    table.add_row("–", "before", f"{mean:.3f} ± {half:.3f}", "", "")
    for b, ahead in SETTINGS:
        mean, half = interval(f1[b, ahead])
        gain = "" if not ahead else "{:+.3f} ± {:.3f}".format(*interval(f1[b, True] - f1[b, False]))
        table.add_row(str(b), "on" if ahead else "off", f"{mean:.3f} ± {half:.3f}", gain, f"{seconds[b, ahead]:.2f}")
    console.print(table)
    gap = f1[1, False].mean() - f1[50, False].mean()
    if gap > 0.01:
        share = (f1[50, True].mean() - f1[50, False].mean()) / gap
        console.print(f"of the gap between b = 50 and b = 1 ({gap:.3f}), look-ahead recovers {share:.0%}")
