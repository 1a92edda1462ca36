"""The demo as a campaign to label by hand: handwritten digits with their images, weak labels from simple rules."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from labelchef.campaign.contents import Contents
from labelchef.campaign.data import CampaignData
from labelchef.domain.arrays import Floats
from labelchef.domain.campaigns import CampaignSummary
from labelchef.domain.settings import Settings
from labelchef.io.digits import load_digits_demo
from labelchef.services.campaigns import create_campaign, list_campaigns
from labelchef.services.workspace import Workspace

NAME = "Digits"
_PIXELS = 96


def demo_settings(seed: int = 0) -> Settings:
    """What the demo campaign runs with: one person, ten items a round, a tenth of them blind."""
    return Settings(budget=200, batch_size=10, people=1, target=0.9, blind_share=0.1, seed=seed)


def demo_campaign(ws: Workspace, *, seed: int = 0, by: str = "demo") -> CampaignSummary:
    """The demo campaign of this workspace, made if there is none."""
    there = next((one for one in list_campaigns(ws) if one.name == NAME), None)
    if there is not None:
        return there
    data = load_digits_demo(seed)
    with tempfile.TemporaryDirectory(prefix="labelchef-digits-") as folder:
        media = Path(folder)
        items = _written(media, "train", data.images)
        val_items = _written(media, "val", data.X_val.reshape(-1, 8, 8) * 16)
        whole = CampaignData.of(
            data.X,
            data.Y_weak,
            X_val=data.X_val,
            y_val=data.y_val,
            X_test=data.X_test,
            y_test=data.y_test,
            contents=Contents(items, val_items, media),
        )
        return create_campaign(ws, NAME, whole, demo_settings(seed), by)


def _written(folder: Path, prefix: str, images: Floats) -> pd.DataFrame:
    """Images as dark ink on paper, enlarged so that they can be looked at; a table of their names."""
    from PIL import Image

    names = []
    for k, image in enumerate(images):
        paper = np.clip(255.0 - np.pad(image, 1) * (255.0 / 16.0), 0, 255).astype(np.uint8)
        name = f"{prefix}-{k:04d}.png"
        Image.fromarray(paper).resize((_PIXELS, _PIXELS), Image.Resampling.BICUBIC).save(folder / name)
        names.append(name)
    return pd.DataFrame({"id": [name.removesuffix(".png") for name in names], "image": names})
