"""Parquet, Arrow and Feather files and folders of `datasets`, by pyarrow: every column becomes text, or vectors (n, d).

strings, categories             as they are            whole numbers, decimals     their digits
floating point                  shortest form that reads back the same, 7.0 as "7"; NaN is missing
truth values                    "True", "False"        dates and times             as ISO 8601
lists of d ≥ 2 numbers          vectors (n, d)         other lists and records     JSON
class numbers with names (`datasets.ClassLabel`)       the names
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError, MissingExtraError
from labelchef.base.intake import Finding, Progress, Severity
from labelchef.base.limits import check_memory, check_unpacked
from labelchef.data.files.formats import CHUNK, MOST_BYTES, check_names, check_size, text_of, unusable
from labelchef.data.files.messages import unpacked_size

_CELLS = 1 << 21
"""Cells that are turned into a frame at a time, where rows have many."""
_CELL = 16
"""Bytes of a cell in memory beside its text."""
_TEXT_AT_ONCE = 1 << 26
"""Bytes of texts that are turned into a frame at a time."""
_FEW = 256
_NUMBER = 4
"""Bytes of a number of a vector."""

Columns = tuple[pd.DataFrame, dict[str, NDArray[Any]], tuple[Finding, ...]]


def read_arrow_file(path: Path, rows: int | None, progress: Progress) -> Columns:
    """A Parquet, Feather or Arrow file, in pieces; of an Arrow file both forms, file and stream, are read."""
    arrow = _pyarrow(path)
    check_size(path, MOST_BYTES, "Leave out columns that are not needed, or give it in several files")
    if path.suffix.lower() == ".parquet":
        return _parquet(path, rows, progress)
    with arrow.memory_map(str(path)) as mapped:
        head = bytes(mapped.read(8))
        if head.startswith(b"FEA1"):
            import pyarrow.feather as feather

            return _collect(path, iter([feather.read_table(str(path))]), rows, {}, progress, 0)
        check_stream(path)
        mapped.seek(8 if head[:6] == b"ARROW1" else 0)  # what is between the marks of an Arrow file is a stream
        stream = arrow.ipc.open_stream(mapped)
        return _collect(path, iter(stream), rows, {}, progress, 0, stream.schema)


def check_stream(path: Path) -> None:
    """Refuse an Arrow file or stream that unpacks to more than a file may take, by the sizes in its messages."""
    size = path.stat().st_size
    check_unpacked(path, size, size if size == 0 else max(size, unpacked_size(path)))


def _parquet(path: Path, rows: int | None, progress: Progress) -> Columns:
    import pyarrow.parquet as parquet

    facts = _checked_parquet(path, rows)
    with parquet.ParquetFile(path, read_dictionary=facts.texts) as held:
        pieces = held.iter_batches(batch_size=facts.at_once if rows is None else max(1, min(facts.at_once, rows)))
        return _collect(path, pieces, rows, {}, progress, held.metadata.num_rows, facts.schema)


def look_at_parquet(path: Path) -> tuple[int, list[str]]:
    """How many rows a Parquet file has, and its columns, by its footer."""
    _pyarrow(path)
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as held:
        return int(held.metadata.num_rows), list(held.schema_arrow.names)


@dataclass(frozen=True)
class _ParquetFacts:
    schema: Any
    texts: list[str]
    """Columns of texts, which are read as dictionaries: a text that repeats is unpacked once."""
    at_once: int
    """Rows that are read at a time."""


def check_parquet(path: Path) -> None:
    """Refuse a Parquet file that is damaged, or whose texts do not fit into memory each as often as it occurs."""
    _pyarrow(path)
    import pyarrow.parquet as parquet

    facts = _checked_parquet(path)
    with parquet.ParquetFile(path, read_dictionary=facts.texts) as held:
        for _ in _small(path, held.iter_batches(batch_size=facts.at_once)):
            pass


def _checked_parquet(path: Path, rows: int | None = None) -> _ParquetFacts:
    """Facts of a Parquet file that fits into memory, by its footer: unpacked pages, and a cell a row and column."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as held:
        facts, schema = held.metadata, held.schema_arrow
        groups = [facts.row_group(k) for k in range(facts.num_row_groups)]
        if sum(group.num_rows for group in groups) != facts.num_rows or facts.num_rows < 0:
            raise unusable(f"{path} has {facts.num_rows} rows by its footer and others in its parts; write it again")
        parts = [group.column(j) for group in groups for j in range(group.num_columns)]
        check_memory(path, max((part.total_uncompressed_size for part in parts), default=0), "a column")
        values = sum(max(0, part.num_values) for part in parts)
        check_memory(path, values * _NUMBER if rows is None else 0, f"{values} values")
        check_names(path, list(schema.names))
        if rows is None:
            n_columns = len(schema.names)
            check_memory(path, facts.num_rows * n_columns * _CELL, f"{facts.num_rows} rows of {n_columns} columns")
        texts = [part.path_in_schema for part in parts if part.physical_type == "BYTE_ARRAY"]
        few = any("DELTA_BYTE_ARRAY" in part.encodings for part in parts)  # texts may share beginnings of any length
        at_once = _FEW if few else max(1, min(CHUNK, _CELLS // max(1, len(schema.names))))
        return _ParquetFacts(schema, list(dict.fromkeys(texts)), at_once)


def check_groups(path: Path) -> list[str]:
    """The columns of a Parquet file that is read by row groups; refused if a column of one group does not fit into memory."""
    _pyarrow(path)
    import pyarrow.parquet as parquet

    facts = _checked_parquet(path, rows=1)
    with parquet.ParquetFile(path) as held:
        groups = [held.metadata.row_group(k) for k in range(held.metadata.num_row_groups)]
    values = max((group.column(j).num_values for group in groups for j in range(group.num_columns)), default=0)
    check_memory(path, values * _NUMBER, f"a row group of {values} values")
    return list(facts.schema.names)


def column_texts(path: Path, name: str) -> list[str]:
    """One column of a Parquet file as text, "" where it is missing; the others are not read."""
    _pyarrow(path)
    import pyarrow.parquet as parquet

    facts, found = _checked_parquet(path, rows=1), []
    texts = [one for one in facts.texts if one == name]
    with parquet.ParquetFile(path, read_dictionary=texts) as held:
        check_memory(path, held.metadata.num_rows * _CELL, f"{held.metadata.num_rows} rows of a column")
        for piece in _small(path, held.iter_batches(batch_size=facts.at_once, columns=[name])):
            found += [text or "" for text in _texts(piece.column(0), None)]
    return found


def read_typed(path: Path) -> pd.DataFrame:
    """A Parquet file as a frame with numbers as numbers: columns of numbers or truth values without gaps have NumPy's types,
    all others are objects: Python's numbers and texts, None where a value is missing, and texts of everything else, as
    `read_arrow_file` has them."""
    arrow = _pyarrow(path)
    facts = _checked_parquet(path)
    pieces = list(_typed(path, facts))
    columns = {}
    for name, kind in zip(facts.schema.names, facts.schema.types, strict=True):
        held = [piece.pop(name) for piece in pieces]
        if not held:
            columns[name] = np.empty(0, kind.to_pandas_dtype() if arrow.types.is_primitive(kind) else object)
        else:
            mixed = any(one.dtype == object for one in held)
            columns[name] = np.concatenate([one.astype(object) if mixed else one for one in held])
    return pd.DataFrame(columns)


def typed_parts(path: Path, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
    """The same rows a piece at a time; a column of numbers with gaps has objects only in the pieces that have one."""
    _pyarrow(path)
    for piece in _typed(path, _checked_parquet(path), columns):
        yield pd.DataFrame(piece)


def _typed(path: Path, facts: _ParquetFacts, columns: Sequence[str] | None = None) -> Iterator[dict[str, NDArray[Any]]]:
    import pyarrow.parquet as parquet
    import pyarrow.types as types

    wanted = None if columns is None else list(columns)
    texts = [name for name in facts.texts if wanted is None or name in wanted]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        for piece in _small(path, file.iter_batches(batch_size=facts.at_once, columns=wanted)):
            found: dict[str, NDArray[Any]] = {}
            for name, column in zip(piece.schema.names, piece.columns, strict=True):
                kind = column.type
                number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
                if number and column.null_count == 0:
                    found[name] = column.to_numpy(zero_copy_only=False)
                else:
                    exact = number or types.is_decimal(kind)
                    found[name] = _objects(column.to_pylist() if exact else _texts(column, None))
            yield found


def _objects(values: list[Any]) -> NDArray[Any]:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


class MixedTypesError(Exception):
    """The pieces of a table have columns of different types."""


def write_parquet(parts: Iterator[pd.DataFrame], stream: IO[bytes]) -> None:
    """Pieces with the same columns as one Parquet file; the types are those of the first piece, text where that has no value."""
    arrow = _pyarrow(Path("a .parquet"))
    import pyarrow.parquet as parquet

    writer = None
    try:
        for part in parts:
            try:
                table = arrow.Table.from_pandas(part, None if writer is None else writer.schema, preserve_index=False)
            except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
                raise MixedTypesError(str(error)) from None
            if writer is None:  # a column without a value is one of texts
                fields = [
                    one.with_type(arrow.string()) if arrow.types.is_null(one.type) else one for one in table.schema
                ]
                table = table.cast(arrow.schema(fields, table.schema.metadata))
            writer = writer or parquet.ParquetWriter(stream, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def read_dataset(folder: Path, rows: int | None, progress: Progress) -> Columns:
    """One split that `datasets` saved to disk; numbers of classes become their names."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError(
            f"{folder}: reading a folder of datasets needs the library; pip install 'labelchef[datasets]'",
            code="datasets",
        ) from None
    check_dataset(folder)
    held = datasets.load_from_disk(str(folder))
    if not isinstance(held, datasets.Dataset):
        raise unusable(f"{folder} holds several splits; name one as {folder}#train")
    names = {
        name: list(kind.names)
        for name, kind in held.features.items()
        if isinstance(kind, datasets.ClassLabel) and kind.names
    }
    if rows is not None:
        held = held.select(range(min(rows, len(held))))
    pieces = held.with_format("arrow").iter(batch_size=CHUNK)
    return _collect(folder, pieces, rows, names, progress, len(held), held.data.schema)


def check_dataset(folder: Path) -> None:
    """Refuse a folder whose list of files names any outside of it, or one that unpacks to too much."""
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    listed = [*(state.get("_data_files") or ()), *(state.get("_indices_files") or ())]
    names = [str(one["filename"]) for one in listed]
    outside = next((name for name in names if name != Path(name).name or "\\" in name), None)
    if outside is not None:
        raise unusable(
            f"{folder}: state.json names the file {outside!r}; expected files in the folder. Save the data set again"
        )
    for name in names:
        if (folder / name).is_file():
            check_stream(folder / name)


def _collect(
    path: Path,
    pieces: Iterator[Any],
    rows: int | None,
    class_names: Mapping[str, Sequence[str]],
    progress: Progress,
    total: int,
    schema: Any = None,
) -> Columns:
    """Pieces of a table as one frame and vectors."""
    chunks: list[pd.DataFrame] = []
    vectors: dict[str, list[NDArray[Any] | None]] = {}
    left_out: set[str] = set()
    done = 0
    names = [] if schema is None else list(schema.names)
    for piece in _small(path, pieces):
        names = list(piece.schema.names)
        columns: dict[str, Any] = {}
        for name, column in zip(names, piece.columns, strict=True):
            if _is_binary(column.type):
                left_out.add(name)
                continue
            vectors.setdefault(name, []).append(_vectors(column))
            columns[name] = pd.array(_texts(column, class_names.get(name)), dtype="str")
        chunks.append(pd.DataFrame(columns, index=range(piece.num_rows)))
        done += piece.num_rows
        progress(f"reading {path.name}", done, total)
        if rows is not None and done >= rows:
            break
    check_names(path, names)
    empty = pd.DataFrame({name: pd.array([], dtype="str") for name in names})
    frame = pd.concat(chunks, ignore_index=True) if chunks else empty
    whole: dict[str, NDArray[Any]] = {}
    for name, held in vectors.items():
        if all(one is not None for one in held) and len({one.shape[1] for one in held if one is not None}) == 1:
            whole[name] = np.concatenate([one for one in held if one is not None])
    findings = tuple(
        Finding(
            "binary-column",
            Severity.WARNING,
            f"{path.name}: column {name!r} holds bytes, such as images inside of the file; it is left out. "
            "Save the images as "
            "files in a folder and give their paths in a column",
            1,
            (name,),
        )
        for name in sorted(left_out)
    )
    return frame.drop(columns=list(whole)), {k: v if rows is None else v[:rows] for k, v in whole.items()}, findings


def _small(path: Path, pieces: Iterator[Any]) -> Iterator[Any]:
    """Pieces that are checked, and small enough to be turned into texts at once."""
    done = needed = 0
    for piece in pieces:
        check_names(path, list(piece.schema.names))
        piece.validate(full=True)  # offsets of a damaged file may lead anywhere
        n, width = piece.num_rows, len(piece.schema.names)
        texts = sum(_text_bytes(column) for column in piece.columns)
        done, needed = done + n, needed + texts
        check_memory(path, needed, f"{done} rows of {width} columns")
        at_once = max(1, min(CHUNK, _CELLS // max(1, width), n * _TEXT_AT_ONCE // max(1, texts)))
        if n <= at_once:
            yield piece
        else:
            yield from (piece.slice(start, at_once) for start in range(0, n, at_once))


def _is_binary(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_struct(kind):
        return any(_is_binary(kind.field(k).type) for k in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _text_bytes(column: Any) -> int:
    """Bytes of a column as texts: each text as often as it occurs, and `_CELL` for everything else."""
    import pyarrow.compute as compute
    import pyarrow.types as types

    kind = column.type
    if hasattr(kind, "storage_type"):
        chunks = column.chunks if hasattr(column, "chunks") else [column]
        return sum(_text_bytes(one.storage) for one in chunks)
    if types.is_dictionary(kind):
        chunks = column.chunks if hasattr(column, "chunks") else [column]
        return sum(_repeated_bytes(one) for one in chunks)
    if _is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind) or types.is_string_view(kind):
        return _CELL * len(column) + int(compute.sum(compute.binary_length(column)).as_py() or 0)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inside = int(compute.sum(compute.list_value_length(column)).as_py() or 0)
        check_memory("a column", inside * _NUMBER, f"{inside} values in lists")
        nested = not (types.is_primitive(kind.value_type) and not types.is_fixed_size_list(kind.value_type))
        return _CELL * len(column) + (_text_bytes(compute.list_flatten(column)) if nested else _NUMBER * inside)
    if types.is_struct(kind):
        return _CELL * len(column) + sum(_text_bytes(part) for part in column.flatten())
    if types.is_primitive(kind) or types.is_null(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return _CELL * len(column)
    if types.is_map(kind):
        return _CELL * len(column) + _text_bytes(compute.list_flatten(column.cast(_map_as_list(kind))))
    raise InvalidInputError(f"a column has the type {kind}, which is not read; save it as text or numbers", code="file")


def _map_as_list(kind: Any) -> Any:
    import pyarrow as arrow

    return arrow.list_(arrow.struct([arrow.field("key", kind.key_type, False), arrow.field("value", kind.item_type)]))


def _repeated_bytes(column: Any) -> int:
    """Of a dictionary column: the bytes of the text of each row."""
    import pyarrow.compute as compute

    if not len(column.dictionary):
        return _CELL * len(column)
    if not _is_text(column.type.value_type):
        return _CELL * len(column) + len(column) * (_text_bytes(column.dictionary) // len(column.dictionary))
    sizes = compute.binary_length(column.dictionary)
    return _CELL * len(column) + int(compute.sum(compute.take(sizes, column.indices)).as_py() or 0)


def _vectors(column: Any) -> NDArray[Any] | None:
    """(n, d) of a column of lists of d ≥ 2 numbers, none of them missing."""
    import pyarrow.types as types

    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    kind = getattr(column.type, "storage_type", column.type)
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return None
    inner = kind.value_type
    if not (types.is_floating(inner) or types.is_integer(inner)) or len(column) == 0 or column.null_count:
        return None
    import pyarrow as arrow
    import pyarrow.compute as compute

    chunks = column.chunks if isinstance(column, arrow.ChunkedArray) else [column]
    flat, lengths = [], set()
    for chunk in (getattr(one, "storage", one) for one in chunks):
        lengths |= set(compute.list_value_length(chunk).unique().to_pylist())
        values = chunk.flatten()
        if values.null_count:
            return None
        flat.append(values.to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or (width := lengths.pop()) < 2:
        return None
    return np.asarray(np.concatenate(flat).reshape(-1, width), dtype=np.float32)


def _texts(column: Any, class_names: Sequence[str] | None) -> list[str | None]:
    import pyarrow.types as types

    kind = getattr(column.type, "storage_type", column.type)
    if types.is_dictionary(kind) and class_names is None:  # every text once, however often it occurs
        column = getattr(column, "storage", column)
        chunks = column.chunks if hasattr(column, "chunks") else [column]
        return [text for one in chunks for text in _repeated_texts(one)]
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_float32(kind) or types.is_float16(kind):
        narrow = np.float32 if types.is_float32(kind) else np.float16
        return [None if value is None else text_of(narrow(value)) for value in column.to_pylist()]
    values = column.to_pylist()
    if class_names is not None:
        if any(value is not None and not -1 <= value < len(class_names) for value in values):
            raise ValueError(f"a class number is outside of the {len(class_names)} class names")
        return [None if value is None or value < 0 else class_names[value] for value in values]
    return values if _is_text(kind) else [text_of(value) for value in values]


def _repeated_texts(column: Any) -> list[str | None]:
    texts = _texts(column.dictionary, None)
    return [None if place is None else texts[place] for place in column.indices.to_pylist()]


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise MissingExtraError(
            f"{path}: reading {path.suffix.lower()} needs pyarrow; pip install 'labelchef[parquet]'", code="parquet"
        ) from None
    return pyarrow
