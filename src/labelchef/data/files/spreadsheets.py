"""Excel and OpenDocument sheets: read by python-calamine or openpyxl, written by openpyxl (extra excel).

Numbers are read as a person sees them: 7.0 is "7", others have 15 digits, a day without a time is a date. Texts are written as
texts, so that none of them is a formula, and read back as they were.
"""

import datetime
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pandas as pd

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.limits import check_memory, check_unpacked
from labelchef.data.files.formats import (
    CHUNK,
    MOST_BYTES_AT_ONCE,
    NAMELESS,
    check_names,
    check_size,
    frame_of,
    text_of,
    unusable,
)

_MOST_ROWS = 1_048_576
_LONGEST_CELL = 32_767


def read_sheet(path: Path, sheet: str | None, rows: int | None) -> pd.DataFrame:
    """One sheet as text; its first row names the columns, and rows without any value are left out."""
    check_size(path, MOST_BYTES_AT_ONCE, "Save it as CSV, which is read in pieces")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            _check_book(path, archive)
    lines = _lines(path, sheet)
    header = next((line for line in lines if any(cell is not None for cell in line)), None)
    if header is None:
        raise unusable(
            f"{path} holds an empty sheet; expected a first row that names the columns. For another: {path}#Sheet"
        )
    width = max(k + 1 for k, cell in enumerate(header) if cell is not None)
    names = [
        cell if cell is not None else (NAMELESS if k == 0 else f"column {k + 1}")
        for k, cell in enumerate(header[:width])
    ]
    check_names(path, names)
    chunks: list[pd.DataFrame] = []
    batch: list[list[str | None]] = []
    n_rows = 0
    for line in lines:
        if any(cell is not None for cell in line[width:]):
            raise unusable(
                f"{path} has a cell right of the columns that the first row names; name its column, or delete it"
            )
        if not any(cell is not None for cell in line):
            continue
        batch.append([*line[:width], *[None] * (width - len(line))])
        n_rows += 1
        if len(batch) >= CHUNK:
            chunks.append(_frame(names, batch))
            batch = []
        if rows is not None and n_rows >= rows:
            break
    chunks.append(_frame(names, batch))
    return pd.concat(chunks, ignore_index=True)


def _check_book(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse a book that does not fit into memory. Sheets are read as whole rectangles, so that two cells may need any size."""
    entries = archive.infolist()
    check_unpacked(path, sum(one.compress_size for one in entries), sum(one.file_size for one in entries))
    for entry in entries:
        name = entry.filename.lower()
        if name.startswith("xl/worksheets/") and name.endswith(".xml"):
            n_rows, n_columns = _extent_of_xml(archive, entry)
        elif name.startswith("xl/worksheets/") and name.endswith(".bin"):
            n_rows, n_columns = _extent_of_binary(archive, entry)
        elif name == "content.xml":
            n_rows, n_columns = _extent_of_ods(archive, entry)
        else:
            continue
        check_memory(path, n_rows * n_columns * _CELL, f"a sheet that reaches to row {n_rows} and column {n_columns}")


_CELL = 32
_REFERENCE = re.compile(
    rb"""[\s]r\s*=\s*["']\$?([A-Za-z]{0,4})\$?(\d{0,8})["']|<[\w:]*\bc(?=[\s/>])|<[\w:]*\brow(?=[\s/>])"""
)
_TAG = re.compile(rb"<(/?)(?:table:)?(table-row|table-cell|covered-table-cell|table)\b([^>]*)>")
_REPEATED = re.compile(rb"""number-(rows|columns)-repeated\s*=\s*["'](\d{1,12})["']""")
_OVERLAP = 1 << 16


def _pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, end: bytes) -> Iterator[bytes]:
    """An entry in pieces that end with `end`, so that no tag is cut."""
    with archive.open(entry) as stream:
        rest = b""
        while piece := stream.read(1 << 20):
            held = rest + piece
            cut = held.rfind(end) + 1
            rest = held[cut:]
            if len(rest) > _OVERLAP << 8:
                raise unusable(f"{entry.filename} of the book is damaged; save it again")
            yield held[:cut]
        yield rest


def _extent_of_xml(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """The last row and column that a sheet names or counts."""
    last_row = last_column = row = column = 0
    for piece in _pieces(archive, entry, b">"):
        for found in _REFERENCE.finditer(piece):
            if found[1] is None:  # a row or cell; those that do not name their place stand behind the one before
                if found[0].endswith(b"row"):
                    row, column = row + 1, 0
                else:
                    column += 1
            else:
                row = int(found[2]) if found[2] else row
                column = _column_number(found[1]) if found[1] else column
            last_row, last_column = max(last_row, row), max(last_column, column)
    return last_row, last_column


def _column_number(letters: bytes) -> int:
    number = 0
    for letter in letters.upper():
        number = 26 * number + letter - 64
    return number


def _extent_of_binary(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Of a sheet of .xlsb: records of (type, length, content); type 0 begins a row, 1 to 11 are cells with their column."""
    last_row = last_column = 0
    with archive.open(entry) as stream:
        content = stream.read()
    at = 0
    while at < len(content):
        kind, at = _variable(content, at, 2)
        length, at = _variable(content, at, 4)
        if kind <= 11 and length >= 4 and at + 4 <= len(content):
            number = int.from_bytes(content[at : at + 4], "little") + 1
            if kind == 0:
                last_row = max(last_row, number)
            else:
                last_column = max(last_column, number)
        at += length
    return last_row, last_column


def _variable(content: bytes, at: int, most: int) -> tuple[int, int]:
    number = 0
    for k in range(most):
        if at >= len(content):
            break
        number |= (content[at] & 0x7F) << (7 * k)
        at += 1
        if content[at - 1] < 0x80:
            break
    return number, at


def _extent_of_ods(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Of the largest sheet; empty cells and rows behind the last value do not count, however often they repeat."""
    best = (0, 0)
    last_row = last_column = row = column = times = 0
    for piece in _pieces(archive, entry, b">"):
        for found in _TAG.finditer(piece):
            closing, kind = bool(found[1]), found[2]
            repeated = {which: int(n) for which, n in _REPEATED.findall(found[3])}
            if kind == b"table" and not closing:
                last_row = last_column = row = column = times = 0
            elif kind == b"table-row" and not closing:
                row, column, times = row + times, 0, max(1, repeated.get(b"rows", 1))
            elif not closing:
                column += max(1, repeated.get(b"columns", 1))
                if b"value" in found[3] or not found[3].rstrip().endswith(b"/"):
                    last_row, last_column = max(last_row, row + times), max(last_column, column)
            best = max(best, (last_row, last_column), key=lambda one: one[0] * one[1])
    return best


def _frame(names: list[str], batch: list[list[str | None]]) -> pd.DataFrame:
    return frame_of({name: [line[k] for line in batch] for k, name in enumerate(names)})


def _lines(path: Path, sheet: str | None) -> Iterator[list[str | None]]:
    try:
        import python_calamine
    except ImportError:
        yield from _lines_by_openpyxl(path, sheet)
        return
    book = python_calamine.CalamineWorkbook.from_path(str(path))
    name = _chosen(path, list(book.sheet_names), sheet)
    for line in book.get_sheet_by_name(name).iter_rows():
        yield [_shown(cell) for cell in line]


def _lines_by_openpyxl(path: Path, sheet: str | None) -> Iterator[list[str | None]]:
    if path.suffix.lower() not in (".xlsx", ".xlsm"):
        raise MissingExtraError(
            f"{path}: reading it needs python-calamine; pip install 'labelchef[excel]'", code="excel"
        )
    openpyxl = _openpyxl(f"{path}: reading")
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        for line in book[_chosen(path, list(book.sheetnames), sheet)].iter_rows(values_only=True):
            yield [_shown(_unescaped(cell)) for cell in line]
    finally:
        book.close()


def _openpyxl(what: str) -> Any:
    try:
        import openpyxl
    except ImportError:
        raise MissingExtraError(f"{what} Excel needs a library; pip install 'labelchef[excel]'", code="excel") from None
    return openpyxl


def _chosen(path: Path, names: list[str], sheet: str | None) -> str:
    if not names:
        raise unusable(f"{path} holds no sheet; save it again")
    if sheet is not None and sheet not in names:
        raise unusable(f"{path} has the sheets {names[:10]}; there is no {sheet!r}. Name one as {path}#{names[0]}")
    return sheet or names[0]


_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


def _unescaped(value: Any) -> Any:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), value) if isinstance(value, str) else value


def _shown(value: Any) -> str | None:
    """A cell as a person sees it; None for an empty one."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return text_of(float(f"{value:.15g}"))
    if isinstance(value, datetime.timedelta):
        return str(value)
    return text_of(value)


def write_sheet(frame: pd.DataFrame, stream: IO[bytes]) -> None:
    """A frame as the one sheet of an .xlsx file; numbers as numbers, texts as texts."""
    openpyxl = _openpyxl("writing")
    from openpyxl.cell import WriteOnlyCell

    if len(frame) >= _MOST_ROWS:
        raise InvalidInputError(
            f"{len(frame)} rows do not fit into an Excel sheet of {_MOST_ROWS}; write .csv or .parquet", code="format"
        )
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")

    def cell(value: Any) -> Any:
        if isinstance(value, bool | int | float) and not (isinstance(value, int) and abs(value) > 10**15):
            return value
        text = text_of(value)
        if text is None or text == "":
            return None
        if len(text) > _LONGEST_CELL:
            raise InvalidInputError(
                f"a text of {len(text)} characters does not fit into an Excel cell of {_LONGEST_CELL}; write "
                ".csv or .jsonl",
                code="format",
            )
        held = WriteOnlyCell(sheet, _UNWRITABLE.sub(lambda found: f"_x{ord(found[0]):04X}_", text))
        held.data_type = "s"
        return held

    def lines() -> Iterable[list[Any]]:
        yield [str(name) for name in frame.columns]
        for line in frame.itertuples(index=False, name=None):
            yield [None if value is None or value is pd.NA or value != value else value for value in line]

    for line in lines():
        sheet.append([cell(value) for value in line])
    book.save(stream)
