"""gamma and l2 chosen by the product: in Python, from files, in campaigns."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from labelchef import LabelCleaner
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import OPTIONS, Settings
from labelchef.believe import learning
from labelchef.believe.tuning import GAMMAS, folds_of, tempered_loss, tune
from labelchef.data.campaign_data import CampaignData
from labelchef.data.training_rows import draw_judges
from labelchef.loop.clean import Answers, clean
from labelchef.server.campaigns.campaigns import create_campaign, settings
from labelchef.server.campaigns.trained import ledger_of, replay
from labelchef.server.store.campaign_table import find_campaign
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace
from tests.oracles import STEERED
from tests.store_support import CLASSES, small_data


def problem(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 4)) + y[:, None]
    weak = np.eye(2)[np.where(rng.random(400) < 0.4, 1 - y[:400], y[:400])]
    return {"X": X[:400], "Y_weak": weak, "X_val": X[400:], "y_val": y[400:], "y": y[:400]}


def fitted(data: dict[str, Any], **chosen: Any) -> LabelCleaner:
    given = {name: data[name] for name in ("X", "Y_weak", "X_val", "y_val")}
    return LabelCleaner(**chosen).fit(given.pop("X"), given.pop("Y_weak"), **given)


def test_the_cleaner_takes_what_the_steering_samples_choose() -> None:
    data = problem()
    cleaner = fitted(data, **STEERED, random_state=3)
    steer = ~draw_judges(data["y_val"], 2, "auto", 3)
    alone = tune(data["X"], data["Y_weak"], np.full(400, -1), data["X_val"][steer], data["y_val"][steer], seed=3)
    assert (cleaner.gamma_, cleaner.l2_) == (alone.gamma, alone.l2)
    assert cleaner.tuned_ is not None
    assert cleaner.gamma == "auto"  # a parameter stays what was given, as scikit-learn has it
    np.testing.assert_array_equal(np.unique(cleaner._session.labels.weight), [alone.gamma])
    assert cleaner._session.objective.l2 == alone.l2


@pytest.mark.parametrize("chosen", [STEERED, {**STEERED, "holdout": 0.5}, {"holdout": 0.5}], ids=str)
def test_judges_have_no_say_in_it(chosen: dict[str, Any]) -> None:
    data = problem()
    judges = draw_judges(data["y_val"], 2, chosen.get("holdout", "auto"), 0)
    before = fitted(data, **chosen)
    data["X_val"] = data["X_val"].copy()
    data["X_val"][judges] = 1e3
    after = fitted(data, **chosen)
    assert (before.gamma_, before.l2_) == (after.gamma_, after.l2_)


def test_numbers_are_taken_as_they_are() -> None:
    cleaner = fitted(problem(), **STEERED, gamma=0.45, l2=0.02)
    assert (cleaner.gamma_, cleaner.l2_, cleaner.tuned_) == (0.45, 0.02, None)
    one = fitted(problem(), **STEERED, gamma=0.45)
    assert one.gamma_ == 0.45
    assert one.tuned_ is not None
    assert fitted(problem(), **STEERED, l2=0.02).gamma_ in GAMMAS


def test_the_learner_takes_numbers_as_they_are() -> None:
    cleaner = fitted(problem(), gamma=0.45, l2=0.02)
    assert cleaner.gamma_ == 0.45
    assert cleaner.l2_ == pytest.approx(0.02)
    assert cleaner.tuned_ is None
    one = fitted(problem(), gamma=0.45)
    assert one.gamma_ == 0.45
    assert one.choice_ is not None
    assert one.l2_ == one.choice_.strength / 600  # 400 samples and 200 trusted ones
    assert fitted(problem(), l2=0.02).gamma_ in (*learning.GAMMAS, 0.0)
    assert fitted(problem(), sources="none").gamma_ == 0.0


@pytest.mark.parametrize("seed", [0, 2, 6])
def test_without_weak_labels_l2_has_the_least_held_out_loss(seed: int) -> None:
    """The loss as it is, by scikit-learn. At the best temperature it depends little on l2, and its minimum is elsewhere."""
    rng = np.random.default_rng([3, seed])
    y = rng.integers(0, 3, 190)
    X = rng.normal(size=(190, 5)) + 1.2 * rng.normal(size=(3, 5))[y]
    data = {"X": X[:150], "Y_weak": np.full((150, 3), 1 / 3), "X_val": X[150:], "y_val": y[150:]}
    cleaner = fitted(data, sources="none", random_state=seed)
    scale, Z, y = float((X**2).sum(axis=1).mean()), np.hstack([X[150:], np.ones((40, 1))]), y[150:]
    plain, tempered = [], []
    for relative in learning.RELATIVE:
        A, model = (
            np.empty((40, 3)),
            LogisticRegression(C=1 / (relative * scale), fit_intercept=False, tol=1e-8, max_iter=2000),
        )
        for kept, held in folds_of(y, learning.FOLDS, np.random.default_rng([seed, 0x7E57])):
            A[held] = model.fit(Z[kept], y[kept]).decision_function(Z[held])
        plain.append(log_loss(y, softmax(A, axis=1)))
        tempered.append(tempered_loss(A, y))
    best = learning.RELATIVE[int(np.argmin(plain))]
    assert best != learning.RELATIVE[int(np.argmin(tempered))]
    assert cleaner.choice_ is not None
    assert cleaner.choice_.strength / scale == pytest.approx(best)
    found = [trial.loss for trial in cleaner.choice_.trials]
    np.testing.assert_allclose(found, tempered, rtol=0.01)  # what weak labels would have to beat


@pytest.mark.parametrize("value", ["Auto", "", None, True, -0.1, 1.1, float("nan"), float("inf"), [0.5]])
def test_what_is_no_gamma(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected 'auto' or a number from 0 to 1"):
        OPTIONS["gamma"].check("gamma", value)


@pytest.mark.parametrize("value", ["Auto", "", None, False, 0, -1.0, float("nan"), float("inf"), {}])
def test_what_is_no_l2(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected 'auto' or a number above 0"):
        OPTIONS["l2"].check("l2", value)


def test_a_steered_campaign_chooses_once_and_keeps_the_numbers(ws: Workspace) -> None:
    data = small_data(60, 140)
    made = create_campaign(ws, "Chosen", data, Settings(people=1, seed=2, **STEERED), "lead")
    kept = settings(ws, made.slug)
    steer = ~draw_judges(data.validation[1], len(CLASSES), "auto", 2)
    X_val, y_val = data.validation
    alone = tune(data.X, data.weak, np.full(len(data.X), -1), X_val[steer], y_val[steer], seed=2)
    assert (kept.gamma, kept.l2) == (alone.gamma, alone.l2)
    advance(ws, made.slug)
    assert replay(ws, made.slug).agrees
    given = create_campaign(ws, "Given", data, Settings(people=1, gamma=0.5, l2=0.1, **STEERED), "lead")
    assert (settings(ws, given.slug).gamma, settings(ws, given.slug).l2) == (0.5, 0.1)


def test_a_campaign_keeps_auto_in_its_settings_and_the_choice_in_its_rounds(ws: Workspace) -> None:
    data = small_data(60, 140)
    asked = Settings(people=1, seed=2)
    made = create_campaign(ws, "Chosen", data, asked, "lead")
    assert settings(ws, made.slug) == asked
    advance(ws, made.slug)
    with ws.reading() as connection:
        row = find_campaign(connection, made.slug)
    X_val, y_val = data.validation
    alone = LabelCleaner(random_state=2).fit(
        data.X, data.weak, X_val=X_val, y_val=np.array(CLASSES)[y_val], classes=CLASSES
    )
    assert alone.choice_ is not None
    assert ledger_of(ws, row).rounds()[0].choice == alone.choice_
    assert replay(ws, made.slug).agrees


@pytest.mark.parametrize("trusted", ["train", "steer"])
def test_a_folder_goes_on_with_what_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: str
) -> None:
    data = problem()
    given = CampaignData.of(data["X"], data["Y_weak"], X_val=data["X_val"], y_val=data["y_val"])
    answers, settings = Answers(truth=data["y"].tolist()), Settings(people=3, budget=20, trusted=trusted)
    first = clean(given, answers, settings, tmp_path / "out", report=False)
    stored = json.loads((tmp_path / "out" / "campaign.json").read_text())
    assert stored["asked"]["gamma"] == "auto"
    assert (stored["gamma"], stored["l2"]) == (first.settings.gamma, first.settings.l2)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["settings"]["l2"] == first.settings.l2

    def never(*_: object, **__: object) -> None:
        raise AssertionError("chosen again")

    monkeypatch.setattr("labelchef.loop.start.tune", never)
    later = clean(given, answers, replace(settings, budget=40), tmp_path / "out", report=False, resume=True)
    assert later.settings == replace(first.settings, budget=40)
    assert int(later.history["spent"].iloc[-1]) == 40


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    data = problem()
    given = CampaignData.of(data["X"], data["Y_weak"], X_val=data["X_val"], y_val=data["y_val"])
    answers, settings = Answers(truth=data["y"].tolist()), Settings(people=3, budget=20)
    clean(given, answers, settings, tmp_path / "out", report=False)
    path = tmp_path / "out" / "campaign.json"
    stored = json.loads(path.read_text())
    del stored["format"]
    path.write_text(json.dumps(stored))
    before = (tmp_path / "out" / "rounds.jsonl").read_bytes()
    with pytest.raises(InvalidInputError, match=r"written by another version of labelchef \(format 0\.1") as refused:
        clean(given, answers, settings, tmp_path / "out", report=False, resume=True)
    assert refused.value.code == "out"
    assert (tmp_path / "out" / "rounds.jsonl").read_bytes() == before
