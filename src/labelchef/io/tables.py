"""Reading features, labels and votes from files. What cannot be read is refused with the file's name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labelchef.domain.errors import InvalidInputError, MissingExtraError

FEATURE_SUFFIXES = (".npy", ".npz", ".parquet", ".csv")
TABLE_SUFFIXES = (".npy", ".npz", ".parquet", ".csv", ".jsonl")


def read_features(path: Path, what: str) -> Any:
    """An array (memory-mapped for .npy) or a frame of numbers."""
    return _read(path, what, FEATURE_SUFFIXES)


def read_weak_labels(path: Path) -> Any:
    """Probabilities (n, C); the columns of a .parquet or .csv name the classes, as numbers where all are numbers."""
    data = _read(path, "weak labels", TABLE_SUFFIXES)
    if isinstance(data, pd.DataFrame):
        columns = [str(column) for column in data.columns]
        data.columns = pd.Index([int(c) for c in columns] if all(map(_is_whole, columns)) else columns)
    return data


def read_labels(path: Path, what: str) -> list[Any]:
    """One label a sample: a one-dimensional array, or a table's column 'label', or its only column."""
    data = _read(path, what, TABLE_SUFFIXES)
    if isinstance(data, pd.DataFrame):
        if "label" not in data.columns and data.shape[1] != 1:
            raise InvalidInputError(
                f"{what}: {path} has columns {list(data.columns)[:10]}; expected a column 'label', or one column",
                code="file",
            )
        column = data["label"] if "label" in data.columns else data.iloc[:, 0]
        return _answers(column)
    if data.ndim == 2 and data.shape[1] == 1:
        data = data[:, 0]
    if data.ndim != 1:
        raise InvalidInputError(f"{what}: {path} has shape {data.shape}; expected one label a sample", code="file")
    return list(data.tolist())


def read_votes(path: Path) -> pd.DataFrame:
    """Votes as a table with the columns item, annotator and label."""
    data = _read(path, "votes", (".csv", ".parquet", ".jsonl"))
    wanted = ["item", "annotator", "label"]
    missing = [name for name in wanted if name not in data.columns]
    if missing:
        raise InvalidInputError(
            f"votes: {path} has columns {list(data.columns)[:10]}; expected item, annotator and label",
            code="file",
        )
    items = pd.to_numeric(data["item"], errors="coerce")
    if items.isna().any() or (items != items.round()).any() or (items < 0).any():
        raise InvalidInputError(
            f"votes: {path} has items that are no row numbers; expected rows of the training set, counted from 0",
            code="file",
        )
    return pd.DataFrame(
        {
            "item": items.astype(np.int64),
            "annotator": data["annotator"].astype(str),
            "label": pd.Series(_answers(data["label"]), index=data.index, dtype=object),
        }
    )


def _answers(column: "pd.Series[Any]") -> list[Any]:
    """Labels of a column; beside names of text, −1 is read as text too, and still means 'none'."""
    return [-1 if value == "-1" else value for value in column.tolist()]


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _read(path: Path, what: str, suffixes: tuple[str, ...]) -> Any:
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise InvalidInputError(
            f"{what}: {path} ends in {suffix or 'nothing'!r}; expected one of {', '.join(suffixes)}",
            code="file",
        )
    if not path.is_file():
        raise InvalidInputError(f"{what}: there is no file {path}; check the path", code="file")
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": lambda p: np.load(p, mmap_mode="r", allow_pickle=False),
        ".npz": _read_npz,
        ".csv": pd.read_csv,
        ".parquet": _read_parquet,
        ".jsonl": lambda p: pd.read_json(p, lines=True),
    }
    try:
        return readers[suffix](path)
    except (MissingExtraError, InvalidInputError):
        raise
    except Exception as error:  # whatever a reader meets in a file that is not what its name says
        raise InvalidInputError(
            f"{what}: {path} cannot be read as {suffix}: {error}. The file may be cut off or of another format; "
            "write it again",
            code="file",
        ) from None


def _read_npz(path: Path) -> Any:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        if len(archive.files) != 1:
            raise InvalidInputError(
                f"{path} holds the arrays {archive.files}; expected one. Save the wanted one on its own",
                code="file",
            )
        return archive[archive.files[0]]


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            f"{path}: reading Parquet needs pyarrow; pip install 'labelchef[parquet]'", code="parquet"
        ) from None
    return pd.read_parquet(path)
