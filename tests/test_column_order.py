"""A frame whose columns stand in another order than those of the training set is refused everywhere, never read by position."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from labelchef import Known, LabelCleaner
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import find_files, read_files
from labelchef.data.predicting import predict
from labelchef.loop.clean import Answers, clean
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.export.exchange import export_model
from labelchef.server.worker import advance
from labelchef.server.workspace import open_workspace
from tests.oracles import with_known

NAMES = ["age", "income", "visits"]
OTHER = ["visits", "age", "income"]
QUICK: dict[str, Any] = {"sources": "shares", "gamma": 0.5, "l2": 0.01}
Frame = Any


def _frames(make: Any, seed: int = 0) -> tuple[Frame, np.ndarray, Frame, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 160)
    X = rng.normal(size=(160, 3)) + np.outer(y, [2.0, 0.0, -2.0])
    return make(X[:100]), y[:100], make(X[100:]), y[100:]


def _pandas(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


def _polars(X: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(X, schema=NAMES)


@pytest.fixture(params=[_pandas, _polars], ids=["pandas", "polars"])
def frames(request: pytest.FixtureRequest) -> tuple[Frame, np.ndarray, Frame, np.ndarray]:
    return _frames(request.param)


@pytest.mark.parametrize("split", ["val", "judge", "test"])
def test_every_split_of_fit_has_the_columns_of_x(frames: tuple[Any, ...], split: str) -> None:
    X, y, X_val, y_val = frames
    given = {"X_val": X_val, "y_val": y_val, f"X_{split}": X_val[OTHER], f"y_{split}": y_val}
    with pytest.raises(InvalidInputError, match=f"column 0 of X_{split} is 'visits'; expected 'age'"):
        LabelCleaner(**QUICK).fit(X, votes={"one": y}, **with_known(given))


def test_predict_proba_predict_and_score_have_them_too(frames: tuple[Any, ...]) -> None:
    X, y, X_val, y_val = frames
    cleaner = LabelCleaner(**QUICK).fit(X, votes={"one": y}, X_val=X_val, y_val=y_val)
    model = cleaner.finish()
    for predicts in (cleaner.predict, cleaner.predict_proba, model.predict, model.predict_proba):
        assert len(predicts(X_val)) == len(y_val)
        with pytest.raises(InvalidInputError, match="column 0 of X is 'visits'"):
            predicts(X_val[OTHER])
    with pytest.raises(InvalidInputError, match="column 0 of X is 'visits'"):
        cleaner.score(X_val[OTHER], y_val)
    assert cleaner.score(X_val[OTHER][NAMES], y_val) == cleaner.score(X_val, y_val) > 0.8


def test_columns_of_other_names_are_refused(frames: tuple[Any, ...]) -> None:
    X, y, X_val, y_val = frames
    X_test = pd.DataFrame(np.asarray(X_val), columns=["age", "income", "clicks"])
    with pytest.raises(InvalidInputError, match="column 2 of X_test is 'clicks'; expected 'visits'"):
        LabelCleaner(**QUICK).fit(
            X, votes={"one": y}, X_val=X_val, y_val=y_val, known=Known(X_test=X_test, y_test=y_val)
        )


def test_numbers_as_names_are_refused_in_another_order_only() -> None:
    X, y, X_val, y_val = _frames(pd.DataFrame)
    cleaner = LabelCleaner(**QUICK).fit(X, votes={"one": y}, X_val=X_val, y_val=y_val)
    cleaner.predict(X_val.set_axis([7, 8, 9], axis=1))
    with pytest.raises(InvalidInputError, match="column 0 of X is 2; expected 0"):
        cleaner.predict(X_val[[2, 0, 1]])


def test_arrays_have_no_names_to_compare(frames: tuple[Any, ...]) -> None:
    X, y, X_val, y_val = frames
    cleaner = LabelCleaner(**QUICK).fit(X, votes={"one": y}, X_val=np.asarray(X_val), y_val=y_val)
    assert cleaner.score(np.asarray(X_val), y_val) == cleaner.score(X_val, y_val)


def test_a_network_and_its_final_model_refuse_them() -> None:
    torch = pytest.importorskip("torch")
    from labelchef.networks import NetworkCleaner, TrainingSettings

    X, y, X_val, y_val = (one.astype(np.float32) if isinstance(one, pd.DataFrame) else one for one in _frames(_pandas))
    torch.manual_seed(0)
    cleaner = NetworkCleaner(torch.nn.Linear(3, 2), training=TrainingSettings(epochs=2), sources="none")
    cleaner.fit(X, votes={"one": y}, X_val=X_val, y_val=y_val)
    for predicts in (cleaner.predict, cleaner.finish().predict):
        assert len(predicts(X_val)) == len(y_val)
        with pytest.raises(InvalidInputError, match="column 0 of X is 'visits'"):
            predicts(X_val[OTHER])


def test_files_of_a_campaign_have_the_columns_of_features(tmp_path: Path) -> None:
    X, y, X_val, y_val = _frames(_pandas)
    parts = {
        "features": X,
        "val_features": X_val[OTHER],
        "val_labels": pd.DataFrame({"label": y_val}),
        "source_votes": pd.DataFrame({"one": y}),
    }
    for name, frame in parts.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(InvalidInputError, match="column 0 of X_val is 'visits'; expected 'age'"):
        read_files(find_files(tmp_path))


def test_a_model_of_files_reads_columns_by_name(tmp_path: Path) -> None:
    X, y, X_val, y_val = _frames(_pandas)
    files, names = tmp_path / "files", np.array(["no", "yes"])
    files.mkdir()
    for name, frame in {
        "features": X,
        "val_features": X_val,
        "val_labels": pd.DataFrame({"label": names[y_val]}),
        "source_votes": pd.DataFrame({"one": names[y]}),
    }.items():
        frame.to_csv(files / f"{name}.csv", index=False)
    X_val[OTHER].to_csv(tmp_path / "new.csv", index=False)
    settings = Settings(budget=10, **QUICK)
    clean(read_files(find_files(files)), Answers(truth=names[y].tolist()), settings, tmp_path / "out", report=False)
    with open_workspace(tmp_path / "home") as ws:
        create_campaign(ws, "Some", find_files(files), settings, "lead")
        advance(ws, "some")
        exported = export_model(ws, "some", tmp_path / "exported.npz")
    for model in (tmp_path / "out" / "model.npz", exported):
        table = pd.read_csv(predict(model, tmp_path / "new.csv", tmp_path / "predicted.csv").path)
        assert np.mean(table["label"] == names[y_val]) > 0.8
