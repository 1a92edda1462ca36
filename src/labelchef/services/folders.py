"""The folders in which the arrays and media of campaigns are."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from labelchef.domain.errors import StoreError
from labelchef.services.workspace import CAMPAIGNS, Workspace

if TYPE_CHECKING:
    from labelchef.campaign.data import CampaignData
    from labelchef.store.arrays import ArrayFacts
    from labelchef.store.rows import CampaignRow


def folder_of(ws: Workspace, campaign: "CampaignRow") -> Path:
    """The folder of a campaign, whether this home holds it or not."""
    return ws.home / CAMPAIGNS / campaign.public_id


def require_folder(ws: Workspace, campaign: "CampaignRow") -> Path:
    """The folder of a campaign; refused if this home does not hold it."""
    folder = folder_of(ws, campaign)
    if not folder.is_dir():
        raise StoreError(
            f"the folder {folder} of campaign {campaign.slug!r} is missing: this home does not hold its files. "
            f"Use the --home in which {CAMPAIGNS}/{campaign.public_id} lies, or restore that folder from a copy",
            code="folder",
        )
    return folder


def store_data(data: "CampaignData", folder: Path) -> "list[ArrayFacts]":
    """Write arrays and images into a new campaign's folder."""
    from labelchef.store.arrays import write_array

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
