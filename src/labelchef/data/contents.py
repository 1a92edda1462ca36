"""What people see of the items of a campaign, and what the items are called: read a piece at a time, checked, made into rows.

A table is a frame, or a file (`data.files.items_file`) of which only a piece is in memory. Ids are compared by 64-bit digests,
8 bytes an item; those with equal digests are then compared as texts.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from labelchef.base.arrays import Ints
from labelchef.base.campaigns import NewItem, SplitName
from labelchef.base.errors import InvalidInputError
from labelchef.base.records import UNRESOLVED
from labelchef.data.files.formats import IMAGE_SUFFIXES
from labelchef.data.files.items_file import ItemsFile

LONGEST_KEY = 200
"""Characters of an id."""
_AT_ONCE = 10_000
_VALIDATION, _TEST = "val-", "test-"
ItemTable: TypeAlias = pd.DataFrame | ItemsFile


@dataclass(frozen=True)
class Contents:
    """Tables with the columns id, text, image, a row a sample; every other column is a field."""

    items: ItemTable | None = None
    val_items: ItemTable | None = None
    test_items: ItemTable | None = None
    media: Path | None = None
    """The folder that the images are in."""
    more_images: tuple[str, ...] = ()
    """Fields that are images too, in their order."""

    def check(self, n_train: int, n_val: int, n_test: int = 0) -> None:
        """Refuse tables of another length, ids that repeat, images that are not there."""
        tables_of = (
            (self.items, n_train, "items"),
            (self.val_items, n_val, "val_items"),
            (self.test_items, n_test, "test_items"),
        )
        for table, rows, what in tables_of:
            if table is not None:
                _check_items(table, rows, what, self.media, self.more_images)
        both = [key for key in self.val_keys(n_train, n_val) if self._in_train(key, n_train)]
        if both:
            raise InvalidInputError(
                f"the id {min(both)!r} names a training and a validation item; expected distinct ids", code="items"
            )

    def val_keys(self, n_train: int, n_val: int) -> list[str]:
        """What validation items are called: their ids, with 'val-' before them where training items use the same."""
        ids = ids_of(self.val_items)
        if ids and not any(self._in_train(key, n_train) for key in ids):
            return ids
        return [f"{_VALIDATION}{k}" for k in ids or range(n_val)]

    def rows(self, clean: Ints, y_val: Ints, y_test: Ints | None) -> Iterator[NewItem]:
        """The items of all splits, to be stored; training items are called by their ids, else by row numbers."""
        more, n = self.more_images, len(clean)
        yield from _rows(SplitName.TRAIN, None, clean, self.items, more)
        val_keys = self.val_keys(n, len(y_val))
        yield from _rows(SplitName.VALIDATION, val_keys, y_val, self.val_items, more)
        if y_test is not None:
            ids, taken = ids_of(self.test_items), set(val_keys)
            if ids is None or any(key in taken or self._in_train(key, n) for key in ids):
                ids = [f"{_TEST}{k}" for k in ids or range(len(y_test))]
            yield from _rows(SplitName.TEST, ids, y_test, self.test_items, more)

    def images(self) -> list[str]:
        """The images that items name, below the media folder."""
        tables_of = [one for one in (self.items, self.val_items, self.test_items) if one is not None]
        columns = ("image", *self.more_images)
        return sorted(
            {name for table in tables_of for part in pieces(table, columns) for name in _image_names(part, columns)}
        )

    def _in_train(self, key: str, n_train: int) -> bool:
        """Whether a training item has a name that is in question for an item of another split."""
        if self.items is None or "id" not in self.items.columns:
            return key.isdecimal() and key == str(int(key)) and int(key) < n_train
        return key in self._in_question

    @cached_property
    def _in_question(self) -> frozenset[str]:
        """Ids of training items that validation or test items have or may get."""
        assert self.items is not None, "asked of training items with ids"
        others = {*(ids_of(self.val_items) or ()), *(ids_of(self.test_items) or ())}
        return frozenset(
            key
            for part in pieces(self.items, ["id"])
            for key in _ids(part)
            if key in others or key.startswith((_VALIDATION, _TEST))
        )


def ids_of(table: ItemTable | None) -> list[str] | None:
    """The ids of all rows, None if there are none."""
    if table is None or "id" not in table.columns:
        return None
    return [key for part in pieces(table, ["id"]) for key in _ids(part)]


def is_key(text: str) -> bool:
    """Whether a text can be an id: printable, not empty, not too long, without spaces around it."""
    return 0 < len(text) <= LONGEST_KEY and text.isprintable() and text == text.strip()


def pieces(table: ItemTable, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
    """The rows in pieces, with those of the named columns that are there."""
    named = None if columns is None else [name for name in columns if name in table.columns]
    if named == []:
        return
    if isinstance(table, ItemsFile):
        yield from table.parts(named)
        return
    held = table if named is None else table[named]
    for start in range(0, len(held), _AT_ONCE):
        yield held.iloc[start : start + _AT_ONCE]


def _ids(part: pd.DataFrame) -> list[str]:
    return [str(value) for value in part["id"].tolist()]


def _check_items(table: ItemTable, rows: int, what: str, media: Path | None, more: Sequence[str]) -> None:
    if len(table) != rows:
        raise InvalidInputError(
            f"{what} has {len(table)} rows; expected {rows}, one for each row of its features", code="items"
        )
    digests = []
    for part in pieces(table, ["id"]):
        keys = _ids(part)
        wrong = next((key for key in keys if not is_key(key)), None)
        if wrong is not None:
            raise InvalidInputError(
                f"{what}: {wrong!r} cannot be an id; expected 1 to {LONGEST_KEY} printable characters", code="items"
            )
        digests.append(_digests(keys))
    twice = _first_twice(table, np.concatenate(digests)) if digests else None
    if twice is not None:
        raise InvalidInputError(f"{what}: the id {twice!r} occurs twice; expected distinct ids", code="items")
    columns = ("image", *more)
    for name in (name for part in pieces(table, columns) for name in _image_names(part, columns)):
        _check_image(name, what, media)


def _digests(keys: list[str]) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.asarray(pd.util.hash_array(np.array(keys, dtype=object), categorize=False), dtype=np.uint64)


def _first_twice(table: ItemTable, digests: "np.ndarray[Any, np.dtype[np.uint64]]") -> str | None:
    """An id that occurs twice."""
    ordered = np.sort(digests)
    equal = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(equal):
        return None
    times: Counter[str] = Counter()
    for part in pieces(table, ["id"]):
        keys = _ids(part)
        times.update(keys[k] for k in np.flatnonzero(np.isin(_digests(keys), equal)).tolist())
    return next((key for key, count in times.items() if count > 1), None)


def _check_image(name: str, what: str, media: Path | None) -> None:
    if media is None:
        raise InvalidInputError(f"{what} names the image {name!r}, but no media folder was given", code="media")
    path, file = PurePosixPath(name), media / name
    inside = not path.is_absolute() and ".." not in path.parts and "\\" not in name
    if not inside or path.suffix.lower() not in IMAGE_SUFFIXES:
        raise InvalidInputError(
            f"{what}: {name!r} is no image in the media folder; expected a path below it that ends in "
            f"{', '.join(IMAGE_SUFFIXES)}",
            code="media",
        )
    if not file.is_file() or not file.resolve().is_relative_to(media.resolve()):
        raise InvalidInputError(f"{what}: there is no image {file}; check the media folder", code="media")


def _image_names(part: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    values = [_plain(value) for name in columns if name in part.columns for value in part[name].tolist()]
    return [str(value) for value in values if value not in (None, "")]


def _rows(
    split: SplitName, keys: list[str] | None, labels: Ints, table: ItemTable | None, more_images: Sequence[str]
) -> Iterator[NewItem]:
    """The rows of a split; without `keys` they are called by the ids of the table, else by their numbers."""
    at = 0
    for part in _parts_of(table, len(labels)):
        n = len(part)
        columns = {str(name): part[name].tolist() for name in part.columns if name != "id"}
        own = _ids(part) if "id" in part.columns else [str(k) for k in range(at, at + n)]
        texts, images = (_told(columns.pop(name, None), n) for name in ("text", "image"))
        fields = [dict(zip(columns, map(_plain, row), strict=True)) for row in zip(*columns.values(), strict=True)]
        for k, label in enumerate(labels[at : at + n].tolist()):
            shown = fields[k] if fields else None
            yield NewItem(
                split=split,
                position=at + k,
                key=own[k] if keys is None else keys[at + k],
                text=texts[k],
                image=images[k],
                fields=shown or None,
                label=None if label == UNRESOLVED else label,
                images=tuple(name for name in more_images if (shown or {}).get(name)) or None,
            )
        at += n


def _parts_of(table: ItemTable | None, rows: int) -> Iterator[pd.DataFrame]:
    """Pieces of a table; pieces without columns where there is none."""
    if table is not None and len(table.columns):
        yield from pieces(table)
        return
    for start in range(0, rows, _AT_ONCE):
        yield pd.DataFrame(index=range(min(_AT_ONCE, rows - start)))


def _told(values: list[Any] | None, n: int) -> list[str | None]:
    """Texts, None where nothing is said."""
    if values is None:
        return [None] * n
    return [None if value in (None, "") else str(value) for value in map(_plain, values)]


def _plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    if isinstance(value, str):
        return value
    if value is None or value != value or value in (math.inf, -math.inf):
        return None
    return value if isinstance(value, bool | int | float) else str(value)
