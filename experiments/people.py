"""People who err: `python -m experiments.people` compares answers taken for the truth with answers taken as a source.

Campaigns of 100 labels, 25 a round, from 100 trusted and 1000 weak samples, with simulated people who err on a given share of
their answers. Two ways of asking: three persons on every sample, with a majority vote; and one person, with an audit of a
quarter. Prints a table in Markdown: test macro-F1 after the labels, mean over the seeds, and what was estimated of the people.
"""

import argparse
import copy
import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score

from experiments import data
from labelchef import LabelCleaner
from labelchef.annotators import SimulatedAnnotators
from labelchef.domain.settings import AUTO, SOURCE, TRUTH

RATES = (0.0, 0.05, 0.1, 0.2)
WAYS = {"three persons": (3, 0.0), "one person, audit": (1, 0.25)}
"""Persons on every sample, and the share that is audited."""
MODES = (TRUTH, SOURCE, AUTO)
SETS = ("trec_rules", "airline_twitter", "vader_icwsm14")
TRUSTED, BUDGET, BATCH, TRAIN, TEST = 100, 100, 25, 1000, 4000


@dataclass(frozen=True)
class Outcome:
    """One campaign."""

    set: str
    way: str
    rate: float
    mode: str
    seed: int
    f1: float
    error: float
    """Estimated ε; NaN if answers are taken for the truth."""
    low: float
    high: float
    source: bool
    """Whether answers were a source at the end."""


@functools.cache
def started(name: str, way: str, seed: int) -> tuple[data.Sourced, LabelCleaner]:
    """The problem of a seed, and a cleaner that has its first model, which is the same for all people."""
    problem = data.sourced(name, seed, TRUSTED, n_train=TRAIN, n_test=TEST)
    cleaner = LabelCleaner(budget=BUDGET, batch_size=BATCH, audit=WAYS[way][1], random_state=seed)
    cleaner.fit(
        problem.X, votes=problem.votes, X_val=problem.X_val, y_val=problem.y_val, votes_val=problem.votes_val,
        classes=list(range(problem.n_classes)),
    )  # fmt: skip
    return problem, cleaner


def campaign(name: str, way: str, rate: float, mode: str, seed: int) -> Outcome:
    """Label 100 samples, and test."""
    problem, cleaner = started(name, way, seed)
    cleaner = copy.deepcopy(cleaner)
    learner = cleaner._session.learner
    assert learner is not None, "trusted samples train"
    learner.answers = mode
    rates = (rate,) * WAYS[way][0]
    cleaner.run(SimulatedAnnotators(problem.y, n_classes=problem.n_classes, error_rates=rates, seed=seed))
    f1 = float(f1_score(problem.y_test, cleaner.predict(problem.X_test), average="macro"))
    facts = cleaner.people_
    found = (np.nan, np.nan, np.nan, False) if facts is None else (facts.error, facts.low, facts.high, facts.source)
    return Outcome(name, way, rate, mode, seed, f1, *found)


def table(outcomes: list[Outcome]) -> str:
    """The outcomes in Markdown."""
    lines = ["| asked | set | people err | truth | source | auto | estimated (auto, mean) | auto is source |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for way in WAYS:
        for name in dict.fromkeys(one.set for one in outcomes):
            for rate in RATES:
                here = [one for one in outcomes if (one.set, one.way, one.rate) == (name, way, rate)]
                f1 = {mode: [one.f1 for one in here if one.mode == mode] for mode in MODES}
                auto = [one for one in here if one.mode == AUTO]
                if not all(f1.values()):
                    continue
                scores = " | ".join(f"{np.mean(f1[mode]):.3f}" for mode in MODES)
                ends = [f"{np.mean([getattr(one, end) for one in auto]):.2f}" for end in ("error", "low", "high")]
                used = f"{sum(one.source for one in auto)} of {len(auto)}"
                lines.append(
                    f"| {way} | {name} | {rate:.0%} | {scores} | {ends[0]} ({ends[1]} to {ends[2]}) | {used} |"
                )
    return "\n".join(lines)


def main() -> None:
    """Run what is not in the file of outcomes yet, then print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.people", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("experiments-results/people.jsonl"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = (
        [Outcome(**json.loads(line)) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    )
    known = {(one.set, one.way, one.rate, one.mode, one.seed) for one in done}
    here = [name for name in SETS if name in data.sourced_here()] or ["digits"]
    for seed in range(options.seeds):
        for way in WAYS:
            for name in here:
                for rate in RATES:
                    for mode in MODES:
                        if (name, way, rate, mode, seed) not in known:
                            done.append(campaign(name, way, rate, mode, seed))
                            with options.out.open("a") as file:
                                file.write(json.dumps(asdict(done[-1])) + "\n")
    print(table(done))


if __name__ == "__main__":
    main()
