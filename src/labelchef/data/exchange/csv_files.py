"""CSV files with every cell as text: formulas are guarded when written (`data.files.formulas`), and read back as they were."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from labelchef.base.files import whole_file
from labelchef.data.exchange.records import beginning, read_text, refuse
from labelchef.data.files.formulas import as_written, harmless, is_guarded
from labelchef.data.files.tables import csv_line


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    """Write a table whole."""
    with whole_file(path) as stream:
        for row in (header, *rows):
            stream.write(csv_line([harmless(cell) for cell in row]).encode())
    return path


def read_rows(path: Path, what: str, wanted: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    """The header, and a mapping from its names to cells for each row; refuses a table without the columns `wanted`."""
    try:
        lines = list(csv.reader(io.StringIO(read_text(path, what, newline=""), newline=""), strict=True))
    except csv.Error as error:
        refuse(f"{what}: {path} is no CSV: {error}. The file may be cut off; export it again")
    if not lines:
        refuse(f"{what}: {path} is empty; expected a first line that names the columns")
    if is_guarded(cell for line in lines for cell in line):
        lines = [[as_written(cell) for cell in line] for line in lines]
    header, rows = lines[0], lines[1:]
    if len(set(header)) < len(header) or not set(wanted) <= set(header):
        refuse(f"{what}: {path} has the columns {header[:20]}; expected {', '.join(wanted)}, each column once")
    for k, row in enumerate(rows, 1):
        if len(row) != len(header):
            refuse(f"{what}: {path}, row {k} has {len(row)} cells; expected {len(header)}. The file may be cut off")
    return header, [dict(zip(header, row, strict=True)) for row in rows]


def header_of(path: Path) -> list[str]:
    """The names in the first line of a .csv; none where it is no such file."""
    if path.suffix.lower() != ".csv":
        return []
    try:
        return next(csv.reader(io.StringIO(beginning(path))), [])
    except csv.Error:
        return []
