"""Whether the forecast of the next labels holds, by hindsight: `python -m experiments forecast`.

Campaigns of the default settings on the sets of the scoreboard, 100 trusted samples, batches of 20. After every round the
forecast of the next 100 labels is made from the rounds so far and from the other sets, and compared with the gain on the test
part when they are there. Beside it stand the curve alone, without the other sets, and two naive forecasts: the gain of the last
100 labels again (of as many as there are, scaled), and no gain. Prints a table in Markdown.
"""

import argparse
import itertools
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from experiments import data
from labelchef import LabelCleaner
from labelchef.campaign.forecast import Prior, gain_ahead
from labelchef.domain.arrays import Float64s
from labelchef.domain.records import RoundRecord

TRUSTED, BATCH, BUDGET, TRAIN, TEST = 100, 20, 240, 800, 2000
NEXT = 100


def campaign(job: tuple[str, int, str]) -> list[dict[str, Any]]:
    """The rounds of a campaign: labels, metrics on the trusted samples and on test, expected influence of the next 100."""
    name, seed, folder = job
    kept = Path(folder) / f"{name}-{seed}.json"
    if kept.exists():
        return list(json.loads(kept.read_text()))
    problem = data.sourced(name, seed, TRUSTED, n_train=TRAIN, n_test=TEST)
    cleaner = LabelCleaner(budget=BUDGET, batch_size=BATCH, random_state=seed)
    cleaner.fit(
        problem.X, votes=problem.votes, X_val=problem.X_val, y_val=problem.y_val, votes_val=problem.votes_val,
        X_test=problem.X_test, y_test=problem.y_test, classes=list(range(problem.n_classes)),
    )  # fmt: skip
    rows: list[dict[str, Any]] = []

    def note(record: RoundRecord) -> None:
        assert record.test is not None, "there are test samples"
        ahead = expected_change(cleaner) if record.spent % 40 == 0 and record.spent + NEXT <= BUDGET else None
        found = {"validation": record.validation.as_dict(), "test": record.test.as_dict()}
        rows.append({"spent": record.spent, **found, "expected": ahead})

    note(cleaner.rounds_[0])
    cleaner.run(lambda batch: problem.y[batch.indices], on_round=note)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(rows))
    return rows


def expected_change(cleaner: LabelCleaner) -> float:
    """The sum of the expected influences of the next 100 samples, each by itself: a change of the steering loss."""
    session = cleaner._session
    items = session.select(NEXT).indices
    scored, believed = session.scored(items), session.posterior()[items]
    return float((scored.by_answer * believed).sum() / session.objective.engine.n_rows)


def came(rows: list[dict[str, Any]], metric: str) -> list[tuple[int, float]]:
    """(place, gain on test of the next 100 labels) for every round that has them."""
    sign, asked = -1.0 if metric == "loss" else 1.0, [row["spent"] for row in rows]
    test = [sign * row["test"][metric] for row in rows]
    return [(k, test[asked.index(a + NEXT)] - test[k]) for k, a in enumerate(asked) if a + NEXT in asked]


def prior_of(others: list[list[dict[str, Any]]], metric: str, sets: int) -> Prior:
    """What labels brought in these campaigns."""
    slopes = [
        gain / np.log1p(NEXT / (TRUSTED + rows[k]["spent"] + 1)) for rows in others for k, gain in came(rows, metric)
    ]
    return Prior(float(np.mean(slopes)), float(np.std(slopes)), sets)


def judged(rows: list[dict[str, Any]], metric: str, prior: Prior) -> list[dict[str, float]]:
    """Every forecast of a campaign beside what came."""
    sign, asked = -1.0 if metric == "loss" else 1.0, [row["spent"] for row in rows]
    seen, found = [sign * row["validation"][metric] for row in rows], []
    for k, gained in came(rows, metric):
        gain, low, high = gain_ahead(asked[: k + 1], seen[: k + 1], TRUSTED, NEXT, prior)
        alone = gain_ahead(asked[: k + 1], seen[: k + 1], TRUSTED, NEXT, Prior(0.0, 1e6, prior.sets))[0]
        first = max(0, k - NEXT // BATCH)
        last = (seen[k] - seen[first]) * NEXT / (asked[k] - asked[first]) if k else 0.0
        values = {"came": gained, "gain": gain, "low": low, "high": high, "alone": alone, "last": last, "at": asked[k]}
        found.append(values)
    return found


def table(campaigns: dict[tuple[str, int], list[dict[str, Any]]]) -> list[str]:
    """The lines of the table; the prior of a set is from the other sets."""
    lines = [
        "| metric | after | forecasts | came, mean | error: forecast | curve alone | last 100 again | no gain | inside 95 % | "
        "half width | worth 0.01: don't ask, right | ask, right | worth 0.04: don't ask, right |",
        "|" + "---|" * 13,
    ]
    sets = sorted({name for name, _ in campaigns})
    for metric, (first, last) in itertools.product(("accuracy", "f1_macro", "loss"), ((0, 60), (80, BUDGET))):
        rows = []
        for name, seed in campaigns:
            others = [other for (set_, _), other in campaigns.items() if set_ != name]
            prior = prior_of(others, metric, len(sets) - 1)
            rows += [row for row in judged(campaigns[name, seed], metric, prior) if first <= row["at"] <= last]
        names = ("came", "gain", "low", "high", "alone", "last")
        gained, gain, low, high, alone, again = (np.array([row[name] for row in rows]) for name in names)
        errors = [float(np.abs(guess - gained).mean()) for guess in (gain, alone, again, np.zeros_like(gained))]
        said = [(high < 0.01, gained < 0.01), (low >= 0.01, gained >= 0.01), (high < 0.04, gained < 0.04)]
        shown = [f"{gained.mean():+.3f}", *(f"{error:.4f}" for error in errors)]
        shown += [
            f"{100 * float(((low <= gained) & (gained <= high)).mean()):.0f} %",
            f"{((high - low) / 2).mean():.3f}",
        ]
        shown += [f"{int(what.sum())}, {int((what & right).sum())}" for what, right in said]
        lines.append(
            f"| {metric} | {first} to {max(row['at'] for row in rows)} | {len(rows)} | " + " | ".join(shown) + " |"
        )
    return lines


def by_influence(campaigns: dict[tuple[str, int], list[dict[str, Any]]]) -> tuple[Float64s, Float64s]:
    """Falls of the test loss by the next 100 labels: as influence expects them, and as they came."""
    pairs = []
    for rows in campaigns.values():
        pairs += [(-rows[k]["expected"], gain) for k, gain in came(rows, "loss") if rows[k]["expected"] is not None]
    expected, gained = np.array(pairs).T
    return expected, gained


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments forecast", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default="experiments-results/forecast", help="folder of finished campaigns")
    options = parser.parse_args(arguments)
    names = data.sourced_here()
    jobs = [(name, seed, options.out) for seed in range(options.seeds) for name in names]
    with ProcessPoolExecutor(options.jobs) as pool:
        campaigns = dict(zip([job[:2] for job in jobs], pool.map(campaign, jobs), strict=True))
    print(f"{len(campaigns)} campaigns on {', '.join(names)}\n")
    print("\n".join(table(campaigns)))
    for metric in ("accuracy", "f1_macro", "loss"):
        print(f"\n{metric}, all sets: {prior_of(list(campaigns.values()), metric, len(names))}")
    expected, gained = by_influence(campaigns)
    errors = [float(np.abs(guess - gained).mean()) for guess in (expected, np.zeros_like(gained))]
    same = float(np.corrcoef(expected, gained)[0, 1])
    print(f"\nFall of the loss by influence: error {errors[0]:.4f}, no fall {errors[1]:.4f}, correlation {same:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
