"""Campaigns: list, make, watch."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import Form, Path, Query, Request, Response

from labelchef.base.campaigns import CampaignFiles, CampaignStatus, CampaignSummary, Page, RoundSummary, Shelf
from labelchef.base.settings import Settings
from labelchef.base.validation import AuditReport
from labelchef.data.campaign_data import find_files
from labelchef.server.campaigns import campaigns as service
from labelchef.server.campaigns import charts
from labelchef.server.web.forms import MEDIA, CampaignPath, FolderForm, UploadedCampaign
from labelchef.server.web.paging import Cursor, Limit, part_of
from labelchef.server.web.policies import (
    GUIDELINES,
    NAME_TAKEN,
    SETTINGS,
    Api,
    Changes,
    Lead,
    Member,
    Options,
    SignedIn,
    Store,
)
from labelchef.server.web.problems import Case
from labelchef.server.web.rendering import plain_or_gzipped
from labelchef.server.web.shield import FILE_POLICY
from labelchef.server.web.uploads import UploadRoute, saved, upload_folder
from labelchef.server.web.views import VersionView, shown_to

routes = Api("campaigns", "/campaigns")
_REFUSED: tuple[Case, ...] = (
    (422, "file", "a file is missing or cannot be used; the code names the part, the detail says what is wrong"),
    (422, "same_name", "a part or the name of a file came twice"),
    (422, "memory", "a file that needs more memory than one may take"),
    (422, "name", "a name with characters that cannot be printed"),
    NAME_TAKEN,
    (422, "features", "features that are no table of finite numbers"),
    (422, "weak_labels", "weak labels that are no probabilities, one for each sample and class"),
    (422, "votes", "votes of sources that do not fit each other or the classes"),
    (422, "classes", "class names that repeat, or fewer than two"),
    (422, "labels", "a label that is no class, or not as many labels as samples"),
    (422, "val", "no trusted samples, or features without labels"),
    (422, "test", "test features without labels, or labels without features"),
    (422, "ids", "files whose ids differ or repeat"),
    (422, "items", "contents with ids that cannot be used"),
    (422, "media", "an image that is not there"),
    GUIDELINES,
    *SETTINGS,
)


class Theme(StrEnum):
    """Charts for a light or a dark page."""

    LIGHT = "light"
    DARK = "dark"


@routes.get("")
def list_campaigns(
    who: SignedIn,
    ws: Store,
    after: Cursor = None,
    limit: Limit = 50,
    shelf: Annotated[Shelf, Query(description="Those in use, in the archive, or deleted (for leads).")] = Shelf.OPEN,
) -> Page[CampaignSummary]:
    """The campaigns this person may see, newest first."""
    person = None if who.is_lead else who.name
    found = [shown_to(who, one) for one in service.list_campaigns(ws, person, shelf)]
    return part_of(found, lambda one: (one.created_at.timestamp(), one.id), after, limit, falling=True)


@routes.post("", *_REFUSED, status_code=201, route_class_override=UploadRoute)
def create_campaign(
    who: Lead, ws: Store, form: Annotated[UploadedCampaign, Form(media_type="multipart/form-data")]
) -> CampaignSummary:
    """Make a campaign from uploaded files. The answer comes when the files are checked and stored; the model follows."""
    with upload_folder(ws.home) as root:
        stored = {name: [saved(root / name, one) for one in part] for name, part in form.files().items()}
        paths: dict[str, Any] = {name: root / MEDIA if name == MEDIA else part[0] for name, part in stored.items()}
        settings = Settings.of(form.settings.given())
        return service.create_campaign(
            ws,
            form.name,
            CampaignFiles(**paths, by_position=form.by_position, classes=_named(form.classes)),
            settings,
            who.name,
            guidelines=form.guidelines,
        )


@routes.post(
    "/from-folder", *_REFUSED, (403, "folder", "folders outside of the import root are not read"), status_code=201
)
def create_from_folder(form: FolderForm, who: Lead, ws: Store, options: Options) -> CampaignSummary:
    """Make a campaign from a folder of the server: features.npy, weak.csv or source_votes.csv, val_features.npy, …"""
    files = find_files(options.folder_to_read(form.folder), form.by_position, _named(form.classes))
    settings = Settings.of(form.settings.given())
    return service.create_campaign(ws, form.name, files, settings, who.name, guidelines=form.guidelines)


def _named(classes: list[str] | None) -> tuple[str, ...] | None:
    return tuple(classes) if classes else None


@routes.get("/{campaign}")
def campaign_summary(campaign: CampaignPath, who: Member, ws: Store) -> CampaignSummary:
    """A campaign in one line."""
    return shown_to(who, service.summary(ws, campaign))


@routes.get("/{campaign}/status")
def status(campaign: CampaignPath, _: Lead, ws: Store) -> CampaignStatus:
    """A campaign in full: settings, rounds, the open batch, people."""
    return service.status(ws, campaign)


@routes.get("/{campaign}/rounds")
def rounds(
    campaign: CampaignPath, _: Member, ws: Store, after: Cursor = None, limit: Limit = 200
) -> Page[RoundSummary]:
    """The rounds with their metrics, newest first."""
    return part_of(service.rounds(ws, campaign), lambda one: (one.number,), after, limit, falling=True)


@routes.get("/{campaign}/audit")
def audit(campaign: CampaignPath, who: Member, ws: Store) -> AuditReport:
    """Items drawn by chance and predicted before they were answered: accuracy with an interval valid at all times.

    Annotators see it after every tenth item only.
    """
    return service.audit(ws, campaign, person=None if who.may_lead else who.name)


@routes.get("/{campaign}/changes")
async def changes(
    campaign: CampaignPath,
    _: Member,
    hub: Changes,
    since: Annotated[
        int, Query(ge=-1, le=2**53, description="The version known; -1 or left out: answer at once.")
    ] = -1,
    timeout: Annotated[float, Query(ge=0, le=25, description="Seconds to wait at most.")] = 25.0,
) -> VersionView:
    """Wait until the campaign changes: a long poll. Answers at once if its version is not `since`."""
    return VersionView(version=await hub.changed(campaign, since, timeout))


@routes.get(
    "/{campaign}/charts/{chart}.svg",
    (404, "chart", "no such chart, or nothing to draw yet"),
    response_class=Response,
    responses={200: {"description": "The chart.", "content": {"image/svg+xml": {"schema": {"type": "string"}}}}},
)
def chart(
    campaign: CampaignPath,
    chart: Annotated[str, Path(description=f"One of: {', '.join(charts.NAMES)}.", max_length=50)],
    request: Request,
    who: Member,
    ws: Store,
    theme: Annotated[Theme, Query(description="For a light or a dark page.")] = Theme.LIGHT,
) -> Response:
    """A chart of the campaign, drawn once per round; annotators see those that are not made of votes."""
    drawn = charts.draw(ws, campaign, chart, theme.value, person=None if who.may_lead else who.name)
    tag = f'"{drawn.digest}"'
    headers = {"Cache-Control": "private, no-cache", "ETag": tag, "Content-Security-Policy": FILE_POLICY}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={**headers, "Vary": "Accept-Encoding"})
    return plain_or_gzipped(request, drawn.svg, drawn.gzipped, "image/svg+xml", headers)
