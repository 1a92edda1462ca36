"""People who err: `python -m experiments.people` compares answers taken for the truth with answers taken as a source.

Campaigns of 100 labels, 25 a round, from 100 trusted and 1000 weak samples, with simulated people who err on a given share of
their answers. Two ways of asking: three persons on every sample, with a majority vote; and one person, with an audit of a
quarter. The samples are those of a campaign that takes answers for the truth; from the same answers the other models are made,
so that only the labels differ, not the samples. Prints a table in Markdown: test macro-F1 after the labels, mean over the seeds,
and what was estimated of the people.
"""

import argparse
import copy
import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from experiments import data
from labelchef import Known, LabelCleaner, SourceSettings
from labelchef.base.settings import AUTO, SOURCE, TRUTH, Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.annotators import SimulatedAnnotators
from labelchef.loop.rebuild import rebuild

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
    cleaner = LabelCleaner(
        budget=BUDGET, batch_size=BATCH, audit=WAYS[way][1], random_state=seed, sources=SourceSettings(answers=TRUTH)
    )
    cleaner.fit(
        problem.X, votes=problem.votes, X_val=problem.X_val, y_val=problem.y_val, votes_val=problem.votes_val,
        classes=list(range(problem.n_classes)),
    )  # fmt: skip
    return problem, cleaner


def campaigns(name: str, way: str, rate: float, seed: int) -> list[Outcome]:
    """Label 100 samples, and test a model for every mode."""
    problem, cleaner = started(name, way, seed)
    cleaner = copy.deepcopy(cleaner)
    rates = (rate,) * WAYS[way][0]
    cleaner.run(SimulatedAnnotators(problem.y, n_classes=problem.n_classes, error_rates=rates, seed=seed))
    given = CampaignData.of(
        problem.X, None, votes=problem.votes, X_val=problem.X_val, y_val=problem.y_val, votes_val=problem.votes_val,
        known=Known(X_test=problem.X_test, y_test=problem.y_test), classes=list(range(problem.n_classes)),
    )  # fmt: skip
    first, *rounds = cleaner.rounds_
    found = []
    for mode in MODES:
        settings = Settings(budget=BUDGET, batch_size=BATCH, audit=WAYS[way][1], seed=seed, answers=mode)
        session = rebuild(given, settings, rounds, first=first)
        assert session.test is not None, "there are test samples"
        f1, facts = session.test.metrics(session.parameters).f1_macro, session.people()
        known = (np.nan, np.nan, np.nan, False) if facts is None else (facts.error, facts.low, facts.high, facts.source)
        found.append(Outcome(name, way, rate, mode, seed, f1, *known))
    return found


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
                    if (name, way, rate, TRUTH, seed) not in known:
                        done += (found := campaigns(name, way, rate, seed))
                        with options.out.open("a") as file:
                            file.write("".join(json.dumps(asdict(one)) + "\n" for one in found))
    print(table(done))


if __name__ == "__main__":
    main()
