"""Damaged files: no exception but a refusal, and no row that is joined to what another row says.

Each case damages one file of a small campaign: bytes are flipped, cut, inserted, repeated; columns are swapped, dropped,
renamed; ids are shuffled, repeated, blanked; rows are shuffled. Then the files go through `detect` and `join`. The oracle joins
nothing: it takes what is in the files, as dictionaries, and looks up for every joined row whether some row with this very id says
so.
"""

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.intake import ColumnRole, FileRole, Plan, Severity
from labelchef.data.files import formats
from labelchef.data.files.tables import FORMATS, csv_text, write_table
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.data.intake.raw import Raw
from tests.fuzz_files import damaged_bytes

N = 14
WORDS = ("the plane was late and nobody told us about our bags which came days after").split()  # noqa: SIM905
SOME = 60
RUNS = int(os.environ.get("LABELCHEF_FUZZ", "240"))
"""Damaged files of each format; LABELCHEF_FUZZ=2000 takes a quarter of an hour."""
Generator = np.random.Generator


def items() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=6)) + f", {k}" for k in range(N)]
    return pd.DataFrame({"id": [f"{k:02d}a" for k in range(N)], "text": texts, "likes": [str(7 * k) for k in range(N)]})


def votes() -> pd.DataFrame:
    said = {f"rule_{j}": [("good", "bad", None)[(k * (j + 1)) % 3] for k in range(N)] for j in range(2)}
    return pd.DataFrame({"id": items()["id"], **said}).sample(frac=1, random_state=1).reset_index(drop=True)


def gold() -> pd.DataFrame:
    return pd.DataFrame({"id": items()["id"][:6], "label": ["good", "bad"] * 3})


FRAMES: dict[str, Callable[[], pd.DataFrame]] = {"items": items, "votes": votes, "gold": gold}


def damaged_frame(frame: pd.DataFrame, rng: Generator) -> pd.DataFrame:
    frame = frame.astype(object)
    key, some = "id", int(rng.integers(len(frame)))
    match int(rng.integers(10)):
        case 0:
            order = rng.permutation(len(frame.columns))
            frame = frame.iloc[:, order]
        case 1:
            frame.columns = pd.Index(rng.permutation(frame.columns.to_numpy(dtype=object)))
        case 2:
            frame = frame.drop(columns=str(rng.choice(frame.columns.to_numpy(dtype=str))))
        case 3:
            frame[key] = rng.permutation(frame[key].to_numpy(dtype=object))
        case 4:
            frame.loc[frame.index[some], key] = frame[key].iloc[int(rng.integers(len(frame)))]
        case 5:
            frame = pd.concat([frame, frame.iloc[: some + 1]])
        case 6:
            frame = frame.iloc[rng.permutation(len(frame))]
        case 7:
            name = str(rng.choice(frame.columns.to_numpy(dtype=str)))
            frame.loc[frame.index[some], name] = None
        case 8:
            names = [name for name in ("key", "x", "item", "name", "label", "text") if name not in frame.columns]
            frame = frame.rename(columns={key: str(rng.choice(names))})
        case 9:
            frame[key] = [str(value).lstrip("0") for value in frame[key]]
    return frame.reset_index(drop=True)


def as_rows(table: formats.Table) -> list[dict[str, Any]]:
    frame = table.frame.astype(object).where(table.frame.notna(), None)
    rows = [{str(name): value for name, value in line.items()} for line in frame.to_dict("records")]
    for name, values in table.vectors.items():
        for row, vector in zip(rows, np.asarray(values), strict=True):
            row[name] = vector
    return rows


def check(plan: Plan, raw: Raw, by_position: bool) -> None:
    """Every joined row says what rows with its id say in the files."""
    said: dict[str, dict[str, list[Any]]] = {"content": {}, "label": {}, "vote": {}, "vector": {}}
    for one in plan.files:
        rows = as_rows(formats.read_table(one.path))
        key = next(iter(one.named(ColumnRole.ID)), None)
        if key is None and one.role in (FileRole.VOTES, FileRole.FEATURES, FileRole.WEAK) and not by_position:
            continue  # nothing says which items its rows are
        for k, row in enumerate(rows):
            made = {str(k), f"{Path(one.path).stem}-{k}"}  # names of rows that have none: a row may be joined to itself
            for name in made if key is None else {str(row[key])}:
                for column, role in one.columns.items():
                    kind = {
                        ColumnRole.TEXT: "content", ColumnRole.SHOWN: "content", ColumnRole.LABEL: "label",
                        ColumnRole.SOURCE: "vote", ColumnRole.VOTE: "vote", ColumnRole.FEATURE: "vector",
                    }.get(role)  # fmt: skip
                    if kind is not None:
                        shown = "id (column)" if column == "id" else column
                        said[kind].setdefault(name, []).append((shown, row[column]))
    position = by_position and not any(one.named(ColumnRole.ID) for one in plan.of(FileRole.FEATURES))
    for part in (raw.train, raw.trusted, *([raw.test] if raw.test is not None else [])):
        assert len(set(part.ids)) == len(part.ids)
        for k, line in enumerate(part.frame.to_dict("records")):
            name = line.pop("id")
            for column, role in raw.content.items():
                value = line[column]
                if role in (ColumnRole.TEXT, ColumnRole.SHOWN):
                    there: list[Any] = said["content"].get(name, [])
                    here: Any = None if pd.isna(value) else value
                    silent = here is None and all(one != column for one, _ in there)  # no file says anything of it
                    assert silent or (column, here) in there, (name, column, value)
            if part.labels[k] is not None and part is not raw.train:
                assert part.labels[k] in [
                    value for _, value in (*said["label"].get(name, []), *said["vote"].get(name, []))
                ]
            if part.features is not None and not position:
                there = [value for _, value in said["vector"].get(name, []) if isinstance(value, np.ndarray)]
                assert any(np.array_equal(part.features[k], np.asarray(value, np.float32)) for value in there)
    for line in raw.votes.to_dict("records"):
        assert any(value == line["label"] for _, value in said["vote"][line["item"]]), line


def attempt(paths: list[Path], by_position: bool = False) -> str:
    """What came of damaged files: refused, doubted or accepted; a wrong join fails."""
    return outcome(paths, Given(by_position=by_position))


def outcome(paths: list[Path], given: Given) -> str:
    try:
        plan = detect(paths, given)
        raw = join(plan)
    except (InvalidInputError, MissingExtraError):
        return "refused"
    check(plan, raw, given.by_position)
    return "doubted" if any(one.severity is Severity.ERROR for one in raw.findings) else "accepted"


def campaign(folder: Path, suffix: str) -> dict[str, Path]:
    return {name: write_table(make(), folder / f"{name}.{suffix}") for name, make in FRAMES.items()}


def damage_table(folder: Path, suffix: str, k: int) -> list[Path]:
    """A campaign of this format with one damaged file."""
    rng = np.random.default_rng([7, k])
    files = {name: folder / f"{name}.{suffix}" for name in FRAMES}
    name = str(rng.choice(list(FRAMES)))
    if rng.random() < 0.6:
        content = damaged_bytes(WHOLE[suffix, name], rng)
    else:
        content = write_table(damaged_frame(FRAMES[name](), rng), folder / f"damaged.{suffix}").read_bytes()
        (folder / f"damaged.{suffix}").unlink()
    for other, path in files.items():
        path.write_bytes(content if other == name else WHOLE[suffix, other])
    return list(files.values())


WHOLE: dict[tuple[str, str], bytes] = {}


@pytest.fixture(autouse=True)
def _undamaged(tmp_path: Path) -> None:
    for suffix in FORMATS:
        if (suffix, "items") not in WHOLE:
            WHOLE.update({(suffix, name): path.read_bytes() for name, path in campaign(tmp_path, suffix).items()})
    for path in tmp_path.iterdir():
        path.unlink()


def run(cases: range, case: Callable[[int], str]) -> None:
    came: dict[str, int] = {"refused": 0, "doubted": 0, "accepted": 0}
    for k in cases:
        try:
            came[case(k)] += 1
        except Exception as error:
            raise AssertionError(f"case {k}: {error!r}") from error
    assert came["refused"] > 0, came
    assert came["doubted"] + came["accepted"] > 0, came


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_undamaged_campaign_is_accepted(tmp_path: Path, suffix: str) -> None:
    assert attempt(list(campaign(tmp_path, suffix).values())) == "accepted"


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_tables_some(tmp_path: Path, suffix: str) -> None:
    run(range(SOME), lambda k: attempt(damage_table(tmp_path, suffix, k)))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_tables_many(tmp_path: Path, suffix: str) -> None:
    run(range(SOME, RUNS), lambda k: attempt(damage_table(tmp_path, suffix, k)))


def arrays_case(folder: Path, suffix: str, k: int) -> str:
    rng = np.random.default_rng([8, k])
    V = np.random.default_rng(1).normal(size=(N, 4)).astype(np.float32)
    ids = items()["id"].to_numpy().astype(str)
    path = folder / f"embeddings.{suffix}"
    order = rng.permutation(N)
    if suffix == "npz":
        np.savez(path, ids=ids[order], X=V[order])
    else:
        np.save(path, V)
    match int(rng.integers(5)):
        case 0 if suffix == "npz":
            np.savez(path, ids=ids[order][: N - 2], X=V[order])
        case 1 if suffix == "npz":
            np.savez(path, ids=rng.choice(ids, N), X=V)
        case 2 if suffix == "npz":
            np.savez(path, X=V)
        case 3:
            (np.save if suffix == "npy" else np.savez)(path, V[: int(rng.integers(N))])
        case _:
            path.write_bytes(damaged_bytes(path.read_bytes(), rng))
    paths = [folder / f"{name}.csv" for name in FRAMES]
    for name, one in zip(FRAMES, paths, strict=True):
        one.write_bytes(WHOLE["csv", name])
    return attempt([*paths, path], by_position=suffix == "npy" and bool(rng.integers(2)))


def zip_case(folder: Path, k: int) -> str:
    rng = np.random.default_rng([9, k])
    path = folder / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if rng.integers(2) else zipfile.ZIP_STORED) as archive:
        for name in FRAMES:
            content = WHOLE["csv", name]
            match int(rng.integers(6)):
                case 0:
                    content = damaged_bytes(content, rng)
                case 1:
                    content = csv_text(damaged_frame(FRAMES[name](), rng)).encode()
            archive.writestr(f"{name}.csv", content)
    if rng.random() < 0.4:
        path.write_bytes(damaged_bytes(path.read_bytes(), rng))
    return outcome([path], Given(unpack_into=folder / f"out{k}"))


def dataset_case(folder: Path, whole: dict[str, bytes], k: int) -> str:
    rng = np.random.default_rng([10, k])
    root = folder / "saved"
    damaged = str(rng.choice(list(whole)))
    shutil.rmtree(root, ignore_errors=True)
    if rng.random() < 0.4:
        import datasets

        datasets.Dataset.from_pandas(damaged_frame(items(), rng)).save_to_disk(root)
        damaged, whole = "", {}
    for name, content in whole.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(damaged_bytes(content, rng) if name == damaged else content)
    paths = [folder / f"{name}.csv" for name in ("votes", "gold")]
    for path in paths:
        path.write_bytes(WHOLE["csv", path.stem])
    return attempt([root, *paths])


def saved_dataset(folder: Path) -> dict[str, bytes]:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_pandas(items()).save_to_disk(folder / "whole")
    return {str(p.relative_to(folder / "whole")): p.read_bytes() for p in (folder / "whole").rglob("*") if p.is_file()}


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize(
    "cases", [range(SOME), pytest.param(range(SOME, RUNS), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_arrays(tmp_path: Path, suffix: str, cases: range) -> None:
    run(cases, lambda k: arrays_case(tmp_path, suffix, k))


@pytest.mark.parametrize(
    "cases", [range(SOME), pytest.param(range(SOME, RUNS), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_archives(tmp_path: Path, cases: range) -> None:
    run(cases, lambda k: zip_case(tmp_path, k))


@pytest.mark.parametrize(
    "cases", [range(20), pytest.param(range(20, RUNS), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_data_sets(tmp_path: Path, cases: range) -> None:
    whole = saved_dataset(tmp_path)
    run(cases, lambda k: dataset_case(tmp_path, whole, k))
