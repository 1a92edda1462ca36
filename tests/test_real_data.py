"""Campaigns on real data with real labelling functions."""

from pathlib import Path

import numpy as np
import pytest

from labelchef import LabelCleaner
from labelchef.annotators import GroundTruth, Suggestion
from tests.real_data import SETS, load


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_a_campaign_on_real_data(data_folder: Path, name: str) -> None:
    data = load(data_folder, name)
    cleaner = LabelCleaner(l2=1e-3, budget=100, batch_size=10)
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val, X_test=data.X_test, y_test=data.y_test)
    history = cleaner.run(GroundTruth(data.y)).history
    assert history["val_loss"].iloc[-1] < history["val_loss"].iloc[0]
    assert history["test_f1_macro"].iloc[-1] > history["test_f1_macro"].iloc[0] - 0.01
    assert history["sweeps"].iloc[2:].median() < 15


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_the_predicted_change_comes_true_on_real_data(data_folder: Path, name: str) -> None:
    data = load(data_folder, name)
    cleaner = LabelCleaner(l2=1e-2, budget=30, batch_size=1)
    cleaner.fit(data.X, data.Y_weak, X_val=data.X_val, y_val=data.y_val)
    history = cleaner.run(Suggestion()).history.iloc[1:]
    np.testing.assert_allclose(history["realised_change"], history["predicted_change"], rtol=0.25)
