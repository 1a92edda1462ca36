"""The paper's table of networks (appendix): F1 after 100 labels, by INFL under its strategies and by everyone else."""

import pandas as pd

from experiments import methods, networks
from experiments.cells import Cell
from experiments.paper import CNN
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.stats import estimate
from experiments.store import Result

SEEDS, N_TRAIN, N_TEST = 5, 1000, 1000
GAMMA, L2 = 0.8, 1e-3
TEXTS = ("fact_google_relations", "airline_twitter", "youtube_wrench")
"""The paper's two, and one on which a network learns more than the largest class."""
STRATEGIES = {"infl": ("one", "two", "three"), "expected_infl": ("one", "two", "three")}
FOLLOWING = ("fine_tune", networks.LAST_EPOCH, "retrain")
WITHOUT_SIGNAL = ("fact_google_relations",)
"""Where this network predicts one class, whatever the labels."""

SELECTORS = (
    "infl", "expected_infl", "infl_d", "infl_y", "least_confidence", "entropy", "margin", "o2u", "random",
)  # fmt: skip
"""All that run on a network, the paper's first."""


def sets_of(plan: Plan) -> tuple[str, ...]:
    """Images and texts that are there, one of each in a quick run."""
    images, texts = networks.images_here(), plan.among(TEXTS)
    return (*images[:1], *texts[:1]) if plan.quick else (*images, *texts)


def grid(plan: Plan) -> list[Cell]:
    """INFL at both batch sizes, the others at 10, as in the paper."""
    return [
        Cell(
            "cnn", name, seed, selector=selector, strategy=strategy, b=b, gamma=GAMMA, l2=L2, holdout=0.0,
            labels=20 if plan.quick else 100, constructor="retrain", kind="network", **plan.sizes(N_TRAIN, N_TEST),
        )
        for name in sets_of(plan)
        for seed in range(min(plan.seeds, SEEDS))
        for selector in SELECTORS
        for b in ((10, 100) if selector == "infl" else (10,))
        for strategy in STRATEGIES.get(selector, ("one",))
    ]  # fmt: skip


def _report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results)
    report.intro(
        "cnn", n_train=frame["n_train"].max(), epochs=networks.EPOCHS, damping=networks.DAMPING,
        rows=networks.CURVATURE_ROWS, l2=L2,
    )  # fmt: skip
    report.commentary()
    for b in sorted(set(frame["b"])):
        part = frame[frame["b"] == b]
        report.text(f"## b = {b}\n\nPaper: {CNN[b].where}.")
        methods.f1_table(report, part, CNN[b])
    _over_rounds(report, frame[frame["b"] == 10])
    methods.gain_figure(report, "gain", frame[frame["b"] == 10], "Gain after all labels, b = 10")
    report.data(methods.summary(frame, ["b"]))


def _over_rounds(report: Report, frame: pd.DataFrame) -> None:
    """Gains averaged over the rounds, which chance moves less than the last round's; and against random, seed by seed."""
    report.text(
        "## Over all rounds, b = 10\n\nA network trained again is another one: from one batch to the next F1 moves by several "
        "points. The mean over the rounds of the gain, averaged over sets, and its difference from that of `random` on the "
        "same seeds:"
    )
    gains = frame.pivot_table(index="seed", columns="method", values="over_rounds")
    rows = []
    for method in dict.fromkeys(frame["method"]):
        right = frame.loc[frame["method"] == method, "suggested_true"].mean()
        rows.append(
            [
                method,
                estimate(gains[method]).text(sign=True),
                estimate(gains[method] - gains["random (one)"]).text(sign=True),
                "–" if pd.isna(right) else f"{right:.0%}",
            ]
        )
    report.table(["method", "gain", "against random", "suggestions right"], rows)


def following_grid(plan: Plan) -> list[Cell]:
    """Each way to follow, with people who answer and with people who never do."""
    return [
        Cell(
            "following", name, seed, selector=selector, strategy=strategy, b=20, gamma=GAMMA, l2=L2, holdout=0.0,
            labels=20 if plan.quick else 100, constructor=constructor, kind="network", **plan.sizes(N_TRAIN, N_TEST),
        )
        for name in sets_of(plan)
        if name not in WITHOUT_SIGNAL
        for seed in range(min(plan.seeds, SEEDS))
        for constructor in FOLLOWING
        for selector, strategy in (("expected_infl", "one"), ("random", "none"))
    ]  # fmt: skip


def _following_report(report: Report, results: list[Result]) -> None:
    frame = methods.frame_of(results).assign(loss=[result["test_loss"][-1] for result in results])
    report.intro("following", n_train=frame["n_train"].max(), epochs=networks.EPOCHS)
    rows = []
    for strategy, answers in (("one", "three people"), ("none", "none")):
        part = frame[frame["strategy"] == strategy]
        loss, gain = (part.pivot_table(index="seed", columns="constructor", values=what) for what in ("loss", "gain"))
        for way in FOLLOWING:
            against = "" if way == FOLLOWING[0] else estimate(loss[way] - loss[FOLLOWING[0]]).text(sign=True)
            cells = [estimate(loss[way]).text(), against, estimate(gain[way]).text(sign=True)]
            rows.append([way, answers, *cells])
    head = ["constructor", "answers", "test loss at the end", f"against {FOLLOWING[0]}", "gain of macro-F1"]
    report.table(head, rows, left=2)
    report.data(
        frame[["data", "seed", "constructor", "strategy", "before", "f1", "loss"]].sort_values(["data", "seed"])
    )


EXPERIMENTS = (
    Experiment("cnn", "Networks: LeNet and a 1-D CNN", grid, _report),
    Experiment("following", "How a network follows", following_grid, _following_report),
)
