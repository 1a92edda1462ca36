"""The experiments: cells resume and are reproducible, tables say what the cells say."""

import doctest
import io
import itertools
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from experiments import __main__ as command
from experiments import (
    automatic,
    cells,
    cnn,
    data,
    exp1,
    networks,
    paper,
    peers,
    regression,
    running,
    scoreboard,
    speed,
    stats,
)
from experiments.cells import CHOOSERS, SAME_BATCHES, Cell, run_cell
from experiments.margins import MARGINS
from experiments.plans import Plan
from experiments.reporting import Report, header
from experiments.store import CellStore
from rich.console import Console
from scipy.stats import bootstrap, ttest_1samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from labelchef import LabelCleaner
from labelchef.base.errors import MissingExtraError
from labelchef.base.records import Batch
from labelchef.chef.selectors import MarginSelector, Selector
from labelchef.networks import NETWORK_SELECTORS
from tests.test_source_muting import N_VAL, N, drawn

SMALL: dict[str, Any] = {"gamma": 0.8, "l2": 0.01, "labels": 20, "n_train": 120, "n_test": 100, "n_val": 60}
PLAN = Plan(quick=True, seeds=2, sets=("digits",))


def cell(**settings: Any) -> Cell:
    return Cell(**{"experiment": "trial", "data": "digits", "seed": 0, "selector": "random", **SMALL, **settings})


def quiet() -> Console:
    return Console(file=io.StringIO())


def timeless(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if not key.startswith("seconds")}


def campaign(of: Cell, f1: list[float], wrong: float = 0.0) -> dict[str, Any]:
    """A result as `run_cell` would have written it."""
    steps = len(f1)
    return {
        "key": of.key, "cell": asdict(of), "version": "0", "code": "c", "seconds": 1.0, "warnings": [],
        "asked": [of.labels * k // (steps - 1) for k in range(steps)], "test_f1": f1, "val_f1": f1,
        "test_accuracy": [f1[0], f1[-1]], "suggested_true": [None] * (steps - 1), "wrong": wrong, "unresolved": 0.0,
        "seconds_select": 0.1, "seconds_construct": 0.1,
    }  # fmt: skip


def row_of(report: Report, start: str) -> list[str]:
    lines = [line for part in report.parts for line in part.splitlines()]
    found = next(line for line in lines if line.startswith(f"| {start} |"))
    return [field.strip() for field in found.strip("|").split("|")]


# cells


def test_a_key_follows_the_settings() -> None:
    assert cell().key == cell().key
    others = [cell(seed=1), cell(gamma=1.0), cell(selector="entropy"), cell(b=5), cell(holdout=0.0), cell(n_train=121)]
    assert len({c.key for c in [cell(), *others]}) == 7


def test_a_key_follows_recipe_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cell().key
    monkeypatch.setattr(cells, "RECIPE", cells.RECIPE + 1)
    assert cell().key != before


def test_a_result_is_plain_json_that_fits_the_cell() -> None:
    result = run_cell(cell(selector="increm_infl", strategy="two"))
    assert json.loads(json.dumps(result)) == result
    assert result["asked"] == [0, 10, 20]
    assert len(result["test_f1"]) == len(result["val_f1"]) == 3
    truth_share = np.mean(result["suggested_true"])
    assert result["wrong"] == pytest.approx(1 - truth_share, abs=1e-3)  # under 'two' the suggestion is the answer


def test_a_selector_without_suggestions_has_no_share() -> None:
    assert run_cell(cell())["suggested_true"] == [None, None]


def test_split_validation_is_chosen_where_there_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Splitting:
        def __init__(self, holdout: str = "auto", l2: float = 0.5) -> None: ...

    class Plain:
        def __init__(self, l2: float = 0.5) -> None: ...

    monkeypatch.setattr(cells, "LabelCleaner", Splitting)
    assert (cells.whole_validation(), cells.product_default("holdout"), cells.product_default("l2")) == (
        0.0,
        "auto",
        0.5,
    )
    monkeypatch.setattr(cells, "LabelCleaner", Plain)
    assert (cells.whole_validation(), cells.product_default("holdout")) == (None, None)


@pytest.mark.slow
def test_a_cell_alone_equals_the_cell_in_a_pool_and_a_failure_stops_nothing(tmp_path: Path) -> None:
    good = [cell(selector="increm_infl"), cell(selector="random", seed=1), cell(selector="entropy", strategy="one")]
    bad = cell(selector="no_such_selector")
    outcome = running.run_cells([good[2], bad, good[1], good[0]], CellStore(tmp_path), jobs=2, console=quiet())
    assert [failed for failed, _ in outcome.failures] == [bad]
    assert "no_such_selector" in outcome.failures[0][1]
    for one in good:
        assert timeless(run_cell(one)) == timeless(outcome.results[one.key])
    assert CellStore(tmp_path).finished([*good, bad]) == outcome.results


# resuming


def test_finished_cells_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, done, left = CellStore(tmp_path), cell(), cell(seed=1)
    store.add(campaign(done, [0.5, 0.6, 0.7]))
    ran: list[Cell] = []
    monkeypatch.setattr(running, "_run", lambda part, *_: ran.extend(part))
    outcome = running.run_cells([done, left, left], store, jobs=2, console=quiet())
    assert ran == [left]
    assert outcome.results[done.key]["test_f1"] == [0.5, 0.6, 0.7]


def test_a_line_cut_short_is_survived(tmp_path: Path) -> None:
    store, first, second, third = CellStore(tmp_path), cell(), cell(seed=1), cell(seed=2)
    store.add(campaign(first, [0.5, 0.6]))
    path = tmp_path / "cells" / "trial.jsonl"
    path.write_bytes(path.read_bytes() + json.dumps(campaign(second, [0.1, 0.2])).encode()[:50])
    assert list(store.finished([first, second])) == [first.key]
    store.add(campaign(third, [0.7, 0.8]))
    assert set(store.finished([first, second, third])) == {first.key, third.key}


def test_cells_of_other_experiments_and_settings_do_not_count(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    store.add(campaign(cell(), [0.5, 0.6]))
    assert store.finished([cell(gamma=0.0), cell(experiment="other")]) == {}
    store.add(campaign(cell(seed=7), [0.5, 0.6]))
    store.forget([cell()])
    assert store.finished([cell()]) == {}
    assert len(store.finished([cell(seed=7)])) == 1  # of the same file, and not named


def test_the_command_reports_failures_by_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [(cell(), "ValueError: no")]
    for failures, code in (([], 0), (failing, 1)):
        outcome = running.Outcome({}, list(failures))
        monkeypatch.setattr(command, "run_cells", lambda *_, found=outcome, **__: found)
        assert command.main(["tsne", "--quick", "--out", str(tmp_path)]) == code


def test_an_interrupt_ends_the_command_in_peace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_cells", interrupted)
    assert command.main(["tsne", "--quick", "--out", str(tmp_path)]) == 130


@pytest.mark.parametrize("arguments", [["nothing_of_the_kind"], ["tsne", "--quick", "--publish"], ["--jobs", "0"]])
def test_the_command_refuses_what_makes_no_sense(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert "expected" in capsys.readouterr().err


# grids


@pytest.mark.parametrize("quick", [True, False])
def test_the_grid_covers_every_selector(quick: bool) -> None:
    grid = command.EXPERIMENTS["exp1"].cells(replace(PLAN, quick=quick))
    assert {c.selector for c in grid} | set(SAME_BATCHES) == set(CHOOSERS)
    assert set(SAME_BATCHES.values()) <= {c.selector for c in grid}


def test_exp1_has_every_strategy_batch_size_and_gamma_once() -> None:
    grid = exp1.grid(PLAN)
    assert len({c.key for c in grid}) == len(grid)
    for b, gamma, seed in itertools.product((10, 100), (0.0, 0.8, 1.0), (0, 1)):
        part = [c for c in grid if (c.b, c.gamma, c.seed) == (b, gamma, seed) and not c.look_ahead]
        for selector in {c.selector for c in part}:
            expected = {"one", "two", "three"} if CHOOSERS[selector]().suggests else {"one"}
            assert {c.strategy for c in part if c.selector == selector} == expected


def test_the_scoreboard_has_every_row_at_every_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABELCHEF_DATA", raising=False)
    grid = command.EXPERIMENTS["scoreboard"].cells(Plan(quick=False, seeds=5, sets=("digits",)))
    assert len({c.key for c in grid}) == len(grid)
    rows = {*peers.PEERS, *peers.ours_here()}
    erring = {c.selector for c in grid if c.strategy == "errs" and c.n_val == 100}
    assert erring == set(scoreboard.ERRING) & rows
    grid = [c for c in grid if c.strategy != "errs"]
    for size, seed in itertools.product((30, 100, 300), range(5)):
        there = {c.selector for c in grid if (c.n_val, c.seed, c.data) == (size, seed, "digits")}
        assert there - {"ceiling"} == rows
    assert sum(c.selector == "ceiling" for c in grid) == 5
    assert {c.seed for c in grid[: len(grid) // 2]} == {0, 1, 2}  # a run that is stopped has some seeds of all sizes


def test_peers_are_not_run_again_for_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, ours = cell(kind="peer"), cell(kind="board")
    before = (peer.key, ours.key)
    monkeypatch.setattr("labelchef.__version__", "999")
    assert peer.key == before[0]
    assert ours.key != before[1]


def test_full_runs_have_ten_seeds() -> None:
    assert Plan.of().seeds == 10
    assert Plan.of(seeds=3).seeds == 3


# figures in tables


def test_doctests_of_the_statistics() -> None:
    found = doctest.testmod(stats)
    assert found.attempted >= 2
    assert found.failed == 0


def test_intervals_are_those_of_students_test(rng: np.random.Generator) -> None:
    values = rng.normal(size=10)
    found = stats.estimate(values)
    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    resampled = bootstrap((values,), np.mean, rng=rng, method="basic").confidence_interval
    assert found.half == pytest.approx((resampled.high - resampled.low) / 2, rel=0.5)
    assert (stats.estimate([]).text(), stats.estimate([0.25]).text()) == ("–", "0.250")


def test_mean_ranks_share_ties_and_leave_incomplete_sets_out() -> None:
    values = {
        ("one", 0): {"a": 0.9, "b": 0.9, "c": 0.1},  # 1.5, 1.5, 3
        ("two", 0): {"a": 0.2, "b": 0.3, "c": 0.4},  # 3, 2, 1
        ("one", 1): {"a": 0.5, "b": 0.6, "c": 0.4},  # 2, 1, 3
        ("two", 1): {"a": 0.9, "b": 0.1},  # c failed: nobody is ranked
    }
    rows = [
        {"data": name, "seed": seed, "method": method, "f1": f1}
        for (name, seed), found in values.items()
        for method, f1 in found.items()
    ]
    ranks = stats.mean_ranks(pd.DataFrame(rows), "f1")
    assert ranks.loc[0].to_dict() == {"a": 2.25, "b": 1.75, "c": 2.0}
    assert ranks.loc[1].to_dict() == {"a": 2.0, "b": 1.0, "c": 3.0}


def test_the_paper_stands_beside_exp1(tmp_path: Path) -> None:
    plan = Plan(quick=True, seeds=2, sets=("airline_twitter", "vader_icwsm14"))
    results = []
    for c in exp1.grid(plan):
        lift = 0.2 if (c.selector, c.strategy) == ("increm_infl", "two") else 0.1
        results.append(campaign(c, [0.5, 0.5 + lift + 0.02 * c.seed]))
    report = Report("exp1", "Exp1")
    report.text(header(results, "exp1", quick=True))
    exp1._report(report, results)
    row = row_of(report, "increm_infl (two)")
    assert row[1:3] == ["**0.710 ± 0.127**"] * 2  # t(1) = 12.706, √2·0.01 / √2 · 12.706
    assert row[3] == "0.6697"
    assert row[4] == "+0.210 ± 0.127"
    gains = [
        b - a for a, b in zip(*(paper.EXP1[10, 0.8].f1[m].values() for m in ("uncleaned", "INFL (two)")), strict=True)
    ]
    assert row[5] == f"{np.mean(gains):+.4f}" == "+0.0058"
    assert row_of(report, "before cleaning")[3] == "0.6485"
    page = report.write(tmp_path / "page")
    for link in ("exp1.csv", "exp1-gamma-0.8.svg"):
        assert f"({link})" in page.read_text()
        assert (page.parent / link).exists()
    table = pd.read_csv(page.with_suffix(".csv"))
    assert len(table) == len(results) / 2


def test_the_paper_stands_beside_networks(tmp_path: Path) -> None:
    grid = cnn.grid(Plan(quick=False, seeds=9, sets=("airline_twitter",)))
    texts = [c for c in grid if c.data == "airline_twitter"]
    assert len({c.key for c in texts}) == len(texts)
    assert {c.seed for c in texts} == set(range(5))
    assert {c.selector for c in texts} == set(NETWORK_SELECTORS)
    results = [campaign(c, [0.5, 0.5 + 0.1 * (c.selector == "infl" and c.b == 10)]) for c in texts]
    report = Report("cnn", "Networks")
    cnn._report(report, results)
    assert row_of(report, "infl (two)")[1:4] == ["**0.600 ± 0.000**", "0.6907", "+0.100 ± 0.000"]
    assert row_of(report, "infl_y (one)")[2] == ""
    assert "{" not in report.write(tmp_path).read_text()


@pytest.mark.slow
def test_a_cell_with_a_network_is_the_same_every_time() -> None:
    of = cell(experiment="cnn", kind="network", selector="infl", constructor="retrain", holdout=0.0, l2=0.001)
    first = run_cell(of)
    assert first["asked"] == [0, 10, 20]
    assert timeless(run_cell(of)) == timeless(first)


def test_a_network_that_nobody_answers_stays_as_it_is_when_trained_again() -> None:
    settings = {"kind": "network", "selector": "random", "strategy": "none", "holdout": 0.0, "l2": 0.001}
    again = run_cell(cell(experiment="following", constructor="retrain", **settings))
    assert again["unresolved"] == 1.0
    assert len(set(again["test_loss"])) == 1
    on = run_cell(cell(experiment="following", constructor=networks.LAST_EPOCH, **settings))
    assert len(set(on["test_loss"])) == len(on["test_loss"])
    grid = cnn.following_grid(Plan(quick=False, seeds=9, sets=("airline_twitter", "fact_google_relations")))
    assert {c.data for c in grid} >= {"airline_twitter"}
    assert "fact_google_relations" not in {c.data for c in grid}
    report = Report("following", "How a network follows")
    made = [{**campaign(c, [0.4, 0.5]), "test_loss": [0.7, 0.6]} for c in grid]
    cnn._following_report(report, made)
    assert any("| fine_tune | three people | 0.600 ± 0.000 |" in part for part in report.parts)


def test_the_papers_tables_were_read_whole() -> None:
    assert paper.CNN[10].of("O2U", "Twitter") == 0.6740
    assert {len(table.f1["uncleaned"]) for table in paper.EXP1.values()} == {6}
    assert paper.EXP1[100, 1.0].of("DUTI", "Twitter") == 0.6230
    assert paper.EXP1[10, 0.0].of("INFL (two)", "Twitter") == 0.8184
    assert paper.TARS[10].of("TARS", "MIMIC") == 0.6025
    assert paper.TARS[10].of("TARS", "Twitter") is None
    assert set(paper.EXP2) == set(speed.SHAPES_USED)


def board_result(row: str, size: int, seed: int, f1: list[float], name: str = "digits") -> dict[str, Any]:
    kind = "board" if row in peers.OURS else "peer"
    of = Cell("scoreboard", name, seed, selector=row, n_val=size, kind=kind, b=20, labels=100)
    asked = [20 * k for k in range(len(f1))]
    return {"key": of.key, "cell": asdict(of), "version": "0", "code": "c", "seconds": 1.0, "warnings": [], "asked": asked,
            "test_f1": f1, "plain_f1": f1, "test_accuracy": f1}  # fmt: skip


RISING = [0.5, 0.52, 0.54, 0.56, 0.58, 0.6]


def made_up(**others: list[float]) -> list[dict[str, Any]]:
    """Two sizes, two seeds: LR rises from 0.5 to 0.6, labelchef 0.1 is 0.05 better, others as given."""
    shapes = {"trusted": [0.5], "lr_margin": RISING, "labelchef_01": [f + 0.05 for f in RISING], **others}
    return [
        board_result(row, size, seed, [f + 0.01 * seed for f in f1])
        for row, f1 in shapes.items()
        for size in (30, 100)
        for seed in (0, 1)
    ] + [board_result("ceiling", 100, seed, [0.9]) for seed in (0, 1)]


def test_the_scoreboard_from_made_up_campaigns(tmp_path: Path) -> None:
    falling = [0.7, 0.66, 0.62, 0.58, 0.54, 0.5]
    report = Report("scoreboard", "Scoreboard")
    scoreboard._report(report, made_up(snorkel=falling))
    # snorkel has the largest area (0.6) and ends at 0.5, below where ours starts; LR's 0.6 is reached after 50 labels
    assert row_of(report, "all")[1:] == ["+100 (+100 to +100)", "+100 (+100 to +100)", "+50 (+50 to +50)"]
    assert row_of(report, "digits")[1:] == ["+100 (snorkel)", "+100 (snorkel)"]
    losses = [
        line for part in report.parts for line in part.splitlines() if line.startswith("| digits | 30 | no label")
    ]
    assert losses == ["| digits | 30 | no label | `snorkel` | 0.705 | 0.555 | -0.150 ± 0.000 |"]
    text = "\n".join(report.parts)
    assert "2 of 4 comparisons" in text
    needed = [line for line in text.splitlines() if line.startswith("| `labelchef_01` | 0.50 |")]
    assert needed == ["| `labelchef_01` | 0.50 | 0.50 |"] * 2
    assert "| `trusted` | – | – |" in text  # it asks nobody, and does not start there
    assert row_of(report, "`snorkel`")[1:] != []
    assert "| `snorkel` | -0.200 | 2 | digits 30 (-0.200), digits 100 (-0.200) |" in text
    assert "| `lr_margin` | +0.000 | 0 |  |" in text
    page = report.write(tmp_path).read_text()
    assert "{" not in page
    assert (tmp_path / "scoreboard-digits.svg").exists()
    table = pd.read_csv(tmp_path / "scoreboard.csv")
    assert table.loc[(table["method"] == "snorkel") & (table["asked"] == 100), "f1"].tolist() == [0.505, 0.505]


def test_errors_of_people_stand_beside_true_answers() -> None:
    results = made_up()
    erring = [
        {
            **r,
            "cell": {**r["cell"], "strategy": "errs"},
            "test_f1": [r["test_f1"][0], *[f - 0.03 for f in r["test_f1"][1:]]],
        }
        for r in results
        if r["cell"]["selector"] in scoreboard.ERRING and r["cell"]["n_val"] == 100
    ]
    report = Report("scoreboard", "Scoreboard")
    scoreboard._report(report, results + erring)
    assert any("| `lr_margin` | 0.575 (-0.030) | 0.575 (-0.030) |" in part for part in report.parts)
    assert row_of(report, "all")[3] == "+50 (+50 to +50)"  # the main tables have true answers only


def test_people_who_err_do_so_on_a_tenth_and_the_same_for_all_rows() -> None:
    problem = data.sourced("digits", 0, 60)
    said = peers.answers(problem, board_cell("lr_margin", strategy="errs"))
    assert np.mean(said != problem.y) == pytest.approx(peers.ERRORS, abs=0.03)
    np.testing.assert_array_equal(said, peers.answers(problem, board_cell("labelchef_01", strategy="errs")))
    np.testing.assert_array_equal(peers.answers(problem, board_cell("lr_margin")), problem.y)
    campaign = peers.Campaign(problem, 0, said)
    campaign.asked = [3, 5]
    np.testing.assert_array_equal(campaign.y[60:], said[[3, 5]])


def test_the_scoreboard_leaves_out_what_not_all_rows_have() -> None:
    results = [
        r
        for r in made_up()
        if not (r["cell"]["selector"] == "trusted" and r["cell"]["n_val"] == 30 and r["cell"]["seed"])
    ]
    board = scoreboard.board_of(results)
    assert {place: len(curves) for place, curves in board.curves["lr_margin"].items()} == {
        ("digits", 30): 1,
        ("digits", 100): 2,
    }
    assert board.curves["trusted"]["digits", 100].shape == (2, 6)  # it asks nobody: a level line


def test_labels_saved_are_symmetric_and_bounded(rng: np.random.Generator) -> None:
    points = np.arange(0.0, 101, 20)
    for _ in range(50):
        one, two = np.sort(rng.random(6)), np.sort(rng.random(6))
        assert scoreboard.saved(points, one, two) == pytest.approx(-scoreboard.saved(points, two, one))
        assert abs(scoreboard.saved(points, one, two)) <= 100
    assert doctest.testmod(scoreboard).failed == 0


def test_the_default_is_followed_beyond_a_hundred_labels() -> None:
    slow = [0.5, 0.51, 0.52, 0.53, 0.54, 0.55, 0.59, 0.63]
    board = scoreboard.board_of(made_up(labelchef=slow))
    assert board.ours == "labelchef"
    assert scoreboard.needed(board, "labelchef", ("digits", 30), 0.605) == pytest.approx(1.25)
    assert (
        scoreboard.saved(
            board.points, *(scoreboard.means_of(board)[m]["digits", 30] for m in ("labelchef", "lr_margin"))
        )
        < 0
    )


# peers


def blobs(rng: np.random.Generator, n: int, n_classes: int, d: int = 6) -> tuple[Any, Any]:
    y = rng.integers(0, n_classes, n)
    return (np.eye(n_classes, d)[y] * 1.5 + rng.normal(size=(n, d))).astype(np.float32), y


@pytest.mark.parametrize("c", [0.1, 5.0, 100.0])
def test_the_fit_is_scikit_learns(rng: np.random.Generator, c: float) -> None:
    X, y = blobs(rng, 150, 3)
    rows = regression.Rows(regression.with_ones(X, 1.0), np.eye(3)[y], np.ones(len(y)))
    theirs = LogisticRegression(C=c, tol=1e-9, max_iter=10_000).fit(X, y).predict_proba(X)
    for metric in (None, regression.gram(rows)):
        W = regression.fitted(rows, c, np.zeros((7, 3)), metric)
        np.testing.assert_allclose(regression.probabilities(rows.x, W), theirs, atol=3e-3)


def test_weights_and_soft_labels_are_those_of_repeated_rows(rng: np.random.Generator) -> None:
    X, y = blobs(rng, 60, 2)
    x, other = regression.with_ones(X, 1.0), 1 - y
    soft = regression.Rows(x, 0.75 * np.eye(2)[y] + 0.25 * np.eye(2)[other], np.full(60, 4.0))
    four = regression.Rows(np.vstack([x] * 4), np.eye(2)[np.concatenate([y, y, y, other])], np.ones(240))
    W, again = (regression.fitted(rows, 1.0, np.zeros((7, 2))) for rows in (soft, four))
    np.testing.assert_allclose(W, again, atol=5e-3)


def test_folds_spread_every_class(rng: np.random.Generator) -> None:
    y = np.repeat([0, 1, 2], [50, 10, 5])
    folds = regression.folds_of(y, rng)
    assert [np.bincount(folds[y == c], minlength=5).tolist() for c in (0, 1, 2)] == [[10] * 5, [2] * 5, [1] * 5]


def test_macro_f1_is_scikit_learns(rng: np.random.Generator) -> None:
    y, predicted = rng.integers(0, 4, 80), rng.integers(0, 4, 80)
    assert regression.macro_f1(y, predicted, 4) == pytest.approx(f1_score(y, predicted, average="macro"))


def test_tau_is_used_where_it_helps_beyond_noise(rng: np.random.Generator) -> None:
    y = (rng.random(300) < 0.15).astype(np.int64)
    signal = y + rng.normal(scale=0.6, size=300)
    p = 0.45 / (1 + np.exp(-3 * (signal - 0.5)))  # ranks well, and never reaches one half
    P = np.column_stack([1 - p, p])
    tau = regression.chosen_tau(P, y, P.mean(axis=0), rng)
    assert tau > 0.3
    plain, ruled = (regression.macro_f1(y, regression.decided(P, t, P.mean(axis=0)), 2) for t in (0.0, tau))
    assert ruled > plain + 0.2
    sure = np.where(y[:, None] == np.arange(2), 0.9, 0.1)
    assert regression.chosen_tau(sure, y, sure.mean(axis=0), rng) == 0.0  # nothing to gain


def test_held_out_rows_do_not_make_the_weak_labels_they_are_predicted_with(rng: np.random.Generator) -> None:
    X, y = blobs(rng, 50, 2)
    x = regression.with_ones(X, 1.0)
    asked: list[list[int]] = []

    def weak(kept: Any) -> regression.Rows:
        asked.append(kept.tolist())
        return regression.Rows(x[kept], np.eye(2)[y[kept]], np.ones(len(kept)))

    learner = regression.Learner(2, 0)
    learner.fit(x, y, 50, x, weak)
    assert asked[0] == list(range(50))
    assert sorted(k for part in asked[1:] for k in range(50) if k not in part) == list(range(50))


def test_the_strength_is_chosen_again_when_clean_rows_have_grown_by_half(rng: np.random.Generator) -> None:
    X, y = blobs(rng, 160, 2)
    x = regression.with_ones(X, 1.0)
    learner = regression.Learner(2, 0)
    tuned = []
    for n in (100, 120, 149, 150, 160):
        learner.fit(x[:n], y[:n], 100, x)
        tuned.append(learner.tuned_at)
    assert tuned == [100, 100, 100, 150, 150]


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABELCHEF_DATA", raising=False)


def board_cell(row: str, **settings: Any) -> Cell:
    given = {"n_val": 60, "b": 20, "labels": 40, "n_train": 300, "n_test": 300, **settings}
    return Cell("scoreboard", "digits", 0, selector=row, kind="board" if row in peers.OURS else "peer", **given)


NEEDS = {"majority": "crowdkit", "dawid_skene": "crowdkit", "mace": "crowdkit", "snorkel": "snorkel", "cleanlab": "cleanlab",
         **dict.fromkeys(("falcun", "clue", "badge"), "skactiveml")}  # fmt: skip


@pytest.mark.usefixtures("without_data")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("row", [*peers.PEERS, *peers.ours_here(), "ceiling"])
def test_every_row_learns_the_digits(row: str) -> None:
    if row in NEEDS:
        pytest.importorskip(NEEDS[row], exc_type=ImportError)
    result = run_cell(board_cell(row))
    assert json.loads(json.dumps(result)) == result
    assert result["asked"] == ([0] if row in ("trusted", "ceiling") else [0, 20, 40])
    assert result["test_f1"][-1] > (0.4 if row == "labelchef_01" else 0.6)
    assert timeless(run_cell(board_cell(row))) == timeless(result)


@pytest.mark.usefixtures("without_data")
def test_the_ceiling_is_above_and_asking_helps() -> None:
    trusted, margin, ceiling = (run_cell(board_cell(row))["test_f1"] for row in ("trusted", "lr_margin", "ceiling"))
    assert trusted[0] == margin[0]
    assert trusted[0] < margin[-1] < ceiling[0]


@pytest.mark.usefixtures("without_data")
def test_no_sample_is_asked_twice_and_margin_asks_the_closest() -> None:
    campaign = peers.Campaign(data.sourced("digits", 0, 60, n_train=300), 0)
    campaign.learner.fit(campaign.x, campaign.y, 60, campaign.pool)
    first = peers.by_margin(campaign, 20)
    top = np.sort(campaign.learner.predict_proba(campaign.pool), axis=1)
    gaps = top[:, -1] - top[:, -2]
    assert gaps[first].max() <= np.delete(gaps, first).min()
    campaign.asked += first.tolist()
    assert not set(peers.by_margin(campaign, 20).tolist()) & set(first.tolist())
    assert len(campaign.y) == 80
    np.testing.assert_array_equal(campaign.y[60:], campaign.problem.y[first])


def test_what_is_believed_of_votes_is_fitted_once_for_every_problem() -> None:
    fitted_for: list[int] = []

    def by(campaign: peers.Campaign) -> Any:
        fitted_for.append(campaign.seed)
        return np.full((len(campaign.pool), 10), float(campaign.seed))

    weak = peers.aggregated(by)
    for seed in range(4):  # the memory of a problem that is gone is used for the next one
        campaign = peers.Campaign(data.sourced("digits", seed, 60, n_train=100), seed)
        for asked in ([], [3, 5]):
            campaign.asked = asked
            maker = weak(campaign)
            assert maker is not None
            rows = maker(np.arange(60))
            assert rows is not None
            assert set(np.unique(rows.q)) == {float(seed)}
            voted = np.flatnonzero((campaign.problem.votes >= 0).any(axis=1))
            assert len(rows.q) == len(set(voted.tolist()) - set(asked))
    assert fitted_for == [0, 1, 2, 3]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crowdkit", None)
    monkeypatch.delitem(sys.modules, "crowdkit.aggregation", raising=False)
    with pytest.raises(MissingExtraError, match=r"scoreboard needs crowdkit; pip install 'labelchef\[peers\]'"):
        peers.library("crowdkit.aggregation")


# data


def test_people_who_were_not_asked_do_not_vote() -> None:
    problem = data.draw("digits", 0, n_train=4, n_test=10)
    answers = np.array([[0, 1, data.NO_VOTE], [data.NO_VOTE] * 3, [-1, 2, 2], [5, 5, 5]])
    crowd = replace(problem, answers=answers)
    batch = Batch(np.arange(4), np.full(4, 7), np.zeros(4))
    assert [(i, v) for i, _, v in crowd.annotator("one", 0).annotate(batch)] == [
        (0, 0), (0, 1), (2, -1), (2, 2), (2, 2), (3, 5), (3, 5), (3, 5),
    ]  # fmt: skip
    three = list(crowd.annotator("three", 0).annotate(batch))
    assert sum(who == "suggestion" for _, who, _ in three) == 4
    assert [(i, v) for i, who, v in three if who != "suggestion"] == [(0, 0), (0, 1), (2, -1), (2, 2), (3, 5), (3, 5)]


def test_rounded_labels_are_one_hot_and_the_split_stays() -> None:
    soft, hard = (data.draw("digits", 3, n_train=50, n_test=20, rounded=rounded).data for rounded in (False, True))
    np.testing.assert_array_equal(soft.X, hard.X)
    np.testing.assert_array_equal(hard.Y_weak.argmax(axis=1), soft.Y_weak.argmax(axis=1))
    assert set(np.unique(hard.Y_weak)) == {0.0, 1.0}


@pytest.mark.data
@pytest.mark.parametrize("name", data.REAL)
def test_real_sets_have_disjoint_parts_and_people_better_than_chance(data_folder: Path, name: str) -> None:
    problem = data.draw(name, 0, n_train=800, n_test=300)
    d = problem.data
    assert len(d.X) == len(d.y) == len(d.Y_weak) == 800
    assert len(d.y_test) <= 300
    batch = Batch(np.arange(800), np.full(800, -1), np.zeros(800))
    votes = problem.annotator("one", 0).annotate(batch)
    said = votes.labels >= 0
    right = np.mean(votes.labels[said] == d.y[votes.items[said]])
    assert right > 0.7
    assert said.mean() > 0.7
    assert len(votes) > 2 * 800


@pytest.mark.data
def test_a_fact_is_not_cleaned_by_the_vote_that_made_its_weak_label(data_folder: Path) -> None:
    folder = data_folder / "fact_google_relations"
    votes, facts = pd.read_parquet(folder / "votes.parquet"), pd.read_parquet(folder / "facts.parquet")
    pool, answers = data._loaded("fact_google_relations", data_folder)
    assert answers is not None
    assert pool.votes is not None
    known = np.flatnonzero(facts["mv"].to_numpy() >= 0)
    for k in range(0, len(known), 97):
        given = votes.loc[votes["item"] == known[k], "vote"].tolist()
        weak = next(vote for vote in given if vote < 2)
        given.remove(weak)
        assert pool.votes[k].tolist() == [weak]
        assert answers[k].tolist() == [vote if vote < 2 else -1 for vote in given[:3]]


@pytest.mark.data
def test_other_votes_of_the_crowd_clean_sentences(data_folder: Path) -> None:
    votes = pd.read_parquet(data_folder / "sentiment_polarity_mturk" / "votes.parquet")
    pool, answers = data._loaded("sentiment_polarity_mturk", data_folder)
    assert answers is not None
    assert pool.votes is not None
    for item in range(0, 4999, 331):
        given = votes.loc[votes["item"] == item, "vote"].tolist()
        assert [*pool.votes[item].tolist(), *answers[item].tolist()] == given[:4]


def test_trusted_samples_of_the_scoreboard_grow_and_nothing_else_moves() -> None:
    small, middle, large = (data.sourced("digits", 1, n) for n in (30, 100, 300))
    np.testing.assert_array_equal(large.X_val[:100], middle.X_val)
    np.testing.assert_array_equal(middle.y_val[:30], small.y_val)
    assert set(small.y_val) == set(range(10))
    for part in ("X", "votes", "y", "X_test", "y_test"):
        np.testing.assert_array_equal(getattr(small, part), getattr(large, part))
    assert small.votes_val is not None
    assert small.votes_val.shape == (30, 5)
    right = [np.mean((small.votes[:, j] == small.y)[small.votes[:, j] >= 0]) for j in range(5)]
    np.testing.assert_allclose(right, [0.85, 0.75, 0.65, 0.55, 0.1], atol=0.07)
    with pytest.raises(ValueError, match="at least one of each of the 10 classes"):
        data.sourced("digits", 1, 9)
    with pytest.raises(ValueError, match="expected 1 to 300"):
        data.sourced("digits", 1, 301)


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in data.SOURCED if name != "digits"])
def test_sets_of_the_scoreboard_share_no_sample_between_their_parts(data_folder: Path, name: str) -> None:
    pool = data._pool_of(name, data_folder)
    rows = data.sourced_rows(pool, np.random.default_rng(0), 300)
    assert pool.trusted[data.sourced_rows(pool, np.random.default_rng(0), 100).val].all()
    assert pool.trusted[rows.test].all()
    everything = np.concatenate([rows.train, rows.val, rows.test])
    assert len(np.unique(everything)) == len(everything) == len(pool.y)
    found = data.sourced(name, 0, 300)
    assert found.votes.shape[0] == len(found.X)
    assert (found.votes_val is not None) == data.SOURCED[name].everywhere
    assert len(found.y_test) >= data.LEAST_TEST


@pytest.mark.data
def test_a_crowd_workers_vote_stands_in_the_workers_column(data_folder: Path) -> None:
    votes = pd.read_parquet(data_folder / "sentiment_polarity_mturk" / "votes.parquet")
    table = data._pool_of("sentiment_polarity_mturk", data_folder).votes
    assert table is not None
    first = votes.drop_duplicates("item")
    workers = sorted(first["annotator"].unique())
    for item, worker, vote in first.iloc[::331].itertuples(index=False):
        assert np.flatnonzero(table[item] >= 0).tolist() == [workers.index(worker)]
        assert table[item, workers.index(worker)] == vote


# automatic sources


@pytest.mark.slow
def test_automatic_sources_are_measured_beside_what_one_has_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "has_efficientnet", lambda: False)
    monkeypatch.setattr(automatic, "ASKED", 10)
    result = automatic.measure(Cell("automatic", "digits", 0, kind="automatic", n_train=150, n_test=100))
    rows = result["rows"]
    assert list(rows) == ["trusted alone", "no source", "labels asked", "snuba", "snuba-together", "affinity, patches"]
    assert all(0.3 < values["test"] <= 1 for values in rows.values())
    assert rows["affinity, patches"]["sources"] == 1
    assert rows["affinity, patches"]["coverage train"] == 1.0
    report = Report("automatic", "Automatic")
    automatic.EXPERIMENTS[0].report(report, [{"cell": {"data": "digits", "seed": seed}, **result} for seed in (0, 1)])
    assert row_of(report, "LR, trusted only")[1] == f"{rows['trusted alone']['test']:.3f} ± 0.000"


# peers of margin


def test_the_peers_of_margin_choose_by_what_is_believed_and_apart_from_each_other() -> None:
    data = drawn(3, 0)
    named: dict[str, Selector] = {"margin": MarginSelector(), **{name: made() for name, made in MARGINS.items()}}
    cleaners = {name: LabelCleaner(selector=one, random_state=0).fit(**data) for name, one in named.items()}
    chosen = {name: cleaner.query(10).indices for name, cleaner in cleaners.items()}
    context = cleaners["margin"]._fitted().context(np.ones(N + N_VAL, dtype=bool))
    order = {
        name: np.argsort(np.diff(np.sort(P[:N], axis=1)[:, -2:])[:, 0], kind="stable")
        for name, P in (("believed", context.posterior_of(np.arange(N))), ("model", context.probabilities))
    }
    assert set(chosen["margin"]) == set(order["model"][:10])
    assert set(chosen["posterior_margin"]) == set(order["believed"][:10])
    assert set(chosen["diverse_margin"]) < set(order["model"][:50])
    assert spread(data["X"][chosen["diverse_margin"]]) > spread(data["X"][chosen["margin"]])


def spread(X: Any) -> float:
    """The mean distance between rows."""
    return float(np.linalg.norm(X[:, None] - X[None], axis=2).mean())
