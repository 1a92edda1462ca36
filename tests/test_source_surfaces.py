"""What is known of sources, and what one would have without weak labels: in a workspace, on the command line, in files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labelchef.base.errors import ConflictError
from labelchef.base.settings import Settings
from labelchef.loop.source_report import SHOWN, source_report
from labelchef.loop.start import new_session
from labelchef.server.campaigns import campaigns
from labelchef.server.campaigns.progress import progress
from labelchef.server.export import exchange
from labelchef.server.sources import sources
from labelchef.server.workspace import open_workspace
from tests.source_support import FORMULA, GOOD, WRONG, sourced_data, voted
from tests.store_support import CLASSES, label_all, make, small_data, truth_of
from tests.test_campaign_cli import labelchef


def test_a_campaign_knows_its_sources(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, data=sourced_data(), sources="naive_bayes", gamma=0.5)
        label_all(ws, name, "ann")
        found = sources.sources(ws, name)
        assert sources.sources(ws, name) is found, "kept until the next round closes"
        facts = {one.name: one for one in found.sources}
        assert facts.keys() == {GOOD, WRONG, FORMULA}
        assert facts[GOOD].use == "as it votes"
        assert facts[WRONG].use == "turned"
        assert "against the class" in facts[WRONG].about
        assert facts[GOOD].accuracy > 0.7 > 0.3 > facts[WRONG].accuracy
        assert facts[GOOD].believed > 0.7 > 0.3 > facts[WRONG].believed
        assert 20 <= facts[GOOD].measured_on <= 30, "votes on trusted samples, not on those that were chosen"
        said = "What their votes count together is measured on"
        assert [note.partition(said)[0] for note in found.notes] == ["The source model in use is naive_bayes.", ""]
        label_all(ws, name, "ann")
        assert sources.sources(ws, name) is not found
        page = exchange.report(ws, name)
        assert "<h2>Sources</h2>" in page
        assert WRONG in page
        assert "=coin()" in page
        csv = sources.write_sources(ws, name, tmp_path / "sources.csv").read_text()
        assert "'=coin()" in csv, "a spreadsheet must not take it for a formula"


def test_where_trusted_samples_only_steer_nothing_is_known(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, preset="paper")
        assert sources.sources(ws, name).sources == ()
        assert "Nothing is learned" in sources.sources(ws, name).notes[0]
        with pytest.raises(ConflictError, match="nothing to write"):
            sources.write_sources(ws, name, tmp_path / "sources.csv")
        last = campaigns.rounds(ws, name)[0]
        assert (last.baselines, last.in_use) == ({}, None)
        assert "<h2>Sources</h2>" not in exchange.report(ws, name)


def test_of_many_sources_those_with_the_most_votes_are_shown() -> None:
    session = new_session(sourced_data(rare=SHOWN + 10), Settings(sources="naive_bayes", gamma=0.5, l2=0.01))
    session.start()
    found = source_report(session, CLASSES)
    votes = [one.votes for one in found.sources]
    assert (len(votes), found.total) == (SHOWN, SHOWN + 13)
    assert votes == sorted(votes, reverse=True)
    assert {one.name for one in found.sources[:3]} == {GOOD, WRONG, FORMULA}
    assert any(f"{SHOWN} sources with the most votes, of {SHOWN + 13}" in note for note in found.notes)
    json.dumps(found.as_json(), allow_nan=False)


def test_rounds_carry_baselines_figures_and_what_is_in_use(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "home") as ws:
        name = make(ws, data=sourced_data(), sources="naive_bayes", gamma=0.5)
        label_all(ws, name, "ann", rounds=2)
        first, *_, last = (one for one in campaigns.rounds(ws, name) if one.validation)
        seen = progress(ws, name)
    assert first.baselines["validation"]["trusted_only"] == last.baselines["validation"]["trusted_only"]
    assert first.baselines["validation"]["trusted_only"] == first.baselines["validation"]["no_weak"], "nobody was asked"
    assert last.validation is not None
    figure = last.figures["validation"]["f1_macro"]
    assert figure.value == pytest.approx(last.validation["f1_macro"])
    assert figure.low < figure.value < figure.high
    assert figure.measured_on == "cross-fitted over 30 trusted samples"
    assert str(last.in_use).startswith("source model naive_bayes, gamma 0.5, l2 strength")
    assert last.calibration is not None
    assert last.calibration.samples == 30
    assert "cross-fitted over 30 trusted samples" in seen.note
    assert seen.figure("validation") == figure
    assert seen.figure("test") is None


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, data = tmp_path_factory.mktemp("sourced"), small_data()
    np.save(made / "features.npy", data.X)
    np.save(made / "val_features.npy", data.validation[0])
    votes = voted(90)
    votes[:60].to_csv(made / "source_votes.csv", index=False)
    votes[60:].to_csv(made / "val_source_votes.csv", index=False)
    pd.DataFrame({"label": [CLASSES[k] for k in data.validation[1]]}).to_csv(made / "val_labels.csv", index=False)
    pd.DataFrame({"label": [CLASSES[k] for k in truth_of(90)[:60]]}).to_csv(made / "truth.csv", index=False)
    return made


@pytest.mark.slow
def test_clean_says_what_it_knows(files: Path, tmp_path: Path) -> None:
    names = (
        "features.npy",
        "val_features.npy",
        "source_votes.csv",
        "val_source_votes.csv",
        "val_labels.csv",
        "truth.csv",
    )
    given = [part for name in names for part in (f"--{Path(name).stem.replace('_', '-')}", files / name)]
    out = tmp_path / "out"
    said = labelchef(
        "clean", *given, "--out", out, "--budget", 20, "--audit", 0.5, "--sources", "naive_bayes", "--gamma", 0.5
    )
    for words in (
        "cross-fitted over 30 trusted samples", "trusted only: validation", "without weak labels: validation",
        "Trusted only: a model of the trusted samples alone", "in use: source model naive_bayes", "calibration error:",
        "audit: accuracy", "turned",
    ):  # fmt: skip
        assert words in said, words
    summary = json.loads((out / "summary.json").read_text())
    assert summary["baselines"]["validation"].keys() == {"trusted_only", "no_weak"}
    assert summary["in_use"]["model"] == "naive_bayes"
    assert summary["audit"]["samples"] == 10
    assert summary["figures"]["validation"]["cross_fitted"]
    assert pd.read_csv(out / "sources.csv")["name"].tolist() == [GOOD, WRONG, f"'{FORMULA}"]
    page = (out / "report.html").read_text()
    for words in (
        "<h2>Sources</h2>",
        "trusted only",
        "without weak labels",
        "Accuracy in the audit",
        "In use: source model",
    ):
        assert words in page, words


@pytest.mark.slow
def test_status_and_sources_of_a_campaign(files: Path, tmp_path: Path) -> None:
    home = {"LABELCHEF_HOME": str(tmp_path / "home"), "LABELCHEF_PERSON": "ann"}
    labelchef("init", "Mails", "--folder", files, "--sources", "naive_bayes", "--gamma", 0.5, "--audit", 0.5, env=home)
    said = labelchef("status", "mails", env=home)
    for words in (
        "val trusted only",
        "val without weak labels",
        "in use: source model naive_bayes",
        "audit: no item answered",
    ):
        assert words in said, words
    table = labelchef("status", "mails", "--sources", env=home)
    assert "turned: It is wrong more often than chance" in table
    found = json.loads(labelchef("status", "mails", "--sources", "--json", env=home))
    assert [one["name"] for one in found["sources"]].count(WRONG) == 1
    labelchef("status", "mails", "--sources", "--out", tmp_path / "sources.csv", env=home)
    assert len(pd.read_csv(tmp_path / "sources.csv")) == 3
