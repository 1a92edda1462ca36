"""Read and check the files a campaign is made of, before anything of it is stored."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd

from labelchef.campaign.holdout import check_judges, draw_judges
from labelchef.campaign.inputs import ClassNames, as_evaluation_labels, as_features, as_weak_labels
from labelchef.campaign.metrics import check_metric
from labelchef.campaign.tuning import tune
from labelchef.constructors import make_constructor
from labelchef.domain.arrays import Float64s, Floats, Ints
from labelchef.domain.campaigns import CampaignFiles, SplitName
from labelchef.domain.errors import InvalidInputError, StoreError
from labelchef.domain.records import UNRESOLVED
from labelchef.domain.settings import Settings
from labelchef.domain.strengths import fixed
from labelchef.io import tables
from labelchef.selectors import make_selector, require_suggestions
from labelchef.store.arrays import ArrayFacts, write_array
from labelchef.store.rows import NewItem

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_LONGEST_KEY = 200


@dataclass(frozen=True)
class CampaignData:
    """A campaign's data in memory: arrays as they will be stored, labels as class positions, contents of items.

    `items` and `val_items` are tables with the columns id, text, image; every other column is a field.
    """

    X: Floats
    weak: Float64s
    classes: tuple[str, ...]
    X_val: Floats
    y_val: Ints
    X_test: Floats | None = None
    y_test: Ints | None = None
    clean: Ints | None = None
    items: pd.DataFrame | None = None
    val_items: pd.DataFrame | None = None
    media: Path | None = None

    def rows(self) -> Iterator[NewItem]:
        """The items of all splits, to be stored."""
        yield from _rows(SplitName.TRAIN, self.keys(), self.clean, self.items)
        yield from _rows(SplitName.VALIDATION, self.val_keys(), self.y_val, self.val_items)
        if self.X_test is not None:
            keys = [f"test-{k}" for k in range(len(self.X_test))]
            yield from _rows(SplitName.TEST, keys, self.y_test, None)

    def keys(self) -> list[str]:
        """What training items are called: their ids, else row numbers."""
        return _ids(self.items) or [str(k) for k in range(len(self.X))]

    def val_keys(self) -> list[str]:
        """What validation items are called: their ids, with 'val-' before them where training items use the same."""
        ids = _ids(self.val_items)
        if ids and not set(ids) & set(self.keys()):
            return ids
        return [f"val-{k}" for k in ids or range(len(self.X_val))]


def read_files(files: CampaignFiles) -> CampaignData:
    """Read every file, or say which cannot be used and why."""
    weak_frame = tables.read_weak_labels(files.weak)
    names = ClassNames([str(column) for column in weak_frame.columns])
    X = as_features(tables.read_features(files.features, "features"), "features")
    weak = as_weak_labels(weak_frame, len(X), "weak labels")
    X_val = as_features(
        tables.read_features(files.val_features, "validation features"), "validation features", columns=X.shape[1]
    )
    y_val = tables.read_labels(files.val_labels, "validation labels")
    if (files.test_features is None) != (files.test_labels is None):
        raise InvalidInputError("test features and test labels belong together; one of them is missing", code="test")
    X_test = y_test = clean = None
    if files.test_features is not None and files.test_labels is not None:
        X_test = as_features(
            tables.read_features(files.test_features, "test features"), "test features", columns=X.shape[1]
        )
        found = tables.read_labels(files.test_labels, "test labels")
        y_test = as_evaluation_labels(found, names, len(X_test), "test labels")
    if files.clean_labels is not None:
        clean = names.encode(tables.read_labels(files.clean_labels, "clean labels"), "clean labels", allow_missing=True)
    return CampaignData(
        X=X,
        weak=weak,
        classes=tuple(str(name) for name in names.names),
        X_val=X_val,
        y_val=as_evaluation_labels(y_val, names, len(X_val), "validation labels", must_cover=True),
        X_test=X_test,
        y_test=y_test,
        clean=clean,
        items=None if files.items is None else tables.read_items(files.items, "items"),
        val_items=None if files.val_items is None else tables.read_items(files.val_items, "validation items"),
        media=files.media,
    )


def find_files(folder: Path) -> CampaignFiles:
    """The files of a campaign by their conventional names in a folder."""
    if not folder.is_dir():
        raise InvalidInputError(f"there is no folder {folder}; check the path", code="folder")

    def find(stem: str, suffixes: tuple[str, ...]) -> Path | None:
        return next((folder / f"{stem}{s}" for s in suffixes if (folder / f"{stem}{s}").is_file()), None)

    def must(stem: str, suffixes: tuple[str, ...]) -> Path:
        path = find(stem, suffixes)
        if path is None:
            raise InvalidInputError(
                f"{folder} holds no {stem} file; expected {stem}{suffixes[0]} or another of {', '.join(suffixes)}",
                code="folder",
            )
        return path

    rows, labels, items = tables.FEATURE_SUFFIXES, (".csv", ".npy", ".parquet", ".jsonl"), tables.ITEM_SUFFIXES
    media = folder / "media"
    return CampaignFiles(
        features=must("features", rows),
        weak=must("weak", labels),
        val_features=must("val_features", rows),
        val_labels=must("val_labels", labels),
        test_features=find("test_features", rows),
        test_labels=find("test_labels", labels),
        clean_labels=find("clean_labels", labels),
        items=find("items", items),
        val_items=find("val_items", items),
        media=media if media.is_dir() else None,
    )


def check_data(data: CampaignData, settings: Settings) -> None:
    """Everything that would make the first model fail, said before the campaign exists."""
    if data.clean is not None and len(data.clean) != len(data.X):
        raise InvalidInputError(
            f"clean labels have {len(data.clean)} entries; expected {len(data.X)}, as the features have", code="labels"
        )
    selector = make_selector(settings.selector, look_ahead=settings.look_ahead)
    if settings.suggestion_votes:
        require_suggestions(selector)
    make_constructor(settings.constructor, tol=1e-6)
    check_metric(settings.target_metric, len(data.classes))
    for frame, rows, what in ((data.items, len(data.X), "items"), (data.val_items, len(data.X_val), "val_items")):
        if frame is not None:
            _check_items(frame, rows, what, data.media)
    both = set(data.keys()) & set(data.val_keys())
    if both:
        raise InvalidInputError(
            f"the id {min(both)!r} names a training and a validation item; expected distinct ids", code="items"
        )
    judges = draw_judges(data.y_val, len(data.classes), settings.holdout, settings.seed)
    check_judges(data.y_val[judges], data.y_val[~judges], settings.holdout, read=settings.target is not None)


def with_strengths(data: CampaignData, settings: Settings) -> Settings:
    """The settings with gamma and l2 as numbers: 'auto' is chosen once, by the samples that steer, and stays."""
    gamma, l2 = fixed(settings.gamma), fixed(settings.l2)
    if gamma is not None and l2 is not None:
        return settings
    steer = ~draw_judges(data.y_val, len(data.classes), settings.holdout, settings.seed)
    clean = np.full(len(data.X), UNRESOLVED) if data.clean is None else data.clean
    tuned = tune(data.X, data.weak, clean, data.X_val[steer], data.y_val[steer], gamma=gamma, l2=l2, seed=settings.seed)
    return replace(settings, gamma=tuned.gamma, l2=tuned.l2)


def store_files(data: CampaignData, folder: Path) -> list[ArrayFacts]:
    """Write arrays and media into a new campaign's folder."""
    try:
        folder.mkdir(parents=True)
        (folder / "media").mkdir()
        for name in _images(data):
            assert data.media is not None
            target = folder / "media" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(data.media / name, target)
        arrays = {"features": data.X, "weak": data.weak, "val_features": data.X_val, "test_features": data.X_test}
        return [write_array(folder, name, array) for name, array in arrays.items() if array is not None]
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}; no campaign was made. "
            "Make room or check the rights",
            code="disk_full" if error.errno == 28 else "folder",
        ) from None


def _check_items(frame: pd.DataFrame, rows: int, what: str, media: Path | None) -> None:
    if len(frame) != rows:
        raise InvalidInputError(
            f"{what} has {len(frame)} rows; expected {rows}, one for each row of its features", code="items"
        )
    keys = _ids(frame) or []
    if len(set(keys)) != len(keys):
        twice = pd.Series(keys)[pd.Series(keys).duplicated()].iloc[0]
        raise InvalidInputError(f"{what}: the id {twice!r} occurs twice; expected distinct ids", code="items")
    wrong = next((k for k in keys if not 0 < len(k) <= _LONGEST_KEY or not k.isprintable() or k != k.strip()), None)
    if wrong is not None:
        raise InvalidInputError(
            f"{what}: {wrong!r} is no id; expected 1 to {_LONGEST_KEY} printable characters", code="items"
        )
    for name in _image_names(frame):
        path = PurePosixPath(name)
        if media is None:
            raise InvalidInputError(f"{what} names the image {name!r}, but no media folder was given", code="media")
        inside = not path.is_absolute() and ".." not in path.parts and "\\" not in name
        if not inside or path.suffix.lower() not in IMAGE_SUFFIXES:
            raise InvalidInputError(
                f"{what}: {name!r} is no image in the media folder; expected a path below it that ends in "
                f"{', '.join(IMAGE_SUFFIXES)}",
                code="media",
            )
        file = media / name
        if not file.is_file() or not file.resolve().is_relative_to(media.resolve()):
            raise InvalidInputError(f"{what}: there is no image {file}; check the media folder", code="media")


def _images(data: CampaignData) -> list[str]:
    frames = [frame for frame in (data.items, data.val_items) if frame is not None]
    return sorted({name for frame in frames for name in _image_names(frame)})


def _image_names(frame: pd.DataFrame) -> list[str]:
    values = frame["image"].tolist() if "image" in frame.columns else []
    return [str(value) for value in values if _present(value)]


def _ids(frame: pd.DataFrame | None) -> list[str] | None:
    return None if frame is None or "id" not in frame.columns else [str(v) for v in frame["id"].tolist()]


def _rows(split: SplitName, keys: list[str], labels: Ints | None, frame: pd.DataFrame | None) -> Iterator[NewItem]:
    count = len(keys)
    blank: list[Any] = [None] * count
    columns = [] if frame is None else list(frame.columns)
    text = frame["text"].tolist() if frame is not None and "text" in columns else blank
    image = frame["image"].tolist() if frame is not None and "image" in columns else blank
    others = [c for c in columns if c not in ("id", "text", "image")]
    values = {str(c): [_plain(v) for v in frame[c].tolist()] for c in others} if frame is not None else {}
    given = blank if labels is None else [None if v == UNRESOLVED else int(v) for v in np.asarray(labels).tolist()]
    for k in range(count):
        yield NewItem(
            split=split,
            position=k,
            key=keys[k],
            text=str(text[k]) if _present(text[k]) else None,
            image=str(image[k]) if _present(image[k]) else None,
            fields={name: column[k] for name, column in values.items()} or None,
            label=given[k],
        )


def _present(value: Any) -> bool:
    return value is not None and value == value and value != ""


def _plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    if value is None or value != value:
        return None
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return str(value)
