"""Accuracy of people and pull of the suggestion: intervals that hold, and "too few" where nothing can be said.

`python -m experiments.quality` does the same with 500 campaigns a case.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments import quality
from experiments.quality import CASES, Case, gold_intervals, run_case, run_pull, simulated

from labelchef.judge.accuracy import WIDEST, estimate, exact, pull, tells_apart, wilson


def test_the_interval_of_gold_never_covers_less_than_it_says() -> None:
    least = {(row["n"], row["interval"]): row["least"] for row in gold_intervals()}
    assert all(value >= 0.95 for (_, name), value in least.items() if name == "Clopper-Pearson")
    assert all(value < 0.93 for (n, name), value in least.items() if name != "Clopper-Pearson" and n <= 50)
    assert exact(0, 5).low == 0.0
    assert exact(5, 5).high == 1.0
    assert wilson(1.0, 10).high == 1.0


def test_two_people_are_told_apart_where_agreement_shows_the_same() -> None:
    """One is always right and the other errs on 17 %: votes agree with decisions alike, and the model says who errs."""
    case = next(one for one in CASES if "model tells them apart" in one.name)
    seen, truth = simulated(replace(case, items=400), 3)
    counts = quality._agreement(seen)
    assert abs(counts[0] - counts[1]) < 0.05
    first, second = estimate(seen)
    assert second.high < first.low
    assert first.low <= truth[0] <= first.high
    assert second.low <= truth[1] <= second.high


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[6], CASES[11]], ids=lambda one: one.name)
def test_intervals_hold(case: Case) -> None:
    rows = run_case(replace(case, items=120), 20)
    assert np.mean([row.covered for row in rows]) >= 0.9, rows
    assert all(row.width < 2 * WIDEST for row in rows)


def test_nothing_is_told_where_nothing_tells_people_apart() -> None:
    alone = next(one for one in CASES if "neither lead nor model" in one.name)
    assert not tells_apart(simulated(alone, 0)[0])
    assert tells_apart(simulated(replace(alone, gold=30), 0)[0])
    assert run_case(replace(alone, items=60), 3)[0].told == 0.0


def test_more_gold_makes_a_narrower_interval_and_no_answers_the_prior() -> None:
    case = Case("", (0.1, 0.1), items=60, votes=1, model=0.0)
    few, many = (estimate(simulated(replace(case, gold=n), 1)[0])[0].width for n in (5, 200))
    assert many < few / 2
    seen = simulated(replace(case, items=1, gold=0), 1)[0]
    assert min(one.width for one in estimate(seen)) > WIDEST


def test_twelve_blind_votes_tell_nothing_of_the_pull() -> None:
    found = pull([(1, k, k % 3 > 0) for k in range(150)], [(1, 500 + k, k % 4 > 2) for k in range(12)])
    assert found.interval is not None
    assert found.interval.value > 0.3
    assert not found.told
    assert pull([], [(1, 1, True)]).interval is None
    assert pull([(1, 1, True)], [(2, 1, True)]).interval is None  # of different rounds
    rows = [run_pull(n, 0.0, 60) for n in (6, 60)]
    assert [row["told"] for row in rows] == [0.0, 1.0]
    assert min(row["covered"] for row in rows) >= 0.85


def test_votes_on_one_item_are_no_independent_votes() -> None:
    alone = pull([(1, k, k % 2 > 0) for k in range(100)], [(1, 200 + k, k % 2 > 0) for k in range(100)])
    copied = pull([(1, k // 5, k // 5 % 2 > 0) for k in range(100)], [(1, 200 + k, k % 2 > 0) for k in range(100)])
    assert alone.interval is not None
    assert copied.interval is not None
    assert copied.interval.width > 1.4 * alone.interval.width


def test_the_page_of_the_documentation_is_made_by_the_command(tmp_path: Path) -> None:
    found = quality.tables(2, (replace(CASES[0], items=30),), tmp_path / "kept.json")
    assert quality.tables(2, (replace(CASES[0], items=30),), tmp_path / "kept.json")["people"] == found["people"]
    text = quality.markdown(found)
    assert "| two people, one always right, no gold | errs on 17% | 0.830 |" in text
    assert "Clopper-Pearson" in text
