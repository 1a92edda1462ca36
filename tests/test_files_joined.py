"""Files of arrays and tables: rows that belong together by their ids, and refusals where nothing says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef.base.errors import InvalidInputError
from labelchef.data.campaign_data import CampaignData, find_files, read_files
from labelchef.data.files.items_file import ItemsFile

N = 24
IDS = [f"{k:03d}" for k in range(N)]
X = np.arange(N * 2, dtype=np.float64).reshape(N, 2)
WEAK = np.stack([np.linspace(0, 1, N), 1 - np.linspace(0, 1, N)], axis=1)


def shuffled(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def frames() -> dict[str, pd.DataFrame]:
    return {
        "features": pd.DataFrame({"id": IDS, "a": X[:, 0], "b": X[:, 1]}),
        "weak": pd.DataFrame({"id": IDS, "ham": WEAK[:, 0], "spam": WEAK[:, 1]}),
        "source_votes": pd.DataFrame({"id": IDS, "rule": ["ham" if k % 2 else "" for k in range(N)]}),
        "clean_labels": pd.DataFrame({"id": IDS, "label": ["ham" if k == 3 else "" for k in range(N)]}),
        "items": pd.DataFrame({"id": IDS, "text": [f"text {k}" for k in range(N)]}),
        "val_features": pd.DataFrame({"id": ["x", "y"], "a": [0.0, 1.0], "b": [1.0, 0.0]}),
        "val_labels": pd.DataFrame({"id": ["x", "y"], "label": ["ham", "spam"]}),
    }


def write(folder: Path, held: dict[str, pd.DataFrame], suffix: str = "csv") -> Path:
    folder.mkdir(exist_ok=True)
    for name, frame in held.items():
        match suffix:
            case "csv":
                frame.to_csv(folder / f"{name}.csv", index=False)
            case "parquet":
                frame.to_parquet(folder / f"{name}.parquet", index=False)
            case "jsonl":
                frame.to_json(folder / f"{name}.jsonl", orient="records", lines=True)
    return folder


def shown(data: CampaignData) -> pd.DataFrame:
    items = data.contents.items
    assert items is not None
    return items.whole() if isinstance(items, ItemsFile) else items


def facts(data: CampaignData) -> dict[str, Any]:
    items = shown(data)
    assert data.votes is not None
    return {
        key: (data.X[k].tolist(), data.weak[k].tolist(), data.clean[k], items["text"][k],
              data.votes.table[[k]].toarray().tolist())
        for k, key in enumerate(items["id"].astype(str))
    }  # fmt: skip


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_shuffled_files_give_the_same_samples(tmp_path: Path, suffix: str) -> None:
    straight = read_files(find_files(write(tmp_path / "a", frames(), suffix)))
    mixed = read_files(
        find_files(write(tmp_path / "b", {n: shuffled(f, k) for k, (n, f) in enumerate(frames().items())}, suffix))
    )
    assert facts(straight) == facts(mixed)
    assert facts(straight)["007"][0] == X[7].tolist()
    assert straight.X.shape == (N, 2)  # the id is no feature
    names = [straight.names.names[k] for k in straight.validation[1]]
    assert dict(zip(map(tuple, straight.validation[0].tolist()), names, strict=True)) == {(0, 1): "ham", (1, 0): "spam"}


def test_only_some_files_with_ids_are_refused_unless_position_is_told(tmp_path: Path) -> None:
    held = frames()
    del held["features"], held["clean_labels"], held["source_votes"]
    folder = write(tmp_path / "a", held)
    np.save(folder / "features.npy", X)
    with pytest.raises(InvalidInputError, match=r"nothing says which rows belong together.*--by-position") as refused:
        read_files(find_files(folder))
    assert refused.value.code == "ids"
    data = read_files(find_files(folder, by_position=True))
    np.testing.assert_array_equal(data.X, X)
    write(folder, {"items": shuffled(held["items"], 3)})
    with pytest.raises(InvalidInputError, match=r"row 0 has the id .* by position they belong together"):
        read_files(find_files(folder, by_position=True))
    (folder / "features.npy").unlink()
    np.savez(folder / "features.npz", ids=np.array(IDS[::-1]), X=X[::-1])
    joined = read_files(find_files(folder))
    assert shown(joined)["id"].tolist() == IDS[::-1]
    assert shown(joined)["text"][0] == f"text {N - 1}"


def test_ids_that_differ_or_repeat_are_refused(tmp_path: Path) -> None:
    held = frames()
    held["items"] = held["items"].iloc[:-2]
    with pytest.raises(InvalidInputError, match=r"items.csv lacks 2 of the 24 ids of features.csv, such as '022'"):
        read_files(find_files(write(tmp_path / "a", held)))
    held["items"] = pd.concat([held["items"], held["items"].iloc[:2]])
    with pytest.raises(InvalidInputError, match=r"the id '000' occurs twice"):
        read_files(find_files(write(tmp_path / "a", held)))


def test_ids_of_json_lines_are_not_retyped(tmp_path: Path) -> None:
    held = frames()
    items = shuffled(held.pop("items"), 1)
    folder = write(tmp_path / "a", held)
    write(folder, {"items": items}, "jsonl")
    data = read_files(find_files(folder))
    assert shown(data)["id"].tolist() == IDS
    big = 12345678901234567890
    (folder / "items.jsonl").write_text("".join(f'{{"id": {big + k}, "text": "t"}}\n' for k in range(N)))
    for name in ("features", "weak", "source_votes", "clean_labels"):
        held[name]["id"] = [str(big + k) for k in range(N)]
    write(folder, held)
    again = read_files(find_files(folder))
    assert shown(again)["id"][1] == str(big + 1)


def test_files_without_any_ids_stay_in_their_order(tmp_path: Path) -> None:
    held = {name: frame.drop(columns="id") for name, frame in frames().items()}
    data = read_files(find_files(write(tmp_path / "a", held)))
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_allclose(data.weak[:, :2], WEAK)
