"""Small files that take all memory if they are read as they say: what each takes now, measured.

    python -m tests.hostile_files [--scale 100] [NAME …]

prints, for each file, its size, what it would be in memory, what became of it and the peak of the process's memory, less what
the process takes without a file. Each is read by a process of its own with a limit on its address space.
"""

import argparse
import json
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

MIB = 1 << 20
SECONDS = 240
LIMIT = 8 << 30
"""Address space of a process that reads a hostile file."""


def write_npz(path: Path, arrays: dict[str, tuple[str, tuple[int, ...]]], noise: int = 0) -> Path:
    """An .npz of zeros, written in pieces; `noise` bytes of each MiB are random, so that it packs less well."""
    piece = np.random.default_rng(0).bytes(noise) + bytes(MIB - noise)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, (kind, shape) in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                described = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(stream, described)
                left = int(np.prod(shape)) * np.dtype(kind).itemsize
                while left:
                    left -= stream.write(piece[: min(left, MIB)])
    return path


def npz_zeros(folder: Path, scale: int) -> tuple[Path, int]:
    n = scale * 34_000
    return write_npz(folder / "zeros.npz", {"ids": ("<i8", (n,)), "X": ("<f8", (n, 124))}), n * 1000


def npz_lengths(folder: Path, scale: int) -> tuple[Path, int]:
    n = scale * 34_000
    return write_npz(folder / "lengths.npz", {"ids": ("<i8", (n - 1,)), "X": ("<f8", (n, 124))}, 4096), n * 1000


def parquet_dictionary(folder: Path, scale: int) -> tuple[Path, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, n = "x" * 100_000, scale * 620
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))
    pq.write_table(pa.table({"id": pa.array(range(n)), "text": column}), folder / "dictionary.parquet")
    return folder / "dictionary.parquet", n * len(text)


def parquet_rows(folder: Path, scale: int) -> tuple[Path, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"c{k}" for k in range(50)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    group = pa.table({name: pa.nulls(100_000, pa.int64()) for name in names}, schema=schema)
    with pq.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for _ in range(scale):
            writer.write_table(group)
    return folder / "rows.parquet", scale * 100_000 * len(names) * 16


def arrow_packed(folder: Path, scale: int) -> tuple[Path, int]:
    import pyarrow as pa

    n = scale * 1_200_000
    table = pa.table({"x": pa.array(np.zeros(n))})
    with pa.OSFile(str(folder / "packed.arrow"), "wb") as sink:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    return folder / "packed.arrow", n * 8


def csv_line(folder: Path, scale: int) -> tuple[Path, int]:
    path = folder / "line.csv"
    with path.open("wb") as stream:
        stream.write(b"id,text\n1,")
        for _ in range(max(70, scale * 10)):
            stream.write(b"a" * MIB)
    return path, max(70, scale * 10) * MIB


def csv_wide(folder: Path, scale: int) -> tuple[Path, int]:
    path, n = folder / "wide.csv", max(300, scale * 30)
    path.write_bytes(",".join(f"c{k}" for k in range(20_000)).encode() + b"\n" + (b"," * 19_999 + b"\n") * n)
    return path, n * 20_000 * 57


def json_nested(folder: Path, _scale: int) -> tuple[Path, int]:
    path = folder / "nested.json"
    path.write_bytes(b"[" * 10_000_000)
    return path, 10_000_000 * 64


def json_values(folder: Path, scale: int) -> tuple[Path, int]:
    path, n = folder / "values.json", scale * 400_000
    path.write_bytes(b'[{"a":[' + b"1," * n + b"1]}]")
    return path, n * 60


def jsonl_names(folder: Path, _scale: int) -> tuple[Path, int]:
    path, n = folder / "names.jsonl", 19_000
    path.write_text("".join(f'{{"n{k}":1}}\n' for k in range(n)))
    return path, n * n * 9


def png_pixels(folder: Path, _scale: int) -> tuple[Path, int]:
    side = 13_000  # of one bit a pixel, which are 3 bytes in RGB
    rows = zlib.compress(bytes((1 + side // 8) * side), 9)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    (folder / "pictures").mkdir(exist_ok=True)
    path = folder / "pictures" / "large.png"
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path, side * side * 12


def _book(path: Path, sheet: Iterator[bytes]) -> Path:
    kinds = "http://schemas.openxmlformats.org"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{kinds}/package/2006/content-types"><Default Extension="xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{kinds}/package/2006/relationships"><Relationship Id="r1" '
        'Target="xl/workbook.xml" '
        f'Type="{kinds}/officeDocument/2006/relationships/officeDocument"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{kinds}/spreadsheetml/2006/main" '
        f'xmlns:r="{kinds}/officeDocument/2006/relationships">'
        '<sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{kinds}/package/2006/relationships"><Relationship Id="r1" '
        f'Target="worksheets/sheet1.xml" Type="{kinds}/officeDocument/2006/relationships/worksheet"/></Relationships>',
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
        with archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as stream:
            stream.write(f'<worksheet xmlns="{kinds}/spreadsheetml/2006/main"><sheetData>'.encode())
            for piece in sheet:
                stream.write(piece)
            stream.write(b"</sheetData></worksheet>")
    return path


def _cell(place: str) -> bytes:
    return f'<c r="{place}" t="inlineStr"><is><t>a</t></is></c>'.encode()


def excel_corner(folder: Path, _scale: int) -> tuple[Path, int]:
    rows = [b'<row r="1">' + _cell("A1") + b'</row><row r="40000">' + _cell("XFD40000") + b"</row>"]
    return _book(folder / "corner.xlsx", iter(rows)), 40_000 * 16384 * 24


def excel_packed(folder: Path, scale: int) -> tuple[Path, int]:
    empty = b"<row/>" * (MIB // 6)
    return _book(folder / "packed.xlsx", (empty for _ in range(scale * 11))), scale * 11 * MIB


def model_npz(folder: Path, scale: int) -> tuple[Path, int]:
    n = scale * 34_000
    return write_npz(folder / "model.npz", {"meta": ("<U10", ()), "coef": ("<f8", (n, 124))}), n * 1000


FILES: dict[str, Callable[[Path, int], tuple[Path, int]]] = {
    one.__name__: one
    for one in (
        npz_zeros, npz_lengths, parquet_dictionary, parquet_rows, arrow_packed, csv_line, csv_wide, json_nested, json_values,
        jsonl_names, png_pixels, excel_corner, excel_packed, model_npz,
    )
}  # fmt: skip


def read(path: Path) -> str:
    """What becomes of a file: 'read', or the code of the error; any other exception by its name."""
    from labelchef.base.errors import LabelchefError

    try:
        if path.suffix == ".png":
            from labelchef.data.encoders.images import read_image

            read_image(path.name, path.parent)
        elif path.name == "model.npz":
            from labelchef.data.encoded import load_model

            load_model(path)
        else:
            from labelchef.data.files.formats import read_table

            read_table(path)
    except LabelchefError as error:
        return f"refused: {error.code}"
    except Exception as error:
        return type(error).__name__
    return "read"


def peak(process: int | str = "self") -> int:
    """Bytes of memory that a process has had at most."""
    for line in (
        Path(f"/proc/{process}/status").read_text().splitlines()
    ):  # getrusage counts what the process was forked from
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(paths: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    from labelchef.base import errors as _errors  # noqa: F401
    from labelchef.data.encoded import load_model as _load  # noqa: F401
    from labelchef.data.encoders import images as _images  # noqa: F401
    from labelchef.data.files import columnar as _columnar  # noqa: F401

    import pyarrow.parquet as _parquet  # noqa: F401  # isort: skip
    import openpyxl as _openpyxl  # noqa: F401  # isort: skip
    import PIL.Image  # noqa: F401  # isort: skip

    before = peak()
    print(json.dumps({"came": [read(Path(path)) for path in paths], "peak": peak() - before}))


def measured(paths: list[Path]) -> tuple[list[str], int]:
    """What became of files that one process reads, and the peak of its memory above where it began."""
    command = [sys.executable, "-m", "tests.hostile_files", "--child", *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            most = peak(process.pid)
            process.kill()
            return [f"no end after {SECONDS} s"] * len(paths), most
    if process.returncode:
        return [f"killed ({process.returncode})"] * len(paths), LIMIT
    found = json.loads(said.splitlines()[-1])
    return found["came"], found["peak"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", type=int, default=100)
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        child(given.names)
        return
    print("| file | on disk | in memory | became | peak |\n|---|--:|--:|---|--:|")
    with tempfile.TemporaryDirectory() as name:
        for made in given.names or FILES:
            path, size = FILES[made](Path(name), given.scale)
            came, most = measured([path])
            disk = path.stat().st_size
            shown = f"{disk / MIB:.1f}" if disk >= MIB / 10 else f"{disk / MIB:.3f}"
            print(f"| {made} | {shown} MiB | {size / MIB:.0f} MiB | {came[0]} | {most / MIB:.0f} MiB |", flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
