"""Damaged files for every reader of the product, in one command.

    python -m tests.fuzz_files --cases 10000 [--only NAME …] [--seed 0]

Each case takes a file that is right, damages it and reads it. Bytes are flipped, cut, inserted, repeated, spliced from another
place; lines are repeated, dropped, swapped; values inside of JSON are replaced by others of another type, removed, renamed,
repeated; of archives one entry is damaged and the archive is packed again with right checksums; tables are changed as tables.

A case is right if the reader refuses the file with a `LabelchefError` that has a code, or if what it read passes the oracle of
its format, which reads the file in another way or writes it out and reads it again. Any other exception, any warning, a case
that takes longer than `SECONDS` or a process that grows by more than `MOST_GROWTH` is wrong: it is counted as `other`, its
number is printed, and the command fails. `--case K --only NAME` runs one case again, with the traceback.
"""

import argparse
import contextlib
import csv
import io
import json
import math
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labelchef.base.errors import LabelchefError
from labelchef.base.intake import ColumnRole, FileRole
from labelchef.believe.functions import read_label_matrix
from labelchef.believe.llm import read_answer, read_llm_labels, read_request
from labelchef.believe.rules import read_rules, rules_as_text, rules_of_text
from labelchef.data.encoded import EncodedClassifier, load_model
from labelchef.data.encoders.fitted import FittedEncoder, fit_encoder
from labelchef.data.encoders.images import read_image
from labelchef.data.encoders.protocol import Content
from labelchef.data.exchange.formats import FORMATS as TOOLS
from labelchef.data.exchange.formats import sniff
from labelchef.data.exchange.records import Prediction, Record, RecordSet
from labelchef.data.files import archives, formats, queries, tables
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.loop.ledger.conversion import record_as_json
from labelchef.loop.ledger.jsonl import JsonLinesLedger
from labelchef.model.classifier import LinearClassifier
from labelchef.server.intake.folders import Record as IntakeRecord

SECONDS = 60
"""Of a case, at most; far above what any takes, so that a busy machine is not taken for a hang."""
MOST_GROWTH = 1 << 30
"""Bytes of memory that the process may grow by while it reads one small file."""
N = 12
Generator = np.random.Generator
Files = dict[str, bytes]
WORDS = ("late", "plane", "kind", "crew", "lost", "bag", "thanks", "seat")


# --- damage ---


def damaged_bytes(content: bytes, rng: Generator) -> bytes:
    """A few changes of bytes."""
    held = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at, span = int(rng.integers(len(held) + 1)), int(rng.integers(1, 40))
        other = int(rng.integers(len(held) + 1))
        match int(rng.integers(8)):
            case 0:
                for _ in range(int(rng.integers(1, 8))):
                    if held:
                        held[int(rng.integers(len(held)))] ^= 1 << int(rng.integers(8))
            case 1:
                del held[at:]
            case 2:
                held[at:at] = rng.bytes(span)
            case 3:
                del held[at : at + span]
            case 4:
                held[at:at] = held[at : at + span]
            case 5:
                held[at : at + span] = bytes(len(held[at : at + span]))
            case 6:
                held[at:at] = bytes(rng.choice(list(b'",;\n\r\t{}[]:0\xff\xfe'), size=3).tolist())
            case 7:
                held[at : at + span] = held[other : other + span]
    return bytes(held)


def damaged_lines(content: bytes, rng: Generator) -> bytes:
    """Lines that are repeated, dropped, swapped or cut."""
    lines = content.split(b"\n")
    k, j = int(rng.integers(len(lines))), int(rng.integers(len(lines)))
    match int(rng.integers(5)):
        case 0:
            lines.insert(j, lines[k])
        case 1:
            del lines[k]
        case 2:
            lines[k], lines[j] = lines[j], lines[k]
        case 3:
            lines[k] = lines[k][: int(rng.integers(len(lines[k]) + 1))]
        case 4:
            lines[k] = lines[k] + lines[j]
    return b"\n".join(lines)


_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 10**30, 0.5, -2.5, float("nan"), float("inf"), "", "7", "nan", "x" * 500, [], {}, [[]], [1, 2],
    {"a": 1}, [None], "\x00", "ü平", [[[[]]]],
)  # fmt: skip


def damaged_value(value: Any, rng: Generator) -> Any:
    """A JSON value with one place changed."""
    places: list[tuple[Any, Any]] = []

    def walk(one: Any) -> None:
        inside = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, held in inside:
            places.append((one, key))
            walk(held)

    value = json.loads(json.dumps(value))
    walk(value)
    other = _VALUES[int(rng.integers(len(_VALUES)))]
    if not places or rng.random() < 0.03:
        return other
    holder, key = places[int(rng.integers(len(places)))]
    match int(rng.integers(5)):
        case 0 | 1:
            holder[key] = other
        case 2:
            del holder[key]
        case 3 if isinstance(holder, dict):
            holder[str(rng.choice(list(holder) or ["x"])) + "_" * int(rng.integers(2))] = holder.pop(key)
        case 3:
            holder.append(holder[key])
        case 4:
            source, from_key = places[int(rng.integers(len(places)))]
            holder[key] = json.loads(json.dumps(source[from_key]))
    return value


def damaged_json(content: bytes, rng: Generator) -> bytes:
    return json.dumps(damaged_value(json.loads(content), rng), ensure_ascii=bool(rng.integers(2))).encode()


def damaged_json_lines(content: bytes, rng: Generator) -> bytes:
    lines = [line for line in content.split(b"\n") if line]
    k = int(rng.integers(len(lines)))
    lines[k] = damaged_json(lines[k], rng)
    return b"\n".join(lines) + b"\n"


def damaged_archive(content: bytes, rng: Generator) -> bytes:
    """One entry is damaged; checksums are right again."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(one.filename, archive.read(one)) for one in archive.infolist()]
    k = int(rng.integers(len(entries)))
    name, held = entries[k]
    match int(rng.integers(6)):
        case 0:
            entries.append((name + "x", held))
        case 1:
            del entries[k]
        case 2 if name.endswith(".npy"):
            entries[k] = (name, damaged_array(held, rng))
        case _:
            entries[k] = (name, damaged_bytes(held, rng))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if rng.integers(2) else zipfile.ZIP_STORED) as archive:
        for one, inside in entries:
            archive.writestr(one, inside)
    return out.getvalue()


def damaged_array(content: bytes, rng: Generator) -> bytes:
    """An array of another shape, type or with other values."""
    array = np.load(io.BytesIO(content), allow_pickle=False)
    made: Any
    match int(rng.integers(7)):
        case 0:
            made = array.reshape(-1)[: int(rng.integers(array.size + 1))]
        case 1:
            made = array[None]
        case 2:
            made = np.array([{"a": 1}], dtype=object)
        case 3:
            made = array.astype("S8") if array.dtype.kind in "US" else array.astype(np.complex64)
        case 4:
            made = array.astype(object).astype("U12")
        case 5:
            made = np.zeros((0, *array.shape[1:]), array.dtype)
        case _:
            made = array.copy()
            raw = made.reshape(-1).view(np.uint8)
            if raw.size:
                raw[int(rng.integers(raw.size))] ^= 1 << int(rng.integers(8))
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(made), allow_pickle=True)
    return out.getvalue()


Damage = Callable[[bytes, Generator], bytes]


# --- readers ---


@dataclass(frozen=True)
class Reader:
    """A format: files that are right, how they are damaged, and how they are read and compared."""

    name: str
    make: Callable[[], Files]
    read: Callable[[Path], None]
    """Reads the files of a folder; `AssertionError` if what was read is wrong."""
    damage: tuple[Damage, ...] = (damaged_bytes,)
    fixed: frozenset[str] = frozenset()
    """Files that are not damaged."""


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": [f"{k:03d}" for k in range(N)],
            "text": [" ".join(rng.choice(WORDS, 5)) + f", {k} ü" for k in range(N)],
            "likes": [str(k) if k % 3 else None for k in range(N)],
            "label": [("good", "bad", "01", "1")[k % 4] for k in range(N)],
        }
    )


def votes_frame() -> pd.DataFrame:
    said = ("good", "bad", None)
    columns = {f"rule {j}": [said[(k * (j + 2)) % 3] for k in range(N)] for j in range(3)}
    return pd.DataFrame(columns)


@cache
def written(suffix: str, what: str = "items") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = frame() if what == "items" else votes_frame()
        return tables.write_table(made, Path(folder) / f"x.{suffix}").read_bytes()


def cells(one: formats.Table) -> list[dict[str, str | None]]:
    held = one.frame.astype(object).where(one.frame.notna(), None)
    return [{str(name): value for name, value in line.items()} for line in held.to_dict("records")]


def plain_csv(text: str, delimiter: str) -> list[list[str]]:
    """RFC 4180, by hand."""
    rows: list[list[str]] = []
    row: list[str] = []
    held, quoted, at, began = "", False, 0, True
    while at < len(text):
        sign = text[at]
        if quoted:
            if sign == '"' and text[at + 1 : at + 2] == '"':
                held, at = held + '"', at + 1
            elif sign == '"':
                quoted = False
            else:
                held += sign
        elif sign == '"' and began:
            quoted = True
        elif sign == delimiter:
            row, held = [*row, held], ""
            at, began = at + 1, True
            continue
        elif sign in "\r\n":
            if row or held or not began:
                rows.append([*row, held])
            row, held, began = [], "", True
            at += 2 if text[at : at + 2] == "\r\n" else 1
            continue
        else:
            held += sign
        at, began = at + 1, False
    if row or held or not began:
        rows.append([*row, held])
    return [one for one in rows if one != [""]]


def read_csv(folder: Path) -> None:
    (path,) = folder.iterdir()
    table = formats.read_table(path)
    found = cells(table)
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return  # another encoding, which the finding says
    if raw[:4].count(0):
        return
    delimiter = formats._delimiter(path, "utf-8-sig")
    said = plain_csv(text, delimiter)
    if delimiter == "\t":
        return  # quotes may be text there
    assert len(said) == len(found) + 1, (len(said), len(found))
    guarded = any(cell.startswith("'") for row in said for cell in row)
    for row, values in zip(said[1:], found, strict=True):
        assert guarded or [cell or None for cell in row] == list(values.values()), (row, values)


def text_of_json(value: Any) -> str | None:
    """What a cell of a JSON file is as text, by its token."""
    if value is None or isinstance(value, str):
        return value
    return str(value)


def read_json_lines(folder: Path) -> None:
    (path,) = folder.iterdir()
    table = formats.read_table(path)
    found = cells(table)
    lines = [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    said = [json.loads(line, parse_int=str, parse_float=str, parse_constant=lambda _: None) for line in lines]
    assert len(said) == len(found)
    for one, values in zip(said, found, strict=True):
        for name, value in one.items():
            if not isinstance(value, list | dict | bool) and name in values:
                expected = value.removesuffix(".0") if isinstance(value, str) and value.endswith(".0") else value
                assert values[name] in (value, expected), (name, value, values[name])


def read_any(folder: Path) -> None:
    (path,) = folder.iterdir()
    table = formats.read_table(path)
    assert all(len(values) == len(table.frame) for values in table.vectors.values()) or not len(table.frame.columns)
    assert all(value is None or isinstance(value, str) for row in cells(table) for value in row.values())


def read_parquet(folder: Path) -> None:
    import pyarrow.parquet as parquet

    (path,) = folder.iterdir()
    found = cells(formats.read_table(path))
    said = parquet.read_table(path).to_pylist()
    assert len(found) == len(said)
    for one, values in zip(said, found, strict=True):
        for name, value in one.items():
            if value is None or isinstance(value, str):
                assert values[name] == value


def read_excel(folder: Path) -> None:
    import openpyxl

    (path,) = folder.iterdir()
    found = cells(formats.read_table(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(path, data_only=True)
    except Exception:  # it reads less of damaged books than we do
        return
    said = [
        row for row in book[book.sheetnames[0]].iter_rows(values_only=True) if any(one not in (None, "") for one in row)
    ]
    texts = {str(one) for row in said for one in row if isinstance(one, str)}
    assert all(value in texts or not value.isalpha() for row in found for value in row.values() if value is not None)


def read_arrays(folder: Path) -> None:
    (path,) = folder.iterdir()
    table = formats.read_table(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = np.load(path, allow_pickle=False)
        arrays = {"values": held} if isinstance(held, np.ndarray) else {name: held[name] for name in held.files}
    for name, values in table.vectors.items():
        if name in arrays:
            np.testing.assert_array_equal(np.asarray(values), arrays[name])


def read_votes(folder: Path) -> None:
    (path,) = folder.iterdir()
    found = tables.read_source_votes(path, "votes")
    assert found is not None
    again = tables.read_source_votes(path, "votes")
    if isinstance(found, pd.DataFrame):
        pd.testing.assert_frame_equal(found, again)


def read_vote_lines(folder: Path) -> None:
    (path,) = folder.iterdir()
    lines = tables.read_vote_lines(path)
    found = cells(formats.read_table(path))
    assert len(lines) == len(found)
    for line, values in zip(lines, found, strict=True):
        assert line.item == (values.get("item") or values.get("id") or "") or line.item.lstrip("'") in str(values), line


def read_numbers(folder: Path) -> None:
    from labelchef.base.features import as_features

    (path,) = folder.iterdir()
    X = as_features(tables.read_features(path, "features"))
    assert np.isfinite(X).all()
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig") as stream:
            n = sum(1 for row in csv.reader(stream) if row)
        assert len(X) == n - 1


def read_pictures(folder: Path) -> None:
    (path,) = folder.iterdir()
    picture = read_image(path.name, folder)
    assert picture.mode == "RGB"
    assert picture.width * picture.height > 0


def read_archive(folder: Path) -> None:
    (path,) = folder.iterdir()
    inside = archives.unpack(path, folder / "out")
    with zipfile.ZipFile(path) as archive:
        sizes = sorted(one.file_size for one in archive.infolist() if not one.is_dir())
    root = folder / "out"
    assert inside.is_relative_to(root)
    assert sizes == sorted(one.stat().st_size for one in root.rglob("*") if one.is_file())


RULES = """
[[rules]]
name = "shouts"
kind = "regex"
column = "text"
label = "spam"
pattern = "[A-Z]{5}"
match_case = true

[[rules]]
name = "words"
kind = "keyword"
column = "text"
label = "ham"
words = ["thanks", "great"]

[[rules]]
name = "long"
kind = "threshold"
column = "length"
label = "spam"
at_least = 200
"""


def read_rule_file(folder: Path) -> None:
    (path,) = folder.iterdir()
    rules = read_rules(path)
    assert rules_of_text(rules_as_text(rules)) == rules


def read_llm(folder: Path) -> None:
    (path,) = folder.iterdir()
    votes = read_llm_labels(path).votes
    total = votes.groupby(["item", "source"])["probability"].sum() if len(votes) else pd.Series(dtype=float)
    assert np.allclose(total, 1.0)


def read_llm_answer(folder: Path) -> None:
    (path,) = folder.iterdir()
    answer = read_answer(["ham", "spam", "007"], path.read_bytes().decode("utf-8", errors="replace"))
    assert (answer.label is None) == (answer.problem is not None)
    assert answer.label in (None, "ham", "spam", "007")


def read_llm_request(folder: Path) -> None:
    (path,) = folder.iterdir()
    request = read_request(path)
    assert "{content}" in request.template
    assert len(request.classes) >= 1


def linear() -> LinearClassifier:
    rng = np.random.default_rng(0)
    return LinearClassifier(rng.normal(size=(4, 3)), rng.normal(size=3), ["01", "1", "ham"])


@cache
def encoder() -> FittedEncoder:
    return fit_encoder(Content(frame(), None), {"text": ColumnRole.TEXT}, ["tfidf"]).encoder


def model_file(encoded: bool) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        if encoded:
            W = np.random.default_rng(1).normal(size=(encoder().width, 2))
            EncodedClassifier(encoder(), LinearClassifier(W, [0.0, 0.1], ["bad", "good"])).save(path)
        else:
            linear().save(path)
        return {"model.npz": path.read_bytes()}


def read_model(folder: Path) -> None:
    model = load_model(folder / "model.npz")
    classifier = model.classifier if isinstance(model, EncodedClassifier) else model
    X = np.random.default_rng(2).normal(size=(5, classifier.n_features_in_))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # weights near the largest number there is
        P = classifier.predict_proba(X)
    with np.load(folder / "model.npz", allow_pickle=False) as held:
        assert held["coef"].shape == (classifier.n_features_in_, len(classifier.classes_))
    assert P.shape == (5, len(classifier.classes_))
    assert not np.isfinite(P).all() or np.allclose(P.sum(axis=1), 1.0)


def read_encoder(folder: Path) -> None:
    found = FittedEncoder.of_bytes((folder / "encoder.npz").read_bytes())
    assert found.width > 0
    again = FittedEncoder.of_bytes(found.to_bytes())
    assert again.width == found.width


def record_set() -> RecordSet:
    labels = ["good", "bad", "01"]
    records = [
        Record(
            id=f"{k:03d}",
            content={"text": f"text {k}, ü", "likes": str(k)},
            label=labels[k % 3],
            probability=0.5,
            answers={"ann": labels[k % 3], "bob": labels[(k + 1) % 3]},
            votes={"rule 1": labels[k % 2], "rule 2": labels[(k + 1) % 3]},
            predictions=(Prediction("m", labels[k % 3], 0.75),),
            probabilities={"good": 0.5, "bad": 0.25, "01": 0.25},
        )
        for k in range(6)
    ]
    return RecordSet.of(records, labels, texts=["text"])


def exchanged(name: str) -> Files:
    tool = TOOLS[name]
    with tempfile.TemporaryDirectory() as folder:
        ending = tool.endings[0]
        target = Path(folder) / ("saved" if ending == "/" else f"x{ending}")
        tool.write(record_set(), target)
        return {
            str(one.relative_to(folder)): one.read_bytes() for one in sorted(Path(folder).rglob("*")) if one.is_file()
        }


def read_exchange(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        tool = TOOLS[name]
        ending = tool.endings[0]
        path = folder / ("saved" if ending == "/" else f"x{ending}")
        sniff(path)  # never raises for a file that exists
        found = tool.read(path)
        assert all(isinstance(one.id, str) for one in found.records)
        assert all(one.label is None or one.label in found.classes for one in found.records)
        assert all(one.probability is None or math.isfinite(one.probability) for one in found.records)

    return read


@cache
def rounds() -> bytes:
    from labelchef.base.settings import Settings
    from labelchef.loop import steps
    from labelchef.loop.annotators import SimulatedAnnotators
    from labelchef.loop.start import new_session
    from tests.store_support import small_data, truth_of

    settings = Settings(gamma=0.8, l2=0.05, budget=9, batch_size=3, people=1, seed=3)
    data = small_data()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few samples judge
        session = new_session(data, settings)
        session.start()
        ledger = JsonLinesLedger(settings, path=Path(folder) / "rounds.jsonl")
        ledger.history = session.rounds
        people = SimulatedAnnotators(truth_of(60), n_classes=len(data.names), error_rates=(0.1,))
        steps.run(ledger, session, people)
        return ledger.path.read_bytes()


def read_ledger(folder: Path) -> None:
    from labelchef.base.settings import Settings

    path = folder / "rounds.jsonl"
    raw = path.read_bytes()
    found = JsonLinesLedger(Settings(), path=path).resume()
    whole = raw.split(b"\n")[:-1]
    assert len(found) == len(whole)
    for line, record in zip(whole, found, strict=True):
        assert record_as_json(record)["items"] == json.loads(line)["items"]


def intake_json() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.csv"
        path.write_bytes(written("csv"))
        plan = detect([path], Given())
    record = IntakeRecord("maria", 1.0, roles={"items.csv": FileRole.ITEMS}, classes=("good", "bad"), plan=plan)
    return {"intake.json": json.dumps(record.as_json()).encode()}


def read_intake_record(folder: Path) -> None:
    from labelchef.server.intake.folders import record_in

    record = record_in(folder / "intake.json")
    assert IntakeRecord.of_json(json.loads(json.dumps(record.as_json()))) == record


def campaign_files() -> Files:
    return {"items.csv": written("csv"), "votes.jsonl": written("jsonl", "votes")}


def read_campaign(folder: Path) -> None:
    raw = join(detect(sorted(folder.iterdir()), Given()))
    assert len(set(raw.train.ids)) == len(raw.train.ids)


def database() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            frame().to_sql("items", connection, index=False)
        return {"x.db": path.read_bytes()}


def read_database(folder: Path) -> None:
    asked = queries.SqlQuery(f"sqlite:///{folder / 'x.db'}", "select * from items")
    found = formats.read_table(queries.fetch(asked, folder))
    assert set(found.frame.columns) <= {*frame().columns, *found.frame.columns}


def read_matrix(folder: Path) -> None:
    (path,) = folder.iterdir()
    ids = [f"{k:03d}" for k in range(6)]
    votes = read_label_matrix(path, ids, classes=["good", "bad", "01"])
    assert set(votes["label"]) <= {"good", "bad", "01"}


def arrays_of(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def array_of(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def sparse() -> bytes:
    from scipy.sparse import csr_matrix, save_npz

    out = io.BytesIO()
    save_npz(out, csr_matrix(np.array([[1, 0, 2], [0, 3, 0], [0, 0, 1]])))
    return out.getvalue()


def picture(kind: str) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (24, 17, 4 if kind in ("PNG", "WEBP") else 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def arrow_file(stream: bool, packed: bool) -> bytes:
    import pyarrow as pa

    n = 20 * N
    table = pa.table(
        {
            "id": [f"{k:03d}" for k in range(n)],
            "x": [[float(k), 1.0] for k in range(n)],
            "label": pa.array(["good", None] * (n // 2)).dictionary_encode(),
            "n": pa.array([None if k % 3 else k for k in range(n)], pa.int32()),
        }
    )
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if packed else None)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(out, table.schema, options=options) as writer:
        writer.write_table(table)
    return out.getvalue()


def packed_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/items.csv", written("csv"))
        archive.writestr("a/votes.jsonl", written("jsonl", "votes"))
        archive.writestr("a/pictures/x.png", picture("PNG"))
    return out.getvalue()


def vote_lines() -> bytes:
    rows = "".join(f"{k:03d},ann,{('good', 'bad', '', '01')[k % 4]},note {k}\n" for k in range(N))
    return ("item,annotator,label,note\n" + rows).encode()


def llm_lines() -> bytes:
    lines: list[dict[str, Any]] = [
        {"id": f"{k:03d}", "label": ("ham", "spam")[k % 2], "probability": 0.75} for k in range(N)
    ]
    lines += [{"id": f"{k:03d}", "source": "other", "probabilities": {"ham": 0.25, "spam": 0.75}} for k in range(3)]
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def numbers_csv() -> bytes:
    X = np.random.default_rng(0).normal(size=(N, 3)).round(3)
    return pd.DataFrame(X, columns=["a", "b", "c"]).to_csv(index=False).encode()


def numbers_parquet() -> bytes:
    out = io.BytesIO()
    pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)), columns=["a", "b", "c"]).to_parquet(out)
    return out.getvalue()


TEXT = (damaged_bytes, damaged_lines)
LINES = (damaged_bytes, damaged_lines, damaged_json_lines, damaged_json_lines)
JSON = (damaged_bytes, damaged_json, damaged_json)
ARCHIVE = (damaged_bytes, damaged_archive, damaged_archive)
ARRAY = (damaged_bytes, damaged_array)


def one(name: str, make: Callable[[], bytes]) -> Callable[[], Files]:
    return lambda: {name: make()}


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("csv", one("x.csv", lambda: written("csv")), read_csv, TEXT),
        Reader("tsv", one("x.tsv", lambda: written("tsv")), read_csv, TEXT),
        Reader("json", one("x.json", lambda: written("json")), read_any, JSON),
        Reader("jsonl", one("x.jsonl", lambda: written("jsonl")), read_json_lines, LINES),
        Reader("parquet", one("x.parquet", lambda: written("parquet")), read_parquet),
        Reader("feather", one("x.feather", lambda: written("feather")), read_any),
        Reader("arrow file", one("x.arrow", lambda: arrow_file(False, False)), read_any),
        Reader("arrow stream", one("x.arrow", lambda: arrow_file(True, False)), read_any),
        Reader("arrow packed", one("x.arrow", lambda: arrow_file(False, True)), read_any),
        Reader("xlsx", one("x.xlsx", lambda: written("xlsx")), read_excel, ARCHIVE),
        Reader("npy", one("x.npy", lambda: array_of(np.arange(24.0).reshape(N, 2))), read_arrays, ARRAY),
        Reader("npy of texts", one("x.npy", lambda: array_of(np.array(["ham", "spam"] * 6))), read_any, ARRAY),
        Reader(
            "npz", one("x.npz", lambda: arrays_of(ids=np.array(list("abcdef")), X=np.ones((6, 3)))), read_arrays, ARCHIVE
        ),
        Reader("sparse npz", one("x.npz", sparse), read_any, ARCHIVE),
        Reader("zip", one("x.zip", packed_zip), read_archive, ARCHIVE),
        Reader("sqlite", database, read_database),
        Reader("features csv", one("x.csv", numbers_csv), read_numbers, TEXT),
        Reader("features parquet", one("x.parquet", numbers_parquet), read_numbers),
        Reader("features npz", one("x.npz", lambda: arrays_of(X=np.ones((6, 3)))), read_numbers, ARCHIVE),
        Reader("votes csv", one("x.csv", lambda: written("csv", "votes")), read_votes, TEXT),
        Reader("votes jsonl", one("x.jsonl", lambda: written("jsonl", "votes")), read_votes, LINES),
        Reader("votes parquet", one("x.parquet", lambda: written("parquet", "votes")), read_votes),
        Reader(
            "votes npz",
            one("x.npz", lambda: arrays_of(votes=np.zeros((6, 2), int), sources=np.array(["a", "b"]))),
            read_votes,
            ARCHIVE,
        ),
        Reader("imported votes", one("x.csv", vote_lines), read_vote_lines, TEXT),
        Reader("png", one("x.png", lambda: picture("PNG")), read_pictures),
        Reader("jpeg", one("x.jpg", lambda: picture("JPEG")), read_pictures),
        Reader("gif", one("x.gif", lambda: picture("GIF")), read_pictures),
        Reader("webp", one("x.webp", lambda: picture("WEBP")), read_pictures),
        Reader("rules toml", one("rules.toml", RULES.encode), read_rule_file, TEXT),
        Reader(
            "rules json",
            one("rules.json", lambda: rules_as_text(rules_of_text(RULES), json_form=True).encode()),
            read_rule_file,
            JSON,
        ),
        Reader("llm labels", one("x.jsonl", llm_lines), read_llm, LINES),
        Reader("llm answer", one("x.txt", lambda: b'Well: {"label": "spam"} is what I say of 007.'), read_llm_answer, TEXT),
        Reader(
            "llm request",
            one("x.toml", lambda: b'instruction = "Say it"\n[classes]\nspam = "advertises"\nham = "talks"\n'),
            read_llm_request,
            TEXT,
        ),
        Reader(
            "label matrix",
            one("x.npz", lambda: arrays_of(L=np.zeros((6, 2), int), ids=np.array([f"{k:03d}" for k in range(6)]))),
            read_matrix,
            ARCHIVE,
        ),
        Reader("model", lambda: model_file(False), read_model, ARCHIVE),
        Reader("model with encoder", lambda: model_file(True), read_model, ARCHIVE),
        Reader("encoder", lambda: {"encoder.npz": encoder().to_bytes()}, read_encoder, ARCHIVE),
        Reader("ledger", lambda: {"rounds.jsonl": rounds()}, read_ledger, LINES),
        Reader("intake record", intake_json, read_intake_record, JSON),
        Reader("campaign files", campaign_files, read_campaign, TEXT),
        *(Reader(name, partial(exchanged, name), read_exchange(name), TEXT) for name in TOOLS),
    )
}  # fmt: skip
_STRUCTURED: dict[str, Damage] = {".json": damaged_json, ".jsonl": damaged_json_lines, ".npz": damaged_archive}


def damaged(reader: Reader, files: Files, rng: Generator) -> Files:
    """The files with one of them damaged."""
    name = str(rng.choice([one for one in files if one not in reader.fixed]))
    kinds = [*reader.damage]
    if reader.name in TOOLS and Path(name).suffix in _STRUCTURED:
        kinds.append(_STRUCTURED[Path(name).suffix])
    kind = kinds[int(rng.integers(len(kinds)))]
    return {**files, name: kind(files[name], rng)}


# --- a run ---


class HangError(Exception):
    """A case that took too long."""


@contextlib.contextmanager
def alarm(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise HangError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass
class Outcome:
    """What became of the cases of a format."""

    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    other: list[tuple[int, str]] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.read + sum(self.refused.values()) + len(self.other)


def attempt(reader: Reader, files: Files, folder: Path) -> str:
    """'read', or the code of the refusal; every other outcome raises."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    before = resident()
    try:
        with warnings.catch_warnings(), alarm(SECONDS):
            warnings.simplefilter("error")
            reader.read(folder)
    except LabelchefError as error:
        came = error.code
    else:
        came = "read"
    assert came not in ("", "error"), "an error without a code"
    assert resident() - before < MOST_GROWTH, "it took too much memory"
    return came


def case(reader: Reader, files: Files, folder: Path, k: int, seed: int) -> str:
    rng = np.random.default_rng([seed, zlib.crc32(reader.name.encode()), k])
    return attempt(reader, damaged(reader, files, rng), folder)


def run(reader: Reader, cases: range, folder: Path, seed: int = 0) -> Outcome:
    """Damaged files of one format; the first is the one that is right."""
    files, outcome = reader.make(), Outcome()
    assert attempt(reader, files, folder) == "read", f"{reader.name}: the file that is right is refused"
    for k in cases:
        try:
            came = case(reader, files, folder, k, seed)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            outcome.other.append((k, f"{type(error).__name__}: {str(error)[:200]}"))
        else:
            if came == "read":
                outcome.read += 1
            else:
                outcome.refused[came] += 1
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="in all, shared equally by the formats")
    parser.add_argument("--only", nargs="*", help="formats")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this one again")
    given = parser.parse_args()
    chosen = [READERS[name] for name in given.only or READERS]
    each = math.ceil(given.cases / len(chosen))
    totals = Outcome()
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "case"
        if given.case is not None:
            (reader,) = chosen
            try:
                print(case(reader, reader.make(), folder, given.case, given.seed))
            except BaseException:
                traceback.print_exc()
                return 1
            return 0
        print("| format | cases | read | refused, by code | other |\n|---|--:|--:|---|--:|")
        for reader in chosen:
            made = run(reader, range(each), folder, given.seed)
            shown = ", ".join(f"{code} {n}" for code, n in made.refused.most_common())
            print(f"| {reader.name} | {made.cases} | {made.read} | {shown} | {len(made.other)} |", flush=True)
            for k, why in made.other[:5]:
                print(f"    case {k}: {why}", file=sys.stderr, flush=True)
            totals.read += made.read
            totals.refused += made.refused
            totals.other += made.other
    shown = ", ".join(f"{code} {n}" for code, n in totals.refused.most_common())
    print(f"| **all** | {totals.cases} | {totals.read} | {shown} | {len(totals.other)} |")
    return 1 if totals.other else 0


if __name__ == "__main__":
    sys.exit(main())
