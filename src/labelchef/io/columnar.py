"""Parquet, Arrow and Feather files and folders of `datasets`, by pyarrow: every column becomes text, or vectors (n, d).

strings, categories             as they are            whole numbers, decimals     their digits
floating point                  shortest form that reads back the same, 7.0 as "7"; NaN is missing
truth values                    "True", "False"        dates and times             as ISO 8601
lists of d ≥ 2 numbers          vectors (n, d)         other lists and records     JSON
class numbers with names (`datasets.ClassLabel`)       the names
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from labelchef.domain.errors import MissingExtraError
from labelchef.domain.intake import Finding, Progress, Severity
from labelchef.io.formats import CHUNK, MOST_BYTES, check_names, check_size, text_of, unusable

Columns = tuple[pd.DataFrame, dict[str, NDArray[Any]], tuple[Finding, ...]]


def read_arrow_file(path: Path, rows: int | None, progress: Progress) -> Columns:
    """A Parquet, Feather or Arrow file, in pieces; of an Arrow file both forms, file and stream, are read."""
    arrow = _pyarrow(path)
    check_size(path, MOST_BYTES, "Leave out columns that are not needed, or give it in several files")
    if path.suffix.lower() == ".parquet":
        return _parquet(path, rows, progress)
    with arrow.memory_map(str(path)) as mapped:
        head = bytes(mapped.read(6))
        mapped.seek(0)
        if head.startswith(b"FEA1"):
            import pyarrow.feather as feather

            pieces: Iterator[Any] = iter([feather.read_table(str(path))])
        elif head == b"ARROW1":
            held = arrow.ipc.open_file(mapped)
            pieces = (held.get_batch(k) for k in range(held.num_record_batches))
        else:
            pieces = iter(arrow.ipc.open_stream(mapped))
        return _collect(path, pieces, rows, {}, progress, 0)


def _parquet(path: Path, rows: int | None, progress: Progress) -> Columns:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as held:
        facts = held.metadata
        unpacked = sum(facts.row_group(k).total_byte_size for k in range(facts.num_row_groups))
        if unpacked > MOST_BYTES or facts.num_rows > MOST_BYTES // 8:
            raise unusable(
                f"{path} unpacks to {unpacked / 2**30:.1f} GiB ({facts.num_rows} rows); expected at most "
                f"{MOST_BYTES / 2**30:.0f} GiB. Leave out columns that are not needed"
            )
        pieces = held.iter_batches(batch_size=CHUNK if rows is None else min(CHUNK, rows))
        return _collect(path, pieces, rows, {}, progress, facts.num_rows, held.schema_arrow)


def read_dataset(folder: Path, rows: int | None, progress: Progress) -> Columns:
    """One split that `datasets` saved to disk; numbers of classes become their names."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError(
            f"{folder}: reading a folder of datasets needs the library; pip install 'labelchef[datasets]'",
            code="datasets",
        ) from None
    _check_files(folder)
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


def _check_files(folder: Path) -> None:
    """Refuse a folder whose list of files names any outside of it."""
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    listed = [*(state.get("_data_files") or ()), *(state.get("_indices_files") or ())]
    names = [str(one["filename"]) for one in listed]
    outside = next((name for name in names if name != Path(name).name or "\\" in name), None)
    if outside is not None:
        raise unusable(
            f"{folder}: state.json names the file {outside!r}; expected files in the folder. Save the data set again"
        )


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
    for piece in pieces:
        names = list(piece.schema.names)
        check_names(path, names)
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


def _is_binary(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_struct(kind):
        return any(_is_binary(kind.field(k).type) for k in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


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
    return [text_of(value) for value in values]


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise MissingExtraError(
            f"{path}: reading {path.suffix.lower()} needs pyarrow; pip install 'labelchef[parquet]'", code="parquet"
        ) from None
    return pyarrow
