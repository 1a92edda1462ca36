"""The folders in which the arrays and media of campaigns are."""

from pathlib import Path
from typing import TYPE_CHECKING

from labelchef.domain.errors import StoreError
from labelchef.services.workspace import CAMPAIGNS, Workspace

if TYPE_CHECKING:
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
