"""The folder of a campaign: its arrays and images."""

import shutil
from pathlib import Path

from labelchef.campaign.data import CampaignData
from labelchef.domain.errors import StoreError
from labelchef.store.arrays import ArrayFacts, write_array


def store_data(data: CampaignData, folder: Path) -> list[ArrayFacts]:
    """Write arrays and images into a new campaign's folder."""
    contents = data.contents
    arrays = {"features": data.X, "weak": data.weak, "val_features": data.validation[0]}
    if data.test is not None:
        arrays["test_features"] = data.test[0]
    try:
        folder.mkdir(parents=True)
        (folder / "media").mkdir()
        for name in contents.images():
            assert contents.media is not None, "contents were checked"
            target = folder / "media" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(contents.media / name, target)
        return [write_array(folder, name, array) for name, array in arrays.items()]
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}; no campaign was made. "
            "Make room or check the rights",
            code="disk_full" if error.errno == 28 else "folder",
        ) from None
