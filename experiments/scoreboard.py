"""The scoreboard: what would a user have without labelchef? Trusted samples, then a hundred labels, against the libraries of the field."""

from experiments import data, peers
from experiments.cells import Cell
from experiments.plans import Experiment, Plan
from experiments.reporting import Report
from experiments.store import Result

N_TRAIN, N_TEST, BATCH, LABELS = 8000, 5000, 20, 100
SIZES = (100, 30, 300)
"""Trusted samples, in the order in which they are run."""


def _cells(plan: Plan) -> list[Cell]:
    """Some seeds of every size first, so that a run that is stopped has something of everything."""
    sets = data.sourced_here()
    sets = tuple(name for name in sets if name in plan.sets) or sets if plan.quick else sets
    sizes = SIZES[:2] if plan.quick else SIZES
    settings = {"b": BATCH, "labels": 40 if plan.quick else LABELS, **plan.sizes(N_TRAIN, N_TEST)}
    cells = []
    for block in (range(min(3, plan.seeds)), range(3, plan.seeds)):
        for n_trusted in sizes:
            for name in (*peers.ours_here(), *peers.PEERS, peers.CEILING):
                if name == peers.CEILING and n_trusted != max(sizes):
                    continue
                kind = "board" if name in peers.OURS else "peer"
                cells += [
                    Cell("scoreboard", of, seed, selector=name, n_val=n_trusted, kind=kind, **settings)
                    for of in sets for seed in block
                ]  # fmt: skip
    return cells


def _report(report: Report, results: list[Result]) -> None:
    report.text(f"{len(results)}")


EXPERIMENTS = (Experiment("scoreboard", "Scoreboard", _cells, _report),)
