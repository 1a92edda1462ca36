"""Which samples to ask, once trusted samples train: selectors on the same first model, by the area under the test macro-F1.

A cell is a problem of the scoreboard: one model is fitted with what the product chooses by itself, and every selector asks 100
labels from a copy of it, in batches of 20, with the choice of source model, γ and λ kept. So curves of a cell differ by the
selection alone.
"""

import copy
from typing import Any

import numpy as np
import pandas as pd

from experiments import data
from experiments.cells import Cell
from experiments.margins import MARGINS
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.scoreboard import N_TEST, N_TRAIN
from experiments.stats import estimate, mean_ranks
from experiments.store import Result
from labelchef import LabelCleaner
from labelchef.chef.choice import make_selector
from labelchef.judge.gain import area
from labelchef.judge.metrics import measured

SELECTORS = ("margin", "diverse_margin", "posterior_margin", "entropy", "expected_infl", "random")
DEFAULT = "margin"
BATCH, LABELS = 20, 100
SIZES = (100, 30, 300)


def study(cell: Cell) -> dict[str, Any]:
    """Test macro-F1 after 0, 20, … labels, by selector."""
    d = data.sourced(cell.data, cell.seed, cell.n_val or 100, n_train=cell.n_train, n_test=cell.n_test)
    first = LabelCleaner(budget=None, random_state=cell.seed)
    given: dict[str, Any] = {"votes": d.votes, "votes_val": d.votes_val}
    first.fit(d.X, X_val=d.X_val, y_val=d.y_val, classes=range(d.n_classes), **given)
    learner = first._session.learner
    assert learner is not None
    learner.keep_choice = True
    curves = {}
    for name in SELECTORS:
        cleaner = copy.deepcopy(first)
        cleaner._session.selector = make_selector(MARGINS[name]() if name in MARGINS else name, look_ahead=True)
        values = [_f1(cleaner, d)]
        for _ in range(cell.labels // cell.b):
            batch = cleaner.query(cell.b)
            cleaner.update(batch.indices, d.y[batch.indices])
            values.append(_f1(cleaner, d))
        curves[name] = [round(value, 5) for value in values]
    return {"curves": curves}


def _f1(cleaner: LabelCleaner, d: data.Sourced) -> float:
    predicted = np.asarray(cleaner.predict(d.X_test), dtype=np.int64)
    return measured(predicted, d.y_test, d.n_classes, 0.0).f1_macro


def _cells(plan: Plan) -> list[Cell]:
    sets = data.sourced_here()
    sets = tuple(name for name in sets if name in plan.sets) or sets if plan.quick else sets
    settings = {"b": BATCH, "labels": 40 if plan.quick else LABELS, "kind": "selectors", **plan.sizes(N_TRAIN, N_TEST)}
    return [
        Cell("selectors", name, seed, n_val=size, **settings)
        for seed in range(plan.seeds)
        for size in (SIZES[:1] if plan.quick else SIZES)
        for name in sets
    ]


def _report(report: Report, results: list[Result]) -> None:
    rows = []
    for result in results:
        cell = result["cell"]
        for name, curve in result["curves"].items():
            asked = [cell["b"] * k for k in range(len(curve))]
            rows.append(
                {"data": cell["data"], "size": cell["n_val"], "seed": cell["seed"], "method": name, "last": curve[-1],
                 "area": area(asked, curve, asked[-1])}
            )  # fmt: skip
    frame = pd.DataFrame(rows)
    report.text(__doc__ or "")
    report.text(
        "## Mean rank and mean difference to the default\n\nRank 1 is the best; over all sets, sizes and seeds."
    )
    report.table(["selector", "mean rank", f"area − that of {DEFAULT}", "sets behind"], _overall(frame))
    for size in sorted(frame["size"].unique()):
        report.text(f"## Area under the curve, {size} trusted samples")
        report.table(["set", *SELECTORS], _by_set(frame[frame["size"] == size]))
    report.data(frame)


def _overall(frame: pd.DataFrame) -> list[list[str]]:
    problems = frame.assign(data=frame["data"] + " " + frame["size"].astype(str))
    ranks = mean_ranks(problems, "area")
    table = problems.pivot_table(index=["data", "seed"], columns="method", values="area")
    rows = []
    for name in SELECTORS:
        gap = table[name] - table[DEFAULT]
        behind = sum(gap.groupby(level="data").mean() < 0)
        shown = "–" if name == DEFAULT else estimate(gap.groupby(level="data").mean()).text(4, sign=True)
        total = gap.index.get_level_values("data").nunique()
        rows.append([name, estimate(ranks[name]).text(2), shown, f"{behind} of {total}"])
    return rows


def _by_set(frame: pd.DataFrame) -> list[list[str]]:
    table = frame.pivot_table(index="data", columns="method", values="area")
    return [
        [str(name), *(f"**{row[one]:.3f}**" if row[one] == row.max() else f"{row[one]:.3f}" for one in SELECTORS)]
        for name, row in table.iterrows()
    ]


EXPERIMENTS = (Experiment("selectors", "Which samples to ask, once trusted samples train", _cells, _report),)
