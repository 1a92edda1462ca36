"""Muted sources: the model of a campaign that was made without them; in Python, in a workspace, after a restart, in a replay."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labelchef import LabelCleaner, SourceSettings
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import Batch, Decisions, Heard, Votes
from labelchef.base.settings import Settings
from labelchef.chef.constructors import NewtonConstructor
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.rebuild import Verdict
from labelchef.loop.source_effect import effect_of
from labelchef.loop.start import Parts, check, new_session
from labelchef.server.campaigns import campaigns, trained
from labelchef.server.campaigns.access import find
from labelchef.server.export import proof
from labelchef.server.export.verifying import verify_ledger
from labelchef.server.worker import advance
from labelchef.server.workspace import open_workspace
from tests.source_support import FORMULA, GOOD, WRONG, sourced_data, voted
from tests.store_support import CLASSES, label_all, make, small_data, truth_of
from tests.test_campaign_cli import labelchef

N, n = 60, 30
FIXED = Settings(sources="naive_bayes", gamma=0.5, l2=0.01)


def without(name: str) -> CampaignData:
    """The data of `sourced_data`, made without a source."""
    plain, votes = small_data(N, n), voted(N + n).drop(columns=[name])
    return CampaignData.of(
        plain.X, None, votes=votes[:N], votes_val=votes[N:].reset_index(drop=True), X_val=plain.validation[0],
        y_val=[CLASSES[k] for k in plain.validation[1]], classes=CLASSES,
    )  # fmt: skip


@pytest.mark.parametrize("settings", [FIXED, Settings(), Settings(sources="shares", gamma=0.3)])
def test_a_muted_source_is_as_one_that_never_was(settings: Settings) -> None:
    """Oracle: a campaign that is really made without it, with its own choice by cross-validation."""
    exact = Parts(constructor=NewtonConstructor(tol=1e-6, proven=False))
    whole, other = (new_session(data, settings, exact) for data in (sourced_data(N, n), without(WRONG)))
    whole.start()
    other.start()
    before, rounds = whole.parameters.copy(), len(whole.rounds)
    effect = effect_of(whole, Heard((WRONG,)))
    np.testing.assert_allclose(effect.parameters, other.parameters, atol=1e-5 * np.abs(other.parameters).max())
    assert np.array_equal(whole.parameters, before)
    assert (len(whole.rounds), whole.heard) == (rounds, Heard())
    gain = effect.gains["validation"]["loss"]
    assert gain.before == pytest.approx(whole.rounds[0].validation.loss)
    assert gain.after == pytest.approx(other.rounds[0].validation.loss, rel=1e-4)
    now, then = whole.posterior()[:N].argmax(axis=1), other.posterior()[:N].argmax(axis=1)
    assert effect.believed == int((now != then).sum())
    assert effect.predicted == int((whole.predicted(slice(N)) != other.predicted(slice(N))).sum())
    whole.decide(
        Batch.without_predictions(np.empty(0, dtype=np.int64)), Votes.of([]), _nothing(), heard=Heard((WRONG,))
    )
    np.testing.assert_allclose(whole.parameters, other.parameters, atol=1e-5 * np.abs(other.parameters).max())
    whole.decide(Batch.without_predictions(np.empty(0, dtype=np.int64)), Votes.of([]), _nothing(), heard=Heard())
    np.testing.assert_allclose(whole.parameters, before, atol=1e-5 * np.abs(before).max())


def _nothing() -> Decisions:
    empty = np.empty(0, dtype=np.int64)
    return Decisions.sure(empty, empty)


@pytest.mark.parametrize("constructor", ["newton", "retrain", "deltagrad_l"])
def test_every_constructor_follows(constructor: str) -> None:
    session = new_session(
        sourced_data(N, n), Settings(constructor=constructor, sources="naive_bayes", gamma=0.5, l2=0.01)
    )
    session.start()
    before = session.parameters.copy()
    session.decide(
        Batch.without_predictions(np.empty(0, dtype=np.int64)), Votes.of([]), _nothing(), heard=Heard((GOOD,))
    )
    assert not np.allclose(session.parameters, before, atol=1e-3)
    assert not session.undo(), "a round in which nothing was answered cannot be undone"


def test_what_cannot_be_muted_is_refused() -> None:
    data = sourced_data(N, n)
    wrong = {
        "there is no source 'rulez'": Settings(muted=("rulez",)),
        "only steer": Settings(muted=(GOOD,), preset="paper"),
    }
    for words, settings in wrong.items():
        with pytest.raises(InvalidInputError, match=words):
            check(data, settings)
    y = truth_of(N + n)
    cleaner = LabelCleaner(sources=SourceSettings("naive_bayes", muted=[WRONG])).fit(
        small_data(N, n).X,
        votes=voted(N),
        X_val=small_data(N, n).validation[0],
        y_val=[CLASSES[k] for k in y[N:]],
        classes=CLASSES,
    )
    shown = cleaner.sources_.set_index("name")
    assert shown.loc[WRONG, "use"] == "muted by you"
    assert shown.loc[GOOD, "use"] != "muted by you"
    assert cleaner.effect_of_sources([]).after == Heard()


def test_muting_in_a_campaign_survives_restart_replay_and_verification(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, data=sourced_data(N, n), sources="naive_bayes", gamma=0.5, budget=12, batch_size=3)
        label_all(ws, name, "ann")
        rounds = len(campaigns.rounds(ws, name))
        campaigns.change_settings(ws, name, "lead", muted=[WRONG])
        advance(ws, name)
        turns = campaigns.rounds(ws, name)
        assert len(turns) == rounds, "a batch is out: the model follows when it is complete"
        label_all(ws, name, "ann")
        session = trained.trained_now(ws, find(ws, name)).session
        assert session.heard == Heard((WRONG,))
        assert session.learner is not None
        assert session.learner.votes.names == (GOOD, FORMULA)
        while campaigns.summary(ws, name).state != "finished":
            label_all(ws, name, "ann")
        before = len(campaigns.rounds(ws, name))
        campaigns.change_settings(ws, name, "lead", muted=[FORMULA])
        advance(ws, name)
        assert len(campaigns.rounds(ws, name)) == before + 1, "no batch is out: a model is made at once"
        parameters = trained.trained_now(ws, find(ws, name)).session.parameters.copy()
        with pytest.raises(InvalidInputError, match="no source 'nobody'"):
            campaigns.change_settings(ws, name, "lead", muted=["nobody"])
    with open_workspace(tmp_path / "home") as ws:
        session = trained.trained_now(ws, find(ws, name)).session
        assert session.heard == Heard((FORMULA,))
        np.testing.assert_allclose(session.parameters, parameters, atol=1e-2 * np.abs(parameters).max())
        outcome = trained.replay(ws, name)
        assert outcome.agrees, outcome.message
        assert {one.model for one in outcome.rounds if one.model is not None} == {Verdict.SAME}
        path = tmp_path / "ledger.jsonl"
        proof.write_ledger(ws, name, path)
        assert verify_ledger(path).intact
        assert "muted" in path.read_text()


def test_a_folder_goes_on_with_other_muted_sources(tmp_path: Path) -> None:
    plain, votes, y = small_data(N, n), voted(N + n), truth_of(N + n)
    np.save(tmp_path / tmp_path / "x.npy", plain.X)
    np.save(tmp_path / tmp_path / "v.npy", plain.validation[0])
    votes[:N].to_csv(tmp_path / tmp_path / "votes.csv", index=False)
    votes[N:].to_csv(tmp_path / tmp_path / "val_votes.csv", index=False)
    for name, part in (("truth", y[:N]), ("labels", y[N:])):
        pd.DataFrame({"label": [CLASSES[k] for k in part]}).to_csv(tmp_path / f"{name}.csv", index=False)
    given: list[object] = [
        "--features",
        tmp_path / "x.npy",
        "--source-votes",
        tmp_path / "votes.csv",
        "--val-source-votes",
        tmp_path / "val_votes.csv",
    ]
    given += [
        "--val-features",
        tmp_path / "v.npy",
        "--val-labels",
        tmp_path / "labels.csv",
        "--truth",
        tmp_path / "truth.csv",
        "--batch-size",
        "4",
    ]
    given += [
        "--out",
        tmp_path / "out",
        "--sources",
        "naive_bayes",
        "--gamma",
        "0.5",
        "--strategy",
        "two",
        "--selector",
        "infl",
    ]
    labelchef("clean", *given, "--budget", "8")
    labelchef("clean", *given, "--budget", "12", "--mute", WRONG, "--resume")
    lines = [json.loads(line) for line in (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()]
    assert [one["heard"]["muted"] for one in lines] == [[], [], [WRONG], [WRONG]]
    assert [len(one["items"]) for one in lines] == [4, 4, 0, 4]
    assert "muted by you" in (tmp_path / "out" / "sources.csv").read_text()
