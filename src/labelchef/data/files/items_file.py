"""What people see of each sample, in a file that is read a piece at a time: memory for one piece, however many rows there are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from labelchef.data.files import tables
from labelchef.data.files.columnar import look_at_parquet, typed_parts
from labelchef.data.files.formats import text_of


@dataclass(frozen=True)
class ItemsFile:
    """A Parquet file with the columns id, text and image where there are such; every other column is a field."""

    path: Path
    n_rows: int
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return self.n_rows

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """The rows in their order, some thousand at a time, with these columns only; `read_items` gives all at once."""
        for frame in typed_parts(self.path, columns):
            if "id" in frame.columns:
                ids = frame["id"].tolist()
                texts = [one if isinstance(one, str) else text_of(one) or "" for one in ids]
                frame["id"] = pd.Series(texts, dtype=object)
            yield frame

    def whole(self) -> pd.DataFrame:
        """All rows at once."""
        return tables.read_items(self.path, "items")


def open_items(path: Path, what: str) -> pd.DataFrame | ItemsFile:
    """A file of items: Parquet is read when it is needed, every other format at once."""
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return tables.read_items(path, what)
    try:
        n_rows, names = look_at_parquet(path)
    except Exception:  # whoever reads it says what is wrong with it
        return tables.read_items(path, what)
    if len(set(names)) < len(names):
        return tables.read_items(path, what)
    return ItemsFile(path, n_rows, tuple(names))
