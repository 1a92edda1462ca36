"""Exp1 and what is read off its cells: every selector × strategy × b × γ, F1 after 100 labels; DUTI; the suggestions."""

from collections.abc import Iterator

import pandas as pd

from experiments import figures, methods
from experiments.cells import Cell, selectors
from experiments.paper import EXP1, OUR_SET, SUGGESTIONS
from experiments.plans import Experiment, Plan, by_strategy, paper_cell
from experiments.reporting import Report
from experiments.stats import estimate
from experiments.store import Result

N_TRAIN = 1500
BATCHES, GAMMAS = (10, 100), (0.8, 0.0, 1.0)
FEWER = ("airline_twitter", "fact_google_relations", "pneumonia")
"""Sets for b = 10 with the γ that are not the paper's default: those that have a counterpart in the paper, for time's sake."""


def grid(plan: Plan) -> list[Cell]:
    """All cells of Exp1."""
    return [cell for gamma in GAMMAS for b in BATCHES for cell in _setting(plan, b, gamma)]


def _setting(plan: Plan, b: int, gamma: float) -> Iterator[Cell]:
    sets = plan.among(FEWER) if b == 10 and gamma != 0.8 else plan.sets
    for name in sets:
        for seed in range(plan.seeds):
            for selector, strategy, ahead in by_strategy(selectors()):
                yield paper_cell(
                    plan,
                    "exp1",
                    name,
                    seed,
                    N_TRAIN,
                    selector=selector,
                    strategy=strategy,
                    look_ahead=ahead,
                    b=b,
                    gamma=gamma,
                )


def _report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results)
    report.intro("exp1", n_train=frame["n_train"].max())
    report.intro("differences")
    report.commentary()
    report.text("## Data")
    methods.data_table(report, frame)
    for gamma in GAMMAS:
        for b in BATCHES:
            part = frame[(frame["gamma"] == gamma) & (frame["b"] == b)]
            report.text(f"## b = {b}, γ = {gamma:g}\n\nPaper: {EXP1[b, gamma].where}.")
            methods.f1_table(report, part, EXP1[b, gamma])
            if b == 10:
                methods.gain_figure(report, f"gamma-{gamma:g}", part, f"Gain after 100 labels, b = 10, γ = {gamma:g}")
    report.data(methods.summary(frame, ["b", "gamma"]))


def _duti_cells(plan: Plan) -> list[Cell]:
    return list(_setting(plan, 100, 1.0))


def _duti_report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results)
    report.intro("duti")
    report.intro("differences")
    report.commentary()
    methods.f1_table(report, frame, EXP1[100, 1.0])
    methods.gain_figure(report, "gain", frame, "Gain after 100 labels, b = 100, γ = 1")
    report.data(methods.summary(frame, ["b", "gamma"]))


def _suggestion_cells(plan: Plan) -> list[Cell]:
    return [cell for cell in _setting(plan, 10, 0.8) if cell.strategy == "one"]


def _suggestion_report(report: Report, results: list[Result]) -> None:
    results = [result for result in results if any(share is not None for share in result["suggested_true"])]
    frame = methods.frame_of(results)
    frame["method"] = frame["method"].str.removesuffix(" (one)")
    sets = list(dict.fromkeys(frame["data"]))
    theirs = ", ".join(f"{count} of 100 on {name}" for name, count in SUGGESTIONS.items())
    nearest = " and ".join(f"{name} ({OUR_SET[name]})" for name in sets if OUR_SET.get(name) in SUGGESTIONS)
    report.intro("suggestions", theirs=theirs, nearest=nearest or "none")
    report.commentary()
    rows = []
    for method, part in frame.groupby("method", sort=False):
        shares = [estimate(part.loc[part["data"] == name, "suggested_true"]).text(2) for name in sets]
        rows.append([str(method), *shares, estimate(part.groupby("seed")["suggested_true"].mean()).text(2)])
    report.table(["selector", *sets, "all sets"], rows)
    report.text("## Round by round")
    curve = pd.DataFrame(
        [
            {"x": x, "y": share, "method": frame["method"].iloc[k], "data": frame["data"].iloc[k]}
            for k, result in enumerate(results)
            for x, share in zip(result["asked"][1:], result["suggested_true"], strict=True)
            if share is not None
        ]
    )
    mean = curve.groupby(["method", "data", "x"])["y"].mean().reset_index()
    title = "Suggestions that equal the truth, mean over sets"
    chart = figures.curves(
        mean.groupby(["method", "x"])["y"].mean().reset_index(), title=title, x="labels asked", y="share", share=True
    )
    report.figure("rounds", title, chart)
    report.data(mean.rename(columns={"x": "asked", "y": "share"}).round(4))


EXPERIMENTS = (
    Experiment("exp1", "Exp1: F1 after 100 labels, every selector", grid, _report),
    Experiment("duti", "INFL against DUTI", _duti_cells, _duti_report),
    Experiment("suggestions", "Suggestions that equal the ground truth", _suggestion_cells, _suggestion_report),
)
