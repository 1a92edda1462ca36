"""Any file people have, as a frame whose every cell is text exactly as written, or missing.

    .csv .tsv .txt               delimiter (comma, semicolon, tab, bar) and encoding are found out; .txt may be a text a line
    .json                        a list of records, {column: [values]}, or {column: {row: value}} as pandas writes
    .jsonl .ndjson               a record a line
    .parquet .feather .arrow     by pyarrow (extra parquet)
    .xlsx .xls .xlsm .xlsb .ods  the first sheet, or path.xlsx#Sheet (extra excel)
    .npy .npz                    numbers (n, d) become vectors; an .npz may name its rows by `ids`
    folder of `datasets`         as `save_to_disk` writes; path#split for one split (extra datasets)
    folder of images             id = path below the folder, folder = the class folder; path#split where it has such folders

"007" stays "007", 12345678901234567890 keeps its digits, 7.0 of a typed column is "7", a truth value is "True" or "False", and
nested values are JSON. Missing is missing (None, NaN, <NA>, an absent key, an empty cell of CSV and Excel), never a word for it.
Columns of equally long lists of numbers are vectors (n, d): embeddings. Sizes are checked before anything is read; CSV, JSON
lines and columnar files are read in pieces, with progress.
"""

import codecs
import csv
import io
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError, LabelchefError, TooLargeError
from labelchef.base.intake import Finding, Progress, Severity, no_progress
from labelchef.base.limits import check_memory
from labelchef.base.npy import Header, check_lengths, npz_headers, read_npy, read_npz
from labelchef.data.files.formulas import as_written, is_guarded

CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".tab")
JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
ARROW_SUFFIXES = (".parquet", ".feather", ".arrow")
EXCEL_SUFFIXES = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
ARRAY_SUFFIXES = (".npy", ".npz")
SUFFIXES = CSV_SUFFIXES + JSON_SUFFIXES + ARROW_SUFFIXES + EXCEL_SUFFIXES + ARRAY_SUFFIXES
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")

MOST_BYTES = 8 << 30
"""Of a file that is read in pieces, and of what a compressed file unpacks to."""
MOST_BYTES_AT_ONCE = 1 << 30
"""Of a file that its format lets nobody read in pieces: JSON, Excel."""
MOST_COLUMNS = 20_000
NAMELESS = "row number"
"""The first column of a table, where it has no name: row numbers, as pandas writes them."""
CHUNK = 50_000
"""Rows that are turned into a frame at a time."""
_LONGEST_FIELD = 1 << 26
_LONGEST_LINE = 1 << 26
"""Characters of a line of a text file: what is read at once."""
_CELLS = 1 << 21
"""Cells of a table that are turned into a frame at a time, where rows have many."""
_TEXT_AT_ONCE = 1 << 24
"""Characters of JSON lines that are turned into a frame at a time."""
_CELL_BYTES = 9
"""Of an empty cell in memory: where it begins, and whether it is there."""
_TEXT_CELL = 60
"""Of a short text while a table is made."""
_SPARSEST = 200
"""Cells of a table of records for a value, at most."""
_LONG = 1 << 20
_JSON_BYTES = 120
"""Of a value that is decoded from JSON."""
_NO_LIMIT = 1 << 62
OTHERS = "*"
"""The part of a folder of images that is in none of its splits."""
_SPLITS = (
    "train",
    "training",
    "unlabeled",
    "unlabelled",
    "valid",
    "validation",
    "val",
    "dev",
    "trusted",
    "gold",
    "test",
)

csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))


@dataclass(frozen=True)
class Table:
    """What a file holds."""

    path: str
    frame: pd.DataFrame
    """(n, m) columns of text (dtype str) with NaN where a cell is missing; the index counts from 0."""
    vectors: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Column → (n, d) numbers."""
    whole: bool = True
    """Whether all rows were read."""
    media: Path | None = None
    """The folder that images are relative to, where the file is one of images."""
    findings: tuple[Finding, ...] = ()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Of the frame, then the vectors."""
        return (*map(str, self.frame.columns), *self.vectors)

    def __len__(self) -> int:
        return len(self.frame)


def read_table(path: str | Path, *, rows: int | None = None, progress: Progress = no_progress) -> Table:
    """Read a file or a part of one (path#part); only the first `rows` where this is given.

    What cannot be read raises `InvalidInputError` with the reason; a library that is missing, `MissingExtraError`.
    """
    file, part = locate(path)
    try:
        return _reader(file)(_Source(str(path), file, part, rows, progress))
    except LabelchefError:
        raise
    except Exception as error:  # whatever a reader meets in a file that is not what its name says
        raise unreadable(file, error) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how a library written in Rust fails on a damaged file
            raise
        raise unreadable(file, error) from None


def locate(path: str | Path) -> tuple[Path, str | None]:
    """The file and the part of it: 'book.xlsx#May' is the sheet May, unless a file has just this name."""
    text = str(path)
    if "\0" in text:
        raise unusable("a file's name holds a NUL character; check the path")
    file, part = Path(text), None
    if not file.exists() and "#" in text:
        name, _, part = text.rpartition("#")
        file = Path(name)
    if not file.exists():
        raise unusable(f"there is no file {text}; check the path")
    return file, part or None


def parts(path: str | Path) -> list[str]:
    """What is read of a path, one table each: the splits of a `datasets` folder, the files in a folder, else the path itself."""
    file, part = locate(path)
    if part is not None or not file.is_dir():
        return [str(path)]
    if _is_dataset(file):
        return [str(file)]
    if (file / "dataset_dict.json").is_file():
        return [f"{file}#{name}" for name in _dataset_splits(file)]
    entries = [one for one in sorted(file.iterdir()) if not one.name.startswith((".", "__MACOSX"))]
    found = [str(one) for one in entries if one.is_file() and is_table(one)]
    holding: list[Path] = []
    for folder in (one for one in entries if one.is_dir()):
        if _is_dataset(folder) or (folder / "dataset_dict.json").is_file() or not has_images(folder):
            found += parts(folder)
        else:
            holding.append(folder)
    beside = any(one.is_file() and one.name.lower().endswith(IMAGE_SUFFIXES) for one in entries)
    splits = [one.name for one in holding if one.name.lower() in _SPLITS]
    others = [one.name for one in holding if one.name.lower() not in _SPLITS]
    if splits:
        rest = [OTHERS] if beside or len(others) > 1 else others
        return [*found, *(f"{file}#{name}" for name in (*rest, *splits))]
    if len(others) == 1 and not beside:
        return [*found, *parts(file / others[0])]
    return [*found, *([str(file)] if others or beside else [])]


def is_table(path: Path) -> bool:
    """Whether the ending is one of a format that is read here.

    >>> is_table(Path("a.CSV")), is_table(Path("a.png"))
    (True, False)
    """
    return path.suffix.lower() in SUFFIXES


def has_images(folder: Path) -> bool:
    """Whether there is an image anywhere below the folder."""
    return next(iter(_images(folder)), None) is not None


def unusable(why: str) -> InvalidInputError:
    """The error of files."""
    return InvalidInputError(why, code="file")


def unreadable(path: Path, error: BaseException) -> InvalidInputError:
    """The error for a file that is not what its name says."""
    why = " ".join(str(error).split())[:300] or type(error).__name__
    return unusable(
        f"{path} cannot be read as {path.suffix.lower() or 'a folder'}: {why}. The file may be cut off or of "
        "another format; "
        "write it again"
    )


def check_size(path: Path, most: int, remedy: str) -> int:
    """The size of a file in bytes; refused where it is larger than `most`."""
    size = path.stat().st_size
    if size > most:
        raise unusable(f"{path} has {size / 2**30:.1f} GiB; expected at most {most / 2**30:.1f} GiB. {remedy}")
    return size


def text_of(value: Any) -> str | None:
    """A typed value as a person would write it; None for missing ones.

    >>> text_of(7.0), text_of("007"), text_of(float("nan")), text_of(0.5), text_of(True), text_of({"a": [1]})
    ('7', '007', None, '0.5', 'True', '{"a": [1]}')
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic):
        return text_of(value.item()) if not isinstance(value, np.float32 | np.float16) else _float_text(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(_plain(value), ensure_ascii=False)
    if hasattr(value, "isoformat"):
        text = str(value.isoformat())
        return text.removesuffix("T00:00:00")
    return str(value)


def _float_text(value: Any) -> str | None:
    if math.isnan(value):
        return None
    wide = float(value)  # 1e16 does not fit into half precision
    return str(int(wide)) if wide.is_integer() and abs(wide) < 1e16 else str(value)


def frame_of(columns: Mapping[str, Sequence[str | None]]) -> pd.DataFrame:
    """Texts as a frame of dtype str."""
    return pd.DataFrame({name: pd.array(list(values), dtype="str") for name, values in columns.items()})


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse columns that cannot be told apart."""
    if len(names) > MOST_COLUMNS:
        raise unusable(f"{path} has {len(names)} columns; expected at most {MOST_COLUMNS}. Is the delimiter right?")
    twice = (
        next((name for k, name in enumerate(names) if name in names[:k]), None)
        if len(set(names)) < len(names)
        else None
    )
    if twice is not None:
        raise unusable(f"{path} names the column {twice!r} twice; expected distinct names. Rename one of them")


def read_csv(
    path: Path, *, rows: int | None = None, unguard: bool = False, progress: Progress = no_progress
) -> tuple[pd.DataFrame, tuple[Finding, ...]]:
    """A CSV or TSV as text, cells that are empty missing; with `unguard`, formulas that were made harmless are as before."""
    size = _size_of_text(path)
    if size == 0:
        raise unusable(f"{path} is empty; expected a first line that names the columns")
    encoding, findings = _encoding(path)
    delimiter = _delimiter(path, encoding)
    if path.suffix.lower() == ".txt" and not _is_table(path, encoding, delimiter):
        return _lines(path, encoding, rows), findings
    try:
        frame = _csv_frame(path, encoding, delimiter, csv.QUOTE_MINIMAL, rows, size, progress)
    except csv.Error:
        if delimiter != "\t":
            raise
        frame = _csv_frame(path, encoding, delimiter, csv.QUOTE_NONE, rows, size, progress)  # quotes are text here
    check_names(path, list(frame.columns))
    return (_unguarded(frame) if unguard else frame), findings


def _csv_frame(
    path: Path, encoding: str, delimiter: str, quoting: Any, rows: int | None, size: int, progress: Progress
) -> pd.DataFrame:
    with path.open("rb") as binary, io.TextIOWrapper(binary, encoding=encoding, newline="") as stream:
        lines = csv.reader(_bounded(path, stream), delimiter=delimiter, quoting=quoting, strict=True)
        names = _header(path, next((fields for fields in lines if fields), []))
        expected, batch, chunks, n_rows = len(names), [], [], 0
        at_once = max(1, min(CHUNK, _CELLS // expected))
        for fields in lines:
            if not fields:
                continue
            if len(fields) != expected:
                raise unusable(
                    f"{path}, line {lines.line_num} has {len(fields)} fields; expected {expected}, as the "
                    "first line has. The file may be cut off, or a text with a delimiter needs quotes"
                )
            batch.append(fields)
            n_rows += 1
            if rows is not None and n_rows >= rows:
                break
            if len(batch) >= at_once:
                check_memory(path, n_rows * expected * _CELL_BYTES, f"{n_rows} rows of {expected} columns")
                chunks.append(_text_frame(path, names, batch))
                batch = []
                progress(f"reading {path.name}", min(binary.tell(), size), size)
    if batch or not chunks:
        chunks.append(_text_frame(path, names, batch))
    progress(f"reading {path.name}", size, size)
    return chunks[0] if len(chunks) == 1 else pd.concat(chunks, ignore_index=True)


def _lines(path: Path, encoding: str, rows: int | None) -> pd.DataFrame:
    """A text a line, in the column `text`, or called by the first line where that is one word."""
    with path.open(encoding=encoding) as stream:
        texts = [line.strip() for line in itertools.islice(_bounded(path, stream), None if rows is None else rows + 1)]
    named = len(texts[0].split()) == 1
    kept = [[text] for text in texts[named:] if text]
    return _text_frame(path, [texts[0] if named else "text"], kept[:rows])


def _bounded(path: Path, stream: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a text file, none longer than what is read at once."""
    while line := stream.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise TooLargeError(
                f"{path} has a line of more than {_LONGEST_LINE >> 20} million characters; expected a row a line. Is it a text "
                "file, and is a quote missing?"
            )
        yield line


def _size_of_text(path: Path) -> int:
    """The size of a text file, whose content takes about as much memory."""
    size = check_size(path, MOST_BYTES, "Leave out columns that are not needed, or give it in several files")
    check_memory(path, size, "text")
    return size


def _text_frame(path: Path, names: list[str], batch: list[list[str]]) -> pd.DataFrame:
    columns = list(zip(*batch, strict=True)) if batch else [()] * len(names)
    if any("\0" in value for column in columns for value in column):
        raise unusable(f"{path} holds NUL characters, as binary files do; expected text")
    held = [pd.array([value or None for value in column], dtype="str") for column in columns]
    frame = pd.DataFrame(dict(enumerate(held)))
    frame.columns = pd.Index(names, dtype="str")
    return frame


def _header(path: Path, fields: list[str]) -> list[str]:
    if len(fields) > MOST_COLUMNS:
        raise unusable(f"{path} has {len(fields)} columns; expected at most {MOST_COLUMNS}. Is the delimiter right?")
    names = [name if name.strip() else (f"column {k + 1}" if k else NAMELESS) for k, name in enumerate(fields)]
    if not names:
        raise unusable(f"{path} is empty; expected a first line that names the columns")
    if any("\0" in name for name in names):
        raise unusable(f"{path} holds NUL characters, as binary files do; expected text")
    if all(_is_number(name) for name in names) and not all(n.strip().removeprefix("-").isdecimal() for n in names):
        raise unusable(f"{path} begins with numbers ({names[:3]}…); expected a first line that names the columns")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unguarded(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame before formulas were made harmless, where all cells, or all names of columns, may have been."""
    names = [str(name) for name in frame.columns]
    held = [np.asarray(frame[name], dtype=object) for name in names]
    marked = [any(type(value) is str and value[:1] == "'" for value in values) for values in held]
    if any(marked) and all(is_guarded(value for value in values if type(value) is str) for values in held):
        for name, values, changed in zip(names, held, marked, strict=True):
            if changed:
                frame[name] = pd.array([as_written(v) if type(v) is str else None for v in values], dtype="str")
    if is_guarded(names):
        frame.columns = pd.Index([as_written(name) for name in names], dtype="str")
    return frame


def _encoding(path: Path) -> tuple[str, tuple[Finding, ...]]:
    """UTF-8 or UTF-16, with or without a mark; else Windows-1252 or Latin-1, which the finding says."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig", ()
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", ()
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if len(head) >= 4 and max(even, odd) > 0.3 * len(head) / 2 and min(even, odd) < 0.05 * len(head) / 2:
        return ("utf-16-be" if even > odd else "utf-16-le"), ()
    wrong = _first_wrong_line(path, "utf-8")
    if wrong is None:
        return "utf-8", ()
    encoding = "cp1252" if _first_wrong_line(path, "cp1252") is None else "latin-1"
    name = "Windows-1252" if encoding == "cp1252" else "Latin-1"
    return encoding, (
        Finding(
            "encoding",
            Severity.WARNING,
            f"{path.name} is not UTF-8 (line {wrong}); it is read as {name}. Check that letters with accents "
            "look right in the "
            "preview; if not, save the file as UTF-8",
            1,
            (path.name,),
        ),
    )


def _first_wrong_line(path: Path, encoding: str) -> int | None:
    decoder, line = codecs.getincrementaldecoder(encoding)(), 1
    with path.open("rb") as stream:
        while True:
            piece = stream.read(1 << 20)
            try:
                decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                return line + error.object[: error.start].count(b"\n")
            if not piece:
                return None
            line += piece.count(b"\n")


def _head(path: Path, encoding: str) -> str:
    with path.open(encoding=encoding, newline="", errors="replace") as stream:
        return stream.read(1 << 17)


def _is_table(path: Path, encoding: str, delimiter: str) -> bool:
    """Whether the first records have the same number of fields, two or more, or the first line is of names, a word each."""
    head = _head(path, encoding)
    counts, first = _field_counts(head, delimiter), head.partition("\n")[0].split(delimiter)
    return not counts or (counts[0] > 1 and (len(set(counts)) == 1 or all(len(name.split()) < 2 for name in first)))


def _delimiter(path: Path, encoding: str) -> str:
    """The delimiter under which the first records have the same number of fields, the more the better; comma by default."""
    head = _head(path, encoding)
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"
    best, chosen = (0.0, 0), ","
    for delimiter in ",;\t|":
        counts = _field_counts(head, delimiter)
        same = sum(count == counts[0] for count in counts) / len(counts) if counts else 0.0
        if counts and counts[0] > 1 and (round(same, 2), min(counts[0], 2)) > best:
            best, chosen = (round(same, 2), min(counts[0], 2)), delimiter
    return chosen


def _field_counts(head: str, delimiter: str) -> list[int]:
    """Of the first 100 records; the last one, which may be cut, is left out where there are others."""
    counts: list[int] = []
    try:
        for fields in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter):
            if fields:
                counts.append(len(fields))
            if len(counts) > 100:
                break
    except csv.Error:
        return []
    return counts[:-1] if len(counts) > 1 and len(head) >= 1 << 17 else counts


@dataclass(frozen=True)
class _Source:
    name: str
    path: Path
    part: str | None
    rows: int | None
    progress: Progress


def _reader(path: Path) -> Callable[[_Source], Table]:
    if path.is_dir():
        return _read_dataset if _is_dataset(path) or (path / "dataset_dict.json").is_file() else _read_images
    suffix = path.suffix.lower()
    readers: dict[tuple[str, ...], Callable[[_Source], Table]] = {
        CSV_SUFFIXES: _read_csv,
        JSON_SUFFIXES: _read_json,
        ARROW_SUFFIXES: _read_columnar,
        EXCEL_SUFFIXES: _read_excel,
        ARRAY_SUFFIXES: _read_arrays,
    }
    found = next((reader for endings, reader in readers.items() if suffix in endings), None)
    if found is None:
        raise unusable(
            f"{path} ends in {suffix or 'nothing'!r}; expected a folder or one of {', '.join(SUFFIXES)}, .zip"
        )
    return found


def _read_csv(source: _Source) -> Table:
    frame, findings = read_csv(source.path, rows=source.rows, unguard=True, progress=source.progress)
    return _finished(source, frame, findings=findings)


def _finished(source: _Source, frame: pd.DataFrame, **others: Any) -> Table:
    whole = source.rows is None or len(frame) < source.rows
    return Table(source.name, frame if whole else frame.iloc[: source.rows], whole=whole, **others)


class _Number(str):
    """A number of a JSON file as it is written there."""

    __slots__ = ()


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"a record has {next(n for n in names if names.count(n) > 1)!r} twice")
    return record


_WHOLE = re.compile(r"(-?\d{1,16})\.0+")


def _number(text: str) -> _Number:
    """7.0 is 7, as in every other format with types; all others as they are written."""
    whole = _WHOLE.fullmatch(text)
    return _Number(whole[1] if whole else text)


def _decode(text: str, verbatim: bool = True) -> Any:
    if not verbatim:
        return json.loads(text, object_pairs_hook=_distinct)
    return json.loads(
        text, parse_int=_Number, parse_float=_number, parse_constant=lambda _: None, object_pairs_hook=_distinct
    )


def _plain(value: Any) -> Any:
    """Nested values for `json.dumps`: numbers as numbers, what JSON has no form for as text."""
    if isinstance(value, _Number):
        return float(value) if any(sign in value for sign in ".eE") else int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return text_of(value)


def json_records(
    path: Path, *, rows: int | None = None, verbatim: bool = True, progress: Progress = no_progress
) -> Iterator[dict[str, Any]]:
    """The records of a JSON-lines file, numbers as they are written there if `verbatim`; other lines are refused."""
    size = _size_of_text(path)
    encoding, _ = _encoding(path)
    n_rows = 0
    with path.open("rb") as binary, io.TextIOWrapper(binary, encoding=encoding) as stream:
        for number, line in enumerate(_bounded(path, stream), 1):
            if not line.strip():
                continue
            if rows is not None and n_rows >= rows:
                return
            if len(line) > _LONG:
                check_memory(f"{path}, line {number}", _JSON_BYTES * sum(map(line.count, ",{[:")), "nested JSON")
            try:
                record = _decode(line, verbatim)
            except (ValueError, RecursionError) as error:
                raise unusable(f"{path}, line {number} is no JSON: {error}. The file may be cut off") from None
            if not isinstance(record, dict):
                raise unusable(f'{path}, line {number} is no record; expected {{"column": value, …}} on each line')
            n_rows += 1
            if n_rows % CHUNK == 0:
                progress(f"reading {path.name}", min(binary.tell(), size), size)
            yield record


def _read_json(source: _Source) -> Table:
    path = source.path
    if path.suffix.lower() != ".json":
        findings = _encoding(path)[1]
        frame, vectors = _records_frame(path, json_records(path, rows=source.rows, progress=source.progress))
        return _finished(source, frame, vectors=vectors, findings=findings)
    check_size(path, MOST_BYTES_AT_ONCE, "Write it as .jsonl, a record a line, which is read in pieces")
    check_memory(path, _json_bytes(path), "nested JSON")
    encoding, findings = _encoding(path)
    text = path.read_text(encoding=encoding)
    try:
        data = _decode(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith("{") and "Extra data" in str(error):  # JSON lines by another name
            frame, vectors = _records_frame(path, json_records(path, rows=source.rows, progress=source.progress))
            return _finished(source, frame, vectors=vectors, findings=findings)
        raise unusable(f"{path} is no JSON: {error}. The file may be cut off; write it again") from None
    frame, vectors = _records_frame(path, _as_records(path, data))
    if source.rows is not None:
        vectors = {name: values[: source.rows] for name, values in vectors.items()}
    return _finished(source, frame, vectors=vectors, findings=findings)


def _json_bytes(path: Path) -> int:
    """What a JSON file takes in memory once it is decoded, by the values in it: each ends before a comma or a bracket."""
    values = 0
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            values += sum(piece.count(sign) for sign in (b",", b"{", b"[", b":"))
    return path.stat().st_size + _JSON_BYTES * values


def _as_records(path: Path, data: Any) -> list[dict[str, Any]]:
    expected = 'expected a list of records [{"column": value, …}, …] or columns {"column": [values]}'
    if isinstance(data, list):
        if not all(isinstance(record, dict) for record in data):
            raise unusable(f"{path} holds a list with entries that are no records; {expected}")
        return data
    if not isinstance(data, dict) or not data:
        raise unusable(f"{path} holds no table; {expected}")
    columns = list(data.values())
    if len(columns) == 1 and isinstance(columns[0], list) and all(isinstance(one, dict) for one in columns[0]):
        return list(columns[0])  # {"data": [records]}
    if all(isinstance(column, list) for column in columns):
        if len({len(column) for column in columns}) > 1:
            raise unusable(f"{path} has columns of different lengths; {expected}")
        return [dict(zip(data, values, strict=True)) for values in zip(*columns, strict=True)]
    if all(isinstance(column, dict) for column in columns):
        keys = list(columns[0])
        if any(list(column) != keys for column in columns):
            raise unusable(f"{path} has columns with different rows; {expected}")
        return [{name: column[key] for name, column in data.items()} for key in keys]
    raise unusable(f"{path} holds no table; {expected}")


def _records_frame(path: Path, records: Iterable[dict[str, Any]]) -> tuple[pd.DataFrame, dict[str, NDArray[Any]]]:
    names: dict[str, None] = {}
    chunks: list[pd.DataFrame] = []
    lists: dict[str, list[NDArray[Any]]] = {}
    batch: list[dict[str, Any]] = []
    n_rows = n_values = in_batch = 0

    def settle() -> None:
        for record in batch:
            names.update(dict.fromkeys(record))
        if len(names) > MOST_COLUMNS:
            raise unusable(f"{path} has more than {MOST_COLUMNS} columns; expected records with the same few names")
        cells = n_rows * len(names)
        if cells > _CELLS and cells > _SPARSEST * n_values:
            raise TooLargeError(
                f"{path} has {len(names)} different names in {n_rows} records with {n_values} values; as a table it would be "
                "empty almost everywhere. Expected records with the same few names"
            )
        check_memory(path, cells * _CELL_BYTES, f"{n_rows} records with {len(names)} names")
        chunks.append(_settle(batch, names, lists, n_rows - len(batch)))
        batch.clear()

    for record in records:
        batch.append(record)
        n_rows += 1
        n_values += len(record)
        in_batch += _weight(record)
        if len(batch) >= CHUNK or in_batch >= _TEXT_AT_ONCE:
            settle()
            in_batch = 0
    if batch or not chunks:
        settle()
    frame = pd.concat(chunks, ignore_index=True) if len(chunks) > 1 else chunks[0]
    vectors = {name: np.concatenate(held) for name, held in lists.items()}
    return frame.drop(columns=list(vectors)), vectors


def _weight(record: Mapping[str, Any]) -> int:
    """About as many characters as it has, and no fewer than its values."""
    return sum(len(value) if isinstance(value, str | list | dict) else 1 for value in record.values()) + len(record)


def _settle(
    batch: list[dict[str, Any]], names: Mapping[str, None], lists: dict[str, list[NDArray[Any]]], before: int
) -> pd.DataFrame:
    """Text columns of some records; columns that have held only equally long lists of numbers are kept in `lists` too."""
    columns: dict[str, list[str | None]] = {}
    for name in names:
        values = [record.get(name) for record in batch]
        columns[name] = [text_of(value) for value in values]
        is_list = all(isinstance(value, list) for value in values) and (name in lists or before == 0)
        held = as_vectors(values) if is_list else None
        if held is not None and all(held.shape[1] == one.shape[1] for one in lists.get(name, ())):
            lists.setdefault(name, []).append(held)
        else:
            lists.pop(name, None)
    return frame_of(columns) if columns else pd.DataFrame(index=range(len(batch)))


def as_vectors(values: Sequence[Any]) -> NDArray[Any] | None:
    """(n, d) of n lists of d ≥ 2 numbers each; None if they are anything else."""
    if not values or any(value is None or len(value) != len(values[0]) for value in values) or len(values[0]) < 2:
        return None
    if not all(
        isinstance(one, _Number | int | float | np.number) and not isinstance(one, bool) for v in values for one in v
    ):
        return None
    return np.asarray([[float(one) for one in value] for value in values], dtype=np.float32)


def _read_columnar(source: _Source) -> Table:
    from labelchef.data.files.columnar import read_arrow_file

    frame, vectors, findings = read_arrow_file(source.path, source.rows, source.progress)
    return _finished(source, frame, vectors=vectors, findings=findings)


def _is_dataset(folder: Path) -> bool:
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def _dataset_splits(folder: Path) -> list[str]:
    try:
        names = json.loads((folder / "dataset_dict.json").read_text())["splits"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(folder / "dataset_dict.json", error) from None
    if not isinstance(names, list) or not all(isinstance(name, str) and (folder / name).is_dir() for name in names):
        raise unusable(f"{folder}/dataset_dict.json names splits that are not there; save the data set again")
    return names


def _read_dataset(source: _Source) -> Table:
    from labelchef.data.files.columnar import read_dataset

    folder = source.path
    if not _is_dataset(folder):
        splits = _dataset_splits(folder)
        if source.part not in splits:
            raise unusable(
                f"{source.name}: the data set has the splits {splits}; name one of them as {folder}#{splits[0]}"
            )
        folder = folder / str(source.part)
    frame, vectors, findings = read_dataset(folder, source.rows, source.progress)
    return _finished(source, frame, vectors=vectors, findings=findings)


def _images(folder: Path, *, others: bool = False) -> Iterator[Path]:
    """Images below a folder, by name; links are not followed, hidden files are left out. `others`: not those of its splits."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        if others and root == str(folder):
            folders[:] = [name for name in folders if name.lower() not in _SPLITS]
        for name in sorted(files):
            if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."):
                yield Path(root) / name


def _read_images(source: _Source) -> Table:
    root = source.path
    below = root / source.part if source.part and source.part != OTHERS else root
    if not below.is_dir():
        raise unusable(f"there is no folder {below}; check the path")
    found = []
    for path in _images(below, others=source.part == OTHERS):
        found.append(path)
        if source.rows is not None and len(found) >= source.rows:
            break
    if not found:
        raise unusable(f"{below} holds no image ({', '.join(IMAGE_SUFFIXES)}) and no table ({', '.join(SUFFIXES)})")
    names = [path.relative_to(root).as_posix() for path in found]
    columns: dict[str, list[str | None]] = {"id": list(names), "image": list(names)}
    folders: list[str | None] = [path.parent.relative_to(below).as_posix() for path in found]
    if any(folder != "." for folder in folders):
        columns["folder"] = [None if folder == "." else folder for folder in folders]
    return _finished(source, frame_of(columns), media=root)


def _read_excel(source: _Source) -> Table:
    from labelchef.data.files.spreadsheets import read_sheet

    frame = read_sheet(source.path, source.part, source.rows)
    return _finished(source, frame)


def _read_arrays(source: _Source) -> Table:
    path = source.path
    check_size(path, MOST_BYTES, "Give half precision, or fewer columns")
    if path.suffix.lower() == ".npy":
        return _arrays_table(source, {"values": read_npy(path)})
    headers = npz_headers(path)
    if {"format", "data"} <= set(headers):
        matrix = read_sparse(path)
        check_memory(path, math.prod(matrix.shape) * 8, f"a sparse matrix {matrix.shape}, which is a table here")
        stored = matrix.toarray()  # SciPy's files of votes hold class id + 1, and nothing where there is no vote
        return _arrays_table(source, {"votes": stored - 1 if stored.dtype.kind in "iu" else stored})
    _check_arrays(source, {name: header for name, header in headers.items() if name not in _COLUMN_NAMES})
    return _arrays_table(source, read_npz(path))


def read_sparse(path: Path) -> Any:
    """A matrix that `scipy.sparse.save_npz` wrote, with indices that are inside of it."""
    from scipy.sparse import load_npz

    npz_headers(path)  # sizes and types, before SciPy reads anything
    matrix = load_npz(path)
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)  # a file may hold anything; what is read later relies on the format
    elif not hasattr(matrix, "row"):
        raise unusable(f"{path} holds a sparse matrix of the format {matrix.format!r}; expected csr, csc or coo")
    return matrix


_COLUMN_NAMES = ("names", "sources", "columns", "lf_names")


def _arrays_table(source: _Source, held: Mapping[str, NDArray[Any]]) -> Table:
    """Arrays with a row each: (n, d) are vectors, (n,) are columns; one of names may name the columns of an array of votes."""
    tall = {name: values for name, values in held.items() if name not in _COLUMN_NAMES}
    lengths = _check_arrays(source, tall)
    cut = slice(source.rows)
    labels = next((held[name] for name in _COLUMN_NAMES if name in held), None)
    columns: dict[str, list[str | None]] = {}
    vectors: dict[str, NDArray[Any]] = {}
    for name, values in tall.items():
        if values.ndim == 1 or values.dtype.kind in "US":
            columns |= dict(_array_columns(name, values[cut], None))
        elif values.dtype.kind in "iub" and labels is not None and len(labels) == values.shape[1]:
            columns |= dict(_array_columns(name, values[cut], labels))
        else:
            vectors[name] = values[cut]
    check_names(source.path, [*columns, *vectors])
    n_rows = min(next(iter(lengths.values())), source.rows or _NO_LIMIT)
    frame = frame_of(columns) if columns else pd.DataFrame(index=range(n_rows))
    return _finished(source, frame, vectors=vectors)


def _check_arrays(source: _Source, tall: Mapping[str, Header | NDArray[Any]]) -> dict[str, int]:
    """How long the arrays are, of arrays or of their headers; refused if they are no columns of one table."""
    if not tall:
        raise unusable(f"{source.path} holds no array of values; expected numbers (rows, columns)")
    for name, values in tall.items():
        if len(values.shape) not in (1, 2) or values.dtype.kind not in "biufUS":
            raise unusable(
                f"{source.path}: array {name!r} has shape {values.shape} and type {values.dtype}; expected "
                "numbers (rows, columns) or one value a row"
            )
        if (
            len(values.shape) == 1 or values.dtype.kind in "US"
        ) and source.rows is None:  # these become texts, cell by cell
            cells = math.prod(values.shape)
            check_memory(source.path, cells * _TEXT_CELL, f"{cells} values to be read as text")
    lengths = {name: values.shape[0] for name, values in tall.items()}
    check_lengths(str(source.path), lengths)
    return lengths


def _array_columns(
    name: str, values: NDArray[Any], labels: NDArray[Any] | None
) -> Iterator[tuple[str, list[str | None]]]:
    if values.ndim == 1:
        yield ("label" if name == "values" else name), [text_of(one) for one in _decoded(values).tolist()]
        return
    titles = [f"{name}_{j}" for j in range(values.shape[1])] if labels is None else _told_apart(labels)
    for title, column in zip(titles, _decoded(values).T, strict=True):
        yield title, [text_of(one) for one in column.tolist()]


def _told_apart(names: NDArray[Any]) -> list[str]:
    """Names of columns; the second of a name gets '(2)' behind it."""
    found: dict[str, None] = {}
    for name in map(str, _decoded(names).tolist()):
        title, k = name, 1
        while title in found:
            title, k = f"{name} ({k + 1})", k + 1
        found[title] = None
    return list(found)


def _decoded(values: NDArray[Any]) -> NDArray[Any]:
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
