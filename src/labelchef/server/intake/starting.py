"""From files to a campaign: look at them, show what would be made of them, then make it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labelchef.base.campaigns import CampaignFiles, CampaignSummary
from labelchef.base.intake import ColumnRole, Preview, Progress, no_progress
from labelchef.base.settings import Settings
from labelchef.data.campaign_data import CampaignData
from labelchef.data.encoders.specs import AUTO, EncoderSpecs
from labelchef.data.files.queries import SqlQuery
from labelchef.data.intake.arrays import look_at_arrays
from labelchef.data.intake.assembling import assemble
from labelchef.data.intake.detecting import Given, detect
from labelchef.data.intake.joining import join
from labelchef.data.intake.looking import preview
from labelchef.data.intake.raw import Raw
from labelchef.data.intake.voting import with_sources
from labelchef.loop.start import check_pilot
from labelchef.server.campaigns.campaigns import create_campaign
from labelchef.server.sources.campaign_rules import arrays_to_keep, kept_of
from labelchef.server.workspace import Workspace

CACHE = "encoded"
"""Folder of a workspace that keeps what networks computed of texts and images."""


@dataclass(frozen=True)
class Looked:
    """Files that were read: their joined rows, or arrays; and what people see of them first."""

    content: Raw | CampaignData
    preview: Preview


def look(
    paths: Sequence[Path | str | SqlQuery] | CampaignFiles,
    given: Given | None = None,
    *,
    automatic: Sequence[str] = (),
    seed: int = 0,
    rows: int = 20,
    progress: Progress = no_progress,
) -> Looked:
    """Read arrays; of other files, find the roles, join the rows, and let rules, functions and automatic sources vote."""
    if isinstance(paths, CampaignFiles):
        progress("reading arrays", 0, 0)
        arrays = look_at_arrays(paths, rows)
        return Looked(arrays.data, arrays.preview)
    plan = detect(paths, given, progress)
    raw = with_sources(join(plan, progress=progress), plan, automatic, seed=seed, progress=progress)
    return Looked(raw, preview(plan, raw, rows))


def start_campaign(
    ws: Workspace,
    name: str,
    content: Raw | CampaignData,
    settings: Settings,
    by: str,
    *,
    specs: EncoderSpecs = (AUTO,),
    progress: Progress = no_progress,
    guidelines: str | None = None,
) -> CampaignSummary:
    """Encode the rows and make a campaign of them, or of arrays as they are.

    What networks compute is kept: a second try goes on where the first ended.
    """
    if isinstance(content, CampaignData):
        return create_campaign(ws, name, content, settings, by, guidelines=guidelines, progress=progress)
    if len(content.trusted) == 0:
        check_pilot(settings)  # before anything is computed
    raw = content
    made = assemble(raw, settings, specs, cache=ws.home / CACHE, progress=progress)
    progress("storing", 0, 0)
    kept = kept_of(raw.rules, raw.columns(ColumnRole.TEXT))
    more = arrays_to_keep(kept, (raw.train.frame, raw.trusted.frame))
    more["encoder"] = np.frombuffer(made.encoder.to_bytes(), dtype=np.uint8)
    return create_campaign(ws, name, made.data, settings, by, guidelines=guidelines, more=more, progress=progress)
