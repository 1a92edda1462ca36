"""What the next labels are worth: the model of the curve, its interval, the advice, and where it is shown."""

import json
from pathlib import Path

import numpy as np
import pytest
from experiments.forecast import judged, prior_of, table
from typer.testing import CliRunner

from labelchef import InvalidInputError, LabelCleaner
from labelchef.campaign.forecast import FEWEST, PRIOR, Prior, forecast, gain_ahead
from labelchef.cli.main import app
from labelchef.domain.arrays import Ints
from labelchef.domain.validation import Forecast
from labelchef.services import campaigns
from labelchef.services.workspace import open_workspace
from tests.store_support import label_all, make

ASKED: Ints = np.arange(0, 220, 20, dtype=np.int64)


def test_the_interval_holds_where_the_model_is_true() -> None:
    """Curves whose drift is like that of other sets, 1,000 times, with noise on the curve: 95 % of the gains are inside."""
    rng, prior, inside = np.random.default_rng(4), Prior(0.02, 0.03, 1000), 0
    U = np.log(401 / 301)
    for _ in range(1000):
        drift = prior.mean + prior.spread * rng.normal()
        steps = drift * np.diff(np.log(101 + ASKED)) + 0.002 * np.sqrt(20) * rng.normal(size=len(ASKED) - 1)
        _, low, high = gain_ahead(ASKED, np.concatenate([[0.7], 0.7 + np.cumsum(steps)]), 100, 100, prior)
        inside += low <= drift * U <= high
    assert inside / 1000 > 0.94  # more than 95 %: here the curve could be trusted more than `DISTRUST` allows


def test_a_sure_curve_is_continued_and_a_noisy_one_is_not() -> None:
    prior = Prior(0.02, 0.03, 9)
    grows = 0.7 + 0.1 * np.log((101 + ASKED) / 101)
    U = float(np.log(401 / 301))
    assert gain_ahead(ASKED, grows, 100, 100, prior) == pytest.approx([0.1 * U] * 3)
    noisy = grows + 0.1 * np.random.default_rng(0).normal(size=len(ASKED))
    gain, low, high = gain_ahead(ASKED, noisy, 100, 100, prior)
    assert gain == pytest.approx(0.02 * U, abs=0.003)
    assert high - low == pytest.approx(gain_ahead([200], [0.7], 100, 100, prior)[2] * 2 - 2 * 0.02 * U, rel=0.05)


def test_few_rounds_say_what_other_sets_say() -> None:
    prior = PRIOR["accuracy"]
    cold, few = (
        gain_ahead([0], [0.5], 100, 100, prior),
        gain_ahead(ASKED[:FEWEST], [0.1, 0.9, 0.1, 0.9], 40, 100, prior),
    )
    assert few == pytest.approx(cold), "60 labels and 40 samples are as many as 100"
    assert forecast([], "loss", 10).rounds == 0


@pytest.mark.parametrize(
    ("low", "high", "advice"),
    [(-0.01, 0.009, "don't ask"), (0.01, 0.02, "ask"), (0.0, 0.02, "cannot say")],
)
def test_the_advice_is_what_the_whole_interval_says(low: float, high: float, advice: str) -> None:
    found = Forecast("accuracy", 100, 0.01, 6, (low + high) / 2, low, high)
    assert found.advice == advice
    assert str(found).startswith(advice)


@pytest.fixture(scope="module")
def cleaner() -> LabelCleaner:
    """A campaign of six rounds."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 260)
    X = rng.normal(size=(260, 4)) + y[:, None]
    found = LabelCleaner(budget=60, batch_size=10, sources="shares", gamma=0.3, l2=0.01)
    found.fit(X[:200], np.eye(2)[rng.integers(0, 2, 200)], X_val=X[200:], y_val=y[200:])
    assert found.forecast().advice == "cannot say", "nothing was asked yet"
    assert found.forecast(50).rounds == 0
    found.run(lambda batch: y[batch.indices])
    return found


def test_a_campaign_forecasts_every_metric(cleaner: LabelCleaner) -> None:
    rounds = cleaner.rounds_
    for metric in ("accuracy", "f1_macro", "loss"):
        found, sign = cleaner.forecast(40, metric=metric, worth=0.5), -1.0 if metric == "loss" else 1.0
        curve = [sign * record.validation.as_dict()[metric] for record in rounds]
        expected = gain_ahead([record.spent for record in rounds], curve, 60, 40, PRIOR[metric])
        assert (found.gain, found.low, found.high) == expected
        assert (found.rounds, found.labels, found.advice) == (6, 40, "don't ask")
    assert cleaner.forecast().metric == "f1_macro"
    cleaner.undo()
    assert cleaner.forecast().rounds == 6, "a round that cost nothing replaces the one before it"


def test_nonsense_is_refused(cleaner: LabelCleaner) -> None:
    with pytest.raises(InvalidInputError, match="unknown metric"):
        cleaner.forecast(metric="speed")
    with pytest.raises(InvalidInputError, match="number of labels"):
        cleaner.forecast(0)
    with pytest.raises(InvalidInputError, match="worth asking"):
        cleaner.forecast(worth=float("nan"))


def test_a_stored_campaign_and_the_command_line_say_the_same(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, budget=40)
        assert campaigns.status(ws, name).forecast.rounds == 0
        label_all(ws, name, "ann", rounds=5)
        found = campaigns.forecast(ws, name, "loss", 20, 9.0)
        assert found.rounds == 5
        assert found.advice == "don't ask"
        assert campaigns.status(ws, name).forecast == campaigns.forecast(ws, name, None, 100, 0.01)
        with pytest.raises(InvalidInputError, match="unknown metric"):
            campaigns.forecast(ws, name, "speed", 20, 0.0)
    options = ["forecast", name, "--home", str(tmp_path / "home"), "--metric", "loss", "--labels", "20", "--worth", "9"]
    said = CliRunner().invoke(app, options)
    assert said.exit_code == 0, said.output
    assert said.output.strip() == str(found)
    in_json = json.loads(CliRunner().invoke(app, [*options, "--json"]).output)
    assert (in_json["advice"], in_json["gain"]) == ("don't ask", found.gain)


def test_hindsight_compares_with_what_came() -> None:
    """A curve that follows the model exactly is forecast without error, and its slowing is what the naive one misses."""
    values = [{"accuracy": v, "f1_macro": v, "loss": -v} for v in 0.5 + 0.1 * np.log(101 + np.arange(0, 260, 20))]
    rows = [{"spent": 20 * k, "validation": v, "test": v, "expected": None} for k, v in enumerate(values)]
    prior = prior_of([rows], "accuracy", 9)
    assert prior.mean == pytest.approx(0.1)
    assert prior.spread == pytest.approx(0.0, abs=1e-9)
    found = judged(rows, "accuracy", Prior(0.02, 0.03, 9))
    assert [row["at"] for row in found] == [0, 20, 40, 60, 80, 100, 120, 140]
    for row in found[4:]:
        assert row["gain"] == pytest.approx(row["came"])
        assert row["last"] > row["came"] + 0.01
    assert len(table({("one", 0): rows, ("two", 0): rows, ("three", 0): rows})) == 8
