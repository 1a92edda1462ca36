"""From files to a campaign: look at them, show what would be made of them, then make it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labelchef.campaign.start import check_pilot
from labelchef.domain.campaigns import CampaignSummary
from labelchef.domain.intake import ColumnRole, Plan, Preview, Progress, no_progress
from labelchef.domain.settings import Settings
from labelchef.encoders.specs import AUTO, EncoderSpecs
from labelchef.intake.assembling import assemble
from labelchef.intake.detecting import Given, detect
from labelchef.intake.joining import join
from labelchef.intake.looking import preview
from labelchef.intake.raw import Raw
from labelchef.intake.voting import with_sources
from labelchef.io.queries import SqlQuery
from labelchef.services.campaign_rules import arrays_to_keep, kept_of
from labelchef.services.campaigns import create_campaign
from labelchef.services.workspace import Workspace

CACHE = "encoded"
"""Folder of a workspace that keeps what networks computed of texts and images."""


@dataclass(frozen=True)
class Looked:
    """Files that were read: how they are used, their joined rows, and what people see of them first."""

    plan: Plan
    raw: Raw
    preview: Preview


def look(
    paths: Sequence[Path | str | SqlQuery],
    given: Given,
    *,
    automatic: Sequence[str] = (),
    seed: int = 0,
    rows: int = 20,
    progress: Progress = no_progress,
) -> Looked:
    """Detect the roles of files and columns, join the rows, and let rules, functions and automatic sources vote."""
    plan = detect(paths, given, progress)
    raw = with_sources(join(plan, progress=progress), plan, automatic, seed=seed, progress=progress)
    return Looked(plan, raw, preview(plan, raw, rows))


def start_campaign(
    ws: Workspace,
    name: str,
    raw: Raw,
    settings: Settings,
    by: str,
    *,
    specs: EncoderSpecs = (AUTO,),
    progress: Progress = no_progress,
    guidelines: str | None = None,
) -> CampaignSummary:
    """Encode the rows and make a campaign of them. What networks compute is kept: a second try goes on where the first ended."""
    if len(raw.trusted) == 0:
        check_pilot(settings)  # before anything is computed
    made = assemble(raw, settings, specs, cache=ws.home / CACHE, progress=progress)
    progress("storing", 0, 0)
    encoder = made.encoder.to_bytes()
    kept = kept_of(raw.rules, raw.columns(ColumnRole.TEXT))
    more = arrays_to_keep(kept, (raw.train.frame, raw.trusted.frame))
    return create_campaign(
        ws, name, made.data, settings, by, encoder=encoder, guidelines=guidelines, more=more, progress=progress
    )
