"""Features of campaigns from files, in the forms of `open_features`: at a URL, in Parquet files with a column of lists."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef.base import limits
from labelchef.base.campaigns import CampaignFiles
from labelchef.base.errors import InvalidInputError, TooLargeError
from labelchef.data.campaign_data import read_files
from labelchef.model.features import Features, is_streamed

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
N, D = 60, 4
X = np.random.default_rng(3).normal(size=(N, D)).astype(np.float32)
IDS = [f"s{k}" for k in range(N)]


def lists(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({**columns, "x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)}), path)
    return path


def files(folder: Path, features: Path | str, ids: list[str] | None = None, **more: Any) -> CampaignFiles:
    weak = pd.DataFrame(np.random.default_rng(0).dirichlet(np.ones(2), N), columns=["no", "yes"])
    if ids is not None:
        weak.insert(0, "id", ids)
    weak.to_csv(folder / "weak.csv", index=False)
    np.save(folder / "val.npy", X)
    np.save(folder / "labels.npy", np.array(["no", "yes"])[np.arange(N) % 2])
    places = {"val_features": folder / "val.npy", "val_labels": folder / "labels.npy", **more}
    return CampaignFiles(features=features, weak=folder / "weak.csv", **places)


def test_features_at_a_url(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}/x.npy"
    with fsspec.open(url, "wb") as stream:
        np.save(stream, X)
    data = read_files(files(tmp_path, url, val_features=url, test_features=url, test_labels=tmp_path / "labels.npy"))
    assert isinstance(data.X, Features)
    assert data.test is not None
    for found in (data.X.loaded().array, data.validation[0], data.test[0]):
        np.testing.assert_array_equal(found, X)


def test_parquet_with_a_column_of_lists_is_streamed(tmp_path: Path) -> None:
    path = lists(tmp_path / "x.parquet")
    data = read_files(files(tmp_path, path, val_features=path))
    assert isinstance(data.X, Features)
    np.testing.assert_array_equal(data.X.loaded().array, X)
    np.testing.assert_array_equal(data.validation[0], X)


def test_its_ids_are_compared_with_those_of_other_files(tmp_path: Path) -> None:
    path = lists(tmp_path / "x.parquet", id=IDS)
    assert isinstance(read_files(files(tmp_path, path, IDS)).X, Features)
    with pytest.raises(InvalidInputError, match=r"weak\.csv has none, so nothing says which rows belong together"):
        read_files(files(tmp_path, path))
    assert isinstance(read_files(files(tmp_path, path, by_position=True)).X, Features)
    with pytest.raises(InvalidInputError, match=r"weak\.csv lacks 1 of the 60 ids of x\.parquet, such as 's0'"):
        read_files(files(tmp_path, path, ["t", *IDS[1:]]))


def test_rows_of_another_number_are_refused(tmp_path: Path) -> None:
    pq.write_table(pq.read_table(lists(tmp_path / "x.parquet")).slice(1), tmp_path / "y.parquet")
    np.save(tmp_path / "weak.npy", np.full((N, 2), 0.5))
    with pytest.raises(InvalidInputError, match=r"y\.parquet has 59 rows and weak\.npy has 60"):
        read_files(replace(files(tmp_path, tmp_path / "y.parquet"), weak=tmp_path / "weak.npy"))


def test_a_row_group_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.array(np.zeros(100_000 * D, dtype=np.float32))
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(values, D)}), path)
    assert path.stat().st_size < 20_000, "zeros take no room in the file"
    monkeypatch.setenv(limits.VARIABLE, "100K")
    with pytest.raises(TooLargeError, match="a row group of 400000 values"):
        read_files(files(tmp_path, path))


def test_tables_of_plain_columns_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame(X, columns=list("abcd")).assign(id=IDS[::-1]).to_parquet(path)
    assert not is_streamed(path)
    data = read_files(files(tmp_path, path, IDS))
    assert isinstance(data.X, np.ndarray)
    np.testing.assert_array_equal(data.X, X)
    path.write_bytes(b"PAR1 nothing of the kind")
    assert not is_streamed(path)
    with pytest.raises(InvalidInputError, match=r"features: .*x\.parquet cannot be read as \.parquet"):
        read_files(files(tmp_path, path))
