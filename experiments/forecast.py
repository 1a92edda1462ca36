"""Whether the forecast of the next labels holds, by hindsight: `python -m experiments forecast`.

Campaigns of the default settings on the sets of the scoreboard, 100 trusted samples, batches of 20. After 40, 60, … labels the
forecast of the next 100 is made from the rounds so far, and compared with the gain on the test part when they are there. Beside
it stand two naive forecasts: the gain of the last 100 labels again (of as many as there are, scaled), and no gain. Prints a
table in Markdown.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from experiments import data
from labelchef import LabelCleaner
from labelchef.campaign.forecast import FEWEST, WORTH, curve_gain
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


def judged(rows: list[dict[str, Any]], metric: str) -> list[dict[str, float]]:
    """Every forecast of a campaign beside what came: gains on test of the next 100 labels."""
    sign, asked = -1.0 if metric == "loss" else 1.0, [row["spent"] for row in rows]
    seen, test = ([sign * row[split][metric] for row in rows] for split in ("validation", "test"))
    found = []
    for k in range(FEWEST, len(rows)):
        if asked[k] + NEXT not in asked:
            continue
        then = asked.index(asked[k] + NEXT)
        forecast = curve_gain(asked[: k + 1], seen[: k + 1], TRUSTED, NEXT)
        assert forecast is not None, "there are enough rounds"
        first = max(0, k - NEXT // BATCH)
        last = (seen[k] - seen[first]) * NEXT / (asked[k] - asked[first])
        gain, low, high = forecast
        found.append(
            {"came": test[then] - test[k], "gain": gain, "low": low, "high": high, "last": last, "at": asked[k]}
        )
    return found


def table(campaigns: list[list[dict[str, Any]]]) -> list[str]:
    """The lines of the table."""
    lines = [
        "| metric | forecasts | came, mean | error: forecast | last 100 again | no gain | inside 95 % | half width | "
        "don't ask, right | ask, right | cannot say |",
        "|" + "---|" * 11,
    ]
    for metric in ("accuracy", "f1_macro", "loss"):
        rows = [row for campaign in campaigns for row in judged(campaign, metric)]
        came, gain, low, high, last = (
            np.array([row[name] for row in rows]) for name in ("came", "gain", "low", "high", "last")
        )
        errors = [float(np.abs(guess - came).mean()) for guess in (gain, last, np.zeros_like(came))]
        dont, ask = high < WORTH, low >= WORTH
        said = [
            f"{int(what.sum())}, {int((what & right).sum())}"
            for what, right in ((dont, came < WORTH), (ask, came >= WORTH))
        ]
        inside = f"{100 * float(((low <= came) & (came <= high)).mean()):.0f} %"
        shown = [
            f"{came.mean():+.3f}",
            *(f"{error:.4f}" for error in errors),
            inside,
            f"{((high - low) / 2).mean():.3f}",
        ]
        lines.append(
            f"| {metric} | {len(rows)} | " + " | ".join([*shown, *said, str(int((~dont & ~ask).sum()))]) + " |"
        )
    return lines


def by_influence(campaigns: list[list[dict[str, Any]]]) -> tuple[Float64s, Float64s, Float64s]:
    """Falls of the test loss after 120 labels: as influence predicts it, the same times what the last prediction came to, and as
    it came."""
    plain, scaled, came = [], [], []
    for rows in campaigns:
        at = {row["spent"]: row for row in rows}
        first, later = at[0]["expected"], at[120]["expected"]
        ratio = (at[100]["validation"]["loss"] - at[0]["validation"]["loss"]) / first
        plain.append(-later)
        scaled.append(-later * ratio)
        came.append(at[120]["test"]["loss"] - at[220]["test"]["loss"])
    return np.array(plain), np.array(scaled), np.array(came)


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments forecast", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default="experiments-results/forecast", help="folder of finished campaigns")
    options = parser.parse_args(arguments)
    names = data.sourced_here()
    jobs = [(name, seed, options.out) for seed in range(options.seeds) for name in names]
    with ProcessPoolExecutor(options.jobs) as pool:
        campaigns = list(pool.map(campaign, jobs))
    print(f"{len(campaigns)} campaigns on {', '.join(names)}\n")
    print("\n".join(table(campaigns)))
    plain, scaled, came = by_influence(campaigns)
    errors = [f"{float(np.abs(guess - came).mean()):.4f}" for guess in (plain, scaled, np.zeros_like(came))]
    print(
        f"\nFall of the loss after 120 labels, error: by influence {errors[0]}, scaled {errors[1]}, no fall {errors[2]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
