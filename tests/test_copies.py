"""Rows with the same content are one question: found in data, asked once, labelled together, kept through replay and exports."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

from labelchef import Known, LabelCleaner
from labelchef.base.browsing import Action
from labelchef.base.campaigns import Waiting
from labelchef.base.records import Batch
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.loop.clean import PROOF, Answers, clean
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.campaigns import summary
from labelchef.server.campaigns.trained import data_of, forget, replay, trained_now
from labelchef.server.export import exchange, take_home
from labelchef.server.export.proof import export_ledger
from labelchef.server.export.verifying import verify_ledger
from labelchef.server.intake.importing import import_votes
from labelchef.server.items.actions import Wanted, act
from labelchef.server.items.decisions import resolve
from labelchef.server.items.items import detail
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.store.tables import ArrayFile, Item
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import CLASSES, make, small_data, truth_of

QUICK: dict[str, Any] = {"sources": "shares", "gamma": 0.5, "l2": 0.01}
N, AGAIN, KNOWN = 60, [3, 3, 7], [0, 1]
"""Distinct training rows; rows that come again at the end; trusted rows that come again after those."""


def _arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X, y, X_val, y_val: training rows 60 and 61 are row 3, 62 is row 7, 63 and 64 are the trusted rows 0 and 1."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N + 40)
    X = rng.normal(size=(N + 40, 4)) + 2.0 * y[:, None]
    rows = [*range(N), *AGAIN, *(N + k for k in KNOWN)]
    return X[rows], y[rows], X[N:], y[N:]


def _cleaner(X: Any, y: Any, X_val: Any, y_val: Any, **given: Any) -> LabelCleaner:
    return LabelCleaner(**{**QUICK, **given}).fit(X, votes={"one": 1 - y}, X_val=X_val, y_val=y_val)


def test_one_answer_labels_all_and_is_counted_once() -> None:
    X, y, X_val, y_val = _arrays()
    cleaner = _cleaner(X, y, X_val, y_val, budget=None)
    asked = list[int]()

    def answers(batch: Batch) -> np.ndarray:
        asked.extend(batch.indices.tolist())
        return np.asarray(y[batch.indices])

    result = cleaner.run(answers)
    assert sorted(asked) == list(range(N))
    assert (result.rounds[-1].spent, result.rounds[-1].cleaned) == (N, N)
    assert cleaner.cleaned_.all()
    assert (cleaner.labels_.argmax(axis=1) == y).all()
    assert (cleaner.posterior_[N:].argmax(axis=1) == y[N:]).all()


def test_copies_do_not_train_and_copies_of_trusted_samples_have_their_label() -> None:
    X, y, X_val, y_val = _arrays()
    cleaner = _cleaner(X, y, X_val, y_val)
    assert np.flatnonzero(cleaner.cleaned_).tolist() == [63, 64]
    assert (cleaner.labels_[63:].argmax(axis=1) == y[63:]).all()
    same = {**QUICK, "l2": QUICK["l2"] * (len(X) + len(X_val)) / (N + len(X_val))}  # l2 is times the number of rows
    without = LabelCleaner(**same).fit(X[:N], votes={"one": 1 - y[:N]}, X_val=X_val, y_val=y_val)
    np.testing.assert_allclose(cleaner.finish().predict_proba(X), without.finish().predict_proba(X), atol=1e-6)
    judged = [one.rounds_[0].validation for one in (cleaner, without)]
    assert judged[0].as_dict() == pytest.approx(judged[1].as_dict())


def test_an_update_of_a_copy_is_one_of_all_and_can_be_undone() -> None:
    X, y, X_val, y_val = _arrays()
    cleaner = _cleaner(X, y, X_val, y_val)
    cleaner.update([61, 64, 5], [1, 1 - y[64], 0])
    assert np.flatnonzero(cleaner.cleaned_).tolist() == [3, 5, 60, 61, 63, 64]
    assert cleaner.labels_[[3, 60, 61, 64]].argmax(axis=1).tolist() == [1, 1, 1, y[64]]
    assert cleaner.rounds_[-1].spent == 2
    cleaner.undo()
    assert np.flatnonzero(cleaner.cleaned_).tolist() == [63, 64]
    cleaner.update([3, 60], [0, 1])  # the last one counts
    assert cleaner.labels_[[3, 60, 61]].argmax(axis=1).tolist() == [1, 1, 1]


def test_the_effect_of_a_source_counts_each_question_once() -> None:
    X, y, X_val, y_val = _arrays()
    cleaner = _cleaner(X, y, X_val, y_val).update([3, 5], y[[3, 5]])
    assert cleaner.effect_of_sources(["one"]).unanswered == N - 2


def test_the_paper_has_no_copies() -> None:
    X, y, X_val, y_val = _arrays()
    cleaner = LabelCleaner(preset="paper").fit(X, votes={"one": 1 - y}, X_val=X_val, y_val=y_val)
    assert not cleaner.cleaned_.any()
    assert np.isfinite(cleaner.scores()).all()


def test_rows_of_few_categories_are_equal_by_chance_and_no_copies() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (100, 4)).astype(float)
    X_val, y_val = rng.normal(size=(10, 4)), np.arange(10) % 2
    made = CampaignData.of(X, classes=["a", "b"], X_val=X_val, y_val=np.array(["a", "b"])[y_val])
    assert made.with_copies().copies is None
    wide = np.hstack([X, rng.normal(size=(100, 2))])
    twice = CampaignData.of(
        np.vstack([wide, wide[:5]]),
        classes=["a", "b"],
        X_val=np.hstack([X_val, X_val[:, :2]]),
        y_val=np.array(["a", "b"])[y_val],
    )
    found = twice.with_copies().copies
    assert found is not None
    assert np.flatnonzero(found.silent).tolist() == [100, 101, 102, 103, 104]


def _with_texts(texts: list[str], val_texts: list[str], clean: list[Any] | None = None, **known: Any) -> CampaignData:
    rng, C = np.random.default_rng(1), ["ham", "spam"]
    return CampaignData.of(
        rng.normal(size=(len(texts), 3)), classes=C, X_val=rng.normal(size=(len(val_texts), 3)),
        y_val=[C[k % 2] for k in range(len(val_texts))], known=Known(y_clean=clean, **known),
        contents=Contents(pd.DataFrame({"id": [f"t{k}" for k in range(len(texts))], "text": texts}),
                          pd.DataFrame({"id": [f"v{k}" for k in range(len(val_texts))], "text": val_texts})),
    )  # fmt: skip


def test_contents_are_compared_as_people_see_them() -> None:
    data = _with_texts(["a b", " a b ", "A b", "", "", "c"], ["c", "d"]).with_copies()
    assert data.copies is not None
    assert data.copies.of.tolist() == [
        0,
        0,
        2,
        3,
        4,
        6,
    ]  # case tells apart, nothing is no content, the last is trusted row 0
    assert data.clean.tolist() == [-1, -1, -1, -1, -1, 0]


def test_a_known_label_stands_for_its_copies_and_labels_that_differ_are_no_copies() -> None:
    data = _with_texts(
        ["a", "a", "b", "b", "c", "c"], ["c", "c", "e"], clean=[-1, "spam", "ham", "spam", -1, -1]
    ).with_copies()
    assert data.copies is not None
    assert data.copies.of.tolist() == [1, 1, 2, 3, 4, 5]  # b is known twice, otherwise; c is trusted as ham and as spam


def test_a_row_that_can_be_asked_stands_for_those_that_cannot() -> None:
    data = _with_texts(["a", "a", "b"], ["c", "d"], askable=[False, True, True]).with_copies()
    assert data.copies is not None
    assert data.copies.of.tolist() == [1, 1, 2]


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "home") as opened:
        yield opened


def _stored() -> tuple[CampaignData, np.ndarray]:
    """A campaign of texts, and the classes of its rows: items 60 and 61 are copies of item 3, 62 is one of trusted item 0."""
    plain, y = small_data(), truth_of(90)
    texts = [*(f"text {k}" for k in range(60)), "text 3", "text 3 ", "gold 0"]
    rows = [*range(60), 3, 3, 60]
    X = np.vstack([plain.X, plain.X[[3, 3]], plain.validation[0][:1]])
    contents = Contents(pd.DataFrame({"text": texts}), pd.DataFrame({"text": [f"gold {k}" for k in range(30)]}))
    return replace(plain, X=X, weak=plain.weak[[*range(60), 3, 3, 0]], clean=np.full(63, -1), contents=contents), y[
        rows
    ]


def test_a_campaign_asks_one_of_them_and_exports_label_all(ws: Workspace, tmp_path: Path) -> None:
    data, y = _stored()
    campaign = make(ws, data=data, budget=None, batch_size=20, people=1)
    while not isinstance(found := next_tasks(ws, campaign, "ann", 1), Waiting):
        assert int(found[0].item) < 60, "a copy is asked"
        if cast_vote(ws, campaign, "ann", found[0].item, int(y[int(found[0].item)])).batch_complete:
            advance(ws, campaign)
    assert summary(ws, campaign).spent == 60
    for path in (
        exchange.export_labels(ws, campaign, tmp_path / "labels.csv"),
        take_home.export_dataset(ws, campaign, tmp_path / "all.csv"),
    ):
        table = pd.read_csv(path)
        assert table["label"].tolist()[:63] == [CLASSES[k] for k in y]
    assert table["flags"].fillna("").tolist()[60:63] == ["copy of 3", "copy of 3", "copy of val-0"]
    assert table["origin"].tolist()[59:63] == ["people", "people", "people", "trusted"]
    assert table["probability"].tolist()[60:63] == [1.0, 1.0, 1.0]
    assert replay(ws, campaign).agrees
    forget(ws, find(ws, campaign).id)
    assert trained_now(ws, find(ws, campaign)).session.labels.silent[60:63].all()
    assert verify_ledger(export_ledger(ws, campaign, tmp_path / "ledger.jsonl"), data=path).intact


def test_leads_and_imports_may_name_any_of_them(ws: Workspace, tmp_path: Path) -> None:
    data, _ = _stored()
    campaign = make(ws, data=data, people=1)
    write = tmp_path / "votes.csv"
    write.write_text("item,annotator,label\n61,xia,spam\n3,xia,spam\n62,xia,ham\n")
    told = [one.outcome.value for one in import_votes(ws, campaign, "lead", write).lines]
    assert told[2] == "known label"
    assert set(told[:2]) < {"replaced", "decided", "complete"}
    resolve(ws, campaign, "60", "eggs", "lead")
    shown = {key: detail(ws, campaign, key) for key in ("3", "60", "62", "5")}
    assert [shown[key].line.label for key in shown] == [2, 2, int(truth_of(90)[60]), None]
    assert [(one.copies, one.copy_of) for one in shown.values()] == [(2, None), (0, "3"), (0, "val-0"), (0, None)]
    done = act(ws, campaign, Wanted(Action.REOPEN, items=["60", "61"]), "lead")
    assert done.done == 1
    assert detail(ws, campaign, "61").line.label is None


def test_a_campaign_that_an_earlier_version_made_has_none(ws: Workspace) -> None:
    data, _ = _stored()
    campaign = make(ws, data=data)
    with ws.writing() as connection:
        connection.execute(sa.delete(ArrayFile).where(ArrayFile.c.name == "copies"))
        connection.execute(sa.update(Item).where(Item.c.key == "62").values(label=None))
    forget(ws, find(ws, campaign).id)
    assert data_of(ws, find(ws, campaign)).copies is None


def test_clean_asks_one_of_them_and_takes_recorded_votes_on_any(tmp_path: Path) -> None:
    data, y = _stored()
    votes = pd.DataFrame(
        [(k, f"w{w}", CLASSES[y[k]]) for k in range(63) if k != 3 for w in range(3)],
        columns=["item", "annotator", "label"],
    )
    settings = Settings(budget=None, batch_size=20, sources="shares", gamma=0.5)
    clean(data, Answers(votes=votes), settings, tmp_path / "out", report=False)
    table = pd.read_csv(tmp_path / "out" / "cleaned_labels.csv")
    assert table["label"].tolist() == [CLASSES[k] for k in y]
    assert table["source"].tolist()[59:] == ["cleaned", "cleaned", "cleaned", "given"]
    assert verify_ledger(tmp_path / "out" / PROOF).intact


def test_the_preview_says_how_many_there_are(tmp_path: Path) -> None:
    texts = [f"a letter about {what} and {k}" for k in range(30) for what in ("tea", "ships")]
    frame = pd.DataFrame({"text": [*texts, texts[0], texts[1], texts[1]], "label": None}, dtype=object)
    frame["lf_one"], frame["lf_two"] = ["tea" if "tea" in text else "ships" for text in frame["text"]], None
    gold = pd.DataFrame(
        {"text": [texts[5], *(f"a note about {what} {k}" for k in range(20) for what in ("tea", "ships"))]}
    )
    gold["label"] = ["tea" if "tea" in text else "ships" for text in gold["text"]]
    for name, one in (("letters", frame.drop(columns=["label", "lf_two"])), ("gold", gold)):
        one.to_csv(tmp_path / f"{name}.csv", index=False)
    raw = join(detect([tmp_path / "letters.csv"], Given(trusted=(tmp_path / "gold.csv",))))
    said = {one.code: one for one in raw.findings}
    assert (said["copies"].count, said["copies-of-known"].count) == (3, 1)
    assert "one answer labels all of them" in said["copies"].message
    assert "repeated-texts" not in said
