"""What is said of sources, and the probabilities of the data set, against the truth of simulated campaigns."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef import LabelCleaner
from labelchef.base.learning import FEWEST_VOTES
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.loop.annotators import GroundTruth
from labelchef.loop.session import Session
from labelchef.loop.source_report import harms, source_facts, source_report
from labelchef.server import worker
from labelchef.server.campaigns import campaigns
from labelchef.server.sources import sources
from labelchef.server.workspace import open_workspace

FIXED: dict[str, Any] = {"gamma": 0.3, "l2": 0.01, "budget": 60, "batch_size": 20}


def drawn(
    seed: int, C: int = 2, *, n: int = 500, m: int = 100, sources: int = 5, copies: int = 0, stale: bool = False
) -> tuple[dict[str, Any], Any]:
    """Blobs with sources of several accuracies, `copies` more of the first, and truth of the training samples.

    `stale`: the last source is right on the trusted samples, and says on the others which side of a plane they are on.
    """
    rng, N = np.random.default_rng([seed, C, 0x50]), n + m
    y, centres = rng.integers(0, C, N), rng.normal(size=(C, 8))
    X = rng.normal(size=(N, 8)) + (1.3 * centres / np.linalg.norm(centres, axis=1, keepdims=True))[y]
    votes = np.full((N, sources + copies), -1)
    for j in range(sources):
        right = rng.random(N) < rng.uniform(0.5, 0.9)
        votes[:, j] = np.where(right, y, (y + rng.integers(1, C, N)) % C)
        votes[rng.random(N) < rng.uniform(0.3, 0.8), j] = -1
    for j in range(sources, sources + copies):
        votes[:, j] = np.where(rng.random(N) < 0.05, -1, votes[:, 0])
    if stale:
        told = np.where(np.arange(N) < n, (X @ rng.normal(size=8) > 0).astype(int), y)
        votes[:, -1] = np.where(rng.random(N) < 0.8, told, -1)
    data = {"X": X[:n], "votes": votes[:n], "X_val": X[n:], "y_val": y[n:], "votes_val": votes[n:], "classes": range(C)}
    return data, y[:n]


def fitted(data: dict[str, Any], **settings: Any) -> LabelCleaner:
    return LabelCleaner(**{**FIXED, **settings}).fit(**data)


def session_of(cleaner: LabelCleaner) -> Session:
    return cleaner._session


@pytest.mark.parametrize("C", [2, 3])
def test_intervals_of_accuracies_and_confusions_hold_what_they_promise(C: int) -> None:
    """After rounds by margin with an audit: what was asked because it is hard must not count."""
    held, cells = list[bool](), list[bool]()
    for seed in range(40):
        data, y = drawn(seed, C)
        cleaner = fitted(data, audit=0.25, sources="naive_bayes")
        cleaner.run(GroundTruth(y))
        for j, one in enumerate(source_facts(session_of(cleaner))):
            said = data["votes"][:, j]
            assert (one.measured_on < FEWEST_VOTES) == bool(np.isnan(one.accuracy))
            truth = float((said[said >= 0] == y[said >= 0]).mean())
            held.append(one.accuracy_low <= truth <= one.accuracy_high)
            for c in range(C):
                here = said[(said >= 0) & (y == c)]
                low, high = one.confusion_low[c], one.confusion_high[c]
                cells += [low[v] <= (here == v).mean() <= high[v] for v in range(C)]
    assert np.mean(held) >= 0.93
    assert np.mean(cells) >= 0.93


def test_what_is_measured_is_counted_on_samples_that_nobody_chose() -> None:
    data, y = drawn(1)
    cleaner = fitted(data, sources="naive_bayes")
    before = cleaner.sources_
    cleaner.run(GroundTruth(y))
    after = cleaner.sources_
    assert (
        before["measured_on"].tolist() == after["measured_on"].tolist() == (data["votes_val"] >= 0).sum(axis=0).tolist()
    )
    hits = (data["votes_val"] == data["y_val"][:, None]).sum(axis=0)
    np.testing.assert_allclose(after["accuracy"], hits / after["measured_on"])
    assert before["believed"].tolist() != after["believed"].tolist()


@pytest.mark.parametrize("trusted_votes", [True, False], ids=["votes on trusted", "votes on answered"])
@pytest.mark.parametrize("C", [2, 4])
def test_probabilities_of_the_data_set_are_right_where_sources_repeat_each_other(C: int, trusted_votes: bool) -> None:
    gaps, plain = [], []
    for seed in range(12):
        data, y = drawn(seed + 100, C, sources=4, copies=6)
        if not trusted_votes:
            del data["votes_val"]
        cleaner = fitted(data, gamma="auto", l2="auto")
        cleaner.run(GroundTruth(y))
        session = session_of(cleaner)
        open_ = ~cleaner.cleaned_
        Q = cleaner.posterior_[open_]
        hits = Q.argmax(axis=1) == y[open_]
        gaps.append(float(Q.max(axis=1).mean() - hits.mean()))
        ruling, session.ruling = session.ruling, None  # without a ruling votes count as the source model has them
        P = cleaner.posterior_[open_]
        session.ruling = ruling
        plain.append(float(P.max(axis=1).mean() - (P.argmax(axis=1) == y[open_]).mean()))
    noise = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps)) < max(0.03, 2.5 * noise)
    if trusted_votes:
        assert np.mean(plain) > abs(np.mean(gaps)) + 0.02, "what would be said of the same beliefs otherwise"


def test_where_nothing_shows_what_votes_count_the_model_speaks_alone() -> None:
    data, _ = drawn(3)
    del data["votes_val"]
    cleaner = fitted(data, sources="joint")
    session = session_of(cleaner)
    np.testing.assert_allclose(cleaner.posterior_, cleaner.predict_proba(data["X"]), atol=1e-6)
    assert any(
        "probabilities of the data set are those of the model" in note for note in source_report(session, [0, 1]).notes
    )


def test_a_source_that_harms_is_named_and_no_other() -> None:
    named = wrong = 0
    for seed in range(30):
        cleaner = fitted(drawn(seed, m=150)[0], sources="naive_bayes")
        wrong += bool(harms(session_of(cleaner)))
    for seed in range(10):
        cleaner = fitted(drawn(seed, m=200, sources=4, stale=True)[0], sources="naive_bayes", gamma=1.0)
        session, W = session_of(cleaner), cleaner.W_
        found = harms(session)
        named += bool(found) and found[0].name == session.learner.votes.names[-1] if session.learner else False
        assert all(one.high < 0 for one in found)
        np.testing.assert_array_equal(cleaner.W_, W)
    assert wrong <= 4, "5 % of 30, and two standard deviations"
    assert named >= 7


def test_a_campaign_says_which_source_harms_until_it_is_muted(tmp_path: Path) -> None:
    data, _ = drawn(1, m=200, sources=4, stale=True)
    names = ["no", "yes"]
    frames = {
        key: pd.DataFrame(
            [[names[k] if k >= 0 else None for k in row] for row in data[key]], columns=["a", "b", "c", "stale"]
        )
        for key in ("votes", "votes_val")
    }
    y_val = [names[k] for k in data["y_val"]]
    given = CampaignData.of(
        data["X"],
        None,
        X_val=data["X_val"],
        y_val=y_val,
        classes=names,
        contents=Contents(None),
        votes=frames["votes"],
        votes_val=frames["votes_val"],
    )
    with open_workspace(tmp_path / "home") as ws:
        settings = Settings(sources="naive_bayes", gamma=1.0, l2=0.01, budget=20, batch_size=10)
        name = campaigns.create_campaign(ws, "harmed", given, settings, "lead").slug
        worker.advance(ws, name)
        assert [one.name for one in campaigns.status(ws, name).harms] == ["stale"]
        assert sources.sources(ws, name).notes[0].startswith("Source 'stale' harms: without it")
        campaigns.change_settings(ws, name, "lead", muted=("stale",))
        assert campaigns.status(ws, name).harms == ()
