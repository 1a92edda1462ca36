"""What people see of the samples: names, texts, images and fields."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from labelchef.domain.arrays import Ints
from labelchef.domain.campaigns import NewItem, SplitName
from labelchef.domain.errors import InvalidInputError
from labelchef.domain.records import UNRESOLVED

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_LONGEST_KEY = 200


@dataclass(frozen=True)
class Contents:
    """Tables with the columns id, text, image, a row a sample; every other column is a field."""

    items: pd.DataFrame | None = None
    val_items: pd.DataFrame | None = None
    media: Path | None = None
    """The folder that the images are in."""

    def check(self, n_train: int, n_val: int) -> None:
        """Refuse tables of another length, ids that repeat, images that are not there."""
        for frame, rows, what in ((self.items, n_train, "items"), (self.val_items, n_val, "val_items")):
            if frame is not None:
                _check_items(frame, rows, what, self.media)
        both = set(self.keys(n_train)) & set(self.val_keys(n_train, n_val))
        if both:
            raise InvalidInputError(
                f"the id {min(both)!r} names a training and a validation item; expected distinct ids", code="items"
            )

    def keys(self, n_train: int) -> list[str]:
        """What training items are called: their ids, else row numbers."""
        return _ids(self.items) or [str(k) for k in range(n_train)]

    def val_keys(self, n_train: int, n_val: int) -> list[str]:
        """What validation items are called: their ids, with 'val-' before them where training items use the same."""
        ids = _ids(self.val_items)
        if ids and not set(ids) & set(self.keys(n_train)):
            return ids
        return [f"val-{k}" for k in ids or range(n_val)]

    def rows(self, clean: Ints, y_val: Ints, y_test: Ints | None) -> Iterator[NewItem]:
        """The items of all splits, to be stored."""
        yield from _rows(SplitName.TRAIN, self.keys(len(clean)), clean, self.items)
        yield from _rows(SplitName.VALIDATION, self.val_keys(len(clean), len(y_val)), y_val, self.val_items)
        if y_test is not None:
            yield from _rows(SplitName.TEST, [f"test-{k}" for k in range(len(y_test))], y_test, None)

    def images(self) -> list[str]:
        """The images that items name, below the media folder."""
        frames = [frame for frame in (self.items, self.val_items) if frame is not None]
        return sorted({name for frame in frames for name in _image_names(frame)})


def _check_items(frame: pd.DataFrame, rows: int, what: str, media: Path | None) -> None:
    if len(frame) != rows:
        raise InvalidInputError(
            f"{what} has {len(frame)} rows; expected {rows}, one for each row of its features", code="items"
        )
    keys = _ids(frame) or []
    twice = [key for key, times in Counter(keys).items() if times > 1]
    if twice:
        raise InvalidInputError(f"{what}: the id {twice[0]!r} occurs twice; expected distinct ids", code="items")
    wrong = next((k for k in keys if not 0 < len(k) <= _LONGEST_KEY or not k.isprintable() or k != k.strip()), None)
    if wrong is not None:
        raise InvalidInputError(
            f"{what}: {wrong!r} cannot be an id; expected 1 to {_LONGEST_KEY} printable characters", code="items"
        )
    for name in _image_names(frame):
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


def _image_names(frame: pd.DataFrame) -> list[str]:
    values = map(_plain, frame["image"].tolist() if "image" in frame.columns else [])
    return [str(value) for value in values if value not in (None, "")]


def _ids(frame: pd.DataFrame | None) -> list[str] | None:
    return None if frame is None or "id" not in frame.columns else [str(v) for v in frame["id"].tolist()]


def _rows(split: SplitName, keys: list[str], labels: Ints, frame: pd.DataFrame | None) -> Iterator[NewItem]:
    shown = [{}] * len(keys) if frame is None else frame.drop(columns="id", errors="ignore").to_dict("records")
    for k, (key, label, values) in enumerate(zip(keys, labels.tolist(), shown, strict=True)):
        fields = {str(name): _plain(value) for name, value in values.items()}
        text, image = (fields.pop(name, None) for name in ("text", "image"))
        yield NewItem(
            split=split,
            position=k,
            key=key,
            text=None if text in (None, "") else str(text),
            image=None if image in (None, "") else str(image),
            fields=fields or None,
            label=None if label == UNRESOLVED else label,
        )


def _plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    if value is None or value != value or value in (math.inf, -math.inf):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)
