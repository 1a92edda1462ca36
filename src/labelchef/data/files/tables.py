"""Reading features, labels and votes from files. What cannot be read is refused with the file's name.

Files know no types that last: labels and class names are compared as text.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from labelchef.base.errors import InvalidInputError, LabelchefError, MissingExtraError
from labelchef.base.files import whole_file
from labelchef.base.npy import check_lengths, npy_header, npz_headers, read_npy, read_npz
from labelchef.data.files import formats
from labelchef.data.files.columnar import MixedTypesError, look_at_parquet, read_typed, write_parquet
from labelchef.data.files.formats import text_of
from labelchef.data.files.formulas import as_written, harmless
from labelchef.data.files.spreadsheets import write_sheet

FEATURE_SUFFIXES = (".npy", ".npz", ".parquet", ".csv")
ITEM_SUFFIXES = (".csv", ".jsonl", ".parquet")
TABLE_SUFFIXES = (".npy", ".npz", ".parquet", ".csv", ".jsonl")
IMPORT_SUFFIXES = formats.CSV_SUFFIXES + formats.JSON_SUFFIXES + formats.ARROW_SUFFIXES + formats.EXCEL_SUFFIXES
"""Of tables of votes that are imported: whatever is exported comes back."""
VOTE_SUFFIXES = (".csv", ".parquet", ".npy", ".npz", ".jsonl")

_NO_LABEL = ("", "-1")


def read_features(path: Path, what: str) -> Any:
    """An array (memory-mapped for .npy) or a frame of numbers."""
    return _read(path, what, FEATURE_SUFFIXES)


def read_weak_labels(path: Path) -> pd.DataFrame:
    """Probabilities (n, C); headers name the classes, as text; an array without headers has classes '0', '1', …"""
    data = _read(path, "weak labels", TABLE_SUFFIXES)
    if not isinstance(data, pd.DataFrame):
        if data.ndim != 2:
            raise _unusable(f"weak labels: {path} has shape {data.shape}; expected (samples, classes)")
        data = pd.DataFrame(np.asarray(data))
    data.columns = pd.Index([str(column) for column in data.columns])
    if "-1" in data.columns:
        raise _unusable(f"weak labels: {path} has a class named -1, which stands for 'no label'; rename it")
    return data


def read_labels(path: Path, what: str) -> list[str | None]:
    """One label a sample as text, None for none (-1 or empty); from a flat array, or a table's column 'label'."""
    data = _read(path, what, TABLE_SUFFIXES, text=True)
    if isinstance(data, pd.DataFrame):
        if "label" not in data.columns:
            raise _unusable(
                f"{what}: {path} has the columns {list(data.columns)[:10]}; expected one named 'label' "
                "(the first line of a CSV names the columns)"
            )
        return _answers(data["label"])
    if data.ndim == 2 and data.shape[1] == 1:
        data = data[:, 0]
    if data.ndim != 1:
        raise _unusable(f"{what}: {path} has shape {data.shape}; expected one label a sample")
    return _answers(data)


def read_source_votes(path: Path, what: str) -> Any:
    """Votes of sources in a form that `labelchef.believe.vote_forms` reads, with labels as text and None for none (-1 or empty).

    A table is long if it has the columns item, source and label, else wide. An .npz holds a SciPy sparse matrix, or an array
    `votes` (samples, sources) or `soft` (samples, sources, classes), and may hold the names of the sources as `sources`.
    """
    data = _read(path, what, VOTE_SUFFIXES, archive=_read_votes_archive, csv_text=True)
    try:
        if isinstance(data, pd.DataFrame):
            return pd.DataFrame({str(name): _as_answers(data[name].to_numpy()) for name in data.columns})
        if isinstance(data, dict):
            return {name: _as_answers(column) for name, column in data.items()}
        return _as_answers(data)
    except TypeError:  # lists and records cannot be compared
        raise _unusable(
            f"{what}: {path} holds lists or records; expected a class a source and sample, or nothing for no vote"
        ) from None


def _as_answers(values: Any) -> Any:
    """`_answers` of texts and objects in any shape; numbers stay what they are."""
    if getattr(values, "dtype", np.dtype(float)).kind not in "USO":
        return values
    codes, found = pd.factorize(np.asarray(values, dtype=object).ravel())
    texts = np.array([*_answers(found), None], dtype=object)  # the last one is for code −1, which missing values have
    return texts[codes].reshape(np.shape(values))


def _read_votes_archive(path: Path) -> Any:
    headers = npz_headers(path)
    if "format" in headers:
        return formats.read_sparse(path)
    tall = {name: one.shape[0] for name, one in headers.items() if name != "sources" and one.shape}
    check_lengths(str(path), tall)
    held = read_npz(path)
    names = held.pop("sources", None)
    for name in _ID_ARRAYS:
        held.pop(name, None)
    if len(held) != 1:
        raise _unusable(
            f"{path} holds the arrays {list(held)}; expected one named 'votes' or 'soft' and, optionally, 'sources', or a "
            "matrix written by scipy.sparse.save_npz"
        )
    (data,) = held.values()
    if names is None:
        return data
    if names.ndim != 1 or data.ndim < 2 or len(names) != data.shape[1]:
        raise _unusable(f"{path} names {names.size} sources for an array of shape {data.shape}; expected one a column")
    if len(set(names.tolist())) < len(names):
        raise _unusable(f"{path} names a source twice; expected distinct names")
    return {str(name): data[:, j] for j, name in enumerate(names.tolist())}


def _read_vote_table(path: Path, code: str, *, alone: str | None = None) -> pd.DataFrame:
    """The table; with `alone`, labels without an annotator are of the person called so, and `id` may stand for `item`."""
    data: pd.DataFrame = _read(path, "votes", IMPORT_SUFFIXES, text=True)
    if alone is not None:
        data = data if "item" in data.columns else data.rename(columns={"id": "item"})
        data = data if {"annotator", "source"} & set(data.columns) else data.assign(annotator=alone)
    if not {"item", "annotator", "label"} <= set(data.columns):
        hint = ". Votes of sources are source votes, a file of its own" if "source" in data.columns else ""
        raise InvalidInputError(
            f"votes: {path} has columns {list(data.columns)[:10]}; expected item, annotator and label{hint}", code=code
        )
    return data


def read_votes(path: Path) -> pd.DataFrame:
    """Votes as a table with the columns item, annotator and label; of an annotator's votes on an item the last counts."""
    data = _read_vote_table(path, "file")
    items = pd.to_numeric(data["item"], errors="coerce")
    if items.isna().any() or (items != items.round()).any() or (items < 0).any():
        raise _unusable(
            f"votes: {path} has items that are no row numbers; expected rows of the training set, counted from 0"
        )
    votes = pd.DataFrame(
        {
            "item": items.astype(np.int64),
            "annotator": data["annotator"].astype(str),
            "label": pd.Series(_answers(data["label"]), index=data.index, dtype=object),
        }
    )
    return votes.drop_duplicates(["item", "annotator"], keep="last").reset_index(drop=True)


ALONE = "import"
"""The person who gave the labels of a table that names none."""


@dataclass(frozen=True)
class VoteLine:
    """A vote as a file has it; `number` is its line there."""

    number: int
    item: str
    annotator: str
    label: str | None
    note: str | None


def read_vote_lines(path: Path) -> list[VoteLine]:
    """Votes with items by their keys, each with its line; label None means ambiguous."""
    data = _read_vote_table(path, "votes", alone=ALONE)
    suffix = path.suffix.lower()
    if suffix in formats.CSV_SUFFIXES:
        data = data.map(as_written)
    first = 2 if suffix in formats.CSV_SUFFIXES + formats.EXCEL_SUFFIXES else 1
    texts = data.reindex(columns=["item", "annotator", "label", "note"]).map(_text).to_numpy()
    return [
        VoteLine(first + k, item, annotator, None if label in _NO_LABEL else label, note or None)
        for k, (item, annotator, label, note) in enumerate(texts)
    ]


def read_items(path: Path, what: str) -> pd.DataFrame:
    """What people see of each sample: columns id, text and image where there are such, every other one a field."""
    data: pd.DataFrame = _read(path, what, ITEM_SUFFIXES, csv_text=True)
    data.columns = pd.Index([str(column) for column in data.columns])
    if data.columns.has_duplicates:
        raise _unusable(f"{what}: {path} names a column twice; expected distinct names")
    if "id" in data.columns:
        data["id"] = pd.Series([text_of(value) or "" for value in data["id"].tolist()], dtype=object)
    return data


FORMATS = ("csv", "tsv", "json", "jsonl", "parquet", "feather", "xlsx")
"""Of the tables that are written; `labelchef.data.files.formats` reads all of them back."""


def check_format(path: Path, format: str | None = None) -> str:
    """The format that a table is written in, by its name or the file's ending; said early, before any work is done."""
    kind = format or path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidInputError(f"format is {kind!r}; expected one of: {', '.join(FORMATS)}", code="format")
    return kind


def write_table(frame: pd.DataFrame, path: Path, format: str | None = None) -> Path:
    """Write a table whole, in the format of the file's ending or the one named; for CSV see `csv_text`.

    What is read back by `formats.read_table` is the same, cell by cell, as text; only CSV, TSV and Excel cannot tell an empty
    text from a missing one.
    """
    kind = check_format(path, format)
    writers: dict[str, Callable[[pd.DataFrame, IO[bytes]], object]] = {
        "csv": lambda table, stream: stream.write(csv_text(table).encode()),
        "tsv": lambda table, stream: stream.write(csv_text(table, "\t").encode()),
        "json": lambda table, stream: stream.writelines(_json_list(iter([table]))),
        "jsonl": lambda table, stream: stream.writelines(line + b"\n" for line in _json_lines(table)),
        "parquet": lambda table, stream: table.to_parquet(stream, index=False),
        "feather": lambda table, stream: table.reset_index(drop=True).to_feather(stream),
        "xlsx": write_sheet,
    }
    formats.check_names(path, [str(name) for name in frame.columns])
    try:
        with whole_file(path) as stream:
            writers[kind](frame, stream)
    except MissingExtraError:
        raise
    except ImportError:
        raise MissingExtraError(f"{kind} needs pyarrow; pip install 'labelchef[parquet]'", code="parquet") from None
    return path


def write_frames(frames: Callable[[], Iterator[pd.DataFrame]], path: Path, format: str | None = None) -> Path:
    """`write_table` of pieces with the same columns, which `frames` gives, all over again when it is called again.

    Of CSV, TSV, JSON and Parquet only one piece is in memory, but for a Parquet file whose columns have other types in a later
    piece than in the first: that one and other formats are made whole.
    """
    kind = check_format(path, format)
    writers: dict[str, Callable[[Iterator[pd.DataFrame], IO[bytes]], object]] = {
        "csv": lambda parts, stream: stream.writelines(_csv_parts(parts, ",")),
        "tsv": lambda parts, stream: stream.writelines(_csv_parts(parts, "\t")),
        "json": lambda parts, stream: stream.writelines(_json_list(parts)),
        "jsonl": lambda parts, stream: stream.writelines(line + b"\n" for part in parts for line in _json_lines(part)),
        "parquet": write_parquet,
    }
    first = next(frames(), None)
    if kind not in writers or first is None:
        return write_table(pd.concat(frames(), ignore_index=True), path, kind)
    formats.check_names(path, [str(name) for name in first.columns])
    try:
        with whole_file(path) as stream:
            writers[kind](frames(), stream)
    except MixedTypesError:
        return write_table(pd.concat(frames(), ignore_index=True), path, kind)
    return path


def _csv_parts(parts: Iterator[pd.DataFrame], delimiter: str) -> Iterator[bytes]:
    for k, part in enumerate(parts):
        yield csv_text(part, delimiter, header=k == 0).encode()


def _json_lines(frame: pd.DataFrame) -> Iterator[bytes]:
    """Records with numbers and truth values as they are, everything else as text, missing values as null."""
    names = [str(name) for name in frame.columns]
    for line in frame.itertuples(index=False, name=None):
        record = dict(zip(names, map(_json_value, line), strict=True))
        yield json.dumps(record, ensure_ascii=False, allow_nan=False).encode()


def _json_list(parts: Iterator[pd.DataFrame]) -> Iterator[bytes]:
    yield b"["
    for k, line in enumerate(line for part in parts for line in _json_lines(part)):
        yield (b",\n" if k else b"\n") + line
    yield b"\n]\n"


def _json_value(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str | bool | int) or (isinstance(plain, float) and np.isfinite(plain)):
        return plain
    if isinstance(plain, list | tuple | dict | np.ndarray):
        return json.loads(text_of(plain) or "null")
    return None if isinstance(plain, float) else text_of(plain)


def has_ids(path: Path) -> bool:
    """Whether a file names its rows: by a column 'id', or the array `ids` of an .npz."""
    if path.suffix.lower() == ".npz":
        return any(one in npz_headers(path) for one in _ID_ARRAYS)
    return path.suffix.lower() in ITEM_SUFFIXES and "id" in formats.read_table(path, rows=1).frame.columns


def read_ids(path: Path) -> list[str] | None:
    """The ids of a file's rows as text: its column 'id', or the array `ids` of an .npz; None if it has neither."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        name = next((one for one in _ID_ARRAYS if one in npz_headers(path)), None)
        if name is None:
            return None
        values = read_npz(path, names=[name])[name].ravel()
        return [text_of(value) or "" for value in values.tolist()]
    if suffix not in ITEM_SUFFIXES or "id" not in formats.read_table(path, rows=1).frame.columns:
        return None
    return [str(key) for key in formats.read_table(path).frame["id"].fillna("").tolist()]


def _unusable(why: str) -> InvalidInputError:
    return InvalidInputError(why, code="file")


def _answers(values: Any) -> list[str | None]:
    """Labels as text, whole numbers without a decimal point; -1, empty and missing mean none."""
    return [None if text in _NO_LABEL else text for text in map(_text, values.tolist())]


def _text(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return "" if value is None or value != value else str(int(value) if whole else value)


def _read(
    path: Path,
    what: str,
    suffixes: tuple[str, ...],
    *,
    text: bool = False,
    csv_text: bool = False,
    archive: Callable[[Path], Any] | None = None,
) -> Any:
    """An array or a frame: with `text`, every cell of a table as text, "" where it is missing; with `csv_text`, those of a CSV,
    which has no types. Otherwise numbers are numbers."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise _unusable(f"{what}: {path} ends in {suffix or 'nothing'!r}; expected one of {', '.join(suffixes)}")
    if not path.is_file():
        raise _unusable(f"{what}: there is no file {path}; check the path")
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": read_npy,
        ".npz": archive or _read_npz,
        **dict.fromkeys(formats.CSV_SUFFIXES, lambda p: _read_csv(p, text or csv_text)),
        **dict.fromkeys((".json", ".ndjson", ".feather", ".arrow", *formats.EXCEL_SUFFIXES), _read_text),
        ".parquet": _read_text if text else read_typed,
        ".jsonl": _read_text if text else _read_json_lines,
    }
    try:
        return readers[suffix](path)
    except LabelchefError:
        raise
    except Exception as error:  # whatever a reader meets in a file that is not what its name says
        raise _unusable(
            f"{what}: {path} cannot be read as {suffix}: {error}. The file may be cut off or of another format; "
            "write it again"
        ) from None


def _read_csv(path: Path, as_text: bool) -> pd.DataFrame:
    """A CSV; as text, 'NA', 'True' and '1.0' stay what they are."""
    data = formats.read_csv(path)[0]
    if str(data.columns[0]) == formats.NAMELESS:
        raise _unusable(
            f"{path} has a first column without a name, as row numbers have; write it without them (index=False)"
        )
    if as_text:
        return data.fillna("")
    return pd.DataFrame({name: _numbers(data[name]) for name in data.columns})


_MISSING = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
"""Words for a missing number, as pandas and R write them."""


def _numbers(column: "pd.Series[Any]") -> Any:
    """A column of numbers or truth values as such, every other one as it is."""
    held = column.where(~column.isin(_MISSING))
    try:
        return pd.to_numeric(held)
    except (ValueError, TypeError):
        truths = held.str.lower().map({"true": True, "false": False})
        return truths.astype(bool) if truths.notna().all() else column


def _read_text(path: Path) -> pd.DataFrame:
    return formats.read_table(path).frame.fillna("")


def _read_json_lines(path: Path) -> pd.DataFrame:
    """Records as they are written: "007" is text, 7 is a whole number of any size; absent values are missing."""
    names: dict[str, None] = {}
    records = []
    for record in formats.json_records(path, verbatim=False):
        names.update(dict.fromkeys(record))
        records.append(record)
    columns = {name: [record.get(name) for record in records] for name in names}
    return pd.DataFrame({name: pd.Series(values, dtype=object).infer_objects() for name, values in columns.items()})


_QUOTED = re.compile(r'[,;|\t"\r\n]|^\s|\s$')
"""What a field of a CSV has that is put into quotes: every delimiter that a reader may try, quotes, ends of lines."""


def csv_text(frame: pd.DataFrame, delimiter: str = ",", *, header: bool = True) -> str:
    """A table as CSV; texts that a spreadsheet would take for a formula are made harmless, in the header too.

    >>> csv_text(pd.DataFrame({"item": ["=1+1", "plain"], "@n": [-5, 2]}))
    "item,'@n\\n'=1+1,-5\\nplain,2\\n"
    """
    names = [[harmless(str(name)) for name in frame.columns]] if header else []
    body = ([_csv_cell(value) for value in line] for line in frame.itertuples(index=False, name=None))
    return "".join(csv_line(line, delimiter) for lines in (names, body) for line in lines)


def csv_line(cells: Sequence[str], delimiter: str = ",") -> str:
    """A line of CSV; Python's own writer leaves a lone carriage return without quotes, which ends the line for readers.

    >>> csv_line(["a", "b\\rc", ""])
    'a,"b\\rc",\\n'
    """
    alone = len(cells) == 1  # an empty line would be none
    quoted = [
        '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) or (alone and not text) else text for text in cells
    ]
    return delimiter.join(quoted) + "\n"


def _csv_cell(value: Any) -> str:
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, float):  # 1.0 stays a number with a point
        return "" if value != value else str(value)
    text = text_of(value)
    return "" if text is None else text if isinstance(value, bool | int | np.generic) else harmless(text)


_ID_ARRAYS = ("ids", "id")


def _read_npz(path: Path) -> Any:
    headers = npz_headers(path)
    names = [name for name in headers if name not in _ID_ARRAYS] or list(headers)
    if len(names) != 1:
        raise _unusable(
            f"{path} holds the arrays {list(headers)}; expected one and, optionally, 'ids'. Save the wanted one on its own"
        )
    check_lengths(str(path), {name: one.shape[0] for name, one in headers.items() if one.shape})
    return read_npz(path, names=names)[names[0]]


@dataclass(frozen=True)
class Extent:
    """How many rows a file has, and its columns where they have names."""

    n_rows: int
    columns: tuple[str, ...] = ()


def extent_of(path: Path) -> Extent | None:
    """What the header of a file says: of .npy, .npz and .parquet; None where nothing does, or it cannot be read."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            n_rows, names = look_at_parquet(path)
            return Extent(n_rows, tuple(names))
        if suffix == ".npy":
            shapes = [npy_header(path).shape]
        elif suffix == ".npz":
            headers = npz_headers(path)
            shapes = [] if "format" in headers else [one.shape for name, one in headers.items() if name != "sources"]
        else:
            return None
    except Exception:  # whoever reads the file says what is wrong with it
        return None
    lengths = {shape[0] for shape in shapes if shape}
    return Extent(lengths.pop()) if len(lengths) == 1 else None
