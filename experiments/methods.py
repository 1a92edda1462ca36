"""Tables of F1 after so many labels: a row a method, a column a data set, the paper's figures beside ours."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from experiments import figures
from experiments.data import SOURCES
from experiments.paper import OUR_METHOD, OUR_SET, PaperTable
from experiments.reporting import Report
from experiments.stats import Estimate, estimate
from experiments.store import Result


def frame_of(results: Sequence[Result]) -> pd.DataFrame:
    """A row a campaign: its settings, F1 before and after, how good suggestions and answers were."""
    rows: list[dict[str, Any]] = []
    for result in results:
        cell, shares = result["cell"], [s for s in result["suggested_true"] if s is not None]
        rows.append(
            {
                **cell,
                "method": cell["selector"] + (" + look-ahead" if cell["look_ahead"] else "") + f" ({cell['strategy']})",
                "before": result["test_f1"][0],
                "f1": result["test_f1"][-1],
                "gain": result["test_f1"][-1] - result["test_f1"][0],
                "over_rounds": sum(result["test_f1"][1:]) / (len(result["test_f1"]) - 1) - result["test_f1"][0],
                "suggested_true": sum(shares) / len(shares) if shares else float("nan"),
                "wrong": result["wrong"],
                "unresolved": result["unresolved"],
                "seconds": result["seconds"],
            }
        )
    return pd.DataFrame(rows)


def f1_table(report: Report, frame: pd.DataFrame, paper: PaperTable) -> None:
    """The table of one setting: F1 a set, then the paper's figures, then gains over the model before, means over sets."""
    sets = list(dict.fromkeys(frame["data"]))
    beside = [name for name in sets if OUR_SET.get(name) in paper.f1["uncleaned"]]
    best = frame.groupby(["data", "method"])["f1"].mean().groupby("data").max()
    head = ["method", *sets, *[f"paper: {OUR_SET[name]}" for name in beside], "gain, all sets", "paper: gain, its sets"]
    rows = [
        _row("before cleaning", frame.drop_duplicates(["data", "seed"]), "before", sets, beside, paper, "uncleaned", {})
    ]
    for method in dict.fromkeys(frame["method"]):
        part = frame[frame["method"] == method]
        theirs = None if " + " in method else OUR_METHOD.get((part["selector"].iloc[0], part["strategy"].iloc[0]))
        rows.append(_row(method, part, "f1", sets, beside, paper, theirs, best.to_dict()))
    report.table(head, rows)


def _row(
    label: str, part: pd.DataFrame, column: str, sets: list[str], beside: list[str], paper: PaperTable,
    theirs: str | None, best: dict[Any, float],
) -> list[str]:  # fmt: skip
    cells = []
    for name in sets:
        found = estimate(part.loc[part["data"] == name, column])
        cells.append(found.text(best=best.get(name)))
    printed = [_figure(paper.of(theirs, OUR_SET[name])) for name in beside]
    if column == "before":
        return [label, *cells, *printed, "", ""]
    expected = paper.mean_gain(theirs)
    return [label, *cells, *printed, gain_of(part).text(sign=True), "" if expected is None else f"{expected:+.4f}"]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def gain_of(part: pd.DataFrame) -> Estimate:
    """Gain over the model before, averaged over the sets, interval over seeds."""
    return estimate(part.groupby("seed")["gain"].mean())


def gain_figure(report: Report, name: str, frame: pd.DataFrame, title: str) -> None:
    """Gains of all methods with their intervals."""
    found = {method: gain_of(part) for method, part in frame.groupby("method")}
    rows = pd.DataFrame([{"method": key, "mean": e.mean, "half": e.half} for key, e in found.items()])
    report.figure(
        name, title, figures.dots(rows, title=title, x="gain of test macro-F1, mean over sets, 95 % interval")
    )


def summary(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means and half-widths for the CSV."""
    rows = []
    for key, part in frame.groupby([*by, "data", "method"], sort=False):
        after, before = estimate(part["f1"]), estimate(part["before"])
        rows.append(
            {
                **dict(zip([*by, "data", "method"], key, strict=True)),
                "seeds": after.n,
                "before": round(before.mean, 5),
                "f1": round(after.mean, 5),
                "half": round(after.half, 5),
                "suggested_true": round(part["suggested_true"].mean(), 4),
                "wrong": round(part["wrong"].mean(), 4),
                "unresolved": round(part["unresolved"].mean(), 4),
                "seconds": round(part["seconds"].mean(), 3),
            }
        )
    return pd.DataFrame(rows)


def data_table(report: Report, frame: pd.DataFrame) -> None:
    """What the sets are, and how good their people turned out to be."""
    rows = []
    for name in dict.fromkeys(frame["data"]):
        part = frame[frame["data"] == name]
        people = part[part["strategy"] == "one"]
        answers = (
            "–" if people.empty else f"{people['wrong'].mean():.1%} wrong, {people['unresolved'].mean():.1%} unresolved"
        )
        source = SOURCES[name]
        lambdas = ", ".join(sorted({f"{value}" for value in part["l2"]}))
        rows.append([name, source.weak, source.people, answers, lambdas, OUR_SET.get(name, "")])
    report.table(["set", "weak labels", "people", "their majority", "l2", "nearest in the paper"], rows, left=6)
