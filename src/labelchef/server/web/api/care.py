"""Care of campaigns: rename, archive, delete, restore, copy with other settings."""

from labelchef.base.campaigns import CampaignSummary
from labelchef.server.campaigns import care
from labelchef.server.web.forms import CampaignPath, CopyForm, DeleteForm, RenameForm, RestoreForm
from labelchef.server.web.policies import NAME_TAKEN, SETTINGS, Api, Lead, Options, Store, WorkspaceLead
from labelchef.server.web.problems import WebError

routes = Api("care", "/campaigns/{campaign}")
_NAME = (422, "name", "a name with characters that cannot be printed")


@routes.post(
    "/rename",
    NAME_TAKEN,
    _NAME,
    (409, "slug_taken", "another campaign has or had this address"),
    (422, "slug", "letters, digits and hyphens only"),
)
def rename(campaign: CampaignPath, form: RenameForm, who: Lead, ws: Store) -> CampaignSummary:
    """Give the campaign another name and, with `slug`, another address; the old address still leads to it."""
    return care.rename(ws, campaign, who.name, form.name, slug=form.slug)


@routes.post("/archive")
def archive(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """Put the campaign away: hidden from lists, read-only, no work for the server."""
    return care.archive(ws, campaign, who.name)


@routes.post("/unarchive")
def unarchive(campaign: CampaignPath, who: Lead, ws: Store) -> CampaignSummary:
    """Take the campaign out of the archive; it goes on where it stood."""
    return care.reopen(ws, campaign, who.name)


@routes.post("/delete", (422, "confirm", "what was typed is not the name of the campaign"))
def delete(campaign: CampaignPath, form: DeleteForm, who: Lead, ws: Store, options: Options) -> CampaignSummary:
    """Delete the campaign. Until `purge_at` a lead can restore it; then it is removed for good."""
    if form.now and not who.is_lead:
        raise WebError(403, "only leads of the workspace may delete without a grace period", code="role")
    return care.delete(ws, campaign, who.name, confirm=form.confirm, grace_days=options.grace_days, now=form.now)


@routes.post("/restore", NAME_TAKEN, _NAME)
def restore(campaign: CampaignPath, form: RestoreForm, who: Lead, ws: Store) -> CampaignSummary:
    """Take the deletion back; with `name`, under another name."""
    return care.restore(ws, campaign, who.name, name=form.name)


@routes.post("/copy", NAME_TAKEN, _NAME, *SETTINGS, status_code=201)
def copy(campaign: CampaignPath, form: CopyForm, who: WorkspaceLead, ws: Store) -> CampaignSummary:
    """A new campaign of the same data with other settings; answers go along as known labels if you say so."""
    return care.copy(ws, campaign, who.name, name=form.name, changes=form.settings.given(), answers=form.answers)
