"""`open_features`: which form a place holds, by its name."""

from pathlib import Path

from labelchef.base.errors import InvalidInputError
from labelchef.base.files import is_url
from labelchef.model.features.contract import Features
from labelchef.model.features.npy import NpyFeatures
from labelchef.model.features.shards import open_folder


def open_features(location: str | Path) -> Features:
    """The features at a path or URL; nothing but headers is read.

    `.npy` (float64, float32, float16), `.parquet`, `.arrow`
    and `.feather` with one column of fixed-size lists, a folder of such files, and `.npy`, `.parquet` or a folder
    of them at a URL that fsspec knows (`s3://…`, `https://…`). Shards, Parquet and others need the extra `features`.
    """
    if is_url(location):
        from labelchef.model.features.remote import open_remote

        return open_remote(location)
    path = Path(location)
    if path.is_dir():
        return open_folder(path, open_features)
    if path.suffix == ".npy":
        return NpyFeatures(path)
    if path.suffix == ".parquet":
        from labelchef.model.features.columnar import ParquetFeatures

        return ParquetFeatures(path)
    if path.suffix in (".arrow", ".feather"):
        from labelchef.model.features.columnar import open_arrow

        return open_arrow(path)
    raise InvalidInputError(
        f"{path} cannot be opened as features; expected a .npy, .parquet, .arrow or .feather file, a folder of files, or a "
        "URL",
        code="features",
    )


def is_streamed(location: str | Path) -> bool:
    """Whether a place holds features in a form that only `open_features` reads; others read the rest as arrays or tables."""
    if is_url(location):
        return True
    path = Path(location)
    if path.is_dir() or path.suffix in (".arrow", ".feather"):
        return True
    if path.suffix == ".parquet":
        from labelchef.model.features.columnar import has_lists

        return has_lists(path)
    return path.suffix == ".npy" and path.with_suffix(".scales.npy").is_file()  # int8 of version 0.2, which is refused
