"""Exp2, seconds of a selection, and Exp3, seconds of a model update, at the paper's six shapes; Exp3's F1 on real sets."""

from typing import Any

import pandas as pd
from benchmarks.shapes import SHAPES

from experiments import figures, methods
from experiments.cells import Cell
from experiments.paper import DELTAGRAD_F1, EXP2, EXP3_SPEED_UP, OUR_SET
from experiments.plans import Experiment, Plan, paper_cell
from experiments.reporting import Report
from experiments.stats import Estimate, estimate
from experiments.store import Result

SHAPES_USED = ("twitter", "fact", "retina", "chexpert", "fashion", "mimic")
CONSTRUCTORS = ("retrain", "deltagrad_l", "newton")
F1_SETS, F1_TRAIN = ("youtube_wrench", "airline_twitter", "fact_google_relations", "pneumonia"), 1500


def _shapes(plan: Plan) -> tuple[str, ...]:
    return SHAPES_USED[:1] if plan.quick else SHAPES_USED


def _exp2_cells(plan: Plan) -> list[Cell]:
    labels = 40 if plan.quick else 100
    return [
        Cell("exp2", name, 0, kind="selection", labels=labels, n_train=SHAPES[name].n_train) for name in _shapes(plan)
    ]


def _exp2_report(report: Report, results: list[Result]) -> None:
    report.intro("exp2")
    report.intro("shapes")
    report.commentary()
    rows, tidy = [], []
    for result in results:
        name, n = result["cell"]["data"], result["n"]
        for label, found in _ways(result).items():
            theirs = EXP2[name] if label in ("Full", "theorem 1") else None
            printed = (
                ["", ""] if theirs is None else [f"{theirs[label != 'Full']:g}", f"{theirs[2 + (label != 'Full')]:g}"]
            )
            rows.append([f"{name}: {label}", found["inf"].text(4), found["grad"].text(4), f"{found['ratio']:.1f}",
                         f"{found['candidates'] / n:.2%}", f"{found['equal']:.0%}", *printed])  # fmt: skip
            tidy.append({"data": name, "method": label, "seconds": found["grad"].mean, "time_inf": found["inf"].mean,
                         "candidates": found["candidates"], "n": n, "equal": found["equal"]})  # fmt: skip
    head = [
        "shape: way",
        "Time_inf, s",
        "Time_grad, s",
        "Full ÷ Time_grad",
        "candidates",
        "equals Full",
        "paper: Time_inf",
        "paper: Time_grad",
    ]
    report.table(head, rows)
    frame = pd.DataFrame(tidy)
    title = "Seconds to select ten samples, without the solve"
    report.figure("seconds", title, figures.seconds(frame, title=title))
    report.data(frame.rename(columns={"seconds": "time_grad"}).round(6))


def _ways(result: Result) -> dict[str, dict[str, Any]]:
    ways: dict[str, dict[str, Any]] = {}
    for label, rounds in result["rounds"].items():
        solve = [r["solve_seconds"] for r in rounds]
        full = [r["full_seconds"] for r in rounds]
        taken = [r["seconds"] for r in rounds]
        ways.setdefault("Full", _way(full, full, solve, [float(result["n"])] * len(rounds), [True] * len(rounds)))
        ways[label] = _way(taken, full, solve, [r["candidates"] for r in rounds], [r["equal"] for r in rounds])
    return ways


def _way(
    taken: list[float], full: list[float], solve: list[float], candidates: list[float], equal: list[bool]
) -> dict[str, Any]:
    return {
        "grad": estimate(taken),
        "inf": estimate([a + b for a, b in zip(taken, solve, strict=True)]),
        "ratio": sum(full) / sum(taken),
        "candidates": sum(candidates) / len(candidates),
        "equal": sum(equal) / len(equal),
    }


def _exp3_cells(plan: Plan) -> list[Cell]:
    labels = 40 if plan.quick else 100
    timed = [
        Cell("exp3", name, 0, kind="construction", labels=labels, n_train=SHAPES[name].n_train)
        for name in _shapes(plan)
    ]
    return timed + [
        paper_cell(plan, "exp3", name, seed, F1_TRAIN, selector="increm_infl", strategy="two", gamma=0.8, constructor=constructor)
        for name in plan.among(F1_SETS) for seed in range(plan.seeds) for constructor in CONSTRUCTORS
    ]  # fmt: skip


def _exp3_report(report: Report, results: list[Result]) -> None:
    timed = [result for result in results if result["cell"]["kind"] == "construction"]
    report.intro("exp3", speed_up=EXP3_SPEED_UP)
    report.intro("shapes")
    report.commentary()
    rows, tidy = [], []
    for result in timed:
        name = result["cell"]["data"]
        rows.append([name, str(result["epochs"]), *[f"{result[way]:.4f}" for way in CONSTRUCTORS],
                     *[f"{result['retrain'] / result[way]:.1f}" for way in ("deltagrad_l", "unguarded", "newton")],
                     f"{result['off']:.1%}", f"{result['newton_norm']:.0e}"])  # fmt: skip
        tidy += [{"data": name, "method": way, "seconds": result[way]} for way in CONSTRUCTORS]
    ratios = ["retrain ÷ deltagrad_l", "… no guard", "retrain ÷ newton"]
    head = ["shape", "epochs", *[f"{way}, s" for way in CONSTRUCTORS], *ratios, "deltagrad_l off", "newton ‖∇F‖"]
    report.table(head, rows)
    title = "Seconds to follow ten changed labels"
    report.figure("seconds", title, figures.seconds(pd.DataFrame(tidy), title=title))
    _same_f1(report, [result for result in results if result["cell"]["kind"] == "campaign"])
    report.data(pd.DataFrame(tidy).round(6))


def _same_f1(report: Report, results: list[Result]) -> None:
    """Whether models that differ a little end at another F1."""
    frame = methods.frame_of(results)
    report.intro("exp3_f1")
    rows = []
    for name in dict.fromkeys(frame["data"]):
        table = frame[frame["data"] == name].pivot_table(index="seed", columns="constructor", values="f1").dropna()
        gaps = [estimate(table[way] - table["retrain"]) for way in CONSTRUCTORS[1:]]
        theirs = DELTAGRAD_F1.get(OUR_SET.get(name, ""))
        rows.append([name, *[estimate(table[way]).text() for way in CONSTRUCTORS], *[_signed(gap) for gap in gaps],
                     "" if theirs is None else f"{OUR_SET[name]}: {theirs[0]:.4f}, {theirs[1]:.4f}"])  # fmt: skip
    report.table(["set", *CONSTRUCTORS, "deltagrad_l − retrain", "newton − retrain", "paper"], rows)
    report.data(methods.summary(frame, ["constructor"]))


def _signed(gap: Estimate) -> str:
    return gap.text(sign=True)


EXPERIMENTS = (
    Experiment("exp2", "Exp2: seconds to select", _exp2_cells, _exp2_report),
    Experiment("exp3", "Exp3: seconds to update the model", _exp3_cells, _exp3_report),
)
