"""Hostile, damaged and merely unusual files on every path that a file may come: none is retyped, none takes all memory."""

import contextlib
import datetime
import decimal
import json
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelchef.base import limits
from labelchef.base.campaigns import CampaignFiles
from labelchef.base.errors import InvalidInputError, TooLargeError
from labelchef.base.features import as_features
from labelchef.base.intake import ColumnRole
from labelchef.base.npy import npz_headers, read_npy, read_npz
from labelchef.believe.functions import read_label_matrix
from labelchef.data.campaign_data import CampaignData, find_files, read_files
from labelchef.data.contents import Contents
from labelchef.data.encoded import load_model
from labelchef.data.encoders.fitted import fit_encoder
from labelchef.data.encoders.images import read_image
from labelchef.data.encoders.protocol import Content
from labelchef.data.files import formats, spreadsheets, tables
from labelchef.data.files.messages import unpacked_size
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.server.export import exchange
from labelchef.server.intake.importing import import_votes
from labelchef.server.workspace import open_workspace
from tests import fuzz_files, hostile_files
from tests.store_support import make, truth_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TRICKY = [
    *("007", "7", "07.0", "1e5", "100000", "nan", "NaN", "TRUE", "True", "2020-01-01", "-5", "=1+1", "'=1"),
    *("平ü", "None", "0x10"),
]
NAMES = ("01", "1", "1e5")


# --- what is read is what was written ---


@pytest.mark.parametrize("suffix", tables.FORMATS)
def test_exported_votes_come_back_with_nothing_changed(tmp_path: Path, suffix: str) -> None:
    ids = TRICKY + [f"{k:04d}" for k in range(60 - len(TRICKY))]
    items = pd.DataFrame({"id": ids, "text": [f"text {k}" for k in range(60)]})
    truth = truth_of(90)
    y = [NAMES[k] for k in truth]
    X, X_val = np.random.default_rng(0).normal(size=(60, 3)), np.random.default_rng(1).normal(size=(30, 3))
    weak = np.full((60, 3), 1 / 3)
    data = CampaignData.of(X, weak, X_val=X_val, y_val=y[60:], classes=NAMES, contents=Contents(items))
    votes = pd.DataFrame(
        {"item": TRICKY, "annotator": "ann", "label": [NAMES[k % 3] for k in range(len(TRICKY))], "note": None}
    )
    with open_workspace(tmp_path / "home") as ws:
        first, second = make(ws, "one", data), make(ws, "two", data)
        given = tables.write_table(votes, tmp_path / f"given.{suffix}")
        import_votes(ws, first, "lead", given)
        out = exchange.export_votes(ws, first, tmp_path / f"out.{suffix}")
        report = import_votes(ws, second, "lead", out)
        assert report.counts["read"] == len(TRICKY)
        again = exchange.export_votes(ws, second, tmp_path / f"again.{suffix}")
    one, other = (formats.read_table(path).frame for path in (out, again))
    assert dict(zip(one["item"], one["label"], strict=True)) == dict(zip(votes["item"], votes["label"], strict=True))
    for name in ("item", "annotator", "label"):
        assert one.sort_values("item")[name].tolist() == other.sort_values("item")[name].tolist()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_texts_that_look_like_numbers_stay_texts(tmp_path: Path, suffix: str) -> None:
    names = ["01", "1", "1.0", "nan", "TRUE", "1e5", "2020-01-01", " 7"]
    path = tables.write_table(pd.DataFrame({"id": names, "label": names}), tmp_path / f"x.{suffix}")
    assert tables.read_labels(path, "labels") == names
    assert tables.read_ids(path) == names
    assert tables.read_items(path, "items")["id"].tolist() == names
    long = pd.DataFrame({"item": names, "annotator": "ann", "label": names})
    lines = tables.read_vote_lines(tables.write_table(long, tmp_path / f"votes.{suffix}"))
    assert [(line.item, line.label) for line in lines] == [(name, name) for name in names]
    votes = tables.read_source_votes(tables.write_table(pd.DataFrame({"rule": names}), tmp_path / f"v.{suffix}"), "v")
    assert votes["rule"].tolist() == names


# --- Parquet as other programs write it ---

KINDS: dict[str, tuple[Any, list[str | None]]] = {
    "nullable integers": (pa.array([1, None, 3], pa.int64()), ["1", None, "3"]),
    "large integers": (pa.array([2**62 + 1, None, 3], pa.int64()), [str(2**62 + 1), None, "3"]),
    "truth values": (pa.array([True, None, False]), ["True", None, "False"]),
    "texts with gaps": (pa.array(["01", None, "1"]), ["01", None, "1"]),
    "large_string": (pa.array(["01", None, "1"], pa.large_string()), ["01", None, "1"]),
    "categories": (pa.array(["b", None, "a"]).dictionary_encode(), ["b", None, "a"]),
    "lists": (pa.array([["a"], None, []]), ['["a"]', None, "[]"]),
    "records": (pa.array([{"a": 1}, None, {"a": None}]), ['{"a": 1}', None, '{"a": null}']),
    "times": (
        pa.array([datetime.datetime(2020, 1, 2, 3), None, datetime.datetime(2020, 1, 2)]),
        ["2020-01-02T03:00:00", None, "2020-01-02"],
    ),
    "dates": (pa.array([datetime.date(2020, 1, 2), None, None]), ["2020-01-02", None, None]),
    "decimals": (pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("2.00")]), ["1.50", None, "2.00"]),
    "half precision": (pa.array(np.array([0.5, 1.0, 2.0], np.float16)), ["0.5", "1", "2"]),
    "nothing": (pa.nulls(3), [None, None, None]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_parquet_column_on_every_path(tmp_path: Path, kind: str) -> None:
    column, texts = KINDS[kind]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c"], "label": column}), path)
    assert formats.read_table(path).frame["label"].astype(object).where(lambda s: s.notna(), None).tolist() == texts
    assert tables.read_labels(path, "labels") == texts
    shown = tables.read_items(path, "items")
    assert shown["id"].tolist() == ["a", "b", "c"]
    votes = tables.read_source_votes(path, "votes")
    assert [None if one is None or one != one else str(one) for one in votes["label"].tolist()] == [
        None if text is None else str(float(text)) if kind == "half precision" else text for text in texts
    ]
    pq.write_table(pa.table({"item": ["a", "b", "c"], "annotator": ["p"] * 3, "label": column}), path)
    assert [line.label for line in tables.read_vote_lines(path)] == texts
    pq.write_table(pa.table({"x": column, "y": [1.0, 2.0, 3.0]}), path)
    if kind == "half precision":
        assert as_features(tables.read_features(path, "features")).tolist() == [[0.5, 1.0], [1.0, 2.0], [2.0, 3.0]]
    else:  # gaps and texts are no features
        with pytest.raises(InvalidInputError):
            as_features(tables.read_features(path, "features"))
    with contextlib.suppress(InvalidInputError):  # three rows without a text are no campaign
        join(detect([path], Given()))


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": pa.array([], pa.string()), "label": pa.array([], pa.int64())}), path)
    assert tables.read_labels(path, "labels") == []
    assert len(tables.read_features(path, "features")) == 0
    with pytest.raises(InvalidInputError):
        as_features(tables.read_features(path, "features"))


# --- arrays ---


def damaged_texts() -> Any:
    made = np.array(["ham", "spam", "ham"])
    made.view(np.uint32)[1] = 0x7FFFFFFF
    return made


def test_texts_that_do_not_exist_are_refused_everywhere(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", damaged_texts())
    np.savez(tmp_path / "x.npz", votes=damaged_texts()[:, None], ids=damaged_texts())
    np.savez(tmp_path / "L.npz", L=np.zeros((3, 1), int), ids=damaged_texts(), sources=np.array(["a"]))
    np.savez(tmp_path / "model.npz", meta=damaged_texts())
    reads: list[Callable[[], object]] = [
        lambda: tables.read_labels(tmp_path / "x.npy", "labels"),
        lambda: tables.read_source_votes(tmp_path / "x.npz", "votes"),
        lambda: tables.read_ids(tmp_path / "x.npz"),
        lambda: formats.read_table(tmp_path / "x.npy"),
        lambda: formats.read_table(tmp_path / "x.npz"),
        lambda: read_label_matrix(tmp_path / "L.npz", ["a", "b", "c"], classes=["x"]),
        lambda: load_model(tmp_path / "model.npz"),
    ]
    for read in reads:
        with pytest.raises(InvalidInputError):
            read()


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pickle-was-run",)


def test_no_pickle_is_run_on_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    held = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "x.npy", held, allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=held)
    for path in (tmp_path / "x.npy", tmp_path / "x.npz"):
        for read in (
            formats.read_table, load_model, tables.read_ids, lambda p: tables.read_features(p, "f"),
            lambda p: tables.read_labels(p, "l"), lambda p: tables.read_source_votes(p, "v"), tables.read_weak_labels,
            lambda p: read_label_matrix(p, ["a"], classes=["x"]),
        ):  # fmt: skip
            if read is tables.read_ids and path.suffix == ".npy":
                continue
            with pytest.raises(InvalidInputError):
                read(path)
    assert not (tmp_path / "pickle-was-run").exists()


def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "swapped": np.arange(4, dtype=">i4"),
        "texts": np.array(["a", "平"]),
        "swapped_texts": np.array(["a", "平"]).astype(">U3"),
        "bytes": np.array([b"a", "ü".encode()]),
        "one": np.array(7),
        "none": np.empty((0, 3), np.float16),
        "truths": np.array([True, False]),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    found = read_npz(tmp_path / "x.npz")
    for name, array in arrays.items():
        np.save(tmp_path / "x.npy", array)
        for one in (found[name], read_npy(tmp_path / "x.npy")):
            np.testing.assert_array_equal(one, array)
            assert one.dtype == array.dtype
    assert {name: one.shape for name, one in npz_headers(tmp_path / "x.npz").items()} == {
        name: array.shape for name, array in arrays.items()
    }


# --- what was accepted in silence ---


@pytest.mark.parametrize("read", [lambda p: tables.read_features(p, "features"), tables.read_weak_labels])
def test_a_value_too_many_and_a_name_twice(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2,3\n4,5,6\n")
    with pytest.raises(InvalidInputError, match="has 3 fields; expected 2"):
        read(path)
    path.write_text("cat,cat\n0.5,0.5\n1,0\n")
    with pytest.raises(InvalidInputError, match="'cat' twice"):
        read(path)
    path.write_text("a,b\n1\n")
    with pytest.raises(InvalidInputError, match="has 1 fields"):
        read(path)


def test_two_files_of_one_name(tmp_path: Path) -> None:
    for name in ("features.npy", "val_features.npy"):
        np.save(tmp_path / name, np.ones((3, 2)))
    np.save(tmp_path / "val_labels.npy", np.zeros(3))
    pd.DataFrame({"a": [1.0]}).to_csv(tmp_path / "weak.csv")
    find_files(tmp_path)
    np.save(tmp_path / "weak.npy", np.ones((3, 2)))
    with pytest.raises(InvalidInputError, match=r"weak\.csv and weak\.npy"):
        find_files(tmp_path)


# --- memory ---


def test_hostile_files_take_no_memory(tmp_path: Path) -> None:
    made = [make(tmp_path, 2)[0] for make in hostile_files.FILES.values()]
    command = [sys.executable, "-m", "tests.hostile_files", "--child", *map(str, made)]
    allowed = {**os.environ, limits.VARIABLE: "20M"}
    done = subprocess.run(command, capture_output=True, text=True, env=allowed, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    came = dict(zip(hostile_files.FILES, found["came"], strict=True))
    assert set(came.values()) == {"refused: memory"}, came
    assert found["peak"] < 300 << 20, came


def test_lengths_are_compared_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": np.ones(5), "b": np.ones(5)}), tmp_path / "features.parquet")
    np.savez(tmp_path / "weak.npz", np.ones((4, 2)))
    np.save(tmp_path / "labels.npy", np.zeros(4))
    files = CampaignFiles(
        features=tmp_path / "features.parquet",
        weak=tmp_path / "weak.npz",
        val_features=tmp_path / "features.parquet",
        val_labels=tmp_path / "labels.npy",
    )
    monkeypatch.setattr(tables, "_read", lambda *_, **__: pytest.fail("a file was read"))
    with pytest.raises(InvalidInputError, match=r"features\.parquet has 5 rows and weak\.npz has 4"):
        read_files(files)


def test_the_limit_is_said_and_can_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,text\n" + "1,some words\n" * 1000)
    monkeypatch.setenv(limits.VARIABLE, "5K")
    with pytest.raises(TooLargeError, match="LABELCHEF_FILE_MEMORY=1G") as error:
        formats.read_table(path)
    assert error.value.code == "memory"
    for said, size in {"20K": 20 << 10, "1.5G": 3 << 29, "2 MiB": 2 << 20, "50000": 50000}.items():
        monkeypatch.setenv(limits.VARIABLE, said)
        assert limits.file_memory() == size
        assert len(formats.read_table(path)) == 1000
    monkeypatch.setenv(limits.VARIABLE, "much")
    with pytest.raises(InvalidInputError, match="such as 500M"):
        formats.read_table(path)
    monkeypatch.delenv(limits.VARIABLE)
    assert limits.file_memory() == limits.machine_memory() // 4
    limits.machine_memory.cache_clear()
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(limits, "_CONTROL_GROUPS", (str(tmp_path / "memory.max"), str(tmp_path / "none")))
    try:
        assert limits.machine_memory() == 1 << 20
    finally:
        limits.machine_memory.cache_clear()


def book(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


def test_sheets_that_reach_too_far(tmp_path: Path) -> None:
    cell = b'<table:table-cell office:value-type="string"><text:p>a</text:p></table:table-cell>'
    gap = b'<table:table-row table:number-rows-repeated="1048570"><table:table-cell table:number-columns-repeated="16384"/></table:table-row>'  # noqa: E501
    row = b'<table:table-row><table:table-cell table:number-columns-repeated="16000"/>' + cell + b"</table:table-row>"
    sheet = b"<table:table>%b</table:table>"
    quiet = book(
        tmp_path / "quiet.ods", "content.xml", sheet % (b"<table:table-row>" + cell + b"</table:table-row>" + gap)
    )
    far = book(tmp_path / "far.ods", "content.xml", sheet % (gap + row))
    binary = (
        b"\x00\x11" + (10**6).to_bytes(4, "little") + bytes(13) + b"\x07\x0c" + (16000).to_bytes(4, "little") + bytes(8)
    )
    with zipfile.ZipFile(quiet) as archive:
        assert spreadsheets._extent_of_ods(archive, archive.infolist()[0]) == (1, 1)
    for path in (far, book(tmp_path / "far.xlsb", "xl/worksheets/sheet1.bin", binary)):
        with pytest.raises(TooLargeError, match="reaches to row"):
            spreadsheets.read_sheet(path, None, None)


def test_what_an_arrow_file_unpacks_to(tmp_path: Path) -> None:
    table = pa.table({"x": np.zeros(100_000), "text": pa.array(["a"] * 100_000).dictionary_encode()})
    for packed in (None, "zstd", "lz4"):
        for writer_of in (pa.ipc.new_file, pa.ipc.new_stream):
            path = tmp_path / "x.arrow"
            options = pa.ipc.IpcWriteOptions(compression=packed)
            with pa.OSFile(str(path), "wb") as sink, writer_of(sink, table.schema, options=options) as writer:
                writer.write_table(table)
            assert unpacked_size(path) == pytest.approx(table.nbytes, rel=0.01)
            assert len(formats.read_table(path)) == 100_000


def test_a_picture_of_another_format_is_not_decoded(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(x) run\n")
    with pytest.raises(InvalidInputError, match="cannot be read") as error:
        read_image("x.png", tmp_path)
    assert error.value.code == "image"


def test_pictures_are_opened_one_at_a_time(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "pictures").mkdir()
    for k in range(120):
        image.new("RGB", (8, 8), (k, 0, 0)).save(tmp_path / "pictures" / f"{k}.png")
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 40, before[1]))
    try:
        raw = join(detect([tmp_path / "pictures"], Given()))
        part = raw.train if len(raw.train) else raw.trusted
        content = Content(part.frame, None, tmp_path / "pictures")
        made = fit_encoder(content, {"image": ColumnRole.IMAGE}, ["pixels"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(made.X) == 120


# --- fuzz, a few cases a format; `python -m tests.fuzz_files` runs thousands ---


@pytest.mark.parametrize("name", fuzz_files.READERS)
def test_damaged_files_are_refused_or_read_right(tmp_path: Path, name: str) -> None:
    made = fuzz_files.run(fuzz_files.READERS[name], range(8), tmp_path / "case")
    assert made.other == []
    assert made.cases == 8


def test_the_oracle_sees_a_wrong_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = formats.read_table

    def retyped(path: Path, **others: Any) -> formats.Table:
        found = real(path, **others)
        return formats.Table(found.path, found.frame.assign(id=[str(int(one)) for one in found.frame["id"]]))

    monkeypatch.setattr(formats, "read_table", retyped)
    for name in ("csv", "jsonl", "parquet"):
        with pytest.raises(AssertionError):
            fuzz_files.run(fuzz_files.READERS[name], range(0), tmp_path / "case")
