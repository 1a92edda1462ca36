"""Campaigns on real data with real labelling functions."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.real import SETS, load, split

from labelchef import Known, LabelCleaner
from labelchef.chef.constructors import Construction, DeltaGradLConstructor, DescentSettings, RetrainConstructor
from labelchef.chef.selectors import IncremInflSelector, InflSelector
from labelchef.loop.annotators import GroundTruth, Suggestion
from tests.oracles import paper_cleaner


@pytest.mark.data
@pytest.mark.parametrize("name", ["youtube_wrench", "trec_rules", "airline_twitter"])
def test_a_campaign_on_real_data(data_folder: Path, name: str) -> None:
    data = split(load(data_folder, name), seed=0)
    cleaner = LabelCleaner(budget=100, batch_size=10)
    cleaner.fit(
        data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val, known=Known(X_test=data.X_test, y_test=data.y_test)
    )
    history = cleaner.run(GroundTruth(data.y)).history
    last = history.iloc[-1]
    assert last["test_f1_macro"] > history["test_f1_macro"].iloc[0] - 0.04  # youtube has 185 test samples: 7 of them
    assert last["test_f1_macro"] > last["test_trusted_only_f1_macro"] - 0.03
    assert history["sweeps"].iloc[2:].median() < 30  # a small gamma makes every clean label a long way to go


@pytest.mark.data
@pytest.mark.parametrize("name", ["youtube_wrench", "trec_rules", "airline_twitter"])
def test_the_predicted_change_comes_true_on_real_data(data_folder: Path, name: str) -> None:
    data = split(load(data_folder, name), seed=0)
    cleaner = paper_cleaner(budget=30, batch_size=1)
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val)
    history = cleaner.run(Suggestion()).history.iloc[1:]
    np.testing.assert_allclose(history["realised_change"], history["predicted_change"], rtol=0.25)


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_increm_infl_equals_full_on_real_data(data_folder: Path, name: str) -> None:
    data = split(load(data_folder, name), seed=1, n_train=4000)
    chosen = []
    for selector in (InflSelector(prune=False), InflSelector(), IncremInflSelector()):
        cleaner = paper_cleaner(selector=selector, look_ahead=False, l2=1e-3, budget=60)
        cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val)
        rounds = cleaner.run(GroundTruth(data.y)).rounds
        chosen.append([(r.batch.indices.tolist(), r.batch.suggested.tolist()) for r in rounds])
    assert chosen[0] == chosen[1] == chosen[2]


@pytest.mark.data
@pytest.mark.parametrize("name", ["youtube_wrench", "sentiment_polarity_mturk", "fact_google_relations"])
def test_deltagrad_stays_near_retrain_on_real_data(data_folder: Path, name: str) -> None:
    data = split(load(data_folder, name), seed=0)
    settings = DescentSettings(early_stopping=False)
    cleaner = paper_cleaner(constructor=DeltaGradLConstructor(settings), l2=1e-3, budget=100)
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val)
    session = cleaner._session
    first: Construction = session.construction
    cleaner.run(GroundTruth(data.y))
    nothing = session.labels.assign(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    trained = RetrainConstructor(settings).construct(session.objective, first, nothing, session.steering.losses)
    moved = np.linalg.norm(trained.point.W - first.point.W)
    assert np.linalg.norm(cleaner.W_ - trained.point.W) < 0.1 * moved
