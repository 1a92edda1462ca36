"""Every format: what is written is read back, text stays text, missing stays missing, hostile archives are refused."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelchef.base import limits
from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.data.files import archives, formats, spreadsheets, tables
from labelchef.data.files.formulas import as_written, harmless, is_guarded
from labelchef.data.files.queries import SqlQuery, fetch

AWKWARD = [
    "007", "=1+1", "'=1+1", "''=x", "'tis", "+49 170", "-5", "-x", "@home", "\tx", "a,b", "a;b", "a|b", "a\tb", 'say "hi"',
    '"', "two\nlines", "two\r\nlines", "old\rmac", " space ", "NA", "nan", "None", "null", "<NA>", "True", "1.0", "1e5",
    "12345678901234567890", "é", "漢字", "😀", "_x0041_", "\u2028", "\x85", "\ufeffmark", "#", "//", "{}", "[1]", "0", "",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(AWKWARD),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
)
SAME_WHEN_EMPTY = ("csv", "tsv", "xlsx")


@st.composite
def frames(draw: st.DrawFn, columns: int = 3) -> pd.DataFrame:
    names = draw(st.lists(texts.filter(lambda t: t.strip() != ""), min_size=1, max_size=columns, unique=True))
    n = draw(st.integers(1, 6))
    held = {name: [draw(st.one_of(st.none(), texts)) for _ in range(n)] for name in names}
    return formats.frame_of({"key": [f"k{k}" for k in range(n)], **held})


def same(found: pd.DataFrame, expected: pd.DataFrame, kind: str) -> None:
    if kind in SAME_WHEN_EMPTY:
        expected = expected.replace("", None).astype("str")
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        assert found[name].astype(object).where(found[name].notna(), None).tolist() == [
            None if value != value or value is None else value for value in expected[name].tolist()
        ], name


@pytest.mark.parametrize("kind", tables.FORMATS)
@settings(suppress_health_check=list(HealthCheck))
@given(frame=frames())
def test_what_is_written_is_read_back(tmp_path: Path, kind: str, frame: pd.DataFrame) -> None:
    path = tables.write_table(frame, tmp_path / f"t.{kind}")
    found = formats.read_table(path)
    same(found.frame, frame, kind)
    assert found.whole
    assert not found.vectors


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from("'=@+-\t\r5.x "), max_size=6))
def test_the_guard_against_formulas_is_one_to_one(text: str) -> None:
    shown = harmless(text)
    assert as_written(shown) == text
    assert is_guarded([shown])
    assert not shown.startswith(("=", "@", "\t", "\r"))


def test_a_file_of_another_origin_keeps_its_apostrophes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,text\n1,'@home is a song\n2,@all come\n")
    assert formats.read_table(tmp_path / "t.csv").frame["text"].tolist() == ["'@home is a song", "@all come"]


NULLABLE = {
    "whole": (pd.array([7, None, -1], dtype="Int64"), ["7", None, "-1"]),
    "small": (pd.array([7, None, 1], dtype="Int8"), ["7", None, "1"]),
    "large": (
        np.array([2**53 + 1, 2**63 - 1, -(2**63)], dtype=np.int64),
        ["9007199254740993", str(2**63 - 1), str(-(2**63))],
    ),
    "real": (pd.array([7.0, None, 0.1], dtype="Float64"), ["7", None, "0.1"]),
    "single": (np.array([7.0, np.nan, 0.1], dtype=np.float32), ["7", None, "0.1"]),
    "truth": (pd.array([True, None, False], dtype="boolean"), ["True", None, "False"]),
    "text": (pd.array(["007", None, ""], dtype="string"), ["007", None, ""]),
    "category": (pd.Categorical(["a", None, "b"]), ["a", None, "b"]),
    "day": (pd.to_datetime(pd.Series(["2020-01-02", None, "2020-01-03"])), ["2020-01-02", None, "2020-01-03"]),
    "time": (pd.to_datetime(["2020-01-02T03:04:05"] * 3), ["2020-01-02T03:04:05"] * 3),
}


@pytest.mark.parametrize("kind", ["parquet", "feather"])
@pytest.mark.parametrize("column", NULLABLE)
def test_types_of_columnar_files_become_text(tmp_path: Path, kind: str, column: str) -> None:
    values, expected = NULLABLE[column]
    tables.write_table(pd.DataFrame({"c": values}), tmp_path / f"t.{kind}")
    found = formats.read_table(tmp_path / f"t.{kind}").frame["c"]
    assert [None if value != value else value for value in found.tolist()] == expected


@pytest.mark.parametrize("kind", ["json", "jsonl", "xlsx", "csv"])
def test_numbers_are_read_as_people_write_them(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame({"n": pd.array([7, None], dtype="Int64"), "x": [0.5, np.nan], "t": [True, False]})
    found = formats.read_table(tables.write_table(frame, tmp_path / f"t.{kind}")).frame
    assert found["n"].isna().tolist() == [False, True]
    assert (found["n"][0], found["x"][0], found["t"].tolist()) == ("7", "0.5", ["True", "False"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.json", '[{"id": "007", "n": 12345678901234567890}, {"id": "008", "x": {"a": [1, 2.50]}}]'),
        ("t.json", '{"id": ["007", "008"], "n": [12345678901234567890, null], "x": [null, {"a": [1, 2.5]}]}'),
        ("t.json", '{"id": {"0": "007", "1": "008"}, "n": {"0": 12345678901234567890, "1": null}, '
                   '"x": {"0": null, "1": {"a": [1, 2.5]}}}'),
        ("t.jsonl", '{"id": "007", "n": 12345678901234567890}\n\n{"id": "008", "x": {"a": [1, 2.5]}}\n'),
        ("t.json", '{"id": "007", "n": 12345678901234567890}\n{"id": "008", "x": {"a": [1, 2.5]}}\n'),
    ],
)  # fmt: skip
def test_json_in_all_its_forms(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = formats.read_table(tmp_path / name).frame
    assert found["id"].tolist() == ["007", "008"]
    assert found["n"].tolist()[0] == "12345678901234567890"
    assert json.loads(found["x"][1]) == {"a": [1, 2.5]}
    assert found["x"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[{"a": 1, "a": 2}]', "twice"),
        ("[1, 2]", "no records"),
        ('{"a": [1], "b": []}', "different lengths"),
        ("7", "holds no table"),
        ('[{"a": 1}', "cut off"),
        ("[" * 100_000, "cannot be read|no JSON"),
    ],
)
def test_json_that_is_no_table_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InvalidInputError, match=why):
        formats.read_table(tmp_path / "t.json")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_delimiters_and_encodings_are_found_out(tmp_path: Path, delimiter: str, encoding: str) -> None:
    lines = [["id", "text"], ["007", "naïve café, says he"], ["008", "1,5"], ["009", "plain words"]]
    text = "\r\n".join(delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in line) for line in lines)
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    found = formats.read_table(tmp_path / "t.csv")
    assert found.frame.to_numpy().tolist() == lines[1:]
    assert not found.findings


def test_another_encoding_is_read_and_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("id,text\n1,plain\n2,café – naïve\n".encode("cp1252"))
    found = formats.read_table(tmp_path / "t.csv")
    assert found.frame["text"][1] == "café – naïve"
    assert [one.code for one in found.findings] == ["encoding"]
    assert "line 3" in found.findings[0].message


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n3\n", "line 3 has 1 fields; expected 2"),
        (b"a,a\n1,2\n", "'a' twice"),
        (b"0.5,1.5\n1,2\n", "begins with numbers"),
        (b'a,b\n1,"2\n', "cannot be read"),
        (b"a,b\n1,\x00\n", "NUL"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00", "expected|cannot be read"),
    ],
)
def test_csv_that_is_none_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InvalidInputError, match=why):
        formats.read_table(tmp_path / "t.csv")


def test_quotes_in_a_tsv_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text('id\ttext\n1\t"Hello, he said\n2\tx\n')
    assert formats.read_table(tmp_path / "t.tsv").frame["text"].tolist() == ['"Hello, he said', "x"]


def test_row_numbers_of_pandas_are_a_column_of_their_own(tmp_path: Path) -> None:
    pd.DataFrame({"a": ["x"]}).to_csv(tmp_path / "t.csv")
    assert list(formats.read_table(tmp_path / "t.csv").frame.columns) == [formats.NAMELESS, "a"]


def test_large_files_are_read_in_pieces_with_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "CHUNK", 1000)
    n = 12_345
    (tmp_path / "t.csv").write_text("id,text\n" + "".join(f'{k:06d},"line\n{k}"\n' for k in range(n)))
    told: list[tuple[str, int, int]] = []
    found = formats.read_table(tmp_path / "t.csv", progress=lambda *what: told.append(what))
    assert found.frame["id"].tolist() == [f"{k:06d}" for k in range(n)]
    assert len(told) >= n // 1000
    size = (tmp_path / "t.csv").stat().st_size
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1] == ("reading t.csv", size, size)
    some = formats.read_table(tmp_path / "t.csv", rows=10)
    assert (len(some), some.whole) == (10, False)
    monkeypatch.setattr(formats, "MOST_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="expected at most"):
        formats.read_table(tmp_path / "t.csv")


def test_vectors_of_every_format(tmp_path: Path) -> None:
    V = np.arange(6, dtype=np.float32).reshape(3, 2)
    frame = pd.DataFrame({"id": ["a", "b", "c"], "emb": list(V), "ragged": [[1.0], [1.0, 2.0], []]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.assign(emb=[v.tolist() for v in V]).to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.assign(emb=[v.tolist() for v in V]).to_json(tmp_path / "t.json", orient="records")
    np.savez(tmp_path / "t.npz", ids=["a", "b", "c"], emb=V)
    np.save(tmp_path / "t.npy", V)
    for name in ("t.parquet", "t.jsonl", "t.json", "t.npz"):
        found = formats.read_table(tmp_path / name)
        np.testing.assert_array_equal(found.vectors["emb"], V)
        assert found.frame.iloc[:, 0].tolist() == ["a", "b", "c"]
        assert "ragged" not in found.vectors
    assert json.loads(formats.read_table(tmp_path / "t.parquet").frame["ragged"][1]) == [1.0, 2.0]
    np.testing.assert_array_equal(formats.read_table(tmp_path / "t.npy").vectors["values"], V)
    np.savez(tmp_path / "L.npz", L=np.array([[0, -1], [1, 1]]), names=["rule", "rule"])
    votes = formats.read_table(tmp_path / "L.npz").frame
    assert votes.to_dict("list") == {"rule": ["0", "1"], "rule (2)": ["-1", "1"]}


def test_sheets_by_name(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "b.xlsx") as book:
        pd.DataFrame({"id": [7, 8]}).to_excel(book, sheet_name="First", index=False)
        pd.DataFrame({"id": ["x"], "day": [pd.Timestamp("2020-01-02")], "t": [True]}).to_excel(
            book, sheet_name="May #2", index=False
        )
    assert formats.read_table(tmp_path / "b.xlsx").frame["id"].tolist() == ["7", "8"]
    with pytest.raises(InvalidInputError, match="sheets"):
        formats.read_table(f"{tmp_path}/b.xlsx#June")
    (tmp_path / "c.xlsx").write_bytes((tmp_path / "b.xlsx").read_bytes())
    with pd.ExcelWriter(tmp_path / "d.xlsx") as book:
        pd.DataFrame({"id": ["x"], "day": [pd.Timestamp("2020-01-02")], "t": [True]}).to_excel(
            book, sheet_name="May", index=False
        )
    assert formats.read_table(f"{tmp_path}/d.xlsx#May").frame.iloc[0].tolist() == ["x", "2020-01-02", "True"]


def test_sheets_without_calamine_are_read_by_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = formats.frame_of({"id": ["007", "=1"], "text": ["a\rb", "_x0041_"]})
    tables.write_table(frame, tmp_path / "t.xlsx")
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    same(spreadsheets.read_sheet(tmp_path / "t.xlsx", None, None), frame, "xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"labelchef\[excel\]"):
        formats.read_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    ("module", "name", "extra"), [("pyarrow", "t.parquet", "parquet"), ("datasets", "d", "datasets")]
)
def test_a_missing_library_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, extra: str
) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    (tmp_path / "d").mkdir()
    for file in ("state.json", "dataset_info.json"):
        (tmp_path / "d" / file).write_text("{}")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"labelchef\[{extra}\]"):
        formats.read_table(tmp_path / name)


def test_a_data_set_saved_to_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features(
        {
            "id": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["ham", "spam"]),
            "emb": datasets.Sequence(datasets.Value("float32")),
        }
    )
    rows = {"id": ["007", "008"], "label": [1, -1], "emb": [[1.0, 2.0], [3.0, 4.0]]}
    one = datasets.Dataset.from_dict(rows, features=kinds)
    datasets.DatasetDict({"train": one, "test": one.select([1, 0])}).save_to_disk(tmp_path / "d")
    one.save_to_disk(tmp_path / "single")
    parts = formats.parts(tmp_path / "d")
    assert parts == [f"{tmp_path}/d#train", f"{tmp_path}/d#test"]
    train, test = (formats.read_table(part) for part in parts)
    assert train.frame["label"].astype(object).where(train.frame["label"].notna(), None).tolist() == ["spam", None]
    assert test.frame["id"].tolist() == ["008", "007"]
    np.testing.assert_array_equal(train.vectors["emb"], [[1, 2], [3, 4]])
    assert formats.parts(tmp_path / "single") == [str(tmp_path / "single")]
    assert formats.read_table(tmp_path / "single").frame["id"].tolist() == ["007", "008"]
    with pytest.raises(InvalidInputError, match="splits"):
        formats.read_table(tmp_path / "d")
    state = tmp_path / "single" / "state.json"
    state.write_text(state.read_text().replace("data-00000", "../d/train/data-00000"))
    with pytest.raises(InvalidInputError, match="expected files in the folder"):
        formats.read_table(tmp_path / "single")


def images(folder: Path, *names: str) -> Path:
    from PIL import Image

    for k, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (k * 40 % 256, 0, 0)).save(folder / name)
    return folder


def test_folders_of_images(tmp_path: Path) -> None:
    flat = images(tmp_path / "flat", "b.png", "a.jpg")
    found = formats.read_table(flat)
    assert found.frame.to_dict("list") == {"id": ["a.jpg", "b.png"], "image": ["a.jpg", "b.png"]}
    assert found.media == flat
    classes = images(tmp_path / "classes", "dog/1.png", "cat/1.png")
    assert formats.read_table(classes).frame["folder"].tolist() == ["cat", "dog"]
    parted = images(tmp_path / "parted", "train/dog/1.png", "train/cat/2.png", "test/cat/1.png")
    assert formats.parts(parted) == [f"{parted}#test", f"{parted}#train"]
    train = formats.read_table(f"{parted}#train").frame
    assert train.to_dict("list") == {
        "id": ["train/cat/2.png", "train/dog/1.png"],
        "image": ["train/cat/2.png", "train/dog/1.png"],
        "folder": ["cat", "dog"],
    }
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="no image"):
        formats.read_table(tmp_path / "empty")


def packed(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def test_archives_are_unpacked_into_their_own_folder(tmp_path: Path) -> None:
    path = packed(tmp_path / "z.zip", {"data/a.csv": b"id\n007\n", "data/deep/b.csv": b"id\n1\n"})
    told: list[Any] = []
    folder = archives.unpack(path, tmp_path / "out", lambda *what: told.append(what))
    assert [Path(part).name for part in formats.parts(folder)] == ["a.csv", "b.csv"]
    assert told[-1][1] == told[-1][2]
    assert archives.unpack(path, tmp_path / "out") != folder


@pytest.mark.parametrize("name", ["../x.csv", "/etc/x.csv", "a/../../x.csv", "a\\..\\x.csv", "C:/x.csv", "a\nb.csv"])
def test_archives_cannot_write_outside(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / "z.zip", {name: b"id\n1\n"})
    with pytest.raises(InvalidInputError, match="outside of the archive"):
        archives.unpack(path, tmp_path / "out" / "deep")
    assert not list(tmp_path.rglob("x.csv"))


def test_hostile_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LARGE", 1000)
    with pytest.raises(InvalidInputError, match="times its size"):
        archives.unpack(packed(tmp_path / "bomb.zip", {"a.csv": b"0" * 10_000_000}), tmp_path / "out")
    with pytest.raises(InvalidInputError, match="unpacks to"):
        archives.unpack(
            packed(tmp_path / "large.zip", {"a.csv": np.random.default_rng(0).bytes(5000)}),
            tmp_path / "out",
            most_bytes=4000,
        )
    link = zipfile.ZipInfo("l")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidInputError, match="link"):
        archives.unpack(tmp_path / "link.zip", tmp_path / "out")
    whole = packed(tmp_path / "cut.zip", {"a.csv": np.random.default_rng(0).bytes(5000)}).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInputError):
        archives.unpack(tmp_path / "cut.zip", tmp_path / "out")
    lying = bytearray(whole)
    at = lying.rindex(b"PK\x01\x02") + 24
    lying[at : at + 4] = (100).to_bytes(4, "little")  # says 100 bytes, unpacks to 5000
    (tmp_path / "lying.zip").write_bytes(lying)
    with pytest.raises(InvalidInputError):
        archives.unpack(tmp_path / "lying.zip", tmp_path / "out")


def test_rows_of_a_query(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/d.db")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table t (id text, n integer, x real)"))
        connection.execute(sqlalchemy.text("insert into t values ('007', 12345678901, 0.5), ('8', null, 7.0)"))
    engine.dispose()
    path = fetch(SqlQuery(f"sqlite:///{tmp_path}/d.db", "select * from t order by id"), tmp_path)
    found = formats.read_table(path).frame
    assert found["id"].tolist() == ["007", "8"]
    assert found["n"].astype(object).where(found["n"].notna(), None).tolist() == ["12345678901", None]
    assert found["x"].tolist() == ["0.5", "7"]


@pytest.mark.parametrize(
    ("url", "query"),
    [
        ("sqlite:///{}/none.db", "select 1"),
        ("sqlite:///{}/d.db", "select * from nothing"),
        ("sqlite:///{}/d.db", "create table u (a text)"),
        ("sqlite:///{}/d.db", "select 1 as a, 2 as a"),
        ("postgresql+pg8000://me:S3cret@127.0.0.1:1/db", "select 1"),
        ("nothing://me:S3cret@host/db", "select 1"),
        ("S3cret no url", "select 1"),
    ],
)
def test_queries_that_fail_say_so_without_the_password(tmp_path: Path, url: str, query: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/d.db")
    engine.connect().close()
    engine.dispose()
    asked = SqlQuery(url.format(tmp_path), query)
    with pytest.raises(InvalidInputError) as refused:
        fetch(asked, tmp_path)
    assert "S3cret" not in str(refused.value) + repr(asked)
    assert not list(tmp_path.glob("*.jsonl"))
