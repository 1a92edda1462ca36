"""The t-SNE figure of the samples that INFL asks first, among samples whose classes are known."""

import pandas as pd

from experiments import figures
from experiments.cells import Cell
from experiments.embedding import SELECTORS
from experiments.paper import OUR_SET
from experiments.plans import Experiment, Plan, paper_cell
from experiments.reporting import Report
from experiments.store import Result

SETS = ("airline_twitter", "pneumonia")


def _cells(plan: Plan) -> list[Cell]:
    return [
        paper_cell(plan, "tsne", name, 0, 3000, kind="tsne", selector=SELECTORS[0], gamma=0.8)
        for name in plan.among(SETS)
    ]


def _report(report: Report, results: list[Result]) -> None:
    report.intro("tsne", selectors=", ".join(f"`{name}`" for name in SELECTORS))
    report.commentary()
    for result in results:
        name = result["cell"]["data"]
        points = pd.DataFrame(result["points"], columns=["x", "y", "kind", "truth", "suggested"])
        first = points[points["kind"] == SELECTORS[0]]
        right = int((first["truth"] == first["suggested"]).sum())
        near = f" (nearest in the paper: {OUR_SET[name]})" if name in OUR_SET else ""
        report.text(
            f"## {name}{near}\n\nOf the {len(first)} suggestions of `{SELECTORS[0]}`, {right} equal the true class."
        )
        report.figure(
            name, f"{name}: samples asked first", figures.map_of(points, title=f"{name}: samples asked first")
        )
        report.data(points.assign(data=name))


EXPERIMENTS = (Experiment("tsne", "Where the samples asked first lie", _cells, _report),)
