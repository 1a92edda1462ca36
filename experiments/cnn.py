"""The paper's table of networks (appendix): F1 after 100 labels, by INFL under its strategies and by everyone else."""

from experiments import methods, networks
from experiments.cells import Cell
from experiments.paper import CNN
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.store import Result

SEEDS, N_TRAIN, N_TEST = 5, 1000, 1000
GAMMA, L2 = 0.8, 1e-3
TEXTS = ("fact_google_relations", "airline_twitter", "youtube_wrench")
"""The paper's two, and one on which a network learns more than the largest class."""
STRATEGIES = {"infl": ("one", "two", "three"), "expected_infl": ("one", "two", "three")}
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
    methods.gain_figure(report, "gain", frame[frame["b"] == 10], "Gain after all labels, b = 10")
    report.data(methods.summary(frame, ["b"]))


EXPERIMENTS = (Experiment("cnn", "Networks: LeNet and a 1-D CNN", grid, _report),)
