"""Run experiments by name: `python -m experiments scoreboard exp1 …`, or all of them."""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from experiments import (
    automatic,
    cnn,
    comparisons,
    defaults,
    exp1,
    scoreboard,
    selectors,
    speed,
    tsne,
)
from experiments.plans import Experiment, Plan
from experiments.reporting import RESULTS, Report, header
from experiments.running import Outcome, estimated_seconds, run_cells
from experiments.store import CellStore

EXPERIMENTS = {
    experiment.name: experiment
    for module in (scoreboard, selectors, defaults, exp1, comparisons, speed, tsne, cnn, automatic)
    for experiment in module.EXPERIMENTS
}


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, write; 1 if a cell failed, 130 if interrupted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"unknown experiment {unknown[0]!r}; expected one of: {', '.join(EXPERIMENTS)}")
    if options.quick and options.publish:
        parser.error("--quick with --publish; expected one of them: a reduced run is no result to publish")
    console = Console(soft_wrap=True, highlight=False, stderr=True)
    chosen = [EXPERIMENTS[name] for name in dict.fromkeys(options.names or EXPERIMENTS)]
    out: Path = options.out or Path("experiments-quick" if options.quick else "experiments-results")
    plan = Plan.of(quick=options.quick, seeds=options.seeds)
    store = CellStore(out)
    if options.fresh:
        store.forget([cell for experiment in chosen for cell in experiment.cells(plan)])
    console.print(_announcement(chosen, plan, store, options.jobs))
    failures = 0
    for experiment in chosen:
        began = time.perf_counter()
        cells = experiment.cells(plan)
        try:
            outcome = run_cells(cells, store, jobs=options.jobs, console=console)
        except KeyboardInterrupt:
            console.print(f"interrupted; finished cells are kept in {out / 'cells'}: the same command goes on")
            return 130
        failures += len(outcome.failures)
        page = _write(experiment, plan, outcome, out, options.publish)
        missing = f", {len(outcome.failures)} cells failed" if outcome.failures else ""
        console.print(f"{experiment.name}: {page} ({time.perf_counter() - began:.0f} s{missing})")
    if failures:
        console.print(f"{failures} cells failed; they are tried again by the same command", style="red")
    return 1 if failures else 0


def _write(experiment: Experiment, plan: Plan, outcome: Outcome, out: Path, publish: bool) -> Path | str:
    results = [outcome.results[cell.key] for cell in experiment.cells(plan) if cell.key in outcome.results]
    if not results:
        return "nothing to write"
    report = Report(experiment.name, experiment.title)
    report.text(header(results, experiment.name, plan.quick))
    if outcome.failures:
        report.text(f"**{len(outcome.failures)} cells failed and are missing below.**")
    experiment.report(report, results)
    return report.write(RESULTS if publish else out)


def _announcement(chosen: list[Experiment], plan: Plan, store: CellStore, jobs: int) -> str:
    cells = {cell.key: cell for experiment in chosen for cell in experiment.cells(plan)}
    done = store.finished(cells.values())
    left = [cell for key, cell in cells.items() if key not in done]
    minutes = estimated_seconds(left, jobs) / 60
    sets = ", ".join(dict.fromkeys(cell.data for cell in cells.values()))
    return f"{len(cells):,} cells on {sets}; {len(left):,} to run, roughly {minutes:.0f} minutes with {jobs} jobs"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(EXPERIMENTS)}; all, if none is named")
    parser.add_argument("--quick", action="store_true", help="two sets, two seeds, few samples: every page, reduced")
    parser.add_argument("--out", type=Path, help="folder of cells and pages (experiments-results, experiments-quick)")
    parser.add_argument("--seeds", type=_at_least_one, help="seeds of each cell (10; quick: 2)")
    parser.add_argument("--jobs", type=_at_least_one, default=2, help="processes (2)")
    parser.add_argument("--fresh", action="store_true", help="forget finished cells of these experiments first")
    parser.add_argument("--publish", action="store_true", help="write to experiments/results/ instead of the folder")
    return parser


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}; expected at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
