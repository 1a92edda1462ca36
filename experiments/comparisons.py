"""The comparison with TARS, on rounded labels, and the table of varied batch sizes."""

from experiments import figures, methods
from experiments.cells import Cell, selectors
from experiments.paper import OUR_SET, TARS, VARIED_B
from experiments.plans import Experiment, Plan, by_strategy, paper_cell
from experiments.reporting import Report
from experiments.stats import estimate
from experiments.store import Result

TARS_SETS = ("youtube_wrench", "trec_rules", "vader_icwsm14", "pneumonia")
TARS_SELECTORS = ("increm_infl", "infl_d", "least_confidence", "entropy", "o2u", "tars", "random")
TARS_TRAIN = 1500

B_SETS, B_LABELS, B_TRAIN = ("airline_twitter", "pneumonia"), 1000, 6000
B_SIZES = (1000, 500, 200, 100, 50, 20, 10)


def _tars_cells(plan: Plan) -> list[Cell]:
    chosen = [name for name in selectors() if name in TARS_SELECTORS]
    return [
        paper_cell(plan, "tars", name, seed, TARS_TRAIN, selector=selector, strategy=strategy, look_ahead=ahead, b=b,
                   gamma=0.8, rounded=True)
        for b in TARS for name in plan.among(TARS_SETS) for seed in range(plan.seeds)
        for selector, strategy, ahead in by_strategy(chosen)
    ]  # fmt: skip


def _tars_report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results)
    report.intro("tars")
    report.intro("differences")
    report.commentary()
    methods.data_table(report, frame)
    for b in TARS:
        part = frame[frame["b"] == b]
        report.text(f"## b = {b}\n\nPaper: {TARS[b].where}.")
        methods.f1_table(report, part, TARS[b])
        methods.gain_figure(report, f"b-{b}", part, f"Gain after 100 labels, rounded weak labels, b = {b}")
    report.data(methods.summary(frame, ["b"]))


def _b_cells(plan: Plan) -> list[Cell]:
    labels = 200 if plan.quick else B_LABELS
    return [
        paper_cell(plan, "varied_b", name, seed, B_TRAIN, selector="increm_infl", strategy="two", b=b, labels=labels, gamma=0.8)
        for name in plan.among(B_SETS) for seed in range(plan.seeds) for b in B_SIZES if b <= labels
    ]  # fmt: skip


def _b_report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results)
    sizes = sorted(set(frame["b"]), reverse=True)
    report.intro("varied_b", labels=frame["labels"].max())
    report.intro("differences")
    report.commentary()
    rows = []
    for name in dict.fromkeys(frame["data"]):
        part = frame[frame["data"] == name]
        before = estimate(part.drop_duplicates("seed")["before"])
        found = [part[part["b"] == b] for b in sizes]
        rows.append([name, before.text(), *[estimate(of_size["f1"]).text() for of_size in found]])
        rows.append(["… seconds", "", *[estimate(of_size["seconds"]).text(1) for of_size in found]])
    for name, theirs in VARIED_B.items():
        mine = [key for key, value in OUR_SET.items() if value == name]
        label = f"paper: {name}" + (f" (nearest: {mine[0]})" if mine else "")
        rows.append([label, f"{theirs[0]:.4f}", *[f"{theirs[b]:.4f}" if b in theirs else "" for b in sizes]])
    report.table(["set", "before", *[f"b = {b:,}" for b in sizes]], rows)
    mean = (
        frame.groupby(["data", "b"])["f1"].mean().reset_index().rename(columns={"data": "method", "b": "x", "f1": "y"})
    )
    title = "F1 after all labels by batch size"
    report.figure("curve", title, figures.curves(mean, title=title, x="batch size b", y="test macro-F1", log_x=True))
    report.data(methods.summary(frame, ["b", "labels"]))


EXPERIMENTS = (
    Experiment("varied_b", "Batches of varied size", _b_cells, _b_report),
    Experiment("tars", "INFL against TARS", _tars_cells, _tars_report),
)
