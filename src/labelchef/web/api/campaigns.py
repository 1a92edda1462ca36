"""Campaigns: list, make, follow."""

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import File, Form, Query, UploadFile

from labelchef.domain.campaigns import CampaignFiles
from labelchef.domain.errors import InvalidInputError
from labelchef.services import campaigns as service
from labelchef.web.api.labelling import CampaignPath
from labelchef.web.forms import CampaignSettingsForm, FolderForm, Name
from labelchef.web.paging import Cursor, Limit, by_age, part_of
from labelchef.web.policies import (
    CAMPAIGN,
    Changes,
    Lead,
    Member,
    Options,
    Policy,
    SignedIn,
    Store,
    answers,
    router,
)
from labelchef.web.problems import WebError
from labelchef.web.uploads import UploadRoute, saved, upload_folder
from labelchef.web.views import CampaignView, PageOf, RoundView, StatusView, VersionView, shown_to

routes = router()
uploads = router(UploadRoute)
_BAD_FILE = (422, "file", "a file is missing or cannot be used; the code is that of the part, the detail says how")
_SELECTOR = (
    (422, "selector", "a selector that is none"),
    (422, "suggestion", "the suggestion is to vote, but the selector suggests nothing"),
    (422, "cleanlab", "the selector needs the extra cleanlab, of 2.8 or later"),
)
Needed = Annotated[UploadFile, File()]
Optional = Annotated[UploadFile | None, File()]


@routes.get(
    "/campaigns", tags=["campaigns"], responses=answers(Policy.SIGNED_IN, (422, "cursor", "a cursor that is none"))
)
def list_campaigns(who: SignedIn, ws: Store, after: Cursor = None, limit: Limit = 50) -> PageOf[CampaignView]:
    """The campaigns this person may see, newest first."""
    found = service.list_campaigns(ws, person=None if who.is_lead else who.name)
    views = [CampaignView.model_validate(shown_to(who, one)) for one in found]
    return part_of(views, by_age, after, limit, falling=True)


@uploads.post(
    "/campaigns",
    status_code=201,
    tags=["campaigns"],
    responses=answers(Policy.LEAD, _BAD_FILE, *_SELECTOR, changes=True),
)
def create_campaign(
    who: Lead,
    ws: Store,
    name: Annotated[Name, Form()],
    features: Needed,
    weak: Needed,
    val_features: Needed,
    val_labels: Needed,
    test_features: Optional = None,
    test_labels: Optional = None,
    clean_labels: Optional = None,
    items: Optional = None,
    val_items: Optional = None,
    media: Annotated[list[UploadFile] | None, File()] = None,
    settings: Annotated[str | None, Form(max_length=10000, description="JSON, as in `from-folder`.")] = None,
    selector: Annotated[str | None, Form(min_length=1, max_length=100)] = None,
    people: Annotated[int | None, Form(ge=0, le=1000)] = None,
    suggestion_votes: Annotated[bool | None, Form()] = None,
    budget: Annotated[int | None, Form(ge=1, le=2**31 - 1)] = None,
    batch_size: Annotated[int | None, Form(ge=1, le=100000)] = None,
    target: Annotated[float | None, Form(allow_inf_nan=False)] = None,
    blind_share: Annotated[float | None, Form(ge=0, le=1)] = None,
    ahead: Annotated[int | None, Form(ge=0, le=100000)] = None,
    gamma: Annotated[float | None, Form(ge=0, le=1)] = None,
    l2: Annotated[float | None, Form(gt=0, le=1e9)] = None,
) -> CampaignView:
    """Make a campaign from uploaded files; the answer comes when they are checked and stored, the model follows."""
    given = {
        "selector": selector, "people": people, "suggestion_votes": suggestion_votes, "budget": budget, "batch_size": batch_size,
        "target": target, "blind_share": blind_share, "ahead": ahead, "gamma": gamma, "l2": l2,
    }  # fmt: skip
    whole = _settings_json(settings)
    chosen = whole.model_copy(update={k: v for k, v in given.items() if v is not None})
    sent = {
        "features": features, "weak": weak, "val_features": val_features, "val_labels": val_labels,
        "test_features": test_features, "test_labels": test_labels, "clean_labels": clean_labels,
        "items": items, "val_items": val_items,
    }  # fmt: skip
    with upload_folder(ws.home) as root:
        paths = {key: saved(root / key, upload) for key, upload in sent.items() if upload is not None}
        pictures = None
        if media:
            pictures = root / "media"
            for picture in media:
                saved(pictures, picture)
        files = CampaignFiles(**paths, media=pictures)
        return CampaignView.model_validate(service.create_campaign(ws, name, files, chosen.settings(), who.name))


def _settings_json(text: str | None) -> CampaignSettingsForm:
    try:
        return CampaignSettingsForm.model_validate_json(text) if text else CampaignSettingsForm()
    except ValueError as error:
        raise InvalidInputError(
            f"settings cannot be read: {str(error).splitlines()[-1].strip()}", code="input"
        ) from None


@routes.post(
    "/campaigns/from-folder",
    status_code=201,
    tags=["campaigns"],
    responses=answers(
        Policy.LEAD,
        _BAD_FILE,
        *_SELECTOR,
        (403, "folder", "folders outside of the import root are not read"),
        changes=True,
    ),
)
def create_from_folder(form: FolderForm, who: Lead, ws: Store, options: Options) -> CampaignView:
    """Make a campaign from a folder of the server: features.npy, weak.csv, val_features.npy, val_labels.csv, …"""
    if "\x00" in form.folder:
        raise InvalidInputError("the folder's name holds a null character", code="file")
    folder = FilePath(form.folder).expanduser()
    if not options.folder_allowed(folder):
        below = f"below {options.import_root}" if options.import_root else "set by LABELCHEF_IMPORT_ROOT"
        raise WebError(403, f"campaigns are made from folders {below} only; upload the files instead", code="folder")
    made = service.create_from_folder(ws, form.name, folder, form.settings.settings(), who.name)
    return CampaignView.model_validate(made)


@routes.get("/campaigns/{campaign}", tags=["campaigns"], responses=answers(Policy.MEMBER, CAMPAIGN))
def campaign_summary(campaign: CampaignPath, who: Member, ws: Store) -> CampaignView:
    """A campaign in one line."""
    return CampaignView.model_validate(shown_to(who, service.summary(ws, campaign)))


@routes.get("/campaigns/{campaign}/status", tags=["campaigns"], responses=answers(Policy.LEAD, CAMPAIGN))
def status(campaign: CampaignPath, _: Lead, ws: Store) -> StatusView:
    """A campaign in full: settings, rounds, the open batch, people."""
    return StatusView.model_validate(service.status(ws, campaign))


@routes.get(
    "/campaigns/{campaign}/rounds",
    tags=["campaigns"],
    responses=answers(Policy.MEMBER, CAMPAIGN, (422, "cursor", "a cursor that is none")),
)
def rounds(campaign: CampaignPath, _: Member, ws: Store, after: Cursor = None, limit: Limit = 200) -> PageOf[RoundView]:
    """The rounds with their metrics, newest first."""
    found = [RoundView.model_validate(one) for one in service.rounds(ws, campaign)]
    return part_of(found, lambda one: one.number, after, limit, falling=True)


@routes.get("/campaigns/{campaign}/changes", tags=["campaigns"], responses=answers(Policy.MEMBER, CAMPAIGN))
async def changes(
    campaign: CampaignPath,
    _: Member,
    hub: Changes,
    since: Annotated[
        int | None, Query(ge=-1, le=2**53, description="The version known; left out: answer at once.")
    ] = None,
    timeout: Annotated[float, Query(ge=0, le=25, description="Seconds to wait at most.")] = 25.0,
) -> VersionView:
    """Wait until the campaign changes: a long poll. Answers at once if its version is not `since`."""
    known = -1 if since is None else since
    return VersionView(version=await hub.changed(campaign, known, 0.0 if since is None else timeout))
