"""Long work in the background: start, watch, cancel, and what came of it."""

from typing import Annotated

from fastapi import Path
from fastapi.responses import FileResponse

from labelchef.base.campaigns import Page
from labelchef.base.jobs import Job
from labelchef.server.jobs import jobs as service
from labelchef.server.web.api.exchange import media_type_of
from labelchef.server.web.forms import CampaignPath, JobForm
from labelchef.server.web.paging import Cursor, Limit, part_of
from labelchef.server.web.policies import Api, Lead, Store
from labelchef.server.web.shield import FILE_POLICY

routes = Api("jobs", "/campaigns/{campaign}/jobs")
JobPath = Annotated[str, Path(description="Id of the job.", max_length=100)]
_NO_JOB = (404, "job", "no such job in this campaign")
_BUSY = (429, "busy", "too many jobs wait; Retry-After says when to try again")
_MODEL = (409, "preparing", "there is no model yet")
_FORMAT = (422, "format", "no such format")


@routes.get("")
def list_jobs(campaign: CampaignPath, _: Lead, ws: Store, after: Cursor = None, limit: Limit = 50) -> Page[Job]:
    """The jobs of the campaign, newest first, without what they found."""
    found = service.jobs(ws, campaign)
    return part_of(found, lambda one: (one.created_at.timestamp(), one.id), after, limit, falling=True)


@routes.post("", _MODEL, _BUSY, _FORMAT, status_code=202)
def start_job(campaign: CampaignPath, form: JobForm, who: Lead, ws: Store) -> Job:
    """Start a job; it runs in the background, one at a time, and its result stays."""
    options = form.model_dump(exclude={"kind"}, exclude_none=True)
    return service.start(ws, campaign, form.kind, who.name, options)


@routes.get("/{job}", _NO_JOB)
def look(campaign: CampaignPath, job: JobPath, _: Lead, ws: Store) -> Job:
    """How far the job is, and what it found."""
    return service.look(ws, campaign, job)


@routes.get(
    "/{job}/file",
    (404, "job", "no such job, or it has no file, or no longer"),
    response_class=FileResponse,
    responses={200: {"description": "The file.", "content": {"application/octet-stream": {}}}},
)
def job_file(campaign: CampaignPath, job: JobPath, _: Lead, ws: Store) -> FileResponse:
    """The file that the job made; as often as you like, until it is removed."""
    path = service.file_of(ws, campaign, job)
    headers = {"Content-Security-Policy": FILE_POLICY}
    return FileResponse(path, media_type=media_type_of(path), filename=path.name, headers=headers)


@routes.post("/{job}/cancel", _NO_JOB)
def cancel(campaign: CampaignPath, job: JobPath, _: Lead, ws: Store) -> Job:
    """Stop the job; one that runs ends soon after."""
    return service.cancel(ws, campaign, job)


@routes.post("/{job}/again", _NO_JOB, _MODEL, _BUSY, _FORMAT, status_code=202)
def again(campaign: CampaignPath, job: JobPath, who: Lead, ws: Store) -> Job:
    """Start the same work anew, as a job of its own."""
    return service.again(ws, campaign, job, who.name)


@routes.delete("/{job}", _NO_JOB, (409, "running", "the job is not over; cancel it first"), status_code=204)
def remove(campaign: CampaignPath, job: JobPath, _: Lead, ws: Store) -> None:
    """Remove a job that is over, with its result."""
    service.remove(ws, campaign, job)
