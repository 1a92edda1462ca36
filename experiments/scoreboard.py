"""The scoreboard: every selector with the product's defaults, three hundred labels, people who answer."""

from typing import Any

import numpy as np
import pandas as pd

from experiments import figures, methods
from experiments.cells import Cell, product_default, selectors
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.stats import area, at, estimate, labels_to_reach, mean_ranks, median_interval, paired_gain
from experiments.store import Result

N_TRAIN, BATCH, LABELS = 3000, 20, 300
MARKS = (100, 300)
SHARES = (0.25, 0.5, 0.75)
"""Levels of F1, as shares of the way from the model before cleaning to the best mean of any selector after all labels."""
LEAST_WAY = 0.01
"""Where the best selector moves F1 by less than this, levels would be noise."""


def _cells(plan: Plan) -> list[Cell]:
    defaults: dict[str, Any] = {name: product_default(name) for name in ("gamma", "l2", "holdout", "look_ahead")}
    return [
        Cell("scoreboard", name, seed, selector=selector, b=50 if plan.quick else BATCH, labels=LABELS,
             **defaults, **plan.sizes(N_TRAIN))
        for name in plan.sets for seed in range(plan.seeds) for selector in selectors()
    ]  # fmt: skip


def frame_of(results: list[Result]) -> pd.DataFrame:
    """A row a campaign: F1 at the marks, area, the curve."""
    frame = methods.frame_of(results)
    frame["method"] = frame["selector"]
    curves = [(result["asked"], result["test_f1"]) for result in results]
    for mark in MARKS:
        frame[f"f1_{mark}"] = [at(*curve, mark) for curve in curves]
    frame["area"] = [area(*curve, LABELS) for curve in curves]
    frame["curve"] = curves
    return frame


def levels_of(part: pd.DataFrame) -> list[float]:
    """F1 levels of a data set; none where cleaning hardly moves it."""
    before, best = part["before"].mean(), part.groupby("method")[f"f1_{MARKS[-1]}"].mean().max()
    return [round(before + share * (best - before), 3) for share in SHARES] if best - before >= LEAST_WAY else []


def _report(report: Report, results: list[Result]) -> None:
    frame = frame_of(results)
    cell = results[0]["cell"]
    names = ("gamma", "l2", "holdout", "look_ahead")
    settings = ", ".join(f"{name} = {cell[name]}" for name in names if cell[name] is not None)
    report.intro("scoreboard", labels=LABELS, b=cell["b"], settings=settings, n_train=cell["n_train"])
    report.commentary()
    report.intro("scoreboard_overall")
    _overall(report, frame)
    report.text("## The sets")
    methods.data_table(report, frame)
    for column, title in ((f"f1_{MARKS[0]}", f"F1 after {MARKS[0]} labels"), (f"f1_{MARKS[1]}", f"F1 after {MARKS[1]} labels"),
                          ("area", f"Area under the curve: mean F1 from 0 to {LABELS} labels")):  # fmt: skip
        report.text(f"## {title}")
        _by_set(report, frame, column)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    report.intro("scoreboard_needed", labels=LABELS, shares=shares, least=LEAST_WAY)
    _needed(report, frame)
    report.text("## Curves")
    _curves(report, frame)
    report.data(_tidy(frame))


def _overall(report: Report, frame: pd.DataFrame) -> None:
    columns = [f"f1_{MARKS[0]}", f"f1_{MARKS[1]}", "area"]
    ranks = {column: mean_ranks(frame, column) for column in columns}
    rows = []
    for method in ranks["area"].mean().sort_values().index:
        over = [paired_gain(frame, column, method, "random").text(sign=True) for column in columns[:2]]
        suggested = frame.loc[frame["method"] == method, "suggested_true"].mean()
        seconds = estimate(frame.loc[frame["method"] == method, "seconds"]).mean
        rows.append([f"`{method}`", *[estimate(ranks[column][method]).text(2) for column in columns], *over,
                     "–" if np.isnan(suggested) else f"{suggested:.0%}", f"{seconds:.1f}"])  # fmt: skip
    head = ["selector", *[f"mean rank, {text}" for text in (f"{MARKS[0]} labels", f"{MARKS[1]} labels", "area")],
            *[f"over random, {mark} labels" for mark in MARKS], "suggestions right", "seconds a campaign"]  # fmt: skip
    report.table(head, rows)
    gains = {
        method: paired_gain(frame, "area", method, "random") for method in map(str, ranks["area"]) if method != "random"
    }
    dots = [{"method": method, "mean": gain.mean, "half": gain.half} for method, gain in gains.items() if gain.n]
    title = "Area under the curve: gain over random, mean over sets"
    report.figure("gain", title, figures.dots(pd.DataFrame(dots), title=title, x="macro-F1, 95 % interval"))


def _by_set(report: Report, frame: pd.DataFrame, column: str) -> None:
    sets = list(dict.fromkeys(frame["data"]))
    means = frame.groupby(["method", "data"])[column].mean()
    best = means.groupby("data").max()
    first = frame.drop_duplicates(["data", "seed"])
    rows = [["before cleaning", *[estimate(first.loc[first["data"] == name, "before"]).text() for name in sets]]]
    for method in dict.fromkeys(frame["method"]):
        cells = []
        for name in sets:
            found = estimate(frame.loc[(frame["method"] == method) & (frame["data"] == name), column])
            cells.append(found.text(best=best[name]))
        rows.append([f"`{method}`", *cells])
    report.table(["selector", *sets], rows)


def _needed(report: Report, frame: pd.DataFrame) -> None:
    sets = {name: levels_of(frame[frame["data"] == name]) for name in dict.fromkeys(frame["data"])}
    head = ["selector", *[f"{name} {level:.3f}" for name, levels in sets.items() for level in levels]]
    rows = []
    for method in dict.fromkeys(frame["method"]):
        row = [f"`{method}`"]
        for name, levels in sets.items():
            curves = frame.loc[(frame["method"] == method) & (frame["data"] == name), "curve"]
            row += [
                _labels(median_interval([labels_to_reach(asked, f1, level) for asked, f1 in curves]))
                if len(curves)
                else "–"
                for level in levels
            ]
        rows.append(row)
    report.table(head, rows)


def _labels(found: tuple[float, float, float]) -> str:
    median, low, high = (f">{LABELS}" if np.isinf(value) else f"{value:.0f}" for value in found)
    return f"{median} ({low} to {high})"


def _curves(report: Report, frame: pd.DataFrame) -> None:
    for name in dict.fromkeys(frame["data"]):
        points = [
            {"method": row.method, "x": x, "y": y}
            for row in frame[frame["data"] == name].itertuples()
            for x, y in zip(*row.curve, strict=True)
        ]
        mean = pd.DataFrame(points).groupby(["method", "x"])["y"].mean().reset_index()
        chart = figures.curves(mean, title=name, x="labels asked", y="test macro-F1")
        report.figure(name, f"{name}: test macro-F1 by labels asked", chart)


def _tidy(frame: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (name, method), part in frame.groupby(["data", "method"], sort=False):
        row: dict[str, Any] = {"data": name, "selector": method, "seeds": len(part), "before": part["before"].mean()}
        for column in (*[f"f1_{mark}" for mark in MARKS], "area"):
            found = estimate(part[column])
            row |= {column: found.mean, f"{column}_half": found.half}
        row |= {key: part[key].mean() for key in ("suggested_true", "wrong", "unresolved", "seconds")}
        rows.append(row)
    return pd.DataFrame(rows).round(5)


EXPERIMENTS = (Experiment("scoreboard", "Scoreboard", _cells, _report),)
