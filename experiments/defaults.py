"""How gamma and l2 should be chosen, whether features want scaling, and what validation that steers says of itself."""

from typing import Any

import pandas as pd

from experiments import methods
from experiments.cells import Cell, product_default
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.stats import estimate
from experiments.store import Result

GAMMAS, STRENGTHS = (1.0, 0.8, 0.3, 0.1, 0.03), (1e-4, 1e-3, 1e-2)
BEFORE = (0.8, 0.01)
"""What the defaults were before they were chosen from the data."""
N_TRAIN, LABELS, BATCH = 1500, 100, 20
STEERING = (50, 100, 200, 300)


def _cell(plan: Plan, name: str, seed: int, **settings: Any) -> Cell:
    given = {"holdout": product_default("holdout"), **plan.sizes(N_TRAIN), **settings}
    return Cell(
        "defaults", name, seed, selector=product_default("selector"), look_ahead=True, b=BATCH, labels=LABELS, **given
    )


def _cells(plan: Plan) -> list[Cell]:
    cells = []
    for name in plan.sets:
        for seed in range(plan.seeds):
            cells.append(_cell(plan, name, seed, gamma="auto", l2="auto"))
            cells.append(_cell(plan, name, seed, gamma="auto", l2="auto", standardised=True))
            cells += [_cell(plan, name, seed, gamma=gamma, l2=l2) for gamma in GAMMAS for l2 in STRENGTHS]
            cells += [_cell(plan, name, seed, gamma="auto", l2="auto", holdout=0.0, n_val=n) for n in STEERING]
    return cells


def _report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results)
    frame["chosen_gamma"] = [result["gamma"] for result in results]
    frame["chosen_l2"] = [result["l2"] for result in results]
    frame["val_gain"] = [result["val_f1"][-1] - result["val_f1"][0] for result in results]
    report.intro("defaults", labels=LABELS, b=BATCH, n_train=int(frame["n_train"].max()))
    report.commentary()
    grid = frame[frame["n_val"].isna() & ~frame["standardised"]]
    _chosen(report, grid, frame[frame["standardised"]])
    report.intro("defaults_grid")
    _grid(report, grid)
    report.intro("defaults_validation")
    _validation(report, frame[frame["n_val"].notna()])
    report.data(_tidy(frame))


def _chosen(report: Report, grid: pd.DataFrame, scaled: pd.DataFrame) -> None:
    rows = []
    for name in dict.fromkeys(grid["data"]):
        part = grid[grid["data"] == name]
        auto, fixed = part[part["gamma"] == "auto"], part[part["gamma"] != "auto"]
        means = fixed.groupby(["gamma", "l2"])["f1"].mean()
        gamma, l2 = means.idxmax()
        old = fixed[(fixed["gamma"] == BEFORE[0]) & (fixed["l2"] == BEFORE[1])].set_index("seed")["f1"]
        gain = estimate(auto.set_index("seed")["f1"] - old)
        by_scale = scaled.loc[scaled["data"] == name].set_index("seed")["f1"] - auto.set_index("seed")["f1"]
        rows.append(
            [name, estimate(auto["before"]).text(), estimate(auto["f1"]).text(), gain.text(sign=True),
             f"{means.max():.3f} ({gamma:g}, {l2:g})", f"{auto['chosen_gamma'].median():g}", f"{auto['chosen_l2'].median():.1e}",
             estimate(by_scale).text(sign=True)]
        )  # fmt: skip
    head = ["set", "before cleaning", "auto", f"gain over gamma {BEFORE[0]:g}, l2 {BEFORE[1]:g}",
            "best fixed pair, chosen on test (gamma, l2)", "median gamma chosen", "median l2 chosen",
            "standardised features, gain over plain"]  # fmt: skip
    report.table(head, rows)


def _grid(report: Report, grid: pd.DataFrame) -> None:
    fixed = grid[grid["gamma"] != "auto"]
    regret = fixed["f1"] - fixed.groupby(["data", "seed"])["f1"].transform("max")
    auto = grid[grid["gamma"] == "auto"].set_index(["data", "seed"])["f1"]
    best = fixed.groupby(["data", "seed"])["f1"].max()
    rows = []
    for gamma in GAMMAS:
        at = [regret[(fixed["gamma"] == gamma) & (fixed["l2"] == l2)] for l2 in STRENGTHS]
        rows.append([f"{gamma:g}", *[estimate(lost.groupby(fixed["seed"]).mean()).text(sign=True) for lost in at]])
    report.table(["gamma", *[f"l2 = {l2:g}" for l2 in STRENGTHS]], rows)
    report.text(f"auto: {estimate((auto - best).groupby('seed').mean()).text(sign=True)}.")


def _validation(report: Report, frame: pd.DataFrame) -> None:
    sizes = sorted({int(n) for n in frame["n_val"]})
    rows = []
    for name in dict.fromkeys(frame["data"]):
        part = frame[frame["data"] == name]
        cells = []
        for n in sizes:
            sized = part[part["n_val"] == n]
            cells += [estimate(sized["val_gain"]).text(sign=True), estimate(sized["gain"]).text(sign=True)]
        rows.append([name, *cells])
    report.table(["set", *[f"{n} samples: {what}" for n in sizes for what in ("steering", "test")]], rows)


def _tidy(frame: pd.DataFrame) -> pd.DataFrame:
    rows = []
    frame = frame.assign(n_val=frame["n_val"].fillna(0))
    for key, part in frame.groupby(["data", "gamma", "l2", "standardised", "n_val"], sort=False):
        found = estimate(part["f1"])
        rows.append(
            {**dict(zip(["data", "gamma", "l2", "standardised", "n_val"], key, strict=True)), "seeds": found.n,
             "before": part["before"].mean(), "f1": found.mean, "half": found.half, "gain": part["gain"].mean(),
             "steering_gain": part["val_gain"].mean(), "gamma_chosen": part["chosen_gamma"].median(),
             "l2_chosen": part["chosen_l2"].median()}
        )  # fmt: skip
    return pd.DataFrame(rows).round(6)


def _alone_cells(plan: Plan) -> list[Cell]:
    given = {name: product_default(name) for name in ("gamma", "l2", "holdout")}
    return [
        Cell(
            "alone",
            name,
            seed,
            selector=selector,
            strategy=strategy,
            look_ahead=True,
            b=10,
            labels=LABELS,
            **given,
            **plan.sizes(N_TRAIN),
        )
        for name in plan.sets
        for seed in range(plan.seeds)
        for selector in ("expected_infl", "increm_infl")
        for strategy in ("one", "two", "three")
    ]


def _alone_report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results)
    frame["judged"] = [result["val_f1"][-1] - result["val_f1"][0] for result in results]
    report.intro("alone", labels=LABELS, n_train=int(frame["n_train"].max()))
    report.commentary()
    head = ["set", "suggestions right", "gain, *one*", "gain, *two*", "gain, *three*", "*two*, judged by validation"]
    for selector in dict.fromkeys(frame["selector"]):
        report.text(f"## `{selector}`")
        rows = []
        for name in dict.fromkeys(frame["data"]):
            part = frame[(frame["data"] == name) & (frame["selector"] == selector)]
            by = {strategy: part[part["strategy"] == strategy] for strategy in ("one", "two", "three")}
            gains = [estimate(by[strategy]["gain"]).text(sign=True) for strategy in by]
            right = estimate(by["two"]["suggested_true"]).text(2)
            rows.append([name, right, *gains, estimate(by["two"]["judged"]).text(sign=True)])
        report.table(head, rows)
    report.data(methods.summary(frame, ["selector", "strategy"]))


EXPERIMENTS = (
    Experiment("defaults", "gamma, l2, scaling and validation", _cells, _report),
    Experiment("alone", "When suggestions decide alone", _alone_cells, _alone_report),
)
