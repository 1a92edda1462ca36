"""The demo: real digits and the votes of simple rules; labels by simulated people, or a campaign to label by hand."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labelchef.base.arrays import Floats
from labelchef.base.campaigns import CampaignSummary
from labelchef.base.errors import InvalidInputError
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData, Known
from labelchef.data.contents import Contents
from labelchef.data.files.artefacts import IDENTITY, LEDGER
from labelchef.data.files.digits import DigitsData, load_digits_demo
from labelchef.judge.report import require_report
from labelchef.loop.clean import PROOF, SOURCES, Answers, CleanOutcome, Watcher, clean

if TYPE_CHECKING:
    from labelchef.server.workspace import Workspace

NAME = "Digits"
_FILES = (
    "cleaned_labels.csv", "model.npz", "history.csv", "summary.json", SOURCES, PROOF, "report.html", LEDGER, IDENTITY,
)  # fmt: skip
_PIXELS = 96


def demo(folder: Path, *, seed: int = 0, report: bool = True, watcher: Watcher | None = None) -> CleanOutcome:
    """Clean the digits and write everything to `folder`."""
    digits = load_digits_demo(seed)
    settings = Settings(people=3, budget=200, batch_size=10, seed=seed)
    answers, title = Answers(truth=digits.y.tolist()), "labelchef demo: digits"
    return clean(_data(digits), answers, settings, folder, title=title, report=report, watcher=watcher)


def fresh_folder(folder: Path, *, report: bool) -> None:
    """Clear an earlier demo away, if a new one can be made; a folder that holds anything else is not touched."""
    if report:
        require_report()
    if not folder.exists():
        return
    there = list(folder.iterdir()) if folder.is_dir() else [folder]
    strangers = [entry.name for entry in there if entry == folder or entry.name not in _FILES]
    if strangers:
        raise InvalidInputError(f"{folder} holds {strangers[0]!r}, which no demo wrote; name another --out", code="out")
    for entry in there:
        entry.unlink()


def demo_campaign(ws: "Workspace", *, seed: int = 0) -> CampaignSummary:
    """The demo campaign of this workspace, made if there is none: one person, ten items a round, a tenth of them blind."""
    from labelchef.server.campaigns.campaigns import create_campaign, list_campaigns

    there = next((one for one in list_campaigns(ws) if one.name == NAME), None)
    if there is not None:
        return there
    digits = load_digits_demo(seed)
    settings = Settings(budget=200, batch_size=10, people=1, audit=0.1, blind_share=0.1, seed=seed)
    with tempfile.TemporaryDirectory(prefix="labelchef-digits-") as folder:
        media = Path(folder)
        items = _written(media, "train", digits.images)
        val_items = _written(media, "val", digits.X_val.reshape(-1, 8, 8) * 16)
        return create_campaign(ws, NAME, _data(digits, Contents(items, val_items, media=media)), settings, "demo")


def _data(digits: DigitsData, contents: Contents | None = None) -> CampaignData:
    votes, votes_val = (pd.DataFrame(table, columns=digits.sources) for table in (digits.votes, digits.votes_val))
    return CampaignData.of(
        digits.X,
        votes=votes,
        votes_val=votes_val,
        X_val=digits.X_val,
        y_val=digits.y_val,
        classes=list(range(10)),
        known=Known(X_test=digits.X_test, y_test=digits.y_test),
        contents=contents,
    )


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
