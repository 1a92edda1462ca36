"""A campaign without trusted samples: the first answers are drawn by chance, become the trusted ones, and figures follow then."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelchef import InvalidInputError, LabelCleaner
from labelchef.base.campaigns import Waiting
from labelchef.base.errors import ConflictError
from labelchef.base.records import Decisions, Votes
from labelchef.base.settings import Settings
from labelchef.base.validation import FEWEST, NOT_YET
from labelchef.data.campaign_data import CampaignData
from labelchef.loop.annotators import GroundTruth
from labelchef.loop.pilot import drawn_in_pilot, next_drawn
from labelchef.loop.rebuild import rebuild
from labelchef.loop.start import new_session
from labelchef.loop.stopping import Plateau
from labelchef.model.classifier import LinearClassifier
from labelchef.server.export import exchange, take_home
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.worker import advance
from labelchef.server.workspace import open_workspace
from tests.commands import commands

CLASSES = ("disaster", "other")


def blobs(n: int, seed: int, apart: float = 1.2, share: float = 0.4) -> tuple[Any, Any]:
    """Rows (n, 4) of two overlapping classes, and their class ids."""
    rng = np.random.default_rng([seed, 7])
    y = (rng.random(n) < share).astype(np.int64)
    return rng.normal(size=(n, 4)) + apart * y[:, None] * np.array([1.0, 0.5, 0.0, 0.0]), y


def test_the_pilot_is_a_prefix_of_one_order_and_ends_with_enough_decided() -> None:
    every = np.ones(200, dtype=bool)
    order = next_drawn(every, 200, seed=3)
    assert sorted(order.tolist()) == list(range(200))
    left = every.copy()
    left[order[:7]] = False
    assert next_drawn(left, 5, seed=3).tolist() == order[7:12].tolist()
    counts = np.zeros(40)
    for seed in range(2000):
        counts[next_drawn(np.ones(40, dtype=bool), 10, seed)] += 1
    assert abs(counts - 500).max() < 4.5 * np.sqrt(2000 * 0.25 * 0.75), "all samples are drawn as often"

    items, nobody = np.arange(FEWEST), Votes.of([])
    labels = np.ones(FEWEST, dtype=np.int64)
    labels[0] = -1
    first = (nobody, Decisions.sure(items, labels), items.tolist())
    assert not drawn_in_pilot([first])[1], "an undecided sample does not count"
    more = (nobody, Decisions.sure(np.array([90]), np.array([0])), [90])
    assert drawn_in_pilot([first, more])[1]
    later = (nobody, Decisions.sure(np.array([91]), np.array([0])), [91])
    drawn, over = drawn_in_pilot([first, more, later])
    assert over
    assert {90, 91} & set(drawn.tolist()) == {90}, "what an audit draws later is no part of it"


def test_python_needs_neither_trusted_samples_nor_votes() -> None:
    X, y = blobs(300, 0)
    cleaner = LabelCleaner(budget=70, batch_size=10, stop=Plateau("accuracy", patience=5)).fit(X, classes=CLASSES)
    with pytest.raises(ConflictError, match="nothing is learned yet") as refused:
        cleaner.finish()
    assert refused.value.code == "preparing"
    assert np.isnan(cleaner.scores()).all()
    assert cleaner.gain() is None
    assert cleaner.judged() is None
    result = cleaner.run(lambda batch: y[batch.indices])
    assert result.stopped_because == "budget spent", "a rule that reads metrics waits for them"
    history = result.history
    assert history["val_accuracy"].isna().tolist() == [True] * 5 + [False] * 3
    drawn = [item for one in result.rounds for item, _ in one.batch.diagnostics.audited]
    assert drawn == next_drawn(np.ones(300, dtype=bool), FEWEST, 0).tolist()
    trusted, _judged = cleaner.judged() or ((), None)
    assert np.array_equal(trusted, y[np.sort(drawn)]), "those answers judge"
    assert (result.model.predict(X) == np.array(CLASSES)[y]).mean() > 0.7
    assert history["val_trusted_only_accuracy"].notna().sum() == 3

    for _ in range(3):
        cleaner.undo()
    assert np.isnan(cleaner.history_["val_accuracy"].iloc[-1]), "40 answers are too few again"
    again = cleaner.query(10).indices
    assert again.tolist() == next_drawn(~cleaner.cleaned_, 10, 0).tolist()


@pytest.mark.parametrize("sources", ["crowd", "one", "weak"])
def test_sources_are_believed_before_anybody_is_asked(sources: str) -> None:
    X, y = blobs(400, 1)
    rng = np.random.default_rng(2)
    votes = np.where(rng.random((400, 4)) < 0.25, 1 - y[:, None], y[:, None])
    votes[rng.random((400, 4)) < 0.3] = -1
    weak = np.where(rng.random(400)[:, None] < 0.25, np.eye(2)[1 - y], np.eye(2)[y])
    given: dict[str, Any] = {"crowd": {"votes": votes}, "one": {"votes": votes[:, :1]}, "weak": {"Y_weak": weak}}[
        sources
    ]
    cleaner = LabelCleaner(budget=60).fit(X, **given)
    assert cleaner.choice_ is not None
    assert cleaner.choice_.model == "shares"
    before = (cleaner.finish().predict(X) == y).mean()
    assert before > 0.7
    assert cleaner.sources_["measured_on"].sum() == 0
    assert cleaner.sources_["muting"].isna().all(), "no loss is measured yet that muting could change"
    if sources == "crowd":
        effect = cleaner.effect_of_sources([str(cleaner.sources_["name"][0])])
        assert effect.gains == {}
        assert effect.unanswered == 400
    cleaner.run(lambda batch: y[batch.indices])
    assert not np.isnan(cleaner.history_["val_f1_macro"].iloc[-1])


def test_a_class_that_is_missing_among_the_first_answers() -> None:
    X, y = blobs(300, 4, apart=3.0, share=0.03)
    first = next_drawn(np.ones(300, dtype=bool), FEWEST, 0)
    y[first] = 0
    cleaner = LabelCleaner(budget=80).fit(X, classes=CLASSES)
    result = cleaner.run(lambda batch: y[batch.indices])
    assert len(result.rounds) == 9
    assert cleaner._session.figures_by_split()["validation"]["f1_macro"].rarest == 0, "it is said that none was seen"
    assert np.isfinite(result.model.predict_proba(X)).all()


def test_what_needs_trusted_samples_is_refused_with_the_remedy() -> None:
    X, _ = blobs(60, 0)
    for wrong in (
        LabelCleaner(preset="paper"),
        LabelCleaner(trusted="steer"),
        LabelCleaner(constructor="retrain"),
    ):
        with pytest.raises(InvalidInputError, match="first 50 answers are drawn by chance") as refused:
            wrong.fit(X, classes=CLASSES)
        assert refused.value.code == "val"
    with pytest.raises(InvalidInputError, match="name the classes"):
        LabelCleaner().fit(X)


def test_a_session_that_is_rebuilt_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the pilot, at its end and after it."""
    X, y = blobs(300, 5)
    monkeypatch.setattr(Settings, "tol", 1e-9)
    settings = Settings(budget=None, batch_size=10)
    data = CampaignData.of(X, classes=CLASSES)
    session = new_session(data, settings)
    session.start()
    for number in range(1, 8):
        batch = session.select(10)
        votes = Votes.of([("ann", batch.indices, y[batch.indices])])
        session.decide(batch, votes, Decisions.sure(batch.indices, y[batch.indices]))
        if number in (3, 5, 7):
            again = rebuild(data, settings, session.rounds[1:], first=session.rounds[0])
            assert again.learner is not None
            assert session.learner is not None
            assert np.array_equal(again.learner.trusted, session.learner.trusted)
            assert again.in_pilot == session.in_pilot == (number < 5)
            assert np.abs(again.parameters - session.parameters).max() < 1e-6 * np.abs(session.parameters).max()
            assert again.select(10).indices.tolist() == session.select(10).indices.tolist()


def test_texts_in_a_file_by_the_command_line(tmp_path: Path) -> None:
    words = {"disaster": "storm flood smoke fire", "other": "music lunch party phone"}
    rng = np.random.default_rng(0)
    truth = {f"t{k}": CLASSES[int(rng.random() < 0.6)] for k in range(120)}
    texts = {
        key: f"{' '.join(rng.permutation(words[label].split())[:2])} on day {key[1:]}" for key, label in truth.items()
    }
    with (tmp_path / "tweets.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *texts.items()])
    home = tmp_path / "home"

    def labelchef(*arguments: object, code: int = 0) -> str:
        found = commands().run(*arguments, "--home", home, cwd=tmp_path)
        assert found.returncode == code, found.stderr
        return " ".join((found.stdout + found.stderr).split())

    told = labelchef("init", "tweets", "tweets.csv", code=2)
    assert "--classes" in told
    assert "Traceback" not in told
    told = labelchef("init", "tweets", "tweets.csv", "--classes", ",".join(CLASSES), "--encoder", "tfidf")
    assert "the first 50 answers are drawn by chance and become the trusted ones" in told
    assert "nothing is learned yet" in labelchef("export", "tweets", "--out", tmp_path / "d.csv", code=2)
    answer(home, truth, 30)
    assert NOT_YET in labelchef("status", "tweets")
    answer(home, truth, 30)
    told = labelchef("status", "tweets")
    assert "cross-fitted over 50 trusted samples" in told
    assert "nan" not in told.lower()
    assert "came out as the ledger says" in labelchef("replay", "tweets")
    with open_workspace(home) as ws:
        take_home.export_dataset(ws, "tweets", tmp_path / "d.csv")
        report = re.sub(r"<svg.*?</svg>|<[^>]+>", " ", exchange.report(ws, "tweets"), flags=re.DOTALL)
        model = LinearClassifier.load(exchange.export_model(ws, "tweets", tmp_path / "m.npz"))
    assert "nan" not in report.split()
    assert model.classes_.tolist() == list(CLASSES)
    with (tmp_path / "d.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["id"] for row in rows} == set(truth), "trusted answers are rows to label, once"
    assert sum(row["origin"] == "people" for row in rows) == 60
    assert np.mean([row["label"] == truth[row["id"]] for row in rows]) > 0.9


def answer(home: Path, truth: dict[str, str], n: int) -> None:
    """Let a person give so many answers; the workspace is opened for it, as after a restart."""
    with open_workspace(home) as ws:
        for _ in range(n // 10):
            found = next_tasks(ws, "tweets", "ann", 10)
            assert not isinstance(found, Waiting), found
            for task in found:
                cast_vote(ws, "tweets", "ann", task.item, truth[task.item])
            advance(ws, "tweets")


def test_intervals_cover_the_accuracy_on_new_samples() -> None:
    """100 campaigns of 60 answers, by chance: at least 93 % of the intervals hold the truth of the present model."""
    X_new, y_new = blobs(20_000, 999)
    held, apart = [], []
    for seed in range(100):
        X, y = blobs(150, seed)
        cleaner = LabelCleaner(budget=60, batch_size=30, random_state=seed).fit(X, classes=CLASSES)
        cleaner.run(GroundTruth(y))
        figure = cleaner._session.figures_by_split()["validation"]["accuracy"]
        ruled = cleaner.ruling_
        assert ruled is not None
        A = np.log(cleaner.predict_proba(X_new)) + np.array(ruled.offsets)
        truth = float((A.argmax(axis=1) == y_new).mean())
        held.append(figure.low <= truth <= figure.high)
        apart.append(figure.value - truth)
    assert np.mean(held) >= 0.93, np.mean(held)
    assert abs(np.mean(apart)) <= 3 * np.std(apart) / np.sqrt(len(apart)) + 0.005, (np.mean(apart), np.std(apart))
