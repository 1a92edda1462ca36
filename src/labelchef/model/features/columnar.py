"""Features in Parquet and Arrow files: a column of fixed-size lists, a list a row.

Arrow that is not compressed is read where it lies: the numbers of a batch are one piece of the file. Parquet, and Arrow that is
compressed, is unpacked by row groups and batches, which should have some 16 MB: a row group is in memory as a whole, several
times at once, and single rows cost their whole group.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from labelchef.base.errors import InvalidInputError, LabelchefError, MissingExtraError
from labelchef.model.features.contract import Features, Stored
from labelchef.model.features.grouped import GroupedFeatures
from labelchef.model.features.npy import RawFeatures
from labelchef.model.features.reading import LocalFile
from labelchef.model.features.shards import ShardedFeatures

Opened = Callable[[], IO[bytes]]


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError(
            "Parquet and Arrow need pyarrow; pip install 'labelchef[features]'", code="features"
        ) from None
    return pa


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever pyarrow meets in a damaged file becomes an error that names it."""
    try:
        yield
    except (LabelchefError, MemoryError):
        raise
    except Exception as error:
        raise InvalidInputError(
            f"{what} cannot be read: {str(error)[:300]}. The file may be cut off or damaged; write it again",
            code="features",
        ) from None


def _list_column(schema: Any, what: str) -> tuple[str, int, "np.dtype[Any]"]:
    """Name, length and type of the one column of fixed-size lists."""
    pa = _pyarrow()
    lists = [field for field in schema if pa.types.is_fixed_size_list(field.type)]
    if len(lists) != 1:
        found = f"{len(lists)} columns of fixed-size lists ({', '.join(one.name for one in lists)})" if lists else (
            f"no column of fixed-size lists, only {', '.join(schema.names[:10])}"
        )  # fmt: skip
        raise InvalidInputError(
            f"{what} has {found}; expected one, with the features: pyarrow.FixedSizeListArray.from_arrays(X.ravel(), X.shape[1])",
            code="features",
        )
    return lists[0].name, lists[0].type.list_size, np.dtype(lists[0].type.value_type.to_pandas_dtype())


def has_lists(path: Path) -> bool:
    """Whether a Parquet file has columns of fixed-size lists, by its footer; False for a file that cannot be read."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        return any(pa.types.is_fixed_size_list(kind) for kind in pq.read_schema(path).types)
    except Exception:  # whoever reads the file says what is wrong with it
        return False


def _numbers(column: Any, what: str, columns: int) -> Stored:
    """The rows of a column of lists."""
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if hasattr(array, "num_chunks"):  # an empty one, or of several chunks
        array = array.chunk(0)
    values = array.flatten()
    if array.null_count or values.null_count or len(values) != len(array) * columns:
        raise InvalidInputError(
            f"{what} has rows without features; expected numbers in every row. Drop them", code="features"
        )
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(array), columns)


class ParquetFeatures(GroupedFeatures):
    """A Parquet file with one column of fixed-size lists."""

    def __init__(self, path: Path) -> None:
        self._file: LocalFile | None = LocalFile(path)
        self._begin(str(path), lambda: path.open("rb"))

    def _begin(self, what: str, opened: Opened) -> None:
        _pyarrow()
        import pyarrow.parquet as pq

        self._opened = opened
        with _reading(what), opened() as stream:
            file = pq.ParquetFile(stream)
            facts = file.metadata
            self._column, columns, dtype = _list_column(file.schema_arrow, what)
            sizes = [facts.row_group(k).num_rows for k in range(facts.num_row_groups)]
        super().__init__(sizes, columns, dtype, what)

    def check(self) -> None:
        """See `Features.check`."""
        if self._file is not None:
            self._file.check()

    def _group(self, number: int) -> Stored:
        import pyarrow.parquet as pq

        with _reading(self.what), self._opened() as stream:
            column = pq.ParquetFile(stream).read_row_group(number, columns=[self._column], use_threads=False).column(0)
            return _numbers(column, self.what, self.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        """A file of this machine is opened by its path."""
        return {**self.__dict__, "_opened": None if self._file is not None else self._opened}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._file is not None:
            path = self._file.path
            self._opened = lambda: path.open("rb")


class PackedArrowFeatures(GroupedFeatures):
    """An Arrow file whose batches are compressed."""

    def __init__(self, path: Path, sizes: list[int], column: str, columns: int, dtype: "np.dtype[Any]") -> None:
        self._file, self._column = LocalFile(path), column
        super().__init__(sizes, columns, dtype, str(path))

    def check(self) -> None:
        """See `Features.check`."""
        self._file.check()

    def _group(self, number: int) -> Stored:
        pa = _pyarrow()
        with _reading(self.what), pa.memory_map(self.what) as mapped:
            batch = pa.ipc.open_file(mapped).get_batch(number)
            return _numbers(batch.column(self._column), self.what, self.shape[1])


def open_arrow(path: Path) -> Features:
    """An Arrow (Feather) file with one column of fixed-size lists."""
    pa = _pyarrow()
    if not path.is_file():
        raise InvalidInputError(f"{path} is missing; check the path", code="features")
    with _reading(str(path)), pa.memory_map(str(path)) as mapped:
        whole = mapped.read_buffer()
        reader = pa.ipc.open_file(mapped)
        name, columns, dtype = _list_column(reader.schema, str(path))
        batches = [reader.get_batch(k).column(name) for k in range(reader.num_record_batches)]
        places, sizes = [], [len(one) for one in batches]
        for batch in batches:
            values: NDArray[Any] = _numbers(batch, str(path), columns)
            place = values.ctypes.data - whole.address
            places.append(place if 0 <= place < whole.size and len(values) else None)
    if None in places:
        return PackedArrowFeatures(path, sizes, name, columns, dtype)
    file = LocalFile(path)
    pieces = [
        RawFeatures(file, place, (rows, columns), dtype)
        for place, rows in zip(places, sizes, strict=True)
        if place is not None
    ]
    return ShardedFeatures(pieces, str(path))
