"""What people take home: the whole data set, predictions, the report with what people saw."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from labelchef import Known
from labelchef.base.campaigns import Waiting
from labelchef.base.errors import InvalidInputError
from labelchef.base.learning import Doubt
from labelchef.believe import SourceVotes
from labelchef.data.campaign_data import CampaignData
from labelchef.data.contents import Contents
from labelchef.data.dataset import Decided, Part, dataset_frame
from labelchef.data.encoded import load_model
from labelchef.server.campaigns.access import find
from labelchef.server.campaigns.trained import data_of
from labelchef.server.export import exchange, take_home
from labelchef.server.labelling.tasks import next_tasks
from labelchef.server.labelling.votes import cast_vote
from labelchef.server.worker import advance
from labelchef.server.workspace import Workspace, open_workspace
from tests.store_support import label_all, make, small_data, truth_of


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "home") as opened:
        yield opened


def sourced_data(n_train: int = 60, n_val: int = 30, **contents: Any) -> CampaignData:
    """`small_data` with two sources, of which the second is silent on every third item."""
    plain = small_data(n_train, n_val)
    y = truth_of(n_train + n_val)
    names = np.array(plain.names.names, dtype=object)
    votes = pd.DataFrame({"good": names[y], "bad": names[(y + 1) % 3]})
    votes.loc[::3, "bad"] = None
    return CampaignData.of(
        plain.X, votes=votes[:n_train], votes_val=votes[n_train:], X_val=plain.validation[0],
        y_val=names[y[n_train:]], classes=plain.names.names,
        known=Known(X_test=plain.validation[0][:5], y_test=names[y[n_train:]][:5]),
        contents=Contents(**contents),
    )  # fmt: skip


def test_every_row_has_content_label_origin_votes_and_rank(ws: Workspace, tmp_path: Path) -> None:
    items = pd.DataFrame(
        {"id": [f"{k:03}" for k in range(60)], "text": [f"text {k}" for k in range(60)], "label": "mine"}
    )
    val_items = pd.DataFrame({"id": [f"v{k}" for k in range(30)], "text": "gold"})
    campaign = make(ws, data=sourced_data(items=items, val_items=val_items))
    truth = truth_of(90)
    for _ in range(4):
        for person in ("ann", "ben", "cat"):
            while not isinstance(found := next_tasks(ws, campaign, person, 1), Waiting):
                cast_vote(ws, campaign, person, found[0].item, int(truth[int(found[0].item)]))
        advance(ws, campaign)
    path = take_home.export_dataset(ws, campaign, tmp_path / "dataset.parquet")
    frame = pd.read_parquet(path)
    assert frame["split"].value_counts().to_dict() == {"train": 60, "trusted": 30, "test": 5}
    train = frame[frame["split"] == "train"].reset_index(drop=True)
    assert train["id"].tolist() == items["id"].tolist()
    assert train["text"].tolist() == items["text"].tolist()
    assert set(train["field: label"]) == {"mine"}
    by_people = train[train["origin"] == "people"]
    names = np.array(["ham", "spam", "eggs"])
    assert len(by_people) >= 12
    assert by_people["label"].tolist() == names[truth[by_people.index]].tolist()
    assert set(train["origin"]) <= {"people", "sources and model"}
    assert train["vote: good"].tolist() == names[truth[:60]].tolist()
    assert train["vote: bad"].isna().sum() == 20
    assert sorted(train["rank"]) == list(range(1, 61))
    assert train.sort_values("rank")["doubt"].is_monotonic_decreasing
    assert np.allclose(train[[f"p: {name}" for name in names]].sum(axis=1), 1, atol=1e-5)
    trusted = frame[frame["split"] == "trusted"]
    assert set(trusted["origin"]) == {"trusted"}
    assert trusted["label"].tolist() == names[truth[60:]].tolist()
    assert np.mean(train["label"] == names[truth[:60]]) >= 0.95  # one source is always right, and is found out


def test_predictions_are_those_of_the_final_model(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws, data=sourced_data())
    frame = pd.read_csv(take_home.export_predictions(ws, campaign, tmp_path / "predictions.csv"))
    model = load_model(exchange.export_model(ws, campaign, tmp_path / "model.npz"))
    data = data_of(ws, find(ws, campaign))
    X = np.concatenate([data.X, data.validation[0], data.test[0] if data.test else data.X[:0]])
    assert frame["label"].tolist() == model.predict(X).tolist()
    assert np.allclose(frame[[f"p: {name}" for name in model.classes_]], model.predict_proba(X), atol=1e-6)


def test_a_wrong_kind_of_file_is_refused(ws: Workspace, tmp_path: Path) -> None:
    campaign = make(ws)
    with pytest.raises(InvalidInputError, match="expected one of"):
        take_home.export_dataset(ws, campaign, tmp_path / "dataset.doc")


def test_doubts_flags_and_ranks_of_single_rows() -> None:
    votes = SourceVotes.hard(np.array([[0, -1], [1, 1], [-1, -1], [0, 1]]), 2, ("a", "b"))
    part = Part(
        split="train",
        keys=["k0", "k1", "k2", "k3"],
        contents=[{"text": "x"}] * 4,
        given=np.array([-1, -1, -1, 1]),
        predicted=np.array([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]]),
        predicted_ids=np.array([0, 0, 1, 1]),
        believed=np.array([[0.95, 0.05], [0.5, 0.5], [0.3, 0.7], [0.0, 1.0]]),
        decided={1: Decided(1, "majority", 1.0)},
        doubts={1: Doubt(1, 1, 0, 0.4, 0.1, "people disagree")},
        votes=votes,
    )
    frame = dataset_frame([part], ("no", "yes"), sources_used=True)
    assert frame["label"].tolist() == ["no", "yes", "yes", "yes"]
    assert frame["origin"].tolist() == ["sources and model", "people", "model", "trusted"]
    assert frame["probability"].tolist() == [0.95, 0.6, 0.7, 1.0]
    assert frame["rank"].tolist() == [3, 1, 2, 4]
    assert frame["flags"].tolist() == [
        "", "answer in doubt: people disagree; the model says otherwise", "probability below 0.8", "",
    ]  # fmt: skip
    ignored = dataset_frame([part], ("no", "yes"), sources_used=False)
    assert ignored["origin"].tolist()[0] == "model"


def test_many_sources_are_one_column_of_json() -> None:
    table = np.full((2, 60), -1)
    table[0, 3], table[1, 59] = 1, 0
    votes = SourceVotes.hard(table, 2, tuple(f"w{j}" for j in range(60)))
    P = np.array([[0.2, 0.8], [0.7, 0.3]])
    part = Part("train", ["a", "b"], [{}, {}], np.array([-1, -1]), P, P.argmax(axis=1), P, votes=votes)
    frame = dataset_frame([part], ("no", "yes"), sources_used=True)
    assert [json.loads(one) for one in frame["votes"]] == [{"w3": "yes"}, {"w59": "no"}]


def test_the_report_shows_texts_and_images(ws: Workspace, tmp_path: Path) -> None:
    media = tmp_path / "media"
    media.mkdir()
    for k in range(60):
        Image.new("RGB", (200, 100), (k, 0, 0)).save(media / f"{k}.png")
    items = pd.DataFrame(
        {"text": [f"the <b>text</b> {k}" for k in range(60)], "image": [f"{k}.png" for k in range(60)]}
    )
    campaign = make(ws, data=small_data(items=items, media=media))
    label_all(ws, campaign, "ann", "ben", "cat")
    page = exchange.report(ws, campaign)
    assert "the &lt;b&gt;text&lt;/b&gt;" in page
    assert "<b>text" not in page
    assert page.count('src="data:image/png;base64,') == 4
