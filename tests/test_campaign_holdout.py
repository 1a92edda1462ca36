"""Campaigns whose validation has two parts, and campaigns whose validation has one."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelchef import load_model
from labelchef.base.campaigns import CampaignState
from labelchef.base.errors import InvalidInputError, JudgeWarning
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.training_rows import draw_judges
from labelchef.server.campaigns import trained
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import create_campaign, rounds, settings, status, summary
from labelchef.server.campaigns.charts import frames
from labelchef.server.campaigns.progress import progress
from labelchef.server.campaigns.trained import ledger_of, replay
from labelchef.server.export import exchange
from labelchef.server.store import campaign_table
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.oracles import STEERED
from tests.store_support import CLASSES, label_all, make, small_data


def data(n_val: int = 140) -> CampaignData:
    return small_data(60, n_val)


def labelled(ws: Workspace, name: str, **chosen: Any) -> str:
    campaign = make(ws, name, data(), budget=40, **chosen)
    label_all(ws, campaign, "ann", rounds=2, n=170)
    return campaign


def test_both_parts_are_stored_and_the_gain_with_them(ws: Workspace) -> None:
    campaign = labelled(ws, "Two parts", **STEERED)
    assert settings(ws, campaign).holdout == "auto"
    closed = [one for one in rounds(ws, campaign) if one.validation]
    assert len(closed) == 3
    judges = draw_judges(data().validation[1], len(CLASSES), "auto", 0)
    for one in closed:
        assert one.validation is not None
        assert one.validation != one.steering
        assert one.gain is not None
        gain = one.gain["f1_macro"]
        assert (gain.samples, gain.after) == (judges.sum(), one.validation["f1_macro"])
        assert gain.low <= gain.change <= gain.high
    found = progress(ws, campaign)
    assert found.gain == closed[-1].gain["f1_macro"] if closed[-1].gain else False
    losses = [one.steering["loss"] for one in found.rounds]
    np.testing.assert_allclose([one.realised_change for one in found.rounds[1:]], np.diff(losses))  # type: ignore[arg-type]
    assert set(frames(found)["metric"]["split"]) == {"validation", "steering"}
    assert f"{judges.sum()} samples that the selection never saw" in found.note
    page = exchange.report(ws, campaign)
    assert f"gain on validation ({judges.sum()} samples held out), 95 % interval" in page


def test_a_restart_and_a_replay_judge_the_same(ws: Workspace) -> None:
    campaign = labelled(ws, "Again", holdout=0.3, seed=5)
    before = [(one.validation, one.steering, one.gain) for one in rounds(ws, campaign)]
    outcome = replay(ws, campaign)
    assert outcome.agrees, outcome.message
    ws.memory.clear()
    label_all(ws, campaign, "ann", n=170)
    assert [(one.validation, one.steering, one.gain) for one in rounds(ws, campaign)][: len(before) - 1] == before[:-1]
    with ws.reading() as connection:
        row = campaign_table.find_campaign(connection, campaign)
    session = trained.trained_now(ws, row).session
    newest = [one for one in rounds(ws, campaign) if one.gain][-1]
    assert session.gains_by_split()["validation"] == newest.gain


def test_a_campaign_without_a_holdout_says_so(ws: Workspace) -> None:
    campaign = labelled(ws, "None", holdout=0, **STEERED)
    seen = [one for one in status(ws, campaign).rounds if one.validation]
    assert all(one.gain is None and one.steering == one.validation for one in seen)
    found = progress(ws, campaign)
    assert found.gain is None
    assert "optimistic" in found.note
    assert set(frames(found)["metric"]["split"]) == {"validation"}
    assert found.rounds[1].realised_change == pytest.approx(
        found.rounds[1].validation["loss"] - found.rounds[0].validation["loss"]
    )
    assert "All of validation steers" in exchange.report(ws, campaign)


def test_trusted_samples_that_train_judge_by_leave_one_out(ws: Workspace) -> None:
    campaign = labelled(ws, "Trained")
    seen = [one for one in status(ws, campaign).rounds if one.validation]
    assert len(seen) == 3
    for one in seen:
        assert one.validation is not None
        assert one.gain is None
        assert one.steering == one.validation
        figure = one.figures["validation"]["f1_macro"]
        assert (figure.samples, figure.value) == (140, one.validation["f1_macro"])
    found = progress(ws, campaign)
    assert "cross-fitted over 140 trusted samples" in found.note
    assert set(frames(found)["metric"]["split"]) == {"validation"}
    assert "cross-fitted over 140 trusted samples" in exchange.report(ws, campaign)
    assert replay(ws, campaign).agrees


def test_the_exported_model_is_the_model_of_the_status(ws: Workspace, tmp_path: Path) -> None:
    campaign = labelled(ws, "Out")
    used = status(ws, campaign).rounds[-2].in_use  # the last round is open
    assert used is not None
    model = load_model(exchange.export_model(ws, campaign, tmp_path / "model.npz"))
    assert model.temperature == used.temperature
    stored = [one for one in ledger_of(ws, find(ws, campaign)).rounds() if one.ruling is not None][-1].ruling
    assert stored is not None
    np.testing.assert_allclose(
        model.offsets, stored.offsets, atol=0.02
    )  # they follow the mean prediction of the last fit


def test_a_target_is_read_off_the_judges(ws: Workspace) -> None:
    """Validation whose judges are all mislabelled: what steers is near perfect, and the campaign does not finish."""
    given = data()
    judges = draw_judges(given.validation[1], len(CLASSES), "auto", 0)
    X = given.validation[0].copy()
    X[judges] = -9.0 * X[judges]
    wrong = replace(given, validation=(X, given.validation[1]))
    stuck = make(ws, "Stuck", wrong, target=0.6, target_metric="accuracy", budget=40, **STEERED)
    label_all(ws, stuck, "ann", rounds=3, n=170)
    last = [one for one in rounds(ws, stuck) if one.validation][-1]
    assert last.validation is not None
    assert last.steering is not None
    assert last.steering["accuracy"] > 0.6 > last.validation["accuracy"]
    assert summary(ws, stuck).state == CampaignState.RUNNING


def test_few_judges_are_said_once_when_it_is_made(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        with pytest.warns(JudgeWarning, match="all 30 validation samples steer") as said:
            made = create_campaign(ws, "Few", small_data(), Settings(budget=8, **STEERED), "lead")
        assert len(said) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            advance(ws, made.slug)
        with pytest.warns(JudgeWarning, match="holdout is 0, so the target"):
            create_campaign(ws, "None", data(), Settings(holdout=0, target=0.9, **STEERED), "lead")


@pytest.mark.parametrize("holdout", [1.0, -0.5, "most", None, True])
def test_no_other_holdout_is_stored(holdout: Any) -> None:
    with pytest.raises(InvalidInputError, match="holdout is"):
        Settings(holdout=holdout)


def test_holdout_stays_as_it_was_made(ws: Workspace) -> None:
    with pytest.raises(InvalidInputError, match="'holdout' cannot change"):
        Settings().changed(holdout=0.2)
