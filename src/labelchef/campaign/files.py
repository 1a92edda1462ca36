"""Campaign data from files: read, joined by row, checked."""

from pathlib import Path

from labelchef.campaign.contents import Contents
from labelchef.campaign.data import CampaignData
from labelchef.domain.campaigns import CampaignFiles
from labelchef.domain.errors import InvalidInputError
from labelchef.io import tables


def read_files(files: CampaignFiles) -> CampaignData:
    """Read every file, or say which one cannot be used and why."""
    if (files.test_features is None) != (files.test_labels is None):
        raise InvalidInputError("X_test and y_test belong together; one of the test files is missing", code="test")
    return CampaignData.of(
        tables.read_features(files.features, "features"),
        tables.read_weak_labels(files.weak),
        X_val=tables.read_features(files.val_features, "validation features"),
        y_val=tables.read_labels(files.val_labels, "validation labels"),
        X_test=None if files.test_features is None else tables.read_features(files.test_features, "test features"),
        y_test=None if files.test_labels is None else tables.read_labels(files.test_labels, "test labels"),
        y_clean=None if files.clean_labels is None else tables.read_labels(files.clean_labels, "clean labels"),
        contents=Contents(
            None if files.items is None else tables.read_items(files.items, "items"),
            None if files.val_items is None else tables.read_items(files.val_items, "validation items"),
            files.media,
        ),
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
